#!/usr/bin/env python3
"""Print the size of the code, and count the dictionaries without a type.

    python tools/figures.py             print the figures
    python tools/figures.py --check     fail if there are more untyped dictionaries than allowed

Code lines are lines of the package and the plugins without blank lines, comments, docstrings and
blocks of documentation. Lines of tables in YAML and JSON count. An untyped dictionary is an
annotation `Dict`, `Mapping` or `dict` with values of the type Any or object, or a use of an alias
of such an annotation.
"""

import argparse
import ast
import io
import pathlib
import sys
import tokenize

PROJECT = pathlib.Path(__file__).resolve().parents[1]
CODE = ("python/mxcluster", "plugins")
TESTS = ("tests", "molecule", "bench")
MOST_UNTYPED = 260  # the aim is 150
MOST_LINES, MOST_PARAMETERS, MOST_FILE = 80, 8, 500
DOCUMENTATION = ("DOCUMENTATION", "EXAMPLES", "RETURN")
DICTIONARIES = ("Dict", "Mapping", "MutableMapping", "dict")
OPEN = ("Any", "object")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def files(folders, suffixes=(".py",)):
    """Return the files of folders with these suffixes. A link to another file does not count."""
    return sorted(
        path
        for folder in folders
        for path in (PROJECT / folder).rglob("*")
        if path.suffix in suffixes and not path.is_symlink() and "__pycache__" not in path.parts
    )


def texts(tree):
    """Yield the docstrings and the blocks of documentation of a module, as nodes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for item in body:
                is_block = isinstance(item, ast.Assign) and (
                    getattr(item.targets[0], "id", "") in DOCUMENTATION
                )
                is_text = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
                if is_block or is_text and isinstance(item.value.value, str):
                    yield item


def code_lines(path):
    """Return the number of code lines of a file."""
    source = path.read_text()
    if path.suffix != ".py":
        return sum(
            bool(line.strip()) and not line.strip().startswith("#") for line in source.splitlines()
        )
    skipped = {
        number
        for node in texts(ast.parse(source))
        for number in range(node.lineno, node.end_lineno + 1)
    }
    counted = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
            continue
        if token.type not in (tokenize.INDENT, tokenize.DEDENT):
            counted.update(range(token.start[0], token.end[0] + 1))
    return len(counted - skipped)


def is_untyped(node):
    """Return True if `node` is an annotation such as Dict[str, Any]."""
    if not isinstance(node, ast.Subscript) or _name(node.value) not in DICTIONARIES:
        return False
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return _name(inner[-1]) in OPEN


def _name(node):
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def untyped(path):
    """Return the line numbers of the untyped dictionaries of a file, one for each use."""
    tree = ast.parse(path.read_text())
    aliases = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and is_untyped(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    aliases |= {"Json"} if any(_imports(node, "Json") for node in tree.body) else set()
    return [
        node.lineno
        for node in ast.walk(tree)
        if is_untyped(node)
        or isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and node.id in aliases
    ]


def _imports(node, name):
    return isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]


def large_functions(path):
    """Yield (lines, parameters, name) of the functions of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, FUNCTIONS):
            given = node.args
            names = given.posonlyargs + given.args + given.kwonlyargs
            parameters = len([one for one in names if one.arg not in ("self", "cls")])
            yield node.end_lineno - node.lineno + 1, parameters, "%s:%s" % (path.name, node.name)


def main():
    """Print the figures; with --check, the exit status is 1 if a figure is too high."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    code = files(CODE)
    found = sum(len(untyped(path)) for path in code)
    if given.check:
        if found > MOST_UNTYPED:
            sys.exit("%d untyped dictionaries, and at most %d are allowed" % (found, MOST_UNTYPED))
        return
    tables = files(CODE, (".yml", ".yaml", ".json"))
    functions = [item for path in code for item in large_functions(path)]
    long = sorted((item for item in functions if item[0] > 60), reverse=True)
    wide = [item for item in functions if item[1] > MOST_PARAMETERS]
    tall = [path for path in code if len(path.read_text().splitlines()) > MOST_FILE]
    print("code lines of package and plugins   %d" % sum(map(code_lines, code + tables)))
    print("code lines of tests                 %d" % sum(map(code_lines, files(TESTS))))
    print("untyped dictionaries                %d" % found)
    print(
        "functions above %d lines            %d"
        % (MOST_LINES, sum(i[0] > MOST_LINES for i in long))
    )
    print("functions above 60 lines            %d" % len(long))
    print("functions above %d parameters        %d" % (MOST_PARAMETERS, len(wide)))
    print("Python files above %d lines        %d" % (MOST_FILE, len(tall)))


if __name__ == "__main__":
    main()
