"""mxcluster_env with small wheels instead of MXNet.

Ansible's Python on the node may be older than the Python of the environment.
"""

import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from unittest import mock

import pytest

from plugins.modules import mxcluster_env
from tests import ansible_modules
from tests.often import seldom
from tests.pythons import find_python, python_of
from tests.waiting import until

pytestmark = pytest.mark.slow

# The interpreter of Ansible's modules, and the interpreter of the environment.
PAIRS = {"2.7 for 3.6": ("2.7", "3.6"), "controller": ("controller", "controller")}
OLD_OFTEN = ["2.7 for 3.6", seldom("controller")]
# Distributions such as Debian have pip's wheel in a folder of their own.
BUNDLED = (
    "import ensurepip, glob, os, sysconfig; "
    "own = os.path.join(os.path.dirname(ensurepip.__file__), '_bundled'); "
    "folders = [own, sysconfig.get_config_var('WHEEL_PKG_DIR') or own]; "
    "print([f for folder in folders for f in glob.glob(os.path.join(folder, 'pip-*'))][0])"
)
# The part of the package mxcluster that imports MXNet.
COMPAT = {
    "mxcluster/__init__.py": "",
    "mxcluster/node/__init__.py": "",
    "mxcluster/node/mxnet_compat.py": "def import_mxnet():\n    import mxnet\n    return mxnet\n",
}
LOOK = "import sys; print('%d.%d' % sys.version_info[:2])"


def ask(python, script):
    return subprocess.check_output([python, "-c", script], universal_newlines=True).strip()


