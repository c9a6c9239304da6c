"""Make fingerprints of a node's MXNet and numpy quickly, without an import of MXNet or numpy.

A fingerprint covers a small part of a large file: the size, both ends and pieces between the ends.
Another version or build has another fingerprint. Only verify.yml, which reads the whole file,
detects a change of a few bytes elsewhere.
"""

import contextlib
import glob
import hashlib
import importlib.util
import os
import platform
import re
import sys
from typing import Dict, List, Optional

from mxcluster.model.node_requests import Versions

PIECE, PIECES = 4096, 64


def fingerprints() -> Dict[str, str]:
    """Return {"libmxnet.so": sha256, "numpy": sha256} of the installed files.

    The result omits missing files.
    """
    found = {
        "libmxnet.so": _of_files(_inside("mxnet", "libmxnet.so")),
        "numpy": _of_files(
            _inside("numpy", "version.py")
            + _inside("numpy", "_version.py")
            + _inside("numpy", "*core", "_multiarray_umath*.so")
        ),
    }
    return {name: digest for name, digest in found.items() if digest}


def modules() -> List[str]:
    """Return the sorted names of all modules and packages that `import` finds in this Python.

    A folder without Python files counts, too, because it may be a package without __init__.py.
    """
    found = set(sys.builtin_module_names)
    for folder in sys.path:
        with contextlib.suppress(OSError):
            found.update(name.partition(".")[0] for name in os.listdir(folder or "."))
    found.discard("__pycache__")
    return sorted(name for name in found if re.match(r"[A-Za-z_][A-Za-z0-9_]{0,99}$", name))


def versions() -> Dict[str, str]:
    """Return {"mxnet": version, "numpy": version} from their files, "" for an unknown version."""
    return {
        "mxnet": _version_in(_inside("mxnet", "libinfo.py")),
        "numpy": _version_in(_inside("numpy", "version.py") + _inside("numpy", "_version.py")),
    }


def _version_in(paths: List[str]) -> str:
    for path in paths:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as stream:
            found = re.search(
                r"""^\s*["_]*(?:short_)?version["_]*\s*[=:]\s*["']([0-9][^"'\s]{0,39})["']""",
                stream.read(),
                re.MULTILINE,
            )
            if found:
                return found.group(1)
    return ""


def problems(known: Versions) -> List[str]:
    """Return a message for each change of Python, MXNet or numpy since provision.yml.

    `known`: the versions of the node record.
    """
    lines, now = [], fingerprints()
    if known.python_version and known.python_version != platform.python_version():
        lines.append(
            "Python is %s now and was %s at the node's last provision.yml: run provision.yml"
            % (platform.python_version(), known.python_version)
        )
    for name, before in sorted(known.fingerprints.items()):
        if now.get(name) != before:
            lines.append(
                "%s %s since the node's last provision.yml: %s"
                % (name, "has changed" if name in now else "is gone", cure())
            )
    return lines


def cure() -> str:
    """Return the advice for a damaged Python environment that provision.yml takes for complete."""
    own = sys.prefix != sys.base_prefix  # False for the system's Python
    return (
        "remove %s on this node, and run provision.yml, which makes this Python environment again"
        % sys.prefix
        if own
        else "install MXNet and numpy for %s again, and run provision.yml" % sys.executable
    )


def fingerprint(path: str) -> str:
    """Return the sha256 of the size, the ends, and evenly spaced pieces of the file `path`."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        digest.update(b"%d\n" % size)
        for number in range(PIECES):
            stream.seek(max(0, size - PIECE) * number // (PIECES - 1))
            digest.update(stream.read(PIECE))
    return digest.hexdigest()


def _of_files(paths: List[str]) -> Optional[str]:
    """Return one fingerprint for all files `paths`, or None if `paths` is empty."""
    digests = [fingerprint(path) for path in sorted(paths)]
    if len(digests) < 2:
        return digests[0] if digests else None
    return hashlib.sha256("".join(digests).encode("ascii")).hexdigest()


def library_of_mxnet() -> str:
    """Return the path of libmxnet.so, without an import of MXNet.

    The file may be missing. Raises FileNotFoundError without MXNet.
    """
    folder = _folder_of("mxnet")
    if not folder:
        raise FileNotFoundError("this Python has no MXNet")
    return os.path.join(folder, "libmxnet.so")


def _folder_of(package: str) -> str:
    """Return the folder of `package` without an import of `package`, "" without the package."""
    spec = importlib.util.find_spec(package)
    return os.path.dirname(spec.origin) if spec and spec.origin else ""


def _inside(package: str, *pattern: str) -> List[str]:
    """Return the files of `package` that match the glob `pattern`.

    `pattern`: the parts of the glob, relative to the package's folder.
    """
    folder = _folder_of(package)
    found = glob.glob(os.path.join(glob.escape(folder), *pattern)) if folder else []
    return list(filter(os.path.isfile, found))
