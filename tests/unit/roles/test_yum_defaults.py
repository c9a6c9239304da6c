"""Each play that can reach a task of yum sets the defaults that yum 3 needs (docs/yum.md)."""

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


def plays(module):
    """Return the plays that can reach a task of a module, as parameters."""
    found = [
        pytest.param(play, id="%s-%d" % (path.stem, number))
        for path in sorted((PROJECT / "playbooks").glob("*.yml"))
        for number, play in enumerate(yaml.safe_load(path.read_text()))
        if any("ansible.builtin." + module in task for task in reached(play.get("tasks")))
    ]
    assert found, "no play with the module %s was found" % module
    return found


def defaults(play, module, version):
    """Return the defaults of a module under a version of ansible-core."""
    given = play.get("module_defaults", {}).get("ansible.builtin." + module, {})
    found = templated(given, {"ansible_version": {"full": version}, "omit": OMIT})
    return {name: value for name, value in found.items() if value != OMIT}


@pytest.mark.parametrize("play", plays("yum"))
def test_a_task_of_yum_installs_no_yum_utils_and_waits_for_the_lock(play):
    """ansible-core 2.17 has dropped yum 3, and later versions the argument of yum-utils."""
    assert defaults(play, "yum", "2.16.19") == {"install_repoquery": False, "lock_timeout": 600}
    assert defaults(play, "yum", "2.21.5") == {"lock_timeout": 600}
    known = set(yumdnf_argument_spec["argument_spec"])
    assert set(defaults(play, "yum", release.__version__)) <= known


@pytest.mark.parametrize("play", plays("yum_repository"))
def test_yum_asks_a_repository_of_mxcluster_each_time(play):
    """A mirror that the user completes after a failed run is complete for the next run."""
    assert defaults(play, "yum_repository", "2.16.19") == {
        "metadata_expire": "0",
        "metadata_expire_filter": "never",
    }
    assert defaults(play, "yum_repository", "2.21.5") == {"metadata_expire": "0"}


def commands():
    """Yield (file, words) of each task of the roles that calls the command yum."""
    for path in sorted(PROJECT.glob("roles/*/tasks/*.yml")):
        for task in tasks_of(yaml.safe_load(path.read_text())):
            given = task.get("ansible.builtin.command", task.get("ansible.builtin.shell", {}))
            words = re.findall(r"[^\s'\"\[\],]+", str(given))
            if "yum" in words:
                yield path.name, words


def test_roles_only_ask_the_command_yum_and_wait_ten_minutes_for_its_lock():
    """`yum install a b` of yum 3 succeeds without b if no repository has b; the module fails."""
    found = list(commands())
    assert [name for name, _ in found] == [
        "updates.yml",
        "packages.yml",
        "hold.yml",
        "packages.yml",
    ]
    changing = {"install", "update", "upgrade", "downgrade", "remove", "erase"}
    for name, words in found:
        assert words[words.index("yum") - 2 : words.index("yum")] == ["timeout", "600"], name
        assert not changing & set(words), name
        assert not {"-q", "check-update"} <= set(words), "yum 3 would name no package"
