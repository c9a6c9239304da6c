"""No unreviewed answer of a node decides something on the controller or on another host.

Answers of `ansible.builtin` modules come from the node, as those of our modules do, but no shape
checks them. A registered answer or a fact may decide about its own node. The test follows these
values through variables, and lists each task in which such a value reaches further.
"""

import functools
import pathlib
import re

import pytest
import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[3]
# The actions of ansible.builtin that run on the controller only, without an answer of a node.
OF_CONTROLLER = set(
    "add_host assert debug fail group_by import_playbook import_role import_tasks include_role "
    "include_tasks include_vars meta set_fact set_stats".split()
)
# The arguments that name a file on the controller or another host, by the action. Three of our
# modules on nodes have an action plugin that reads or writes files of the controller, or computes
# the names of pip's downloads.
REACHING = {
    "add_host": ("name", "groups"),
    "copy": ("src",),
    "fetch": ("dest",),
    "group_by": ("key", "parents"),
    "import_role": ("name", "tasks_from"),
    "import_tasks": ("file", "_raw"),
    "include_role": ("name", "tasks_from"),
    "include_tasks": ("file", "_raw"),
    "include_vars": ("file", "dir", "_raw"),
    "mxcluster_absent": ("state_dir",),
    "mxcluster_drift": ("controller_files", "path", "records_dir"),
    "mxcluster_env": ("builds", "hashes"),
    "mxcluster_file": ("src",),
    "mxcluster_node": ("checkpoints", "into"),
    "script": ("cmd", "_raw"),
    "template": ("src",),
    "unarchive": ("src",),
}
FACTS = "ansible_facts"  # the answers of setup and of getent
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Variables whose values depend on facts, and consist of values of the controller's tables. Our
# filters check the facts.
CHECKED = {
    "versions_chosen": "mxcluster_versions: the facts select rows of versions.yml and mxnet.yml",
    "cluster_files_facts": "mxcluster_interfaces: addresses and names of interfaces, by shape",
}
IMAGE = (
    "With container_image_base, the controller chooses the first node. With "
    "container_image_archive, the ids come from a file of the controller. With neither, all nodes "
    "with the image must have the same one, and docs/security.md says who decides the contents."
)
# The plan of the image's way decides which nodes run these tasks.
BY_PLAN = (
    "Add the right of the login user to read the archive",
    "Build the image",
    "Build the image on the source node",
    "Copy the Dockerfile to the node",
    "Copy the archive of the image to the node",
    "Copy the image to the planned nodes",
    "Copy the wheels of the image to the node",
    "Create the folder for the files of the build",
    "Install the image from the archive",
    "Plan the way of the built image to the nodes",
    "Plan the way of the image to the nodes",
    "Remove the files of the build from the node",
    "Remove the image of the stage with the wheels",
    "Report the planned way of the image",
    "Write the archive of the image on the source node",
    "Write the list of the image's wheels",
)
# Reviewed: {task: {answer: the reason why the node may decide this}}.
ALLOWED = {
    **dict.fromkeys(BY_PLAN, {"__container_image_seen": IMAGE}),
    "Add the configured name to the loaded image": {
        "__container_image_seen": IMAGE,
        "__container_image_loaded": "The node names an image of its own.",
    },
    "Fetch and check the archive of the image": {
        "__container_image_seen": "The archive must hold the image with this id, and no other."
    },
    "Remove the packed wheels of the image from the controller": {
        "__container_image_seen": "The answer decides whether the block runs. The path does not "
        "depend on it."
    },
}


