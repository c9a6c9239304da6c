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
        "import os, sys, pathspec\nfrom mxcluster import errors\nfrom mxcluster.job import "
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


def test_results_and_vaults_never_travel_unless_the_ignore_file_names_them(mine):
    (mine.folder / "runs" / "job").mkdir(parents=True)
    (mine.folder / "runs" / "job" / "report.html").write_text("")
    for name in (".env", ".venv", "vault.yml", "vault_password", "group_vault.yml"):
        (mine.folder / name).write_text("secret")
    (mine.folder / "keys.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    names, notes = mine()
    assert names == ["train.py"]
    assert notes == [
        "skipped in the script's folder: keys.yml (encrypted by ansible-vault)",
        "skipped in the script's folder: group_vault.yml, runs, vault.yml, vault_password (left "
        "out unless .mxclusterignore names it with !)",
    ]
    (mine.folder / ".mxclusterignore").write_text("!.env\n!keys.yml\n!runs/\n")
    assert mine()[0] == [
        "runs/",
        "runs/job/",
        ".env",
        "keys.yml",
        "runs/job/report.html",
        "train.py",
    ]


def test_the_ignore_file_has_the_syntax_of_gitignore(mine):
    for path in (
        "data/a.rec",
        "data/keep.csv",
        "logs/x/y.log",
        "build/x",
        "lib/build/x",
        "a b.txt",
    ):
        (mine.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (mine.folder / path).write_text("")
    (mine.folder / ".mxclusterignore").write_text(
        "# data\ndata/*\n!data/keep.csv\n**/*.log\n/build/\n*.txt\n"
    )
    names, notes = mine()
    assert [name for name in names if not name.endswith("/")] == [
        "data/keep.csv",
        "lib/build/x",
        "train.py",
    ]
    assert notes == []


def test_an_ignored_folder_is_not_searched(mine):
    """An ignored folder may hold thousands of files, or files without a right to read."""
    (mine.folder / "data").mkdir()
    for number in range(3):
        (mine.folder / "data" / str(number)).write_bytes(b"0" * (1 << 20))
    (mine.folder / ".mxclusterignore").write_text("data\n")
    user_script.pack(str(mine.folder / "train.py") if mine() else "", most_mb=1)


def test_an_unreadable_ignore_file_is_refused(mine):
    (mine.folder / ".mxclusterignore").write_bytes(b"\xff\n")
    with pytest.raises(BadInput, match=r"\.mxclusterignore cannot be read .*UTF-8"):
        mine()
    (mine.folder / ".mxclusterignore").write_text("data\n***//\n!\n")
    with pytest.raises(BadInput, match=r"no pattern of \.gitignore in line 3, '!': correct"):
        mine()


def test_an_ignored_script_is_refused(mine):
    (mine.folder / ".mxclusterignore").write_text("*.py\n")
    with pytest.raises(BadInput, match="so do the files of .mxclusterignore"):
        mine()


def test_a_large_folder_is_refused_with_the_largest_files(mine):
    for name, size in (("a.rec", 3), ("b.rec", 5), ("c.rec", 1), ("d.rec", 4)):
        (mine.folder / name).write_bytes(b"0" * (size << 20))
    script = mine.folder / "train.py"
    script.write_text("import mxnet\n")
    with pytest.raises(BadInput) as refused:
        user_script.pack(str(script), [OWN], most_mb=12)
    for words in (
        "13.0 MB",
        "12 MB (script_mb)",
        "b.rec (5.0 MB), d.rec (4.0 MB), a.rec (3.0 MB).",
    ):
        assert words in str(refused.value), refused.value
    assert "c.rec" not in str(refused.value) and ".mxclusterignore" in str(refused.value)
    assert user_script.pack(str(script), [OWN], most_mb=14)[0]


@pytest.fixture
def project(tmp_path):
    """Return the root of a project whose script imports a package beside its own folder."""
    for path, text in {
        "scripts/train.py": "import mxnet\nimport helpers\nfrom mypkg import nets\n"
        "try:\n    import horovod\nexcept ImportError:\n    pass\n",
        "scripts/helpers.py": "import mypkg.data\nimport other\n",
        "mypkg/__init__.py": "",
        "mypkg/nets.py": "",
        "other.py": "",
        ".git/HEAD": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_the_plan_warns_of_imports_from_above_the_folder(project):
    script = str(project / "scripts" / "train.py")
    (note,) = user_script.pack(script, [OWN])[1]
    assert "not find these modules that the script imports: mypkg, other. They lie in %s" % (
        project
    ) in (note)
    assert note.endswith("Add -e script_root=%s" % project)
    packed, notes = user_script.pack(script, [OWN], str(project))
    assert notes == []
    names = zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))).namelist()
    assert "scripts/train.py" in names and "mypkg/nets.py" in names and ".git/HEAD" not in names


