"""The controller checks each answer of our modules: root of a node can change its answers."""

import hashlib
import importlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
from unittest import mock

import pytest
import yaml

from mxcluster.model import module_answers

PROJECT = pathlib.Path(__file__).resolve().parents[3]
MODULES = sorted(path.stem for path in (PROJECT / "plugins" / "modules").glob("*.py"))
ACTIONS = {name: importlib.import_module("plugins.action." + name) for name in MODULES}
DIGEST, KERNEL = "a" * 64, "3.10.0-1160.el7.x86_64"
ENVIRONMENT = {
    "builds": [{"python": ["3.11"], "wheels": ["mxnet==1.9.1"], "pip": "pip==25.0.1"}],
    "hashes": {"mxnet==1.9.1": [DIGEST], "pip==25.0.1": ["b" * 64]},
    "name": "MXNet 1.9.1",
}
MACHINE = {"gpus": ["1db4"], "driver": "470.256.02", "driver_installed": None, "nouveau": False}
MACHINE.update(kernel=KERNEL, kernels=[KERNEL], modules={KERNEL: ""}, secure_boot=False)
MACHINE.update(gpu_users=["python (pid 4711)"], machine_id="c" * 32, python="3.6")
MACHINE.update(missing_libraries=["libgomp.so.1"], missing_programs=[])
ANSWERS = {
    "mxcluster_absent": {"removed": ["/srv/env"], "kept": {"/srv/data": "holds more"}},
    "mxcluster_drift": {"seen": {"way to /srv": "/srv"}},
    "mxcluster_env": {"python": "3.11", "built": False, "done": False},
    "mxcluster_file": {"path": "/srv/data", "lacking": ["a file"]},
    "mxcluster_machine": MACHINE,
    "mxcluster_ssh": {"user": "trainer", "home": "/home/trainer", "public_key": ""},
}
# The fields of each answer beside those of any module, and the facts that only some tasks ask for.
FACTS = {
    name: sorted(set(answer.FIELDS) - set(module_answers.Answer.FIELDS))
    for name, answer in module_answers.ANSWERS.items()
}
SOMETIMES = ("lacking", "public_key")
OF_DRIFT = {"command": "remember", "records_dir": "/state/nodes", "python": "/env/bin/python"}
OF_DRIFT.update(common={"sources": "", "variables": [], "digests": {}, "cluster": {}})
OF_DRIFT.update(wanted={}, layout={})
OF_DRIFT.update(controller_files=[], files=[], roots=[], user="", user_files=[])


def act(name, answer, folder):
    """Return the result of the task `name` on node1, whose module returns `answer`."""
    given = {"path": "/srv/data", "content": ""}
    if name == "mxcluster_env":
        given = dict(ENVIRONMENT, path="/srv/env")
    elif name == "mxcluster_drift":
        given = dict(OF_DRIFT, path=str(folder / "drift.json"))
    elif name == "mxcluster_absent":
        given = {"paths": [{"path": "/srv/env", "kind": "folder"}]}
    task = mock.Mock(async_val=0, check_mode=False, args=given)
    action = ACTIONS[name].ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
    action._execute_module = lambda module_name, module_args, task_vars: dict(answer)
    variables = {"inventory_hostname": "node1", "hostvars": {"node1": {}}}
    variables.update(groups={}, ansible_play_hosts_all=["node1"])
    return action.run(task_vars=variables)


@pytest.mark.parametrize("name", MODULES)
def test_each_module_has_a_checked_action(name):
    """Without an action plugin, Ansible would give the answer to the tasks as it is."""
    assert (PROJECT / "plugins" / "action" / (name + ".py")).exists()
    assert set(ANSWERS[name]) == set(FACTS[name])


def test_no_other_code_runs_a_module():
    places = [*(PROJECT / "plugins").rglob("*.py"), *(PROJECT / "python").rglob("*.py")]
    found = {path.name for path in places if "_execute_module(" in path.read_text()}
    assert found == {"module_task.py"}


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_a_right_answer_keeps_its_facts_only(name, tmp_path):
    python = {"discovered_interpreter_python": "/usr/bin/python3"}
    more = {"ansible_facts": dict(python, os_family="x"), "add_host": {"host_name": "x"}, "x": 1}
    told = act(name, dict(ANSWERS[name], **more), tmp_path)
    assert not told.get("failed") and "add_host" not in told and "x" not in told, told
    assert told["ansible_facts"] == python
    assert all(told[field] == value for field, value in ANSWERS[name].items())


