"""Compare the schemes on emulated machines of unequal speed, with compare.yml.

The workers have the speeds 1, 1, 1/2 and 1/4, as in `bench.unequal`. Groups and shares come from a
profile. The tasks, their seeds and their rates are those of TASKS, files for `-e @file`. The files
of the benchmark stay in .state/bench/compare, so a second run continues an interrupted benchmark.

Each task has about 90 jobs. Side by side, the two took 94 and 114 minutes.
"""

import json
import shutil
import sys

import yaml

from bench._nodes import PROJECT, say
from bench.unequal import cluster, profile

# Also a small batch of one sample (balance=deadline) is padded far beyond its real pass, to 10 ms
# against 0.2 ms (mlp) or 0.4 ms (lenet), so that a busy machine makes few of them late.
STEP_MS = {"digits": 160, "warped": 80}
TASKS = {"digits": "examples/compare-digits.yml", "warped": "examples/compare-warped.yml"}
MODEL = ("data", "network", "batch_size")  # the knobs of a task that its profile needs
NETS = {"digits": 84, "warped": 85}  # so that both tasks can run at the same time


def main(options):
    """Print the table of each of TASKS, medians with quartiles; its last line names the report.

    Args: `options` of the command line, whose `task` names the only task to run.
    """
    if options.task and options.task not in TASKS:
        sys.exit("--task %s is unknown: name one of %s" % (options.task, ", ".join(TASKS)))
    for task in [options.task] if options.task else TASKS:
        output = say(*command(task, _inventory(task)))
        print(output[output.rindex("sweep %s:" % task) :], flush=True)


def knobs(task):
    """Return {knob: value} of one of TASKS."""
    return yaml.safe_load((PROJECT / TASKS[task]).read_text())


def command(task, where):
    """Return the command line that begins or continues the comparison of `task`.

    Args: `where` the folder of the inventory.
    """
    own = json.dumps({"sweep": task, "step_ms": STEP_MS[task]})
    return (
        *("ansible-playbook", "-i", where, "compare.yml"),
        *("-e", "@%s" % (PROJECT / TASKS[task]), "-e", own),
    )


def _inventory(task):
    """Return the folder of the inventory of `task`; without a profile, make the cluster anew."""
    folder = PROJECT / ".state" / "bench" / "compare" / task
    where = folder / "inventory"
    if not (folder / "state" / "profile.json").exists():
        shutil.rmtree(folder, ignore_errors=True)  # left by a benchmark that ended early
        where = cluster(folder, NETS[task])
        given = knobs(task)
        profile(where, {"step_ms": STEP_MS[task], **{name: given[name] for name in MODEL}})
    return where
