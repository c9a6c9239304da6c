"""The playbooks under the other lines of ansible-core.

The results are the same as under 2.16, and Ansible prints no warning. Each line runs on the newest
Python here that it supports. `make test` asks the newest line, and `make soak` all. There the
newest line also builds the nodes' environment with its own Python.
"""

import json
import sys

import pytest

from tests.often import seldom
from tests.playbooks import cores
from tests.playbooks.conftest import Project
from tests.pythons import find_python
from tests.recap import changes
from tests.unit.plugins.callback import test_mxcluster as callback

NEWEST = cores.OTHERS[-1]


@pytest.fixture(
    scope="module",
    params=[*map(seldom, cores.OTHERS[:-1]), NEWEST, seldom(NEWEST + " builds")],
)
def other(request, project, tmp_path_factory):
    """Return a copy of the project whose playbooks run under another line, with its name `line`.

    `inventory/small` has two nodes in two groups. They take the environment of `project`, because a
    build takes most of the time. With "builds" they build their own.
    """
    line, _, builds = request.param.partition(" ")
    programs = cores.programs_of(line)
    home, python = project.path / ".state" / "local", sys.executable
    if builds:
        home, python = cores.home_of(line), "{{ ansible_playbook_python }}"
    made = Project(tmp_path_factory.mktemp("core"), programs)
    made.line = line
    folder = made.small_inventory()
    for name, texts in {
        "hosts.yml": [(".12\n          worker_group: first", ".12\n          worker_group: other")],
        "group_vars/all.yml": [
            ('_home: "{{ mxcluster_state_dir }}"', "_home: %s" % home),
            ("{{ mxcluster_home }}", "{{ mxcluster_state_dir }}"),
            ('mxnet_python: "{{ ansible_playbook_python }}"', 'mxnet_python: "%s"' % python),
        ],
    }.items():
        text = (folder / name).read_text()
        for before, after in texts:
            assert before in text, text
            text = text.replace(before, after)
        (folder / name).write_text(text)
    return made


# The second docker engine of the scenario container adds an interface, which is a fact of nodes.
@pytest.mark.alone
def test_from_provisioning_to_a_verified_cluster(other):
    small = ("-i", "inventory/small")
    done = other.run("provision.yml", *small)
    assert done.code == 0 and "failed=0" in done.output, done.output
    assert len(list((other.path / ".state" / "small" / "nodes").glob("*.json"))) == 2
    again = other.run("provision.yml", *small)
    assert again.code == 0 and not any(changes(again.output).values()), again.output
    log = other.ansible_log()
    assert "PLAY RECAP" in log and "TASK [mxnet : Copy the package" not in log, "unchanged nodes"

    trained, run = other.train(*small, kv="dist_gsync", num_epochs=2)
    assert trained.code == 0, trained.output
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["ok"] and (run / "report.html").exists(), trained.output

    status = other.run("status.yml", *small)
    assert status.code == 0 and "job-1" in status.output, status.output
    verified = other.run("verify.yml", *small)
    assert verified.code == 0 and "OK        2 nodes: 9 ok, 2 not run" in verified.output, (
        verified.output
    )


@pytest.mark.soak  # test_versions.py judges each Python
@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_a_node_whose_python_is_too_old_is_refused(other, version):
    """The message names the node and the cure, and nothing is changed."""
    old = find_python(version)
    done = other.run(
        "provision.yml", "-i", "inventory/small", "-e", "ansible_python_interpreter=%s" % old
    )
    assert done.code != 0 and not any(changes(done.output).values()), done.output
    for node in ("node1", "node2"):
        words = "%s: %s is Python %s, and the modules of this ansible-core %s." % (
            node,
            old,
            version,
            other.line,
        )
        assert words in done.output, done.output
    assert "Run `make venv CORE=2.16 PYTHON=/path/to/python3.12` on the controller" in done.output


def test_control_characters_of_a_node_have_no_effect(other, tmp_path, monkeypatch):
    """Each line displays warnings and errors in its own way."""
    monkeypatch.setattr(sys, "executable", str(other.programs / "python"))
    project = callback.written(tmp_path)
    callback.test_control_characters_of_a_node_have_no_effect(project, ["--diff"])
