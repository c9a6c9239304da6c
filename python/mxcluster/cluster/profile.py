"""Check and read a profile: measured speeds of workers and servers, and proposed groups.

``profile.yml`` measures the speeds. `complete` adds the noise, groups, shares, placement and
advice. The file `.state/<inventory>/profile.json` stores the profile. The planner reads the profile
with `read`, and compares the profile's workers with the job's workers (`fits`). All functions are
pure.

The measured entries::

    {"schema": 1, "job": str, "time": unix seconds, "network": str, "batch_size": int, "data": str,
     "mxnet": str, "parameters": [number of elements of each parameter, from the lowest layer],
     "workers": [{"host": str, "number": int (which worker of its host, from 0),
                  "alone": {"samples_per_s": float, "spread": float (interquartile range / median)},
                  "together": the same values while all workers compute,
                  "servers": [{"push_s": float, "pull_s": float} of the model, for each server],
                  "exchange_s": float (push and pull of the model, all workers at once)}],
     "servers": [{"host": str, "number": int, "updates_per_s": float (of the whole model)}]}

The entries that `complete` adds::

    {"noise": float, "groups": [[positions in workers]], "labels": [str],
     "shares": [[begin, end] of each worker], "placement": [server of each parameter],
     "advice": [str]}
"""

import json
import statistics
import time
from collections import Counter
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from mxcluster.cluster import files, grouping
from mxcluster.errors import BadInput, refuse, some
from mxcluster.lists import grouped, several
from mxcluster.model import shapes

Json = Dict[str, Any]

SCHEMA = 1
CURE = "run profile.yml again"
# The minimum noise. Groups with a smaller difference of speeds do not justify their processes on
# the servers.
LEAST_NOISE = 0.05
# Limits for the exchange's part of a step. Above MUCH, more servers can help. If the part would be
# below LITTLE even with a single server, one server is enough.
MUCH, LITTLE = 0.25, 0.05
_MOST = 100000  # maximum number of workers, of servers and of parameters


def _above_zero(value: Any) -> float:
    if shapes.number(value) <= 0:
        raise shapes.Wrong("a number above 0", value)
    return float(value)


def _not_negative(value: Any) -> float:
    if shapes.number(value) < 0:
        raise shapes.Wrong("a number of at least 0", value)
    return float(value)


def _schema(value: Any) -> int:
    if value != SCHEMA or isinstance(value, bool):
        raise shapes.Wrong("the schema %d, which this version of mxcluster reads" % SCHEMA, value)
    return SCHEMA


_host = shapes.matching(r"[^\s\x00-\x1f\x7f-\x9f]+", "the name of a host", 253)
_number = shapes.whole(0, _MOST)
# `_measured` checks "samples_per_s", so that the message can name the worker.
_speed = shapes.fields({"spread": _not_negative}, {"samples_per_s": lambda value: value})
_workers = shapes.fields(
    {
        "host": _host,
        "number": _number,
        "alone": _speed,
        "together": _speed,
        "servers": shapes.each(
            shapes.fields({"push_s": _not_negative, "pull_s": _not_negative}), _MOST
        ),
        "exchange_s": _not_negative,
    },
    # Only for a worker with several GPUs: their numbers, and the samples/s of each GPU alone.
    {
        "gpus": shapes.each(_number, _MOST),
        "gpu_speeds": shapes.each(_above_zero, _MOST),
    },
)
_MEASURED = {
    "schema": _schema,
    "job": shapes.words,
    "time": _not_negative,
    "network": shapes.words,
    "batch_size": shapes.whole(1),
    "data": shapes.words,
    "mxnet": shapes.words,
    "parameters": shapes.each(shapes.whole(1), _MOST),
    "workers": shapes.each(_workers, _MOST),
    "servers": shapes.each(
        shapes.fields({"host": _host, "number": _number, "updates_per_s": _above_zero}), _MOST
    ),
}
_ADDED = {
    "noise": _not_negative,
    "groups": shapes.each(shapes.each(_number, _MOST), _MOST),
    "labels": shapes.each(shapes.words, _MOST),
    "shares": shapes.each(shapes.each(_not_negative, 2), _MOST),
    "placement": shapes.each(_number, _MOST),
    "advice": shapes.each(shapes.words),
}


