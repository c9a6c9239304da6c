#!/usr/bin/env python3
"""Print the size of the code, and count the dictionaries without a type.

    python tools/figures.py             print each figure and its bound
    python tools/figures.py --check     fail if a figure is above its bound

A bound in BOUNDS may only fall: a change that makes a figure smaller lowers its bound, too. The
numbers of lines have no bound, because features need lines.

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
BOUNDS = {
    "untyped dictionaries": 43,
    "functions above 80 lines": 0,
    "functions above 60 lines": 0,
    "functions above 8 parameters": 0,
    "Python files above 500 lines": 1,  # the table of knobs
}
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


def figures():
    """Return {name of a figure with a bound: its value today}."""
    code = files(CODE)
    functions = [item for path in code for item in large_functions(path)]
    values = [
        sum(len(untyped(path)) for path in code),
        sum(lines > 80 for lines, _, _ in functions),
        sum(lines > 60 for lines, _, _ in functions),
        sum(parameters > 8 for _, parameters, _ in functions),
        sum(len(path.read_text().splitlines()) > 500 for path in code),
    ]
    return dict(zip(BOUNDS, values))


def main():
    """Print the figures; with --check, the exit status is 1 if a figure is above its bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check, found = parser.parse_args().check, figures()
    if not check:
        tables = files(CODE, (".yml", ".yaml", ".json"))
        print("%-36s%6d" % ("code lines", sum(map(code_lines, files(CODE) + tables))))
        print("%-36s%6d" % ("code lines of tests", sum(map(code_lines, files(TESTS)))))
        for name, value in found.items():
            print("%-36s%6d, at most %d" % (name, value, BOUNDS[name]))
    above = [
        "%d %s, at most %d" % (value, name, BOUNDS[name])
        for name, value in found.items()
        if value > BOUNDS[name]
    ]
    if check and above:
        sys.exit(
            "tools/figures.py: %s. Make the code smaller: a bound may only fall" % "; ".join(above)
        )


if __name__ == "__main__":
    main()
