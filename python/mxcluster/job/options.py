"""Check the options of a plan against each other.

`cast` returns all options from what the user wrote, or raises BadInput with one line for each wrong
option. Other functions compute the learning rate of a push and the options of a resumed job, and
check the knob `secret_env`.
"""

import json
from typing import Callable, Collection, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar

from mxcluster import batch_systems, schemes
from mxcluster.datasets import DATASETS, training_samples
from mxcluster.environment import BOUND
from mxcluster.errors import BadInput, refuse, shown
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.job_knobs import HOST, MEASURING, Options, Secrets
from mxcluster.model.knob import WITH_SCHEME, knobs_of, read
from mxcluster.model.names import attempt
from mxcluster.model.written import MOST_ALL_TEXTS, MOST_TEXT, environment, to_environment
from mxcluster.numbers import to_int

AnyOptions = TypeVar("AnyOptions", bound=Options)

DEFAULT_STALENESS = 3

# The plan sets these variables for every process, so `env` must not contain these variables.
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
    # ps-lite sets this variable itself. The ps-lite of MXNet 1.2.1 hangs if the user sets it.
    "DMLC_RANK",
    # With these variables, ps-lite would listen on all addresses, or on no address.
    "DMLC_USE_KUBERNETES",
    "DMLC_LOCAL",
)
# {variable that decides which code a process loads: reason for the refusal, and what to do}.
LOADER_VARIABLES = {
    "PATH": "this PATH would replace the PATH of the node. Use absolute paths in the script, or "
    "change os.environ in the script",
    "PYTHONPATH": "modules in PYTHONPATH could replace the modules of mxcluster and MXNet. Put "
    "your modules beside the script",
    "PYTHONHOME": "Python on a node would not find the standard library. Remove PYTHONHOME",
    "PYTHONSAFEPATH": "Python would not find the modules beside the script. Remove PYTHONSAFEPATH",
    "LD_PRELOAD": "the servers and the scheduler would load this library too. Load the library in "
    "the script, with ctypes.CDLL",
    "LD_AUDIT": "the servers and the scheduler would load this library too. Remove LD_AUDIT",
}
# The schemes whose update keeps its size under unequal batches.
BALANCED = tuple(one.name for one in schemes.SCHEMES if schemes.sums_every_step(one))
# A function that returns a true value for contradictory options, and the message, a %-format with
# the names of options.
Contradiction = Tuple[Callable[[Options], object], str]


def _is_batch(options: Options) -> bool:
    return LAUNCHERS[options.launcher].is_batch


def _engine(options: Options) -> str:
    return LAUNCHERS[options.launcher].engine


def _is_set(options: Options, name: str) -> bool:
    """Return True if the knob `name` has another value than its default."""
    return bool(vars(options)[name] != knobs_of(Options)[name].default)


def _not_with_script(name: str, why: str, cure: str = "") -> Contradiction:
    """Return the contradiction between the knob `name`, if it is set, and a script."""
    cure = cure or "leave %s or the script out" % name
    return (
        lambda given: given.script and _is_set(given, name),
        "{0}=%({0})s is refused with a script, because {1}: {2}".format(name, why, cure),
    )


def _not_for_batch(name: str, cure: str) -> Contradiction:
    """Return the contradiction between the knob `name`, which names nodes, and a batch system."""
    return (
        lambda given: _is_batch(given) and _is_set(given, name),
        "{0}=%({0})s is refused with launcher=%(launcher)s, because the nodes are unknown before "
        "the job starts: {1}".format(name, cure),
    )


def _needs(name: str, other: str, cure: str) -> Contradiction:
    """Return the contradiction between the knob `name` and the default of the knob `other`."""
    return (
        lambda given: _is_set(given, name) and not _is_set(given, other),
        "{0}=%({0})s needs {1}: {2}".format(name, other.replace("script", "a script"), cure),
    )


