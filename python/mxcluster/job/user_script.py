"""Check a user's script and its folder on the controller, and pack them for the nodes.

The folder is the value of the knob script_root, by default the folder that holds the script. The
zip file of an earlier job, runs/<job>/script.zip, stands for a folder, too, and travels unchanged.
"""

import base64
import errno
import os
import stat
import sys
import warnings
import zipfile
from typing import (
    Collection,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from mxcluster import package
from mxcluster.errors import BadInput, refuse, some
from mxcluster.job import script_imports, travelling

MOST_MB = 16  # default of the knob script_mb
MOST_FILES = 5000
LARGEST = 3  # maximum number of large files in a message
GIT = "git"  # the value of script_root for the root of the git clone
NAMED = 5  # maximum number of names in a message
NO_MODULES: Mapping[str, Collection[str]] = {}
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


def pack(
    script: str,
    pythons: Iterable[Optional[str]] = (),
    root: str = "",
    most_mb: int = MOST_MB,
    modules: Mapping[str, Collection[str]] = NO_MODULES,
) -> Tuple[str, List[str]]:
    """Return (the script's folder as a zip file in base64, [note for the plan, ...]).

    Args:
        script: an absolute path on the controller.
        pythons: the versions ("3.11.2") of Python on the workers' nodes, None for an unknown
            version.
        root: the absolute path of the folder, "" for the folder that holds the script.
        most_mb: the maximum size of the folder in MB.
        modules: {worker's node: the modules of its Python}, without nodes of unknown modules.

    Raises BadInput if the nodes cannot run the script, or if the controller cannot pack the folder.
    """
    folder, name = root or os.path.dirname(script), name_of(script, root)
    about = "script='%s': " % script
    if os.path.isfile(folder):
        return _packed(folder, most_mb, about), _judge(_member(folder, name), script, pythons)
    found = look(folder, about, most_mb)
    if found.unreadable:
        raise BadInput(
            about
            + "%s in the script's folder cannot be read. Correct the mode of these paths, rename "
            "paths that are not UTF-8, or put the script and its imports into a separate folder"
            % _named(found.unreadable)
        )
    if name not in found.files:
        raise BadInput(
            about + "hidden and compiled files stay on the controller, and so do the files of "
            "%s. Rename the script, without '.' at the beginning and without .pyc or .pyo at the "
            "end, or correct %s" % (travelling.FILE, travelling.FILE)
        )
    with open(script, "rb") as stream:
        notes = _judge(stream.read(), script, pythons)
    notes += _judge_modules(found, folder, name, about) + _imports(found, folder, name, modules)
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


def name_of(script: str, root: str = "") -> str:
    """Return the path of `script` in its folder, such as scripts/train.py. Args: see `pack`."""
    return _inside(script, root or os.path.dirname(script))


def git_root(script: str) -> str:
    """Return the root of the git clone that holds `script`, an absolute path.

    Raises BadInput if no folder above the script is a git clone.
    """
    folder = os.path.dirname(script)
    while not os.path.exists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            raise BadInput(
                "script_root=git: no folder above %s is a git clone. Give the path of the "
                "project's folder, or leave script_root out" % script
            )
        folder = os.path.dirname(folder)
    return folder


def is_kept(path: str) -> bool:
    """Return True if `path` leads into a zip file with this file, such as script.zip/train.py."""
    folder, name = os.path.split(path)
    while folder != os.path.dirname(folder) and not os.path.isfile(folder):
        name = os.path.basename(folder) + "/" + name
        folder = os.path.dirname(folder)
    return os.path.isfile(folder) and name in _names(folder)


def has_module(module: str, script: str, root: str = "") -> bool:
    """Return True if `module`, such as "mine.optimizers", is in the script's folder or beside it.

    Args: `script` and `root` as for `pack`.
    """
    folder, path = root or os.path.dirname(script), module.replace(".", "/")
    places = {"", os.path.dirname(name_of(script, root))}
    wanted = [
        os.path.join(place, path + end) for place in places for end in (".py", "/__init__.py")
    ]
    if os.path.isfile(folder):
        return not _names(folder).isdisjoint(wanted)
    return any(os.path.isfile(os.path.join(folder, one)) for one in wanted)


def _names(path: str) -> FrozenSet[str]:
    """Return the names in the zip file `path`. Raises BadInput for any other file."""
    try:
        with zipfile.ZipFile(path) as packed:
            return frozenset(packed.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        raise BadInput(
            "%s is neither a folder nor a zip file (%s): correct the path" % (path, error)
        ) from error


def _member(path: str, name: str) -> bytes:
    """Return the content of the member `name` of the zip file `path`."""
    with zipfile.ZipFile(path) as packed:
        return packed.read(name)


def _packed(path: str, most_mb: int, about: str) -> str:
    """Return the zip file `path` in base64. Raises BadInput if its files exceed `most_mb`."""
    with zipfile.ZipFile(path) as packed:
        sizes = {member.filename: member.file_size for member in packed.infolist()}
    _refuse_large(sizes, len(sizes), most_mb, about)
    with open(path, "rb") as stream:
        return base64.b64encode(stream.read()).decode("ascii")


def _judge_modules(found: Folder, folder: str, name: str, about: str) -> List[str]:
    """Return the notes about skipped files and about the modules that the script imports.

    Args: `found` in `folder`; `name` the path of the script there; `about` the start of a message.
    Raises BadInput if a module hides an installed package.
    """
    beside = os.path.dirname(name)
    modules = dict(_modules(found.files), **_modules(found.files, beside))
    refuse(
        about
        + "the nodes would import the module %s of the script's folder in place of the installed "
        "package. Rename %s"
        % (module, "the script" if name == path else "%s in %s" % (path, folder))
        for module, path in sorted(modules.items())
        if module in INSTALLED
    )
    notes = [
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
    return notes


def _imports(
    found: Folder, folder: str, name: str, modules: Mapping[str, Collection[str]]
) -> List[str]:
    """Return the notes about modules that the script imports and that the nodes will not find.

    Args: `modules` as for `pack`; the others as for `_judge_modules`.
    """

    def read(path: str) -> Optional[bytes]:
        try:
            with open(os.path.join(folder, path), "rb") as stream:
                return stream.read()
        except OSError:
            return None

    # The attribute exists since Python 3.10, the oldest Python of a controller.
    known = list(modules.values()) or [getattr(sys, "stdlib_module_names", ())]
    installed = set(INSTALLED).union(set(known[0]).intersection(*known))
    places: Dict[str, List[str]] = {}
    notes: List[str] = []
    for one in script_imports.missing(name, read, found.files, os.path.dirname(name), installed):
        place = script_imports.above(one.module, folder)
        lacking = sorted(host for host, there in modules.items() if one.module not in there)
        if place:
            places.setdefault(place, []).append(one.module)
        elif one.is_sure and lacking:
            notes.append(
                "%s will not find the module %s, which %s imports in line %d. Name its package in "
                "a file for -e requirements=FILE, or put the module beside the script"
                % (
                    some(lacking, NAMED) if len(lacking) < len(modules) else "the nodes",
                    _named([one.module]),
                    _named([one.file]),
                    one.line,
                )
            )
    return [
        "the nodes will not find these modules that the script imports: %s. They lie in %s, "
        "outside the folder that goes to the nodes. Add -e script_root=%s"
        % (_named(modules_there), place, place)
        for place, modules_there in sorted(places.items())
    ] + notes[:NAMED]


def look(folder: str, about: str, most_mb: int = MOST_MB) -> Folder:
    """Return a Folder with the paths to send, the skipped paths and the unreadable paths.

    The reasons for skipped paths explain an import that fails on the nodes only.

    Raises BadInput, with a message that starts with `about`, if `folder` is larger than `most_mb`.
    """
    rules, found = travelling.Rules(folder), Folder([], [], {}, [])
    sizes: Dict[str, int] = {}

    def skip(why: str, path: str) -> None:
        found.skipped.setdefault(why, []).append(path)

    for parent, folders, names in os.walk(
        folder, onerror=lambda error: found.unreadable.append(_inside(error.filename, folder))
    ):
        below = sorted(folders)
        folders.clear()
        for name in below:
            path = _inside(os.path.join(parent, name), folder)
            why = rules.reason(path + "/") if _is_text(name) else None
            if why is not None:
                if why:
                    skip(why, path)
                continue
            folders.append(name)
            if os.path.islink(os.path.join(parent, name)):
                skip("links to folders", path)
            elif _is_text(name):
                found.folders.append(path + "/")
        for name in names:
            _look_at(_inside(os.path.join(parent, name), folder), folder, rules, found, sizes)
        _refuse_large(sizes, len(sizes) + len(found.folders), most_mb, about)
    found.files.sort()
    found.folders.sort()
    return found


def _look_at(
    path: str, folder: str, rules: travelling.Rules, found: Folder, sizes: Dict[str, int]
) -> None:
    """Add the file `path` of `folder` to `found`, and its size in bytes to `sizes`."""
    full, why = os.path.join(folder, path), rules.reason(path) if _is_text(path) else None
    if why is not None:
        if why:
            found.skipped.setdefault(why, []).append(path)
        return
    try:
        seen = os.stat(full)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            found.skipped.setdefault("broken links", []).append(path)
        else:
            found.unreadable.append(path)
        return
    if not stat.S_ISREG(seen.st_mode):
        found.skipped.setdefault("sockets, FIFOs or devices", []).append(path)
    elif not os.access(full, os.R_OK) or not _is_text(path):
        found.unreadable.append(path)
    elif rules.vault_reason(path):
        found.skipped.setdefault("encrypted by ansible-vault", []).append(path)
    else:
        found.files.append(path)
        sizes[path] = seen.st_size


def _refuse_large(sizes: Dict[str, int], number: int, most_mb: int, about: str) -> None:
    """Raise BadInput if files of `sizes` bytes exceed `most_mb`, or if `number` exceeds MOST_FILES.

    Args: `number` of the files and folders; `about` the start of the message.
    """
    size = sum(sizes.values())
    if size <= most_mb << 20 and number <= MOST_FILES:
        return
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:LARGEST]
    raise BadInput(
        about
        + "the script's folder goes to every node, and holds at least %.1f MB and %d files and "
        "folders, more than %d MB (script_mb) or %d files and folders. The largest files are %s. "
        "Name what the nodes do not need in %s, which has the syntax of .gitignore, put the script "
        "and its imports into a separate folder, or put data on the nodes (data_dir)"
        % (
            size / 1048576,
            number,
            most_mb,
            MOST_FILES,
            ", ".join("%s (%.1f MB)" % (_named([path]), sizes[path] / 1048576) for path in largest),
            travelling.FILE,
        )
    )


def _judge(source: bytes, script: str, pythons: Iterable[Optional[str]]) -> List[str]:
    """Return notes on the script for the plan, or raise BadInput for an invalid Python 3 script.

    The script gets a note if the controller's Python cannot compile the script, but the Python of a
    node may accept the script.

    Args: `source` the content of the file `script`; `pythons` as in `pack`.
    """
    about = "script='%s': " % script
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


def _modules(files: Iterable[str], beside: str = "") -> Dict[str, str]:
    """Return {module: file or folder} of the modules that `import` finds in a folder.

    Args: `files` the paths of the files, relative to the script's folder; `beside` the path of the
    folder to look at, "" for the script's folder itself.
    """
    found = {}
    start = beside + "/" if beside else ""
    for path in files:
        if not path.startswith(start):
            continue
        top, _, rest = path[len(start) :].partition("/")
        if not rest and path.endswith((".py", ".so")):
            found[top.split(".")[0]] = path
        # Without __init__.py, Python prefers an installed package of the same name.
        elif rest == "__init__.py":
            found[top] = start + top
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
