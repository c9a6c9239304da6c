"""Turn the events of a run into the series and tables (lists and dicts) of the report."""

from typing import Any, Dict, Iterable, List, Tuple

Json = Dict[str, Any]
Points = List[Tuple[float, float]]

MOST_POINTS = 600


def collect(plan: Json, events: List[Json]) -> Json:
    """Return the data of the report from the `events` of a job.

        {"begin": unix seconds of the first event or None,
         "workers": {index: {"loss"|"speed"|"accuracy": [(seconds since begin, value)],
                             "start"|"end"|"kv": last event or {}}},
         "y": {group: the group's entry of `y_histograms`},
         "balance": [balance events],
         "notes": [note events]}

    The function smooths losses and speeds, and thins each series to about MOST_POINTS points.
    """
    begin = min([event["time"] for event in events], default=None)
    workers: Dict[Any, Json] = {
        process["index"]: {
            "loss": [],
            "speed": [],
            "accuracy": [],
            "start": {},
            "end": {},
            "kv": {},
        }
        for process in plan["processes"]
        if process["role"] == "worker"
    }
    for event in events:
        worker = workers.get(event.get("index")) if event.get("role") == "worker" else None
        if worker is None:
            continue
        moment = event["time"] - begin
        if event["event"] in ("start", "end", "kv"):
            worker[event["event"]] = event
        for kind, field, name in (
            ("batch", "loss", "loss"),
            ("batch", "samples_per_s", "speed"),
            ("epoch", "accuracy", "accuracy"),
            ("end", "accuracy", "accuracy"),
        ):
            if event["event"] == kind and event.get(field) is not None:
                worker[name].append((moment, float(event[field])))
    for worker in workers.values():
        worker["loss"] = smooth(worker["loss"])
        worker["speed"] = smooth(worker["speed"])
    return {
        "begin": begin,
        "workers": workers,
        "y": y_histograms(events),
        "balance": [
            event
            for event in events
            if event["event"] == "balance" and event.get("role") == "worker"
        ],
        "notes": [event for event in events if event["event"] == "note"],
    }


def smooth(points: Points, most: int = MOST_POINTS) -> Points:
    """Return the trailing means of `points`, thinned to about `most` points.

    A mean covers 2 % of the points, or up to 5 points of a short series. Losses and speeds of
    single batches are noisy, and the mean shows their trend.
    """
    span = max(1, min(5, len(points) // 5), len(points) // 50)
    step = max(1, -(-len(points) // most))
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    kept = sorted(set(range(0, len(points), step)) | {len(points) - 1}) if points else []
    return [
        (points[i][0], (sums[i + 1] - sums[max(0, i + 1 - span)]) / min(span, i + 1)) for i in kept
    ]


def y_histograms(events: Iterable[Json]) -> Dict[int, Json]:
    """Return {group: histogram of the group's Y on all servers} for dist_gsync.

        {"updates": number, "counts": {Y: number}, "mean": mean Y, None without an update,
         "dropped": number of updates that `gsync_max_y` dropped}

    Y is the number of a parameter's updates since the group's last update. Dropped updates count in
    "dropped" only. An event of a server holds the counts since the start of the job, so the
    function uses only the last event of each server and group.
    """
    last = {
        (event.get("index"), event["group"]): event for event in events if event["event"] == "gsync"
    }
    groups: Dict[int, Dict[int, int]] = {}
    dropped: Dict[int, int] = {}
    for (_, group), event in sorted(last.items()):
        counts = groups.setdefault(group, {})
        for y, count in event.get("y", {}).items():
            counts[int(y)] = counts.get(int(y), 0) + count
        dropped[group] = dropped.get(group, 0) + sum(event.get("dropped", {}).values())
    return {
        group: {
            "updates": sum(counts.values()),
            "counts": dict(sorted(counts.items())),
            "mean": sum(y * count for y, count in counts.items()) / sum(counts.values())
            if sum(counts.values())
            else None,
            "dropped": dropped[group],
        }
        for group, counts in groups.items()
        if sum(counts.values()) or dropped[group]
    }


def unheard_groups(plan: Json, events: Iterable[Json]) -> List[str]:
    """Return a warning for each group with more dropped updates than applied updates."""
    return [
        "group %s: the servers dropped %d of %d updates, because Y was above gsync_max_y=%s. "
        "The job learned %s from this group: give a larger gsync_max_y"
        % (
            group_label(plan, group),
            found["dropped"],
            found["dropped"] + found["updates"],
            plan["options"].get("gsync_max_y"),
            "little" if found["updates"] else "nothing",
        )
        for group, found in sorted(y_histograms(events).items())
        if found["dropped"] > found["updates"]
    ]


def group_label(plan: Json, group: int) -> str:
    """Return the label (str) of the group number `group`, or this number if no label exists."""
    labels = plan.get("group_labels") or []
    return str(labels[group]) if group < len(labels) else str(group)


def label(plan: Json, index: int) -> str:
    """Return the legend text of the worker `index`, such as "worker-1, node1, group a".

    If all workers form one group, the text does not name the group.
    """
    process = next(p for p in plan["processes"] if p["role"] == "worker" and p["index"] == index)
    words = [process["name"], process["host"]]
    if several_groups(plan):
        words.append("group %s" % group_label(plan, process["group"]))
    return ", ".join(words)


def several_groups(plan: Json) -> bool:
    """Return True if the workers form more than one group."""
    return len(plan.get("groups") or []) > 1
