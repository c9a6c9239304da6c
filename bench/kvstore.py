"""dist_gsync with one group of all against stock dist_sync, and what polling costs.

Both train the same network with the same padded steps, in turns, so that both meet the same noise of the machine.
"""

import json
import pathlib
import statistics
import tempfile

from tests.training.environments import mxnet_environment
from tests.training.loopback import Job

WORKERS, STEPS, ROUNDS, PAD = 4, 45, 3, 0.2
NETWORKS = (("mlp", 32), ("resnet20", 2))


def main():
    """Prints one line for each network."""
    python = mxnet_environment("1.9.1").python
    for network, batch in NETWORKS:
        speeds, polling, late = {"dist_sync": [], "dist_gsync": []}, [], 0
        for _ in range(ROUNDS):
            for kv, found in speeds.items():
                with tempfile.TemporaryDirectory() as folder:
                    results, job = run(python, pathlib.Path(folder), kv, network, batch)
                    found.append(sum(result["samples_per_s"] for result in results))
                    late += sum(result["late"] for result in results)
                    last = {event["index"]: event for event in job.events("kv")}
                    polling += [event["polling_s"] / event["seconds"] for event in last.values()]
        ratios = [ours / stock for ours, stock in zip(speeds["dist_gsync"], speeds["dist_sync"])]
        print("%-9s %d workers, steps of %.0f ms or more: gsync %.1f samples/s, dist_sync %.1f; gsync/dist_sync median %.3f "
              "(%.3f .. %.3f); polling %.1f %% of a worker's time (at most %.1f %%); late steps %d of %d"
              % (network, WORKERS, PAD * 1000, statistics.median(speeds["dist_gsync"]),
                 statistics.median(speeds["dist_sync"]), statistics.median(ratios), min(ratios), max(ratios),
                 100 * statistics.mean(polling), 100 * max(polling), late, 2 * ROUNDS * WORKERS * STEPS), flush=True)


def run(python, folder, kv, network, batch):
    """One job; returns what its workers measured, and the job."""
    script = pathlib.Path(__file__).with_name("padded_steps.py")
    job = Job(python, folder, script, kv, [0] * WORKERS, arguments=[kv, network, batch, STEPS, PAD, folder / "worker"])
    job.succeed(180)
    return [json.loads((folder / ("worker-%d.json" % index)).read_text()) for index in range(WORKERS)], job
