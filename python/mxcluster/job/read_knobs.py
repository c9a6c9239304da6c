"""Tell which knobs a job could read. All functions are pure."""

from typing import FrozenSet, List, Tuple

from mxcluster import schemes
from mxcluster.job.plan import containers, mpi
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.job_knobs import DEADLINE, HOST, Measurements, Options, Training
from mxcluster.model.knob import PROFILE, TRAIN, knobs_of, names_read
from mxcluster.model.plan import Plan

# Knobs of the training program that a script does not get, beside those of its sections.
_OF_PROGRAM = ("program", "lr_scale", "model_load_job")
# Knobs of the training program's sections that also count for a script.
_OF_EVERY_WORKER = ("data_dir", "data_allocator", "keep_checkpoints")
_OF_SCRIPT = ("script_args", "script_root", "script_mb", "requirements", "server_classes")


def readable(plan: Plan) -> FrozenSet[str]:
    """Return the names of the knobs that the job of `plan` could read."""
    options = plan.options
    if plan.mpi:
        return frozenset(mpi.KNOBS)
    if options.measures_cluster:
        return frozenset(names_read(Options, PROFILE)) - _unread(options)
    return frozenset(names_read(Options, TRAIN)) - _unread(options)


def values(plan: Plan) -> List[Tuple[str, object]]:
    """Return [(name, value)] of the knobs that the job of `plan` could read."""
    known = readable(plan)
    return [item for item in vars(plan.options).items() if item[0] in known]


def _unread(options: Options) -> FrozenSet[str]:
    """Return the names of the knobs that other jobs read."""
    launcher, scheme = LAUNCHERS[options.launcher], schemes.of(options.kv)
    found = {name for one in LAUNCHERS.values() for name in one.knobs} - set(launcher.knobs)
    found |= {name for name in knobs_of(Options) if schemes.with_knob(name)} - set(scheme.knobs)
    if options.runtime == HOST:
        found |= set(containers.KNOBS)
    if options.compression == "none":
        found.add("compression_threshold")
    if options.balance != DEADLINE:
        found.add("least_batch")
    if options.script:
        found |= {*Training.FIELDS, *Measurements.FIELDS, *_OF_PROGRAM} - set(_OF_EVERY_WORKER)
    else:
        found |= set(_OF_SCRIPT)
    return frozenset(found)
