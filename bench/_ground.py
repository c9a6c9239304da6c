"""Compare the schemes on a ground: a cluster of unequal machines, of which a module makes one.

Each turn trains each of SCHEMES on all workers, and a solo job on each worker: a job with this
worker alone, without servers and with the same batch, as in compare.yml. The sum of the solo speeds
is the absolute limit, and each speed is given as a part of it. Turns change their direction, so
that a slow drift of the machine meets all jobs alike. After the turns each scheme trains once more
and measures the parts of its steps. Without this measurement, pushes overlap with the computation.

`max_time` ends a job. Until then all workers train, and the figures come from the last seconds.
"""

import json
import pathlib
import subprocess
from typing import Dict, List, NamedTuple, Sequence

from bench import _figures
from bench._nodes import PROJECT
from mxcluster import events
from mxcluster.job.sweep import comparison, limit
from mxcluster.model.events import Event
from mxcluster.model.failures import TIME
from mxcluster.model.written import MOST

BASELINE = "dist_sync"
SCHEMES = {
    BASELINE: {"kv": "dist_sync"},
    "dist_async": {"kv": "dist_async", "data_allocator": 1},
    "dist_gsync, groups": {"kv": "dist_gsync", "data_allocator": 1},
    "dist_sync, balance=batch": {"kv": "dist_sync", "balance": "batch"},
    "dist_sync, balance=deadline": {"kv": "dist_sync", "balance": "deadline"},
}
FASTEST = "the fastest group alone"
EPOCH = 32  # steps of dist_sync in an epoch; `balance` adapts at its end
# Seconds. A node on loopback shares the cores with the workers, and answers in 0.17 s of CPU.
POLL = 10
RESULTS = PROJECT / ".state" / "bench"


class Length(NamedTuple):
    """The length of each job, in seconds."""

    start: float  # from the start of the agents to the first step, at most
    warm_up: float
    window: float  # in which the speed is measured
    cycle: float = 0.0  # of changing speeds

    @property
    def max_time(self) -> float:
        """The longest time of a job."""
        return self.start + self.warm_up + self.window


class Ground(NamedTuple):
    """A cluster on which the schemes train."""

    name: str
    folder: pathlib.Path  # with runs/
    where: pathlib.Path  # the folder of the inventory
    knobs: Dict[str, object]  # of every job
    batch_size: int
    length: Length
    fastest: Sequence[str] = ()  # the workers' hosts of the fastest group, if there is one
    inside: bool = False  # True to measure the solo speeds with a server beside the worker, too


def variant(where: pathlib.Path, name: str, workers: Sequence[str], servers: Sequence[str] = ()):
    """Write an inventory with some workers, and return its folder.

    Args: `where` the folder of the inventory with all workers; `name` of the new one; `servers`
    the hosts with a server, by default those of `where`.
    """
    hosts = json.loads((where / "hosts.yml").read_text())
    groups = hosts["all"]["children"]
    groups["workers"]["hosts"] = {host: groups["workers"]["hosts"][host] for host in workers}
    if servers:
        groups["servers"]["hosts"] = {host: {} for host in servers}
    # The variables of a host stay with the host, also if it is no worker in this inventory.
    own = json.loads((where / "hosts.yml").read_text())["all"]["children"]["workers"]["hosts"]
    every = hosts["all"].setdefault("hosts", {})
    for host, variables in own.items():
        every[host] = {**variables, **(every.get(host) or {})}
    folder = where.parent / ("inventory-" + name)
    folder.mkdir(exist_ok=True)
    (folder / "hosts.yml").write_text(json.dumps(hosts))
    return folder


