"""Read the inputs of a plan on the controller, and make the plan of one job.

The inputs are the user's files and the node records of `provision.yml`. The functions of this
module only read files. The pure functions are in `plan` and `options`.
"""

import glob
import os
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from mxcluster import package, schemes
from mxcluster.cluster import node_records, profile
from mxcluster.datasets import DATASETS
from mxcluster.errors import BadInput, did_you_mean, refuse, shown
from mxcluster.file_io import check_folder, read_json
from mxcluster.job import checkpoints, launchers, plan_shape, user_script
from mxcluster.job import options as knobs
from mxcluster.job.plan import (
    FILES,
    batch,
    containers,
    make_cluster_files,
    make_plan,
    measuring,
    table,
    talks,
)
from mxcluster.lists import several, unique
from mxcluster.model.host_variables import HostVariables, of_hosts
from mxcluster.model.job_knobs import Controller, Options
from mxcluster.model.knob import read
from mxcluster.model.names import is_job_id
from mxcluster.model.node_record import MachineFacts, Network, NodeRecord
from mxcluster.model.profile import Profile

Json = Dict[str, Any]
MOST_TEXT = 4 << 20  # bytes of a file hosts, groups or data_sharding
PROFILE = "profile.json"  # beside the folder of the node records
# Least resources of a job on a node: bytes of disk for logs, bytes of shared memory for MXNet's
# data loaders, and open files for connections.
LEAST_DISK, LEAST_SHM, LEAST_OPEN_FILES = 100 << 20, 16 << 20, 256


def plan_job(
    given: Json,
    inventory: Json,
    records_dir: str,
    runs_dir: str,
    cwd: str,
    secrets: Optional[Json] = None,
    held: Optional[Json] = None,
    anew: Iterable[str] = (),
    measures: bool = False,
) -> Json:
    """Return the plan of a job and the data for the start of the job. BadInput lists all faults.

    Args:
        given: {name: value} of the options, as the user wrote them.
        inventory: as for `plan.make_plan`.
        records_dir: the folder of the node records. The profile, if any, is beside this folder.
        runs_dir: the folder of all runs. BadInput if the folder of this job exists there.
        cwd: the folder at which relative paths begin.
        secrets: {"names", "problems"} of secret_env; the plan never holds the values.
        held: {host: ports and GPUs in use}, None before the nodes have reported them.
        anew: the names of the options that the user gave with -e.
        measures: True for a job of profile.yml, which measures the cluster and trains nothing.

    Returns a dict with these keys:
        plan: the dict from `plan.make_plan`.
        table: the plan as text, after the notes for the user.
        looks: {host: request for `mxcluster.node.probe.look`}.
        model: the path of the saved model to start from, or "".
        resume: the paths of all files of the checkpoint to resume from, or [].
        script: the folder of the script as a zip file in base64, or "".
        needs_profile: True if grouping=auto finds no profile that fits.
    """
    checkpoint, notes = None, []  # type: Any, List[str]
    if measures:
        given = measuring.knobs_of(given)
    options = read(Options, given)
    if options.resume:
        options, checkpoint, notes = resumed(options, runs_dir, anew)
    options = with_paths(knobs.checked(options), cwd)
    launchers.refuse_unread(options.launcher, list(anew))
    containers.refuse_unread(options.runtime, list(anew))
    if measures:
        options = options.replaced(program=measuring.PROGRAM)
    if secrets:
        public = {**options.env, **options.env_server, **options.env_worker}
        knobs.refuse_secret_env(secrets["names"], secrets["problems"], public)
    job = new_job(options.job_id, measuring.PROGRAM if measures else options.kv, runs_dir)
    records = node_records.read(records_dir)
    files = _files(options)
    model = _model(options, runs_dir) if options.model_load_epoch else ""
    if options.without:
        options, inventory, fewer = without(options, inventory)
        notes = notes + fewer
    if launchers.LAUNCHERS[options.launcher].is_batch:
        return _batch_job(options, inventory, records, job, model, checkpoint, notes, measures)
    try:
        measured = read_profile(records_dir)
    except BadInput as refusal:
        # A damaged profile must not stop profile.yml, or a job that needs no profile.
        measured = None
        if schemes.of(options.kv).waits == schemes.GROUP:
            notes = notes + ["mxcluster ignores the profile: %s" % refusal]
    try:
        plan = make_plan(
            options,
            inventory,
            records,
            files,
            job,
            job_dirs={host: record.job_dir for host, record in records.items()},
            data_dirs={host: record.data_dir for host, record in records.items()},
            model_file="model.params" if model else None,
            held=held,
            profile=measured,
            checkpoint=checkpoint.manifest.encode() if checkpoint else None,
        )
    except BadInput as refusal:
        named = [name + "_file" for name, text in files.items() if text is not None]
        if options.without and named:
            raise BadInput(
                "%s\nIf without=%s is the cause, remove the addresses of these hosts from your "
                "%s, too" % (refusal, ",".join(options.without), ", ".join(named))
            ) from None
        raise
    script = ""
    if options.script:
        script, more = user_script.pack(
            options.script,
            [
                records[process["host"]].python_version
                for process in plan["processes"]
                if process["role"] == "worker"
            ],
        )
        notes = notes + more
    packed = package.archive()[0]  # once for all nodes, because packing takes long
    variables = of_hosts(list(plan["nodes"]), inventory["hosts"])
    return {
        "plan": plan,
        "table": "\n".join(notes + [table(plan)]),
        "model": model,
        "resume": checkpoint.files if checkpoint else [],
        "script": script,
        "needs_profile": plan["needs_profile"],
        "looks": {
            host: look(plan, host, records[host], variables[host], packed) for host in plan["nodes"]
        },
    }


