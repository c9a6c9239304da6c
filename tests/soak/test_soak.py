"""All faults with all schemes, and jobs in a row with a random fault each: `make soak`."""

import os
import random
import statistics
import time

from tests.playbooks.faults import FAULTS, Struck, suffer

ALL = [(name, kv) for name, fault in FAULTS.items() for kv in fault.kvs]
JOBS = int(os.environ.get("MXCLUSTER_SOAK_JOBS", "50"))


def test_all_faults_with_all_schemes(project):
    times = {}
    for number, (name, kv) in enumerate(ALL):
        times.setdefault(name, []).append(suffer(project, name, kv, "all-%d" % number))
    print("\n| fault | jobs | nothing runs after: median, max | ansible-playbook is back after: median, max |")
    for name, found in times.items():
        gone, ended = zip(*found)
        print("| %s | %d | %.1f s, %.1f s | %.1f s, %.1f s |" % (name, len(found), statistics.median(gone), max(gone),
                                                               statistics.median(ended), max(ended)), flush=True)


def test_an_agent_does_not_grow(project):
    """A job of some minutes: once its processes run, its agents take no more memory."""
    job = Struck(project, "worker killed", "dist_gsync", "agents-memory")
    job.until(job.trains, 60)
    sizes = [job.agents_memory()]
    for _ in range(12):
        time.sleep(15)
        sizes.append(job.agents_memory())
    job.run()
    print("agents take, in MiB: %s" % " ".join("%.1f" % size for size in sizes), flush=True)
    assert 0 < max(sizes) < sizes[0] + 2, sizes


def test_jobs_with_random_faults_in_a_row(project):
    """Whatever happens to one, the next one starts at once."""
    dice = random.Random(1)
    for number in range(JOBS):
        suffer(project, *dice.choice(ALL), "random-%d" % number)
    result, _ = project.train(kv="dist_gsync", job_id="after-all")
    assert result.code == 0, result.output
