"""Read the inputs of a plan on the controller, and make the plan of one job.

The inputs are the user's files and the node records of `provision.yml`. The functions of this
module only read files. The pure functions are in `plan` and `options`.
"""

import glob
import os
import time
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxcluster import checkpoints, package, schemes
from mxcluster.cluster import node_records, profile
from mxcluster.errors import BadInput, did_you_mean, refuse, shown
from mxcluster.file_io import check_folder
from mxcluster.job import launchers, user_script
from mxcluster.job import options as knobs
from mxcluster.job.plan import (
    Inputs,
    containers,
    make_cluster_files,
    make_plan,
    measuring,
    ports,
    resume,
    submission,
    table,
)
from mxcluster.job.plan.look import look
from mxcluster.job.plan.site import FILES
from mxcluster.launchers import LAUNCHERS
from mxcluster.lists import unique
from mxcluster.model.host_variables import HostVariables, of_hosts
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import Controller, Options
from mxcluster.model.knob import read
from mxcluster.model.node_record import MachineFacts, Network, NodeRecord
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.plan import WORKER, ClusterFiles, Plan
from mxcluster.model.profile import Profile

MOST_TEXT = 4 << 20  # bytes of a file hosts, groups or data_sharding
PROFILE = "profile.json"  # beside the folder of the node records


class Folders(NamedTuple):
    """Folders of the controller.

    Attributes:
        records: the folder of the node records. The profile, if any, is beside this folder.
        runs: the folder of all runs.
        cwd: the folder at which relative paths begin.
    """

    records: str
    runs: str
    cwd: str


class Secrets(NamedTuple):
    """The names in the knob secret_env, and the problems of this knob. No plan has the values."""

    names: Sequence[str]
    problems: Sequence[str]


class Planned(NamedTuple):
    """The plan of a job and the data for the start of the job.

    Attributes:
        plan: the plan. For a job of a batch system, the plan is the submission.
        table: the plan as text, after the notes for the user.
        looks: {host: the needs of the job on this host}.
        model: the path of the saved model to start from, or "".
        resume: the paths of all files of the checkpoint to resume from, or [].
        script: the folder of the script as a zip file in base64, or "".
    """

    plan: Plan
    table: str
    looks: Mapping[str, LookRequest]
    model: str = ""
    resume: List[str] = []
    script: str = ""


def plan_job(
    given: Mapping[str, object],
    inventory: Inventory,
    folders: Folders,
    secrets: Optional[Secrets] = None,
    held: Optional[ports.Held] = None,
    anew: Iterable[str] = (),
    measures: bool = False,
) -> Planned:
    """Return the plan of a job and the data for its start. Raises BadInput with all faults.

    Args:
        given: {name: value} of the options, as the user wrote them.
        inventory: the hosts, and Ansible's forks.
        folders: the controller's folders. The folder of the runs must have no run of this id.
        secrets: the names of secret_env; the plan never holds the values.
        held: {host: ports and GPUs in use}, None before the nodes have reported them.
        anew: the names of the options that the user gave with -e.
        measures: True for a job of profile.yml, which measures the cluster and trains nothing.
    """
    checkpoint: Optional[checkpoints.Checkpoint] = None
    notes: List[str] = []
    if measures:
        given = measuring.knobs_of(given)
    options = read(Options, given)
    if options.resume:
        options, checkpoint, notes = resume.resumed(options, folders.runs, anew)
    options = with_paths(knobs.checked(options), folders.cwd)
    launchers.refuse_unread(options.launcher, list(anew))
    containers.refuse_unread(options.runtime, list(anew))
    if measures:
        options = options.replaced(program=measuring.PROGRAM)
    refuse_secrets(secrets, [options.env, options.env_server, options.env_worker])
    kind = measuring.PROGRAM if measures else options.kv
    job = new_job(options.job_id, kind, folders.runs)
    records = node_records.read(folders.records)
    files = _files(options)
    model = _model(options, folders.runs) if options.model_load_epoch else ""
    if options.without:
        options, inventory, fewer = without(options, inventory)
        notes = notes + fewer
    inputs = Inputs(
        options=options,
        inventory=inventory,
        records=records,
        job=job,
        files=files,
        model_file="model.params" if model else None,
        held=held,
        checkpoint=checkpoint.manifest if checkpoint else None,
    )
    if LAUNCHERS[options.launcher].is_batch:
        planned = _submission(inputs, notes, measures)
    else:
        planned = _training(inputs, notes, folders.records)
    return planned._replace(model=model, resume=checkpoint.files if checkpoint else [])


