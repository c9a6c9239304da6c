"""Figures of a job's run folder, for the column "what was seen"."""

import json

from mxcluster.model.events import End, Event, Usage


def events(run):
    """Return the events of a run folder. Unknown kinds are left out."""
    lines = (run / "events.jsonl").read_text().splitlines()
    return [Event.decode(json.loads(line)) for line in lines]


def plan(run):
    """Return the workers of a run folder's plan, as JSON."""
    processes = json.loads((run / "plan.json").read_text())["processes"]
    return [one for one in processes if one["role"] == "worker"]


def described(run):
    """Return the GPUs, speed, accuracy and GPU memory of a job as text."""
    found = events(run)
    ends = [one for one in found if isinstance(one, End)]
    memory = [one.gpu_memory for one in found if isinstance(one, Usage) and one.gpu_memory]
    speed = sum(one.samples_per_s or 0 for one in ends)
    accuracies = [one.accuracy for one in ends if one.accuracy is not None]
    used = " and ".join(
        "GPU " + ",".join(map(str, one["gpus"])) if one["gpus"] else "CPU" for one in plan(run)
    )
    parts = ["workers on " + used, "%.0f samples/s" % speed]
    parts += ["accuracy %.3f" % min(accuracies)] if accuracies else []
    parts.append(
        "at most %d MiB of a GPU" % (max(memory) >> 20) if memory else "GPU memory unknown"
    )
    return ", ".join(parts)


def speed(run):
    """Return the samples per second of a job's workers together."""
    return sum(one.samples_per_s or 0 for one in events(run) if isinstance(one, End))


def accuracy(run):
    """Return the least accuracy of a job's workers, 0 without one."""
    return min((one.accuracy or 0 for one in events(run) if isinstance(one, End)), default=0)


def last_words(output):
    """Return the end of a playbook's output as one line: what failed, else the last lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("fatal: ", "FAILED", "refused"))]
    return " | ".join((failed or lines)[-3:])[-700:]
