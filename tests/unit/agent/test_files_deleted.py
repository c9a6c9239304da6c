"""A job goes on when files of its folder are deleted or altered."""

import functools
import os
import shutil
import sys
import time

import pytest

from mxcluster.agent import claims
from mxcluster.agent.folder import WHOLE_PLAN, JobFolder
from mxcluster.seal import TOKEN
from tests import json_lines
from tests.unit.agent.jobs import PACKAGE, files, in_a_process

pytestmark = pytest.mark.slow

START = 6  # seconds; start_timeout, after which a missing pulse file fails the job
WORKER = """
import os, time
from mxcluster import events, phases
from mxcluster.training import pulse_file
pulse_file.start()
pulse_file.enter(phases.SERVING)
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


def run_job(job):
    """Start a worker that writes events and the same progress until the file `go` exists."""
    env = {
        "MXCLUSTER_JOB_DIR": job.path,
        "MXCLUSTER_ROLE": "worker",
        "MXCLUSTER_INDEX": "0",
        "PYTHONPATH": PACKAGE,
    }
    job.plan(
        [sys.executable, "-c", WORKER],
        lease=60,
        env=env,
        root={"address": "127.0.0.1", "port": 9091},
        timeouts={"start": START, "stall": 0},
        files={"groups": "node1 g\n"},
    )
    plan = job.folder.plan()
    os.unlink(job.folder.file("plan.json"))
    JobFolder(job.path).prepare(files(plan.replaced(whole=plan), token="t"))
    job.ask_to_start()
    job.until(lambda: os.path.exists(job.folder.file("worker-0.pulse")))
    job.until(lambda: os.path.exists(job.folder.file("events.jsonl")))
    return time.monotonic()


# Files that the agent restores: the test deletes or alters each of them in turn.
RESTORED = [
    (name, how)
    for how in (altered, emptied, os.unlink)
    for name in ("plan.json", WHOLE_PLAN, "status.json", TOKEN, "groups")
]
# Files that the agent does not restore: the job goes on without their content.
OTHERS = [
    ("lease", aged),
    ("lease", os.unlink),
    ("worker-0.pulse", altered),
    ("worker-0.pulse", os.unlink),
    ("worker-0.log", os.unlink),
    ("events.jsonl", os.unlink),
    ("reserve", os.unlink),
    ("agent.lock", os.unlink),
    ("worker-0.env", os.unlink),
]


def test_a_job_outlives_deleted_and_altered_files(job):
    """The job ends well, and the agent restores each file that other programs read."""
    began = run_job(job)
    before = {name: open(job.folder.file(name)).read() for name, _ in RESTORED}
    for name, how in OTHERS + RESTORED:
        if name in before:
            job.until(functools.partial(is_as, job, {name: before[name]}))
        how(job.folder.file(name))
    job.until(functools.partial(is_as, job, before))
    for name in set(before) - {"status.json"}:
        assert os.stat(job.folder.file(name)).st_mode & 0o777 == 0o600, name
    assert claims.runs(job.folder) and job.ask("plan")["plan"]["job"] == "job-1"
    job.until(lambda: time.monotonic() > began + START)
    assert job.looks(1.5)["first_failure"] is None
    open(job.folder.file("go"), "w").close()
    status = job.end()
    assert (status["reason"], status["first_failure"]) == ("done", None), job.evidence()
    assert "plan.json was deleted or changed, and the agent has restored the file" in "\n".join(
        job.folder.log_lines("agent", 99)
    )
    # The node's meter, a process of its own, may look once more after the worker's end.
    told = [event["event"] for event in json_lines.complete(job.folder.file("events.jsonl"))]
    told = [kind for kind in told if not kind.endswith("usage")]
    assert told[0] == "batch" and told[-1] == "end", "the deleted file takes no later event"
    assert not [name for name in os.listdir(job.path) if name in ("lease", TOKEN, "reserve")]


def test_a_deleted_lease_file_does_not_renew_the_lease(job):
    """Deleting the lease file again and again does not keep the job alive."""
    job.start("sleep 300", lease=1)
    job.until(lambda: not delete_lease(job) and job.folder.status().state == "ended")
    assert job.folder.status().reason == "lease"


def test_a_deleted_folder_is_the_first_failure(job):
    """The agent makes the folder again, since the controller looks for the reason there."""
    run_job(job)
    # Rename first, since the job's processes write into the folder.
    os.rename(job.path, job.path + ".deleted")
    shutil.rmtree(job.path + ".deleted", ignore_errors=True)
    status = job.until(job.status)
    failure = status["first_failure"]
    assert (failure["role"], failure["kind"]) == ("agent", "folder")
    assert failure["reason"].startswith("%s, the folder of the running job, was deleted" % job.path)
    status = job.end()
    assert status["reason"] == "failed" and job.nothing_left()
    code, answer = in_a_process("collect", job_dir=job.path, output=job.folder.file("out.tar"))
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