def make_wheel(folder, name, version, source):
    """Write the smallest wheel that pip installs."""
    path = folder / ("%s-%s-py3-none-any.whl" % (name, version))
    files = {
        "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(str(path), "w") as wheel:
        wheel.writestr(name + ".py", source)
        for file, content in files.items():
            wheel.writestr("%s-%s.dist-info/%s" % (name, version, file), content)
    return path


class Node:
    """The role's arguments, with an archive of the wheels."""

    def __init__(self, folder, under, python):
        self.folder, self.under, self.path = folder, under, folder / "home" / "env"
        self.version = ask(python, LOOK)
        files = [
            make_wheel(folder, "mxnet", "1.0.post1", "__version__ = '1.0'\n"),
            make_wheel(folder, "numpy", "1.0", ""),
            pathlib.Path(ask(python, BUNDLED)),
        ]
        names = ["==".join(path.name.split("-")[:2]) for path in files]
        self.params = {
            "path": str(self.path),
            "python": python,
            "name": "MXNet 1.0 (test)",
            "archive": str(folder / "wheels.tar"),
            "builds": [{"python": [self.version], "wheels": names[:2], "pip": names[2]}],
            "hashes": {
                name: [hashlib.sha256(path.read_bytes()).hexdigest()]
                for name, path in zip(names, files, strict=True)
            },
        }
        self.pack(files)

    def pack(self, files):
        with tarfile.open(self.params["archive"], "w") as archive:
            for path in files:
                archive.add(str(path), arcname=path.name)

    def run(self, **options):
        return ansible_modules.run(
            "mxcluster_env", self.folder, under=self.under, **dict(self.params, **options)
        )

    def left(self):
        """Return the names in the home, without the lock."""
        return sorted({path.name for path in self.path.parent.glob("*")} - {"env.lock"})


@pytest.fixture(params=OLD_OFTEN)
def node(request, tmp_path):
    return Node(tmp_path, *map(python_of, PAIRS[request.param]))


@pytest.fixture
def controller(tmp_path):
    return Node(tmp_path, *map(python_of, PAIRS["controller"]))


def test_an_environment_is_built_once_for_all_users(node, monkeypatch):
    monkeypatch.setenv("PIP_TARGET", str(node.folder / "elsewhere"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://192.0.2.1/simple")
    for options in ({"ask": True}, {"check": True}):
        asked = node.run(**options)
        assert asked["changed"] and not asked["built"] and not asked["done"], asked
        assert asked["python"] == node.version and node.left() == []
    package, unpacked = node.folder / "lib.zip", node.folder / ("lib-" + node.version)
    package.write_bytes(b"no zip file")
    refused = node.run(site_path=str(package))
    assert refused["failed"] and "lib.zip is not a complete zip file" in refused["msg"], refused
    assert not unpacked.exists()
    with zipfile.ZipFile(str(package), "w") as archive:
        for name, content in COMPAT.items():
            archive.writestr(name, content)
        archive.writestr("carried.py", "def fail():\n    raise ValueError\n")
    before = os.umask(0o077)
    try:
        built = node.run(site_path=str(package))
    finally:
        os.umask(before)
    assert built["changed"] and built["done"] and node.left() == ["env"], built
    installed = node.path.glob("lib/*/site-packages/mxnet.py")
    for path in (node.path, node.path / "mxcluster-env.json", *installed):
        assert path.stat().st_mode & 0o044 == 0o044, path
    python = str(node.path / "bin" / "python")
    assert ask(python, "import carried; print(carried.__file__)") == str(unpacked / "carried.py")
    assert unpacked.stat().st_mode & 0o777 == 0o755
    assert list(unpacked.glob("__pycache__/carried.*.pyc"))
    compiled_from = ask(python, "import carried; print(carried.fail.__code__.co_filename)")
    assert compiled_from == str(unpacked / "carried.py")
    shutil.rmtree(str(unpacked))
    assert node.run(site_path=str(package), archive="")["changed"] and unpacked.is_dir()
    assert ask(python, "import mxnet; print(mxnet.__version__)") == "1.0"
    assert not (node.folder / "elsewhere").exists()
    again = node.run(site_path=str(package), archive="")
    assert not again["changed"] and again["built"] and again["done"], again


def test_a_layer_leaves_the_environment_as_it_is(node):
    """The environment imports a layer last. Another list of packages builds another layer."""
    assert node.run()["changed"]
    python, marker = str(node.path / "bin" / "python"), node.path / "mxcluster-env.json"
    before = marker.stat()
    sources = {"numpy": "VERSION = 'of the layer'\n", "six": "VERSION = 1\n"}
    files = [make_wheel(node.folder, name, "2", text) for name, text in sources.items()]
    files.append(pathlib.Path(ask(node.params["python"], BUNDLED)))
    names = ["==".join(path.name.split("-")[:2]) for path in files]
    node.pack(files)
    layer = node.path.parent / "env-packages" / "digest"
    given = {
        "path": str(layer),
        "python": python,
        "is_layer": True,
        "builds": [{"python": [node.version], "wheels": names[:2], "pip": names[2]}],
        "hashes": {
            name: [hashlib.sha256(path.read_bytes()).hexdigest()]
            for name, path in zip(names, files, strict=True)
        },
    }
    asked = node.run(ask=True, **given)
    assert asked["changed"] and not asked["done"] and not layer.parent.exists(), asked
    built = node.run(**given)
    assert built["changed"] and built["done"] and (layer / "six.py").exists(), built
    assert not node.run(archive="", **given)["changed"]

    # The environment needs no archive, because only its list of layers changes.
    named = node.run(archive="", layers=[str(layer)])
    assert named["changed"] and named["done"], named
    assert not node.run(archive="", layers=[str(layer)])["changed"]
    assert (before.st_ino, before.st_mtime_ns) == (marker.stat().st_ino, marker.stat().st_mtime_ns)
    found = "import numpy, six; print(six.VERSION, getattr(numpy, 'VERSION', 'own'))"
    assert ask(python, found) == "1 own"
    assert node.run(archive="")["changed"]
    with pytest.raises(subprocess.CalledProcessError):
        ask(python, "import six")


def test_a_layer_of_other_files_is_refused(controller):
    assert controller.run()["changed"]
    path = make_wheel(controller.folder, "six", "1", "")
    pip = pathlib.Path(ask(controller.params["python"], BUNDLED))
    controller.pack([path, pip])
    names = ["six==1", "==".join(pip.name.split("-")[:2])]
    digests = ["0" * 64, hashlib.sha256(pip.read_bytes()).hexdigest()]
    layer = controller.path.parent / "env-packages" / "digest"
    refused = controller.run(
        path=str(layer),
        python=str(controller.path / "bin" / "python"),
        is_layer=True,
        builds=[{"python": [controller.version], "wheels": names[:1], "pip": names[1]}],
        hashes={name: [digest] for name, digest in zip(names, digests, strict=True)},
    )
    assert refused["failed"] and "is not the digest of a wheel" in refused["msg"], refused
    assert not layer.exists()


def test_files_that_root_runs_belong_to_root(node):
    """Owners and modes of the archive are dropped; other users cannot enter the build folder."""
    if os.geteuid() == 0:
        for path in node.folder.glob("*.whl"):
            os.chown(str(path), 65534, 65534)
    path = make_wheel(
        node.folder,
        "mxnet",
        "1.0.post1",
        "import glob, os\nassert os.stat('.').st_mode & 0o777 == 0o700\n"
        "for path in glob.glob('*.whl'):\n"
        "    assert os.stat(path).st_uid == os.geteuid() and not os.stat(path).st_mode & 0o022\n"
        "__version__ = '1.0'\n",
    )
    node.params["hashes"]["mxnet==1.0.post1"] = [hashlib.sha256(path.read_bytes()).hexdigest()]
    wheels = [path, node.folder / "numpy-1.0-py3-none-any.whl"]
    for wheel in wheels:
        os.chmod(str(wheel), 0o666)
    node.pack([*wheels, pathlib.Path(ask(node.params["python"], BUNDLED))])
    answer = node.run()
    assert answer["changed"], answer
    lock = node.path.parent / "env.lock"
    assert lock.stat().st_mode & 0o777 == 0o600, "other users can hold the lock"


def test_a_partial_environment_is_built_again(controller):
    """As after a kill: files without a marker, or with a wrong one."""
    (controller.path / "bin").mkdir(parents=True)
    (controller.path / "bin" / "python").symlink_to(sys.executable)
    (controller.path / "leftover").write_text("")
    (controller.path.parent / "env.build").mkdir()
    for marker in (None, "", '{"digest": "of something else"}', '{"dig'):
        if marker is not None:
            (controller.path / "mxcluster-env.json").write_text(marker)
        asked = controller.run(ask=True)
        assert asked["changed"] and not asked["built"], (marker, asked)
    assert controller.run()["changed"] and controller.left() == ["env"]
    assert not (controller.path / "leftover").exists()
    marker = json.loads((controller.path / "mxcluster-env.json").read_text())
    assert set(marker) == {"digest", "wheels"}


def swap(node):
    make_wheel(node.folder, "numpy", "1.0", "import os\n")
    node.pack([*node.folder.glob("*.whl"), pathlib.Path(ask(node.params["python"], BUNDLED))])


def with_a_module(node):
    """Add a module that Python would import from the current folder."""
    path = node.folder / "venv.py"
    path.write_text("open(%r, 'w').close()\n" % str(node.folder / "marker"))
    bundled = pathlib.Path(ask(node.params["python"], BUNDLED))
    node.pack([path, *node.folder.glob("*.whl"), bundled])


def truncate(node):
    with open(node.params["archive"], "r+b") as archive:
        archive.truncate(700)


@pytest.mark.parametrize(
    "library, cure",
    [
        ("libgomp.so.1", "yum install libgomp"),
        ("libcublas.so.9.2", "libcublas of CUDA, cuDNN or NCCL: run `ldconfig`"),
    ],
)
def test_the_cure_for_a_missing_library_names_its_source(library, cure):
    """No yum repository has a package libcublas."""
    said = "OSError: %s: cannot open shared object file: No such file or directory" % library
    assert cure in mxcluster_env.cure_for(said)


def test_the_cure_for_a_python_without_distutils_names_its_package():
    said = "ModuleNotFoundError: No module named 'distutils.cmd'"
    assert "apt install python3-distutils" in mxcluster_env.cure_for(said)


@pytest.mark.parametrize(
    "harm, told",
    [
        (swap, "contains the file numpy-1.0-py3-none-any.whl with the sha256"),
        (with_a_module, "contains the file venv.py with the sha256"),
        (truncate, "is not a tar file of wheels"),
        (lambda node: node.params.pop("archive"), "is not a tar file of wheels"),
    ],
)
def test_a_failed_build_reports_the_cause_and_leaves_nothing(controller, harm, told):
    harm(controller)
    answer = controller.run()
    assert answer["rc"] == 1 and told in answer["msg"] and controller.left() == [], answer
    assert not (controller.folder / "marker").exists(), "root has run a file of the archive"


@pytest.mark.parametrize(
    "change, told",
    [
        ({"python": "/no/python"}, "this node has no Python at /no/python"),
        ({"hashes": {}}, "mxcluster has no SHA-256 digest of mxnet"),
        (
            {"builds": [{"python": ["3.5"], "wheels": [], "pip": "pip==1"}], "note": "So it is."},
            "only for Python 3.5. So it is. Set mxnet_python",
        ),
    ],
)
def test_an_impossible_environment_is_refused(node, change, told):
    answer = node.run(**change)
    assert answer["rc"] == 1 and told in answer["msg"] and node.left() == [], answer


def test_mxnet_is_installed_into_the_systems_python(tmp_path):
    """All users of that interpreter find MXNet.

    The test uses a copy of an interpreter.
    """
    original = pathlib.Path(ask(find_python("3.6"), "import sys; print(sys.base_prefix)"))
    copied = tmp_path / "usr"
    shutil.copytree(
        str(original / "lib"),
        str(copied / "lib"),
        ignore=shutil.ignore_patterns(
            *("test", "tests", "__pycache__", "config-*", "site-packages", "*.a"),
            *("idlelib", "lib2to3", "turtledemo"),
        ),
    )
    (copied / "lib" / "python3.6" / "site-packages").mkdir()
    (copied / "bin").mkdir()
    shutil.copy2(str(original / "bin" / "python3.6"), str(copied / "bin" / "python3.6"))
    node = Node(tmp_path, find_python("2.7"), str(copied / "bin" / "python3.6"))
    built = node.run(system=True)
    assert built["changed"] and built["done"], built
    for python in (str(copied / "bin" / "python3.6"), str(node.path / "bin" / "python")):
        assert ask(python, "import mxnet; print(mxnet.__file__)").startswith(str(copied))
    assert not node.run(system=True)["changed"]
    assert not node.run(ask=True)["built"]  # a separate environment would differ


MEMBERS = {
    **COMPAT,
    "carried/__init__.py": "",
    "carried/first.py": "NAME = 'first'\n",
    "carried/data.txt": "some text\n",
    "carried/later.py": "NAME = 'later'\nNUMBERS = %r\n" % list(range(400)),
    "carried/deep/__init__.py": "DEEP = 1\n",
}


class Package:
    """An environment that imports from an unpacked zip file, which the tests damage."""

    def __init__(self, node):
        self.node, self.zip = node, node.folder / "lib" / "mxcluster-0123.zip"
        self.unpacked = node.folder / "lib" / ("mxcluster-0123-" + node.version)
        self.zip.parent.mkdir()
        self.pack()
        assert self.run()["done"]

    def pack(self):
        with zipfile.ZipFile(str(self.zip), "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in MEMBERS.items():
                archive.writestr(name, content)

    def run(self, **options):
        return self.node.run(site_path=str(self.zip), **options)

    def path_of(self, name):
        """Return the path of a member; for a .pyc pattern, the path of the one match."""
        if name.endswith(".pyc"):
            (path,) = self.unpacked.glob(name)
            return path
        return self.unpacked / name

    def files(self):
        """Return {path: (is a link, content)} of the folder; only regular files are read."""
        return {
            path: (path.is_symlink(), path.is_file() and path.read_bytes())
            for path in self.unpacked.glob("**/*")
        }

    def is_whole(self):
        """Return True if the folder has all members compiled, and besides them only the lock."""
        found = {
            str(path.relative_to(self.unpacked))
            for path in self.unpacked.glob("**/*")
            if (path.is_symlink() or not path.is_dir()) and path.parent.name != "__pycache__"
        }
        compiled = {
            str(path.relative_to(self.unpacked)).replace("__pycache__/", "").split(".")[0] + ".py"
            for path in self.unpacked.glob("**/__pycache__/*.pyc")
            if path.stat().st_size > 16
        }
        return (
            found - {"mxcluster-compiled.json"} == set(MEMBERS)
            and not self.unpacked.is_symlink()
            and all((self.unpacked / name).read_text() == MEMBERS[name] for name in MEMBERS)
            and compiled == {name for name in MEMBERS if name.endswith(".py")}
            and set(os.listdir(str(self.zip.parent))) - {self.unpacked.name + ".lock"}
            == {self.zip.name, self.unpacked.name}
        )


@pytest.fixture(scope="module", params=OLD_OFTEN)
def built(request, tmp_path_factory):
    return Package(Node(tmp_path_factory.mktemp("built"), *map(python_of, PAIRS[request.param])))


@pytest.fixture
def package(built):
    """Return the environment that the tests share, repaired."""
    built.pack()
    leftovers = [*built.zip.parent.glob("*.draft"), *built.zip.parent.glob("*.old")]
    for path in [built.unpacked, built.node.folder / "elsewhere", *leftovers]:
        if path.is_symlink() or path.is_file():
            path.unlink()
        shutil.rmtree(str(path), ignore_errors=True)
    assert built.run()["done"] and built.is_whole()
    return built


def cut(path):
    os.truncate(str(path), path.stat().st_size // 2)


def flip(path):
    """Change one bit, and neither the size nor the time."""
    content, times = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    os.utime(str(path), ns=(times.st_atime_ns, times.st_mtime_ns))


def move_away(package, path):
    """Move the file away and put a link to it in its place."""
    path.rename(package.node.folder / "elsewhere")
    path.symlink_to(package.node.folder / "elsewhere")


DAMAGE = {
    "a source is gone": lambda package: package.path_of("carried/later.py").unlink(),
    "a bit of a source": lambda package: flip(package.path_of("carried/later.py")),
    "a file is a link": lambda package: move_away(package, package.path_of("carried/later.py")),
    "a folder is a link": lambda package: move_away(package, package.path_of("carried/deep")),
    "a file is a FIFO": lambda package: (
        package.path_of("carried/data.txt").unlink(),
        os.mkfifo(str(package.path_of("carried/data.txt"))),
    ),
    "one more folder by a link": lambda package: package.path_of("mxnet").symlink_to("/tmp"),
    "one more that is compiled": lambda package: (package.unpacked / "mxnet.pyc").write_text(""),
    "a bit of a compiled file": lambda package: flip(
        package.path_of("carried/__pycache__/later.*.pyc")
    ),
    "what was compiled is not known": lambda package: package.path_of(
        "mxcluster-compiled.json"
    ).write_text("[1]"),
    "it is a link": lambda package: move_away(package, package.unpacked),
    "killed between the renames": lambda package: (
        shutil.copytree(str(package.unpacked), str(package.unpacked) + ".draft"),
        package.unpacked.rename(str(package.unpacked) + ".old"),
    ),
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_damaged_package_is_repaired(package, damage):
    before = package.files()
    DAMAGE[damage](package)
    damaged = package.files()
    assert damaged != before or not package.is_whole()
    mended = package.run(archive="")
    assert mended["changed"] and mended["done"] and package.is_whole(), mended
    assert package.files() != damaged or damaged == before
    target, has_target = package.node.folder / "elsewhere", " is a link" in damage
    assert target.exists() == has_target, "the module followed a link"
    assert not target.is_dir() or list(target.iterdir()), "the module followed a link"


def test_a_damaged_package_is_reported(package):
    before = package.unpacked.stat().st_ino
    for options in ({"ask": True}, {"check": True}, {}):
        asked = package.run(**options)
        assert not asked["changed"] and asked["done"], asked
        assert package.unpacked.stat().st_ino == before
    # Files that Python compiles with other options are no damage.
    python = str(package.node.path / "bin" / "python")
    subprocess.check_call([python, "-OO", "-m", "compileall", "-q", str(package.unpacked)])
    assert package.run(ask=True)["done"]
    cut(package.path_of("carried/later.py"))
    for options in ({"ask": True}, {"check": True}):
        asked = package.run(**options)
        assert asked["changed"] and not asked["done"] and asked["built"], asked
        assert package.unpacked.stat().st_ino == before


def test_a_running_program_imports_the_repaired_package(package):
    script = (
        "import carried.first; print(carried.first.NAME, flush=True); input(); "
        "from carried import later; print(later.NAME)"
    )
    python = str(package.node.path / "bin" / "python")
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
    with subprocess.Popen([python, "-c", script], **pipes) as program:
        assert program.stdout.readline() == "first\n"
        package.path_of("carried/later.py").unlink()
        assert package.run(archive="")["changed"]
        assert program.communicate("\n", timeout=60)[0] == "later\n" and program.returncode == 0


def spoil_members(path):
    """Damage the members' content, but not the directory of the zip file."""
    with zipfile.ZipFile(str(path)) as archive:
        start = archive.getinfo("carried/later.py").header_offset + 30 + len("carried/later.py")
    with open(str(path), "r+b") as target:
        target.seek(start)
        target.write(b"\xff" * 8)


@pytest.mark.parametrize(
    "harm, told",
    [
        (
            lambda path: path.unlink(),
            "mxcluster-0123.zip, the zip file of the package mxcluster, is missing on this node",
        ),
        (spoil_members, "mxcluster-0123.zip is not a complete zip file"),
    ],
)
def test_without_a_valid_zip_file_a_package_is_not_repaired(package, harm, told):
    """The existing files stay unchanged."""
    before = package.unpacked.stat().st_ino
    harm(package.zip)
    package.path_of("carried/later.py").unlink()
    assert not package.run(ask=True)["done"]
    refused = package.run(archive="")
    assert refused["rc"] == 1 and told in refused["msg"], refused
    assert package.unpacked.stat().st_ino == before
    assert not list(package.zip.parent.glob("*.draft"))


def test_one_process_unpacks_at_a_time(package):
    """Environments share the package, and each environment has its own lock only."""
    lock = package.zip.parent / (package.unpacked.name + ".lock")
    lock.chmod(0o644)
    cut(package.path_of("carried/later.py"))
    with open(str(lock)) as held, concurrent.futures.ThreadPoolExecutor(1) as pool:
        fcntl.flock(held, fcntl.LOCK_SH)  # a module with a shared lock would not wait
        draft = package.zip.parent / (package.unpacked.name + ".draft")
        draft.mkdir()  # the draft of the other process
        waiting = pool.submit(package.run, archive="")
        inode = ":%d " % os.stat(str(lock)).st_ino
        until(
            lambda: any("->" in line and inode in line for line in open("/proc/locks")),
            evidence=lambda: open("/proc/locks").read(),
        )
        assert not waiting.done() and draft.is_dir() and not package.is_whole()
        fcntl.flock(held, fcntl.LOCK_UN)
        assert waiting.result()["done"] and package.is_whole()
    assert lock.stat().st_mode & 0o777 == 0o600, "other users can hold the lock"


def test_the_package_is_synced_before_it_is_renamed(package, monkeypatch):
    """A power cut leaves no empty files under the final name.

    The compiling process holds the lock, since it may outlive the module.
    """
    done, shared = [], []

    def run_command(argv, pass_fds=(), **_):
        shared.extend(os.readlink("/proc/self/fd/%d" % descriptor) for descriptor in pass_fds)
        done.append(("run", argv[2]))
        return subprocess.call(argv), "", ""

    def fsync(descriptor):
        done.append(("fsync", os.readlink("/proc/self/fd/%d" % descriptor)))

    rename = os.rename
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(
        os, "rename", lambda old, new: (done.append(("rename", old)), rename(old, new))
    )
    environment = object.__new__(mxcluster_env.Environment)
    environment.module, environment.inherited = mock.Mock(run_command=run_command), ()
    environment.zip, environment.site_path = str(package.zip), str(package.unpacked)
    environment.python = str(package.node.path / "bin" / "python")
    cut(package.path_of("carried/later.py"))
    environment.unpack_package()
    assert package.is_whole() and environment.inherited == ()
    assert shared == [str(package.unpacked) + ".lock"]
    draft, here = str(package.unpacked) + ".draft", str(package.unpacked)
    began, ended = done.index(("run", "compileall")), done.index(("rename", draft))
    synced = {path for what, path in done[began:ended] if what == "fsync"}
    files = [str(path) for path in package.unpacked.glob("**/*")]
    assert {path.replace(here, draft) for path in [here, *files]} <= synced
    renames = [("rename", here), ("rename", draft)]
    assert done[ended - 1 :] == [*renames, ("fsync", str(package.zip.parent))]
