"""The plan of an MPI program: nodes, processes, GPUs, files, refusals."""

import base64
import io
import json
import os
import zipfile

import pytest

from mxcluster.ansible import knobs
from mxcluster.errors import BadInput
from mxcluster.job import listing
from mxcluster.job.plan import for_node, inputs, mpi, mpi_inputs, packed
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import MPI_ENGINES, Secrets
from mxcluster.model.plan import Container
from mxcluster.node import mpi_engines
from tests.plans import write_record

HOSTS = {"a": ("10.0.0.1", 2), "b": ("10.0.0.2", 4), "c": ("10.0.0.3", 0)}
INVENTORY = Inventory(
    groups={"scheduler": ["c"], "servers": ["c"], "workers": list(HOSTS)},
    forks=5,
    hosts={host: {} for host in HOSTS},
)


@pytest.fixture
def planned(tmp_path):
    """Return a function that plans with the given knobs, in a project of three nodes."""
    (tmp_path / "nodes").mkdir()
    for host, (address, gpus) in HOSTS.items():
        interfaces = {"lo": ["127.0.0.1/8"], "eth0": [address + "/24"]}
        place = {"interfaces": interfaces, "address_of_default_route": address}
        write_record(tmp_path / "nodes", host, gpus=gpus, **place)

    def run(**given):
        secrets, held = given.pop("secrets", Secrets()), given.pop("held", None)
        given = dict({"mpi_command": "./solve a"}, **given)
        folders = inputs.Folders(str(tmp_path / "nodes"), str(tmp_path / "runs"), str(tmp_path))
        return mpi_inputs.plan_job(given, INVENTORY, folders, secrets, held)

    return run


def plan_of(found):
    return found.plan


def refused(planned, **given):
    with pytest.raises(BadInput) as refusal:
        planned(**given)
    return str(refusal.value)


def test_first_node_runs_mpirun_and_each_other_node_a_daemon(planned):
    plan = plan_of(planned(job_id="one", root_port="9300"))
    assert [(one.name, one.host, one.port) for one in plan.processes] == [
        ("mpirun", "a", 9300),
        ("node-1", "b", 9300),
        ("node-2", "c", 9300),
    ]
    assert [one.command[-2:] for one in plan.processes] == [
        [mpi.PROGRAM, "run"],
        [mpi.PROGRAM, "serve"],
        [mpi.PROGRAM, "serve"],
    ]
    env = plan.processes[1].env
    assert env["MXCLUSTER_WORK_DIR"] == "/jobs/b/one/files/node-1"
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # the numbers are those of nvidia-smi
    assert plan.mpi.network == "10.0.0.0/24"


def test_nodes_meet_before_the_program_starts(planned):
    part = for_node(plan_of(planned()), "b")
    assert [one.name for one in part.rendezvous.own] == ["node-1"]
    assert part.firewall.ports == [9091]
    assert list(part.firewall.peers.items()) == [
        ("10.0.0.1", [9091]),
        ("10.0.0.2", [9091]),
        ("10.0.0.3", [9091]),
    ]


def test_one_node_needs_no_port_and_no_rendezvous(planned):
    found = planned(mpi_num_instances="1")
    assert for_node(found.plan, "a").rendezvous is None
    assert found.looks["a"].ports == [] and found.looks["a"].address is None


def test_the_recipe_of_the_source_gives_one_process_for_each_gpu(planned):
    plan = plan_of(
        planned(
            mpi_num_instances=2,
            mpi_processes_per_node="nvidia-smi -L | wc -l",
            mpi_gpus="all",
            mpi_infiniband="true",
            mpi_runtime="intelmpi",
        )
    )
    assert [one.processes for one in plan.mpi.hosts] == [2, 4]
    assert plan.workers == 6
    assert plan.mpi.infiniband is True and plan.mpi.runtime == "intelmpi"


def test_each_refusal_names_the_knob_and_the_cure(planned, tmp_path):
    assert "mpi_command='' is refused" in refused(planned, mpi_command="")
    assert "mpi_image=cntk needs a container engine: add -e runtime=docker" in refused(
        planned, mpi_image="cntk"
    )
    assert "mpi_image='a b' is refused" in refused(planned, mpi_image="a b")
    assert "runtime=docker needs mpi_image" in refused(planned, runtime="docker")
    assert "runtime=podman on a, b, c is refused" in refused(
        planned, runtime="podman", mpi_image="cntk"
    )
    assert "c: mpi_processes_per_node=gpus, but the job has no GPU on this node" in refused(
        planned, mpi_processes_per_node="gpus"
    )
    assert "mpi_num_instances=4, but the group workers has only 3 nodes (a, b, c)" in (
        refused(planned, mpi_num_instances=4)
    )
    assert "mpi_resource_files='absent.txt' does not exist" in refused(
        planned, mpi_resource_files="absent.txt"
    )
    assert "Set the variable in mpi_pre_execution_command, as export PATH=..." in refused(
        planned, mpi_env={"PATH": "/opt/bin"}
    )
    assert "mpi_runtime='lam' is refused" in refused(planned, mpi_runtime="lam")
    (tmp_path / "runs" / "old").mkdir(parents=True)
    assert "job_id='old' belongs to an earlier job" in refused(planned, job_id="old")
    secrets = Secrets(names=["MXCLUSTER_JOB"])
    assert "secret_env: MXCLUSTER_JOB is refused" in refused(planned, secrets=secrets)


