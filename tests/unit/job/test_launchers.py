"""Which inventories and engines fit a launcher."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import launchers

NODES = {
    host: {"address": host, "python": "/env/bin/python", "job_dir": "/jobs/j"} for host in "abc"
}
LOCAL = {host: {"ansible_connection": "local"} for host in "abc"}


def test_local_takes_this_machine_and_mpi_takes_others():
    launchers.check("local", NODES, LOCAL)
    launchers.check("mpi", NODES, {})
    for variables in (LOCAL, {}):
        launchers.check("ssh", NODES, variables)


@pytest.mark.parametrize(
    "launcher, nodes, variables, words",
    [
        ("local", {}, dict(LOCAL, b={}), ["launcher=local", "Ansible reaches b over", "leave -i"]),
        ("mpi", {}, {"b": LOCAL["b"]}, ["launcher=mpi", "b are this machine", "launcher=local"]),
        (
            "mpi",
            {"b": dict(NODES["b"], python="/other/python", job_dir="/home/j")},
            {},
            ["/other/python: b", "mxcluster_env_dir", "/home/j: b", "mxcluster_job_dir"],
        ),
    ],
)
def test_refusals(launcher, nodes, variables, words):
    with pytest.raises(BadInput) as refusal:
        launchers.check(launcher, dict(NODES, **nodes), variables)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_different_engines_are_named_with_their_hosts():
    def engine(runtime, version):
        return {"path": "/m", "runtime": runtime, "version": version}

    same = {host: engine("openmpi", "4.1.4") for host in "abc"}
    assert launchers.differing(same) == launchers.differing(dict(same, c={})) == []
    for other in (engine("openmpi", "5.0.3"), engine("mpich", "4.1.4")):
        (text,) = launchers.differing(dict(same, c=other))
        for word in ("openmpi 4.1.4: a, b", "%(runtime)s %(version)s: c" % other, "mpi_runtime="):
            assert word in text, text


def test_the_plan_says_how_the_agents_start():
    plan = {"launcher": "mpi", "nodes": {"head": {}, "b": {}}}
    assert "one mpirun on head" in launchers.told(plan, ["head", "b"])[0]
    assert "launcher=mpi" in launchers.told(plan, ["head", "b"])[1]
    ssh = launchers.told({"launcher": "ssh", "nodes": {"a": {}}}, ["a"])
    assert len(ssh) == 1 and "mxcluster_user is empty" in ssh[0]
