"""Measure the schemes on emulated machines of unequal speed, and a profile of eight workers.

The workers have the speeds 1, 1, 1/2 and 1/4: the program pads their steps (`slowdown`, `step_ms`).
Groups, shares and initial batch sizes come from a profile. `bench._ground` says how the schemes are
measured.
"""

import json
import pathlib
import sys
import tempfile
import time

from bench._ground import Ground, Length, compare
from bench._nodes import THREADS, say
from bench.scale import inventory

SLOWDOWNS = (1, 1, 2, 4)
STEP_MS, BATCH = 200, 32
START, WARM_UP = 10, 10  # seconds: to the first step; until the speeds are steady
MOST_SECONDS = 60  # of a profile of eight workers


def main(options):
    """Print the figures of the schemes, and the time of a profile.

    Args: `options` of the command line: `turns`, `seconds` and `start`.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "4"
        where = cluster(folder)
        knobs = {"step_ms": STEP_MS, "data": "synthetic"}
        profile(where, knobs)
        length = Length(options.start or START, WARM_UP, options.seconds)
        fastest = ["node0", "node1"]
        compare(Ground("unequal", folder, where, knobs, BATCH, length, fastest), options.turns)
        eight(where)


def cluster(folder, net=None, variables=None):
    """Provision a cluster of two servers and four workers in `folder`.

    Args: `net` as for `bench.scale.inventory`; `variables` the host variables of each worker, by
    default those of SLOWDOWNS. Returns the folder of its inventory.
    """
    variables = variables or [{"slowdown": factor} for factor in SLOWDOWNS]
    where = inventory(folder, len(variables), 1, servers=2, net=net)
    hosts = json.loads((where / "hosts.yml").read_text())
    for number, own in enumerate(variables):
        hosts["all"]["children"]["workers"]["hosts"]["node%d" % number].update(own)
    hosts["all"]["vars"]["train_job_env"] = THREADS
    (where / "hosts.yml").write_text(json.dumps(hosts))
    say("ansible-playbook", "-i", where, "provision.yml")
    return where


def profile(where, knobs):
    """Run profile.yml with `knobs` (dict) and apply=true on the inventory `where`."""
    say("ansible-playbook", "-i", where, "profile.yml", "-e", json.dumps(dict(knobs, apply=True)))


def eight(where):
    """Print the seconds of a profile of eight workers at their own speed."""
    began = time.monotonic()
    profile(where, {"workers_per_host": 2, "slowdown": 1})
    seconds = time.monotonic() - began
    print("profile.yml -e apply=true with 8 workers: %.0f s" % seconds, flush=True)
    if seconds > MOST_SECONDS:
        sys.exit("the profile took more than %d s" % MOST_SECONDS)
