"""Sources of samples: digits and MNIST in memory, and synthetic samples made at each read."""

import gzip
import struct
import zipfile
import zlib
from typing import Optional, Sequence, Tuple, Union

import numpy as np

from mxcluster.datasets import DATASETS
from mxcluster.errors import BadInput
from mxcluster.training.programs.image_classification.data import pictures

Indices = Union[Sequence[int], np.ndarray]

MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
TRAIN, VALIDATION = 1, 2


class Images:
    """A source of samples from arrays in memory.

    Args:
        images: array (n, height, width) of any number type.
        labels: array (n,).
        white: the pixel value that becomes 1.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, white: float) -> None:
        self._images, self._labels, self._white = images, labels, white

    def __len__(self) -> int:
        return len(self._images)

    def read(
        self, indices: Indices, side: int, rng: Optional[np.random.RandomState] = None
    ) -> Tuple[np.ndarray, np.ndarray]:
        """Return (images, labels) at `indices`, resized to `side`. `rng` has no effect.

        The images are float32 (n, 1, side, side), the labels float32 (n,).
        """
        images = self._images[indices].astype(np.float32)[:, np.newaxis] / self._white
        return pictures.resize(images, side), self._labels[indices].astype(np.float32)


class Synthetic:
    """A source of synthetic images: each image is a smooth pattern of its class plus noise.

    Every network can learn these images. `read` computes each sample anew. Sample i is the pattern
    of its class plus a window of one long noise vector. So the same (seed, part, i) gives the same
    sample everywhere. The patterns depend on the seed alone, so the parts TRAIN and VALIDATION have
    the same patterns.

    Args:
        samples: the number of samples.
        seed: the seed of the patterns and the noise.
        part: TRAIN or VALIDATION.
    """

    def __init__(self, samples: int, seed: int, part: int) -> None:
        classes, (channels, side, _) = DATASETS["synthetic"].classes, DATASETS["synthetic"].shape
        patterns = np.random.RandomState([seed, 0]).normal(size=(classes, channels, 4, 4))
        self._patterns = pictures.resize(0.4 * patterns.astype(np.float32), side)
        rng = np.random.RandomState([seed, part])
        self._labels = rng.permutation(np.arange(samples) % classes)
        self._noise = rng.normal(scale=0.8, size=2**20).astype(np.float32)
        self._starts = rng.randint(len(self._noise) - self._patterns[0].size, size=samples)

    def __len__(self) -> int:
        return len(self._labels)

    def read(
        self, indices: Indices, side: int, rng: Optional[np.random.RandomState] = None
    ) -> Tuple[np.ndarray, np.ndarray]:
        """Return (images, labels) at `indices`, resized to `side`. `rng` has no effect.

        The images are float32 (n, channels, side, side), the labels float32 (n,).
        """
        labels = self._labels[indices]
        windows = self._starts[indices][:, np.newaxis] + np.arange(self._patterns[0].size)
        images = self._patterns[labels] + self._noise[windows].reshape(
            (-1,) + self._patterns.shape[1:]
        )
        return pictures.resize(images, side), labels.astype(np.float32)


def digits(path: str) -> Tuple[Images, Images]:
    """Return the (training, validation) sources from `path`, a digits.npz of mxcluster.datasets.

    Raises BadInput if the file cannot be read or lacks an array.
    """
    try:
        with np.load(path) as archive:
            train_x, train_y, val_x, val_y = (
                archive[name] for name in ("train_x", "train_y", "val_x", "val_y")
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise BadInput(
            "%s is not a digits.npz of mxcluster (%s): remove this file and run provision.yml again"
            % (path, error)
        ) from None
    return Images(train_x, train_y, white=16), Images(val_x, val_y, white=16)


def mnist(images_path: str, labels_path: str) -> Images:
    """Return a source of samples from a pair of MNIST's idx files, gzipped or not.

    Format: LeCun, Cortes, Burges, the MNIST database. Raises BadInput if a file is damaged, or if
    the two files have different numbers of samples.
    """
    images, labels = idx(images_path, 3), idx(labels_path, 1)
    if len(images) != len(labels):
        raise BadInput(
            "%s has %d images, but %s has %d labels: these files do not belong together, so fetch "
            "both files again" % (images_path, len(images), labels_path, len(labels))
        )
    return Images(images, labels, white=255)


def idx(path: str, dimensions: int) -> np.ndarray:
    """Return the content of the idx file `path` as a uint8 array with `dimensions` dimensions.

    Raises BadInput if the file is of another format.
    """
    try:
        with open(path, "rb") as stream:
            content = stream.read()
        if path.endswith(".gz"):
            content = gzip.decompress(content)
        shape = struct.unpack_from(">%dI" % dimensions, content, 4)
        # The first four bytes are two zeros, 8 for unsigned bytes, and the number of dimensions.
        if content[:4] != bytes((0, 0, 8, dimensions)):
            raise ValueError("the first bytes are %s" % content[:4].hex())
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise BadInput(
            "%s is not an idx file of %d dimensions (%s): fetch the file again"
            % (path, dimensions, error)
        ) from None