def _training(inputs: Inputs, notes: List[str], records_dir: str) -> Planned:
    """Return the plan of a training on nodes of the inventory.

    Args: `notes` the lines for the user; `records_dir` the folder beside the profile.
    """
    options, records = inputs.options, inputs.records
    try:
        inputs = inputs._replace(profile=read_profile(records_dir))
    except BadInput as refusal:
        # A damaged profile must not stop profile.yml, or a job that needs no profile.
        if schemes.of(options.kv).waits == schemes.GROUP:
            notes = notes + ["mxcluster ignores the profile: %s" % refusal]
    try:
        plan = make_plan(inputs)
    except BadInput as refusal:
        named = [name + "_file" for name, text in inputs.files.items() if text is not None]
        if options.without and named:
            raise BadInput(
                "%s\nIf without=%s is the cause, remove the addresses of these hosts from your "
                "%s, too" % (refusal, ",".join(options.without), ", ".join(named))
            ) from None
        raise
    script, more = _script(options, [records[one.host] for one in plan.of_role(WORKER)])
    packed = package.archive()[0]  # once for all nodes, because packing takes long
    variables = of_hosts(list(plan.nodes), inputs.inventory.hosts)
    return Planned(
        plan=plan,
        table="\n".join(notes + more + [table(plan)]),
        looks={
            host: look(plan, host, records[host], variables[host], packed) for host in plan.nodes
        },
        script=script,
    )


def _submission(inputs: Inputs, notes: List[str], measures: bool) -> Planned:
    """Return the submission of a job to a batch system.

    Args: `notes` the lines for the user; `measures` as for `plan_job`.
    """
    options = inputs.options
    if measures:
        raise BadInput(
            "launcher=%s is refused for profile.yml, because a batch system chooses the nodes: use "
            "launcher=ssh" % options.launcher
        )
    plan, request = submission.submission(inputs)
    host = next(iter(plan.nodes))
    record = inputs.records[host]
    script, more = _script(options, [record])
    wanted = look(plan, host, record, HostVariables(), package.archive()[0])
    return Planned(
        plan=plan,
        table="\n".join(notes + more + [submission.table(plan, request)]),
        looks={host: wanted.replaced(batch=request.resources)},
        script=script,
    )


def _script(options: Options, records: Sequence[NodeRecord]) -> Tuple[str, List[str]]:
    """Return (the folder of the script as a zip file in base64, notes); ("", []) without a script.

    Args: `records` of the nodes that run the script.
    """
    if not options.script:
        return "", []
    return user_script.pack(options.script, [record.python_version for record in records])


def refuse_secrets(secrets: Optional[Secrets], environments: Sequence[Mapping[str, str]]) -> None:
    """Refuse a wrong secret_env, and a variable in secret_env and in one of `environments`."""
    if secrets:
        public = {name: text for one in environments for name, text in one.items()}
        knobs.refuse_secret_env(secrets.names, secrets.problems, public)


def results_folder(runs_dir: Any, state_dir: str, job: str = "") -> str:
    """Return the path of the folder of all runs, after a check of the controller's disk.

    The function looks for all that a job needs on the controller at its end. Raises BadInput if the
    controller cannot write to the folder of the runs, or to its state folder.

    Args: `runs_dir` the knob as the user gave it; `state_dir` the folder .state/<inventory>; `job`
    the id of a started job, whose own folder counts.
    """
    # The default of the knob is a template of Ansible, so null is refused as "" is.
    own = read(Controller, {"runs_dir": "" if runs_dir is None else runs_dir})
    folder = os.path.expandvars(os.path.expanduser(own.runs_dir))
    check_folder("runs_dir", os.path.join(folder, job) if job else folder)
    check_folder("mxcluster_state_dir", state_dir)
    return folder


