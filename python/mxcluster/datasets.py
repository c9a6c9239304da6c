"""Define the table of data sets, and write the file digits.npz.

The plan and the training programs both read the table.
"""

import base64
import hashlib
import io
import os
import sys
from typing import NamedTuple, Tuple

from mxcluster.errors import BadInput


class DataSet(NamedTuple):
    """A data set."""

    train: int  # samples
    validation: int  # samples
    shape: Tuple[int, int, int]  # channels, rows, columns of one image
    classes: int
    from_data_dir: bool  # True if the user provides the files
    file: str  # the name of the file that provision.yml puts on every node, "" without a file


DATASETS = {
    # The 1797 handwritten digits of scikit-learn. One fifth of each digit is held out.
    "digits": DataSet(1437, 360, (1, 8, 8), 10, False, "digits.npz"),
    # The digits, which the reader turns, scales, shears and shifts. The reader also adds noise and
    # parts of other digits. This harder task serves for comparisons, and needs no download.
    "warped": DataSet(2048, 512, (1, 16, 16), 10, False, "digits.npz"),
    "mnist": DataSet(60000, 10000, (1, 28, 28), 10, True, ""),
    "cifar10": DataSet(50000, 10000, (3, 32, 32), 10, True, ""),
    # ILSVRC 2012.
    "imagenet": DataSet(1281167, 50000, (3, 224, 224), 1000, True, ""),
    # Generated at run time. `train` is the size for num_examples=0 only.
    "synthetic": DataSet(4096, 512, (3, 32, 32), 10, False, ""),
}


def training_samples(data: str, num_examples: int = 0) -> int:
    """Return the number of training samples in one epoch of the whole job.

    `data`: a name in DATASETS. `num_examples`: 0 for all samples. Raises BadInput if the data set
    has fewer than `num_examples` samples. The data set "synthetic" has no limit.
    """
    available = DATASETS[data].train
    if num_examples > available and data != "synthetic":
        raise BadInput(
            "num_examples=%d: %s has only %d training samples. Use at most %d, or 0 for all samples"
            % (num_examples, data, available, available)
        )
    return num_examples or available


def digits() -> bytes:
    """Return scikit-learn's digits as the content of a .npz file.

    The controller makes the file, because the nodes have no scikit-learn.

    The file has the arrays train_x and val_x, uint8 (n, 8, 8) with values 0 to 16, and train_y and
    val_y, uint8 (n,). Both parts hold each digit in the same proportion. Every call returns the
    same bytes.
    """
    import zipfile  # not at the top: each process of a job would import it

    import numpy
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    known = load_digits()
    parts = train_test_split(
        known.images.astype("uint8"),
        known.target.astype("uint8"),
        test_size=DATASETS["digits"].validation,
        stratify=known.target,
        random_state=0,
    )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        for name, array in sorted(zip(("train_x", "val_x", "train_y", "val_y"), parts)):
            member = io.BytesIO()
            numpy.save(member, numpy.ascontiguousarray(array), allow_pickle=False)
            # Fixed date (1980). No compression: versions of zlib compress differently.
            members.writestr(zipfile.ZipInfo(name + ".npy"), member.getvalue())
    return archive.getvalue()


def write_digits(path: str, content: bytes = b"") -> None:
    """Write `content`, or the result of `digits`, to the file `path`, atomically.

    `mxcluster.file_io` needs the model, which reads the table of this module.
    """
    with open(path + ".part", "wb") as stream:
        stream.write(content or digits())
    os.replace(path + ".part", path)


def digits_cache() -> str:
    """Return the name of the cached digits.npz: "digits-", 12 hexadecimal digits, ".npz".

    The 12 digits are a digest of this module and of scikit-learn's version. So `main` finds the
    file without an import of scikit-learn. Such an import takes seconds.
    """
    from importlib.metadata import version

    with open(__file__, "rb") as source:
        makers = source.read() + version("scikit-learn").encode("ascii")
    return "digits-%s.npz" % hashlib.sha256(makers).hexdigest()[:12]


def main(folder: str, check: str = "") -> None:
    """Print the content of digits.npz in base64, and make the file if `folder` lacks the file.

    The first line of the output is "made" for a new file, and "kept" for an earlier file. The
    second line is the content. ``python -m mxcluster.datasets FOLDER [check]`` calls this function
    on the controller. If `check` is not empty, `main` writes no file into `folder`.
    """
    try:
        path = os.path.join(folder, digits_cache())
        made = not os.path.exists(path)
        if made:
            content = digits()
            if not check:
                os.makedirs(folder, exist_ok=True)
                write_digits(path, content)
        else:
            with open(path, "rb") as source:
                content = source.read()
    except ImportError as error:
        sys.exit(
            "cannot write digits.npz on the controller, because Python lacks a package (%s): "
            "run `make venv`" % error
        )
    except OSError as error:
        sys.exit(
            "cannot write digits.npz on the controller (%s: %s): give the controller space and "
            "the right to write there, and run provision.yml again"
            % (error.filename or folder, error.strerror or error)
        )
    print("made" if made else "kept", base64.b64encode(content).decode("ascii"), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
