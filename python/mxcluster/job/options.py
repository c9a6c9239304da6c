"""The options of a plan: check their values against the table of knobs, and against each other.

`cast` returns a dict with all options, each of its type. Its BadInput has one line for each wrong
option. The other functions derive the step size, the options of a resumed job and `secret_env`.
"""

import json
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

from mxcluster import schemes
from mxcluster.datasets import DATASETS, training_samples
from mxcluster.environment import BOUND
from mxcluster.errors import BadInput, did_you_mean, refuse, shown
from mxcluster.job import option_types
from mxcluster.job.knob_table import OPTIONS
from mxcluster.job.option_types import cast_value

DEFAULT_STALENESS = 3

# The variables that the plan sets for every process; `env` must not set them.
PLANNED_VARIABLES = (
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_SERVER",
    "DMLC_NUM_WORKER",
    "DMLC_NODE_HOST",
    "DMLC_INTERFACE",
    "PORT",
    "PS_VERBOSE",
    "PS_HEARTBEAT_INTERVAL",
    "PS_HEARTBEAT_TIMEOUT",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    # Set by ps-lite itself. The ps-lite of MXNet 1.2.1 hangs if the variable is set before.
    "DMLC_RANK",
    # ps-lite would listen on all addresses, or on none.
    "DMLC_USE_KUBERNETES",
    "DMLC_LOCAL",
)
# {variable that decides which code a process of mxcluster loads: why not, and what to do instead}.
LOADER_VARIABLES = {
    "PATH": "it would replace the PATH of the node; use absolute paths in the script, or change "
    "os.environ there",
    "PYTHONPATH": "its modules could replace those of mxcluster and MXNet; put your modules beside "
    "the script",
    "PYTHONHOME": "Python on the nodes would not find its standard library; remove PYTHONHOME",
    "PYTHONSAFEPATH": "the script would not find the modules beside it; remove PYTHONSAFEPATH",
    "LD_PRELOAD": "it would load code into the servers and the scheduler too; load the library in "
    "the script, with ctypes.CDLL",
    "LD_AUDIT": "it would load code into the servers and the scheduler too; remove LD_AUDIT",
}
# The schemes under which unequal batches do not change the size of an update.
BALANCED = tuple(one.name for one in schemes.SCHEMES if schemes.sums_every_step(one))


def _has_groups(options: Dict[str, Any]) -> bool:
    return schemes.of(options["kv"]).servers_of_a_group


