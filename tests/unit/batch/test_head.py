"""The head of a batch job, with the programs of a stand-in for Slurm and real programs of nodes.

Training needs MXNet: tests/playbooks/test_3_batch.py has whole jobs.
"""

import json
import os
import shlex
import sys

import pytest

from mxcluster.agent.folder import JobFolder
from mxcluster.job import options
from mxcluster.job.plan import Inputs, for_node, submission
from mxcluster.model.inventory import Inventory
from tests import batch_systems
from tests.inventories.cases import records_of
from tests.networks import own_network
from tests.unit.agent.jobs import ask, checked
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Put a stand-in of Slurm on the PATH; return its state folder."""
    batch_systems.install("slurm", tmp_path / "bin", tmp_path / "slurm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "slurm" / "hosts").write_text("a b")
    return tmp_path / "slurm"


@pytest.fixture
def folder(tmp_path):
    """Yield the job folder, and stop the job after the test."""
    made = JobFolder(str(tmp_path / "jobs" / "job-1"))
    yield made
    if os.path.isdir(made.path) and made.status():
        ask("stop", job_dir=made.path)


def start(folder, secrets=None, **knobs):
    """Submit a job for two nodes; return the submission."""
    record = {
        "schema": 2,
        "python": sys.executable,
        "job_dir": os.path.dirname(folder.path),
        "data_dir": "/data",
        "target": "cpu",
    }
    inventory = Inventory(
        groups={"scheduler": ["login"], "servers": ["login"], "workers": ["login"]},
        hosts={
            "login": {},
            "a": {"node_address": own_network() + ".1"},
            "b": {"node_address": own_network() + ".2"},
        },
    )
    given = options.cast(dict(knobs, launcher="slurm", num_nodes=2))
    records = records_of({"login": record})
    plan, _ = submission.submission(Inputs(given, inventory, records, "job-1"))
    ask(
        "start",
        job_dir=folder.path,
        plan=for_node(plan, "login").encode(),
        secret_env=secrets,
        token="t" * 64,
    )
    return plan


def evidence(folder):
    return "%s\n%s" % (folder.status(), "\n".join(folder.log_lines("batch")))


def end(folder):
    """Wait for the end of the job, and return its checked status."""

    def ended():
        answer = checked("wait", ask("wait", job_dir=folder.path, seconds=1))
        return answer["status"]["state"] == "ended" and answer["status"]

    return until(ended, 180, lambda: evidence(folder))


def ready(folder):
    """Wait until the head has written its first status."""
    until(
        lambda: folder.status() and folder.status().batch.phase == "starts",
        evidence=lambda: evidence(folder),
    )


def replace_srun(tmp_path, text):
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\n" + text)


def test_a_node_that_cannot_import_mxnet_is_named(state, folder):
    start(folder)
    status = end(folder)
    reason = status["first_failure"]["reason"]
    assert (status["reason"], status["first_failure"]["kind"]) == ("failed", "batch")
    assert reason.startswith(("a: ", "b: ")) and "cannot import MXNet" in reason
    assert not os.path.exists(folder.file("token"))
    assert ask("stop", job_dir=folder.path)["left"] == []


def test_a_node_on_which_nothing_starts_is_named(state, folder, tmp_path):
    replace_srun(tmp_path, 'case "$*" in *nodelist=b*) exit 1;; *) exec sleep 300;; esac')
    start(folder)
    reason = end(folder)["first_failure"]["reason"]
    assert reason.startswith("b: the program of mxcluster on this node has not answered")


# The facts of a node with MXNet, which is absent here.
FACTS = {
    "address_of_default_route": "127.0.0.1",
    "interfaces": {"lo": ["127.0.0.1/8"]},
    "hostname": "here",
    "gpus": 0,
    "python_version": "3.11.2",
    "mxnet": "1.9.1",
    "numpy": "1.23.5",
    "model_zoo": [],
    "fingerprints": {},
}
# The program of a node, which answers with the given facts.
NODE = """
import json, sys
from mxcluster.entry import commands, server
from mxcluster.model import answers, protocol
facts, look = map(json.loads, sys.argv[1:])
commands.FUNCTIONS[protocol.Look] = lambda request: answers.Looked.decode(look)
server.record = lambda request: answers.Recorded.decode({"record": facts})
server.serve(sys.stdout)
"""
# A copy of all that srun sends to a node and back.
WIRE = "exec %s < <(tee -a %s) > >(tee -a %s)\n"
LOOK = {"problems": [], "fits": True, "held": {"ports": {}, "gpus": {}}}


def test_neither_token_nor_secret_crosses_the_network(state, folder, tmp_path):
    """srun and qrsh send their lines in plain text."""
    argv = [sys.executable, "-I", "-c", NODE, json.dumps(FACTS), json.dumps(LOOK)]
    wire = tmp_path / "wire"
    line = WIRE % (" ".join(map(shlex.quote, argv)), wire, wire)
    (tmp_path / "bin" / "srun").write_text("#!/bin/bash\n" + line)
    start(folder, secrets={"PASSWORD": "hunter2-hunter2"})
    end(folder)
    # The nodes have met, so both have the token. Their workers have the secret.
    for number, host in enumerate("ab"):
        path = folder.file("nodes/%s/job-1/worker-%d.env" % (host, number))
        assert os.path.exists(path), evidence(folder)
        with open(path) as stream:
            assert "from secret_env, not written to disk: export PASSWORD=" in stream.read()
    told = wire.read_text()
    assert '"command": "start"' in told and "hunter2" not in told and "t" * 64 not in told
    names = [name for _, _, names in os.walk(folder.path) for name in names]
    assert not {"token", "secret_env.json"} & set(names)


def test_a_cancelled_job_names_the_batch_system(state, folder, tmp_path):
    replace_srun(tmp_path, "exec sleep 300")
    start(folder)
    ready(folder)
    os.system("scancel 7")
    failure = end(folder)["first_failure"]
    assert failure["reason"].startswith("Slurm has ended the job 7: CANCELLED"), failure


def test_stop_ends_the_head(state, folder, tmp_path):
    replace_srun(tmp_path, "exec sleep 300")
    start(folder)
    ready(folder)
    answer = ask("stop", job_dir=folder.path)
    assert answer["status"]["reason"] == "stopped" and answer["left"] == []
    # A head that Slurm ends does not say so. Slurm may see the last moment of a head that obeys.
    until(lambda: "ended: stopped" in evidence(folder), evidence=lambda: evidence(folder))


def test_without_a_controller_the_lease_ends_the_job(state, folder, tmp_path):
    replace_srun(tmp_path, "exec sleep 300")
    start(folder, lease=1)
    until(lambda: folder.status().state == "ended", evidence=lambda: evidence(folder))
    assert folder.status().reason == "lease"
