"""Conditions of tasks for rare situations, evaluated by Ansible."""

import pathlib

import pytest
import yaml

from tests.templates import templated

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"


def task(path, module, arguments=None):
    """Return the only task of a file that runs this module (with these arguments)."""

    def all_of(entries):
        for entry in entries:
            yield entry
            yield from all_of(entry.get("block") or [])

    found = [
        one
        for one in all_of(yaml.safe_load((ROLES / path).read_text()))
        if module in one and arguments in (None, one[module])
    ]
    assert len(found) == 1, (path, module, found)
    return found[0]


def decided(expression, **variables):
    """Return Ansible's value of an expression without braces."""
    return templated("{{ %s }}" % expression, variables)


@pytest.mark.parametrize(
    "lost, attached, undone",
    [(["b"], False, True), (["a", "b"], False, True), ([], False, False), (["b"], True, False)],
)
def test_a_job_that_a_node_could_not_start_is_undone(lost, attached, undone):
    undo = task("train_job/tasks/main.yml", "ansible.builtin.include_tasks", "undo.yml")
    known = {"__train_job_attached": attached, "__train_job_not_started": lost}
    assert decided(undo["when"], **known) is undone
    end = task("train_job/tasks/main.yml", "ansible.builtin.meta", "end_play")
    assert decided(end["when"], **known) is not undone, "this task ends the play before"


def test_the_run_folder_is_the_one_of_the_planner():
    """The user's runs_dir may be relative, or begin with ~, and checkpoints need a whole path."""
    known = yaml.safe_load((ROLES / "train_job" / "vars" / "main.yml").read_text())
    look = task("train_job/tasks/look.yml", "mxcluster_node")["mxcluster_node"]
    planned = {"job": "one", "run_dir": "/home/me/runs/one"}
    given = {"__train_job_runs_dir": "~/runs", "train_job_planned": planned}
    given["__train_job_run_dir"] = templated(known["__train_job_run_dir"], given)
    assert templated(known["__train_job_arrivals"]["folder"], given) == (
        "/home/me/runs/one/checkpoints"
    )
    assert templated(look["runs_dir"], given) == "/home/me/runs"
    of_verify = dict(given, train_job_planned={"job": "one"})
    assert templated(known["__train_job_run_dir"], of_verify) == "~/runs/one"


def test_an_attached_controller_does_not_end_an_unreachable_job():
    arguments = task("train_job/tasks/follow.yml", "mxcluster_node")["mxcluster_node"]
    keeper = arguments["keeper"].strip("{} ")
    assert decided(keeper, __train_job_attached=True) is False
    assert decided(keeper, __train_job_attached=False) is True


def test_stop_fails_if_processes_may_be_left():
    stopped = task("jobs/tasks/stopped.yml", "ansible.builtin.assert")
    condition = stopped["ansible.builtin.assert"]["that"]
    assert decided(condition, __jobs_told={"ok": False}) is False
    assert decided(condition, __jobs_told={"ok": True}) is True


def test_the_record_of_a_removed_node_with_the_shared_key_stays():
    """The record reminds the user to create a new key."""
    loop = task("ssh_mesh/tasks/main.yml", "ansible.builtin.file")["loop"].strip("{} ")
    found = decided(loop, __ssh_mesh={"gone": ["a", "b"], "still_hold": ["b"]})
    assert found == [["a", "nodes"], ["a", "drift"]] or found == [("a", "nodes"), ("a", "drift")]


@pytest.mark.parametrize(
    "found, made",
    [({"exists": False}, True), ({"isdir": False}, True), ({"isdir": True, "uid": 0}, False)],
)
def test_an_existing_folder_for_keys_stays_as_it_is(found, made):
    """Before, a ~/.ssh of another owner failed provision.yml even with ssh_mesh_mode=none."""
    known = {
        "mxcluster_user": "ann",
        "__agent_unit_systemd": {"stat": {"exists": True}},
        "__agent_unit_access": {"stat": {"exists": True, "executable": True}},
        "__agent_unit_ssh": {"stat": found},
    }
    conditions = task("agent_unit/tasks/main.yml", "mxcluster_file")["when"]
    assert all(decided(condition, **known) for condition in conditions) is made


@pytest.mark.parametrize(
    "home, fits",
    [("/home/a b", True)] + [("/home/a%sb" % sign, False) for sign in ('"', "\\", "%")],
)
def test_a_home_that_the_unit_cannot_name_is_refused(home, fits):
    condition = task("agent_unit/tasks/main.yml", "ansible.builtin.assert")
    that = condition["ansible.builtin.assert"]["that"]
    assert decided(that, __agent_unit_home=home) is fits


@pytest.mark.parametrize("only, off", [(["mxcluster-cuda"], "*"), ([], None)])
def test_packages_come_from_the_fewest_repositories(only, off):
    """yum 3 fails if one enabled repository is down, although the others have all packages."""
    first = task("el7_repos/tasks/install.yml", "ansible.builtin.yum")["ansible.builtin.yum"]
    given = {"name": ["cuda"], "enablerepo": only}
    found = templated(first, {"el7_repos_arguments": given, "el7_repos_only": only})
    assert found == (dict(given, disablerepo=off) if off else given)
