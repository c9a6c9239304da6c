"""A live server accepts only sealed messages of its job, with real processes and real MXNet."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from mxcluster import exit_codes
from tests.often import seldom
from tests.training.conftest import newest_often
from tests.training.environments import ENDS, VERSIONS, mxnet_environment
from tests.training.loopback import SCRIPTS, Job, log_of, run_alone
from tests.waiting import until


def test_every_optimizer_of_mxnet_arrives_as_it_was(every_mxnet, tmp_path):
    """All attributes arrive, with their types, exact numbers and shared parts."""
    out = run_alone(every_mxnet.python, "travels.py", MXCLUSTER_JOB_DIR=str(tmp_path)).stdout
    checked, classes = re.search(r"CHECKED (\d+) OF (\d+)", out).groups()
    assert int(checked) >= 25 * int(classes) and int(classes) >= 15, out


@newest_often
@pytest.mark.parametrize(
    "kv, groups, weight",
    [("dist_sync", (0, 0), "-3"), ("dist_async", (0, 0), "-3"), ("dist_gsync", (0, 1), "-7")],
)
def test_a_live_server_runs_no_strangers_code(every_mxnet, tmp_path, kv, groups, weight):
    """No file is written, each refusal is logged, and the job succeeds with its own optimizer."""
    evil = tmp_path / "evil"
    more = {"arguments": [kv, evil], "environment": {"MXCLUSTER_GSYNC_Y": "one"}}
    job = Job(every_mxnet.python, tmp_path / "job", "stranger.py", kv, groups, 2, **more)
    job.succeed()
    assert not evil.exists()
    assert [path for path in tmp_path.glob("**/*") if "profile" in path.name] == []
    servers = sorted((tmp_path / "job").glob("server-*.log"))
    assert len(servers) == 2 * len(set(groups))
    for log in (path.read_text() for path in servers):
        for words in (
            "from one of 127.0.0.1",
            "is not sealed",
            "sealed with a wrong token (sender worker-0)",
            "an earlier message of worker-0",
        ):
            assert words in log, (words, job.evidence())
    # Eight or four steps of 0.5, as dist_sync sums the gradients of both workers; a group of one
    # counts for both.
    logs = [log_of(tmp_path / "job", "worker-%d" % index) for index in (0, 1)]
    values = [re.search(r"weight (\S+)", log).group(1) for log in logs]
    assert values == [weight, weight], (values, job.evidence())
    assert len([event for event in job.events("note") if "refused" in event["text"]]) >= 2 * 10


@newest_often
@pytest.mark.parametrize(
    "kv, groups, which, words",
    [
        ("dist_sync", (0, 0), "evil", "the data is not the JSON of an optimizer"),
        seldom("dist_sync", (0, 0), "class", "objects of posix:system, which servers do not"),
        seldom("dist_async", (0, 0), "dict", "must contain an mxnet.optimizer.Optimizer, not a d"),
        seldom("dist_sync", (0, 0), "kind", "servers know no such message"),
        seldom("dist_gsync", (0, 1), "stock", "accept an optimizer only from mxcluster's kv-store"),
    ],
)
def test_a_workers_own_message_that_a_server_refuses_ends_the_job(
    every_mxnet, tmp_path, kv, groups, which, words
):
    """The worker would train on with another optimizer than the script's, or without any."""
    evil = tmp_path / "evil"
    job = Job(
        every_mxnet.python, tmp_path / "job", "insider.py", kv, groups, arguments=[kv, which, evil]
    )
    assert job.wait()["server-0"] == exit_codes.UPDATER_FAILED, job.evidence()
    log = log_of(tmp_path / "job", "server-0")
    kind = "unheard" if which == "kind" else "optimizer"
    assert "the message %r of worker-0 was refused: " % kind in log and words in log, log
    assert not evil.exists() and "went on" not in job.evidence(), job.evidence()


