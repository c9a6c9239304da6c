"""Fetch wheels into a store on the controller, and pack them into tar files for the nodes.

A requirement is a line of a pip requirements file, `name==version --hash=sha256:... --hash=...`. A
wheel's file name contains the package, its version and the supported Python versions. `find` checks
the sha256 of each file before a caller gets the path.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from typing import Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from mxcluster.errors import BadInput, MxclusterError, shown
from mxcluster.file_io import sha256
from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, text
from mxcluster.model.software import Build, Environment

PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "linux")
OPTIONS = (
    "--quiet --disable-pip-version-check --no-input --no-cache-dir --only-binary :all: "
    "--implementation cp"
).split()
DRAFT = ".fetch-"  # prefix of the temporary folders in a store
# pip evaluates conditions such as `python_version < "3.8"` for its own Python, also with the option
# --python-version. This program runs pip with the conditions of the Python in its first argument.
PIP = """
import runpy, sys
from pip._vendor.packaging import markers
here, python = markers.default_environment, sys.argv.pop(1)
full = dict.fromkeys(("python_full_version", "implementation_version"), python + ".0")
markers.default_environment = lambda: dict(here(), python_version=python, **full)
runpy.run_module("pip", run_name="__main__")
"""

# A line of a requirements file that can contain no option of pip except --hash=sha256.
REQUIREMENT = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9][A-Za-z0-9.+!_]*)"
    r"((?: --hash=sha256:[0-9a-f]{64})+)"
)


class Need(Record):
    """The wheels of an environment for one Python. `python` and `digest` name a file."""

    python: str = field(names.python_version)
    requirements: Sequence[str] = field(each(text))
    """Lines as in `parse`."""
    digest: str = field(names.digest)
    """The sha256 of the other fields."""


def parse(requirement: str) -> Tuple[str, str, List[str]]:
    """Return (name, version, sha256 values) of a requirement line.

    Example of a result: ("mxnet", "1.9.1", ["65d5...", ...]). Raises BadInput if the line has
    another form, such as a second line or an option of pip.
    """
    match = REQUIREMENT.fullmatch(requirement)
    if not match:
        raise BadInput(
            "the line %s of the wheels is malformed: correct it in "
            "python/mxcluster/cluster/mxnet.yml to the form NAME==VERSION --hash=sha256:DIGEST"
            % shown(requirement)
        )
    name, version, digests = match.groups()
    return name, version, [word[-64:] for word in digests.split()]


def needs(environment: Environment, python: str) -> Need:
    """Return the wheels of an environment for one Python.

    The values come from the controller's tables. A node only tells the version of its Python.

    Args: `environment` from `pairs.environment`; `python` a version such as "3.11".

    Raises BadInput if the table has no wheels for this Python, or no digest of a wheel.
    """
    build = environment.build_for(python)
    if build is None:
        raise BadInput(
            "%s has no wheels for Python %s, only for Python %s. Set mxnet_python on this node to "
            "an interpreter of such a version"
            % (environment.name, shown(python), ", ".join(environment.pythons()))
        )
    lines = requirements(environment, build)
    for line in lines:
        parse(line)
    made_of = "\n".join([python] + lines)
    digest = hashlib.sha256(made_of.encode("utf-8")).hexdigest()
    return Need(python=python, requirements=lines, digest=digest)


def requirements(environment: Environment, build: Build) -> List[str]:
    """Return the lines of a requirements file for all wheels of a build, pip last."""
    return [
        " ".join([wheel] + ["--hash=sha256:" + one for one in environment.hashes.get(wheel, [])])
        for wheel in [*build.wheels, build.pip]
    ]


def fits(file_name: str, name: str, version: str, python: str) -> bool:
    """Return True if `file_name` names a wheel of the package for this Python on Linux x86_64.

    Args: `name` and `version` of the package; `python` a version such as "3.11".
    """
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import InvalidVersion, Version

    try:
        found, number, _, tags = parse_wheel_filename(file_name)
        is_same = found == plain(name) and number == Version(version)
    except (InvalidWheelFilename, InvalidVersion):
        return False
    return is_same and any(
        (tag.interpreter, tag.abi) in _pythons(python)
        and (tag.platform == "any" or re.match(r"(many)?linux.*_x86_64$", tag.platform))
        for tag in tags
    )


@functools.lru_cache(maxsize=None)
def _pythons(python: str) -> FrozenSet[Tuple[str, str]]:
    """Return the pairs (interpreter, abi) of all wheels that a Python such as "3.6" can run."""
    from packaging import tags

    major, minor = (int(part) for part in python.split("."))
    # CPython 3.7 and older use the suffix m.
    abis = ["cp%d%d%s" % (major, minor, suffix) for suffix in ("", "m")]
    found = [*tags.cpython_tags((major, minor), abis, ["any"])]
    found += tags.compatible_tags((major, minor), "cp%d%d" % (major, minor), ["any"])
    return frozenset((tag.interpreter, tag.abi) for tag in found)


def find(folder: str, requirement: str, python: str) -> Optional[str]:
    """Return the path of the wheel in `folder` that matches a requirement, or None.

    The name and the sha256 of the wheel must match the requirement.

    Args: `requirement` a line as in `parse`; `python` a version such as "3.11".
    """
    name, version, digests = parse(requirement)
    for candidate in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, candidate)
        if fits(candidate, name, version, python) and sha256(path) in digests:
            return path
    return None


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Lock the store `folder` while the block runs. Other processes wait for the lock.

    Before the block runs, the function removes the temporary folders of killed downloads.
    """
    os.makedirs(folder, exist_ok=True)
    # Only the owner can open the file and hold the lock.
    with open(os.open(os.path.join(folder, ".lock"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
        os.fchmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in os.listdir(folder):
            if name.startswith(DRAFT):
                shutil.rmtree(os.path.join(folder, name))
        yield


def provide(
    folder: str,
    requirements: Sequence[str],
    python: str,
    fetch: Optional[Callable[[str, List[str], str], None]] = None,
) -> List[str]:
    """Return the paths of the wheels for all `requirements`. Fetch the wheels that the store lacks.

    The function fetches a damaged file again. It adds a fetched file to the store only if the
    sha256 matches the requirement. Raises MxclusterError if the fetch gives no matching wheel.

    Args: `folder` the store; `requirements` lines as in `parse`; `python` a version such as "3.11";
    `fetch` a function with the arguments of `download`, which is the default.
    """
    stored = {one: find(folder, one, python) for one in requirements}
    found = {one: path for one, path in stored.items() if path}
    missing = [one for one in requirements if one not in found]
    if missing:
        os.makedirs(folder, exist_ok=True)
        # On the store's disk, so that os.replace moves a file into the store.
        with tempfile.TemporaryDirectory(prefix=DRAFT, dir=folder) as draft:
            output = ""
            try:
                (fetch or download)(draft, missing, python)
            except MxclusterError as error:
                output = str(error)
            for one in missing:
                path = find(draft, one, python)
                if path is None:
                    raise MxclusterError(_failure(folder, one, python, output))
                found[one] = os.path.join(folder, os.path.basename(path))
                os.replace(path, found[one])
    return [found[one] for one in requirements]


def download(folder: str, requirements: List[str], python: str) -> None:
    """Fetch the wheels of `requirements` for Python `python` into `folder` with pip.

    pip checks the sha256 of each wheel. Raises MxclusterError with pip's output if pip fails, and
    BadInput for a line that `parse` refuses: an option in the file would override `pip_download`.
    """
    for one in requirements:
        parse(one)
    listed = os.path.join(folder, "requirements.txt")
    with open(listed, "w", encoding="utf-8") as stream:
        stream.write("\n".join(requirements) + "\n")
    output = pip_download(
        folder, python, ["--no-deps", "--require-hashes", "--requirement", listed]
    )
    if output is not None:
        raise MxclusterError(output)


def pip_download(folder: str, python: str, what: Sequence[str]) -> Optional[str]:
    """Download wheels for Python `python` to `folder` with pip.

    Args: `what` further arguments of pip, such as requirements.

    Returns:
        None on success, or the last 1500 characters of pip's output on failure.
    """
    argv = [sys.executable, "-c", PIP, python, "download", *OPTIONS]
    argv += ["--dest", folder, "--python-version", python]
    cpython = "cp" + python.replace(".", "")
    for abi in (cpython, cpython + "m", "abi3", "none"):
        argv += ["--abi", abi]
    for platform in PLATFORMS:
        argv += ["--platform", platform + "_x86_64"]
    # Put pip's temporary files into `folder`: /tmp may be too small for a GPU wheel of 800 MB.
    done = subprocess.run(
        argv + list(what),
        env=dict(os.environ, TMPDIR=folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode == 0:
        return None
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith("WARNING"))[-1500:]


def pack(paths: Sequence[str], target: str) -> None:
    """Pack the files `paths` into the tar file `target`, atomically.

    The names of the members have no folders. All members belong to uid 0.
    """
    os.makedirs(os.path.dirname(target), exist_ok=True)
    draft = target + ".part"
    try:
        with tarfile.open(draft, "w") as archive:
            for path in paths:
                archive.add(path, arcname=os.path.basename(path), filter=_nobodys)
        os.replace(draft, target)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise


def archives(store: str, needed: Sequence[Need], folder: str) -> Dict[str, str]:
    """Pack a tar file of wheels in `folder` for each digest in `needed`.

    Returns {digest: path of the tar file}. Raises BadInput for a malformed requirement.

    Args: `store` the folder of the wheels; `needed` one item for each node. Items with the same
    digest share a file.
    """
    found = {}  # type: Dict[str, str]
    for need in needed:
        if need.digest not in found:
            target = os.path.join(folder, "wheels-py%s-%s.tar" % (need.python, need.digest[:12]))
            pack(provide(store, need.requirements, need.python), target)
            found[need.digest] = target
    return found


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0  # a node may have another user with the same uid
    member.uname = member.gname = ""
    return member


def plain(name: str) -> str:
    """Return `name` in lower case, with a hyphen for each run of hyphens, dots and underscores."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _failure(folder: str, requirement: str, python: str, output: str) -> str:
    name, version, digests = parse(requirement)
    return (
        "the controller could not fetch the wheel of %s %s for Python %s. Give the controller "
        "access to a package index, or put the file with the sha256 %s into %s on the controller%s"
        % (name, version, python, " or ".join(digests), folder, output and ". pip says:\n" + output)
    )