CONTRADICTIONS: Tuple[Contradiction, ...] = (
    (
        lambda given: given.runtime != HOST and _engine(given),
        "runtime=%(runtime)s is refused with launcher=%(launcher)s, because %(engine)s does not "
        "control containers: use launcher=ssh, or runtime=host",
    ),
    _not_with_script(
        "compression",
        "a script sets the compression itself",
        "leave compression out, and call kv.set_gradient_compression({'type': '%(compression)s', "
        "'threshold': %(compression_threshold)s}) in the script before the first init()",
    ),
    (
        lambda given: (
            given.compression != "none" and not given.script and schemes.of(given.kv).no_compression
        ),
        "compression=%(compression)s is refused with kv=%(kv)s: %(no_compression)s. Use -e "
        "compression=none, or another kv",
    ),
    (
        lambda given: given.bigarray_bound and BOUND in given.env,
        "bigarray_bound=%(bigarray_bound)s and {bound}=%(given_bound)s in env set the same value: "
        "leave bigarray_bound or the variable out".format(bound=BOUND),
    ),
    (
        lambda given: given.round_robin and not (given.num_workers and given.num_servers),
        "round_robin=%(round_robin)s needs num_workers and num_servers: add the numbers of workers "
        "and servers",
    ),
    (
        lambda given: given.round_robin and (given.hosts_file or given.without),
        "round_robin=%(round_robin)s, hosts_file and without all choose the hosts of the job: "
        "leave all but one of these knobs out",
    ),
    _needs("script_args", "script", "add the script, as -e script=path/to/script.py"),
    _needs("script_root", "script", "add the script, as -e script=path/to/script.py"),
    _needs("script_mb", "script", "add the script, as -e script=path/to/script.py"),
    _needs("requirements", "script", "add the script, as -e script=path/to/script.py"),
    (
        lambda given: given.requirements and given.runtime != HOST,
        "requirements=%(requirements)s is refused with runtime=%(runtime)s, because the packages "
        "of a container are those of its image: add them to the image, or use runtime=host",
    ),
    _not_for_batch("requirements", "name the packages in mxnet_packages, and run provision.yml"),
    _needs("metrics", "script", "add the script, as -e script=path/to/script.py"),
    (
        lambda given: (
            not given.script and DATASETS[given.data].from_data_dir and not given.data_dir
        ),
        "data=%(data)s needs data_dir: set data_dir to the folder on the nodes with the files of "
        "the data set",
    ),
    _not_with_script(
        "balance",
        "only the program of mxcluster can change batch sizes",
        "use -e balance=none, or leave the script out",
    ),
    (
        lambda given: given.balance != "none" and given.kv not in BALANCED,
        "balance=%(balance)s is refused with kv=%(kv)s. Each update must sum one batch of every "
        "worker of the job or group, so that unequal batches keep the size of an update. Use kv="
        + " or ".join(BALANCED)
        + ", or -e balance=none",
    ),
    (
        lambda given: (
            given.balance != "none"
            and given.data_allocator
            and schemes.of(given.kv).waits == schemes.EVERYBODY
        ),
        "balance=%(balance)s is refused with data_allocator=1 and kv=%(kv)s, because the batch "
        "sizes decide the shares of the data: leave data_allocator out, or use -e balance=none",
    ),
    _not_with_script("step_ms", "only the program of mxcluster can lengthen a step"),
    _needs(
        "server_classes",
        "script",
        "add the script that defines the classes, as -e script=path/to/script.py",
    ),
    _needs("data_src", "data_dir", "set data_dir to the folder on the nodes for the copied files"),
    (
        lambda given: given.max_restarts and given.detach,
        "max_restarts=%(max_restarts)s is refused with detach=true, because only a controller can "
        "restart a job: leave max_restarts or detach out",
    ),
    (
        lambda given: given.max_restarts and not given.script and not given.savemodel,
        "max_restarts=%(max_restarts)s needs savemodel=true, because a restart continues from a "
        "saved checkpoint: add -e savemodel=true",
    ),
    (
        # The last restart has no further one.
        lambda given: given.elastic and not given.max_restarts and not attempt(given.job_id)[1],
        "elastic=true needs max_restarts: add -e max_restarts=3, or leave elastic out",
    ),
    (
        lambda given: given.keep_best and (given.script or not given.savemodel),
        "keep_best=true needs savemodel=true, and no script, whose checkpoints name no epoch and "
        "so have no known accuracy: add -e savemodel=true, or leave keep_best out and let the "
        "script keep its best files in $MXCLUSTER_CHECKPOINTS",
    ),
    (
        lambda given: (
            given.elastic
            and (
                given.hosts_file
                or given.groups_file
                or given.data_sharding_file
                or given.round_robin
            )
        ),
        "elastic=true is refused with hosts_file, groups_file, data_sharding_file and round_robin, "
        "because they name fixed hosts: leave elastic out, or use the inventory's groups",
    ),
    _not_for_batch("elastic", "the batch system chooses the nodes of each attempt"),
    _not_for_batch("wait_for_room", "the job waits in the queue of the batch system"),
    _not_for_batch("after", "use engine_options, such as --dependency of sbatch"),
    (
        lambda given: given.after and given.after == given.job_id,
        "after=%(after)s is the job_id of this job: name the job before it",
    ),
    _needs(
        "model_load_epoch",
        "model_load_job",
        "set model_load_job to the job in runs/ that saved the model",
    ),
    _needs(
        "model_load_job",
        "model_load_epoch",
        "set model_load_epoch to the epoch (1 or more) after which the job saved the model",
    ),
    (
        lambda given: not given.script and given.model_load_epoch >= given.num_epochs,
        "model_load_epoch=%(model_load_epoch)s leaves nothing to train with "
        "num_epochs=%(num_epochs)s, which counts the epochs of the loaded model too: raise "
        "num_epochs",
    ),
    _not_with_script("measured", "only the program of mxcluster measures its batches"),
    _not_with_script("measure_waits", "only the program of mxcluster measures its waits"),
    (
        lambda given: given.measured and given.expect_accuracy,
        "expect_accuracy=%(expect_accuracy)s is refused with measured=%(measured)s, because a "
        "measurement reports no accuracy: leave measured or expect_accuracy out",
    ),
    (
        lambda given: given.measured and given.savemodel,
        "measured=%(measured)s is refused with savemodel=true, because a measurement ends with an "
        "incomplete model: leave measured or savemodel out",
    ),
    _not_for_batch("hosts_file", "leave hosts_file out, and set num_nodes"),
    _not_for_batch("groups_file", "set worker_group for hosts with the names of the nodes"),
    _not_for_batch("data_sharding_file", "use -e data_allocator=1 and worker_share"),
    _not_for_batch("without", "exclude nodes with engine_options"),
    (
        lambda given: _is_batch(given) and given.round_robin not in ([], ["all"]),
        "round_robin=%(round_robin)s is refused with launcher=%(launcher)s, because the nodes are "
        "unknown before the job starts: use -e round_robin=all",
    ),
    _not_for_batch(
        "data_src", "copy the data to the file system that the nodes share, and leave data_src out"
    ),
    (
        lambda given: given.grouping == "auto" and _is_batch(given),
        "grouping=auto is refused with launcher=%(launcher)s, because a profile belongs to fixed "
        "nodes: use -e grouping=given",
    ),
    (
        lambda given: given.program == MEASURING,
        "program=%(program)s is refused, because it measures the cluster: run profile.yml",
    ),
    (
        lambda given: given.measured and given.resume,
        "measured=%(measured)s is refused with resume=%(resume)s, because a measurement does not "
        "continue a training: leave measured or resume out",
    ),
)