def _batch_job(
    options: Options,
    inventory: Json,
    records: Mapping[str, NodeRecord],
    job: str,
    model: str,
    checkpoint: Any,
    notes: List[str],
    measures: bool,
) -> Json:
    """Return the result of `plan_job` for a job of a batch system. Its plan is the submission.

    Args: as for `plan_job` and `make_plan`; `notes` the lines for the user.
    """
    if measures:
        raise BadInput(
            "launcher=%s is refused for profile.yml, because a batch system chooses the nodes: use "
            "launcher=ssh" % options.launcher
        )
    plan = batch.submission(
        options,
        inventory,
        records,
        job,
        "model.params" if model else None,
        checkpoint.manifest.encode() if checkpoint else None,
    )
    host = next(iter(plan["nodes"]))
    script = ""
    if options.script:
        script, more = user_script.pack(options.script, [records[host].python_version])
        notes = notes + more
    request = look(plan, host, records[host], HostVariables(), package.archive()[0])
    return {
        "plan": plan,
        "table": "\n".join(notes + [batch.table(plan)]),
        "model": model,
        "resume": checkpoint.files if checkpoint else [],
        "script": script,
        "needs_profile": False,
        "looks": {host: dict(request, batch=plan["batch"])},
    }


def results_folder(runs_dir: Any, state_dir: str, job: str = "") -> str:
    """Return the path of the folder of all runs, after a check of the controller's disk.

    The function looks for all that a job needs on the controller at its end: BadInput if the
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

    BadInput if a run in `runs_dir` has this id.
    """
    job = wanted or time.strftime("%Y%m%d-%H%M%S-") + kind
    if os.path.exists(os.path.join(runs_dir, job)):
        raise BadInput(
            "job_id='%s' belongs to an earlier job in %s: choose another job_id, or leave job_id "
            "out" % (job, os.path.join(runs_dir, job))
        )
    return job


