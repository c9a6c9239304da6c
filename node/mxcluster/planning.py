"""The controller's side of the plan: reads what the user and `provision.yml` have left, and makes the plan of one job.

Nothing is written. What is pure is in `plan` and `options`; here are the files.
"""
import base64
import glob
import json
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from . import checkpoints, package
from . import options as knobs
from .datasets import DATASETS
from .errors import BadInput
from .plan import cluster_files, for_node, make_plan, table

Json = Dict[str, Any]
MOST_CODE = 16 << 20  # bytes
# What a job cannot do without: room for its logs, for what MXNet's data loaders share (bytes), and connections.
LEAST_DISK, LEAST_SHM, LEAST_OPEN_FILES = 100 << 20, 16 << 20, 256


def plan_job(given: Json, inventory: Json, records_dir: str, runs_dir: str, cwd: str, secrets: Optional[Json] = None,
             held: Optional[Json] = None) -> Json:
    """{"plan", "table", "looks", "model"} of a job, or BadInput.

    given: the options as the user wrote them. inventory: see `plan.make_plan`. records_dir: the node records.
    runs_dir: the folder of the runs, in which the job's own must not exist yet. cwd: what relative paths begin at.
    secrets: {"names", "problems"} of secret_env, whose values are no business of the plan's.
    "resume": all files of the checkpoint to go on from, [] for none.
    held: {host: what other jobs and programs have there}, if the nodes have been asked already.
    "looks" is {host: what `mxcluster.node look` shall ask of it}; "model" the file to start from, "" for none;
    "script" the script's folder as a zip file in base64, "" for none.
    """
    checkpoint, notes = None, []  # type: Any, List[str]
    if str(given.get("resume") or "").strip():
        given, checkpoint, notes = resumed(given, runs_dir)
    options = _options(given, cwd)
    if secrets:
        knobs.refuse_secret_env(secrets["names"], secrets["problems"], options["env"])
    job = options["job_id"] or time.strftime("%Y%m%d-%H%M%S-") + options["kv"]
    if os.path.exists(os.path.join(runs_dir, job)):
        raise BadInput("job_id='%s' has been used: %s exists; choose another or leave job_id out"
                       % (job, os.path.join(runs_dir, job)))
    records = read_records(records_dir)
    files = _files(options)
    model = _model(options, runs_dir) if options["model_load_epoch"] else ""
    plan = make_plan(options, inventory, records, files, job,
                     job_dirs={host: record["job_dir"] for host, record in records.items()},
                     data_dirs={host: record["data_dir"] for host, record in records.items()},
                     model_file="model.params" if model else None, held=held)
    return {"plan": plan, "table": "\n".join(notes + [table(plan)]), "model": model,
            "resume": checkpoint.files if checkpoint else [], "script": _packed(options["script"]),
            "looks": {host: look(plan, host, records[host]) for host in plan["nodes"]}}


def plan_cluster(given: Json, inventory: Json, records_dir: str, facts: Dict[str, Json], cwd: str) -> Json:
    """What `plan.cluster_files` says of an inventory, or BadInput.

    facts: {host: {"interfaces", "address_of_default_route"}} of the nodes that have just been asked; the others are known
    by their records. The other arguments are those of `plan_job`.
    """
    records = read_records(records_dir)
    records.update({host: dict(records.get(host, {}), **seen) for host, seen in facts.items()})
    options = _options(given, cwd)
    return cluster_files(options, inventory, records, _files(options))


def look(plan: Json, host: str, record: Json) -> Json:
    """What a node must be able to give for its part of the job (the request of ``mxcluster.node look``)."""
    processes, options = for_node(plan, host)["processes"], plan["options"]
    files: List[str] = []
    if not options["script"] and any(process["role"] == "worker" for process in processes):
        if DATASETS[options["data"]].from_data_dir:
            files = [] if options["data_src"] else [options["data_dir"]]  # or else it is brought first
        elif options["data"] == "digits":
            files = [os.path.join(record["data_dir"], "digits.npz")]
    return {"address": plan["nodes"][host]["address"] if plan["root"] else None,
            "interface": plan["nodes"][host]["interface"] if plan["root"] else None,
            "ports": [process["port"] for process in processes if process["port"] is not None],
            "gpus": sorted({gpu for process in processes for gpu in process["gpus"]}),
            "jobs_dir": record["job_dir"], "files": files, "python": record["python"], "package": package.archive()[0],
            "free": {record["job_dir"]: LEAST_DISK, "/dev/shm": LEAST_SHM}, "open_files": LEAST_OPEN_FILES}


