"""Compare a step of mxcluster's kv-stores with a step of MXNet's own kv-stores.

Two jobs train in turns on one machine, without padded steps. Each round has a block of steps of
each job, so both meet the same speed of the machine. A figure is the median of the rounds' ratios.
The benchmark also prints the interval that contains 90 % of the medians of resampled rounds.

With `--against FOLDER` the same kv-stores of another checkout take the turns of MXNet's own. This
shows what a change of the stores costs. Two jobs of the same code differ by up to a tenth, as
long as they run. So these jobs start several times, the other one first in every second start.
"""

import collections
import json
import pathlib
import random
import statistics
import tempfile
import time

from tests.training.environments import mxnet_environment
from tests.training.loopback import NODE_PACKAGE, PORT, Job

ROUNDS = 15
STARTS, ROUNDS_OF_START = 8, 6  # of a comparison with another checkout
RESAMPLED = 2000  # times, for an interval
EVERYBODY, HALVES = [0, 0, 0, 0], [0, 0, 1, 1]
SIZES = (
    ("65 x 1,000 numbers", 65, 1000, 20),
    ("20 x 5 MB", 20, 1310720, 3),
    ("1 x 100 MB", 1, 26214400, 3),
)
# A job: its kv-store, the group of each worker, the folder that holds mxcluster, and its gradients:
# "same" for one array of each key, "fresh" for a new array in each push, which waits for the pull.
Side = collections.namedtuple("Side", "kv groups package gradient")
Side.__new__.__defaults__ = (NODE_PACKAGE, "same")
PAIRS = (
    ("dist_gsync, one group", Side("dist_gsync", EVERYBODY), Side("dist_sync", EVERYBODY)),
    ("dist_gsync, two groups", Side("dist_gsync", HALVES), Side("dist_sync", EVERYBODY)),
    ("dist_ssync", Side("dist_ssync", EVERYBODY), Side("dist_async", EVERYBODY)),
)
KINDS = (("dist_sync", EVERYBODY), ("dist_gsync", HALVES), ("dist_ssync", EVERYBODY))


def main(options):
    """Print the ratio of the times of a step for each of PAIRS and SIZES.

    The function also prints the memory of the servers, the time of a first step with 2,000 keys,
    and the ratio of steps with a new array in each push to steps with one array.

    Args: `options` of the command line; `options.against` is another checkout, or None.
    """
    python = mxnet_environment("1.9.1").python
    if options.against:
        compare_checkouts(python, pathlib.Path(options.against) / "python")
        return
    for label, tested, stock in PAIRS:
        for what, arrays, size, steps in SIZES:
            found, memory = in_turns(python, (tested, stock), arrays, size, steps, ROUNDS)
            tell(
                "%s / %s, %s" % (label, stock.kv, what),
                [[[seconds for seconds, _ in blocks[1:]] for blocks in found]],
                1000,
                "ms a step",
            )
            if arrays == 1:
                print(
                    "    memory of the servers: %.2f and %.2f times that of the parameters"
                    % tuple(
                        (held - least) / (4 * size)
                        for held, least in zip(memory, floor(python, (tested, stock)))
                    ),
                    flush=True,
                )
        found = [[], []]
        for number in range(ROUNDS):
            order = (0, 1) if number % 2 else (1, 0)
            for side, blocks in zip(
                order,
                in_turns(python, [(tested, stock)[side] for side in order], 2000, 10, 1, 0)[0],
            ):
                found[side].append(blocks[0][0])
        tell("%s / %s, 2,000 keys" % (label, stock.kv), [found], 1, "s to the first step's end")
    compare_arrays(python)


def compare_arrays(python):
    """Print the ratio of steps with a new array in each push to steps with one array, for KINDS."""
    for kv, groups in KINDS:
        same = Side(kv, groups)
        for what, arrays, size, steps in SIZES:
            sides = same._replace(gradient="fresh"), same
            found, _ = in_turns(python, sides, arrays, size, steps, ROUNDS)
            blocks = [[seconds for seconds, _ in side[1:]] for side in found]
            tell("%s, new arrays / one array, %s" % (kv, what), [blocks], 1000, "ms a step")


