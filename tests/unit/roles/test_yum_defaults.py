"""Each play that can reach a task with the module yum sets the module's defaults."""

import pathlib
import re

import pytest
import yaml
from ansible import release
from ansible.module_utils.yumdnf import yumdnf_argument_spec

from tests.templates import templated

PROJECT = pathlib.Path(__file__).resolve().parents[3]
OMIT = "__omitted__"
INCLUDES = re.compile(r"(include|import)_(tasks|role)$")


def tasks_of(listed):
    """Yield all tasks of a list, also those in blocks."""
    for task in listed or []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part))


def reached(listed, role=None, seen=None):
    """Yield the tasks that a list of tasks may run, also those of included files and roles."""
    seen = set() if seen is None else seen
    for task in tasks_of(listed):
        yield task
        for module, value in task.items():
            if INCLUDES.search(str(module)):
                given = value if isinstance(value, dict) else {"file": value}
                name = given.get("name", role)
                file = str(given.get("tasks_from") or given.get("file") or "main.yml")
                folder = PROJECT / "roles" / name / "tasks"
                # A template may name any file of the role.
                for path in sorted(folder.glob("*.yml" if "{{" in file else file)):
                    if path not in seen:
                        seen.add(path)
                        yield from reached(yaml.safe_load(path.read_text()), name, seen)


PLAYS = [
    pytest.param(play, id="%s-%d" % (path.stem, number))
    for path in sorted((PROJECT / "playbooks").glob("*.yml"))
    for number, play in enumerate(yaml.safe_load(path.read_text()))
    if any("ansible.builtin.yum" in task for task in reached(play.get("tasks")))
]


def test_a_play_installs_packages():
    assert PLAYS, "no play with the module yum was found"


def defaults(play, version):
    """Return the module's defaults under a version of ansible-core."""
    given = play.get("module_defaults", {}).get("ansible.builtin.yum", {})
    found = templated(given, {"ansible_version": {"full": version}, "omit": OMIT})
    return {name: value for name, value in found.items() if value != OMIT}


@pytest.mark.parametrize("play", PLAYS)
def test_a_task_of_yum_installs_no_yum_utils_and_waits_for_the_lock(play):
    """ansible-core 2.17 has dropped yum 3, and later versions the argument of yum-utils."""
    assert defaults(play, "2.16.19") == {"install_repoquery": False, "lock_timeout": 600}
    assert defaults(play, "2.21.5") == {"lock_timeout": 600}
    assert set(defaults(play, release.__version__)) <= set(yumdnf_argument_spec["argument_spec"])