class Fit(NamedTuple):
    """A comparison of a profile with the workers of a job, the result of `fits`."""

    profile: Json
    # The position in the profile of each worker of the job; None if the profile lacks a worker.
    positions: Optional[List[int]]
    note: str  # missing workers with the cure, or workers outside the job; "" without both


def complete(measured: Json, groups: int = 0) -> Json:
    """Check the `measured` entries of a profile, and return the profile with all entries.

    - noise: the median of the workers' "spread" in "together", at least LEAST_NOISE.
    - groups, labels: `grouping.propose` for the speeds in "together". Each worker counts with the
      speed of the slowest worker on its host. So the workers of a host are in one group. The file
      `groups` cannot split a host, because this file lists addresses.
    - shares: `grouping.shares`, cut from [0, 1] in the order of the workers.
    - placement: `grouping.placement` for `server_speeds`.

    Args: `groups` the requested number of groups, 0 for the best number.

    Raises BadInput for a worker without a speed above 0, and for a too large number of groups.
    """
    found = _measured(measured, "the measured profile")
    noise = max(
        LEAST_NOISE,
        float(statistics.median(worker["together"]["spread"] for worker in found["workers"])),
    )
    speeds = speeds_of(found["workers"])
    proposal = grouping.propose(_slowest_of_hosts(found["workers"]), noise, groups)
    servers = server_speeds(found)
    found.update(
        noise=noise,
        groups=proposal.groups,
        labels=proposal.labels,
        shares=[
            list(share)
            for share in files.tile(
                grouping.shares(speeds, proposal.groups), range(len(speeds)), "shares"
            )
        ],
        placement=grouping.placement(found["parameters"], servers) if servers else [],
    )
    return dict(found, advice=["groups: " + proposal.reason] + advice(found))


def read(content: Union[str, Json], name: str = "profile.json") -> Json:
    """Check a profile and return it as a dict.

    Args: `content` the JSON text or the dict of the profile; `name` the file's name in messages.

    Raises BadInput with the cure if the profile is damaged.
    """
    try:
        whole = json.loads(content) if isinstance(content, str) else content
        found = _measured(whole, name)
        found.update(shapes.fields(_ADDED)(whole))
    except (ValueError, RecursionError) as error:
        raise BadInput("%s is damaged (%s): %s" % (name, error, CURE)) from None
    try:
        _check_added(found)
    except BadInput as refusal:
        faults = str(refusal).replace("\n", "; ")
        raise BadInput("%s is damaged (%s): %s" % (name, faults, CURE)) from None
    return found


