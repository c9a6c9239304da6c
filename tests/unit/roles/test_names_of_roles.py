"""Variables of roles: only its own role reads `__<role>_x`, and other roles read `<role>_x`.

A role registers and sets names of its own prefix only.
"""

import pathlib
import re

import pytest
import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (PROJECT / "roles").iterdir() if path.is_dir())
PRIVATE = re.compile(r"(?<!\w)__[a-z]\w*(?<!__)\b")
FOLDERS = ("defaults", "handlers", "tasks", "templates", "vars")


def owner(name):
    """Return the role with the longest prefix of a variable, private or public, or None."""
    name = name.lstrip("_") + "_"
    return max((role for role in ROLES if name.startswith(role + "_")), key=len, default=None)


def private(text):
    """Return the private names in a text, without those of Python (`__init__`)."""
    return set(PRIVATE.findall(text))


def made(tasks):
    """Yield the names that tasks register or set."""
    for task in tasks or []:
        for block in ("block", "rescue", "always"):
            yield from made(task.get(block))
        if "register" in task:
            yield task["register"]
        yield from set(task.get("ansible.builtin.set_fact", {})) - {"cacheable"}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_no_private_variable_of_another_role(role):
    paths = [
        path
        for folder in FOLDERS
        for path in (PROJECT / "roles" / role / folder).rglob("*")
        if path.is_file()
    ]
    names = {name for path in paths for name in private(path.read_text())}
    assert {name for name in names if owner(name) != role} == set()


def test_a_playbook_reads_no_private_variable():
    paths = list(PROJECT.glob("*.yml")) + list(PROJECT.glob("playbooks/**/*.yml"))
    assert len(paths) > 10
    assert {
        str(path): private(path.read_text()) for path in paths if private(path.read_text())
    } == {}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_makes_only_names_of_its_own(role):
    paths = (PROJECT / "roles" / role).glob("tasks/*.yml")
    names = {name for path in paths for name in made(yaml.safe_load(path.read_text()))}
    assert {name for name in names if owner(name) != role} == set()
    # A registered result wins over the role's variable of that name for the rest of the run.
    kept = [PROJECT / "roles" / role / folder / "main.yml" for folder in ("defaults", "vars")]
    own = {
        name for path in kept if path.exists() for name in yaml.safe_load(path.read_text()) or {}
    }
    assert names & own == set()