@pytest.mark.parametrize(
    "name, field",
    [(name, field) for name in ANSWERS for field in FACTS[name] if field not in SOMETIMES],
)
def test_a_wrong_or_missing_fact_is_refused_with_host_and_field(name, field, tmp_path):
    right = ANSWERS[name]
    for wrong in ({"a": {"b": {"c": {}}}}, 7.5, "../../x\n--no-index"):
        told = act(name, dict(right, **{field: wrong}), tmp_path)
        assert told["failed"] and "the answer of node1 to the module %s" % name in told["msg"], told
        assert field in told["msg"] and "remove the host from the inventory" in told["msg"]
        assert not set(told) & set(right)
    told = act(name, {key: right[key] for key in right if key != field}, tmp_path)
    assert told["failed"] and field in told["msg"]
    assert not (tmp_path / "drift.json").exists()


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_a_failed_module_keeps_its_message_and_no_facts(name, tmp_path):
    failure = {"failed": True, "msg": "no disk", "exception": "at line 1"}
    told = act(name, dict(ANSWERS[name], **failure), tmp_path)
    assert told["failed"] and told["msg"] == "no disk" and told["exception"] == "at line 1"
    assert not set(told) & set(ANSWERS[name])


def test_the_controller_computes_the_missing_wheels(tmp_path):
    evil = {"python": "3.11", "requirements": ["x==1\n--no-index"], "digest": "d"}
    told = act("mxcluster_env", dict(ANSWERS["mxcluster_env"], needs=evil), tmp_path)
    assert told["needs"]["requirements"] == [
        "mxnet==1.9.1 --hash=sha256:" + DIGEST,
        "pip==25.0.1 --hash=sha256:" + "b" * 64,
    ]
    assert told["needs"]["python"] == "3.11"
    assert re.fullmatch("[0-9a-f]{64}", told["needs"]["digest"])
    built = act("mxcluster_env", dict(ANSWERS["mxcluster_env"], built=True), tmp_path)
    assert built["needs"] == dict(told["needs"], requirements=[])
    told = act("mxcluster_env", dict(ANSWERS["mxcluster_env"], python="3.7"), tmp_path)
    assert told["failed"] and "MXNet 1.9.1 has no wheels for Python '3.7'" in told["msg"]


BACKEND = """
import pathlib
pathlib.Path({marker!r}).write_text("the node's code has run")
raise SystemExit(1)
"""
OPTION = "--hash=sha256:0"  # earlier versions accepted each word that contained such an option
# A module that returns requirements with options of pip.
LYING = """
import json
print(json.dumps({answer!r}))
"""


def source_distribution(folder, marker):
    """Write a source distribution whose build runs code. Return its sha256."""
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "build"\n'
        'backend-path = ["."]\n',
        "build.py": BACKEND.format(marker=str(marker)),
        "PKG-INFO": "Metadata-Version: 2.1\nName: six\nVersion: 1.0\n",
    }
    path = folder / "six-1.0.tar.gz"
    with tarfile.open(str(path), "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo("six-1.0/" + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_lying_node_runs_nothing_on_the_controller(tmp_path):
    """The two tasks of the role mxnet, with a node that answers requirements of its own.

    Before the check, pip on the controller built the node's source distribution.
    """
    marker, library, folder = (tmp_path / name for name in ("marker", "library", OPTION))
    library.mkdir()
    folder.mkdir()
    form = "six==1.0 --hash=sha256:%s\n--find-links=%s\n--no-binary=six,%s"
    lines = form % (source_distribution(folder, marker), folder, OPTION)
    needs = {"python": "3.11", "requirements": [lines], "digest": "d"}
    answer = {"changed": True, "python": "3.11", "built": False, "done": False, "needs": needs}
    (library / "mxcluster_env.py").write_text("#!/usr/bin/python\n" + LYING.format(answer=answer))
    names = (
        "Check the node's Python environment for missing wheels",
        "Fetch the missing wheels from the package index to the controller",
    )
    tasks = yaml.safe_load((PROJECT / "roles" / "mxnet" / "tasks" / "main.yml").read_text())
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {
            "__mxnet_environment": dict(ENVIRONMENT, path="/srv/env", python=sys.executable),
            "__mxnet_bare": False,
            "__mxnet_carry_dir": str(tmp_path / "carry"),
            "mxnet_store_dir": str(tmp_path / "store"),
        },
        "tasks": [task for task in tasks if task["name"] in names],
    }
    assert len(play["tasks"]) == 2
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    settings = {
        "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"),
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_LIBRARY": str(library),
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "PIP_INDEX_URL": (tmp_path / "no index").as_uri(),
    }
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "play.yml"],
        cwd=str(tmp_path),
        env=dict(os.environ, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert not marker.exists(), done.stdout
    assert "could not fetch the wheel of mxnet 1.9.1 for Python 3.11" in done.stdout, done.stdout