def cast(given: Mapping[str, object]) -> Options:
    """Return all options, with the defaults of options without a value.

    Args: `given` {name: value}, where a value is a string of `-e` or a value of YAML. Raises
    BadInput with every unknown name and every wrong value. If all values are right, raises BadInput
    with the contradictions between the values.
    """
    return checked(read(Options, given))


def checked(options: AnyOptions) -> AnyOptions:
    """Return `options` with the staleness of the scheme.

    Raises BadInput with all contradictions between the options.
    """
    refuse(_contradictions(options))
    if "staleness" in schemes.of(options.kv).knobs and options.staleness is None:
        return options.replaced(staleness=DEFAULT_STALENESS)
    return options


def step_size(options: Options, workers: int) -> float:
    """Return the learning rate for one push of a worker, in a job with `workers` workers.

    The option `lr` is the learning rate for the sum of one push of each worker. If the servers
    apply each push separately, the result is `lr` / `workers`. With lr_scale=none, the result is
    always `lr`.
    """
    if options.lr_scale == "auto" and schemes.updates_each_push(schemes.of(options.kv)):
        return options.lr / workers
    return options.lr


def inherit(given: Options, old: Options, anew: Collection[str] = ()) -> Options:
    """Return the options of a job that resumes a job with the options `old`.

    If an inherited knob has its default value in `given`, the result has the value from `old`. The
    definition of a knob tells if it is inherited. These knobs describe the training, not the nodes.

    Args: `anew` the names of knobs that the user set again. These knobs keep their values in
    `given`.
    """
    values, before, known = vars(given), vars(old), knobs_of(Options)

    def is_taken_over(name: str) -> bool:
        return name not in anew and values[name] == known[name].default

    kv = old.kv if is_taken_over("kv") else given.kv
    return given.replaced(
        **{
            name: before[name]
            for name, one in known.items()
            if is_taken_over(name)
            and (
                one.inherited is True
                or one.inherited == WITH_SCHEME
                and kv == old.kv in schemes.with_knob(name)
            )
        }
    )


def cast_secret_env(value: object) -> Tuple[Dict[str, str], List[str]]:
    """Return ({variable: string}, [problem, ...]) of the knob secret_env.

    Each problem is a line for the user (str), without the values of secret_env.

    Args: `value` a dict or its JSON text.
    """
    must = "it must be %s. The values of secret_env are not shown here" % environment.what
    try:
        value = json.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return {}, ["secret_env is refused: %s" % must]
    found, problems = {}, []  # type: Dict[str, str], List[str]
    for name, content in value.items():
        try:
            found.update(to_environment({name: content}))
        except ValueError:
            problems.append(
                "secret_env: %s is refused. A name must consist of letters, digits and '_', and "
                "begin with a letter or '_'. A value must be a string of one line and at most %d "
                "KiB. The values of secret_env are not shown here" % (shown(name), MOST_TEXT >> 10)
            )
    try:
        to_environment(found)
    except ValueError:
        problems.append(
            "secret_env is refused, because all its values together have more than %d KiB: let the "
            "script read a file instead" % (MOST_ALL_TEXTS >> 10)
        )
    return found, problems


