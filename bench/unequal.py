"""Measure the schemes on emulated machines of unequal speed, and a profile of eight workers.

The workers have the speeds 1, 1, 1/2 and 1/4: the program pads their steps (`slowdown`, `step_ms`).
Groups, shares and initial batch sizes come from a profile. A job's figure is the sum of the samples
per second of its workers, over the batches after the warm-up.
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

from bench._nodes import THREADS, say
from bench.scale import inventory

SLOWDOWNS = (1, 1, 2, 4)
STEP_MS = 200
ROUNDS = 3
BATCHES = 24
JOB = {"step_ms": STEP_MS, "measured": BATCHES, "warm_up": 4, "data": "synthetic"}
SCHEMES = {
    "dist_sync": {"kv": "dist_sync"},
    "dist_gsync with a profile": {"kv": "dist_gsync", "data_allocator": 1},
    "dist_sync, balance=batch": {"kv": "dist_sync", "balance": "batch"},
    "dist_sync, balance=deadline": {"kv": "dist_sync", "balance": "deadline"},
}
MOST_SECONDS = 60  # of a profile of eight workers


def main(options):
    """Print the figures of SCHEMES in turns, and the time of a profile.

    Args: `options` of the command line, not used.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "4"
        where = cluster(folder)
        profile(where, {"step_ms": STEP_MS})
        schemes(folder, where, JOB, SLOWDOWNS)
        eight(where)


def cluster(folder, net=None):
    """Provision a cluster of two servers and a worker for each of SLOWDOWNS in `folder`.

    Args: `net` as for `bench.scale.inventory`. Returns the folder of its inventory.
    """
    where = inventory(folder, len(SLOWDOWNS), 1, servers=2, net=net)
    hosts = json.loads((where / "hosts.yml").read_text())
    for number, factor in enumerate(SLOWDOWNS):
        hosts["all"]["children"]["workers"]["hosts"]["node%d" % number]["slowdown"] = factor
    hosts["all"]["vars"]["train_job_env"] = THREADS
    (where / "hosts.yml").write_text(json.dumps(hosts))
    say("ansible-playbook", "-i", where, "provision.yml")
    return where


def profile(where, knobs):
    """Run profile.yml with `knobs` (dict) and apply=true on the inventory `where`."""
    say("ansible-playbook", "-i", where, "profile.yml", "-e", json.dumps(dict(knobs, apply=True)))


def schemes(folder, where, job, slowdowns):
    """Print the samples per second of each of SCHEMES, and their ratios to dist_sync.

    Args: `folder` of the cluster; `where`, its inventory; `job` {knob: value}; `slowdowns` of the
    workers, relative to the fastest.
    """
    # The highest possible ratio to dist_sync: every worker trains at its own speed.
    limit = sum(1 / factor for factor in slowdowns) / (len(slowdowns) / max(slowdowns))
    found = {name: [] for name in SCHEMES}
    for number in range(ROUNDS):
        for place, (name, knobs) in enumerate(SCHEMES.items()):
            job_id = "job-%d-%d" % (number, place)
            extra = json.dumps(dict(job, job_id=job_id, **knobs))
            say("ansible-playbook", "-i", where, "train.yml", "-e", extra)
            path = folder / "runs" / job_id / "events.jsonl"
            found[name].append(samples_per_s(path, len(slowdowns)))
    base = statistics.median(found["dist_sync"])
    for name, speeds in found.items():
        middle = statistics.median(speeds)
        print(
            "%-27s %6.1f samples/s (%.1f to %.1f), %.2f times dist_sync, %.2f of the limit %.2f"
            % (name, middle, min(speeds), max(speeds), middle / base, middle / base / limit, limit),
            flush=True,
        )


def samples_per_s(path, workers):
    """Return the sum of the samples per second of all `workers`, from the events at `path`."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    speeds = [event["samples_per_s"] for event in events if event["event"] == "measured"]
    if len(speeds) != workers:
        sys.exit("%s has the figures of %d workers instead of %d" % (path, len(speeds), workers))
    return sum(speeds)


def eight(where):
    """Print the seconds of a profile of eight workers at their own speed."""
    began = time.monotonic()
    profile(where, {"workers_per_host": 2, "slowdown": 1})
    seconds = time.monotonic() - began
    print("profile.yml -e apply=true with 8 workers: %.0f s" % seconds, flush=True)
    if seconds > MOST_SECONDS:
        sys.exit("the profile took more than %d s" % MOST_SECONDS)