def compare_checkouts(python, package):
    """Print the ratios of steps of this checkout to steps of another, for KINDS and SIZES.

    The ratios are those of the times, and of the CPU times of worker 0.

    Args: `python` the interpreter; `package` the folder of the other checkout that holds mxcluster.
    """
    for kv, groups in KINDS:
        for what, arrays, size, steps in SIZES:
            sides, starts = (Side(kv, groups), Side(kv, groups, package)), []
            for number in range(STARTS):
                turn = -1 if number % 2 else 1
                found, _ = in_turns(python, sides[::turn], arrays, size, steps, ROUNDS_OF_START)
                starts.append(found[::turn])
            for part, unit in enumerate(("ms a step", "ms of CPU a step of a worker")):
                blocks = [[[taken[part] for taken in side[1:]] for side in one] for one in starts]
                tell("%s now / before, %s" % (kv, what), blocks, 1000, unit)


def floor(python, pair):
    """Return the bytes of memory of each job's servers while they hold almost no parameters."""
    return in_turns(python, pair, 1, 10, 1, 1)[1]


def in_turns(python, pair, arrays, size, steps, rounds):
    """Start two jobs that train in turns, one block of steps each.

    Args: `python` the interpreter; `pair` two Sides; `arrays` the number of keys; `size` the length
    of a key's array; `steps` of a block; `rounds` the number of blocks after the first one.

    Returns:
        ([[(seconds, CPU seconds) of a step, for each block], for each job],
        [bytes of the servers, for each job]).
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "turns").mkdir()
        jobs = []
        for side, (kv, groups, package, gradient) in enumerate(pair):
            script = pathlib.Path(__file__).with_name("_steps.py")
            jobs.append(
                Job(
                    python,
                    folder / str(side),
                    script,
                    kv,
                    groups,
                    port=PORT + 40 * side,
                    staleness=3,
                    heartbeat=60,
                    package=package,
                    arguments=[
                        kv,
                        arrays,
                        size,
                        steps,
                        folder / "turns",
                        side,
                        folder / str(side) / "worker",
                        gradient,
                    ],
                )
            )
            turn(folder, jobs, side, 0)
        for block in range(1, rounds + 1):
            for side in (0, 1) if block % 2 else (1, 0):
                turn(folder, jobs, side, block)
        memory = [
            sum(
                resident(process.pid)
                for name, process in job.processes.items()
                if name.startswith("server")
            )
            for job in jobs
        ]
        for side, job in enumerate(jobs):
            (folder / "turns" / ("%d-end" % side)).touch()
            job.succeed()
        return [
            json.loads((folder / str(side) / "worker-0.json").read_text()) for side in (0, 1)
        ], memory


def turn(folder, jobs, side, block):
    """Let the job number `side` train its block number `block`, and wait for the end of the block.

    Exits with the job's logs if the block does not end within 300 s, or if a process of the job
    ends before.

    Args: `folder` that both jobs watch; `jobs` both jobs.
    """
    (folder / "turns" / ("%d-%d" % (side, block))).touch()
    deadline = time.monotonic() + 300
    while not (folder / "turns" / ("done-%d-%d" % (side, block))).exists():
        if time.monotonic() > deadline or any(
            process.poll() is not None for process in jobs[side].processes.values()
        ):
            for job in jobs:
                job.end()
            raise SystemExit(
                "block %d of %s did not end\n%s" % (block, jobs[side].folder, jobs[side].evidence())
            )
        time.sleep(0.005)


def resident(pid):
    """Return the memory of a process in bytes, including its share of shared memory (Pss)."""
    lines = pathlib.Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def ratio(starts):
    """Return (median of the ratios of each round, begin and end of its interval of 90 %).

    The interval is that of resampled starts with resampled rounds.

    Args: `starts` [[seconds of the first job in each round, those of the second], for each start].
    """
    found = [[one / two for one, two in zip(*sides, strict=True)] for sides in starts]
    draws, medians = random.Random(0), []
    for _ in range(RESAMPLED):
        chosen = draws.choices(found, k=len(found))
        medians.append(
            statistics.median(
                one for rounds in chosen for one in draws.choices(rounds, k=len(rounds))
            )
        )
    medians.sort()
    begin = RESAMPLED // 20
    middle = statistics.median(one for rounds in found for one in rounds)
    return middle, medians[begin], medians[-1 - begin]


def tell(what, starts, factor, unit):
    """Print one line: the medians of both jobs, and their ratio with its interval.

    Args: `what` the title; `starts` as for `ratio`; `factor` from seconds to `unit`.
    """
    sides = [[one for sides in starts for one in sides[side]] for side in (0, 1)]
    tested, stock = (factor * statistics.median(side) for side in sides)
    print(
        "%-60s %8.1f / %8.1f %s: %.2f (90 %%: %.2f to %.2f), %d rounds"
        % (what, tested, stock, unit, *ratio(starts), len(sides[0])),
        flush=True,
    )
