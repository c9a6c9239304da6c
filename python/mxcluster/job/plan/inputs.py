"""Read the inputs of a plan on the controller, and make the plan of one job.

The inputs are the user's files and the node records of `provision.yml`. The functions of this
module only read files. The pure functions are in `plan` and `options`.
"""

import glob
import os
import time
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

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
    ports,
    resume,
    script_packages,
    site,
    submission,
    table,
)
from mxcluster.job.plan.look import look
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.host_variables import of_hosts
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import HOST, MEASURING, NO_SECRETS, Controller, Options, Secrets
from mxcluster.model.knob import PROFILE as MEASURES
from mxcluster.model.knob import names_read, read
from mxcluster.model.node_record import MachineFacts, Network
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.plan import WORKER, ClusterFiles, Plan
from mxcluster.model.profile import Profile

MOST_TEXT = 4 << 20  # bytes of a file hosts, groups or data_sharding
LEAVE_OUT = ("without", "without_workers")  # the options that leave out hosts
PROFILE = "profile.json"  # beside the folder of the node records


class Folders(NamedTuple):
    """Folders of the controller.

    Attributes:
        records: the folder of the node records. The profile, if any, is beside this folder.
        runs: the folder of all runs.
        cwd: the folder at which relative paths begin.
        store: the store of wheels for the knob requirements, None to check only its file.
    """

    records: str
    runs: str
    cwd: str
    store: Optional[script_packages.Store] = None


class Planned(NamedTuple):
    """The plan of a job and the data for the start of the job.

    Attributes:
        plan: the plan. For a job of a batch system, the plan is the submission.
        table: the plan as text, after the notes for the user.
        looks: {host: the needs of the job on this host}.
        model: the path of the saved model to start from, or "".
        resume: the paths of all files of the checkpoint to resume from, or [].
        script: the folder of the script as a zip file in base64, or "".
        requirements: the content of the script's requirements file, or "".
    """

    plan: Plan
    table: str
    looks: Mapping[str, LookRequest]
    model: str = ""
    resume: List[str] = []
    script: str = ""
    requirements: str = ""


