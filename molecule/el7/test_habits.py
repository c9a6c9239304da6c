"""The stand-in has the habits of yum 3 from which the roles protect themselves (docs/yum.md).

The tests run Ansible's module yum without the defaults of playbooks/provision.yml, on gpu1. Its
packages are there already.
"""

import json

import pytest
import yaml

FILE = "/etc/yum.repos.d/CentOS-Base.repo"
LOCK = "sleep 1000 >/dev/null 2>&1 & echo $! >/run/yum.pid"
DOWN = "kill $(cat /run/yum.pid); sed -i.bak s,/vault/,/none/, " + FILE
MODULE = {"name": ["make"], "install_repoquery": False}
# The calls in their order: the name, a shell script before the call, the module's arguments.
CALLS = [
    ("without_repoquery", "rpm -q make", {"name": ["make"], "disablerepo": "*"}),
    ("locked", LOCK, dict(MODULE, lock_timeout=1)),
    ("unreachable", DOWN, dict(MODULE, name=["another"])),
]


@pytest.fixture(scope="module")
def answers(cluster, tmp_path_factory):
    """Return {name of a call: the module's answer}."""
    folder = tmp_path_factory.mktemp("habits")
    tasks = []
    for name, script, arguments in CALLS:
        tasks += [
            {"ansible.builtin.shell": script},
            {"ansible.builtin.yum": arguments, "register": name, "failed_when": False},
        ]
    told = "{{ {%s} | to_json }}" % ", ".join("'%s': %s" % (one[0], one[0]) for one in CALLS)
    copied = {"content": told, "dest": str(folder / "answers.json"), "mode": "0600"}
    python = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    here = {"connection": "local", "become": False, "vars": python}
    tasks.append({"ansible.builtin.copy": copied, **here})
    play = [{"hosts": "gpu1", "gather_facts": False, "tasks": tasks}]
    (folder / "habits.yml").write_text(yaml.safe_dump(play, sort_keys=False))
    try:
        result = cluster.command(*cluster.playbook(str(folder / "habits.yml")))
    finally:
        cluster.shell("gpu1", "! test -e {0}.bak || mv {0}.bak {0}".format(FILE))
    assert result.code == 0, result.output
    return json.loads((folder / "answers.json").read_text())


def test_a_task_that_installs_nothing_installs_yum_utils(cluster, answers):
    """The module asks all repositories of the system for it, whatever disablerepo says."""
    assert "providing make is already installed" in answers["without_repoquery"]["results"][0]
    cluster.shell("gpu1", "rpm -e yum-utils")


def test_a_held_lock_ends_a_task_after_its_timeout(answers):
    assert "yum lockfile is held by another process" in answers["locked"]["msg"]


def test_an_unreachable_repository_ends_a_task_that_does_not_disable_it(answers):
    assert "Failure talking to yum" in answers["unreachable"]["msg"]
