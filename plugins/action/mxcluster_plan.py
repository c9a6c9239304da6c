"""Make the plan of a job on the controller with `mxcluster.job.plan.inputs`.

The plugin reads only the node records, the profile beside their folder, and the user's files. If
grouping=auto is set and no profile fits, the plugin first runs profile.yml as a child of this
ansible-playbook, but not in check mode and with plan_only.
"""

import os
import sys
from typing import Mapping, Sequence

from ansible import context

from mxcluster.ansible import arguments, attempts, controller_task
from mxcluster.ansible.controller_task import ControllerTask, show
from mxcluster.ansible.hooks import hooks
from mxcluster.errors import BadInput
from mxcluster.job.plan import inputs, mpi_inputs, packed, ports
from mxcluster.job.plan.ports import Held
from mxcluster.job.plan.script_packages import Store
from mxcluster.model.hooks import NO_HOOKS, GivenHooks, Hooks
from mxcluster.model.inventory import Inventory
from mxcluster.model.record import field, record
from mxcluster.model.shapes import table, text
from mxcluster.model.software import Layer

TRAIN = "train.yml"
PROFILE = "profile.yml"
MOST = 90  # maximum number of characters of a job's id within the id of its measuring job
_layers = table(arguments.text, record(Layer))  # a class below has a field `table`


class Arguments(arguments.Planning):
    """The arguments of the task."""

    held: Held = field(table(text, table(text, table(text, text))), default={})
    """{host: ports and GPUs in use}, from mxcluster_node."""
    lost: Sequence[str] = field(arguments.texts, default=[])
    """The hosts that do not answer, which an elastic job leaves out."""
    replaced: str = field(arguments.text, default="")
    """The `packed_plan` of the plan whose ports or GPUs are in use, or empty."""
    measures: bool = field(arguments.flag, default=False)
    """True if the job measures the cluster for profile.yml."""
    hooks: GivenHooks = field(record(GivenHooks), default=NO_HOOKS)
    """The knobs of the site's hooks as the user gave them."""
    mpi: Mapping[str, object] = field(arguments.json, default={})
    """The knobs of mpi.yml; empty for a training job."""
    store: str = field(arguments.path)
    """The folder of the fetched wheels on the controller."""


class Result(controller_task.Result, packed.Summary):
    """The plan, from `packed.summary` and `inputs.plan_job`."""

    table: Sequence[str] = field(arguments.texts)
    run_dir: str = field(arguments.text)
    """The run folder of the job on the controller."""
    script: str = field(arguments.text)
    """The folder of the user's script as a zip file in base64, or empty."""
    requirements: str = field(arguments.text, default="")
    """The content of the script's requirements file, or empty."""
    needs_profile: bool = field(arguments.flag)
    """True if grouping=auto finds no profile that fits."""
    model: str = field(arguments.text)
    """The path of the saved model to start from, or empty."""
    resume: Sequence[str] = field(arguments.texts)
    """The paths of all files of the checkpoint to resume from."""
    layers: Mapping[str, Layer] = field(_layers, default={})
    """{host: the layer with the packages of the script}."""
    hooks: Hooks = field(record(Hooks))


def plan(given: Arguments, runs_dir: str, check: bool) -> inputs.Planned:
    """Return the result of `plan_job` for a training job or an MPI job.

    Args: `given` the arguments of the task; `runs_dir` the folder of the runs; `check` True in
    check mode.
    """
    inventory = Inventory.decode(dict(given.inventory, forks=given.forks, lost=given.lost))
    store = Store(os.path.abspath(given.store), check)
    folders = inputs.Folders(given.records_dir, runs_dir, given.cwd, store)
    if given.mpi:
        knobs = dict(given.options, **given.mpi)
        return mpi_inputs.plan_job(knobs, inventory, folders, given.secrets, given.held)
    return inputs.plan_job(
        dict(given.options),
        inventory,
        folders,
        given.secrets,
        given.held,
        given.given,
        given.measures,
    )


def measure(job: str) -> None:
    """Run profile.yml as a child of this ansible-playbook, for a job with grouping=auto.

    Args: `job` the job's id. Raises BadInput if the child fails, or if the command line cannot run
    again unattended.
    """
    own = next((path for path in context.CLIARGS["args"] if os.path.basename(path) == TRAIN), None)
    problem = attempts.refusal(sys.argv[0], context.CLIARGS)
    if own is None:
        problem = "the command line does not name %s" % TRAIN
    if problem:
        raise BadInput(
            "grouping=auto cannot run %s on the controller: %s. Run %s -e apply=true yourself, or "
            "use -e grouping=given" % (PROFILE, problem, PROFILE)
        )
    attempts.end_with_parent()
    extra = {"job_id": job[:MOST] + "-profile", "apply": True, "detach": False}
    status = attempts.run(extra, show, own, PROFILE)
    if status:
        raise BadInput(
            "grouping=auto: %s failed with status %d. Remove the error in the output above, "
            "or use -e grouping=given" % (PROFILE, status)
        )


def carry_out(given: Arguments, check: bool) -> Result:
    """Make the plan of a job.

    If grouping=auto is set and no profile fits, the function first measures the cluster. In check
    mode and with plan_only it skips the measurement.

    Args: `given` the arguments of the task; `check` True in check mode.
    Raises BadInput for a wrong input, or if the measurement fails.
    """
    state_dir = os.path.dirname(os.path.abspath(given.records_dir))
    runs_dir = inputs.results_folder(given.runs_dir, state_dir)
    found = hooks(given.hooks, given.cwd)
    planned = plan(given, runs_dir, check)
    if planned.plan.needs_profile and not (check or planned.plan.options.plan_only):
        measure(planned.plan.job)
        planned = plan(given, runs_dir, check)
    reasons = (
        ports.busy(packed.unpack(given.replaced).plan.processes, given.held)
        if given.replaced
        else []
    )
    return Result(
        table=reasons + planned.table.splitlines(),
        run_dir=os.path.join(runs_dir, planned.plan.job),
        script=planned.script,
        requirements=planned.requirements,
        needs_profile=planned.plan.needs_profile,
        model=planned.model,
        resume=planned.resume,
        layers={
            host: planned.plan.layers[node.layer]
            for host, node in planned.plan.nodes.items()
            if node.layer
        },
        hooks=found,
        **vars(packed.summary(planned.plan, planned.looks)),
    )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_plan`, which Ansible runs on the controller."""
