"""Measure the schemes on containers of unequal speed: docker limits their CPU time.

Three workers have QUOTAS of a CPU. The server has a container of its own without a limit. Groups,
shares and initial batch sizes come from a profile, which measures the workers as it does any slow
machine. Each figure is that of `bench.unequal`.
"""

import json

from bench import unequal
from bench._nodes import limit, nodes, play

QUOTAS = (0.6, 0.6, 0.15)
# A step takes longer than the 100 ms after which docker renews a quota.
MODEL = {"network": "lenet", "batch_size": 128}
JOB = {**MODEL, "measured": 24, "warm_up": 4, "data": "synthetic"}


def main(options):
    """Print the speeds that a profile measures, and the figures of the schemes in turns.

    Args: `options` of the command line, not used.
    """
    with nodes(1 + len(QUOTAS), systemd=False) as folder:
        play(folder, "provision.yml")
        for number, quota in enumerate(QUOTAS, 2):
            limit(number, quota)
        play(folder, "profile.yml", "-e", json.dumps(dict(MODEL, apply=True)))
        profile = json.loads((folder / "state" / "profile.json").read_text())
        speeds = [worker["together"]["samples_per_s"] for worker in profile["workers"]]
        for speed, quota in zip(speeds, QUOTAS):
            print("%.2f CPUs: %.1f samples/s" % (quota, speed), flush=True)
        slowdowns = [max(speeds) / speed for speed in speeds]
        unequal.schemes(folder, folder / "inventory", JOB, slowdowns)