def refuse_secret_env(secrets: Secrets, env: Mapping[str, str]) -> None:
    """Raise BadInput if secret_env has a problem or a forbidden name.

    Args: `env` the public variables, whose names are forbidden in secret_env.
    """
    public = (
        "%s is in env too, and everybody can read the values in env: remove the variable from env "
    )
    public += "or from secret_env"
    forbidden = {name: public % name for name in env}
    forbidden.update(LOADER_VARIABLES, LD_LIBRARY_PATH="move the variable to env")
    forbidden[BOUND] = "the plan must know its value: set bigarray_bound instead"
    hidden = dict.fromkeys(secrets.names)
    refuse([*secrets.problems, *refused_variables("secret_env", hidden, forbidden)])


def refused_variables(
    knob: str,
    variables: Mapping[str, Optional[str]],
    forbidden: Mapping[str, str] = LOADER_VARIABLES,
) -> Iterator[str]:
    """Yield a message for each variable that mxcluster sets itself, or that is forbidden.

    Args: `knob` the name of the knob; `variables` {variable: value, None for a secret value};
    `forbidden` {variable: the reason, and what to do}.
    """
    for name, value in sorted(variables.items()):
        setting = name if value is None else "%s=%s" % (name, shown(value))
        if is_own(name):
            yield "%s: %s is refused, because mxcluster sets %s itself: remove the variable" % (
                knob,
                setting,
                name,
            )
        elif name in forbidden:
            yield "%s: %s is refused: %s" % (knob, setting, forbidden[name])


def _is_bound(text: str) -> bool:
    try:
        return 1 <= to_int(text) < 2**31
    except ValueError:
        return False


def is_own(variable: str) -> bool:
    """Return True if mxcluster reserves the environment variable named `variable` for itself."""
    return variable in PLANNED_VARIABLES or variable.startswith("MXCLUSTER_")


def _refused_of_scheme(options: Options) -> Iterator[str]:
    """Yield a message for each knob that another scheme reads, and that has not its default."""
    for name, one in knobs_of(Options).items():
        value, readers = vars(options)[name], schemes.with_knob(name)
        if one.inherited == WITH_SCHEME and value != one.default and options.kv not in readers:
            yield "%s=%s has no meaning with kv=%s: leave %s out, or use kv=%s" % (
                name,
                value,
                options.kv,
                name,
                " or kv=".join(readers),
            )


def _refused_of_batch(options: Options) -> Iterator[str]:
    """Yield a message for each knob that is wrong or missing for the batch system of the job."""
    for name, source in batch_systems.facts(options.launcher).needs.items():
        if not vars(options)[name]:
            yield "launcher=%s needs %s: add -e %s=NAME; %s" % (
                options.launcher,
                name,
                name,
                source,
            )
    yield from batch_systems.refusals(options.launcher, options.engine_options)


def _refused_of_environments(options: Options) -> Iterator[str]:
    """Yield a message for each variable that the user may not set."""
    same = "all processes need the same value: set bigarray_bound instead"
    forbidden = (
        {}
        if _is_bound(options.env.get(BOUND, "1"))
        else {BOUND: "it must be a whole number from 1 to %d" % (2**31 - 1)}
    )
    yield from refused_variables("env", options.env, dict(LOADER_VARIABLES, **forbidden))
    for knob in ("env_server", "env_worker"):
        yield from refused_variables(
            knob, vars(options)[knob], dict(LOADER_VARIABLES, **{BOUND: same})
        )


def _contradictions(options: Options) -> Iterator[str]:
    texts = {name: _text(value) for name, value in vars(options).items()}
    texts.update(
        no_compression=schemes.of(options.kv).no_compression,
        engine=_engine(options),
        given_bound=shown(options.env.get(BOUND)),
        data_src=shown(options.data_src),
    )
    yield from _refused_of_scheme(options)
    for contradict, message in CONTRADICTIONS:
        if contradict(options):
            yield message % texts
    if _is_batch(options):
        yield from _refused_of_batch(options)
    if not options.script:
        try:
            training_samples(options.data, options.num_examples)
        except BadInput as refusal:
            yield str(refusal)
    yield from _refused_of_environments(options)


def _text(value: object) -> str:
    """Return the value of a knob as text for a message."""
    if isinstance(value, bool):
        return str(value).lower()
    return (
        "%g" % value
        if isinstance(value, float)
        else value
        if isinstance(value, str)
        else shown(value)
    )