def plan_cluster(
    given: Json, inventory: Json, records_dir: str, facts: Dict[str, Json], cwd: str
) -> Json:
    """Return the addresses and cluster files of an inventory, from `plan.make_cluster_files`.

    BadInput lists all faults of the inventory. A damaged profile also raises BadInput, because the
    cluster files would lack the groups of the profile.

    Args: `facts` {host: Network as JSON} of the nodes in this play; the records describe all other
    nodes. The other arguments are as for `plan_job`.
    """
    records: Dict[str, MachineFacts] = {}
    records.update(node_records.read(records_dir))
    for host, value in facts.items():  # the play writes a new record of this host
        known, seen = records.get(host), Network.decode(value)
        records[host] = MachineFacts(
            address_of_default_route=seen.address_of_default_route,
            interfaces=seen.interfaces,
            hostname=known.hostname if known else "",
        )
    options = with_paths(knobs.cast(given), cwd)
    return make_cluster_files(
        options, inventory, records, _files(options), read_profile(records_dir)
    )


def look(plan: Json, host: str, record: NodeRecord, variables: HostVariables, packed: str) -> Json:
    """Return the request for ``mxcluster.node.probe.look``: the job's requirements on `host`.

    Args: `record` and `variables` of the host; `packed` the name of the zip file of mxcluster, from
    `package.archive`.
    """
    processes, options = (
        [process for process in plan["processes"] if process["host"] == host],
        plan["options"],
    )
    files, trains = [], any(process["role"] == "worker" for process in processes)  # type: List[str], bool
    gpus = variables.gpus if options.gpus == "auto" else options.gpus
    # The playbook copies data_src to the nodes before the job starts.
    if measuring.is_profile(options):
        pass  # a measurement computes with random numbers
    elif not options.script and trains and not options.data_src:
        if DATASETS[options.data].from_data_dir:
            files = [options.data_dir]
        elif DATASETS[options.data].file:
            folder = options.data_dir or record.data_dir
            files = [os.path.join(folder, DATASETS[options.data].file)]
    return {
        "address": plan["nodes"][host]["address"] if talks(plan) else None,
        "interface": plan["nodes"][host]["interface"] if talks(plan) else None,
        "ports": [process["port"] for process in processes if process["port"] is not None],
        "gpus": sorted({gpu for process in processes for gpu in process["gpus"]}),
        "all_gpus": {"record": record.gpus, "bus": record.bus}
        if trains and gpus == "auto"
        else None,
        "versions": {
            "python_version": record.python_version,
            "fingerprints": record.fingerprints,
        },
        "jobs_dir": record.job_dir,
        "job": plan["job"],
        "files": files,
        "data_dir": options.data_dir,
        "python": record.python,
        "package": packed,
        "free": {record.job_dir: LEAST_DISK, "/dev/shm": LEAST_SHM},
        "open_files": LEAST_OPEN_FILES,
        "engine": launchers.of(plan).engine,
        "mpi": launchers.mpi_request(options),
        "container": plan["container"],
        "cuda": record.cuda.folder if record.cuda else None,
    }


