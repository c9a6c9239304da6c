import gzip
import struct

import numpy as np
import pytest

from mxcluster import datasets
from mxcluster.errors import BadInput
from mxcluster.training.programs.image_classification import data
from mxcluster.training.programs.image_classification.data import arrays


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    datasets.write_digits(str(folder / "digits.npz"))
    return folder


@pytest.mark.slow
def test_digits_are_loaded(digits):
    train, validation = data.load("digits", str(digits))
    assert (len(train), len(validation)) == (1437, 360)
    images, labels = train.read([0, 1, 2], 8)
    assert images.shape == (3, 1, 8, 8) and images.dtype == labels.dtype == np.float32
    assert images.max() <= 1
    assert train.read([0], 28)[0].shape == (1, 1, 28, 28)
    everything = validation.read(np.arange(360), 8)[1]
    assert sorted(np.bincount(everything.astype(int)))[0] >= 34, (
        "validation must have a fifth of every digit"
    )


@pytest.mark.slow
def test_warped_digits_are_the_same_in_all_jobs_and_hard_for_a_template(digits):
    (train, validation), (again, _) = (
        data.load("warped", str(digits), seed=seed) for seed in (0, 1)
    )
    shape = datasets.DATASETS["warped"]
    assert (len(train), len(validation)) == (shape.train, shape.validation)
    images, labels = train.read(np.arange(len(train)), 16)
    assert images.shape[1:] == shape.shape and images.dtype == labels.dtype == np.float32
    assert np.array_equal(images, again.read(np.arange(len(train)), 16)[0])
    assert np.bincount(labels.astype(int)).min() > 150
    # The mean picture of each class tells most digits of scikit-learn apart, and few of these.
    found = {}
    for name in ("digits", "warped"):
        (known, known_labels), (images, labels) = (
            part.read(np.arange(len(part)), datasets.DATASETS[name].shape[1])
            for part in data.load(name, str(digits))
        )
        means = np.array([known[known_labels == digit].mean(axis=0) for digit in range(10)])
        distances = ((images[:, np.newaxis] - means) ** 2).sum(axis=(2, 3, 4))
        found[name] = (distances.argmin(axis=1) == labels).mean()
    assert found["digits"] > 0.85 and 0.2 < found["warped"] < 0.65, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"?"),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: np.savez(str(path), train_x=np.zeros(3)),
    ],
)
def test_a_damaged_digits_file_is_refused(tmp_path, digits, spoil):
    path = tmp_path / "digits.npz"
    path.write_bytes((digits / "digits.npz").read_bytes())
    spoil(path)
    with pytest.raises(
        BadInput, match="digits.npz is not a digits.npz of mxcluster .* run provision.yml again"
    ):
        data.load("digits", str(tmp_path))


def write_idx(folder, name, values, compress):
    content = (
        struct.pack(">BBBB%dI" % values.ndim, 0, 0, 8, values.ndim, *values.shape)
        + values.tobytes()
    )
    path = folder / (name + (".gz" if compress else ""))
    path.write_bytes(gzip.compress(content) if compress else content)
    return path


@pytest.mark.parametrize("compress", [False, True])
def test_mnist_is_loaded(tmp_path, compress):
    rng = np.random.RandomState(0)
    images, labels = rng.randint(256, size=(2, 28, 28)).astype(np.uint8), np.array([4, 9], np.uint8)
    for name, values in zip(arrays.MNIST_FILES, (images, labels, images[:1], labels[:1])):
        write_idx(tmp_path, name, values, compress)
    train, validation = data.load("mnist", str(tmp_path))
    assert (len(train), len(validation)) == (2, 1)
    read, read_labels = train.read([1, 0], 28)
    assert np.allclose(read[:, 0] * 255, images[::-1]) and read_labels.tolist() == [9, 4]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08\x03",
        b"\0\0\x08\x03" + struct.pack(">3I", 9, 28, 28) + b"few",
        b"\0\0\x0d\x03" + struct.pack(">3I", 1, 1, 1) + b"x",
        b"<html></html>      ",
    ],
)
def test_a_file_that_is_not_idx_is_refused(tmp_path, content):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="is not an idx file of 3 dimensions"):
        arrays.idx(str(path), 3)
    broken = tmp_path / "train-images-idx3-ubyte.gz"
    broken.write_bytes(gzip.compress(b"x" * 1000)[:30])
    with pytest.raises(BadInput, match="is not an idx file of 3 dimensions"):
        arrays.idx(str(broken), 3)


def test_mnist_images_and_labels_of_different_sets_are_refused(tmp_path):
    images = write_idx(tmp_path, "images", np.zeros((3, 28, 28), np.uint8), False)
    labels = write_idx(tmp_path, "labels", np.zeros(2, np.uint8), False)
    with pytest.raises(BadInput, match="has 3 images, but .* has 2 labels"):
        arrays.mnist(str(images), str(labels))


@pytest.mark.parametrize(
    "name,missing",
    [
        ("digits", "digits.npz is not in .*: run provision.yml, which puts this file on every"),
        ("mnist", "train-images-idx3-ubyte or train-images-idx3-ubyte.gz is not in"),
        ("cifar10", "cifar10_train.rec or train.rec is not in .*RecordIO"),
        ("imagenet", "train.rec is not in .*RecordIO"),
    ],
)
def test_a_missing_file_is_named(tmp_path, name, missing):
    with pytest.raises(BadInput, match=missing):
        data.load(name, str(tmp_path))
    with pytest.raises(BadInput, match="give the folder of the files with --data-dir"):
        data.load(name, "")


def test_synthetic_is_reproducible_and_differs_between_parts():
    train, validation = data.load("synthetic", "", 300, seed=1)
    assert len(train) == 300 and len(validation) == datasets.DATASETS["synthetic"].validation
    images, labels = train.read(np.arange(300), 32)
    assert images.shape == (300, 3, 32, 32) and images.dtype == np.float32
    again, _ = data.load("synthetic", "", 300, seed=1)
    assert np.array_equal(again.read(np.arange(299, -1, -1), 32)[0], images[::-1])
    assert len({image.tobytes() for image in images}) == 300
    assert not np.array_equal(images[:9], validation.read(np.arange(9), 32)[0])
    assert not np.array_equal(
        images[:9], data.load("synthetic", "", 300, seed=2)[0].read(np.arange(9), 32)[0]
    )
    assert sorted(np.bincount(labels.astype(int))) == [30] * 10


@pytest.mark.slow
def test_synthetic_can_be_learned():
    """The nearest mean image of a class gives the class of nearly every validation image."""
    train, validation = data.load("synthetic", "", 1000)
    images, labels = train.read(np.arange(1000), 32)
    means = np.stack([images[labels == label].mean(axis=0).ravel() for label in range(10)])
    tests, wanted = validation.read(np.arange(len(validation)), 32)
    distances = ((tests.reshape(len(tests), 1, -1) - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == wanted).mean() > 0.95
