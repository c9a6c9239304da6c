"""Fetch wheels into a store on the controller, and pack them into tar files for the nodes.

A requirement is a line of a pip requirements file, `name==version --hash=sha256:... --hash=...`. A
wheel's file name contains the package, its version and the supported Python versions. `find` checks
the sha256 of each file before a caller gets the path.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from mxcluster.errors import BadInput, MxclusterError, shown
from mxcluster.file_io import sha256
from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, text

Json = Dict[str, Any]

PLATFORMS = (
    "manylinux1_x86_64",
    "manylinux2010_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_17_x86_64",
    "linux_x86_64",
)
DRAFT = ".fetch-"


# A line of a requirements file that can contain no option of pip except --hash=sha256.
REQUIREMENT = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9][A-Za-z0-9.+!_]*)"
    r"((?: --hash=sha256:[0-9a-f]{64})+)"
)


class Need(Record):
    """The wheels of an environment for one Python. `python` and `digest` name a file."""

    python: str = field(names.python_version)
    requirements: Sequence[str] = field(each(text), about="lines as in `parse`")
    digest: str = field(names.digest, about="the sha256 of the other fields")


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


def needs(environment: Json, python: str) -> Need:
    """Return the wheels of an environment for one Python.

    The values come from the controller's tables. A node only tells the version of its Python.

    Args: `environment` {"builds", "hashes", "name"} from `pairs.environment`; `python` a version
    such as "3.11".

    Raises BadInput if the table has no wheels for this Python, or no digest of a wheel.
    """
    build = next((one for one in environment["builds"] if python in one["python"]), None)
    if build is None:
        raise BadInput(
            "%s has no wheels for Python %s, only for Python %s. Set mxnet_python on this node to "
            "an interpreter of such a version"
            % (
                environment.get("name") or "MXNet",
                shown(python),
                ", ".join(known for one in environment["builds"] for known in one["python"]),
            )
        )
    requirements = [
        " ".join(
            [wheel] + ["--hash=sha256:" + digest for digest in environment["hashes"].get(wheel, [])]
        )
        for wheel in build["wheels"] + [build["pip"]]
    ]
    for line in requirements:
        parse(line)
    made_of = "\n".join([python] + requirements)
    digest = hashlib.sha256(made_of.encode("utf-8")).hexdigest()
    return Need(python=python, requirements=requirements, digest=digest)


def fits(file_name: str, name: str, version: str, python: str) -> bool:
    """Return True if `file_name` names a wheel of the package for this Python on Linux x86_64.

    Args: `name` and `version` of the package; `python` a version such as "3.11".

    Source: binary distribution format, PEP 427 (packaging.python.org).
    """
    parts = file_name[: -len(".whl")].split("-") if file_name.endswith(".whl") else []
    if len(parts) < 5 or plain(parts[0]) != plain(name) or parts[1] != version:
        return False
    tags, abis, platforms = (part.split(".") for part in parts[-3:])
    cpython = "cp" + python.replace(".", "")
    minor = int(python.split(".")[1])
    older = {"%s3%s" % (kind, number) for kind in ("cp", "py") for number in range(2, minor)}
    if cpython in tags:
        own = {"none", "abi3", cpython, cpython + "m"}  # Python 3.7 and older use the suffix m
    elif "py3" in tags or "py" + cpython[2:] in tags:
        own = {"none"}
    elif older & set(tags):  # an older CPython's stable ABI, or pure Python since an older version
        own = {"abi3"} if any(tag.startswith("cp") for tag in tags) else {"none"}
    else:
        return False
    return bool(own & set(abis)) and (
        "any" in platforms
        or any(
            one.endswith("linux_x86_64") or "linux" in one and one.endswith("x86_64")
            for one in platforms
        )
    )


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
    there = {one: find(folder, one, python) for one in requirements}
    found = {one: path for one, path in there.items() if path is not None}
    missing = [one for one in requirements if one not in found]
    if missing:
        os.makedirs(folder, exist_ok=True)
        draft = tempfile.mkdtemp(
            prefix=DRAFT, dir=folder
        )  # on the store's disk, so that os.replace moves a file into the store
        try:
            said = ""
            try:
                (fetch or download)(draft, missing, python)
            except MxclusterError as error:
                said = str(error)
            for one in missing:
                path = find(draft, one, python)
                if path is None:
                    raise MxclusterError(_not_to_be_had(folder, one, python, said))
                found[one] = os.path.join(folder, os.path.basename(path))
                os.replace(path, found[one])
        finally:
            shutil.rmtree(draft, ignore_errors=True)
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
    said = pip_download(folder, python, ["--no-deps", "--require-hashes", "--requirement", listed])
    if said is not None:
        raise MxclusterError(said)


def pip_download(folder: str, python: str, what: Sequence[str]) -> Optional[str]:
    """Download wheels for Python `python` to `folder` with pip.

    Args: `what` further arguments of pip, such as requirements.

    Returns:
        None on success, or the last 1500 characters of pip's output on failure.
    """
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--only-binary",
        ":all:",
        "--no-cache-dir",
        "--dest",
        folder,
        "--implementation",
        "cp",
        "--python-version",
        python,
    ]
    cpython = "cp" + python.replace(".", "")
    for abi in (cpython, cpython + "m", "abi3", "none"):
        argv += ["--abi", abi]
    for platform in PLATFORMS:
        argv += ["--platform", platform]
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


def _not_to_be_had(folder: str, requirement: str, python: str, said: str) -> str:
    name, version, digests = parse(requirement)
    return (
        "the controller could not fetch the wheel of %s %s for Python %s. Give the controller "
        "access to a package index, or put the file with the sha256 %s into %s on the controller%s"
        % (
            name,
            version,
            python,
            " or ".join(digests),
            folder,
            ". pip says:\n" + said if said else "",
        )
    )
