"""The data set `warped`: small noisy pictures of warped digits, harder to learn than `digits`.

Each picture shows one digit that is turned, scaled, sheared and shifted at random. Parts of two
other digits (the clutter) and noise are added. The place and the pose of the digit vary, so a
convolutional network such as lenet learns the task better than mlp.
"""

from typing import Tuple

import numpy as np

from mxcluster.datasets import DATASETS
from mxcluster.training.programs.image_classification.data import arrays

SEED = 20190514  # the same pictures in all jobs: the knob seed has no effect on them
TURN = 0.35  # radians, to both sides
LEAST_SCALE, MOST_SCALE = 1.2, 1.6  # pixels of the picture for one pixel of the digit
SHEAR = 0.2
SHIFT = 1.5  # pixels, to all sides
CLUTTER = 0.3  # largest brightness of a part of another digit
NOISE = 0.1  # standard deviation; the brightest pixel of a digit is 1


def warped(path: str) -> Tuple[arrays.Images, arrays.Images]:
    """Return the (training, validation) sources from `path`, a digits.npz of mxcluster.datasets.

    Training pictures come from the training digits, validation pictures from the validation digits.
    Raises BadInput if the file cannot be read or lacks an array.
    """
    parts = arrays.digits(path)
    sizes = DATASETS["warped"].train, DATASETS["warped"].validation
    training, validation = (
        arrays.Images(*_pictures(digits, samples, np.random.RandomState([SEED, part])), white=1)
        for part, (digits, samples) in enumerate(zip(parts, sizes))
    )
    return training, validation


def _pictures(
    digits: arrays.Images, samples: int, rng: np.random.RandomState
) -> Tuple[np.ndarray, np.ndarray]:
    """Return images, float32 (samples, side, side), and labels, float32 (samples,).

    Args:
        digits: a source of digits.
        samples: the number of pictures.
        rng: the source of the random poses, clutter and noise.
    """
    side = DATASETS["warped"].shape[1]
    images, labels = digits.read(np.arange(len(digits)), DATASETS["digits"].shape[1])
    chosen = np.resize(rng.permutation(len(digits)), samples)
    found = _warp(images[chosen, 0], side, rng)
    for _ in range(2):
        other = _warp(images[rng.randint(len(digits), size=samples), 0], side, rng)
        found = np.maximum(found, _clutter(other, rng))
    found += rng.normal(scale=NOISE, size=found.shape)
    return found.astype(np.float32), labels[chosen]


def _warp(images: np.ndarray, side: int, rng: np.random.RandomState) -> np.ndarray:
    """Return each of `images` (n, rows, columns) in a random pose, as pictures (n, side, side).

    The inverse of the pose maps a pixel of the picture to a point of the image. The pixel is the
    bilinear mean of the image's pixels around this point. Outside the image all pixels are 0.
    """
    count, size = len(images), images.shape[1]
    angle = rng.uniform(-TURN, TURN, count)
    scale = rng.uniform(LEAST_SCALE, MOST_SCALE, count)
    shear = rng.uniform(-SHEAR, SHEAR, count)
    shift = rng.uniform(-SHIFT, SHIFT, (2, count, 1, 1))
    lines = np.arange(side) - (side - 1) / 2
    y, x = lines[np.newaxis, :, np.newaxis] - shift[0], lines[np.newaxis, np.newaxis] - shift[1]
    sine, cosine = (
        part[:, np.newaxis, np.newaxis] / scale[:, np.newaxis, np.newaxis]
        for part in (np.sin(angle), np.cos(angle))
    )
    from_y = cosine * y - sine * x
    from_x = sine * y + cosine * x + shear[:, np.newaxis, np.newaxis] * from_y
    # The frame of zeros gives all points outside the image the value 0.
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)), "constant")
    from_y, from_x = (np.clip(part + (size + 1) / 2, 0, size + 0.999) for part in (from_y, from_x))
    top, left = from_y.astype(int), from_x.astype(int)
    down, right = from_y - top, from_x - left
    which = np.arange(count)[:, np.newaxis, np.newaxis]
    return (
        framed[which, top, left] * (1 - down) * (1 - right)
        + framed[which, top, left + 1] * (1 - down) * right
        + framed[which, top + 1, left] * down * (1 - right)
        + framed[which, top + 1, left + 1] * down * right
    )


def _clutter(pictures: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Return `pictures` with all pixels set to 0 except a band at a random edge of each picture.

    The band is dimmed by the factor CLUTTER. `pictures` and the result have the shape (n, side,
    side).
    """
    count, side = len(pictures), pictures.shape[1]
    lines, width = np.arange(side), side // 4
    begin = np.where(rng.randint(2, size=count), 0, side - width)[:, np.newaxis]
    band = (lines >= begin) & (lines < begin + width)
    flat = rng.randint(2, size=count)[:, np.newaxis, np.newaxis]
    shown = np.where(flat, band[:, :, np.newaxis], band[:, np.newaxis, :])
    return pictures * shown * CLUTTER
