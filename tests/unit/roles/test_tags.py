"""Tags of provision.yml: each role has one, and the docs list it."""

import pathlib
import re

import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[3]
PLAYS = yaml.safe_load((PROJECT / "playbooks" / "provision.yml").read_text())
STEPS = [task for play in PLAYS[2:4] for task in play["tasks"]]
IMAGE = PLAYS[4]["tasks"]  # nodes that are as the last run left them get a container image, too


def role_of(task):
    return next(task[name]["name"] for name in task if name.endswith("_role"))


def test_each_step_has_the_tag_of_its_role():
    # The record and the remembered state are parts of others.
    assert [
        role_of(task) for task in STEPS + IMAGE if role_of(task) not in task.get("tags", [])
    ] == [
        "node_record",
        "drift",
    ]
    assert "tags" not in STEPS[-1], "after a part of the roles a node is not as it should be"


def test_the_checks_run_with_every_tag():
    assert all(play["tags"] == "always" for play in PLAYS[:2])


def test_tasks_of_an_included_role_run_with_the_tag():
    """The tags of include_role are not those of the role's tasks."""
    for task in STEPS + IMAGE:
        include = task.get("ansible.builtin.include_role")
        assert include is None or include["apply"] == {"tags": "always"}, task["name"]


def registered(text):
    return set(re.findall(r"^ *register: (\w+)", text, re.M))


def used(text, variables):
    """Return the variables of a role that a text uses, also through the role's variables."""
    found = set()
    for name in set(re.findall(r"__\w+", text)):
        found |= {name} | used(str(variables.pop(name, "")), variables)
    return found


def test_a_file_of_every_tag_registers_the_answers_that_it_uses():
    """The other tasks of its role do not run with a tag. `--tags mxnet` failed on GPU nodes."""
    checked = []
    for task in PLAYS[-1]["tasks"]:
        if task.get("tags") != "always":
            continue
        include = task["ansible.builtin.include_role"]
        role = PROJECT / "roles" / include["name"]
        text = (role / "tasks" / include["tasks_from"]).read_text()
        anywhere = set().union(*(registered(path.read_text()) for path in role.glob("tasks/*.yml")))
        variables = yaml.safe_load((role / "vars" / "main.yml").read_text())
        assert used(text, variables) & anywhere <= registered(text), include
        checked.append(include["name"])
    assert checked == ["nvidia_driver"]


def test_the_docs_list_the_tags():
    text = (PROJECT / "docs" / "cluster.md").read_text()
    table = text[text.index("| tag |") :].split("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)`", table, re.M)
    assert sorted(listed) == sorted({tag for task in STEPS + IMAGE for tag in task.get("tags", [])})
