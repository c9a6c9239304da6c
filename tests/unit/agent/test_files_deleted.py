"""Files of a job's folder that are deleted or altered while the job runs: the job goes on."""
import functools
import json
import os
import shutil
import sys
import time

import pytest

from mxcluster.agent import claims
from mxcluster.agent.folder import WHOLE_PLAN, JobFolder
from mxcluster.kvstore.seal import TOKEN
from tests.unit.agent.jobs import PACKAGE, command_line

pytestmark = pytest.mark.slow

START = 6  # seconds: start_timeout, after which a process without progress file would be blamed
PATIENCE = 30  # seconds, on a busy machine
WORKER = """
import os, time
from mxcluster import events, pulse
pulse.start()
pulse.enter(pulse.SERVING)
log = events.from_env()
while not os.path.exists("go"):
    log.write("batch")
    time.sleep(0.1)
log.write("end")
"""


def altered(path):
    with open(path, "w") as stream:
        stream.write("{torn")


def emptied(path):
    open(path, "w").close()


def aged(path):
    os.utime(path, (1, 1))


def run_job(job, lease):
    """Start a job whose worker writes events and always the same progress, until there is a file `go`."""
    env = {"MXCLUSTER_JOB_DIR": job.path, "MXCLUSTER_ROLE": "worker", "MXCLUSTER_INDEX": "0",
           "PYTHONPATH": PACKAGE}
    job.plan([sys.executable, "-c", WORKER], lease=lease, env=env)
    plan = dict(job.folder.plan(), root=True, timeouts={"start": START, "stall": 0}, files={"groups": "node1 g\n"})
    os.unlink(job.folder.file("plan.json"))
    JobFolder(job.path).prepare(dict(plan, whole=dict(plan)), token="t")
    job.ask_to_start()
    job.until(lambda: os.path.exists(job.folder.file("worker-0.pulse")), PATIENCE)
    job.until(lambda: os.path.exists(job.folder.file("events.jsonl")), PATIENCE)
    return time.monotonic()


# One job for the files that the agent restores: each of them is deleted or altered in turn.
RESTORED = [(name, how) for how in (altered, emptied, os.unlink)
            for name in ("plan.json", WHOLE_PLAN, "status.json", TOKEN, "groups")]
# Files that no content is restored of: the job goes on without what was in them.
OTHERS = [("lease", aged), ("lease", os.unlink), ("worker-0.pulse", altered), ("worker-0.pulse", os.unlink),
          ("worker-0.log", os.unlink), ("events.jsonl", os.unlink), ("reserve", os.unlink),
          ("agent.lock", os.unlink), ("worker-0.env", os.unlink)]


def test_a_job_outlives_its_files(job):
    """Each file in turn is deleted or altered. The job ends well, and a file that others read is as it was."""
    began = run_job(job, lease=60)
    before = {name: open(job.folder.file(name)).read() for name, _ in RESTORED}
    for name, how in OTHERS + RESTORED:
        if name in before:
            job.until(functools.partial(is_as, job, {name: before[name]}), PATIENCE)
        how(job.folder.file(name))
    job.until(functools.partial(is_as, job, before), PATIENCE)
    for name in set(before) - {"status.json"}:
        assert os.stat(job.folder.file(name)).st_mode & 0o777 == 0o600, name
    assert claims.runs(job.folder) and job.ask("plan")["plan"]["job"] == "job-1"
    time.sleep(max(0.0, began + START + 1.5 - time.monotonic()))
    open(job.folder.file("go"), "w").close()
    status = job.end(PATIENCE)
    assert (status["reason"], status["first_failure"]) == ("done", None), job.evidence(status)
    assert "plan.json was deleted or altered, and is restored" in "\n".join(job.folder.log_lines("agent", 99))
    told = [json.loads(line)["event"] for line in open(job.folder.file("events.jsonl"))]
    assert told[0] == "batch" and told[-1] == "end", "the deleted file takes no later event"
    assert not [name for name in os.listdir(job.path) if name in ("lease", TOKEN, "reserve")]


def test_a_deleted_lease_is_no_renewal(job):
    """Somebody who deletes the file again and again does not keep the job."""
    run_job(job, lease=1)
    job.until(lambda: not delete_lease(job) and job.folder.status()["state"] == "ended", PATIENCE)
    assert job.folder.status()["reason"] == "lease"


def test_a_deleted_folder_is_the_cause(job):
    """The agent makes the folder again, since the controller looks for the reason there."""
    run_job(job, lease=60)
    os.rename(job.path, job.path + ".deleted")  # at once: its processes write into it
    shutil.rmtree(job.path + ".deleted", ignore_errors=True)
    status = job.until(job.folder.status, PATIENCE)
    failure = status["first_failure"]
    assert (failure["role"], failure["kind"]) == ("agent", "folder")
    assert failure["reason"].startswith("somebody has deleted %s" % job.path)
    status = job.end(PATIENCE)
    assert status["reason"] == "failed" and job.nothing_left()
    code, answer = command_line("collect", "--job-dir", job.path, "--output", job.folder.file("out.tar"))
    assert code == 0 and answer["problem"] is None, answer


def delete_lease(job):
    try:
        os.unlink(job.folder.file("lease"))
    except FileNotFoundError:
        pass


def is_as(job, contents):
    try:
        return all(open(job.folder.file(name)).read() == text for name, text in contents.items())
    except OSError:
        return False
