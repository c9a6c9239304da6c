"""Find the modules that a user's script imports and that do not travel to the nodes.

The functions read the code and import nothing.
"""

import ast
import os
import warnings
from typing import (
    Callable,
    Container,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

MOST_MODULES = 2000  # modules of a script's folder that are read
ABOVE = 5  # folders above the script's folder in which a missing module is looked for
# Code with these words may add folders in which `import` looks.
PATHS = (b"sys.path", b"addsitedir", b"meta_path", b"path_hooks")


class Missing(NamedTuple):
    """A top-level module that the code imports and that neither folder nor Python has."""

    module: str
    file: str  # the path of the importing file in the script's folder
    line: int
    is_sure: bool  # False if the code may run without the module, or find it elsewhere


def missing(
    script: str,
    read: Callable[[str], Optional[bytes]],
    files: Iterable[str],
    beside: str,
    installed: Container[str],
) -> List[Missing]:
    """Return the modules that the script imports and that its folder lacks, by name.

    The function follows the imports of modules of the folder. It leaves out imports whose
    ImportError the code catches. Imports in functions and conditions are not sure.

    Args:
        script: the path of the script in its folder.
        read: returns the content of a file of the folder, None for an unreadable file.
        files: the paths of all files of the folder.
        beside: the path of the script's own folder in the folder, "" for the folder itself.
        installed: the top-level modules of the nodes' Python.
    """
    there = set(files)
    tops = {path.partition("/")[0].partition(".")[0] for path in _below(there, beside)}
    tops |= {path.partition("/")[0].partition(".")[0] for path in there}
    lacking: Dict[str, Missing] = {}
    moves_path = False
    # Files that certainly run come first, so that a sure import of a module precedes other ones.
    certain, doubtful, seen = [script], [], set()  # type: List[str], List[str], Set[str]
    while (certain or doubtful) and len(seen) < MOST_MODULES:
        is_certain = bool(certain)
        file = (certain or doubtful).pop()
        if file in seen:
            continue
        seen.add(file)
        source = read(file) or b""
        moves_path = moves_path or any(word in source for word in PATHS)
        for module, line, is_sure in _imported(source):
            one = Missing(module.partition(".")[0], file, line, is_sure and is_certain)
            if one.module not in tops and one.module not in installed:
                known = lacking.setdefault(one.module, one)
                lacking[one.module] = known if known.is_sure else one
            (certain if one.is_sure else doubtful).extend(_files_of(module, beside, there))
    return [
        one._replace(is_sure=one.is_sure and not moves_path) for one in sorted(lacking.values())
    ]


def above(module: str, folder: str) -> Optional[str]:
    """Return the nearest folder above `folder` that holds `module` as a file or package, or None.

    Args: `folder` an absolute path; `module` the name of a top-level module.
    """
    for _ in range(ABOVE):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
        path = os.path.join(folder, module)
        if os.path.isfile(path + ".py") or os.path.isfile(os.path.join(path, "__init__.py")):
            return folder
    return None


def _below(paths: Iterable[str], folder: str) -> Iterator[str]:
    start = folder + "/" if folder else ""
    return (path[len(start) :] for path in paths if path.startswith(start))


def _files_of(module: str, beside: str, there: Set[str]) -> List[str]:
    """Return the files of `there` that run when the code imports `module`, such as "a.b"."""
    parts = module.split(".")
    paths = ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]
    found = {
        os.path.join(place, path + end)
        for place in (beside, "")
        for path in paths
        for end in (".py", "/__init__.py")
    }
    return sorted(found & there)


def _imported(source: bytes) -> List[Tuple[str, int, bool]]:
    """Return [(module, line, is_sure)] of the imports in `source`, [] for code with errors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    found: List[Tuple[str, int, bool]] = []
    waiting: List[Tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, is_sure = waiting.pop()
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, is_sure) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *("%s.%s" % (node.module, alias.name) for alias in node.names)]
            found += [(name, node.lineno, is_sure) for name in names]
        elif isinstance(node, ast.Try):
            # The code has another way if this import fails.
            parts = [*node.handlers, *node.orelse, *node.finalbody]
            waiting += [(part, False) for part in parts]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += [(part, False) for part in node.orelse]
        else:
            is_sure = is_sure and isinstance(node, (ast.Module, ast.ClassDef, ast.With))
            waiting += [(part, is_sure) for part in ast.iter_child_nodes(node)]
    return found