class Jobs:
    """The jobs of a ground. Args: `ground`."""

    def __init__(self, ground: Ground) -> None:
        self._ground, self._number = ground, 0
        hosts = json.loads((ground.where / "hosts.yml").read_text())
        self.workers = list(hosts["all"]["children"]["workers"]["hosts"])

    def train(self, where: pathlib.Path, workers: int, knobs: Dict[str, object]):
        """Run a job on the inventory `where`; return (its events, the window of the figures).

        Exits with the output of a job that has not ended because of max_time.
        """
        ground, self._number = self._ground, self._number + 1
        job = "%s-%d" % (ground.name, self._number)
        extra = dict(
            ground.knobs,
            batch_size=ground.batch_size,
            num_examples=EPOCH * ground.batch_size * workers,
            measured=MOST,
            warm_up=0,
            max_time="%ds" % ground.length.max_time,
            train_job_poll=POLL,
            job_id=job,
            **knobs,
        )
        done = subprocess.run(
            ["ansible-playbook", "-i", str(where), "train.yml", "-e", json.dumps(extra)],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        run = ground.folder / "runs" / job
        verdict = run / "verdict.json"
        first = json.loads(verdict.read_text())["first_failure"] if verdict.is_file() else None
        if not first or first["kind"] != TIME:
            raise SystemExit("%s\nthe job %s failed" % (done.stdout.decode(errors="replace"), job))
        found: List[Event] = [line.event for line in events.read(str(run / "events.jsonl"))]
        length = ground.length
        try:
            return found, _figures.window(
                found, workers, length.warm_up, length.window, length.cycle
            )
        except ValueError as error:
            raise SystemExit("job %s: %s" % (job, error)) from None

    def speed(self, where: pathlib.Path, workers: int, knobs: Dict[str, object]) -> float:
        """Return the samples per second of a job on the inventory `where`."""
        return _figures.samples_per_s(*self.train(where, workers, knobs))

    def solo(self, inside: bool = False) -> Dict[str, float]:
        """Return {host: samples per second} of each worker alone.

        Args: `inside` True for a job of dist_sync with a server on the worker's host, False for a
        job without servers.
        """
        where = self._ground.where
        base = SCHEMES[BASELINE] if inside else {"kv": comparison.SOLO_KV}
        found = {}
        for host in self.workers:
            name = "%s-%s" % ("inside" if inside else "solo", host)
            alone = variant(where, name, [host], [host] if inside else ())
            found[host] = self.speed(alone, 1, base)
        return found


class Result(NamedTuple):
    """The speeds of all turns, in samples per second."""

    solo: List[Dict[str, float]]  # {host: speed} of each turn
    inside: Dict[str, float]  # the solo speeds with the server beside the worker
    schemes: Dict[str, List[float]]
    steps: Dict[str, List[_figures.Step]]  # of the breakdown


def compare(ground: Ground, turns: int) -> None:
    """Run all jobs, print the tables, and write the result to .state/bench/<ground>.json."""
    jobs = Jobs(ground)
    everything = {name: (ground.where, len(jobs.workers), one) for name, one in SCHEMES.items()}
    if ground.fastest:
        alone = variant(ground.where, "fastest", ground.fastest)
        everything[FASTEST] = alone, len(ground.fastest), SCHEMES[BASELINE]
    result = Result([], {}, {name: [] for name in everything}, {})
    for turn in range(turns):
        if turn % 2 == 0:
            result.solo.append(jobs.solo())
        for name in list(everything)[::-1] if turn % 2 else everything:
            result.schemes[name].append(jobs.speed(*everything[name]))
        if turn % 2:
            result.solo.append(jobs.solo())
        print("turn %d of %d: %s" % (turn + 1, turns, last(result)), flush=True)
    if ground.inside:
        result.inside.update(jobs.solo(inside=True))
    for name, (where, workers, knobs) in everything.items():
        found = jobs.train(where, workers, dict(knobs, measure_waits=True))
        result.steps[name] = _figures.steps(*found)
    print("\n".join(lines(result)), flush=True)
    write(ground.name, result)


def last(result: Result) -> str:
    """Return the speeds of the last turn as text."""
    speeds = {"limit": limit.absolute(result.solo[-1].values())}
    speeds.update((name, own[-1]) for name, own in result.schemes.items())
    return ", ".join("%s %.0f" % (name, speed) for name, speed in speeds.items())


def lines(result: Result) -> List[str]:
    """Return the tables of a result."""
    limits = [limit.absolute(solo.values()) for solo in result.solo]
    found = _figures.table(list(result.schemes.items()), limits)
    for host in result.solo[0]:
        alone = _figures.quartiles([solo[host] for solo in result.solo]).median
        inside = result.inside.get(host)
        beside = ", %.1f with the server under its quota" % inside if inside is not None else ""
        found.append("%s alone: %.1f samples/s%s" % (host, alone, beside))
    if FASTEST in result.schemes:
        medians = {name: _figures.quartiles(own).median for name, own in result.schemes.items()}
        fast = medians.pop(FASTEST)
        best = max(medians, key=lambda name: medians[name])
        found.append("%s / best scheme (%s): %.3f" % (FASTEST, best, fast / medians[best]))
    found.append("the parts of a step, in seconds; the sum as a part of the step")
    for name, steps in result.steps.items():
        found += _figures.breakdown(name, steps)
    return found


def write(name: str, result: Result) -> None:
    """Write the result as JSON to the folder RESULTS, and print the path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / (name + ".json")
    shown = result._replace(
        steps={name: [one._asdict() for one in own] for name, own in result.steps.items()}
    )
    path.write_text(json.dumps(shown._asdict(), indent=1))
    print("figures: %s" % path, flush=True)
