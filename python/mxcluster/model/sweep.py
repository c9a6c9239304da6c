"""Define the files of a sweep in runs/<sweep>/.

sweep.json      the specification, a Benchmark or a Comparison
results.jsonl   the record of each job with a verdict, a BenchmarkRecord or a ComparisonRecord
running.json    the RunningJob, while a job runs
stopped.json    the ids of the interrupted jobs
"""

from typing import Mapping, NamedTuple, Optional, Sequence, Type, TypeVar, Union, cast

from mxcluster.errors import BadInput
from mxcluster.model import names
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import BENCHMARK, COMPARE, Knob, knobs_of, value_of
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Shape,
    Wrong,
    each,
    figure,
    flag,
    json_object,
    matching,
    number,
    one_of,
    optional,
    passing,
    real,
    table,
    text,
    whole,
    words,
)
from mxcluster.model.sweep_knobs import BenchmarkKnobs, ComparisonKnobs, passed_on
from mxcluster.model.written import MOST

R = TypeVar("R", bound=Record)

# {knob of train.yml: value of the type of this knob in Options}, of some knobs only.
Knobs = Mapping[str, object]

OK, DIVERGED, FAILED = "ok", "diverged", "failed"
SCHEMA = 1
# The method of a comparison. Records of another method are not comparable. Before 2, the epochs of
# worker 0 gave the time to the target, and the seed that chose a rate measured it, too.
METHOD = 2
SPEC_CURE = "restore this file, or choose another name for the sweep"
RUNNING_CURE = (
    "end the sweep's last job with stop.yml, then remove this file and run the playbook again"
)
_DEEPEST = 12  # levels of JSON in a knob
_MOST_POINTS = 10**6  # points of a curve, values of Y, ids of interrupted jobs

# An accuracy may be NaN.
_figure = optional(figure)
_kv = matching(r"[a-z_]{1,40}", "a parallel scheme")
_scaling = one_of("weak", "strong")
_scheme = matching(r"[a-z]{1,40}", "a scheme of compare.yml")
_rate = real(0, MOST)
_schema = passing(
    int,
    lambda value: value == SCHEMA,
    "%d, which this version of mxcluster writes" % SCHEMA,
)
job_ids = each(names.job_id, _MOST_POINTS)


def _typed(one: Knob, value: object, where: str) -> object:
    """Return `value` if it is a typed value of a knob. Raises Wrong for a value to convert."""
    try:
        if value_of(one, value) == value:
            return value
    except BadInput:
        pass
    raise Wrong(one.written.what, value, where)


def _knobs_of(cls: Type[R]) -> Shape[R]:
    """Return the shape of the knobs of `cls` with typed values."""

    def shape(value: object) -> R:
        given, known = json_object(_DEEPEST)(value), knobs_of(cls)
        return cls(**{name: _typed(known[name], given.get(name), "." + name) for name in known})

    return shape


class Specification(Record, kind_key="playbook"):
    """The specification of a sweep."""

    schema: int = field(_schema, default=SCHEMA)
    sweep: str = field(text)
    """The name of the sweep, and of its folder."""
    begun: float = field(real(0, 1e11))
    """The time of the begin in unix seconds."""
    knobs: Union[BenchmarkKnobs, ComparisonKnobs]
    base: Knobs = field(json_object(_DEEPEST))
    """The knobs of train.yml that the user gave with -e."""
    workers: int = field(whole(1))
    """The number of workers of the whole cluster."""
    notes: Sequence[str] = field(each(words), default=[])

    def refuse_contradictions(self) -> None:
        """Raise Wrong for a knob in `base` that the jobs do not get, or without its type."""
        known = knobs_of(Options)
        for name, value in self.base.items():
            if name not in passed_on(self.KIND):
                raise Wrong("a knob that %s passes on" % self.KIND, name, ".base")
            _typed(known[name], value, ".base." + name)


