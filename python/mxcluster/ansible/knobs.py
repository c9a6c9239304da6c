"""Check the names given with `-e name=value`. Each playbook reads only some of the knobs."""

from typing import Dict, Iterable, List, Sequence, Tuple

from mxcluster.errors import did_you_mean
from mxcluster.lists import listed
from mxcluster.model import job_knobs, sweep_knobs
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.knob import (
    BENCHMARK,
    COMPARE,
    MPI,
    PROFILE,
    PROVISION,
    TRAIN,
    VERIFY,
    knob,
    names_read,
)
from mxcluster.model.record import Record
from mxcluster.model.written import free, switch


class PlaybookKnobs(Record):
    """The knobs that belong to a playbook, not to a role."""

    attach: str = knob(free("the id of a started job"), "", playbooks=(TRAIN,))
    apply: bool = knob(switch, False, playbooks=(PROFILE,))


# The short names of each role's knobs. In the inventory the role's name comes first: train_job_kv,
# jobs_lines.
SHORT: Dict[str, Tuple[str, ...]] = {
    "train_job": job_knobs.NAMES,
    "jobs": (
        "job",
        "all",
        "save",
        "save_timeout",
        "lines",
        "follow",
        "only",
        "json",
        "find",
        "older_than",
    ),
    "reset": ("also",),
    "verify": ("speed", "report"),
    "sweep": tuple(name for section in sweep_knobs.SECTIONS for name in section.FIELDS),
}
_CLASSES = sweep_knobs.SECTIONS + job_knobs.SECTIONS + (PlaybookKnobs,)
# The short names that each playbook reads.
PLAYBOOKS: Dict[str, Sequence[str]] = {
    playbook: [name for one in _CLASSES for name in names_read(one, playbook)]
    for playbook in (PROVISION, VERIFY, TRAIN, MPI, PROFILE, BENCHMARK, COMPARE)
}
PLAYBOOKS[VERIFY] = [*PLAYBOOKS[VERIFY], *SHORT["verify"]]
PLAYBOOKS.update(
    {
        "status.yml": ("json",),
        "logs.yml": ("job", "lines", "follow", "only"),
        "stacks.yml": ("job", "only"),
        "stop.yml": ("job", "all", "save", "save_timeout"),
        "clean.yml": ("older_than", "runs_dir"),
        "reset.yml": ("also",),
        "runs.yml": ("find", "lines", "runs_dir", "job", "tag", "note"),
    }
)
# The knobs that train.yml reads if attach is given, because the job already has a plan. `without`
# names nodes whose copy of the plan does not count.
_WITH_ATTACH = ("attach", "runs_dir", "without", "notify_command", "tasks_after")
# Host variables of the inventory. With -e they apply to all hosts.
OF_A_HOST = tuple(HostVariables.FIELDS)


def unknown(
    given: Iterable[str],
    playbooks: Iterable[str],
    documented: Iterable[str],
    inventory: Iterable[str],
) -> List[str]:
    """Return a message for each unknown name in `given`.

    Args:
        given: the names given with -e.
        playbooks: the names of the running playbooks.
        documented: the variables of all roles.
        inventory: the names that the inventory defines or uses.
    """
    readers, problems = sorted(playbooks), []
    read = sorted({name for playbook in readers for name in PLAYBOOKS[playbook]})
    of_playbooks = {name for names in PLAYBOOKS.values() for name in names}
    everywhere = {*documented, *inventory, *(set(OF_A_HOST) - of_playbooks)}
    for name in sorted(set(given) - set(read) - everywhere):
        owners = [playbook for playbook in sorted(PLAYBOOKS) if name in PLAYBOOKS[playbook]]
        if TRAIN in owners:  # sweeps only pass knobs of train.yml on
            owners = [one for one in owners if one not in (BENCHMARK, COMPARE)]
        if name == "_raw_params":  # Ansible's name for words without '='
            problems.append(
                "-e needs a name and a value: write -e name=value, or -e @file for a file"
            )
        elif owners:
            problems.append(
                "-e %s is a knob of %s, and %s does not read it%s: remove this knob, or correct "
                "its name" % (name, listed(owners), listed(readers), did_you_mean(name, read))
            )
        else:
            hint = did_you_mean(name, read) or _longer(name, everywhere)
            problems.append(
                "-e %s is unknown, because no role, playbook or inventory has this variable%s: "
                "correct the name, or remove this variable"
                % (name, hint or did_you_mean(name, everywhere))
            )
    return problems


def beside_attach(given: Iterable[str]) -> List[str]:
    """Return a message for each name in `given` that train.yml ignores beside -e attach=<job>.

    Such a knob would change the plan, but the job already has a plan.

    Args:
        given: the names given with -e.
    """
    return [
        "-e %s is not allowed beside -e attach=<job>, because the job already has a plan: remove "
        "this knob" % name
        for name in sorted(given)
        if name in PLAYBOOKS[TRAIN] and name not in _WITH_ATTACH
    ]


def _longer(name: str, names: Iterable[str]) -> str:
    """Return a hint with the role variables in `names` that end with `name`, or ""."""
    found = sorted(longer for longer in names if longer.endswith("_" + name))
    return " (did you mean %s?)" % " or ".join(map(repr, found[:3])) if found else ""
