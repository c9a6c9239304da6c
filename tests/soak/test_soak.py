"""`make soak`: series of healthy jobs, all faults with all kv-stores, resumed jobs, random faults.

MXCLUSTER_SOAK_JOBS is the number of jobs in a series, 50 by default.
"""

import itertools
import json
import os
import random
import statistics
import time

from tests.playbooks.conftest import NET
from tests.playbooks.faults import (
    FAULTS,
    KVS,
    NETWORK,
    TO_SAVING,
    Fault,
    Struck,
    last_checkpoint,
    nothing_left,
    suffer,
)
from tests.playbooks.wires import Wires

ALL = [(name, kv) for name, fault in FAULTS.items() for kv in fault.kvs]
JOBS = int(os.environ.get("MXCLUSTER_SOAK_JOBS", "50"))


def test_healthy_jobs_in_a_row(project):
    """A series of jobs with all kv-stores leaves no processes and no temporary files.

    The agents of the last jobs are no larger than those of the first.
    """
    fault = {"none": Fault(None, None, [], program=True, num_epochs=2)}
    places = project.tmp, project.path / ".state" / "local" / "tmp"
    temporary = [sorted(place.glob("*")) for place in places]
    sizes = []
    for number, kv in zip(range(JOBS), itertools.cycle(KVS)):
        began, size = time.time(), 0
        job = Struck(project, "none", kv, "healthy-%d" % number, fault)
        while job.process.poll() is None:
            assert time.time() < began + 300, job.evidence()
            size = max(size, job.agents_memory())
            time.sleep(0.2)  # between two looks at the memory
        job.reader.join()
        verdict = job.verdict()
        assert job.process.returncode == 0 and verdict["ok"], job.evidence()
        assert verdict["left"] and not any(verdict["left"].values()), verdict
        nothing_left(job)
        assert [sorted(place.glob("*")) for place in places] == temporary, (
            "leftover temporary files"
        )
        sizes.append(size)
        print(
            "healthy: job %d, %s, %.1f s, agents up to %.1f MiB"
            % (number, kv, time.time() - began, size),
            flush=True,
        )
    assert 0 < max(sizes) < min(sizes[: len(KVS)]) + 2, sizes


def test_all_faults_with_all_schemes(project):
    times = {}
    for number, (name, kv) in enumerate(ALL):
        times.setdefault(name, []).append(suffer(project, name, kv, "all-%d" % number))
    print(
        "\n| fault | jobs | nothing runs after: median, max | ansible-playbook is back after: "
        "median, max |"
    )
    for name, found in times.items():
        gone, ended = zip(*found)
        print(
            "| %s | %d | %.1f s, %.1f s | %.1f s, %.1f s |"
            % (
                name,
                len(found),
                statistics.median(gone),
                max(gone),
                statistics.median(ended),
                max(ended),
            ),
            flush=True,
        )


def test_all_faults_of_the_network(project):
    wires = Wires(project)
    try:
        for number, (name, kv) in enumerate(zip(NETWORK, itertools.cycle(KVS))):
            suffer(project, name, kv, "network-%d" % number, NETWORK, wires)
            wires.mend()
    finally:
        wires.close()


def test_what_a_fault_cut_off_goes_on(project):
    """A job ended by any fault resumes from its last complete checkpoint.

    Each resumed job has another number of workers and servers.
    """
    for number, (name, kv) in enumerate(zip(TO_SAVING, itertools.cycle(KVS))):
        job, on = "saving-%d" % number, "saving-%d-on" % number
        suffer(project, name, kv, job, TO_SAVING)
        whole = last_checkpoint(project, job)
        result, run = project.train(
            resume=job,
            job_id=on,
            num_epochs=whole.epoch + 2,
            num_workers=1 + number % 4,
            num_servers=1 + number // 4 % 2,
        )
        assert result.code == 0 and "after epoch %d" % whole.epoch in result.output, result.output
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        assert {event["epoch"] for event in events if event["event"] == "epoch"} == {
            whole.epoch,
            whole.epoch + 1,
        }
        print("goes on: %s, %s, after epoch %d" % (name, kv, whole.epoch), flush=True)


def test_what_was_stopped_while_it_saved_goes_on_in_another_cluster(project):
    """A job stopped while it saves resumes on a changed cluster.

    One node is removed from the inventory, and another one has a new address.
    """
    node4 = (
        "        node4:\n          node_address: %s.14\n          worker_group: second pair\n" % NET
    )
    changed = project.inventory("changed", **{node4: "", NET + ".12": NET + ".22"})
    for number, kv in enumerate(KVS):
        job, on = "stopped-%d" % number, "stopped-%d-on" % number
        process = project.start(
            "train.yml", "-e", json.dumps(dict(kv=kv, job_id=job, savemodel=True, num_epochs=2000))
        )
        project.until(process, lambda job=job: last_checkpoint(project, job))
        time.sleep(0.03 * number)  # each job is stopped at another moment
        stopped = project.run("stop.yml", "-e", "job=" + job)
        output = project.finish(process)
        assert stopped.code == 0 and process.returncode != 0 and "stopped on request" in output, (
            stopped.output + output
        )
        whole = last_checkpoint(project, job)
        result, run = project.train(
            "-i", changed, resume=job, job_id=on, num_epochs=whole.epoch + 2
        )
        assert result.code == 0 and "after epoch %d" % whole.epoch in result.output, result.output
        plan = json.loads((run / "plan.json").read_text())
        assert plan["workers"] == 3 and plan["nodes"]["node2"]["address"] == NET + ".22", plan
        print("goes on elsewhere: %s, after epoch %d" % (kv, whole.epoch), flush=True)


def test_an_agent_does_not_grow(project):
    """The memory of agents does not grow during a job of several minutes."""
    job = Struck(project, "worker killed", "dist_gsync", "agents-memory")
    job.until(job.trains)
    sizes = [job.agents_memory()]
    for _ in range(12):
        time.sleep(15)
        sizes.append(job.agents_memory())
    job.run()
    print("agents take, in MiB: %s" % " ".join("%.1f" % size for size in sizes), flush=True)
    assert 0 < max(sizes) < sizes[0] + 2, sizes


def test_jobs_with_random_faults_in_a_row(project):
    """After each random fault, the next job starts at once."""
    dice = random.Random(1)
    for number in range(JOBS):
        suffer(project, *dice.choice(ALL), "random-%d" % number)
    result, _ = project.train(kv="dist_gsync", job_id="after-all")
    assert result.code == 0, result.output