class Benchmark(Specification, kind=BENCHMARK):
    """The specification of a sweep of benchmark.yml."""

    knobs: BenchmarkKnobs = field(_knobs_of(BenchmarkKnobs))

    def refuse_contradictions(self) -> None:
        """Raise Wrong without a number of workers, and for wrong knobs in `base`."""
        super(Benchmark, self).refuse_contradictions()
        if not self.knobs.worker_counts:
            raise Wrong("a list with an item", [], ".knobs.worker_counts")


class Setting(NamedTuple):
    """A learning rate and a momentum of SGD."""

    lr: float
    momentum: float


class Rate(Record):
    """A learning rate of a comparison, before the list grows."""

    factor: str = field(text)
    """The factor as the user wrote it."""
    lr: float = field(_rate)


class FastestGroup(Record):
    """The group of workers that trains alone in the scheme `fastest`."""

    label: str = field(words)
    workers: int = field(whole(1))
    hosts: str = field(text)
    """The text of a hosts file."""


class Comparison(Specification, kind=COMPARE):
    """The specification of a sweep of compare.yml."""

    method: int = field(passing(int, lambda value: value == METHOD, "%d" % METHOD))
    knobs: ComparisonKnobs = field(_knobs_of(ComparisonKnobs))
    base_lr: float = field(_rate)
    """The learning rate that the factors multiply."""
    rates: Sequence[Rate] = field(each(record(Rate)))
    """The learning rates in rising order."""
    groups: Optional[Sequence[str]] = field(optional(each(words)), default=None)
    """The labels of the groups under dist_gsync."""
    fastest: Optional[FastestGroup] = field(optional(record(FastestGroup)), default=None)
    addresses: Sequence[str] = field(each(words))
    """The address of each worker that trains alone to measure its speed, [] without such jobs."""
    max_y: int = field(whole(1))
    """The value of gsync_max_y for the scheme `ringmaster`."""

    def refuse_contradictions(self) -> None:
        """Raise Wrong without a scheme or its hosts, and for wrong knobs in `base`."""
        super(Comparison, self).refuse_contradictions()
        if not self.knobs.schemes:
            raise Wrong("a list with an item", [], ".knobs.schemes")
        if "fastest" in self.knobs.schemes and self.fastest is None:
            raise Wrong("an object with label, workers, hosts", None, ".fastest")


class BenchmarkAbout(Record):
    """The values of a benchmark's job in tables and plots."""

    network: str = field(text)
    kv: str = field(_kv)
    batch_size: int = field(whole(1, MOST))
    """The batch size of a worker."""
    gpus: Optional[int] = field(optional(whole(0, names.MOST_GPU + 1)))
    scaling: str = field(_scaling)
    workers: int = field(whole(1, MOST))


class ComparisonAbout(Record):
    """The values of a comparison's job in tables and plots."""

    scheme: str = field(_scheme)
    lr: float = field(_rate)
    momentum: float = field(real(0, 1))
    seed: int = field(whole())
    worker: Optional[int] = field(optional(whole()), default=None)
    """The index of the only worker, of the scheme `solo`."""


About = Union[BenchmarkAbout, ComparisonAbout]


class Environment(Record):
    """The environment of a job: versions, machines, processes."""

    mxcluster: str = field(words, default="")
    mxnet: Sequence[str] = field(each(words), default=[])
    numpy: Sequence[str] = field(each(words), default=[])
    python: Sequence[str] = field(each(words), default=[])
    cpus: Sequence[str] = field(each(words), default=[])
    gpus: Sequence[str] = field(each(words), default=[])
    nodes: int = field(whole(), default=0)
    workers: int = field(whole(), default=0)
    servers: int = field(whole(), default=0)