def new_job(wanted: str, kind: str, runs_dir: str) -> str:
    """Return the id of a new job: `wanted`, or the time and `kind` if `wanted` is "".

    Raises BadInput if a run in `runs_dir` has this id.
    """
    job = wanted or time.strftime("%Y%m%d-%H%M%S-") + kind
    if os.path.exists(os.path.join(runs_dir, job)):
        raise BadInput(
            "job_id='%s' belongs to an earlier job in %s: choose another job_id, or leave job_id "
            "out" % (job, os.path.join(runs_dir, job))
        )
    return job


def plan_cluster(
    given: Mapping[str, object],
    inventory: Inventory,
    records_dir: str,
    facts: Mapping[str, Network],
    cwd: str,
) -> ClusterFiles:
    """Return the addresses and cluster files of an inventory, from `plan.make_cluster_files`.

    Raises BadInput with all faults of the inventory. A damaged profile also raises BadInput,
    because the cluster files would lack the groups of the profile.

    Args: `facts` {host: network} of the nodes in this play; the records describe all other nodes.
    The other arguments are as for `plan_job`.
    """
    records: Dict[str, MachineFacts] = {}
    records.update(node_records.read(records_dir))
    for host, seen in facts.items():  # the play writes a new record of this host
        known = records.get(host)
        records[host] = MachineFacts(
            address_of_default_route=seen.address_of_default_route,
            interfaces=seen.interfaces,
            hostname=known.hostname if known else "",
        )
    options = with_paths(knobs.cast(given), cwd)
    return make_cluster_files(
        options, inventory, records, _files(options), read_profile(records_dir)
    )


def without(options: Options, inventory: Inventory) -> Tuple[Options, Inventory, List[str]]:
    """Return (options, inventory, notes) of a job without the hosts of the option `without`.

    If too few workers or servers are left, the options have a lower num_workers or num_servers. The
    notes are lines for the user. Raises BadInput if a host is unknown, or if a group of the
    inventory would be empty.
    """
    named, groups = options.without, inventory.groups
    known = unique(host for group in groups.values() for host in group)
    refuse(
        "without=%s: the inventory has no such host%s: name one of %s"
        % (host, did_you_mean(host, known), ", ".join(known))
        for host in named
        if host not in known
    )
    left = {group: [host for host in hosts if host not in named] for group, hosts in groups.items()}
    roles = (
        ["scheduler", "servers", "workers"]
        if schemes.of(options.kv).is_distributed
        else ["workers"]
    )
    refuse(
        "without=%s leaves no host in the group %s, which has %s: put another host into that group "
        "(run provision.yml for a new host), or give another inventory with -i"
        % (",".join(named), group, ", ".join(groups[group]))
        for group in roles
        if groups.get(group) and not left[group]
    )
    notes = ["without %s" % ", ".join(named)]
    for role in roles[-2:] if len(roles) > 1 else []:
        if role == "workers" and options.hosts_file:
            continue
        variables = of_hosts(left[role], inventory.hosts).values()
        there = sum(
            one.workers_per_host if role == "workers" else one.servers_per_host for one in variables
        )
        wanted = options.num_workers if role == "workers" else options.num_servers
        if wanted > there:
            notes.append(
                "num_%s=%d is too high without these hosts, so the job uses %d"
                % (role, wanted, there)
            )
            options = options.replaced(**{"num_" + role: there})
    return options, inventory.replaced(groups=left), notes


def read_profile(records_dir: str) -> Optional[Profile]:
    """Return the checked profile from the file profile.json beside the folder `records_dir`.

    The result is None without this file. Raises BadInput if the file is damaged.
    """
    return profile.of_file(os.path.join(os.path.dirname(os.path.abspath(records_dir)), PROFILE))


