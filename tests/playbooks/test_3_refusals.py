"""Invalid input is refused within seconds, with its value and the cure, before any change.

tests/inventories and tests/unit cover every rule on the plan; this file covers some of each kind
through the playbook.
"""

import socket

import pytest

from tests.machine import Stopwatch
from tests.playbooks.conftest import NET, Project
from tests.recap import changes

CASES = {
    "unknown kv": (dict(kv="dist_gsynch"), ["dist_gsynch", "did you mean", "dist_gsync"]),
    "a worker in two groups": (
        dict(kv="dist_gsync", groups_file="{0}.11 {0}.12\n{0}.12 {0}.13 {0}.14\n".format(NET)),
        [NET + ".12", "groups"],
    ),
    "an interface that a node does not have": (dict(dmlc_interface="ib7"), ["ib7", "node1"]),
    "results in a folder that nobody can make": (
        dict(runs_dir="/proc/x"),
        ["runs_dir=/proc/x", "cannot write to /proc", "correct the path"],
    ),
    "a template with an undefined variable": (
        dict(network="{{ lesson }}"),
        ["network is refused", "lesson", "define this variable"],
    ),
}


def refused(project, words, run, *arguments, **options):
    """Check that a playbook is refused within seconds with these words, and starts no job.

    `run` is a method of the project that runs the playbook.
    """
    jobs = project.jobs()
    with Stopwatch() as watch:
        result = run(*arguments, **options)
    result = result if hasattr(result, "code") else result[0]
    assert result.code != 0, result.output
    assert all(word in result.output for word in words), "%s lacks one of %s" % (
        result.output,
        words,
    )
    assert "Traceback" not in result.output, result.output
    watch.within(10)
    assert project.jobs() == jobs and not project.processes(), result.output


@pytest.mark.parametrize("name", CASES)
def test_bad_options_are_refused(project, tmp_path, name):
    options, words = CASES[name]
    options = dict(options)
    if "groups_file" in options:
        (tmp_path / "groups").write_text(options["groups_file"])
        options["groups_file"] = str(tmp_path / "groups")
    refused(project, words, project.train, **options)


def test_a_bad_inventory_is_refused(project):
    folder = project.inventory("one_address_twice", **{NET + ".13": NET + ".12"})
    refused(project, [NET + ".12", "node3"], project.train, "-i", folder, kv="dist_gsync")


def test_nothing_is_done_to_any_node_when_one_cannot_be_reached(project):
    over_ssh = (
        "\n          ansible_connection: ssh\n          ansible_host: %s.99"
        "\n          ansible_port: 1"
    ) % NET
    dead = project.inventory("one_dead", **{NET + ".12": NET + ".12" + over_ssh})
    result = project.run("provision.yml", "-i", dead, "-e", "drift_anyway=true")
    words = "node2 (%s.99, port 1): cannot reach the node" % NET
    assert result.code != 0 and words in result.output, result.output
    assert not any(changes(result.output).values()), result.output
    assert "TASK [" not in project.ansible_log().split("fatal: [node2]")[1], result.output


def test_too_few_forks_are_refused(project):
    refused(project, ["forks", "2", "4"], project.train, "--forks", "2")


def test_a_job_under_limit_is_refused_with_what_to_do_instead(project):
    words = ["--limit leaves out node3, node4", "-e without=node3,node4", "-e num_workers="]
    refused(project, words, project.train, "--limit", "node1,node2,localhost")


def test_a_port_in_use_is_refused_and_its_holder_named(project):
    with socket.socket() as holder:
        holder.bind((NET + ".12", 9391))
        holder.listen()
        words = ["9391", NET + ".12", "in use", "root_port"]
        refused(project, words, project.train, root_port=9391)


def test_a_plan_alone_starts_nothing(project):
    jobs = project.jobs()
    result, _ = project.train(plan_only="true", kv="dist_gsync")
    assert (
        result.code == 0 and "scheduler" in result.output and NET + ".14:9091" in result.output
    ), result.output
    assert project.jobs() == jobs and not project.processes()
    assert "WARNING" not in result.output, result.output


def test_a_list_of_the_tasks_warns_of_nothing(project):
    result = project.run("train.yml", "--list-tasks", "--list-hosts")
    assert result.code == 0 and "play #5" in result.output, result.output
    assert "WARNING" not in result.output, result.output


def test_a_path_with_a_space_is_refused(tmp_path):
    """The check covers the project's path, too, and here a path with the inventory's name."""
    project = Project(tmp_path)
    (project.path / "inventory" / "local").rename(project.path / "inventory" / "my local")
    words = ["a space or another character that breaks programs", "Move the project", "my "]
    refused(project, words, project.run, "provision.yml", "-i", "inventory/my local")
    assert not (project.path / ".state" / "my local").exists()


def test_a_variable_that_nothing_reads_is_refused(project):
    words = ["-e bath_size", "did you mean 'batch_size'", "knob of status.yml"]
    refused(project, words, project.run, "train.yml", "-e", "bath_size=64", "-e", "json=true")


def test_variables_that_something_reads_are_taken(project, tmp_path):
    """Variables of Ansible, roles and the inventory are accepted.

    A variable of the inventory with the short name of a knob is no knob, and the plan shows a note.
    """
    folder = project.inventory("with_variables")
    with (folder / "group_vars" / "all.yml").open("a") as stream:
        stream.write('env: production\nsite_name: x\nsite_text: "{{ site_secret }}"\n')
    (tmp_path / "more.yml").write_text(
        "site_name: y\nsite_secret: z\nvault_token: t\nsecret_env: {TOKEN: '{{ vault_token }}'}\n"
    )
    result, _ = project.train(
        "-i",
        folder,
        "-e",
        "@%s" % (tmp_path / "more.yml"),
        "-e",
        "ansible_mine=1",
        "-e",
        "train_job_lr=0.2",
        plan_only="true",
    )
    assert result.code == 0 and "env is a variable of the inventory" in result.output, result.output
    playbook = project.path / "site.yml"
    playbook.write_text(
        "- import_playbook: train.yml\n- hosts: localhost\n  tasks:\n"
        '    - ansible.builtin.debug:\n        msg: "told {{ site_says }}"\n'
    )
    result = project.run("site.yml", "-e", "plan_only=true", "-e", "site_says=hello")
    assert result.code == 0 and "told hello" in result.output, result.output


@pytest.mark.parametrize(
    "playbook, option, value",
    [
        ("train.yml", "--start-at-task", "Run the node's part of the job"),
        ("provision.yml", "--tags", "cudda"),
    ],
)
def test_a_run_without_a_selected_task_is_no_success(project, playbook, option, value):
    """A script that reads the exit status would take it for a trained model."""
    words = ["nothing ran: no task matches " + option, value]
    refused(project, words, project.run, playbook, option, value)