@newest_often
@pytest.mark.parametrize("kv", ["dist_sync", "dist_async", "dist_gsync", "dist_ssync"])
def test_optimizers_train_on_the_servers(every_mxnet, tmp_path, kv):
    """Worker 1 has another Python and numpy, if this machine has them.

    The same steps of a local updater give the same array under dist_sync.
    """
    other = every_mxnet.python
    if every_mxnet.version == VERSIONS[ENDS[0]][0]:
        other = mxnet_environment(ENDS[0]).python
    (tmp_path / "script").mkdir()
    for script in ("my_optimizers.py", "optimizers_train.py"):
        shutil.copy(str(SCRIPTS / script), str(tmp_path / "script"))
    path, groups = tmp_path / "script" / "optimizers_train.py", [0, int(kv == "dist_gsync")]
    more = {"arguments": [kv], "worker_python": {1: other}, "staleness": 1}
    classes = "my_optimizers:Stateful"
    more["environment"] = {"MXCLUSTER_SERVER_CLASSES": classes, "MXCLUSTER_GSYNC_Y": "one"}
    Job(every_mxnet.python, tmp_path, path, kv, groups, **more).succeed()
    for index in (0, 1):
        log = log_of(tmp_path, "worker-%d" % index)
        found = json.loads(re.search("FOUND (.*)", log).group(1))
        assert {"momentum", "adam", "dcasgd", "schedule", "declared"} <= set(found), log
        assert ("multi-precision" in found) == (kv in ("dist_sync", "dist_async")), log
        for name, (trained, alone) in found.items():
            assert np.allclose(trained, [[1, -2], [0.5, 3]], atol=0.5), (name, trained, log)
            if kv == "dist_sync":
                assert np.allclose(trained, alone, atol=0.01 if "multi" in name else 1e-5), found


SVRG = "mxnet.contrib.svrg_optimization.svrg_optimizer:"


def test_an_optimizer_that_mxnet_itself_does_not_import(mxnet_new, tmp_path):
    """A worker refuses it by the servers' list, although the script has imported it.

    Once the worker accepted and the servers refused it, and the job ended with NaN and status 0.
    """
    job = Job(mxnet_new.python, tmp_path, "svrg.py", "dist_sync", (0, 0), arguments=["dist_sync"])
    codes = job.wait(grace=1)
    assert 1 in (codes["worker-0"], codes["worker-1"]) and codes["server-0"] != 0, job.evidence()
    assert "ValueError: the servers would refuse this optimizer" in job.evidence(), job.evidence()
    for name in ("_SVRGOptimizer", "_AssignmentOptimizer"):
        assert '"%s%s"' % (SVRG, name) in job.evidence(), job.evidence()


def test_a_server_without_a_token_does_not_start(mxnet_new, tmp_path):
    removed = ("sh", "-c", 'rm -f token; exec "$@"', "sh")  # before the start of each process
    script = "no_kvstore.py"
    job = Job(mxnet_new.python, tmp_path, script, "dist_sync", [0], wrap=removed)
    ended = job.processes["server-0"].poll
    assert until(ended, seconds=300, evidence=job.evidence) == 1, job.evidence()
    assert "the job's token cannot be read from" in log_of(tmp_path, "server-0"), job.evidence()


@newest_often
def test_everybody_listens_on_his_own_address_only(every_mxnet, tmp_path):
    """ps-lite binds DMLC_NODE_HOST, and the scheduler DMLC_PS_ROOT_URI, not all addresses."""
    # The job trains for ten minutes, until the end of the test ends it.
    arguments = ["module", "dist_async", 3000, tmp_path / "worker", "pause=0.2"]
    scheme = "small_training.py", "dist_async", [0, 0], 2
    job = Job(every_mxnet.python, tmp_path, *scheme, arguments=arguments)
    seen = {name: set() for name in job.processes}

    def all_listen():
        assert not job.has_failed(), job.evidence()
        for name, process in job.processes.items():
            seen[name].update(listening(process.pid))
        return all(seen.values())

    until(all_listen, seconds=300, evidence=job.evidence)
    assert {name: {address for address, _ in found} for name, found in seen.items()} == {
        name: {address} for name, address in job.addresses.items()
    }, seen


def listening(pid):
    """Return {(address, port)} on which a process listens, by `ss -ltnp`."""
    lines = subprocess.check_output(["ss", "-Hltnp"], universal_newlines=True).splitlines()
    return {tuple(line.split()[3].rsplit(":", 1)) for line in lines if "pid=%d," % pid in line}


def test_a_note_warns_of_mxnets_dcasgd(every_mxnet, tmp_path):
    """The first server writes the note, to its log and to the report, for every scheme."""
    done = run_alone(every_mxnet.python, "advised.py", MXCLUSTER_JOB_DIR=str(tmp_path))
    found = json.loads(done.stdout.splitlines()[-1])
    for kind in ("optimizer", "training"):
        (note,) = found[kind]
        assert "the optimizer DCASGD does no delay compensation on servers" in note
        assert "kv=dist_gsync" in note and "gsync_compensation" in note
        assert "mxcluster: " + note in done.stderr
    assert found["others"] == found["further servers"] == []
