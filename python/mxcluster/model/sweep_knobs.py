"""Define the knobs of benchmark.yml and compare.yml, with one field for each knob.

From these classes, `make docs` generates the defaults and argument specs of the role sweep, and
parts of group_vars/all.yml and docs/knobs.md. The sweep passes the other knobs of `job_knobs` on to
its jobs.
"""

import json
import re
from typing import Callable, List, Mapping, Sequence, Tuple, Type, TypeVar

from mxcluster import schemes
from mxcluster.model.job_knobs import MOST_PROCESSES, Options
from mxcluster.model.knob import BENCHMARK, COMPARE, knob, names_read, read
from mxcluster.model.names import MOST_GPU
from mxcluster.model.record import Record
from mxcluster.model.sweep_schemes import NAMES
from mxcluster.model.written import (
    MOST,
    Written,
    free,
    matching,
    one_of,
    switch,
    to_text,
    whole_number,
)
from mxcluster.numbers import to_float, to_int

T = TypeVar("T")
R = TypeVar("R", bound=Record)

MOST_JOBS = 10000
MOST_ITEMS = 1000  # of a list
# INTERFACE:ADDRESS:PORT, where INTERFACE is optional, as in DLBS.
RENDEZVOUS = re.compile(
    r"(?:(?P<interface>[A-Za-z0-9_.@+-]{1,15}):)?(?P<address>[0-9]+(?:\.[0-9]+){3}):(?P<port>[0-9]+)"
)
_NUMBER = r"[0-9]+(?:\.[0-9]*)?"
FACTOR = re.compile(r"(%s)(?:/(%s|W|sqrt\(W\)))?" % (_NUMBER, _NUMBER))


def _items(value: object) -> List[object]:
    """Return the items of `value` as a list, without repetitions and empty strings.

    `value` is a list, the JSON text of a list, a string such as 'a,b', or one number. Raises
    ValueError for all other values, and for a list or a dict inside the list.
    """
    if isinstance(value, str):
        text = value.strip()
        value = json.loads(text) if text.startswith("[") else re.split(r"[,\s]+", text)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)) or any(isinstance(i, (list, dict)) for i in value):
        raise ValueError("the value must be a list of strings and numbers")
    found = list(dict.fromkeys(item for item in value if item != ""))
    if len(found) > MOST_ITEMS:
        raise ValueError("the list must have at most %d items" % MOST_ITEMS)
    return found


def _numbers(low: int, high: int, example: str, least: int = 0) -> Written[List[int]]:
    """Return a shape for at least `least` whole numbers from `low` to `high`."""
    return Written(
        lambda value: [to_int(item) for item in _items(value)],
        lambda items: len(items) >= least and all(low <= item <= high for item in items),
        "a list of whole numbers from %d to %d, such as %s" % (low, high, example),
        limits="From %d to %d." % (low, high),
    )


def _texts(check: Callable[[List[str]], object], what: str) -> Written[List[str]]:
    return Written(lambda value: [to_text(item) for item in _items(value)], check, what)


def _some_of(names: Sequence[str], what: str, least: int = 1) -> Written[List[str]]:
    """Return a shape for at least `least` of the words `names`."""
    return _texts(
        lambda items: len(items) >= least and all(item in names for item in items),
        "a list of %s out of %s" % (what, ", ".join(names)),
    )


def _of_both(shape: Written[T], default: T) -> T:
    return knob(shape, default, playbooks=(BENCHMARK, COMPARE))


def _of_benchmark(shape: Written[T], default: T) -> T:
    return knob(shape, default, playbooks=(BENCHMARK,))


def _of_comparison(shape: Written[T], default: T) -> T:
    return knob(shape, default, playbooks=(COMPARE,))


class Both(Record):
    """Both playbooks."""

    sweep: str = _of_both(
        matching(
            r"([A-Za-z0-9][A-Za-z0-9._-]{0,59})?",
            "at most 60 letters, digits, '.', '_' and '-', beginning with a letter or digit",
        ),
        "",
    )
    """The name of the sweep and of the sweep's folder in `runs/`. With the name of an earlier
    sweep, the playbook continues this sweep. The default is the time and the playbook, such as
    `20261121-101500-benchmark`."""
    again: str = _of_both(one_of("", "failed", "late"), "")
    """`failed` runs the failed jobs of an earlier `sweep` once more. `late` runs its jobs with late
    steps once more: with `slowdown` or `step_ms`, steps that took longer than planned on an
    overloaded machine."""
    max_jobs: int = _of_both(whole_number(1, MOST_JOBS), 500)
    """The largest number of jobs. mxcluster refuses a sweep with more jobs before the first job."""


