"""Facts of the data sets that the training programs know; one place for the plan and the programs."""
import io
import os
import tempfile
import zipfile
from collections import namedtuple

from .errors import BadInput

# train, validation: number of samples; shape: channels, rows, columns of one image;
# from_data_dir: the user brings the files (mxcluster carries or makes the others itself).
DataSet = namedtuple("DataSet", "train validation shape classes from_data_dir")

DATASETS = {
    # scikit-learn's 1797 handwritten digits; a fifth of each digit is held out.
    "digits": DataSet(1437, 360, (1, 8, 8), 10, False),
    "mnist": DataSet(60000, 10000, (1, 28, 28), 10, True),
    "cifar10": DataSet(50000, 10000, (3, 32, 32), 10, True),
    # ILSVRC 2012.
    "imagenet": DataSet(1281167, 50000, (3, 224, 224), 1000, True),
    # Made up on the spot, so `train` is only what num_examples=0 stands for.
    "synthetic": DataSet(4096, 512, (3, 32, 32), 10, False),
}


def training_samples(data: str, num_examples: int = 0) -> int:
    """Number of training samples in one epoch of the whole job.

    `num_examples` 0 means all that there are. BadInput if the data set has fewer than asked for.
    """
    there = DATASETS[data].train
    if num_examples > there and data != "synthetic":
        raise BadInput("num_examples=%d: %s has only %d training samples; use at most %d, or 0 for all of them"
                       % (num_examples, data, there, there))
    return num_examples or there


def write_digits(path: str) -> bool:
    """Write the digits to `path` (digits.npz) for the nodes, which have no scikit-learn; False if it was there already.

    train_x, val_x: uint8 (n, 8, 8), values 0 to 16; train_y, val_y: uint8 (n,). Each digit is split in the same
    proportion, in an order that is always the same, and so are the bytes of the file. It appears whole or not at all.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    digits = load_digits()
    train_x, val_x, train_y, val_y = train_test_split(
        digits.images.astype("uint8"), digits.target.astype("uint8"), test_size=DATASETS["digits"].validation,
        stratify=digits.target, random_state=0)
    content = _npz(train_x=train_x, train_y=train_y, val_x=val_x, val_y=val_y)
    if os.path.isfile(path):
        with open(path, "rb") as stream:
            if stream.read() == content:
                return False
    descriptor, partial = tempfile.mkstemp(prefix=os.path.basename(path), dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        os.remove(partial)
        raise
    return True


def _npz(**arrays) -> bytes:
    """The arrays as a .npz file; unlike numpy.savez it promises equal bytes for equal arrays."""
    import numpy
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        for name, array in sorted(arrays.items()):
            member = io.BytesIO()
            numpy.lib.format.write_array(member, numpy.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            # Dated 1980 whatever the time is, and not compressed, which every zlib does in its own way.
            members.writestr(zipfile.ZipInfo(name + ".npy"), member.getvalue())
    return archive.getvalue()
