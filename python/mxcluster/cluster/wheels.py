"""The controller's store of wheels: fetched once for all nodes, each known by its sha256, packed for the way to a node.

A requirement is a line of a pip requirements file, `name==version --hash=sha256:... --hash=...`. Which file of the store
fits it for a Python is decided by the file's name and proven by its content, each time before it leaves the store.
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
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from .errors import BadInput, MxclusterError

PLATFORMS = ("manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "linux_x86_64")
BLOCK = 1 << 20
DRAFT = ".fetch-"


def parse(requirement: str) -> Tuple[str, str, List[str]]:
    """("mxnet", "1.9.1", [sha256, ...]) of a requirement line."""
    pinned, *options = requirement.split()
    name, version = pinned.split("==")
    return name, version, [option.split("sha256:")[1] for option in options]


def fits(file_name: str, name: str, version: str, python: str) -> bool:
    """Whether a file of that name is a wheel of this package and version for this Python ('3.11') on Linux, x86_64.

    The name's parts are those of the binary distribution format (packaging.python.org, from PEP 427).
    """
    parts = file_name[:-len(".whl")].split("-") if file_name.endswith(".whl") else []
    if len(parts) < 5 or plain(parts[0]) != plain(name) or parts[1] != version:
        return False
    tags, abis, platforms = (part.split(".") for part in parts[-3:])
    cpython = "cp" + python.replace(".", "")
    minor = int(python.split(".")[1])
    older = {"%s3%s" % (kind, number) for kind in ("cp", "py") for number in range(2, minor)}
    if cpython in tags:
        own = {"none", "abi3", cpython, cpython + "m"}  # 3.7 and older have the m
    elif "py3" in tags or "py" + cpython[2:] in tags:
        own = {"none"}
    elif older & set(tags):  # the stable interface of an older CPython, or pure Python from some version on
        own = {"abi3"} if any(tag.startswith("cp") for tag in tags) else {"none"}
    else:
        return False
    return bool(own & set(abis)) and ("any" in platforms or any(one.endswith("linux_x86_64") or "linux" in one and
                                                                one.endswith("x86_64") for one in platforms))


def sha256(path: str) -> str:
    """The digest of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def find(folder: str, requirement: str, python: str) -> Optional[str]:
    """The path of the store's file for a requirement, None if there is none with the right content."""
    name, version, digests = parse(requirement)
    for candidate in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, candidate)
        if fits(candidate, name, version, python) and sha256(path) in digests:
            return path
    return None


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """The store for oneself: who comes meanwhile waits. What a download that was killed has left is removed."""
    os.makedirs(folder, exist_ok=True)
    # Nobody else can open the file, and so nobody else can hold the lock.
    with open(os.open(os.path.join(folder, ".lock"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
        os.fchmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in os.listdir(folder):
            if name.startswith(DRAFT):
                shutil.rmtree(os.path.join(folder, name))
        yield


def provide(folder: str, requirements: Sequence[str], python: str,
            fetch: Optional[Callable[[str, List[str], str], None]] = None) -> List[str]:
    """The paths of all files for `requirements`, those that the store lacks fetched by `fetch` (default: pip).

    A file that is torn or another's is fetched anew. What a fetch leaves is taken into the store only when its digest
    is right. MxclusterError with what is missing, and where to put it, if it cannot be had.
    """
    found = {one: find(folder, one, python) for one in requirements}
    missing = [one for one in requirements if found[one] is None]
    if missing:
        os.makedirs(folder, exist_ok=True)
        draft = tempfile.mkdtemp(prefix=DRAFT, dir=folder)  # on the store's own disk: taken in by a rename
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
    return [found[one] for one in requirements]  # type: ignore


def download(folder: str, requirements: List[str], python: str) -> None:
    """Fetch wheels for another Python into `folder` with pip, which checks their digests. MxclusterError if it cannot."""
    listed = os.path.join(folder, "requirements.txt")
    with open(listed, "w", encoding="utf-8") as stream:
        stream.write("\n".join(requirements) + "\n")
    said = pip_download(folder, python, ["--no-deps", "--require-hashes", "--requirement", listed])
    if said is not None:
        raise MxclusterError(said)


def pip_download(folder: str, python: str, what: Sequence[str]) -> Optional[str]:
    """Have pip bring wheels for Python `python` to `folder`; None, or its last words if it fails. `what`: its other arguments."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--only-binary",
            ":all:", "--no-cache-dir", "--dest", folder, "--implementation", "cp", "--python-version", python]
    cpython = "cp" + python.replace(".", "")
    for abi in (cpython, cpython + "m", "abi3", "none"):
        argv += ["--abi", abi]
    for platform in PLATFORMS:
        argv += ["--platform", platform]
    # pip's own temporary files lie there too: /tmp may be small, and wheels for GPUs have 800 MB.
    done = subprocess.run(argv + list(what), env=dict(os.environ, TMPDIR=folder), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 0:
        return None
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith("WARNING"))[-1500:]


def pack(paths: Sequence[str], target: str) -> None:
    """Put files side by side into a tar file that appears at `target` whole or not at all. It names no users."""
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


def archive(store: str, requirements: Sequence[str], python: str, folder: str) -> str:
    """The path of a tar file in `folder` with all that `requirements` need; made unless it is there.

    Its name holds a digest of the requirements, so it never stands for others.
    """
    digest = hashlib.sha256("\n".join([python] + list(requirements)).encode("utf-8")).hexdigest()
    target = os.path.join(folder, "wheels-py%s-%s.tar" % (python, digest[:12]))
    pack(provide(store, requirements, python), target)
    return target


def archives(store: str, needs: Sequence[Dict], folder: str) -> Dict[str, str]:
    """{need["digest"]: tar file} for the different needs, each {"digest", "python", "requirements"}, of all nodes."""
    found = {}  # type: Dict[str, str]
    for need in needs:
        if need["requirements"] and need["digest"] not in found:
            try:
                found[need["digest"]] = archive(store, need["requirements"], need["python"], folder)
            except ValueError as error:
                raise BadInput("the table of wheels has a line that is none: %s" % error) from error
    return found


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0  # who has this number elsewhere must not be given the file
    member.uname = member.gname = ""
    return member


def plain(name: str) -> str:
    """A package's name as names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _not_to_be_had(folder: str, requirement: str, python: str, said: str) -> str:
    name, version, digests = parse(requirement)
    return ("the wheel of %s %s for Python %s could not be fetched. Mend the controller's way to a package index, or put the "
            "file, whose sha256 is %s, into %s on the controller%s"
            % (name, version, python, " or ".join(digests), folder, ". pip says:\n" + said if said else ""))