def of_file(path: str) -> Optional[Json]:
    """Return the checked profile of the file `path`, or None if the file does not exist.

    Raises BadInput with the cure if the profile is damaged.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return read(stream.read(), path)
    except FileNotFoundError:
        return None


def fits(profile: Json, workers: Sequence[Tuple[str, int]]) -> Fit:
    """Compare a profile with the workers of a job, and return the Fit.

    If the profile lacks the speed of a worker, the Fit has None as `positions`, and the cure in
    `note`. If the profile also has other workers, the job's workers keep their groups.

    Args: `profile` the result of `read` or `complete`; `workers` [(host, number)] of the job.
    """
    places = {
        (worker["host"], worker["number"]): position
        for position, worker in enumerate(profile["workers"])
    }
    missing = [name_of(host, number) for host, number in workers if (host, number) not in places]
    if missing:
        return Fit(
            profile,
            None,
            "%s has no speed of %s: %s" % (title(profile), some(missing), CURE),
        )
    there = set(workers)
    gone = [name_of(*worker) for worker in places if worker not in there]
    return Fit(
        profile,
        [places[worker] for worker in workers],
        "%s also has the speeds of %s, which this job leaves out. The job's workers keep their "
        "groups" % (title(profile), some(gone))
        if gone
        else "",
    )


def groups_of(fit: Fit) -> Tuple[List[List[int]], List[str]]:
    """Return (groups, labels) of the job's workers, from fast to slow.

    A group is a list of indices into the job's workers. The function takes the groups of the
    profile, and removes other workers and empty groups.

    Args: `fit` a Fit whose profile has all workers.
    """
    of = {
        position: group
        for group, members in enumerate(fit.profile["groups"])
        for position in members
    }
    groups = [[] for _ in fit.profile["groups"]]  # type: List[List[int]]
    for index, position in enumerate(fit.positions or []):
        groups[of[position]].append(index)
    kept = [(group, label) for group, label in zip(groups, fit.profile["labels"]) if group]
    return [group for group, _ in kept], [label for _, label in kept]


def job_speeds(fit: Fit) -> Dict[str, float]:
    """Return {worker's name: samples/s} of the job's workers, while all workers compute."""
    workers = fit.profile["workers"]
    return speeds_of([workers[position] for position in fit.positions or []])


def speeds_of(workers: Sequence[Json], kind: str = "together") -> Dict[str, float]:
    """Return {worker's name: samples/s} of the profile's `workers`, in their order.

    Args: `kind` "together" or "alone" (see the module's docstring).
    """
    return {
        name_of(worker["host"], worker["number"]): worker[kind]["samples_per_s"]
        for worker in workers
    }


def gpu_speeds(profile: Json) -> Dict[str, Dict[int, float]]:
    """Return {host: {GPU number: samples/s}}, the speed of each GPU alone.

    The profile has these speeds for workers with several GPUs. Other hosts get an empty dict.
    """
    found: Dict[str, Dict[int, float]] = {}
    for worker in profile["workers"]:
        speeds = zip(worker.get("gpus", []), worker.get("gpu_speeds", []))
        found.setdefault(worker["host"], {}).update(speeds)
    return found


def server_speeds(profile: Json) -> Dict[str, float]:
    """Return {server's name: models per second}, in the order of the profile's servers.

    A server's time for one model is the time of the update on the server, plus the median time of
    a worker's push and pull.
    """
    result = {}
    for position, server in enumerate(profile["servers"]):
        moves = [
            worker["servers"][position]["push_s"] + worker["servers"][position]["pull_s"]
            for worker in profile["workers"]
        ]
        seconds = 1 / server["updates_per_s"] + float(statistics.median(moves))
        result["%s server %d" % (server["host"], server["number"])] = 1 / seconds
    return result


def title(profile: Json) -> str:
    """Return the job and date of a profile as text for messages."""
    day = time.strftime("%Y-%m-%d", time.gmtime(min(profile["time"], 253402300799)))
    return "the profile %s of %s" % (profile["job"], day)


def name_of(host: str, number: int) -> str:
    """Return the name of a worker for messages, such as "node1 worker 0"."""
    return "%s worker %d" % (host, number)


def advice(profile: Json) -> List[str]:
    """Return advice about workers, servers and hosts, as sentences from the measured speeds.

    The estimated time of a step is the slowest computation plus the slowest exchange, without any
    overlap.

    Args: `profile` with its groups and noise.
    """
    return _about_gain(profile) + _about_servers(profile) + _about_hosts(profile)


def _about_gain(profile: Json) -> List[str]:
    workers, groups = profile["workers"], profile["groups"]
    if len(workers) < 2:
        return []
    everyone = list(range(len(workers)))
    seconds, exchange = _step(profile, everyone)
    together, in_groups = _throughput(profile, [everyone]), _throughput(profile, groups)
    alone = speeds_of(workers, "alone")
    best = max(alone, key=lambda name: alone[name])
    hosts = len({worker["host"] for worker in workers})
    told = "a step of all %d workers takes about %.3g s, including %.3g s for the exchange: " % (
        len(workers),
        seconds,
        exchange,
    )
    told += "under dist_sync %.3g samples/s" % together
    if len(groups) > 1:
        told += ", under dist_gsync in these %d groups %.3g" % (len(groups), in_groups)
    told += ", and %s alone computes %.3g" % (best, alone[best])
    if max(together, in_groups) > alone[best]:
        return [told]
    if _throughput(profile, groups, with_exchange=False) > alone[best]:
        many = "%d nodes" % hosts if hosts > 1 else "%d workers" % len(workers)
        return [
            "this network is too small to gain from %s: %s. Train with one worker, or with a "
            "larger batch_size or network" % (many, told)
        ]
    return ["%s: the workers slow each other down, so train with one worker" % told]


def _about_servers(profile: Json) -> List[str]:
    workers, count = profile["workers"], len(profile["servers"])
    if len(workers) < 2 or not count:
        return []
    seconds, exchange = _step(profile, range(len(workers)))
    if exchange > MUCH * seconds:
        return [
            "the exchange with %d server%s takes %.0f %% of a step: more servers (hosts in the "
            "group servers, or servers_per_host) can shorten the exchange"
            % (count, "" if count == 1 else "s", 100 * exchange / seconds)
        ]
    if count > 1 and count * exchange < LITTLE * seconds:
        return [
            "one server is enough (num_servers=1): the exchange with %d servers takes %.2g %% of a "
            "step" % (count, 100 * exchange / seconds)
        ]
    return []


def _about_hosts(profile: Json) -> List[str]:
    told = []
    by_host = grouped((worker["host"], worker) for worker in profile["workers"])
    for host, workers in by_host.items():
        alone, together = (
            [worker[kind]["samples_per_s"] for worker in workers] for kind in ("alone", "together")
        )
        lost = 1 - statistics.median(both / one for one, both in zip(alone, together))
        if lost <= profile["noise"]:
            continue
        if len(workers) == 1:
            told.append(
                "%s: its worker is %.0f %% slower while the other workers compute. Check whether "
                "this host shares a machine with another host" % (host, 100 * lost)
            )
            continue
        less = sum(together) <= max(alone) * (1 + profile["noise"])
        told.append(
            "%s: its %d workers are %.0f %% slower together than alone. All these workers together "
            "compute %.3g samples/s, and one worker alone computes %.3g%s"
            % (
                host,
                len(workers),
                100 * lost,
                sum(together),
                max(alone),
                ", so workers_per_host=1 is as fast" if less else "",
            )
        )
    return told


def _step(profile: Json, members: Sequence[int]) -> Tuple[float, float]:
    """Return (seconds of a step, seconds of its exchange) for workers at positions `members`."""
    workers = [profile["workers"][member] for member in members]
    exchange = max(worker["exchange_s"] for worker in workers)
    compute = profile["batch_size"] / min(worker["together"]["samples_per_s"] for worker in workers)
    return compute + exchange, exchange


def _throughput(
    profile: Json, groups: Sequence[Sequence[int]], with_exchange: bool = True
) -> float:
    """Return the samples/s of all workers if the members of each group wait for each other.

    Args: `with_exchange` False to leave out the time of the exchange.
    """
    rate = 0.0
    for group in groups:
        seconds, exchange = _step(profile, group)
        rate += profile["batch_size"] * len(group) / (seconds - (not with_exchange) * exchange)
    return rate


def _slowest_of_hosts(workers: Sequence[Json]) -> Dict[str, float]:
    """Return {name: samples/s} of the workers, each with the slowest speed of its host."""
    slowest: Dict[str, float] = {}
    for worker in workers:
        speed, host = worker["together"]["samples_per_s"], worker["host"]
        slowest[host] = min(speed, slowest.get(host, speed))
    return {
        name_of(worker["host"], worker["number"]): slowest[worker["host"]] for worker in workers
    }


def _measured(content: Any, name: str) -> Json:
    """Check the measured part of a profile, and return this part (dict).

    Args: `content` the data of the profile's file; `name` the profile's name for messages.

    Raises BadInput for a wrong type, a worker or server that occurs twice, a wrong number of
    network times or GPU speeds, or an invalid speed.
    """
    try:
        found: Json = shapes.fields(_MEASURED)(content)
    except shapes.Wrong as wrong:
        raise BadInput("%s is damaged (%s): %s" % (name, wrong, CURE)) from None
    problems = []
    for kind, items in (("worker", found["workers"]), ("server", found["servers"])):
        counted = Counter((item["host"], item["number"]) for item in items)
        problems += [
            "%s: %s %s %d occurs %d times: %s" % (name, host, kind, number, times, CURE)
            for (host, number), times in counted.items()
            if times > 1
        ]
    problems += [
        "%s: %s has the network times of %s instead of %d servers: %s"
        % (
            name,
            name_of(worker["host"], worker["number"]),
            several(len(worker["servers"]), "server"),
            len(found["servers"]),
            CURE,
        )
        for worker in found["workers"]
        if len(worker["servers"]) != len(found["servers"])
    ]
    problems += [
        "%s: %s has %s, but the speeds of %s: %s"
        % (
            name,
            name_of(worker["host"], worker["number"]),
            several(len(numbers), "GPU"),
            several(len(speeds), "GPU"),
            CURE,
        )
        for worker in found["workers"]
        for numbers, speeds in [(worker.get("gpus", []), worker.get("gpu_speeds", []))]
        if len(numbers) != len(speeds)
    ]
    refuse(problems)
    for kind in ("alone", "together"):
        try:
            grouping.check(
                {
                    name_of(worker["host"], worker["number"]): worker[kind].get("samples_per_s")
                    for worker in found["workers"]
                }
            )
        except BadInput as refusal:
            raise BadInput(
                "\n".join("%s, %s: %s" % (name, kind, line) for line in str(refusal).split("\n"))
            ) from None
    return found


def _check_added(profile: Json) -> None:
    """Raise BadInput if groups, labels, shares and placement do not fit the measured entries."""
    workers, problems = profile["workers"], []  # type: List[Json], List[str]
    counted = Counter(position for group in profile["groups"] for position in group)
    problems += [
        "the worker %d is in %d groups instead of one" % (position, counted[position])
        for position in range(len(workers))
        if counted[position] != 1
    ]
    problems += [
        "the groups name a worker %d, but the profile has %d workers" % (position, len(workers))
        for position in sorted(counted)
        if position >= len(workers)
    ]
    if not all(profile["groups"]):
        problems.append("a group has no worker")
    refuse(problems)
    if len(profile["labels"]) != len(profile["groups"]):
        problems.append(
            "%s for %s"
            % (several(len(profile["labels"]), "label"), several(len(profile["groups"]), "group"))
        )
    group_of = {one: number for number, group in enumerate(profile["groups"]) for one in group}
    together: Dict[str, int] = {}
    for position, worker in enumerate(workers):
        if together.setdefault(worker["host"], group_of[position]) != group_of[position]:
            problems.append("the workers of %s are in different groups" % worker["host"])
    if any(len(share) != 2 for share in profile["shares"]):
        problems.append("a share is not a pair of numbers")
    else:
        files.check_data_sharding(
            [(begin, end) for begin, end in profile["shares"]], len(workers), "shares"
        )
    servers = len(profile["servers"])
    if profile["placement"] and len(profile["placement"]) != len(profile["parameters"]):
        problems.append(
            "the placement has %d parameters, but the network has %d"
            % (len(profile["placement"]), len(profile["parameters"]))
        )
    if any(place >= servers for place in profile["placement"]):
        problems.append("the placement names a server beyond the %d servers" % servers)
    refuse(problems)
