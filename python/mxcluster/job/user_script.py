"""Check a user's script and its folder on the controller, and pack them for the nodes."""

import base64
import errno
import os
import stat
import sys
import warnings
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from mxcluster import package
from mxcluster.errors import BadInput, refuse, some

MOST_CODE = 16 << 20  # maximum size of a script's folder, in bytes
MOST_FILES = 5000
NAMED = 5  # maximum number of names in a message
INSTALLED = ("mxcluster", "mxnet", "numpy")  # packages of the nodes' environment
PYTHONS = ("python", "pypy", "uv run")  # Python interpreters in the first line of a script
# Older Pythons accept `async` and `await` as names, but the controller's Python refuses them.
OLDEST_JUDGED = (3, 7)


class Folder(NamedTuple):
    """The paths in the folder of a script, relative to this folder."""

    files: List[str]
    folders: List[str]
    skipped: Dict[str, List[str]]  # {reason: paths}
    unreadable: List[str]


def pack(script: str, pythons: Iterable[Optional[str]] = ()) -> Tuple[str, List[str]]:
    """Return (the script's folder as a zip file in base64, [note for the plan, ...]).

    Args: `script` an absolute path on the controller; `pythons` the versions ("3.11.2") of Python
    on the workers' nodes, None for an unknown version. Raises BadInput if the nodes cannot run the
    script, or if the controller cannot pack the script's folder.
    """
    folder, name = os.path.split(script)
    about = "script='%s': " % script
    found = look(folder, about)
    if found.unreadable:
        raise BadInput(
            about
            + "%s in the script's folder cannot be read. Correct the mode of these paths, rename "
            "paths that are not UTF-8, or put the script and its imports into a separate folder"
            % _named(found.unreadable)
        )
    if name not in found.files:
        raise BadInput(
            about + "hidden and compiled files stay on the controller. Rename the script, without "
            "'.' at the beginning and without .pyc or .pyo at the end"
        )
    modules = _modules(found.files)
    refuse(
        about
        + "the nodes would import the module %s of the script's folder in place of the installed "
        "package. Rename %s"
        % (module, "the script" if name == module + ".py" else "%s in %s" % (path, folder))
        for module, path in sorted(modules.items())
        if module in INSTALLED
    )
    notes = _judge(script, pythons, about)
    notes += [
        "skipped in the script's folder: %s (%s)" % (_named(names), why)
        for why, names in sorted(found.skipped.items())
    ]
    # The attribute exists since Python 3.10, the oldest Python of a controller.
    standard = getattr(sys, "stdlib_module_names", ())
    hidden = sorted(file for module, file in modules.items() if module in standard)
    if hidden:
        notes.append(
            "the script imports these files of its folder in place of modules of Python's standard "
            "library: %s. Rename the files, unless you intend these imports" % _named(hidden)
        )
    try:
        return base64.b64encode(
            package.archive(folder, inside=True, paths=found.folders + found.files)[1]
        ).decode("ascii"), notes
    except OSError as error:
        raise BadInput(
            about
            + "%s cannot be read (%s). Give your user read permission on the controller"
            % (error.filename, error.strerror)
        ) from error


def look(folder: str, about: str) -> Folder:
    """Return a Folder with the paths to send, the skipped paths and the unreadable paths.

    The reasons for skipped paths explain an import that fails on the nodes only.

    Raises BadInput, with a message that starts with `about`, if `folder` is too large.
    """
    size, found = 0, Folder([], [], {}, [])

    def skip(why: str, path: str) -> None:
        found.skipped.setdefault(why, []).append(path)

    for parent, folders, names in os.walk(
        folder, onerror=lambda error: found.unreadable.append(_inside(error.filename, folder))
    ):
        folders[:] = sorted(name for name in folders if package.is_source(name))
        for name in folders:
            path = _inside(os.path.join(parent, name), folder)
            if os.path.islink(os.path.join(parent, name)):
                skip("links to folders", path)
            elif _is_text(name):
                found.folders.append(path + "/")
        for name in filter(package.is_source, names):
            full = os.path.join(parent, name)
            path = _inside(full, folder)
            try:
                seen = os.stat(full)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ELOOP):
                    skip("broken links", path)
                else:
                    found.unreadable.append(path)
                continue
            if not stat.S_ISREG(seen.st_mode):
                skip("sockets, FIFOs or devices", path)
            elif not os.access(full, os.R_OK) or not _is_text(path):
                found.unreadable.append(path)
            else:
                found.files.append(path)
                size += seen.st_size
        if size > MOST_CODE or len(found.files) + len(found.folders) > MOST_FILES:
            raise BadInput(
                about
                + "the script's folder goes to every node, and holds more than %d MB or %d files "
                "and folders. Put the script and its imports into a separate folder, and put data "
                "on the nodes (data_dir)" % (MOST_CODE >> 20, MOST_FILES)
            )
    found.files.sort()
    found.folders.sort()
    return found


def _judge(script: str, pythons: Iterable[Optional[str]], about: str) -> List[str]:
    """Return notes on the script for the plan, or raise BadInput for an invalid Python 3 script.

    The script gets a note if the controller's Python cannot compile the script, but the Python of a
    node may accept the script.

    Args: `pythons` as in `pack`; `about` the start of a message.
    """
    with open(script, "rb") as stream:
        source = stream.read()
    first = source.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    if b"\0" in source:
        raise BadInput(
            about + "the file holds NUL bytes, so the file is no Python script. Correct the path"
        )
    if first.startswith("#!") and not any(name in first for name in PYTHONS):
        raise BadInput(
            about
            + "the first line, %s, names another interpreter, but the nodes run the script with "
            "Python 3. Give a Python script, which may start other programs" % first[:80]
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        where = "line %s: %s" % (getattr(error, "lineno", None) or 1, getattr(error, "msg", error))
        versions = [tuple(map(int, version.split(".")[:2])) for version in pythons if version]
        if all(OLDEST_JUDGED <= version <= sys.version_info[:2] for version in versions):
            raise BadInput(
                about + "the script is not valid Python 3, %s. Correct the script" % where
            ) from error
        return [
            "the controller's Python %d.%d cannot compile the script (%s). The nodes run another "
            "version of Python, which may accept the script" % (sys.version_info[:2] + (where,))
        ]
    except (MemoryError, RecursionError):  # The script nests too deeply for this compiler.
        pass
    return []


def _modules(files: Iterable[str]) -> Dict[str, str]:
    """Return {module: file or folder} of the modules that `import` finds in the script's folder.

    Args: `files` the paths of the files, relative to the script's folder.
    """
    found = {}
    for path in files:
        top, _, rest = path.partition("/")
        if not rest and path.endswith((".py", ".so")):
            found[path.split(".")[0]] = path
        # Without __init__.py, Python prefers an installed package of the same name.
        elif rest == "__init__.py":
            found[top] = top
    return found


def _inside(path: str, folder: str) -> str:
    return os.path.relpath(path, folder).replace(os.sep, "/")


def _is_text(path: str) -> bool:
    """Return True if UTF-8 can encode `path`, so that a zip file can hold this name."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _named(names: List[str]) -> str:
    """Return text for a message: at most NAMED of the `names`, and the number of further names."""
    shown = [name if name.isprintable() else ascii(name)[1:-1] for name in sorted(names)]
    return some(shown, NAMED)
