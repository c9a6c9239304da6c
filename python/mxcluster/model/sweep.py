"""Define the files of a sweep in runs/<sweep>/.

sweep.json      the specification, a Benchmark or a Comparison
results.jsonl   the record of each job with a verdict, a BenchmarkRecord or a ComparisonRecord
running.json    the RunningJob, while a job runs
stopped.json    the ids of the interrupted jobs
"""

from typing import Mapping, Optional, Sequence, Tuple, Union, cast

from mxcluster.model import names
from mxcluster.model.knob import BENCHMARK, COMPARE
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Shape,
    Wrong,
    each,
    figure,
    flag,
    is_json,
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
from mxcluster.model.written import MOST

Knobs = Mapping[str, object]  # {knob of train.yml: typed value}


OK, DIVERGED, FAILED = "ok", "diverged", "failed"
SCHEMA = 1
SPEC_CURE = "restore this file, or choose another name for the sweep"
RUNNING_CURE = (
    "end the sweep's last job with stop.yml, then remove this file and run the playbook again"
)
_MOST_POINTS = 10**6  # points of a curve, values of Y, ids of interrupted jobs

# An accuracy may be NaN.
_figure = optional(figure)
_knobs = table(
    matching(r"[a-z][a-z0-9_]{0,59}", "the name of a knob"),
    passing(object, lambda value: is_json(value, 12), "JSON of at most 12 levels"),
)
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


class BenchmarkKnobs(Record):
    """The knobs of benchmark.yml."""

    networks: Sequence[str] = field(each(text))
    kvs: Sequence[str] = field(each(_kv))
    batch_sizes: Sequence[int] = field(each(whole(1, MOST)))
    gpu_counts: Sequence[int] = field(each(whole(0, names.MOST_GPU + 1)))
    scaling: Sequence[str] = field(each(_scaling))
    worker_counts: Sequence[int] = field(each(whole(1, MOST)))
    rendezvous: str = field(text)


class ComparisonKnobs(Record):
    """The knobs of compare.yml."""

    schemes: Sequence[str] = field(each(_scheme))
    lr_factors: Sequence[str] = field(each(text))
    """The factors of the learning rate, such as "1/W"."""
    seeds: int = field(whole(1, 100))
    """The number of seeds."""
    target: float = field(real(0, 1))
    """The accuracy to reach."""
    fastest_group: str = field(text)


class Specification(Record, kind_key="playbook"):
    """The specification of a sweep."""

    schema: int = field(_schema, default=SCHEMA)
    sweep: str = field(text)
    """The name of the sweep, and of its folder."""
    begun: float = field(real(0, 1e11))
    """The time of the begin in unix seconds."""
    knobs: Union[BenchmarkKnobs, ComparisonKnobs]
    base: Knobs = field(_knobs)
    """The knobs of train.yml that the user gave with -e."""
    workers: int = field(whole(1))
    """The number of workers of the whole cluster."""
    notes: Sequence[str] = field(each(words), default=[])


class Benchmark(Specification, kind=BENCHMARK):
    """The specification of a sweep of benchmark.yml."""

    knobs: BenchmarkKnobs = field(record(BenchmarkKnobs))

    def refuse_contradictions(self) -> None:
        """Raise Wrong without a number of workers."""
        if not self.knobs.worker_counts:
            raise Wrong("a list with an item", [], ".knobs.worker_counts")


class Rate(Record):
    """A learning rate of a comparison."""

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

    knobs: ComparisonKnobs = field(record(ComparisonKnobs))
    base_lr: float = field(_rate)
    """The learning rate that the factors multiply."""
    rates: Sequence[Rate] = field(each(record(Rate)))
    """The learning rates in rising order."""
    groups: Optional[Sequence[str]] = field(optional(each(words)), default=None)
    """The labels of the groups under dist_gsync."""
    fastest: Optional[FastestGroup] = field(optional(record(FastestGroup)), default=None)

    def refuse_contradictions(self) -> None:
        """Raise Wrong without a scheme, and without the hosts of the scheme `fastest`."""
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
    seed: int = field(whole())


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
    """Whether the machines were slower than planned."""


class BenchmarkRecord(JobRecord):
    """The result of a job of a benchmark. A failed job may lack the figures."""

    about: BenchmarkAbout = field(record(BenchmarkAbout))
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

    def refuse_contradictions(self) -> None:
        """Raise Wrong for a successful job without figures."""
        for name in ("samples_per_s", "median_s", "p10_s", "p90_s"):
            if self.state == OK and getattr(self, name) is None:
                raise Wrong("a number", None, "." + name)


def _point(value: object) -> Tuple[float, float]:
    seconds, accuracy = value if isinstance(value, (list, tuple)) and len(value) == 2 else (0, "")
    try:
        return number(seconds), figure(accuracy)
    except Wrong:
        raise Wrong("[seconds, accuracy]", value) from None


class GroupUpdates(Record):
    """The Y of a group's updates."""

    mean: float = field(number)
    counts: Mapping[str, int] = field(
        table(matching("[0-9]{1,9}", "a whole number"), whole(), _MOST_POINTS)
    )
    """{Y: number of updates}."""


class ComparisonRecord(JobRecord):
    """The result of a job of a comparison."""

    about: ComparisonAbout = field(record(ComparisonAbout))
    curve: Sequence[Tuple[float, float]] = field(each(_point, _MOST_POINTS))
    """[(seconds since the first worker's start, accuracy of worker 0), ...]."""
    target_s: Optional[float] = field(optional(number))
    """The seconds until worker 0 reached the target accuracy, None if it did not."""
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


class RunningJob(Record):
    """The job of a sweep that runs."""

    job: str = field(words)
    """The name of the job in the sweep."""
    id: str = field(names.job_id)
