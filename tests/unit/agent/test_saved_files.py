"""The keeper of the files that a script saves: a real process beside a folder that changes."""

import json
import os
import subprocess
import sys
import time

import pytest

from mxcluster import checkpoints, events
from mxcluster.agent import saved_files
from mxcluster.errors import BadInput
from mxcluster.model.checkpoint import CheckpointManifest
from mxcluster.model.events import Note
from mxcluster.model.saved_request import SavedRequest
from tests.unit.agent.jobs import PACKAGE


class Keeper:
    """A keeper process in the job folder `path`."""

    def __init__(self, path, workers=("worker-0",), most_mb=1):
        self.path = path
        saved_files.prepare(str(path), workers)
        request = SavedRequest(host="node1", workers=workers, most_mb=most_mb)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mxcluster.agent.saved_files"],
            stdin=subprocess.PIPE,
            cwd=str(path),
            env={"PYTHONPATH": PACKAGE},
        )
        self.tell(json.dumps(request.encode()))

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def write(self, name, text, worker="worker-0"):
        path = self.path / "saved" / worker / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def until(self, condition):
        deadline = time.monotonic() + 120
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)

    def has(self, name):
        return (self.path / "checkpoints" / (name + ".json")).exists()

    def finish(self, reason):
        """Tell the keeper the end of the workers, wait, and return the names of checkpoints."""
        self.tell(reason)
        self.process.stdin.close()
        assert self.process.wait(timeout=120) == 0
        found = sorted(path.name for path in (self.path / "checkpoints").glob("*.json"))
        assert not list((self.path / "saved").glob(".*")), "no draft is left"
        return [name[: -len(".json")] for name in found]

    def notes(self):
        path = self.path / events.FILE
        lines = events.read(str(path)) if path.exists() else []
        return [line.event.text for line in lines if isinstance(line.event, Note)]


@pytest.fixture
def keep(tmp_path):
    """Yield a function that starts a Keeper in the test's folder. Kill the process at the end."""
    made = []

    def begin(**more):
        made.append(Keeper(tmp_path, **more))
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.process.wait()
        one.process.stdin.close()


def read(path, name):
    """Return {path: text} of the checkpoint `name`, after the check of its digests."""
    folder = path / "checkpoints"
    found = checkpoints.read(str(folder), name).manifest.files
    return {one[len(name) + 1 :]: (folder / one).read_text() for one in found}


@pytest.mark.slow
def test_a_quiet_folder_becomes_a_checkpoint_while_the_script_runs(keep, tmp_path):
    keeper = keep()
    keeper.write("weights.params", "w1")
    keeper.write("state/epoch", "1")
    keeper.write(".draft", "half")
    os.symlink("/etc/passwd", str(tmp_path / "saved" / "worker-0" / "link"))
    keeper.until(lambda: keeper.has("worker-0-0001"))
    assert read(tmp_path, "worker-0-0001") == {"weights.params": "w1", "state/epoch": "1"}
    assert (tmp_path / "held").read_text() == "worker-0-0001"
    keeper.write("state/epoch", "2")  # in place: the held checkpoint keeps its content
    keeper.until(lambda: keeper.has("worker-0-0002"))
    assert read(tmp_path, "worker-0-0001")["state/epoch"] == "1"
    assert read(tmp_path, "worker-0-0002") == {"weights.params": "w1", "state/epoch": "2"}
    copies = [tmp_path / "checkpoints" / ("worker-0-%04d" % one) for one in (1, 2)]
    assert os.path.samefile(*(str(one / "weights.params") for one in copies)), "copied once"
    (tmp_path / "taken").write_text("worker-0-0001")  # by the controller
    keeper.until(lambda: (tmp_path / "held").read_text() == "worker-0-0002")
    keeper.until(lambda: not keeper.has("worker-0-0001"))
    keeper.write("state/epoch", "3")
    assert keeper.finish("done") == ["worker-0-0002", "worker-0-0003"], "the last files at once"
    assert not keeper.notes()