NODES = {"a": ["json", "tqdm"], "b": ["json", "__main__"]}


def notes_of(tmp_path, source, modules=NODES):
    (tmp_path / "train.py").write_text(source)
    return user_script.pack(str(tmp_path / "train.py"), [OWN], modules=modules)[1]


def test_the_plan_warns_of_modules_that_the_nodes_lack(tmp_path):
    (tmp_path / "own.py").write_text("import json\n\nfrom pandas.core import frame\n")
    first, second = notes_of(tmp_path, "import own\nimport mxnet, numpy\nclass A:\n  import tqdm")
    assert first == (
        "the nodes will not find the module pandas, which own.py imports in line 3. Name its "
        "package in a file for -e requirements=FILE, or put the module beside the script"
    )
    assert second.startswith("b will not find the module tqdm, which train.py imports in line 4.")
    # The records of an earlier version lack the modules.
    assert notes_of(tmp_path, "import own", {}) == []


@pytest.mark.parametrize(
    "source",
    [
        "try:\n  import pandas\nexcept ImportError:\n  import polars",
        "def f():\n  import pandas",
        "if x:\n  import pandas",
        "import sys\nsys.path.append('/data/lib')\nimport pandas",
        "from . import pandas",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import pandas",
        "def f():\n  import own",  # own.py imports pandas
    ],
)
def test_an_import_in_doubt_is_no_warning(tmp_path, source):
    (tmp_path / "own.py").write_text("import pandas\n")
    there = {"a": ["sys", "typing"]}
    assert notes_of(tmp_path, source, there) == []
    if "sys.path" not in source:
        assert "own.py imports" in notes_of(tmp_path, "import own\n" + source, there)[-1]


def test_the_git_root_is_found(project, tmp_path_factory):
    assert user_script.git_root(str(project / "scripts" / "train.py")) == str(project)
    alone = tmp_path_factory.mktemp("alone") / "train.py"
    with pytest.raises(BadInput, match="script_root=git: no folder above .* is a git clone"):
        user_script.git_root(str(alone))


def test_modules_are_found_in_the_root_and_beside_the_script(project):
    script, root = str(project / "scripts" / "train.py"), str(project)
    assert user_script.has_module("mypkg.nets", script, root)
    assert user_script.has_module("helpers", script, root)
    assert not user_script.has_module("mypkg.nets", script)
    assert not user_script.has_module("absent", script, root)


def test_a_kept_zip_file_travels_unchanged(project, tmp_path_factory):
    script, root = str(project / "scripts" / "train.py"), str(project)
    packed = user_script.pack(script, [OWN], root)[0]
    kept = tmp_path_factory.mktemp("runs") / "script.zip"
    kept.write_bytes(base64.b64decode(packed))
    again = "%s/scripts/train.py" % kept
    assert user_script.is_kept(again) and not user_script.is_kept("%s/train.py" % kept)
    assert not user_script.is_kept(script)
    assert user_script.pack(again, [OWN], str(kept)) == (packed, [])
    assert user_script.has_module("mypkg.nets", again, str(kept))
    (kept.parent / "no.zip").write_text("text")
    with pytest.raises(BadInput, match="neither a folder nor a zip file"):
        user_script.is_kept("%s/no.zip/train.py" % kept.parent)
    with pytest.raises(BadInput, match="more than 1 MB"):
        big = zipfile.ZipFile(str(kept), "a", zipfile.ZIP_DEFLATED)
        big.writestr("big", b"0" * (2 << 20))
        big.close()
        user_script.pack(again, [OWN], str(kept), 1)


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
