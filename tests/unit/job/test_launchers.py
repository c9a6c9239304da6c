"""The inventories that fit a launcher, and the lines of the plan about it."""

import pathlib

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import launchers
from mxcluster.model.host_variables import HostVariables, of_hosts
from mxcluster.model.job_knobs import Options
from mxcluster.model.node_requests import MpiRequest
from mxcluster.model.plan import Node
from tests.plans import plan_with

PROJECT = pathlib.Path(__file__).resolve().parents[3]
NODES = {host: Node(python="/env/bin/python", job_dir="/jobs/j") for host in "abc"}
REMOTE = of_hosts("abc", {})
LOCAL = dict.fromkeys("abc", HostVariables(ansible_connection="local"))


def test_local_takes_this_machine_and_mpi_takes_others():
    launchers.check("local", NODES, LOCAL)
    launchers.check("mpi", NODES, REMOTE)
    for variables in (LOCAL, REMOTE):
        launchers.check("ssh", NODES, variables)


@pytest.mark.parametrize(
    "launcher, nodes, variables, words",
    [
        (
            "local",
            {},
            dict(LOCAL, b=REMOTE["b"]),
            ["launcher=local", "Ansible reaches b over", "leave -i"],
        ),
        ("mpi", {}, dict(REMOTE, b=LOCAL["b"]), ["launcher=mpi", "local): b.", "launcher=local"]),
        (
            "mpi",
            {"b": NODES["b"].replaced(python="/other/python", job_dir="/home/j")},
            REMOTE,
            ["/other/python: b", "mxcluster_env_dir", "/home/j: b", "mxcluster_job_dir"],
        ),
    ],
)
def test_refusals(launcher, nodes, variables, words):
    with pytest.raises(BadInput) as refusal:
        launchers.check(launcher, dict(NODES, **nodes), variables)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_a_knob_of_another_launcher_is_refused_on_the_command_line():
    launchers.refuse_unread("mpi", ["kv", "mpi_runtime"])
    launchers.refuse_unread("ssh", ["kv"])
    with pytest.raises(BadInput) as refusal:
        launchers.refuse_unread("ssh", ["kv", "mpi_runtime", "mpi_pre_execution_command"])
    message = str(refusal.value)
    assert "-e launcher=mpi" in message
    assert "-e mpi_runtime: launcher=ssh does not read this knob" in message
    assert "-e mpi_pre_execution_command" in message


def test_the_plan_says_how_the_agents_start():
    nodes = ["head", "b"]
    plan = plan_with(launcher="mpi", nodes=dict.fromkeys(nodes, {}), ports_open=nodes)
    message = launchers.lines(plan)
    assert "one mpirun on head" in message[0] and "launcher=mpi" in message[1]
    ssh = launchers.lines(plan_with(launcher="ssh", nodes={"a": {}}, ports_open=["a"]))
    assert len(ssh) == 1 and "mxcluster_user is empty" in ssh[0]


def test_only_launcher_mpi_asks_the_nodes_for_an_engine():
    options = Options(mpi_pre_execution_command="module load mpi")
    assert MpiRequest.of_training(options) is None
    request = MpiRequest.of_training(options.replaced(launcher="mpi"))
    assert (request.runtime, request.pre_execution) == ("", "module load mpi")
    request = MpiRequest.of_training(options.replaced(launcher="mpi", mpi_runtime="mpich"))
    assert request.runtime == "mpich"


@pytest.mark.parametrize("launcher", launchers.LAUNCHERS.values(), ids=lambda one: one.name)
def test_the_tasks_of_a_launcher_exist(launcher):
    assert (PROJECT / "roles" / "train_job" / "tasks" / launcher.tasks).is_file()
