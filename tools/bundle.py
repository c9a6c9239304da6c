"""Make or unpack an archive of all downloads of provisioning, for a site without a network.

    python tools/bundle.py make FILE [--packages=WHAT] [MXNET_VERSION [TARGET [MIRROR]]]
                                        on a machine with a network: writes FILE and FILE.sha256
    python tools/bundle.py unpack FILE  on the controller, which needs no network

TARGET is the build of MXNet: cpu, cu92, cpu-mkl ... MIRROR is a URL in place of NVIDIA's servers.
WHAT is the value of mxnet_packages: names separated by commas, or a requirements file.

The archive contains:

- the wheels of the nodes, for every Python in python/mxcluster/cluster/mxnet.yml;
- the wheels of the controller, for each version of ansible-core that runs on the Python of `make`;
- CUDA for CentOS 7, cuDNN and NCCL, if TARGET is cuXX.

Run `make` with the Python version of the controller.

`unpack` checks the archive against FILE.sha256, and puts the wheels into the cache of provision.yml
and tools/venv.sh. provision.yml also checks the wheels of the nodes against the table before the
installation. `unpack` needs the standard library only.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

PROJECT = pathlib.Path(__file__).resolve().parents[1]
# The folders wheels/ and archives/ are for the nodes, controller/ is for this machine.
CACHE = PROJECT / ".state" / "cache"
FOLDERS = ("wheels", "archives", "controller")


def sha256(path):
    """Return the SHA-256 digest of the file `path` in hexadecimal (str)."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def refuse(*lines):
    """Print `lines` (str) as the error message, and exit with status 1."""
    sys.exit("\n".join("mxcluster: " + line for line in lines))


def make(target, version="1.9.1", wanted="cpu", mirror="", packages=""):
    """Fetch all files, pack the files into the bundle `target`, and write `target`.sha256.

    Args:
        target: the path of the bundle.
        version: the version of MXNet.
        wanted: the build of MXNet, such as "cu92".
        mirror: a URL in place of NVIDIA's servers, or "".
        packages: the value of mxnet_packages.
    """
    from mxcluster.cluster import extra_packages as extras
    from mxcluster.cluster import pairs, wheels
    from mxcluster.errors import MxclusterError

    try:
        wanted_packages = extras.of_knob(packages, os.getcwd())
        environments = {
            one: pairs.environment(version, one)
            for one in {wanted, pairs.target("", wanted.endswith("-mkl"))}
        }
        pairs.check(version, wanted, pairs.Node(python=None, gpus=[], driver=None, libcuda=True))
        paths = files(version, wanted, mirror) if pairs.cuda_of(wanted) else set()
    except MxclusterError as refusal:
        refuse(str(refusal))
    for environment in environments.values():  # nodes without a GPU get the wheel for CPUs
        paths.update(("wheels", path) for path in packages_of(environment, wanted_packages))
        for build in environment.builds:
            requirements = wheels.requirements(environment, build)
            for python in build.python:
                print("mxcluster: %s, Python %s" % (environment.name, python), flush=True)
                with wheels.locked(str(CACHE / "wheels")):
                    paths.update(
                        ("wheels", path)
                        for path in wheels.provide(str(CACHE / "wheels"), requirements, python)
                    )
    with tempfile.TemporaryDirectory(dir=str(CACHE)) as folder:
        for line in lines(sys.version_info[:2]):
            print("mxcluster: wheels of the controller, ansible-core %s" % line, flush=True)
            requirements = PROJECT / "requirements" / ("core-%s.txt" % line)
            subprocess.run(
                [
                    sys.executable,
                    *"-m pip download --quiet --disable-pip-version-check --require-hashes".split(),
                    *"--only-binary :all:".split(),
                    *("--dest", folder, "-r", str(requirements)),
                ],
                check=True,
            )
        paths.update(("controller", os.path.join(folder, name)) for name in os.listdir(folder))
        with tarfile.open(target + ".part", "w") as archive:
            for kind, path in sorted(paths):
                archive.add(path, arcname="%s/%s" % (kind, os.path.basename(path)))
    os.replace(target + ".part", target)
    pathlib.Path(target + ".sha256").write_text(
        "%s  %s\n" % (sha256(target), os.path.basename(target))
    )
    print("mxcluster: %s, %d files, %d MB" % (target, len(paths), os.path.getsize(target) >> 20))


