"""Record what a started job runs, in its run folder on the controller.

The plugin writes run.json, knobs.yml, script.zip and requirements.txt with
`mxcluster.job.what_ran`. A record that cannot be written is a warning, because the job already
runs. In check mode the plugin writes nothing.
"""

import os
import sys
from typing import Mapping, Sequence

import yaml
from ansible import context
from ansible.utils.display import Display

from mxcluster.ansible import arguments, command_words, controller_software, controller_task
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.ansible.edge import TaskResult
from mxcluster.errors import MxclusterError, of_system
from mxcluster.job import what_ran
from mxcluster.job.plan import packed
from mxcluster.model.answers import Looked
from mxcluster.model.record import Record, field
from mxcluster.model.run_record import RunRecord, now
from mxcluster.model.shapes import Wrong
from mxcluster.model.sweep import Knobs

REGISTERED = ("looks",)
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


class Arguments(Record, strict=True):
    """The arguments of the task."""

    run_dir: str = field(arguments.path)
    """The job's run folder, which may be missing."""
    packed_plan: str = field(arguments.text)
    """The result of mxcluster_plan."""
    script: str = field(arguments.text)
    """The folder of the user's script as a zip file in base64, or empty."""
    requirements: str = field(arguments.text, default="")
    """The content of the script's requirements file, or empty."""
    options: Knobs = field(arguments.json)
    """The knobs as the user gave them, with the defaults of the role."""
    given: Sequence[str] = field(arguments.texts, default=[])
    """The names of the knobs that the user gave with -e."""
    looks: Mapping[str, TaskResult] = field(arguments.json, default={})
    """{host: the result of mxcluster_node command=look}. The task gives the name of the
    variable."""
    records_dir: str = field(arguments.path)
    """The folder of the node records."""
    inventory: Sequence[str] = field(arguments.texts, default=[])
    """The paths of the inventory."""


class Result(controller_task.Result):
    """The result of the task. `changed` is True for a written record."""


def looked(results: Mapping[str, TaskResult]) -> Mapping[str, Looked]:
    """Return {host: its answer} of the results of mxcluster_node command=look.

    A result without an answer, as in a play without this host, is left out.
    """
    found = {}
    for host, result in results.items():
        try:
            found[host] = Looked.decode(result)
        except Wrong:
            continue
    return found


def carry_out(given: Arguments, check: bool) -> Result:
    """Write the record of a started job.

    Args: `given` the arguments of the task; `check` True in check mode, which writes nothing.
    """
    if check:
        return Result(changed=True)
    try:
        _write(given)
    except (MxclusterError, OSError, yaml.YAMLError) as error:
        why = of_system(error, given.run_dir) if isinstance(error, OSError) else str(error)
        Display().warning("the run folder has no record of what runs: %s" % why)
        return Result(changed=False)
    return Result(changed=True)


def _write(given: Arguments) -> None:
    known = packed.unpack(given.packed_plan)
    plan = known.plan
    knobs = what_ran.given_knobs(plan, given.options, given.given)
    record = RunRecord(
        job=plan.job,
        command=command_words.shown(sys.argv, context.CLIARGS.get("args") or ()),
        inventory=given.inventory,
        controller=controller_software.look(PROJECT, known.looks),
        nodes=what_ran.nodes(plan, looked(given.looks), given.records_dir),
        code=what_ran.code(plan.options, given.script),
        given=knobs,
        of_inventory=sorted(set(knobs) - set(given.given)),
        resolved=plan.options,
        begun=now(),
    )
    what_ran.write(
        given.run_dir, record, plan.options, given.script, given.given, given.requirements
    )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_record`, which Ansible runs on the controller."""
