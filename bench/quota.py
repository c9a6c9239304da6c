"""Measure the schemes on containers of unequal speed: docker limits their CPU time.

Three workers have QUOTAS of a CPU. The server has a container of its own without a limit, so its
CPU time counts in no quota of a worker. Each worker is also measured alone under dist_sync with the
server in its container. Groups, shares and initial batch sizes come from a profile, which measures
the workers as it does any slow machine. `bench._ground` says how the schemes are measured.
"""

import json

from bench._ground import Ground, Length, compare
from bench._nodes import limit, nodes, play

QUOTAS = (0.6, 0.6, 0.15)
BATCH = 128  # A step takes longer than the 100 ms after which docker renews a quota.
MODEL = {"network": "lenet", "data": "synthetic"}
START, WARM_UP = 15, 10  # seconds, as in unequal; MXNet loads slowly under a quota


def main(options):
    """Print the speeds that a profile measures, and the figures of the schemes.

    Args: `options` of the command line: `turns`, `seconds` and `start`.
    """
    with nodes(1 + len(QUOTAS), systemd=False) as folder:
        play(folder, "provision.yml")
        for number, quota in enumerate(QUOTAS, 2):
            limit(number, quota)
        knobs = dict(MODEL, batch_size=BATCH, apply=True)
        play(folder, "profile.yml", "-e", json.dumps(knobs))
        profile = json.loads((folder / "state" / "profile.json").read_text())
        speeds = [worker["together"]["samples_per_s"] for worker in profile["workers"]]
        for speed, quota in zip(speeds, QUOTAS):
            print("profile: %.2f CPUs, %.1f samples/s" % (quota, speed), flush=True)
        ground = Ground(
            "quota",
            folder,
            folder / "inventory",
            MODEL,
            BATCH,
            Length(options.start or START, WARM_UP, options.seconds),
            fastest=["node2", "node3"],
            inside=True,
        )
        compare(ground, options.turns)