@pytest.mark.slow
def test_an_image_runs_everything_of_the_program_in_containers(planned):
    found = planned(
        runtime="docker", mpi_image="cntk:2", image_python="/opt/python3", data_dir="/set"
    )
    plan = plan_of(found)
    assert plan.container == Container(
        engine="docker", image="cntk:2", python="/opt/python3", shm_size=1024
    )
    assert {one.command[0] for one in plan.processes} == {"/opt/python3"}
    assert plan.nodes["a"].mounts == ["/set"]
    assert "in containers of docker, image cntk:2" in found.table
    look = found.looks["b"]
    assert look.container == plan.container and look.files == ["/set"]
    assert plan_of(planned()).container is None


@pytest.mark.slow
def test_the_cuda_of_the_node_stays_out_of_an_image(planned, tmp_path):
    record = json.loads((tmp_path / "nodes" / "a.json").read_text())
    record["cuda"] = {"folder": "/usr/local/cuda-9.2"}
    (tmp_path / "nodes" / "a.json").write_text(json.dumps(record))
    inside, beside = planned(runtime="docker", mpi_image="cntk"), planned()
    assert plan_of(beside).processes[0].env["LD_LIBRARY_PATH"] == "/usr/local/cuda-9.2/lib64"
    assert "LD_LIBRARY_PATH" not in plan_of(inside).processes[0].env
    assert inside.looks["a"].cuda is None


def test_job_takes_free_ports_and_without_leaves_a_node_out(planned):
    held = {"b": {"ports": {"9091": "another program"}, "gpus": {}}}
    plan = plan_of(planned(without="a", held=held))
    assert [(one.name, one.host, one.port) for one in plan.processes] == [
        ("mpirun", "b", 9092),
        ("node-1", "c", 9092),
    ]


def test_resource_files_keep_their_names_and_modes(planned, tmp_path):
    (tmp_path / "solve").write_text("#!/bin/sh\n")
    (tmp_path / "solve").chmod(0o755)
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "x.txt").write_text("x")
    found = planned(mpi_resource_files="solve,data")
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(found.script))) as content:
        assert content.namelist() == ["data/deep/x.txt", "solve"]
        assert content.getinfo("solve").external_attr >> 16 & 0o111
    assert "files for each node: solve, data" in found.table


def test_two_resource_files_of_one_name_are_refused(planned, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text("")
    assert "have the same name" in refused(planned, mpi_resource_files="one/x,two/x")


def test_different_versions_are_named_with_their_hosts():
    engine = mpi_inputs.Engine(engine="openmpi", version="4.1.4")
    assert mpi_inputs.different_engines({"a": engine, "b": engine, "c": None}) == ""
    newer = engine.replaced(version="5.0.1")
    message = mpi_inputs.different_engines({"a": engine, "b": newer})
    assert "(openmpi 4.1.4: a; openmpi 5.0.1: b)" in message


def test_a_controller_can_adopt_the_plan(planned):
    plan = plan_of(planned(job_id="one"))
    paths = {host: listing.Paths("/env/bin/python", "/jobs/" + host) for host in HOSTS}
    adopted = listing.adopt(json.loads(json.dumps(plan.encode())), "one", paths)
    assert adopted.nodes["b"].job_dir == "/jobs/b/one"
    assert packed.summary(plan, {}).trainers == []
    contained = plan_of(planned(job_id="one", runtime="docker", mpi_image="cntk"))
    assert listing.adopt(json.loads(json.dumps(contained.encode())), "one", paths).job == "one"


def test_the_knobs_of_mpi_belong_to_mpi_yml_only():
    assert "mpi_command" in knobs.PLAYBOOKS["mpi.yml"]
    both = {name for name in knobs.PLAYBOOKS["train.yml"] if name.startswith("mpi_")}
    assert both == set(LAUNCHERS["mpi"].knobs) < set(knobs.PLAYBOOKS["mpi.yml"])
    assert set(MPI_ENGINES) == {"auto"} | set(mpi_engines.ENGINES)


@pytest.mark.slow
def test_network_is_empty_if_the_nodes_share_none(planned, tmp_path):
    record = json.loads((tmp_path / "nodes" / "b.json").read_text())
    record["interfaces"]["eth0"] = ["10.0.0.2/16"]
    (tmp_path / "nodes" / "b.json").write_text(json.dumps(record))
    assert plan_of(planned()).mpi.network == ""
    assert os.path.basename(plan_of(planned()).nodes["a"].job_dir).endswith("-mpi")
