"""The knobs of train.yml: their names, defaults, types and limits, and what contradicts what.

`cast` is the only way in. It returns a dict with every option, each of its type, and refuses all that is wrong in
one message, a line per option.
"""
import json
import re
from typing import Any, Dict, Iterable, Iterator, List, Tuple

from . import casts
from .casts import Option, at_least, between, cast_value, shown, to_float, to_int, to_text
from .datasets import DATASETS, training_samples
from .errors import BadInput, did_you_mean, refuse

KVS = ("local", "device", "dist_sync", "dist_device_sync", "dist_async", "dist_gsync", "dist_ssync")
PROGRAMS = ("image_classification",)
# The networks of the program itself; those of MXNet's model zoo come with the node record.
NETWORKS = ("mlp", "lenet", "resnet20", "inception-bn-28-small")
DEFAULT_STALENESS = 3
# Every push of a worker changes the weights by itself, as much as a round of all workers does in the other schemes.
EVERY_PUSH = ("dist_async", "dist_ssync")

# What the plan sets for every process; `env` must leave these alone.
PLANNED_VARIABLES = (
    "DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER", "DMLC_NODE_HOST",
    "DMLC_INTERFACE", "PORT", "PS_VERBOSE", "PS_HEARTBEAT_INTERVAL", "PS_HEARTBEAT_TIMEOUT", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    # Set by ps-lite itself; that of MXNet 1.2.1 hangs when it finds it set.
    "DMLC_RANK",
    # ps-lite would listen on all addresses, or on none.
    "DMLC_USE_KUBERNETES", "DMLC_LOCAL",
)
# What decides which code a process of mxcluster loads, and what to do instead.
LOADER_VARIABLES = {
    "PATH": "it would replace the node's own; give absolute paths in the script, or change os.environ there",
    "PYTHONPATH": "it would come before mxcluster and MXNet; put modules beside the script",
    "PYTHONHOME": "the environment on the nodes would not find its Python; take it out",
    "PYTHONSAFEPATH": "the script would not find the modules beside it; take it out",
    "LD_PRELOAD": "it would load code into the servers and the scheduler too; load the library in the script, with ctypes.CDLL",
    "LD_AUDIT": "it would load code into the servers and the scheduler too; take it out",
}


