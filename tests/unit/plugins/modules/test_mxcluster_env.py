"""mxcluster_env for real, with small wheels in MXNet's place: Ansible's Python on the node may be older than the target."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests import ansible_modules
from tests.training.environments import find_python

# The interpreter of Ansible's modules, and that of the environment.
PAIRS = {"2.7 for 3.6": (find_python("2.7"), find_python("3.6")), "controller": (sys.executable, sys.executable)}
BUNDLED = ("import ensurepip, glob, os; "
           "print(glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), '_bundled', 'pip-*'))[0])")
LOOK = "import sys; print('%d.%d' % sys.version_info[:2])"


def ask(python, script):
    return subprocess.check_output([python, "-c", script], universal_newlines=True).strip()


def make_wheel(folder, name, version, source):
    """The smallest wheel that pip installs."""
    path, info = folder / ("%s-%s-py3-none-any.whl" % (name, version)), "%s-%s.dist-info/" % (name, version)
    with zipfile.ZipFile(str(path), "w") as wheel:
        wheel.writestr(name + ".py", source)
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version))
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    return path


class Node:
    """What the role would ask for, with an archive of what the node needs for it."""

    def __init__(self, folder, under, python):
        self.folder, self.under, self.path = folder, under, folder / "home" / "env"
        self.version = ask(python, LOOK)
        files = [make_wheel(folder, "mxnet", "1.0.post1", "__version__ = '1.0'\n"), make_wheel(folder, "numpy", "1.0", ""),
                 pathlib.Path(ask(python, BUNDLED))]
        names = ["==".join(path.name.split("-")[:2]) for path in files]
        self.params = {
            "path": str(self.path), "python": python, "name": "MXNet 1.0 (test)", "archive": str(folder / "wheels.tar"),
            "builds": [{"python": [self.version], "wheels": names[:2], "pip": names[2]}],
            "hashes": {name: [hashlib.sha256(path.read_bytes()).hexdigest()] for name, path in zip(names, files, strict=True)}}
        self.pack(files)

    def pack(self, files):
        with tarfile.open(self.params["archive"], "w") as archive:
            for path in files:
                archive.add(str(path), arcname=path.name)

    def run(self, **options):
        return ansible_modules.run("mxcluster_env", self.folder, under=self.under, **dict(self.params, **options))

    def left(self):
        """What lies in the home but the lock."""
        return sorted(set(os.listdir(str(self.path.parent))) - {"env.lock"}) if self.path.parent.exists() else []


@pytest.fixture(params=sorted(PAIRS))
def node(request, tmp_path):
    return Node(tmp_path, *PAIRS[request.param])


@pytest.fixture
def controller(tmp_path):
    return Node(tmp_path, *PAIRS["controller"])


def test_from_nothing_to_done(node, monkeypatch):
    monkeypatch.setenv("PIP_TARGET", str(node.folder / "elsewhere"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://192.0.2.1/simple")
    for options in ({"ask": True}, {"check": True}):
        asked = node.run(**options)
        assert asked["changed"] and not asked["done"] and asked["needs"]["python"] == node.version, asked
        assert [line.split("==")[0] for line in asked["needs"]["requirements"]] == ["mxnet", "numpy", "pip"]
        assert node.left() == []
    package, unpacked = node.folder / "lib.zip", node.folder / ("lib-" + node.version)
    package.write_bytes(b"no zip file")
    refused = node.run(site_path=str(package))
    assert refused["failed"] and "lib.zip is not a zip file" in refused["msg"] and not unpacked.exists(), refused
    with zipfile.ZipFile(str(package), "w") as archive:
        archive.writestr("carried.py", "def fail():\n    raise ValueError\n")
    built = node.run(site_path=str(package))
    assert built["changed"] and built["done"] and node.left() == ["env"], built
    assert ask(built["python"], "import carried; print(carried.__file__)") == str(unpacked / "carried.py")
    assert unpacked.stat().st_mode & 0o777 == 0o755 and list(unpacked.glob("__pycache__/carried.*.pyc"))
    assert ask(built["python"], "import carried; print(carried.fail.__code__.co_filename)") == str(unpacked / "carried.py")
    shutil.rmtree(str(unpacked))
    assert node.run(site_path=str(package), archive="")["changed"] and unpacked.is_dir()
    assert ask(built["python"], "import mxnet; print(mxnet.__version__)") == "1.0"
    assert not (node.folder / "elsewhere").exists()
    again = node.run(site_path=str(package), archive="")
    assert not again["changed"] and again["needs"]["requirements"] == [], again


def test_all_can_read_it(controller):
    before = os.umask(0o077)
    try:
        assert controller.run()["changed"]
    finally:
        os.umask(before)
    for path in (controller.path, controller.path / "mxcluster-env.json", *controller.path.glob("lib/*/site-packages/mxnet.py")):
        assert path.stat().st_mode & 0o044 == 0o044, path


def test_what_root_runs_is_nobody_elses(node):
    """Owners and modes of the archive mean nothing, and the folder with pip's wheel is closed; MXNet is imported from there."""
    if os.geteuid() == 0:
        for path in node.folder.glob("*.whl"):
            os.chown(str(path), 65534, 65534)
    path = make_wheel(node.folder, "mxnet", "1.0.post1", "import glob, os\nassert os.stat('.').st_mode & 0o777 == 0o700\n"
                      "for path in glob.glob('*.whl'):\n"
                      "    assert os.stat(path).st_uid == os.geteuid() and not os.stat(path).st_mode & 0o022\n"
                      "__version__ = '1.0'\n")
    node.params["hashes"]["mxnet==1.0.post1"] = [hashlib.sha256(path.read_bytes()).hexdigest()]
    files = [path, node.folder / "numpy-1.0-py3-none-any.whl", pathlib.Path(ask(node.params["python"], BUNDLED))]
    for wheel in files[:2]:
        os.chmod(str(wheel), 0o666)
    node.pack(files)
    answer = node.run()
    assert answer["changed"], answer
    assert (node.path.parent / "env.lock").stat().st_mode & 0o777 == 0o600, "others can hold the lock"


