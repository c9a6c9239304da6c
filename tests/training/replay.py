"""Grouping-SGD once more, in numpy and from the paper's definition, to hold the servers' work against.

It shares no code with mxcluster: it takes the order in which merges were completed from the servers' trace, the
gradients from the workers, and computes every Y, scale and weight itself.
"""

import collections

import numpy as np


def load(path):
    """What a worker of small_training.py saved: names, weights[i], gradients[t][i], history[t][i], started[t]."""
    file = np.load(path)
    parameters = len(file["names"])
    steps = len(file["started"])
    return {"names": list(file["names"]), "weights": [file["weight_%d" % i] for i in range(parameters)],
            "gradients": [[file["gradient_%d_%d" % (t, i)] for i in range(parameters)] for t in range(steps)],
            "history": [[file["history_%d_%d" % (t, i)] for i in range(parameters)] for t in range(steps)],
            "started": file["started"]}


def replay(merges, workers, groups, initial, rescale, lr, momentum=0.0, wd=0.0, no_decay=(), fixed_y=False, lr_of_round=None):
    """Replays `merges` ({"group", "parameter"} in order of completion).

    Returns (the Y and scale of each merge, what each group pulls after each of its steps: snapshots[group][t][i]).
    """
    weights = [w.astype("float64") for w in initial]
    velocity = [np.zeros_like(w) for w in weights]
    updates = collections.Counter()
    last = collections.Counter()
    done = collections.Counter()
    batches = collections.Counter()
    snapshots = {g: [[None] * len(weights) for _ in workers[0]["gradients"]] for g in set(groups)}
    facts, newest_round = [], 0
    for merge in merges:
        g, p = merge["group"], merge["parameter"]
        members = [i for i, group in enumerate(groups) if group == g]
        step = done[g, p]
        y = 1 if fixed_y else updates[p] + 1 - last[g, p]
        scale = rescale / (len(members) * y)
        total = sum(workers[i]["gradients"][step][p].astype("float64") for i in members)
        batches[p] += len(members)
        newest_round = max(newest_round, -(-batches[p] // len(groups)))
        rate = lr_of_round(newest_round) if lr_of_round else lr
        decay = 0.0 if p in no_decay else wd
        velocity[p] = momentum * velocity[p] - rate * (scale * total + decay * weights[p])
        weights[p] = weights[p] + velocity[p]
        updates[p] += 1
        last[g, p] = updates[p]
        done[g, p] += 1
        snapshots[g][step][p] = weights[p]
        facts.append((y, scale))
    return facts, snapshots