def is_job_id(text: str) -> bool:
    """A name that is one plain folder: letters, digits, '.', '_', '-', beginning with a letter or digit."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text))


def _to_staleness(value: Any) -> Any:
    return None if value == "" else to_int(value)


def _is_absolute_or_empty(path: str) -> bool:
    return path == "" or path.startswith("/")


def _is_job_id_or_empty(text: str) -> bool:
    return text == "" or is_job_id(text)


def _is_none_or_from_5_s(seconds: float) -> bool:
    return seconds == 0 or seconds >= 5


def _are_classes(texts: List[str]) -> bool:
    return all(re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", text) for text in texts)


def _count(name: str, default: int, low: int, cure: str = "") -> Option:
    return Option(name, default, to_int, at_least(low), "a whole number of at least %d%s" % (low, cure))


def _positive(name: str, default: float) -> Option:
    return Option(name, default, to_float, lambda value: value > 0, "a number above 0, such as %r" % default)


def _flag(name: str) -> Option:
    return Option(name, False, casts.to_bool, None, "true or false")


def _choice(name: str, default: str, names: tuple) -> Option:
    return Option(name, default, to_text, names, "one of " + ", ".join(names))


def _path(name: str) -> Option:
    return Option(name, "", to_text, None, "a path")


_JOB_ID = "made of letters, digits, '.', '_' and '-', beginning with a letter or digit (at most 100)"

OPTIONS = (
    _choice("kv", "dist_sync", KVS),
    _choice("program", "image_classification", PROGRAMS),
    _path("script"),
    Option("script_args", [], casts.to_list, None,
           "a list of strings (write numbers in quotes), such as '{\"script_args\": [\"--lr\", \"0.1\"]}'"),
    Option("server_classes", [], casts.to_list, _are_classes,
           "a list of module:Class, each class at the top of its module, such as '{\"server_classes\": [\"mine:MyOptimizer\"]}'"),
    Option("network", "mlp", to_text, bool, "the name of a network, such as mlp"),
    _choice("data", "digits", tuple(DATASETS)),
    Option("data_dir", "", to_text, _is_absolute_or_empty, "a path on the nodes that begins with '/'"),
    _path("data_src"),
    _count("batch_size", 32, 1),
    _positive("lr", 0.05),
    _choice("lr_scale", "auto", ("auto", "none")),
    _choice("gsync_y", "rate", ("rate", "gradient", "one")),
    Option("lr_factor", 1.0, to_float, lambda value: 0 < value <= 1, "a number above 0 and at most 1, such as 0.9"),
    _positive("lr_factor_epoch", 1.0),
    _choice("on_nan", "stop", ("stop", "continue")),
    _count("num_epochs", 20, 1),
    _count("num_examples", 0, 0, " (0: all)"),
    Option("gpus", "auto", casts.to_gpus, None, "auto, '' (none) or GPU numbers such as 0,1"),
    _count("num_workers", 0, 0, " (0: all)"),
    _count("num_servers", 0, 0, " (0: all)"),
    Option("staleness", None, _to_staleness, lambda value: value is None or value >= 0,
           "a whole number of at least 0, and only with kv=dist_ssync"),
    Option("data_allocator", 0, to_int, (0, 1), "0 (equal shares) or 1 (shares of data_sharding)"),
    Option("dmlc_interface", "", to_text, None, "the name of a network interface, such as eth0"),
    Option("ps_verbose", 0, to_int, between(0, 2), "0, 1 or 2"),
    _flag("savemodel"),
    _count("keep_checkpoints", 3, 1),
    Option("resume", "", to_text, _is_job_id_or_empty, "the id of a job in runs/"),
    _count("model_load_epoch", 0, 0, " (0: start afresh)"),
    Option("model_load_job", "", to_text, _is_job_id_or_empty, "the id of a job in runs/"),
    Option("without", [], casts.to_names, None, "the names of hosts, such as node3,node4"),
    _path("hosts_file"),
    _path("groups_file"),
    _path("data_sharding_file"),
    Option("job_id", "", to_text, _is_job_id_or_empty, _JOB_ID),
    _flag("plan_only"),
    Option("root_port", "auto", casts.to_port, lambda port: port == "auto" or 1024 <= port <= 65000,
           "auto (the first that is free, from 9091 on) or a port number from 1024 to 65000"),
    Option("seed", 0, to_int, between(0, 2 ** 31 - 1), "a whole number from 0 to 2147483647"),
    Option("env", {}, casts.to_environment, None,
           "a dict of environment variables with strings of one line, such as '{\"OMP_NUM_THREADS\": \"1\"}'"),
    _count("collect_mb", 1024, 0),
    _flag("detach"),
    _count("max_restarts", 0, 0),
    Option("restart_delay", 10.0, to_float, between(0, 86400), "a number of seconds from 0 to 86400"),
    Option("lease", 60.0, to_float, between(1, 86400), "a number of seconds from 1 to 86400"),
    # Below 2 s a single late heartbeat would end a healthy job.
    Option("heartbeat_timeout", 5, to_int, between(2, 3600), "a whole number of seconds from 2 to 3600"),
    # Processes tell of themselves about once a second: a shorter limit would end healthy jobs.
    Option("start_timeout", 60.0, to_float, _is_none_or_from_5_s, "0 (no limit) or a number of seconds of at least 5"),
    Option("stall_timeout", 300.0, to_float, _is_none_or_from_5_s, "0 (no limit) or a number of seconds of at least 5"),
)


# What a resumed job has from the one that it goes on from.
TRAINED = ("kv", "program", "network", "data", "data_dir", "batch_size", "lr", "lr_scale", "gsync_y", "lr_factor",
           "lr_factor_epoch", "num_epochs", "num_examples", "on_nan", "seed", "savemodel", "keep_checkpoints")


def cast(given: Dict[str, Any]) -> Dict[str, Any]:
    """All options, typed: those `given` (strings of `-e`, or values of YAML) and the defaults of the others.

    BadInput lists every unknown name, every value that cannot be, and, if all values can be, what contradicts what.
    """
    by_name = {option.name: option for option in OPTIONS}
    problems = ["%s is no option of train.yml%s" % (shown(name), did_you_mean(name, by_name))
                for name in given if name not in by_name]
    options = {}
    for option in OPTIONS:
        try:
            value = cast_value(option, given.get(option.name))
        except BadInput as refusal:
            problems.append(str(refusal))
            continue
        # Lists and dicts are copied: the table's defaults belong to nobody.
        options[option.name] = type(value)(value) if isinstance(value, (list, dict)) else value
    refuse(problems)
    refuse(_contradictions(options))
    if options["kv"] == "dist_ssync" and options["staleness"] is None:
        options["staleness"] = DEFAULT_STALENESS
    return options


def step_size(options: Dict[str, Any], workers: int) -> float:
    """The learning rate with which the program's pushes are applied; `lr` is that of a round of all workers.

    A job that goes on with another number of workers keeps the sum of a round, and so has another step.
    """
    if options["lr_scale"] == "auto" and options["kv"] in EVERY_PUSH:
        return options["lr"] / workers
    return options["lr"]


def inherit(given: Dict[str, Any], old: Dict[str, Any], anew: Iterable[str] = ()) -> Dict[str, Any]:
    """`given` for a job that goes on where another, with the options `old`, was cut off: what says *what* is trained and is at
    its default now is taken from there, unless its name is among those that were given `anew`. Where it is trained is never
    taken from there.
    """
    by_name = {option.name: option for option in OPTIONS}

    def is_default(name):
        try:
            return name not in anew and cast_value(by_name[name], given.get(name)) == by_name[name].default
        except BadInput:  # `cast` will refuse it
            return False

    result = dict(given)
    old = dict({"lr_scale": "none", "gsync_y": "gradient"}, **old)  # of a job that was planned before there were these knobs
    result.update({name: old[name] for name in TRAINED if name in old and is_default(name)})
    if result.get("kv") == "dist_ssync" and old.get("kv") == "dist_ssync" and is_default("staleness"):
        result["staleness"] = old["staleness"]
    return result


def cast_secret_env(value: Any) -> Tuple[Dict[str, str], List[str]]:
    """(the variables of `secret_env`, what is wrong with it): no value is ever told, in whatever way it is wrong."""
    must = "it must be %s; its values are not shown here" % next(option.message for option in OPTIONS if option.name == "env")
    try:
        value = json.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return {}, ["secret_env is refused: %s" % must]
    found, problems = {}, []  # type: Tuple[Dict[str, str], List[str]]
    for name, content in value.items():
        try:
            found.update(casts.to_environment({name: content}))
        except ValueError:
            problems.append("secret_env: %s is refused: %s" % (shown(name), must))
    return found, problems


def refuse_secret_env(names: Iterable[str], problems: Iterable[str], env: Dict[str, str]) -> None:
    """BadInput with what `cast_secret_env` has found wrong, and with the `names` that must not be given there."""
    refuse(list(problems) + ["secret_env: %s is refused: mxcluster sets %s itself; take it out" % (name, name)
                             for name in sorted(names) if _is_own(name)]
           + ["secret_env: %s is refused: %s" % (name, dict(LOADER_VARIABLES, LD_LIBRARY_PATH="give it in env")[name])
              for name in sorted(names) if name in LOADER_VARIABLES or name == "LD_LIBRARY_PATH"]
           + ["secret_env: %s is given in env too, where everybody can read it: take it out of one of them" % name
              for name in sorted(names) if name in env])


def _is_own(variable: str) -> bool:
    return variable in PLANNED_VARIABLES or variable.startswith("MXCLUSTER_")


def _contradictions(options: Dict[str, Any]) -> Iterator[str]:
    kv, data, script = options["kv"], options["data"], options["script"]
    if options["staleness"] is not None and kv != "dist_ssync":
        yield ("staleness=%d has no meaning with kv=%s: leave staleness out, or use kv=dist_ssync"
               % (options["staleness"], kv))
    if options["script_args"] and not script:
        yield ("script_args=%s without script: name the script too, as script=path/to/it.py"
               % shown(options["script_args"]))
    if not script and DATASETS[data].from_data_dir and not options["data_dir"]:
        yield "data=%s needs data_dir: give the folder on the nodes that holds its files" % data
    if options["server_classes"] and not script:
        yield ("server_classes=%s without script: the classes are those of a script; name it too, as script=path/to/it.py"
               % shown(options["server_classes"]))
    if options["data_src"] and not options["data_dir"]:
        yield "data_src=%s without data_dir: give the folder on the nodes that it shall be copied to" % shown(options["data_src"])
    if not script:
        try:
            training_samples(data, options["num_examples"])
        except BadInput as refusal:
            yield str(refusal)
    if options["max_restarts"]:
        asked = "max_restarts=%d" % options["max_restarts"]
        if options["detach"]:
            yield "%s with detach=true: nobody would be there to start it again; leave one of them out" % asked
        if script:
            yield ("%s with a script: only the script knows how it goes on from where it was; leave max_restarts out, and start "
                   "it again yourself" % asked)
        elif not options["savemodel"]:
            yield "%s without savemodel=true: there would be nothing to go on from; add -e savemodel=true" % asked
    if options["resume"] and script:
        yield ("resume=%s with a script: a script saves and loads its own checkpoints; leave resume out, or the script"
               % options["resume"])
    if options["model_load_epoch"] and not options["model_load_job"]:
        yield ("model_load_epoch=%d without model_load_job: name the job in runs/ that saved the model"
               % options["model_load_epoch"])
    if options["model_load_job"] and not options["model_load_epoch"]:
        yield ("model_load_job=%s without model_load_epoch: say which epoch's model to load, 1 or more"
               % options["model_load_job"])
    if not script and options["model_load_epoch"] >= options["num_epochs"]:
        yield ("model_load_epoch=%d leaves nothing to train with num_epochs=%d, which counts the epochs before it too: "
               "raise num_epochs" % (options["model_load_epoch"], options["num_epochs"]))
    for name in sorted(options["env"]):
        if _is_own(name):
            yield ("env: %s=%s is refused: mxcluster sets %s itself; take it out"
                   % (name, shown(options["env"][name]), name))
        elif name in LOADER_VARIABLES:
            yield "env: %s=%s is refused: %s" % (name, shown(options["env"][name]), LOADER_VARIABLES[name])
