"""The packed plan in Ansible's tasks, and mxcluster_node's arguments for one host."""

import pathlib

import pytest
import yaml

from mxcluster.job.plan import packed
from mxcluster.model.node_record import Cuda
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.plan import NodePlan
from tests.unit.job.report import fake_run

PROJECT = pathlib.Path(__file__).resolve().parents[4]
PLAN = fake_run.make_plan(workers=4, groups=2, servers=1)
HOST = sorted(PLAN.nodes)[0]
LOOKS = {host: LookRequest(address=host) for host in PLAN.nodes}
PACKED = packed.summary(PLAN, LOOKS).packed_plan


def completed(**arguments):
    return packed.completed(dict(arguments, packed_plan=PACKED), HOST)


def test_tasks_get_small_values_and_the_plan_as_one_text():
    found = packed.summary(PLAN, LOOKS).encode()
    assert packed.unpack(found.pop("packed_plan")) == packed.Packed(plan=PLAN, looks=LOOKS)
    assert found == {
        "job": PLAN.job,
        "options": PLAN.options.encode(),
        "nodes": list(PLAN.nodes),
        "start": "start.yml",
        "trainers": sorted(
            {process.host for process in PLAN.processes if process.role == "worker"}
        ),
    }


def test_ansible_does_not_parse_the_packed_text():
    """Ansible takes a text that begins with a brace for Python, and parses it each time."""
    assert PACKED[0] not in "{[" and "{{" not in PACKED


def test_a_task_without_a_plan_is_unchanged():
    arguments = {"command": "look", "request": {"address": "10.0.0.1"}}
    assert packed.completed(arguments, HOST) is arguments


def test_a_node_starts_its_own_part_and_keeps_the_whole_plan():
    found = completed(command="start", only_meet=False)
    part = NodePlan.decode(found["plan"])
    assert {process.host for process in part.processes} == {HOST} and part.whole == PLAN
    assert "packed_plan" not in found
    start = completed(command="start", only_meet=True)["plan"]
    assert start["processes"] == [] and start["peers"] and start["whole"] is None
    assert not start["rendezvous"].get("partners"), "only verify.yml -e speed=true measures links"
    start = completed(command="start", only_meet=True, transfers=True)["plan"]
    assert set(start["rendezvous"]["partners"]) - {""} == set(PLAN.nodes) - {HOST}


def test_a_wait_gets_the_waiting_sets_and_the_plan_for_checkpoints():
    found = completed(command="wait", checkpoints={"folder": "/runs/j/checkpoints", "keep": 3})
    assert found["together"] == PLAN.together
    assert found["checkpoints"]["plan"] == PLAN.encode()
    assert "checkpoints" not in completed(command="wait")


def test_a_wait_names_the_engine_that_started_the_agents():
    """Root of a node looks for processes outside of a unit only if the job has a unit."""
    assert completed(command="wait")["request"] == {"engine": ""}
    plan = PLAN.replaced(launcher="mpi")
    arguments = {"command": "wait", "packed_plan": packed.summary(plan, {}).packed_plan}
    assert packed.completed(arguments, HOST)["request"] == {"engine": "mpirun"}


def test_a_check_asks_for_the_plans_cuda():
    cuda = {"folder": "/usr/local/cuda-9.2", "version": "9.2"}
    node = PLAN.nodes[HOST].replaced(cuda=Cuda.decode(cuda))
    plan = PLAN.replaced(nodes=dict(PLAN.nodes, **{HOST: node}))
    arguments = {
        "command": "check",
        "request": {"peers": []},
        "packed_plan": packed.summary(plan, {}).packed_plan,
    }
    request = packed.completed(arguments, HOST)["request"]
    assert request == {"peers": [], "cuda": dict(cuda, sass=[])}
    assert completed(command="check", request={})["request"] == {"cuda": {}}
    speed = completed(command="check", request={"speed": {"folder": "/jobs"}})["request"]["speed"]
    assert speed == {"folder": "/jobs", "variables": {}}
    worker = next(one for one in PLAN.processes if one.role == "worker" and one.host == HOST)
    env = {"MXCLUSTER_CPUS": "0", "OMP_NUM_THREADS": "1", "MKL_DYNAMIC": "0", "TOKEN": "x"}
    bound = PLAN.replaced(processes=[worker.replaced(env=env)])
    del env["TOKEN"]
    assert packed.threads_of(bound, HOST) == env


@pytest.mark.parametrize(
    "paths_of_node, refused",
    [({}, False), ({"python": "/tmp/evil"}, True), ({"job_dir": "/tmp/evil/j"}, True)],
)
def test_a_plan_with_paths_of_other_variables_is_refused(paths_of_node, refused):
    """The inventory may have changed since the record; root uses no path from a record alone."""
    paths = dict({"python": "/opt/env/bin/python", "job_dir": "/opt/jobs/j"}, **paths_of_node)
    node = PLAN.nodes[HOST].replaced(**paths)
    plan = PLAN.replaced(nodes=dict(PLAN.nodes, **{HOST: node}))
    arguments = {
        "command": "look",
        "python": "/opt/env/bin/python",
        "job_dir": "/opt/jobs/j",
        "packed_plan": packed.summary(plan, LOOKS).packed_plan,
    }
    problems = packed.completed(dict(arguments, problems=["known"]), HOST)["problems"]
    assert problems[0] == "known" and len(problems) == 1 + refused
    assert (
        not refused
        or "/tmp/evil" in problems[1]
        and problems[1].endswith("run provision.yml again")
    )
    assert "problems" not in packed.completed(arguments, HOST), "verify.yml must decide itself"
    look = yaml.safe_load((PROJECT / "roles" / "train_job" / "tasks" / "look.yml").read_text())[0][
        "mxcluster_node"
    ]
    assert (look["python"], look["job_dir"], look["problems"]) == (
        "{{ __train_job_python }}",
        "{{ train_job_folder }}",
        [],
    )
