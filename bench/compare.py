"""Compare the schemes on emulated machines of unequal speed, with compare.yml.

The workers have the speeds 1, 1, 1/2 and 1/4, as in `bench.unequal`. Groups and shares come from a
profile. The files stay in .state/bench/compare, so a second run continues an interrupted benchmark.
"""

import json
import shutil
import sys

from bench._nodes import PROJECT, say
from bench.unequal import cluster, profile

STEP_MS = 80
TASKS = {
    "digits": {"data": "digits", "network": "mlp", "num_epochs": 10, "target": 0.95},
    "warped": {"data": "warped", "network": "lenet", "num_epochs": 8, "target": 0.8},
}
JOB = {
    "step_ms": STEP_MS,
    "data_allocator": 1,
    "lr_factors": "1/W,1/2,1,2",
    "seeds": 5,
    "max_jobs": 100,
}
NETS = {"digits": 84, "warped": 85}  # so that both tasks can run at the same time


def main(options):
    """Print the table of each of TASKS; its last line names the report.

    Args: `options` of the command line, whose `task` names the only task to run.
    """
    if options.task and options.task not in TASKS:
        sys.exit("--task %s is unknown: name one of %s" % (options.task, ", ".join(TASKS)))
    for task in [options.task] if options.task else TASKS:
        folder = PROJECT / ".state" / "bench" / "compare" / task
        where = folder / "inventory"
        if not (folder / "state" / "profile.json").exists():
            shutil.rmtree(folder, ignore_errors=True)  # left by a benchmark that ended early
            where = cluster(folder, NETS[task])
            profile(where, {"step_ms": STEP_MS, **_model(task)})
        sweep = folder / "runs" / task
        knobs = {"sweep": task}
        if not (sweep / "sweep.json").exists():
            knobs.update(JOB, **TASKS[task])
        output = say("ansible-playbook", "-i", where, "compare.yml", "-e", json.dumps(knobs))
        print(output[output.rindex("sweep %s:" % task) :], flush=True)


def _model(task):
    return {name: TASKS[task][name] for name in ("data", "network")}
