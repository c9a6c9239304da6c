"""The tests of playbooks share one project, so no two files may give a job the same id."""

import ast
import collections
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "playbooks"
STARTS = ("begin", "detach")  # functions of the tests that take the id as their second argument


def ids_in(text):
    """Return the ids that a test file writes as text."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword) and node.arg == "job_id":
            found.append(node.value)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values)
            found += [value for key, value in pairs if getattr(key, "value", None) == "job_id"]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in STARTS:
            found += node.args[1:2]
    return {one.value for one in found if isinstance(one, ast.Constant)}


def test_each_id_belongs_to_one_file():
    files = collections.defaultdict(list)
    for path in sorted(FOLDER.glob("*.py")):
        for job in ids_in(path.read_text()):
            files[job].append(path.name)
    assert len(files) > 30
    assert {job: names for job, names in files.items() if len(names) > 1} == {}


def test_an_id_is_found_however_it_is_written():
    text = "begin(nodes, 'one')\ntrain(job_id='two', x=1)\ngiven = {'job_id': 'three', 'y': 2}\n"
    assert ids_in(text) == {"one", "two", "three"}
