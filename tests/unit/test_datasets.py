import numpy as np
import pytest
from sklearn.datasets import load_digits

from mxcluster.datasets import DATASETS, training_samples, write_digits
from mxcluster.errors import BadInput


def test_samples_of_an_epoch():
    assert training_samples("digits") == 1437
    assert training_samples("mnist") == 60000
    assert training_samples("cifar10", 100) == 100
    assert training_samples("synthetic", 10 ** 7) == 10 ** 7


def test_more_samples_than_there_are():
    assert training_samples("imagenet", 1281167) == 1281167
    with pytest.raises(BadInput, match="num_examples=1281168: imagenet has only 1281167 .* at most 1281167"):
        training_samples("imagenet", 1281168)


def test_digits_are_all_of_the_1797():
    assert DATASETS["digits"].train + DATASETS["digits"].validation == 1797


def test_digits_file_is_always_the_same_and_written_once(tmp_path):
    path, other = tmp_path / "digits.npz", tmp_path / "other.npz"
    assert write_digits(str(path)) is True
    assert write_digits(str(other)) is True
    assert path.read_bytes() == other.read_bytes()
    before = path.stat().st_mtime_ns
    assert write_digits(str(path)) is False and path.stat().st_mtime_ns == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["digits.npz", "other.npz"]


def test_digits_file_holds_every_digit_once(tmp_path):
    write_digits(str(tmp_path / "digits.npz"))
    with np.load(tmp_path / "digits.npz") as arrays:
        assert arrays["train_x"].shape == (1437, 8, 8) and arrays["val_x"].shape == (360, 8, 8)
        assert arrays["train_x"].dtype == np.uint8 and arrays["train_x"].max() == 16
        ours = sorted(image.tobytes() for name in ("train_x", "val_x") for image in arrays[name])
        labels = np.concatenate([arrays["train_y"], arrays["val_y"]])
    original = load_digits()
    assert ours == sorted(image.astype(np.uint8).tobytes() for image in original.images)
    assert np.array_equal(np.bincount(labels), np.bincount(original.target))


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("disk full")
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="disk full"):
        write_digits(str(tmp_path / "digits.npz"))
    assert list(tmp_path.iterdir()) == []