def plan_job(
    given: Mapping[str, object],
    inventory: Inventory,
    folders: Folders,
    secrets: Secrets = NO_SECRETS,
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
        # All other knobs keep their defaults, so that no knob of a training can make a measurement
        # fail. Under dist_async no push waits for another worker, so one worker can measure alone.
        given = {name: given[name] for name in names_read(Options, MEASURES) if name in given}
        given["kv"] = "dist_async"
    options = read(Options, given)
    if options.resume:
        options, checkpoint, notes = resume.resumed(options, folders.runs, anew)
    options = with_paths(knobs.checked(options), folders.cwd)
    launchers.refuse_unread(options.launcher, list(anew))
    containers.refuse_unread(options.runtime, list(anew))
    if measures:
        options = options.replaced(program=MEASURING)
    public = dict(options.env_server, **dict(options.env_worker, **options.env))
    knobs.refuse_secret_env(secrets, public)
    job = new_job(options.job_id, MEASURING if measures else options.kv, folders.runs)
    model = _model(options, folders.runs) if options.model_load_epoch else ""
    inputs = Inputs(
        options=options,
        inventory=inventory,
        records=node_records.read(folders.records),
        job=job,
        files=_files(options),
        model_file="model.params" if model else None,
        held=held,
        checkpoint=checkpoint.manifest if checkpoint else None,
    )
    if _left_out(options) or inventory.lost:
        inputs, fewer = without(inputs)
        notes = notes + fewer
    if LAUNCHERS[options.launcher].is_batch:
        planned = _submission(inputs, notes, measures)
    else:
        planned = _training(inputs, notes, folders)
    return planned._replace(model=model, resume=checkpoint.files if checkpoint else [])


def planned(inputs: Inputs, plan: Plan, lines: List[str], script: str = "") -> Planned:
    """Return the plan with its table `lines`, and the needs of the job on each node."""
    packed = package.archive()[0]  # once for all nodes, because packing takes long
    variables = of_hosts(list(plan.nodes), inputs.inventory.hosts)
    looks = {
        host: look(plan, host, inputs.records[host], variables[host], packed) for host in plan.nodes
    }
    return Planned(plan=plan, table="\n".join(lines), looks=looks, script=script)


def _training(inputs: Inputs, notes: List[str], folders: Folders) -> Planned:
    """Return the plan of a training on nodes of the inventory.

    Args: `notes` the lines for the user; `folders` of the controller.
    """
    options = inputs.options
    try:
        inputs = inputs._replace(profile=read_profile(folders.records))
    except BadInput as refusal:
        # A damaged profile must not stop profile.yml, or a job that needs no profile.
        if schemes.of(options.kv).waits == schemes.GROUP:
            notes = notes + ["mxcluster ignores the profile: %s" % refusal]
    try:
        plan = make_plan(inputs)
    except BadInput as refusal:
        named = [name + "_file" for name, text in inputs.files.items() if text is not None]
        if _left_out(options) and named:
            raise BadInput(
                "%s\nIf %s is the cause, remove the addresses of these hosts from your %s, too"
                % (refusal, " and ".join(_left_out(options)), ", ".join(named))
            ) from None
        raise
    script, more = _script(inputs, [one.host for one in plan.of_role(WORKER)])
    plan, installed = script_packages.add(plan, inputs.records, folders.store)
    found = planned(inputs, plan, notes + more + [table(plan), *installed], script)
    return found._replace(requirements=script_packages.text_of(options.requirements))


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
    script, more = _script(inputs, list(plan.nodes))
    return planned(inputs, plan, notes + more + [submission.table(plan, request)], script)


def _script(inputs: Inputs, hosts: Sequence[str]) -> Tuple[str, List[str]]:
    """Return (the folder of the script as a zip file in base64, notes); ("", []) without a script.

    Args: `hosts` that run the script.
    """
    options = inputs.options
    if not options.script:
        return "", []
    records = {host: inputs.records[host] for host in hosts}
    pythons = [record.python_version for record in records.values()]
    modules = {host: record.modules for host, record in records.items() if record.modules}
    # An image, the folders of PYTHONPATH and a layer of packages may hold further modules.
    more = "PYTHONPATH" in {**options.env, **options.env_worker} or options.requirements
    if options.runtime != HOST or more:
        modules = {}
    return user_script.pack(
        options.script, pythons, options.script_root, options.script_mb, modules
    )


def results_folder(runs_dir: object, state_dir: str, job: str = "") -> str:
    """Return the absolute path of the folder of all runs, after a check of the controller's disk.

    The function looks for all that a job needs on the controller at its end. Raises BadInput if the
    controller cannot write to the folder of the runs, or to its state folder.

    Args: `runs_dir` the knob as the user gave it; `state_dir` the folder .state/<inventory>; `job`
    the id of a started job, whose own folder counts.
    """
    # The default of the knob is a template of Ansible, so null is refused as "" is.
    own = read(Controller, {"runs_dir": "" if runs_dir is None else runs_dir})
    folder = os.path.abspath(os.path.expandvars(os.path.expanduser(own.runs_dir)))
    check_folder("runs_dir", os.path.join(folder, job) if job else folder)
    check_folder("mxcluster_state_dir", state_dir)
    return folder


def new_job(job_id: str, kind: str, runs_dir: str) -> str:
    """Return the id of a new job: `job_id`, or the time and `kind` if `job_id` is "".

    Raises BadInput if a run in `runs_dir` has this id.
    """
    job = job_id or time.strftime("%Y%m%d-%H%M%S-") + kind
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

    Args: `facts` {host: its Network} of the nodes in this play; the records describe all other
    nodes. The other arguments are as for `plan_job`.
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


def without(inputs: Inputs) -> Tuple[Inputs, List[str]]:
    """Return (inputs, notes) of a job without the hosts of `without`, `without_workers`, and lost.

    If too few workers or servers are left, the options have a lower num_workers or num_servers. The
    notes are lines for the user. Raises BadInput if a host is unknown, or if a group of the
    inventory would be empty.
    """
    options, inventory = inputs.options, inputs.inventory
    groups, known = inventory.groups, site.hosts_of(inventory)
    refuse(
        "%s=%s: the inventory has no such host%s: name one of %s"
        % (name, host, did_you_mean(host, known), ", ".join(known))
        for name in LEAVE_OUT
        for host in vars(options)[name]
        if host not in known
    )
    lost = [host for host in inventory.lost if host not in options.without]
    unused = [*options.without, *lost]
    reasons = _left_out(options)
    reasons += ["the lack of an answer of %s" % ", ".join(lost)] if lost else []
    left = {
        group: [
            host
            for host in hosts
            if host not in unused and not (group == "workers" and host in options.without_workers)
        ]
        for group, hosts in groups.items()
    }
    roles = (
        ["scheduler", "servers", "workers"]
        if schemes.of(options.kv).is_distributed
        else ["workers"]
    )
    refuse(
        "%s leaves no host in the group %s, which has %s: put another host into that group "
        "(run provision.yml for a new host), or give another inventory with -i"
        % (" and ".join(reasons), group, ", ".join(groups[group]))
        for group in roles
        if groups.get(group) and not left[group]
    )
    notes = ["without %s" % ", ".join(options.without)] if options.without else []
    if options.without_workers:
        notes.append("no workers on %s" % ", ".join(options.without_workers))
    notes += ["without %s: no answer" % ", ".join(lost)] if lost else []
    for role in roles[-2:] if len(roles) > 1 else []:
        if role == "workers" and options.hosts_file:
            continue
        variables = of_hosts(left[role], inventory.hosts).values()
        there = sum(
            one.workers_per_host if role == "workers" else one.servers_per_host for one in variables
        )
        number = options.num_workers if role == "workers" else options.num_servers
        if number > there:
            notes.append(
                "num_%s=%d is too high without these hosts, so the job uses %d"
                % (role, number, there)
            )
            options = options.replaced(**{"num_" + role: there})
    return inputs._replace(options=options, inventory=inventory.replaced(groups=left)), notes


def _left_out(options: Options) -> List[str]:
    """Return "name=hosts" of the options that leave out hosts, [] without such an option."""
    return [
        "%s=%s" % (name, ",".join(vars(options)[name])) for name in LEAVE_OUT if vars(options)[name]
    ]


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
        for name in ("hosts_file", "groups_file", "data_sharding_file", "data_src", "requirements")
        for path in [vars(options)[name]]
        if path
    }
    if options.script:
        paths["script"], paths["script_root"] = _script_paths(options, cwd)
    if options.server_classes:
        _classes_beside(options.server_classes, paths["script"], paths["script_root"])
    folder = paths.get("data_src")
    if folder and not any(files for _, _, files in os.walk(folder, followlinks=True)):
        raise BadInput(
            "data_src=%s holds no file (%s on the controller): put the data into this "
            "folder, or correct the path" % (shown(options.data_src), folder)
        )
    return options.replaced(**paths)