# Options that contradict each other: a test of all options, and the message, which names options.
CONTRADICTIONS: Tuple[Tuple[Callable[[Dict[str, Any]], Any], str], ...] = (
    (
        lambda given: given["staleness"] is not None and given["kv"] != "dist_ssync",
        "staleness=%(staleness)d has no meaning with kv=%(kv)s: leave staleness out, or use "
        "kv=dist_ssync",
    ),
    (
        lambda given: given["gsync_compensation"] and not _has_groups(given),
        "gsync_compensation=%(gsync_compensation)g has no meaning with kv=%(kv)s: leave "
        "gsync_compensation out, or use kv=dist_gsync",
    ),
    (
        lambda given: given["gsync_max_y"] and not _has_groups(given),
        "gsync_max_y=%(gsync_max_y)d has no meaning with kv=%(kv)s: leave gsync_max_y out, or use "
        "kv=dist_gsync",
    ),
    (
        lambda given: given["compression"] != "none" and given["script"],
        "compression=%(compression)s with a script: a script sets the compression itself; leave "
        "compression out, and call kv.set_gradient_compression({'type': '%(compression)s', "
        "'threshold': %(compression_threshold)g}) in the script before the first init()",
    ),
    (
        lambda given: (
            given["compression"] != "none"
            and not given["script"]
            and schemes.of(given["kv"]).no_compression
        ),
        "compression=%(compression)s with kv=%(kv)s: %(no_compression)s; use -e compression=none, "
        "or another kv",
    ),
    (
        lambda given: given["bigarray_bound"] and BOUND in given["env"],
        "bigarray_bound=%(bigarray_bound)d and env: {bound}=%(given_bound)s set the same value: "
        "leave one of them out".format(bound=BOUND),
    ),
    (
        lambda given: given["script_args"] and not given["script"],
        "script_args=%(script_args)s without script: give the script too, as -e "
        "script=path/to/script.py",
    ),
    (
        lambda given: (
            not given["script"] and DATASETS[given["data"]].from_data_dir and not given["data_dir"]
        ),
        "data=%(data)s needs data_dir: give the folder on the nodes with the data set's files",
    ),
    (
        lambda given: given["balance"] != "none" and given["script"],
        "balance=%(balance)s with a script: only the program of mxcluster changes its batch sizes; "
        "use -e balance=none, or leave the script out",
    ),
    (
        lambda given: given["balance"] != "none" and given["kv"] not in BALANCED,
        "balance=%(balance)s with kv=%(kv)s: unequal batches leave the size of an update unchanged "
        "only if each update sums one batch of every worker, or of every worker of a group; use kv="
        + " or ".join(BALANCED)
        + ", or "
        "-e balance=none",
    ),
    (
        lambda given: (
            given["balance"] != "none"
            and given["data_allocator"]
            and schemes.of(given["kv"]).waits == schemes.EVERYBODY
        ),
        "balance=%(balance)s with data_allocator=1 and kv=%(kv)s: the batch sizes decide the "
        "shares of the data; leave data_allocator out, or use -e balance=none",
    ),
    (
        lambda given: given["step_ms"] and given["script"],
        "step_ms=%(step_ms)g with a script: only the program of mxcluster lengthens its steps; "
        "leave step_ms or the script out",
    ),
    (
        lambda given: given["server_classes"] and not given["script"],
        "server_classes=%(server_classes)s without script: only a script has classes of its own; "
        "give the script too, as -e script=path/to/script.py",
    ),
    (
        lambda given: given["data_src"] and not given["data_dir"],
        "data_src=%(data_src)s without data_dir: give data_dir too, the folder on the nodes to "
        "which the files are copied",
    ),
    (
        lambda given: given["max_restarts"] and given["detach"],
        "max_restarts=%(max_restarts)d with detach=true: a detached job has no controller that "
        "could restart it; leave max_restarts or detach out",
    ),
    (
        lambda given: given["max_restarts"] and given["script"],
        "max_restarts=%(max_restarts)d with a script: mxcluster can resume its own training "
        "program only; leave max_restarts out, and restart the script yourself",
    ),
    (
        lambda given: given["max_restarts"] and not given["script"] and not given["savemodel"],
        "max_restarts=%(max_restarts)d without savemodel=true: a restart continues from a saved "
        "checkpoint; add -e savemodel=true",
    ),
    (
        lambda given: given["resume"] and given["script"],
        "resume=%(resume)s with a script: a script saves and loads its own checkpoints; leave "
        "resume or the script out",
    ),
    (
        lambda given: given["model_load_epoch"] and not given["model_load_job"],
        "model_load_epoch=%(model_load_epoch)d without model_load_job: give model_load_job too, "
        "the job in runs/ that saved the model",
    ),
    (
        lambda given: given["model_load_job"] and not given["model_load_epoch"],
        "model_load_job=%(model_load_job)s without model_load_epoch: give model_load_epoch too, "
        "the epoch (1 or more) after which the model was saved",
    ),
    (
        lambda given: not given["script"] and given["model_load_epoch"] >= given["num_epochs"],
        "model_load_epoch=%(model_load_epoch)d leaves nothing to train with "
        "num_epochs=%(num_epochs)d, which counts the epochs of the loaded model too: raise "
        "num_epochs",
    ),
    (
        lambda given: given["measured"] and given["script"],
        "measured=%(measured)d with a script: only the program of mxcluster measures its batches; "
        "leave measured or the script out",
    ),
    (
        lambda given: given["measure_waits"] and given["script"],
        "measure_waits=true with a script: only the program of mxcluster measures its waits; leave "
        "measure_waits or the script out",
    ),
    (
        lambda given: given["measured"] and given["savemodel"],
        "measured=%(measured)d with savemodel=true: a measurement ends before its epochs do, so "
        "its model is incomplete; leave measured or savemodel out",
    ),
    (
        lambda given: given["measured"] and given["resume"],
        "measured=%(measured)d with resume=%(resume)s: a measurement does not continue a "
        "training; leave measured or resume out",
    ),
)


def cast(given: Dict[str, Any]) -> Dict[str, Any]:
    """Return {name: typed value} of all options: the `given` values, and defaults for the others.

    A given value is a string of `-e` or a value of YAML. BadInput lists every unknown name and
    every wrong value. If all values are right, it lists the contradictions between them.
    """
    by_name = {option.name: option for option in OPTIONS}
    problems = [
        "%s is not an option of train.yml%s: correct or remove it"
        % (shown(name), did_you_mean(name, by_name))
        for name in given
        if name not in by_name
    ]
    options = {}
    for option in OPTIONS:
        try:
            value = cast_value(option, given.get(option.name))
        except BadInput as refusal:
            problems.append(str(refusal))
            continue
        # A copy of a list or dict: a caller must not change the default in the table.
        options[option.name] = type(value)(value) if isinstance(value, (list, dict)) else value
    refuse(problems)
    refuse(_contradictions(options))
    if options["kv"] == "dist_ssync" and options["staleness"] is None:
        options["staleness"] = DEFAULT_STALENESS
    return options


