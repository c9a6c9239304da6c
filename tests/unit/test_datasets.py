import base64
import subprocess
import sys

import numpy as np
import pytest

from mxcluster import datasets, package
from mxcluster.datasets import DATASETS, training_samples, write_digits
from mxcluster.errors import BadInput


def test_training_samples_of_a_data_set():
    assert training_samples("digits") == 1437
    assert training_samples("mnist") == 60000
    assert training_samples("cifar10", 100) == 100
    assert training_samples("synthetic", 10**7) == 10**7


def test_too_many_samples_are_refused():
    assert training_samples("imagenet", 1281167) == 1281167
    with pytest.raises(
        BadInput, match="num_examples=1281168: imagenet has only 1281167 .* at most 1281167"
    ):
        training_samples("imagenet", 1281168)


def test_digits_has_all_1797_samples():
    assert DATASETS["digits"].train + DATASETS["digits"].validation == 1797


@pytest.mark.slow
def test_the_digits_file_is_reproducible(tmp_path):
    path, other = tmp_path / "digits.npz", tmp_path / "other.npz"
    write_digits(str(path))
    write_digits(str(other))
    assert path.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_the_digits_file_has_every_digit_once(tmp_path):
    from sklearn.datasets import load_digits  # a second of work for each process that collects

    write_digits(str(tmp_path / "digits.npz"))
    with np.load(tmp_path / "digits.npz") as arrays:
        assert arrays["train_x"].shape == (1437, 8, 8) and arrays["val_x"].shape == (360, 8, 8)
        assert arrays["train_x"].dtype == np.uint8 and arrays["train_x"].max() == 16
        ours = sorted(image.tobytes() for name in ("train_x", "val_x") for image in arrays[name])
        labels = np.concatenate([arrays["train_y"], arrays["val_y"]])
    original = load_digits()
    assert ours == sorted(image.astype(np.uint8).tobytes() for image in original.images)
    assert np.array_equal(np.bincount(labels), np.bincount(original.target))


def printed(module, *arguments):
    """Return (first line, decoded second line) that ``python -m module`` prints."""
    text = subprocess.check_output([sys.executable, "-m", module, *map(str, arguments)])
    first, second = text.decode().splitlines()
    return first, base64.b64decode(second, validate=True)


@pytest.mark.slow
def test_the_roles_get_the_digits_as_text_and_check_mode_writes_nothing(tmp_path):
    kept = tmp_path / "cache"
    said, content = printed("mxcluster.datasets", kept, "check")
    assert said == "made" and list(tmp_path.iterdir()) == []
    assert printed("mxcluster.datasets", kept) == ("made", content)
    (path,) = kept.iterdir()
    before = path.stat().st_mtime_ns
    for check in [], ["check"]:
        assert printed("mxcluster.datasets", kept, *check) == ("kept", path.read_bytes())
    assert path.read_bytes() == content and path.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "cache").write_text("")
    run = subprocess.run(
        [sys.executable, "-m", "mxcluster.datasets", str(tmp_path / "cache")], capture_output=True
    )
    assert run.returncode == 1 and "on the controller (%s: " % (tmp_path / "cache") in (
        run.stderr.decode()
    )


def test_a_python_without_scikit_learn_names_the_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SystemExit, match="lacks a package .*run `make venv`"):
        datasets.main(str(tmp_path))


@pytest.mark.slow
def test_the_roles_get_the_package_as_text():
    assert printed("mxcluster.package") == package.archive()