class BenchmarkKnobs(Record):
    """benchmark.yml: lists, of which every combination is a job."""

    networks: Sequence[str] = _of_benchmark(
        _texts(bool, "a list of networks, such as resnet20,lenet"), ["resnet20"]
    )
    """The networks to measure, such as `resnet20,lenet`."""
    kvs: Sequence[str] = _of_benchmark(_some_of(schemes.NAMES, "parallel schemes"), ["dist_sync"])
    """The parallel schemes, such as `dist_sync,dist_gsync`. `local` and `device` run with one
    worker only."""
    batch_sizes: Sequence[int] = _of_benchmark(_numbers(1, MOST, "32,64", least=1), [32])
    """The batch sizes, such as `32,64`. Weak scaling uses the batch size for each worker. Strong
    scaling divides the batch size among all workers."""
    gpu_counts: Sequence[int] = _of_benchmark(_numbers(0, MOST_GPU + 1, "1,2,4"), [])
    """The numbers of GPUs of a worker, such as `1,2,4`. 0 trains on the CPU. An empty list means
    the GPUs of the knob `gpus`."""
    scaling: Sequence[str] = _of_benchmark(
        _some_of(("weak", "strong"), "kinds of scaling"), ["weak"]
    )
    """`weak`: the batch size of a worker is constant. `strong`: the batch size of all workers
    together is constant and must be divisible by the number of workers."""
    worker_counts: Sequence[int] = _of_benchmark(_numbers(1, MOST_PROCESSES, "1,2,4"), [])
    """The numbers of workers, such as `1,2,4`. A job takes the first workers of the inventory. An
    empty list means 1, 2, 4 and so on, and the number of all workers."""
    rendezvous: str = _of_benchmark(
        Written(
            to_text,
            lambda text: text == "" or RENDEZVOUS.fullmatch(text),
            "INTERFACE:ADDRESS:PORT or ADDRESS:PORT, such as ib0:10.0.0.1:9091",
            "str",
        ),
        "",
    )
    """The scheduler as `INTERFACE:ADDRESS:PORT` or `ADDRESS:PORT`, such as `ib0:10.0.0.1:9091`,
    instead of `dmlc_interface` and `root_port`. The address must be the address of the scheduler's
    host."""


class ComparisonKnobs(Record):
    """compare.yml."""

    schemes: Sequence[str] = _of_comparison(_some_of(NAMES, "schemes", least=0), [])
    """The schemes that compare.yml trains, any of {compared}. An empty list means all."""
    lr_factors: Sequence[str] = _of_comparison(
        _texts(
            lambda items: items and all(map(FACTOR.fullmatch, items)),
            "a list of numbers such as 0.5, 1/2, 1/W or 1/sqrt(W), with W the number of workers",
        ),
        ["1/W", "1/sqrt(W)", "1/2", "1", "2"],
    )
    """The first learning rates to try, as factors of `lr`. W is the number of workers of the
    inventory. compare.yml tries equal rates only once."""
    lr_growth: int = _of_comparison(whole_number(0, 100), 4)
    """The most learning rates by which compare.yml extends the list at each end, while the best
    rate of a scheme is the first or the last one that it has tried."""
    momenta: Sequence[float] = _of_comparison(
        Written(
            lambda value: [to_float(item) for item in _items(value)],
            lambda items: items and all(0 <= item <= 0.999 for item in items),
            "a list of numbers from 0 to 0.999, such as 0,0.9",
            limits="From 0 to 0.999.",
        ),
        [0.0, 0.9],
    )
    """The values of `momentum` to try. Each of them runs with its own list of learning rates."""
    choosing_seeds: int = _of_comparison(whole_number(1, 100), 1)
    """The number of seeds that choose the best learning rate and momentum of each scheme: `seed`,
    `seed` + 1 and so on. The worst of a setting's jobs counts."""
    seeds: int = _of_comparison(whole_number(1, 100), 5)
    """The number of seeds that measure, which follow the seeds that choose. They run at each
    scheme's best setting and at the common setting. A comparison with fewer than 5 says so."""
    common: bool = _of_comparison(switch, True)
    """Also train each scheme at the common setting, the same for all schemes. Without it a
    comparison takes about a fifth less time."""
    solo: bool = _of_comparison(switch, True)
    """Measure the speed of each worker alone first. The sum of these speeds is the limit that the
    speed of each scheme is compared with."""
    ringmaster_max_y: int = _of_comparison(whole_number(0, MOST, zero="4 times the groups"), 0)
    """The value of `gsync_max_y` for the scheme `ringmaster`: the largest Y of an update that the
    servers do not drop. 0 means 4 times the number of groups."""
    target: float = _of_comparison(
        Written(
            to_float,
            lambda value: 0 < value < 1,
            "an accuracy above 0 and below 1, such as 0.95",
            "float",
        ),
        0.95,
    )
    """The validation accuracy to reach, above 0 and below 1. compare.yml measures the time until a
    job reaches this accuracy."""
    fastest_group: str = _of_comparison(free("the label of a group"), "")
    """The label of the group that trains alone in the scheme `fastest`. An empty label means the
    fastest group of the profile. Without a profile, an empty label means the first group of the
    inventory."""


class BenchmarkInput(Both, BenchmarkKnobs):
    """The knobs of benchmark.yml that its jobs do not have."""


class ComparisonInput(Both, ComparisonKnobs):
    """The knobs of compare.yml that its jobs do not have."""


SECTIONS: Tuple[Type[Record], ...] = (Both, BenchmarkKnobs, ComparisonKnobs)
CLASSES: Mapping[str, Type[Both]] = {BENCHMARK: BenchmarkInput, COMPARE: ComparisonInput}


def passed_on(playbook: str) -> Tuple[str, ...]:
    """Return the names of the options of train.yml that `playbook` passes on to its jobs."""
    return names_read(Options, playbook)


def cast(playbook: str, given: Mapping[str, object]) -> Both:
    """Return the knobs of these classes that `playbook` reads.

    Raises BadInput with all wrong values.

    Args: `given` {name: value} from the user; a knob without a value has the default.
    """
    cls = CLASSES[playbook]
    return read(cls, {name: value for name, value in given.items() if name in cls.FIELDS})


def part(cls: Type[R], knobs: Record) -> R:
    """Return the knobs of the section `cls` among `knobs`."""
    return cls(**{name: vars(knobs)[name] for name in cls.FIELDS})
