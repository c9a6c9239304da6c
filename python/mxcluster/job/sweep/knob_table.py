"""Define the knobs of benchmark.yml and compare.yml, one table entry for each knob.

From this table, `make docs` generates the defaults and argument specs of the role sweep, and parts
of group_vars/all.yml and docs/knobs.md. mxcluster also checks the names given with -e against the
table. `mxcluster.job.knob_table` defines the knobs of train.yml that a sweep passes on to the jobs.
"""

import json
import re
from typing import Any, Dict, List, Tuple

from mxcluster import schemes
from mxcluster.errors import BadInput, refuse
from mxcluster.job.knob_table import MOST_PROCESSES, OPTIONS
from mxcluster.job.option_types import (
    MOST,
    MOST_GPU,
    Knob,
    are_between,
    between,
    cast_value,
    to_text,
)
from mxcluster.job.sweep.schemes_table import NAMES
from mxcluster.model.sweep import BENCHMARK as BENCHMARK
from mxcluster.model.sweep import COMPARE as COMPARE
from mxcluster.numbers import to_float, to_int

MOST_JOBS = 10000
MOST_ITEMS = 1000  # of a list
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
# INTERFACE:ADDRESS:PORT, where INTERFACE is optional, as in DLBS.
RENDEZVOUS = re.compile(
    r"(?:(?P<interface>[A-Za-z0-9_.@+-]{1,15}):)?(?P<address>[0-9]+(?:\.[0-9]+){3}):(?P<port>[0-9]+)"
)
_NUMBER = r"[0-9]+(?:\.[0-9]*)?"
FACTOR = re.compile(r"(%s)(?:/(%s|W|sqrt\(W\)))?" % (_NUMBER, _NUMBER))


def _items(value: Any) -> List[Any]:
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


def _numbers(value: Any) -> List[int]:
    return [to_int(item) for item in _items(value)]


def _texts(value: Any) -> List[str]:
    return [to_text(item) for item in _items(value)]


def _some_of(names: Tuple[str, ...]) -> Any:
    return lambda items: bool(items) and all(item in names for item in items)


def _knob(
    name: str,
    type: str,
    default: Any,
    cast: Any,
    check: Any,
    message: str,
    description: str,
    choices: Any = None,
) -> Knob:
    return Knob(
        name, default, cast, check, message, type, description, choices, False, "", False, False
    )


_BOTH = (
    _knob(
        "sweep",
        "str",
        "",
        to_text,
        lambda text: text == "" or bool(_ID.fullmatch(text)),
        "at most 60 letters, digits, '.', '_' and '-', beginning with a letter or digit",
        "The name of the sweep and of the sweep's folder in `runs/`. With the name of an earlier "
        "sweep, the playbook continues this sweep. The default is the time and the playbook, such "
        "as `20261121-101500-benchmark`.",
    ),
    _knob(
        "again",
        "str",
        "",
        to_text,
        ("", "failed", "late"),
        "empty, failed or late",
        "`failed` runs the failed jobs of an earlier `sweep` once more. `late` runs its jobs with "
        "late steps once more: with `slowdown` or `step_ms`, steps that took longer than planned "
        "on an overloaded machine.",
        choices=("", "failed", "late"),
    ),
    _knob(
        "max_jobs",
        "int",
        200,
        to_int,
        between(1, MOST_JOBS),
        "a whole number from 1 to %d" % MOST_JOBS,
        "The largest number of jobs. mxcluster refuses a sweep with more jobs before the first "
        "job. From 1 to %d." % MOST_JOBS,
    ),
)