class JobRecord(Record):
    """The result of one job of a sweep. Only the subclasses have records."""

    job: str = field(text)
    """The name of the job in the sweep, such as "001"."""
    id: str = field(names.job_id)
    """The id of the job and of its run folder."""
    state: str = field(one_of(OK, DIVERGED, FAILED))
    why: Optional[str] = field(optional(words))
    """The reason of a failure."""
    about: About = field(cast(Shape[About], Record.decode))  # each subclass has its own shape
    samples_per_s: Optional[float]
    wall_s: float = field(number)
    """The seconds that ansible-playbook ran, 0 if unknown."""
    environment: Environment = field(record(Environment))
    late_steps: Optional[int] = field(optional(whole()), default=None)
    """The largest number of late steps of a worker, with emulated slowness only."""
    late: Optional[bool] = field(optional(flag), default=None)
    """True if the machines were slower than planned."""


class BenchmarkFigures(Record):
    """The measured batches of all workers. A failed job may lack the figures."""

    samples_per_s: Optional[float] = field(optional(number), default=None)
    """The sum of the speeds of all workers."""
    median_s: Optional[float] = field(optional(number), default=None)
    """The median duration of a batch. The next two fields are percentiles."""
    p10_s: Optional[float] = field(optional(number), default=None)
    p90_s: Optional[float] = field(optional(number), default=None)
    batches: Optional[int] = field(optional(whole()), default=None)
    """The number of measured batches."""
    warm_up: Optional[int] = field(optional(whole()), default=None)
    """The number of batches before the measured batches."""


class BenchmarkRecord(JobRecord, BenchmarkFigures):
    """The result of a job of a benchmark."""

    about: BenchmarkAbout = field(record(BenchmarkAbout))

    def refuse_contradictions(self) -> None:
        """Raise Wrong for a successful job without figures."""
        for name in ("samples_per_s", "median_s", "p10_s", "p90_s"):
            if self.state == OK and getattr(self, name) is None:
                raise Wrong("a number", None, "." + name)


class Reading(Record):
    """The accuracy of the servers' weights at a moment of the training."""

    seconds: float = field(number)
    """The time since the first worker's start."""
    samples: int = field(whole())
    """The number of samples that all workers together had trained."""
    accuracy: float = field(figure)
    """The accuracy on held-out samples, 0 to 1."""
    worker: int = field(whole())
    """The index of the worker that pulled and evaluated the weights."""


class GroupUpdates(Record):
    """The Y of a group's updates."""

    mean: float = field(number)
    counts: Mapping[str, int] = field(
        table(matching("[0-9]{1,9}", "a whole number"), whole(), _MOST_POINTS)
    )
    """{Y: number of updates}."""


class ComparisonFigures(Record):
    """The figures of a job of a comparison."""

    readings: Sequence[Reading] = field(each(record(Reading), _MOST_POINTS))
    """The readings of all workers, by rising time."""
    target_s: Optional[float] = field(optional(number))
    """The seconds to the first of two readings in a row at or above the target accuracy, None
    without such readings."""
    resolution: Optional[float] = field(optional(number))
    """The time from the reading before to this reading, as a part of `target_s`."""
    accuracy: Optional[float] = field(_figure)
    """The accuracy at the end of the job."""
    samples: int = field(whole())
    """The number of samples that all workers trained."""
    seconds: float = field(number, default=0.0)
    """The training time of the slowest worker."""
    samples_per_s: Optional[float] = field(optional(number))
    """The speed of all workers in their common training time."""
    waited: Optional[float] = field(optional(number))
    """The share of the training in which workers wait."""
    y: Mapping[str, GroupUpdates] = field(table(words, record(GroupUpdates)))
    """{group: the Y of its updates}."""


class ComparisonRecord(JobRecord, ComparisonFigures):
    """The result of a job of a comparison."""

    about: ComparisonAbout = field(record(ComparisonAbout))

    @property
    def setting(self) -> Setting:
        """The learning rate and the momentum of the job."""
        return Setting(self.about.lr, self.about.momentum)


class RunningJob(Record):
    """The job of a sweep that runs."""

    job: str = field(words)
    """The name of the job in the sweep."""
    id: str = field(names.job_id)