def resumed(given: Json, runs_dir: str) -> Tuple[Json, checkpoints.Checkpoint, List[str]]:
    """(the options of a job that goes on from the last whole checkpoint of the job `resume`, that, what to tell of it)."""
    job = knobs.cast({"resume": given["resume"]})["resume"]
    folder = os.path.join(runs_dir, job)
    try:
        with open(os.path.join(folder, "plan.json"), encoding="utf-8") as stream:
            old = json.load(stream)["options"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput("resume=%s: %s does not tell what that job was (%s): name a job in %s"
                       % (job, os.path.join(folder, "plan.json"), error, runs_dir)) from error
    for name in ("model_load_epoch", "model_load_job"):
        if given.get(name) not in (None, "", 0, "0"):
            raise BadInput("%s=%s and resume=%s: resume looks for the checkpoint by itself; leave one of them out"
                           % (name, given[name], job))
    if old.get("script"):
        raise BadInput("resume=%s: that job ran the script %s, which saves its own checkpoints, if any" % (job, old["script"]))
    merged = knobs.inherit(given, old)
    network, kept = str(merged["network"]), os.path.join(folder, checkpoints.FOLDER)
    found, problems = checkpoints.last_complete(kept, network)
    if not found:
        parent = "; it was resumed from %s itself: try resume=%s" % (old["resume"], old["resume"]) if old.get("resume") else ""
        raise BadInput("\n".join(["resume=%s: %s holds no whole checkpoint of %s; jobs save them with -e savemodel=true%s"
                                  % (job, kept, network, parent)] + problems))
    if str(merged["num_epochs"]).isdigit() and found.epoch >= int(merged["num_epochs"]):
        raise BadInput("resume=%s: it has trained its %d epochs; give more, as -e num_epochs=%d"
                       % (job, found.epoch, 2 * found.epoch))
    merged.update(model_load_epoch=found.epoch, model_load_job=job)
    return merged, found, (["goes on from %s, after epoch %d" % (os.path.join(kept, found.name), found.epoch)]
                           + ["skipped: " + problem for problem in problems])


def read_records(folder: str) -> Dict[str, Json]:
    """The node records of an inventory by host; none if provision.yml has never run."""
    records = {}
    for path in glob.glob(os.path.join(glob.escape(folder), "*.json")):
        try:
            with open(path, encoding="utf-8") as stream:
                record = json.load(stream)
            records[record["host"]] = record
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput("%s is not a node record (%s): remove it and run provision.yml" % (path, error)) from error
    return records


def _options(given: Json, cwd: str) -> Json:
    """The options, cast; the files of the user's that they name, and the folder with data, are absolute and are there."""
    options = knobs.cast(given)
    for name in ("script", "hosts_file", "groups_file", "data_sharding_file"):
        if options[name]:
            options[name] = _existing(name, options[name], cwd)
    if options["data_src"]:
        options["data_src"] = _existing("data_src", options["data_src"], cwd, folder=True)
    return options


def _files(options: Json) -> Dict[str, Optional[str]]:
    """The texts of the three files that the user has given, None for those that he has not."""
    return {name: _text(options[name + "_file"]) for name in ("hosts", "groups", "data_sharding")}


def _existing(name: str, path: str, cwd: str, folder: bool = False) -> str:
    """The absolute path of a file (or folder) of the user's, which must be there."""
    found = os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))
    if not (os.path.isdir(found) if folder else os.path.isfile(found)):
        what = "does not exist" if not os.path.exists(found) else "is a file" if folder else "is a folder"
        raise BadInput("%s='%s' %s (%s on the controller): correct the path" % (name, path, what, found))
    return found


def _packed(script: str) -> str:
    """The folder of the script, since scripts import what lies beside them."""
    if not script:
        return ""
    folder = os.path.dirname(script)
    size = sum(os.path.getsize(os.path.join(folder, name)) for name in package.sources(folder))
    if size > MOST_CODE:
        raise BadInput("script='%s': its folder goes to every node and holds %d MB, more than %d: put the script and what it "
                       "imports into a folder of their own, and data on the nodes (data_dir)"
                       % (script, size >> 20, MOST_CODE >> 20))
    return base64.b64encode(package.archive(folder, inside=True)[1]).decode("ascii")


def _text(path: str) -> Optional[str]:
    if not path:
        return None
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()


def _model(options: Json, runs_dir: str) -> str:
    """The file that `savemodel` left in an earlier run."""
    folder = os.path.join(runs_dir, options["model_load_job"], "checkpoints")
    path = os.path.join(folder, "%s-%04d.params" % (options["network"], options["model_load_epoch"]))
    if not os.path.isfile(path):
        there = sorted(os.path.basename(name) for name in glob.glob(os.path.join(glob.escape(folder), "*.params")))
        raise BadInput("model_load_epoch=%d: %s is not there; %s holds %s"
                       % (options["model_load_epoch"], path, folder, ", ".join(there) or "no model: save one with "
                          "-e savemodel=true"))
    return path