def resumed(
    given: Options, runs_dir: str, anew: Iterable[str] = ()
) -> Tuple[Options, checkpoints.Checkpoint, List[str]]:
    """Return (options, Checkpoint, notes) of a job that resumes the earlier job `given.resume`.

    `find_checkpoint` chooses the Checkpoint. The notes are lines for the user. BadInput if the
    earlier job cannot be resumed.

    Args: as for `plan_job`.
    """
    job = given.resume
    folder = os.path.join(runs_dir, job)
    try:
        old = _options_of_run(folder)
    except BadInput as refusal:
        raise BadInput("resume=%s: %s" % (job, refusal)) from refusal
    if old is None:
        raise BadInput("resume=%s: %s has no plan.json: name a job in %s" % (job, folder, runs_dir))
    for name in ("model_load_epoch", "model_load_job"):
        if vars(given)[name]:
            raise BadInput(
                "%s=%s is refused with resume=%s, because a resumed job loads the last checkpoint: "
                "leave %s out" % (name, vars(given)[name], job, name)
            )
    if old.script:
        raise BadInput(
            "resume=%s: this job ran the script %s, and only the training program can resume a "
            "job: start the script again, and let the script load a checkpoint" % (job, old.script)
        )
    merged = knobs.inherit(given, old, list(anew))
    network = merged.network
    found, problems, asked = find_checkpoint(job, runs_dir, network)
    if not found:
        others = [
            other
            for one in asked
            for other in checkpoints.networks(os.path.join(runs_dir, one, checkpoints.FOLDER))
            if other != network
        ]
        also = ", or in the jobs before a resume (%s)" % ", ".join(asked[1:]) if asked[1:] else ""
        raise BadInput(
            "\n".join(
                [
                    "resume=%s: no complete checkpoint of %s in %s%s. %s"
                    % (
                        job,
                        network,
                        os.path.join(folder, checkpoints.FOLDER),
                        also,
                        "There are checkpoints of %s: leave network out" % ", ".join(unique(others))
                        if others
                        else "Start a new job with -e savemodel=true, which saves checkpoints",
                    )
                ]
                + problems
            )
        )
    if merged.num_epochs <= found.epoch:
        raise BadInput(
            "resume=%s: the job has already trained %s, and num_epochs is %s: give a larger "
            "num_epochs, such as -e num_epochs=%d"
            % (job, several(found.epoch, "epoch"), merged.num_epochs, 2 * found.epoch)
        )
    where = os.path.join(runs_dir, asked[-1], checkpoints.FOLDER, found.name)
    return (
        merged.replaced(model_load_epoch=found.epoch, model_load_job=asked[-1]),
        found,
        (
            ["resumes from %s, after epoch %d" % (where, found.epoch)]
            + ["skipped: " + problem for problem in problems]
        ),
    )


def find_checkpoint(job: str, runs_dir: str, network: str) -> Tuple[Any, List[str], List[str]]:
    """Return (Checkpoint, problems, searched jobs) for the last complete checkpoint of `job`.

    The Checkpoint is None if no checkpoint is complete. Each problem is a line about a skipped
    checkpoint. If `job` has no complete checkpoint and resumed an earlier job, the function
    searches the folder of the earlier job, and so on. The searched jobs are a list of job ids.
    """
    problems, asked = [], []  # type: Tuple[List[str], List[str]]
    while is_job_id(job) and job not in asked:
        asked.append(job)
        found, wrong = checkpoints.last_complete(
            os.path.join(runs_dir, job, checkpoints.FOLDER), network
        )
        problems += wrong
        if found:
            return found, problems, asked
        try:
            earlier = _options_of_run(os.path.join(runs_dir, job))
        except BadInput as refusal:
            problems.append(str(refusal))
            break
        job = earlier.resume if earlier else ""
    return None, problems, asked


def _options_of_run(folder: str) -> Optional[Options]:
    """Return the options in plan.json of the run folder `folder`, or None without this file.

    BadInput if the file is damaged.
    """
    found: Optional[Json] = read_json(os.path.join(folder, "plan.json"), plan_shape.with_options)
    return found["options"] if found else None


def without(options: Options, inventory: Json) -> Tuple[Options, Json, List[str]]:
    """Return (options, inventory, notes) of a job without the hosts of the option `without`.

    If too few workers or servers are left, the options have a lower num_workers or num_servers. The
    notes are lines for the user. BadInput if a host is unknown, or if a group of the
    inventory would be empty.
    """
    named, groups = options.without, inventory["groups"]
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
        variables = of_hosts(left[role], inventory["hosts"]).values()
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
    return options, dict(inventory, groups=left), notes


def read_profile(records_dir: str) -> Optional[Profile]:
    """Return the checked profile from the file profile.json beside the folder `records_dir`.

    The result is None without this file. BadInput if the file is damaged.
    """
    return profile.of_file(os.path.join(os.path.dirname(os.path.abspath(records_dir)), PROFILE))


def with_paths(options: Options, cwd: str) -> Options:
    """Return `options` with absolute paths of the user's files.

    BadInput if a file is missing. `cwd` is as for `plan_job`.
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

    BadInput if `path` does not exist, or is of the wrong kind.

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

    BadInput if the job model_load_job saved no such model.
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