def with_paths(options: Options, cwd: str) -> Options:
    """Return `options` with absolute paths of the user's files.

    Raises BadInput if a file is missing. `cwd` is as for `plan_job`.
    """
    paths = {
        name: existing(name, path, cwd, folder=name == "data_src")
        for name in ("script", "hosts_file", "groups_file", "data_sharding_file", "data_src")
        for path in [vars(options)[name]]
        if path
    }
    if options.server_classes:
        _classes_beside(options.server_classes, paths["script"])
    folder = paths.get("data_src")
    if folder and not any(files for _, _, files in os.walk(folder, followlinks=True)):
        raise BadInput(
            "data_src=%s holds no file (%s on the controller): put the data into this "
            "folder, or correct the path" % (shown(options.data_src), folder)
        )
    return options.replaced(**paths)


def _files(options: Options) -> Dict[str, Optional[str]]:
    """Return the texts of the user's files: {"hosts": text or None, "groups": ..., ...}."""
    return {name: _text(vars(options)[name + "_file"]) for name in FILES}


def existing(name: str, path: str, cwd: str, folder: Optional[bool] = False) -> str:
    """Return the absolute path of a user's file or folder.

    Raises BadInput if `path` does not exist, or is of the wrong kind.

    Args: `name` the name of the option in messages; `path` relative to `cwd`; `folder` False for a
    file, True for a folder, None for either kind.
    """
    found = os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))
    if not (folder is not False and os.path.isdir(found) or not folder and os.path.isfile(found)):
        what = (
            "does not exist"
            if not os.path.exists(found)
            else "is a folder"
            if os.path.isdir(found)
            else "is a file"
            if os.path.isfile(found)
            else "is a device, a pipe or a socket"
        )
        raise BadInput(
            "%s=%s %s (%s on the controller): correct the path" % (name, shown(path), what, found)
        )
    return found


def _classes_beside(classes: Sequence[str], script: str) -> None:
    """Refuse a server class whose module is missing in the folder of the script.

    mxcluster copies only this folder to the nodes. The nodes have the modules of MXNet itself, such
    as mxnet.contrib.svrg_optimization.

    Args: `classes` strings "module:class"; `script` the absolute path of the script.
    """
    folder = os.path.dirname(script)

    def is_there(path: str) -> bool:
        return os.path.isfile(path + ".py") or os.path.isfile(os.path.join(path, "__init__.py"))

    refuse(
        "server_classes: %s is invalid, because the module %s is not in %s, the folder of the "
        "script: put %s.py into this folder, or correct the name"
        % (name, name.partition(":")[0], folder, name.partition(":")[0].replace(".", "/"))
        for name in classes
        if not name.startswith("mxnet.")
        and not is_there(os.path.join(folder, *name.partition(":")[0].split(".")))
    )


def _text(path: str) -> Optional[str]:
    if not path:
        return None
    if os.path.getsize(path) > MOST_TEXT:
        raise BadInput(
            "%s holds %d MB, but a file hosts, groups or data_sharding may hold at most %d MB: "
            "correct the path" % (path, os.path.getsize(path) >> 20, MOST_TEXT >> 20)
        )
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()


def _model(options: Options, runs_dir: str) -> str:
    """Return the path of the saved model that model_load_epoch and model_load_job name.

    Raises BadInput if the job model_load_job saved no such model.
    """
    folder = os.path.join(runs_dir, options.model_load_job, "checkpoints")
    path = os.path.join(folder, "%s-%04d.params" % (options.network, options.model_load_epoch))
    if not os.path.isfile(path):
        there = sorted(
            os.path.basename(name)
            for name in glob.glob(os.path.join(glob.escape(folder), "*.params"))
        )
        raise BadInput(
            "model_load_epoch=%d: the model %s does not exist. %s"
            % (
                options.model_load_epoch,
                path,
                "Choose the network and epoch of one of " + ", ".join(there)
                if there
                else "The job has saved no model: save models with -e savemodel=true"
                if os.path.isdir(os.path.dirname(folder))
                else "There is no job %s: name a job in %s" % (options.model_load_job, runs_dir),
            )
        )
    return path