def lines(python):
    """Return the versions of ansible-core (list of str) that run on a controller with `python`.

    A version such as "2.19" has a file requirements/core-2.19.txt. A comment in the file names the
    oldest and the newest Python that the version supports.

    Args: `python` a version such as (3, 11).
    """
    found = []
    for path in sorted((PROJECT / "requirements").glob("core-*.txt")):
        limits = re.search(
            r"^# Controller: Python (\d+\.\d+) to (\d+\.\d+)$", path.read_text(), re.M
        )
        oldest, newest = (tuple(map(int, limit.split("."))) for limit in limits.groups())
        if oldest <= tuple(python) <= newest:
            found.append(path.stem.partition("-")[2])
    return found


def packages_of(environment, packages, fetch=None):
    """Fetch the wheels of mxnet_packages, and return the paths of the bundle's files (list of str).

    The files are the wheels, and for each Python a list of the wheels. If a package has no wheel
    for a Python, the function prints a message and leaves out this Python. Exits if all Pythons are
    left out.

    Args:
        environment: the result of `pairs.environment`.
        packages: the result of `extra_packages.of_knob`.
        fetch: as in `extra_packages.extended`.
    """
    from mxcluster.cluster import extra_packages, wheels
    from mxcluster.errors import MxclusterError

    store, found, reasons = str(CACHE / "wheels"), [], []
    for build in environment.builds if packages else ():
        for python in build.python:
            try:
                with wheels.locked(store):
                    extra_packages.extended(environment, packages, python, store, fetch)
                    found += extra_packages.kept(store, packages, build, python)
            except MxclusterError as refusal:
                reasons.append(
                    "%s: the bundle lacks packages for Python %s: %s"
                    % (environment.name, python, str(refusal).splitlines()[0])
                )
    for reason in reasons:
        print("mxcluster: " + reason, flush=True)
    if packages and not found:
        refuse(
            "no Python of %s has wheels of all requested packages: change --packages."
            % environment.name
        )
    return found


def files(version, wanted, mirror):
    """Fetch NVIDIA's files for an MXNet and its target, and return a set of ("archives", path).

    The files are CUDA's repository for CentOS 7 with patches and keys, cuDNN and NCCL.

    Args: `version` of MXNet; `wanted` the target, such as "cu92"; `mirror` a URL in place of
    NVIDIA's servers, or "".
    """
    from mxcluster.cluster import archives, pairs, version_table, versions, wheels

    source, store = versions.Source(mirror, {}), str(CACHE / "archives")
    row, keys = version_table.cuda_row(pairs.cuda_of(wanted)), version_table.table().keys
    needed = [source.file(url) for url in [*row.rpm, *(key.url for key in keys)]]
    for library in (pairs.cudnn(version, wanted), pairs.nccl(version, wanted)):
        if library:
            needed.append(source.file(library.url, library.sha256))
    found = set()
    for one in needed:
        print("mxcluster: %s" % one.name, flush=True)
        with wheels.locked(store):
            found.add(("archives", archives.provide(store, one)))
    return found


def unpack(source):
    """Check the bundle `source` against its sha256, and unpack its files into the cache.

    Exits if the bundle is damaged or incomplete.
    """
    try:
        wanted = pathlib.Path(source + ".sha256").read_text().split()[0]
        found = sha256(source)
    except OSError as error:
        refuse(
            "cannot read %s: %s. A bundle consists of two files, FILE and FILE.sha256. Copy both "
            "files to the controller" % (error.filename, error.strerror)
        )
    if found != wanted:
        refuse(
            "%s is damaged: its sha256 is %s, and %s.sha256 contains %s."
            % (source, found, source, wanted),
            "Nothing was unpacked. Copy the bundle again, or make a new bundle.",
        )
    with tarfile.open(source) as archive:
        for member in archive.getmembers():
            kind, _, name = member.name.partition("/")
            if (
                not member.isfile()
                or kind not in FOLDERS
                or not name
                or "/" in name
                or name.startswith(".")
            ):
                refuse(
                    "%s contains %r, which is not part of a bundle. Make a new bundle. No further "
                    "file was unpacked." % (source, member.name)
                )
            folder = CACHE / kind
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / (name + ".part")
            try:
                with archive.extractfile(member) as packed, open(str(draft), "wb") as target:
                    shutil.copyfileobj(packed, target)
                os.replace(str(draft), str(folder / name))
            except OSError as error:
                with contextlib.suppress(OSError):
                    draft.unlink()
                refuse(
                    "%s cannot be written: %s. Correct the cause and run this command again."
                    % (folder / name, error.strerror)
                )
    print("mxcluster: unpacked %s" % source)


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if not word.startswith("--packages=")]
    named = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word not in given)
    if len(given) < 2 or given[0] not in ("make", "unpack") or named and given[0] == "unpack":
        sys.exit(__doc__)
    {"make": make, "unpack": unpack}[given[0]](*given[1:], **named)