@pytest.mark.slow
def test_a_half_written_file_of_a_failed_job_is_no_checkpoint(keep, tmp_path):
    keeper = keep()
    keeper.write("epoch", "1")
    keeper.until(lambda: keeper.has("worker-0-0001"))
    keeper.write("epoch", "half of")
    assert keeper.finish("failed") == ["worker-0-0001"]
    assert read(tmp_path, "worker-0-0001") == {"epoch": "1"}


@pytest.mark.slow
def test_the_first_worker_that_saves_makes_the_checkpoints_of_its_node(keep):
    keeper = keep(workers=("worker-0", "worker-3"))
    keeper.write("epoch", "1", worker="worker-3")
    keeper.until(lambda: keeper.has("worker-3-0001"))
    keeper.write("epoch", "1", worker="worker-0")
    keeper.write("epoch", "2", worker="worker-3")
    assert keeper.finish("done") == ["worker-3-0001", "worker-3-0002"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a\nb": ""}, r"the name 'a\nb' has other characters"),
        ({"-x": ""}, "rename this file"),
        ({"/".join(["x" * 130] * 3): ""}, "is too long or too deep: rename this file"),
        ({"large": "x" * (1 << 20) + "x"}, "above the limit collect_mb=1"),
        ({"%0200d" % one: "" for one in range(200)}, "too many for a manifest"),
    ],
)
def test_files_that_cannot_travel_are_named_in_the_report(keep, files, words):
    keeper = keep()
    for name, text in files.items():
        keeper.write(name, text)
    assert keeper.finish("done") == []
    [note] = keeper.notes()
    assert note.startswith("node1: no new checkpoint of worker-0: ") and words in note


@pytest.fixture
def resumed(tmp_path):
    """Put a checkpoint of worker 2 into the folder from which a job resumes, as bring.yml does."""
    folder = tmp_path / "resume"
    (folder / "worker-2-0005" / "state").mkdir(parents=True)
    (folder / "worker-2-0005" / "state" / "epoch").write_text("9")
    name = "worker-2-0005/state/epoch"
    files = {name: checkpoints.digest(str(folder / name))}
    manifest = CheckpointManifest(id="id", network="worker-2", epoch=5, servers=0, files=files)
    checkpoints.write_digests(str(folder / "worker-2-0005.json"), manifest)
    return folder / name


def test_each_worker_of_a_resumed_job_finds_the_files(keep, resumed, tmp_path):
    keeper = keep(workers=("worker-0", "worker-1"))
    for worker in ("worker-0", "worker-1"):
        assert (tmp_path / "saved" / worker / "state" / "epoch").read_text() == "9"
    keeper.write("state/epoch", "10", worker="worker-1")
    assert keeper.finish("done") == ["worker-1-0001"], "the files of worker 0 are no news"


def test_a_damaged_checkpoint_is_refused_before_the_start(resumed, tmp_path):
    resumed.write_text("8")
    with pytest.raises(BadInput, match="differs from its digest or size"):
        saved_files.prepare(str(tmp_path), ["worker-0"])


@pytest.mark.slow
def test_saved_files_that_no_checkpoint_has_are_found(keep, tmp_path):
    keeper = keep()
    keeper.write("state/net.params", "first")
    keeper.until(lambda: keeper.has("worker-0-0001"))
    assert saved_files.unkept(str(tmp_path), 1 << 20) == []
    keeper.write("state/net.params", "other")  # of equal size
    keeper.write("more", "", worker="worker-1")
    keeper.finish("failed")
    first, second = saved_files.unkept(str(tmp_path), 1 << 20)
    assert first.endswith("copy by hand what you need: state/net.params")
    assert second.startswith("worker-1: 1 saved file stays in %s" % (tmp_path / "saved/worker-1"))


def test_the_files_of_the_resumed_checkpoint_are_no_only_copies(resumed, tmp_path):
    saved_files.prepare(str(tmp_path), ["worker-0", "worker-1"])
    assert os.listdir(str(tmp_path / "saved" / "worker-1"))
    assert saved_files.unkept(str(tmp_path), 1 << 20) == []
