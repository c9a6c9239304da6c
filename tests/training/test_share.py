"""The workers of a script divide the data with mxcluster.share, in real MXNet."""

import io
import struct

from PIL import Image

from tests.training.conftest import newest_often
from tests.training.loopback import Job, log_of

SAMPLES, SIZE, WORKERS = 48, 4, 3
SHARES = "0 0.333333\n0.333333 0.666667\n0.666667 1\n"
MAGIC = 0xCED7230A  # of a record in a .rec file


def write_records(path):
    """Write a .rec file with SAMPLES equal images. The label of an image is its number."""
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), (90, 120, 150)).save(picture, "JPEG")
    with open(str(path), "wb") as stream:
        for number in range(SAMPLES):
            record = struct.pack("<IfQQ", 0, number, number, 0) + picture.getvalue()
            stream.write(struct.pack("<II", MAGIC, len(record)) + record)
            stream.write(b"\0" * (-len(record) % 4))


def lines(log, word):
    """Return [[number, ...]] of the lines of `log` that begin with `word`."""
    found = [line.split() for line in log.splitlines()]
    return [list(map(int, line[1:])) for line in found if line[:1] == [word]]


@newest_often
def test_gluon_and_an_iterator_read_each_sample_in_one_worker(every_mxnet, tmp_path):
    write_records(tmp_path / "images.rec")
    (tmp_path / "data_sharding").write_text(SHARES)
    words = [SAMPLES, SIZE, tmp_path / "images.rec"]
    groups = [0] * WORKERS
    job = Job(every_mxnet.python, tmp_path, "shared_data.py", "dist_sync", groups, arguments=words)
    job.succeed()
    logs = [log_of(tmp_path, "worker-%d" % index) for index in range(WORKERS)]
    (known,) = zip(*(lines(log, "KNOWN") for log in logs))
    assert [one[:2] for one in known] == [[index, WORKERS] for index in range(WORKERS)]
    assert sorted(one[2] for one in known) == list(range(WORKERS)), "each rank once, in any order"
    epochs = [lines(log, "GLUON") for log in logs]
    for first, second in epochs:
        assert first[0] == second[0] == SAMPLES // WORKERS // SIZE, "as many batches in each worker"
        assert first != second and sorted(first[1:]) == sorted(second[1:]), "another order"
    for found in (
        [first[1:] for first, _ in epochs],
        [one[1:] for log in logs for one in lines(log, "RECORDS")],
    ):
        assert sorted(number for own in found for number in own) == list(range(SAMPLES)), found
        assert {len(own) for own in found} == {SAMPLES // WORKERS}
    done = {event["index"]: event["asked"] for event in job.events("done")}
    assert done == dict.fromkeys(range(WORKERS), True)
