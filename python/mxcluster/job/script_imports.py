"""Find the modules that a user's script imports and that do not travel to the nodes.

The functions read the code and import nothing.
"""

import ast
import os
import sys
import warnings
from typing import Callable, Iterable, Iterator, List, Optional, Set

MOST_MODULES = 2000  # modules of a script's folder that are read
ABOVE = 5  # folders above the script's folder in which a missing module is looked for


def missing(
    script: str, read: Callable[[str], Optional[bytes]], files: Iterable[str], beside: str
) -> List[str]:
    """Return the sorted names of top-level modules that the script imports and its folder lacks.

    The function follows the imports of modules of the folder. It leaves out modules of Python's
    standard library, and imports whose ImportError the code catches.

    Args:
        script: the path of the script in its folder.
        read: returns the content of a file of the folder, None for an unreadable file.
        files: the paths of all files of the folder.
        beside: the path of the script's own folder in the folder, "" for the folder itself.
    """
    there = set(files)
    tops = {path.partition("/")[0].partition(".")[0] for path in _below(there, beside)}
    tops |= {path.partition("/")[0].partition(".")[0] for path in there}
    # The attribute exists since Python 3.10, the oldest Python of a controller.
    tops |= set(getattr(sys, "stdlib_module_names", ()))
    lacking: Set[str] = set()
    waiting, seen = [script], {script}
    while waiting and len(seen) < MOST_MODULES:
        for module in _imported(read(waiting.pop()) or b""):
            top = module.partition(".")[0]
            if top not in tops:
                lacking.add(top)
            for place in (beside, ""):
                found = {
                    os.path.join(place, path)
                    for part in _parents(module)
                    for path in (part + ".py", part + "/__init__.py")
                }
                waiting += sorted((found & there) - seen)
                seen |= found & there
    return sorted(lacking)


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


def _parents(module: str) -> List[str]:
    """Return the paths of a module and of the packages around it: ["a", "a/b"] for "a.b"."""
    parts = module.split(".")
    return ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]


def _imported(source: bytes) -> Set[str]:
    """Return the names of the modules that the code `source` imports, {} for code with errors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return set()
    found: Set[str] = set()
    waiting: List[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Try):
            # The code has another way if this import fails.
            waiting += [*node.handlers, *node.orelse, *node.finalbody]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
        else:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
                found |= {"%s.%s" % (node.module, alias.name) for alias in node.names}
            waiting += ast.iter_child_nodes(node)
    return found