def texts(value):
    """Yield all strings in a YAML value, with the names of fields."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


def words(value):
    return {word for text in texts(value) for word in WORD.findall(text)}


def tasks_in(items, above=None):
    """Yield the tasks of a list, each with the keywords of its blocks."""
    for item in items or []:
        merged = dict(above or {}, **item)
        inherited = {
            key: merged[key] for key in ("run_once", "delegate_to", "when") if key in merged
        }
        if isinstance(item, dict) and "block" in item:
            for part in ("block", "rescue", "always"):
                yield from tasks_in(item.get(part), inherited)
        else:
            yield merged


@functools.lru_cache(maxsize=None)
def project():
    """Return (tasks, {variable: [values]}) of all roles and playbooks."""
    tasks, variables = [], {}
    for path in sorted((PROJECT / "roles").glob("*/*/*.yml")) + sorted(
        (PROJECT / "playbooks").glob("*.yml")
    ):
        content = yaml.safe_load(path.read_text())
        if path.parent.name in ("vars", "defaults"):
            for name, value in (content or {}).items():
                variables.setdefault(name, []).append(value)
        elif path.parent.name in ("tasks", "handlers"):
            tasks += tasks_in(content)
        elif path.parent.name == "playbooks":
            for play in content:
                above = {key: play[key] for key in ("run_once",) if key in play}
                for part in ("pre_tasks", "tasks", "post_tasks", "handlers"):
                    tasks += tasks_in(play.get(part), above)
    for task in tasks:
        for name, value in dict(task.get("vars") or {}, **facts_set_by(task)).items():
            variables.setdefault(name, []).append(value)
    return tasks, variables


def action_of(task):
    """Return (the action's name without ansible.builtin, its arguments as a dict)."""
    names = [key for key in task if key.startswith(("ansible.builtin.", "mxcluster_"))]
    assert len(names) == 1, task
    given = task[names[0]]
    arguments = dict(given if isinstance(given, dict) else {"_raw": given}, **task.get("args", {}))
    return names[0].replace("ansible.builtin.", ""), arguments


def facts_set_by(task):
    name, arguments = action_of(task)
    return arguments if name == "set_fact" else {}


def of_a_node(task):
    """Return True if a module of ansible.builtin answers from a node."""
    name = action_of(task)[0]
    here = task.get("delegate_to") == "localhost" or task.get("connection") == "local"
    return not name.startswith("mxcluster_") and name not in OF_CONTROLLER and not here


@functools.lru_cache(maxsize=None)
def sources():
    """Return {variable: answers of nodes on which its value depends}, over all variables."""
    tasks, variables = project()
    found = {FACTS: {FACTS}}
    for task in tasks:
        if "register" in task and of_a_node(task):
            found[task["register"]] = {task["register"]}
    before = None
    while before != {name: len(answers) for name, answers in found.items()}:
        before = {name: len(answers) for name, answers in found.items()}
        for name, values in variables.items():
            if name in CHECKED:
                continue
            for word in words(values) & set(found) - {name}:
                found.setdefault(name, set()).update(found[word])
    return found


@functools.lru_cache(maxsize=None)
def with_hostvars():
    """Return hostvars and all variables with a value of another host, over all variables."""
    found, before = {"hostvars"}, 0
    while before != len(found):
        before = len(found)
        found |= {name for name, values in project()[1].items() if words(values) & found}
    return found


def answers_in(value):
    return {answer for word in words(value) & set(sources()) for answer in sources()[word]}


def on_the_controller(name):
    """Return True if our action plugin `name` runs on the controller, and no module on a node."""
    if not name.startswith("mxcluster_") or name == "mxcluster_node":  # it has no module
        return False
    return not (PROJECT / "plugins" / "modules" / (name + ".py")).exists()


def reaches(task):
    """Return the answers of nodes that decide beyond their node in this task."""
    name, arguments = action_of(task)
    if task.get("run_once") or "delegate_to" in task or words(task) & with_hostvars():
        found = answers_in({key: value for key, value in task.items() if key != "register"})
        # The answer of the first node would count for all nodes.
        return found | ({name} if task.get("run_once") and of_a_node(task) else set())
    if on_the_controller(name):
        return answers_in([arguments, task.get("when")])
    found = answers_in([arguments.get(key) for key in REACHING.get(name, ())])
    looked_up = [text for text in texts(task) if "lookup(" in text or "query(" in text]
    return found | answers_in(looked_up)


def listed():
    found = {}
    for task in project()[0]:
        answers = reaches(task)
        if answers:
            found.setdefault(task["name"], set()).update(answers)
    return found


def test_each_answer_that_reaches_beyond_its_node_is_reviewed():
    assert listed() == {task: set(reasons) for task, reasons in ALLOWED.items()}
    assert set(CHECKED) <= set(project()[1])


@pytest.mark.parametrize(
    "task, found",
    [
        ({"ansible.builtin.command": "true", "run_once": True}, {"command"}),
        ({"ansible.builtin.debug": {"msg": "{{ __mxnet_linked }}"}}, set()),
        (
            {
                "ansible.builtin.file": {"path": "{{ __mxnet_unresolved }}"},
                "delegate_to": "localhost",
            },
            {"__mxnet_linked"},
        ),
        ({"ansible.builtin.include_tasks": "{{ ansible_facts.os_family }}.yml"}, {FACTS}),
        ({"mxcluster_downloads": {"python": "{{ __mxnet_linked.stdout }}"}}, {"__mxnet_linked"}),
        ({"mxcluster_file": {"src": "{{ ansible_facts.x }}"}}, {FACTS}),
        ({"ansible.builtin.set_fact": {"x": "{{ lookup('file', ansible_facts.x) }}"}}, {FACTS}),
        (
            {"ansible.builtin.command": "{{ jobs_plans }} {{ __mxnet_linked }}"},
            {"__mxnet_linked"},
        ),
        ({"mxcluster_node": {"into": "{{ ansible_facts.x }}"}}, {FACTS}),
        ({"mxcluster_node": {"python": "{{ ansible_facts.x }}"}}, set()),
    ],
)
def test_the_ways_beyond_a_node_are_found(task, found):
    """__mxnet_unresolved depends on the answer __mxnet_linked, and jobs_plans on hostvars."""
    assert reaches(task) == found