def _script_paths(options: Options, cwd: str) -> Tuple[str, str]:
    """Return the absolute paths of the script and of script_root, "" without script_root.

    Both may lead into the zip file of an earlier job. Raises BadInput if one does not exist, or if
    the script is outside of script_root. `cwd` is as for `plan_job`.
    """
    absolute = os.path.abspath(os.path.join(cwd, os.path.expanduser(options.script)))
    if user_script.is_kept(absolute):
        script = absolute
    else:
        script = existing("script", options.script, cwd)
    if not options.script_root:
        return script, ""
    if options.script_root == user_script.GIT:
        return script, user_script.git_root(script)
    root = existing("script_root", options.script_root, cwd, None)
    if os.path.commonpath([root, script]) != root or root == script:
        raise BadInput(
            "script_root=%s: the script %s is outside of this folder. Give a folder above the "
            "script, or leave script_root out" % (shown(options.script_root), script)
        )
    return script, root


def _files(options: Options) -> Dict[str, Optional[str]]:
    """Return the texts of the user's files: {"hosts": text or None, "groups": ..., ...}."""
    return {name: _text(vars(options)[name + "_file"]) for name in site.FILES}


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


def _classes_beside(classes: Sequence[str], script: str, root: str) -> None:
    """Refuse a server class whose module is missing in the folder of the script.

    mxcluster copies only this folder to the nodes. The nodes have the modules of MXNet itself, such
    as mxnet.contrib.svrg_optimization.

    Args: `classes` strings "module:class"; `script` and `root` as for `user_script.pack`.
    """
    folder = root or os.path.dirname(script)
    refuse(
        "server_classes: %s is invalid, because the module %s is not in %s, the folder of the "
        "script: put %s.py into this folder, or correct the name"
        % (name, name.partition(":")[0], folder, name.partition(":")[0].replace(".", "/"))
        for name in classes
        if not name.startswith("mxnet.")
        and not user_script.has_module(name.partition(":")[0], script, root)
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