@pytest.mark.parametrize("marker", [None, "", '{"digest": "of something else"}', '{"dig'])
def test_what_was_half_made_is_not_trusted(controller, marker):
    """As if it had been killed: files, but no marker, or one of something else."""
    (controller.path / "bin").mkdir(parents=True)
    (controller.path / "bin" / "python").symlink_to(sys.executable)
    (controller.path / "leftover").write_text("")
    (controller.path.parent / "env.build").mkdir()
    if marker is not None:
        (controller.path / "mxcluster-env.json").write_text(marker)
    assert controller.run()["changed"] and controller.left() == ["env"]
    assert not (controller.path / "leftover").exists()
    assert set(json.loads((controller.path / "mxcluster-env.json").read_text())) == {"digest", "wheels"}


def swap(node):
    make_wheel(node.folder, "numpy", "1.0", "import os\n")
    node.pack([*node.folder.glob("*.whl"), pathlib.Path(ask(node.params["python"], BUNDLED))])


def truncate(node):
    with open(node.params["archive"], "r+b") as archive:
        archive.truncate(700)


def no_import(node):
    path = make_wheel(node.folder, "mxnet", "1.0.post1", "raise ImportError('libgomp.so.1: cannot open shared object file')\n")
    node.params["hashes"]["mxnet==1.0.post1"] = [hashlib.sha256(path.read_bytes()).hexdigest()]
    swapped = [path, node.folder / "numpy-1.0-py3-none-any.whl", pathlib.Path(ask(node.params["python"], BUNDLED))]
    node.pack(swapped)


@pytest.mark.parametrize("harm, told", [
    (swap, "DO NOT MATCH THE HASHES"), (truncate, "is not a tar file of wheels"),
    (lambda node: os.unlink(node.params["archive"]), "No such file or directory"),
    (lambda node: node.params.pop("archive"), "is not a tar file of wheels"), (no_import, "The node lacks the library libgomp")])
def test_what_fails_is_told_and_leaves_nothing(controller, harm, told):
    harm(controller)
    answer = controller.run()
    assert answer["rc"] == 1 and told in answer["msg"] and controller.left() == [], answer


@pytest.mark.parametrize("change, told", [
    ({"python": "/no/python"}, "there is no Python at /no/python on this node"), ({"hashes": {}}, "no sha256 is known for mxnet"),
    ({"builds": [{"python": ["3.5", "3.10"], "wheels": [], "pip": "pip==1"}], "note": "So it is."},
     "only for Python 3.5, 3.10. So it is. Set mxnet_python")])
def test_refusals(node, change, told):
    if change.get("builds") and node.version == "3.10":
        change = {"builds": [dict(change["builds"][0], python=["3.5"])]}
        told = "only for Python 3.5"
    answer = node.run(**change)
    assert answer["rc"] == 1 and told in answer["msg"] and node.left() == [], answer


def test_in_the_system(tmp_path):
    """All who use the interpreter find MXNet; the environment only borrows it. In a copy of an interpreter, to be spoilt."""
    original = pathlib.Path(ask(find_python("3.6"), "import sys; print(sys.base_prefix)"))
    copied = tmp_path / "usr"
    shutil.copytree(str(original / "lib"), str(copied / "lib"), ignore=shutil.ignore_patterns(
        "test", "tests", "__pycache__", "config-*", "site-packages", "*.a", "idlelib", "lib2to3", "turtledemo"))
    (copied / "lib" / "python3.6" / "site-packages").mkdir()
    (copied / "bin").mkdir()
    shutil.copy2(str(original / "bin" / "python3.6"), str(copied / "bin" / "python3.6"))
    node = Node(tmp_path, find_python("2.7"), str(copied / "bin" / "python3.6"))
    built = node.run(system=True)
    assert built["changed"] and built["done"], built
    for python in (str(copied / "bin" / "python3.6"), built["python"]):
        assert ask(python, "import mxnet; print(mxnet.__file__)").startswith(str(copied))
    assert not node.run(system=True)["changed"]
    assert node.run(ask=True)["needs"]["requirements"]  # an environment of its own would be another
