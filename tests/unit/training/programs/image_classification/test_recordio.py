import struct

import numpy as np
import pytest

from mxcluster.errors import BadInput
from mxcluster.training.programs.image_classification.data import recordio
from tests import recordio_files

MAGIC = recordio.MAGIC
CONTENTS = [
    b"a",
    b"",
    b"four",
    b"12345678" * 100,
    MAGIC,
    b"abcd" + MAGIC + MAGIC + b"tail",
    b"x" + MAGIC,
]


@pytest.fixture
def rec(tmp_path):
    path = tmp_path / "small.rec"
    return path, recordio_files.write(path, CONTENTS)


def write_index(path, starts):
    path.with_suffix(".idx").write_text("".join("%d\t%d\n" % line for line in enumerate(starts)))


@pytest.mark.parametrize("indexed", [False, True])
def test_records_are_read_as_written(rec, indexed):
    path, starts = rec
    if indexed:
        write_index(path, starts)
    records = recordio.Records(str(path))
    assert [records[number] for number in range(len(records))] == CONTENTS


def test_samples_have_the_order_of_the_file_despite_the_index(rec):
    path, starts = rec
    write_index(path, reversed(starts))
    assert recordio.Records(str(path))[0] == CONTENTS[0]


@pytest.mark.parametrize(
    "spoil",
    [lambda starts: starts[:-1], lambda starts: starts[1:], lambda starts: starts + [10**9]],
)
def test_an_index_of_another_file_is_refused(rec, spoil):
    path, starts = rec
    write_index(path, spoil(starts))
    with pytest.raises(BadInput, match="small.idx does not belong to .*small.rec: remove this"):
        recordio.Records(str(path))


def test_a_file_that_is_no_index_is_refused(rec):
    rec[0].with_suffix(".idx").write_text("<html>not found</html>")
    with pytest.raises(BadInput, match="small.idx is not an index"):
        recordio.Records(str(rec[0]))


@pytest.mark.parametrize(
    "spoil,message",
    [
        (lambda data: data[:-1], "ends in the middle of a record"),
        (lambda data: data[:-9], "no record starts here|ends in the middle"),
        (lambda data: data[:12] + b"?" + data[13:], "at byte 12 no record starts here"),
        (lambda data: b"", "holds no records"),
        (lambda data: b"<html>", "at byte 0 no record starts here"),
    ],
)
def test_a_damaged_file_is_refused(rec, spoil, message):
    path, _ = rec
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(BadInput, match=message):
        recordio.Records(str(path))


class Undecoded(recordio.Images):
    """Images with raw pixels in the record, so that the test needs no MXNet."""

    def _decode(self, encoded, number):
        return np.frombuffer(encoded, np.uint8).reshape(8, 8, 3)


def test_labels_pixels_and_crops_are_read(tmp_path):
    pixels = np.random.RandomState(0).randint(256, size=(8, 8, 3)).astype(np.uint8)
    path = tmp_path / "train.rec"
    recordio_files.write(
        path,
        [
            recordio_files.image(7, pixels.tobytes()),
            recordio_files.image(0, pixels.tobytes(), further=(3.0, 5.0)),
        ],
    )
    source = Undecoded(str(path), 10, pad=4)
    images, labels = source.read([1, 0], 8)
    assert labels.tolist() == [3, 7]
    assert np.allclose(
        images[0], (pixels.transpose(2, 0, 1) - recordio.MEAN) / recordio.SPREAD, atol=1e-5
    )
    augmented = [source.read([0], 8, np.random.RandomState(seed))[0] for seed in range(20)]
    assert len({image.tobytes() for image in augmented}) > 10
    again = source.read([0], 8, np.random.RandomState(0))[0]
    assert np.array_equal(again, augmented[0])


@pytest.mark.parametrize("label", [10, -1, 2.5, float("nan")])
def test_a_label_outside_the_data_set_is_refused(tmp_path, label):
    path = tmp_path / "train.rec"
    recordio_files.write(path, [recordio_files.image(label, b"\0" * 192)])
    with pytest.raises(BadInput, match="record 0 has the label .* whole numbers from 0 to 9"):
        Undecoded(str(path), 10).read([0], 8)


def test_a_record_too_short_for_an_image_is_refused(tmp_path):
    path = tmp_path / "train.rec"
    recordio_files.write(path, [struct.pack("<I", 1)])
    with pytest.raises(BadInput, match="record 0 is too short"):
        Undecoded(str(path), 10).read([0], 8)
