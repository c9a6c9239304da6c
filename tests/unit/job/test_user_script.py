"""A user's script and its folder before the transfer: skipped files, refusals and notes."""

import base64
import io
import os
import pathlib
import socket
import subprocess
import sys
import zipfile

import pytest

from mxcluster import package
from mxcluster.agent import folder
from mxcluster.errors import BadInput
from mxcluster.job import user_script
from mxcluster.model.protocol import Prepare
from tests.plans import part_of

OWN = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture
def mine(tmp_path):
    """Return a function that packs a script with its folder: (names in the archive, notes)."""

    def pack(source="import mxnet\n", name="train.py", pythons=(OWN,)):
        (tmp_path / name).write_bytes(source if isinstance(source, bytes) else source.encode())
        packed, notes = user_script.pack(str(tmp_path / name), pythons)
        return zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))).namelist(), notes

    pack.folder = tmp_path
    return pack


def test_files_that_cannot_be_sent_are_skipped_by_name(mine, tmp_path_factory):
    """In an earlier version a FIFO blocked, dangling links failed, and linked folders vanished."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "real.csv").write_text("1")
    os.mkfifo(str(mine.folder / "fifo"))
    (mine.folder / "gone").symlink_to("nowhere")
    (mine.folder / "loop").symlink_to("loop")
    (mine.folder / "linked").symlink_to(elsewhere)
    (mine.folder / "linked.csv").symlink_to(elsewhere / "real.csv")
    (mine.folder / ".hidden").write_text("")
    (mine.folder / "to_fifo").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(mine.folder / "sock"))
    names, notes = mine()
    assert names == ["linked.csv", "train.py"]
    assert notes == [
        "skipped in the script's folder: gone, loop (broken links)",
        "skipped in the script's folder: linked (links to folders)",
        "skipped in the script's folder: fifo, sock, to_fifo (sockets, FIFOs or devices)",
    ]


def test_folders_and_executable_bits_survive(mine, tmp_path_factory):
    (mine.folder / "models" / "old").mkdir(parents=True)
    (mine.folder / "models" / ".gitkeep").write_text("")
    (mine.folder / "run.sh").write_text("#!/bin/sh\n")
    (mine.folder / "run.sh").chmod(0o750)
    (mine.folder / "train.py").write_text("import mxnet\n")
    job = folder.JobFolder(str(tmp_path_factory.mktemp("job")))
    packed = user_script.pack(str(mine.folder / "train.py"), [OWN])[0]
    worker = {"name": "worker-0", "role": "worker", "folder": "files/worker-0"}
    job.prepare(Prepare(job_dir=job.path, plan=part_of(worker), script=packed))
    assert os.stat(job.file(package.SCRIPT_ZIP)).st_mode & 0o777 == 0o600
    for copy in ("script", "files/worker-0"):
        there = pathlib.Path(job.path) / copy
        assert (there / "models" / "old").is_dir() and os.access(str(there / "run.sh"), os.X_OK)
        assert os.stat(str(there / "train.py")).st_mode & 0o111 == 0


@pytest.mark.parametrize("what", ["file", "folder"])
def test_an_unreadable_file_is_refused_by_name(tmp_path, what):
    """The script runs as a user without root's rights, since modes do not stop root."""
    code = (
        "import os, sys\nfrom mxcluster import errors\nfrom mxcluster.job import "
        "user_script\nos.getuid() or os.setuid(65534)\n"
        "try: user_script.pack(sys.argv[1])\nexcept errors.BadInput as refusal: print(refusal)"
    )
    (tmp_path / "train.py").write_text("")
    (tmp_path / "private").mkdir() if what == "folder" else (tmp_path / "private").write_text("")
    (tmp_path / "private").chmod(0)
    for path in [tmp_path, *tmp_path.parents[:-2]]:
        path.chmod(path.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "train.py")],
        stdout=subprocess.PIPE,
        timeout=30,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )
    assert b"private in the script's folder cannot be read. Correct the mode" in done.stdout, done


@pytest.mark.parametrize(
    "source,words",
    [
        (b"print 'Python 2'\n", "the script is not valid Python 3, line 1: "),
        (b"\x7fELF\0\1\2", "the file holds NUL bytes"),
        (b"#!/bin/sh\nfoo=1\n", "the first line, #!/bin/sh, names another interpreter"),
    ],
)
def test_a_script_that_is_no_python_is_refused(mine, source, words):
    with pytest.raises(BadInput, match=r"train.py': " + words):
        mine(source)


@pytest.mark.parametrize(
    "pythons,source", [((OWN, "3.99.1"), "match x with y\n"), (("3.6.8",), "async = 1\n")]
)
def test_a_syntax_error_for_another_python_is_a_note(mine, pythons, source):
    names, (note,) = mine(source, pythons=pythons)
    assert (
        names == ["train.py"]
        and "The nodes run another version of Python, which may accept" in note
        and "line 1" in note
    )


@pytest.mark.parametrize("name", ["mxnet.py", "numpy.py", "numpy.cpython-311.so"])
def test_a_name_that_hides_a_needed_module_is_refused(mine, name):
    (mine.folder / name).parent.mkdir(exist_ok=True)
    (mine.folder / name).write_text("")
    with pytest.raises(
        BadInput,
        match="import the module (mxnet|numpy|mxcluster) of the script's folder in place of "
        "the installed package. Rename %s in" % name.split("/")[0],
    ):
        mine()
    if name.endswith("y.py"):
        with pytest.raises(BadInput, match="Rename the script"):
            mine(name=name)


def test_a_name_that_hides_a_standard_module_is_a_note(mine):
    for name in ("queue.py", "random.py", "mxnet_utils.py", "numpy.txt"):
        (mine.folder / name).write_text("")
    for name in ("mxnet", "json"):  # without __init__.py, an installed package has precedence
        (mine.folder / name).mkdir()
        (mine.folder / name / "x.py").write_text("")
    names, (note,) = mine()
    assert (
        "in place of modules of Python's standard library: queue.py, random.py. Rename" in note
        and len(names) == 9
    )


def test_a_hidden_script_is_refused(mine):
    with pytest.raises(BadInput, match="hidden and compiled files stay on the controller"):
        mine(name=".train.py")


def test_a_folder_with_too_many_files_is_refused_early(mine, monkeypatch):
    monkeypatch.setattr(user_script, "MOST_FILES", 3)
    for number in range(4):
        (mine.folder / str(number)).write_text("")
    with pytest.raises(BadInput, match="a separate folder"):
        mine()


def test_a_name_that_a_zip_file_cannot_hold_is_refused(mine):
    with open(os.fsencode(str(mine.folder)) + b"/\xff\n.txt", "w"):
        pass
    with pytest.raises(BadInput, match=r"\\udcff\\n.txt in the script's folder cannot be read"):
        mine()