def step_size(options: Dict[str, Any], workers: int) -> float:
    """Return the learning rate that applies to one push of one of `workers` workers.

    The option `lr` is the rate of a round of all workers. If the scheme applies each push by
    itself, each push gets an equal part of `lr`, unless lr_scale is none.
    """
    rate: float = options["lr"]
    if options["lr_scale"] == "auto" and schemes.updates_each_push(schemes.of(options["kv"])):
        return rate / workers
    return rate


def inherit(given: Dict[str, Any], old: Dict[str, Any], anew: Iterable[str] = ()) -> Dict[str, Any]:
    """Return the options of a job that resumes a job with the options `old`.

    An inherited knob with its default value in `given` takes the value in `old`. The table of knobs
    marks the inherited knobs, which determine the training but not its nodes.

    Args: `anew` the names that the user gave again; they keep their values in `given`.
    """
    by_name = {option.name: option for option in OPTIONS}

    def is_default(name: str) -> bool:
        try:
            return (
                name not in anew
                and cast_value(by_name[name], given.get(name)) == by_name[name].default
            )
        except BadInput:  # `cast` refuses the value later
            return False

    result = dict(given)
    # Jobs planned by an earlier version lack these knobs and trained with these values.
    old = dict({"lr_scale": "none", "gsync_y": "gradient"}, **old)
    for option in OPTIONS:  # kv comes first
        same = option.inherited == result.get("kv") == old.get("kv")
        if (option.inherited is True or same) and option.name in old and is_default(option.name):
            result[option.name] = old[option.name]
    return result


def cast_secret_env(value: Any) -> Tuple[Dict[str, str], List[str]]:
    """Return ({variable: text}, [problem, ...]) of the knob secret_env. No problem shows a value.

    Args: `value` a dict or its JSON text.
    """
    must = "it must be %s; its values are not shown here" % next(
        option.message for option in OPTIONS if option.name == "env"
    )
    try:
        value = json.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return {}, ["secret_env is refused: %s" % must]
    found, problems = {}, []  # type: Tuple[Dict[str, str], List[str]]
    for name, content in value.items():
        try:
            found.update(option_types.to_environment({name: content}))
        except ValueError:
            problems.append(
                "secret_env: %s is refused: a name must consist of letters, digits and '_' and not "
                "begin with a digit, a value must be a string of one line; its values are not "
                "shown here" % shown(name)
            )
    return found, problems


def refuse_secret_env(
    names: Iterable[str], problems: Iterable[str], env: Dict[str, str], bound: int = 0
) -> None:
    """Raise BadInput if secret_env has a problem or a forbidden name.

    Args: `names` the variables of secret_env; `problems` those of `cast_secret_env`; `env` the
    option env, whose names are forbidden here; `bound` the option bigarray_bound: above 0, its
    variable is forbidden, too.
    """
    refuse(
        list(problems)
        + [
            "secret_env: %s is refused: mxcluster sets %s itself; take it out" % (name, name)
            for name in sorted(names)
            if is_own(name)
        ]
        + [
            "secret_env: %s is refused: %s"
            % (
                name,
                dict(LOADER_VARIABLES, LD_LIBRARY_PATH="give it in env, not in secret_env")[name],
            )
            for name in sorted(names)
            if name in LOADER_VARIABLES or name == "LD_LIBRARY_PATH"
        ]
        + [
            "secret_env: %s is given in env too, where everybody can read it: remove it from env "
            "or from secret_env" % name
            for name in sorted(names)
            if name in env
        ]
        + [
            "secret_env: %s is refused, because bigarray_bound=%d sets it: leave one of them out"
            % (name, bound)
            for name in names
            if name == BOUND and bound
        ]
    )


def is_own(variable: str) -> bool:
    """Return True if the plan sets this environment variable itself."""
    return variable in PLANNED_VARIABLES or variable.startswith("MXCLUSTER_")


def _contradictions(options: Dict[str, Any]) -> Iterator[str]:
    cut = ("script_args", "server_classes", "data_src")
    texts = dict(
        options,
        no_compression=schemes.of(options["kv"]).no_compression,
        given_bound=shown(options["env"].get(BOUND)),
        **{name: shown(options[name]) for name in cut},
    )
    for contradict, message in CONTRADICTIONS:
        if contradict(options):
            yield message % texts
    if not options["script"]:
        try:
            training_samples(options["data"], options["num_examples"])
        except BadInput as refusal:
            yield str(refusal)
    for name in sorted(options["env"]):
        if is_own(name):
            yield (
                "env: %s=%s is refused: mxcluster sets %s itself; take it out"
                % (name, shown(options["env"][name]), name)
            )
        elif name in LOADER_VARIABLES:
            yield "env: %s=%s is refused: %s" % (
                name,
                shown(options["env"][name]),
                LOADER_VARIABLES[name],
            )