SECTIONS: Dict[str, Tuple[Knob, ...]] = {
    "Both playbooks.": _BOTH,
    "benchmark.yml: lists, of which every combination is a job.": (
        _knob(
            "networks",
            "raw",
            ["resnet20"],
            _texts,
            bool,
            "a list of networks, such as resnet20,lenet",
            "The networks to measure, such as `resnet20,lenet`.",
        ),
        _knob(
            "kvs",
            "raw",
            ["dist_sync"],
            _texts,
            _some_of(schemes.NAMES),
            "a list of parallel schemes out of " + ", ".join(schemes.NAMES),
            "The parallel schemes, such as `dist_sync,dist_gsync`. `local` and `device` run with "
            "one worker only.",
        ),
        _knob(
            "batch_sizes",
            "raw",
            [32],
            _numbers,
            lambda items: bool(items) and are_between(1, MOST)(items),
            "a list of whole numbers from 1 to %d, such as 32,64" % MOST,
            "The batch sizes, such as `32,64`. Weak scaling uses the batch size for each worker. "
            "Strong scaling divides the batch size among all workers. From 1 to %d." % MOST,
        ),
        _knob(
            "gpu_counts",
            "raw",
            [],
            _numbers,
            are_between(0, MOST_GPU + 1),
            "a list of whole numbers from 0 to %d, such as 1,2,4" % (MOST_GPU + 1),
            "The numbers of GPUs of a worker, such as `1,2,4`. 0 trains on the CPU. An empty list "
            "means the GPUs of the knob `gpus`. From 0 to %d." % (MOST_GPU + 1),
        ),
        _knob(
            "scaling",
            "raw",
            ["weak"],
            _texts,
            _some_of(("weak", "strong")),
            "weak, strong or weak,strong",
            "`weak`: the batch size of a worker is constant. `strong`: the batch size of all "
            "workers together is constant and must be divisible by the number of workers.",
        ),
        _knob(
            "worker_counts",
            "raw",
            [],
            _numbers,
            are_between(1, MOST_PROCESSES),
            "a list of whole numbers from 1 to %d, such as 1,2,4" % MOST_PROCESSES,
            "The numbers of workers, such as `1,2,4`. A job takes the first workers of the "
            "inventory. An empty list means 1, 2, 4 and so on, and the number of all workers. From "
            "1 to %d." % MOST_PROCESSES,
        ),
        _knob(
            "rendezvous",
            "str",
            "",
            to_text,
            lambda text: text == "" or bool(RENDEZVOUS.fullmatch(text)),
            "INTERFACE:ADDRESS:PORT or ADDRESS:PORT, such as ib0:10.0.0.1:9091",
            "The scheduler as `INTERFACE:ADDRESS:PORT` or `ADDRESS:PORT`, such as "
            "`ib0:10.0.0.1:9091`, instead of `dmlc_interface` and `root_port`. The address must be "
            "the address of the scheduler's host.",
        ),
    ),
    "compare.yml.": (
        _knob(
            "schemes",
            "raw",
            [],
            _texts,
            lambda items: all(item in NAMES for item in items),
            "a list of schemes out of %s" % ", ".join(NAMES),
            "The schemes that compare.yml trains, any of `%s`. An empty list means all."
            % "`, `".join(NAMES),
        ),
        _knob(
            "lr_factors",
            "raw",
            ["1/W", "1/sqrt(W)", "1/2", "1", "2"],
            _texts,
            lambda items: bool(items) and all(map(FACTOR.fullmatch, items)),
            "a list of numbers such as 0.5, 1/2, 1/W or 1/sqrt(W), with W the number of workers",
            "The learning rates to try, as factors of `lr`. W is the number of workers of the "
            "inventory. compare.yml tries equal rates only once.",
        ),
        _knob(
            "seeds",
            "int",
            5,
            to_int,
            between(1, 100),
            "a whole number from 1 to 100",
            "The number of seeds: `seed`, `seed` + 1 and so on. All learning rates run with the "
            "first seed. The other seeds run at each scheme's best rate and at the common rate. "
            "From 1 to 100.",
        ),
        _knob(
            "target",
            "float",
            0.95,
            to_float,
            lambda value: 0 < value < 1,
            "an accuracy above 0 and below 1, such as 0.95",
            "The validation accuracy to reach, above 0 and below 1. compare.yml measures the time "
            "until a job reaches this accuracy.",
        ),
        _knob(
            "fastest_group",
            "str",
            "",
            to_text,
            None,
            "the label of a group",
            "The label of the group that trains alone in the scheme `fastest`. An empty label "
            "means the fastest group of the profile. Without a profile, an empty label means the "
            "first group of the inventory.",
        ),
    ),
}
KNOBS = tuple(knob for knobs in SECTIONS.values() for knob in knobs)
_OF = {
    BENCHMARK: tuple(SECTIONS)[1],
    COMPARE: tuple(SECTIONS)[2],
}
# The knobs of train.yml that a sweep sets, or that have no use in a sweep.
_REFUSED = {
    "kv",
    "job_id",
    "resume",
    "model_load_epoch",
    "model_load_job",
    "detach",
    "max_restarts",
    "restart_delay",
    "program",
    "script",
    "script_args",
    "server_classes",
    "savemodel",
    "keep_checkpoints",
    "collect_mb",
    "num_workers",
    "measure_waits",
}
_REFUSED_OF = {
    BENCHMARK: {"network", "batch_size", "num_epochs"},
    COMPARE: {"balance", "lr_scale", "measured", "warm_up"},
}
# The knobs that only the role train_job reads.
_OF_ROLE = ("secret_env", "runs_dir")


def knobs_of(playbook: str) -> Tuple[Knob, ...]:
    """Return the Knobs of this table that `playbook` reads."""
    return _BOTH + SECTIONS[_OF[playbook]]


def passed_on(playbook: str) -> Tuple[str, ...]:
    """Return the names of the options of train.yml that `playbook` passes on to its jobs."""
    refused = _REFUSED | _REFUSED_OF[playbook]
    return tuple(knob.name for knob in OPTIONS if knob.name not in refused)


def names_of(playbook: str) -> Tuple[str, ...]:
    """Return the names of all knobs that a user can give to `playbook` with -e."""
    return tuple(knob.name for knob in knobs_of(playbook)) + passed_on(playbook) + _OF_ROLE


def cast(playbook: str, given: Dict[str, Any]) -> Dict[str, Any]:
    """Return {name: typed value} of the knobs of this table that `playbook` reads.

    Raises BadInput with all wrong values.

    Args: `given` {name: value} from the user; a knob without a value has the default.
    """
    found, problems = {}, []
    for knob in knobs_of(playbook):
        try:
            value = cast_value(knob, given.get(knob.name))
        except BadInput as refusal:
            problems.append(str(refusal))
            continue
        found[knob.name] = list(value) if isinstance(value, list) else value
    refuse(problems)
    return found
