"""The data sets of the program: `load` returns training and validation samples.

All sources of samples have the methods `len(source)` and `read(indices, side, rng)`. `read` returns
images, float32 (n, channels, side, side) of about unit scale, and labels, float32 (n,). With an
`rng` (numpy RandomState) `read` augments the images of CIFAR-10 and ImageNet. Without an `rng`,
`read` augments no image. Several threads may call `read` at once.
"""

import os
from typing import Tuple, Union

from mxcluster.datasets import DATASETS
from mxcluster.errors import BadInput
from mxcluster.training.programs.image_classification.data import arrays, recordio, warped

Source = Union[arrays.Images, arrays.Synthetic, recordio.Images]


def load(name: str, folder: str, num_examples: int = 0, seed: int = 0) -> Tuple[Source, Source]:
    """Return the (training, validation) sources of a data set.

    Raises BadInput if a file of the data set is missing or invalid.

    Args:
        name: the name of a data set in mxcluster.datasets.
        folder: the path of the data set's files.
        num_examples: the number of synthetic training samples, 0 for the usual number. Other data
            sets ignore this argument.
        seed: the seed of synthetic data.
    """
    classes = DATASETS[name].classes
    if name == "synthetic":
        return (
            arrays.Synthetic(num_examples or DATASETS[name].train, seed, arrays.TRAIN),
            arrays.Synthetic(DATASETS[name].validation, seed, arrays.VALIDATION),
        )
    if not folder:
        raise BadInput(
            "data set %s needs files: give the folder of the files with --data-dir" % name
        )
    if DATASETS[name].file:
        path = _find(
            folder,
            name,
            "run provision.yml, which puts this file on every node",
            DATASETS[name].file,
        )
        return warped.warped(path) if name == "warped" else arrays.digits(path)
    if name == "mnist":
        hint = "put MNIST's four idx files there, with or without .gz"
        files = [_find(folder, name, hint, stem, stem + ".gz") for stem in arrays.MNIST_FILES]
        return arrays.mnist(*files[:2]), arrays.mnist(*files[2:])
    hint = "put the data set there as RecordIO files from MXNet's im2rec"
    if name == "cifar10":
        train = _find(folder, name, hint, "cifar10_train.rec", "train.rec")
        validation = _find(folder, name, hint, "cifar10_val.rec", "test.rec", "val.rec")
        # As He et al., CVPR 2016, section 4.2: pad by 4 pixels, crop anywhere, mirror.
        return recordio.Images(train, classes, pad=4), recordio.Images(validation, classes)
    train, validation = (_find(folder, name, hint, part + ".rec") for part in ("train", "val"))
    # As Szegedy et al., CVPR 2015: train on a random part of 8 to 100 % of the image, mirrored at
    # random; validate on the middle.
    return (
        recordio.Images(train, classes, least_area=0.08),
        recordio.Images(validation, classes, middle=0.875),
    )


def number_of(train: Source, name: str, num_examples: int) -> int:
    """Return the number of training samples to use.

    Raises BadInput if the data set has fewer samples.

    Args: `train` the training source of the data set `name`; `num_examples` the number of samples,
    0 for all.
    """
    samples = num_examples or len(train)
    if samples > len(train):
        raise BadInput(
            "num_examples=%d: %s has only %d training samples. Use at most %d, or 0 for all "
            "samples" % (samples, name, len(train), len(train))
        )
    return samples


def _find(folder: str, data_set: str, hint: str, *names: str) -> str:
    """Return the path of the first of `names` that is a file in `folder`.

    If `folder` has none of `names`, the function raises BadInput with the name `data_set` and the
    advice `hint` in the message.
    """
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise BadInput(
        "data set %s is incomplete, because %s is not in %s: %s, or name another folder with "
        "data_dir" % (data_set, " or ".join(names), folder, hint)
    )
