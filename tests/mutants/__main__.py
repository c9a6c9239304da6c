"""Inject deliberate faults into the project (mutants.yml), and check that the tests detect them.

    git clone . CLONE && make -C CLONE venv-dev
    python -m tests.mutants probe CLONE PROBES
        Insert probes: a line with a fault records each execution in the folder PROBES.
    make -C CLONE test PYTEST_ADDOPTS='-p tests.mutants.plugin' PROBES=PROBES
    git -C CLONE checkout .
    python -m tests.mutants ask CLONE PROBES [NAME]
        For each fault, run the tests that executed its line, until one fails.

A probe also covers Ansible's modules, the processes on nodes and old Python versions, where no
tracer runs. Lines in YAML have no probe; their fault lists the tests in `tests`.
"""

import ast
import bisect
import json
import os
import pathlib
import subprocess
import sys
import time

import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[2]
MUTANTS = yaml.safe_load(pathlib.Path(__file__).with_name("mutants.yml").read_text())
PROBE = (
    "{indent}try:\n{indent}    open('{folder}/{number}', "
    "'a').write(repr(__import__('time').time()) + '\\n')\n"
    "{indent}except (IOError, OSError):\n{indent}    pass\n"
)
LIMIT = 900  # timeout of the tests of one fault in seconds


def with_probes(text, faults, folder):
    """Return the source with a probe before each statement that has a fault.

    `faults` is [(number, fault)] of this file.
    """
    lines = text.splitlines(keepends=True)
    places = {}
    for number, fault in faults:
        line = (
            text[: text.index(fault["old"]) + len(fault["old"]) - len(fault["old"].lstrip())].count(
                "\n"
            )
            + 1
        )
        inner = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.stmt)
            and node.lineno <= line <= node.end_lineno
            and not isinstance(node, (ast.FunctionDef, ast.ClassDef))
        ]
        if inner:
            statement = max(inner, key=lambda node: node.lineno)
            places.setdefault(statement.lineno, []).append((number, statement.col_offset))
    for line in sorted(places, reverse=True):
        for number, column in places[line]:
            lines.insert(line - 1, PROBE.format(indent=" " * column, folder=folder, number=number))
    return "".join(lines)


def probe(clone, folder):
    """Insert the probes."""
    folder.mkdir(exist_ok=True)
    for number in range(len(MUTANTS)):  # processes of several users write these files
        (folder / str(number)).touch()
        (folder / str(number)).chmod(0o666)
    for name in sorted({fault["file"] for fault in MUTANTS if fault["file"].endswith(".py")}):
        faults = [(number, fault) for number, fault in enumerate(MUTANTS) if fault["file"] == name]
        text = with_probes((clone / name).read_text(), faults, folder)
        compile(text, name, "exec")
        (clone / name).write_text(text)


def tests_of(number, folder):
    """Return the tests that ran when the probe was executed.

    Tests whose file has the name of the source come first, then the fastest ones.
    """
    path = folder / str(number)
    times = sorted(float(line) for line in path.read_text().split()) if path.exists() else []
    found = {}
    for spans in folder.glob("spans-*"):
        for span in map(json.loads, spans.read_text().splitlines()):
            first = bisect.bisect_left(times, span["start"])
            if first < len(times) and times[first] <= span["end"]:
                found[span["test"]] = span["end"] - span["start"]
    source = pathlib.Path(MUTANTS[number]["file"])
    name = source.stem if source.stem != "__init__" else source.parent.name
    return sorted(
        found,
        key=lambda test: (name.replace("mxcluster_", "") not in test.split("::")[0], found[test]),
    )


def ask(clone, folder, names):
    """Print for each fault the test that detects it."""
    missed, count = [], 0
    for number, fault in enumerate(MUTANTS):
        if names and not any(name in fault["name"] for name in names):
            continue
        count, began = count + 1, time.monotonic()
        tests = tests_of(number, folder) or fault.get("tests", "").split()
        outcome = seen_by(clone, fault, tests) if tests else "MISSED: no test runs it"
        if not outcome.startswith("seen"):
            missed.append(fault["name"])
        print(
            "%2d %-110s %4.0f s  %s" % (number, fault["name"], time.monotonic() - began, outcome),
            flush=True,
        )
    print("%d of %d missed%s" % (len(missed), count, "".join("\n    " + name for name in missed)))


def seen_by(clone, fault, tests):
    """Run the tests on the project with a fault; return the outcome as text."""
    path = clone / fault["file"]
    text = path.read_text()
    assert text.count(fault["old"]) == 1, fault["name"]
    path.write_text(text.replace(fault["old"], fault["new"]))
    try:
        done = subprocess.run(
            [".venv/bin/pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
            cwd=clone,
            timeout=LIMIT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, PATH="%s/.venv/bin:%s" % (clone, os.environ["PATH"])),
        )
    except subprocess.TimeoutExpired:
        return "MISSED within %d s" % LIMIT
    finally:
        path.write_text(text)
    output = done.stdout.decode(errors="replace")
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode == 1 and failed:
        return "seen by " + failed[0].split(" - ")[0].split(" ", 1)[1]
    return (
        "MISSED by %d tests" % len(tests) if done.returncode == 0 else "BROKEN\n" + output[-2000:]
    )


if __name__ == "__main__":
    here, probes = (pathlib.Path(word).resolve() for word in sys.argv[2:4])
    if sys.argv[1] == "probe":
        probe(here, probes)
    else:
        ask(here, probes, sys.argv[4:])
