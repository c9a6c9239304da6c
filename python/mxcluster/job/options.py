"""Check the options of a plan against each other.

`cast` returns all options from what the user wrote, or raises BadInput with one line for each wrong
option. Other functions compute the learning rate of a push and the options of a resumed job, and
check the knob `secret_env`.
"""

import json
from typing import Collection, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar

from mxcluster import batch_systems, schemes
from mxcluster.datasets import training_samples
from mxcluster.environment import BOUND
from mxcluster.errors import BadInput, refuse, shown
from mxcluster.job.contradictions import CONTRADICTIONS, engine, is_batch
from mxcluster.model.job_knobs import Options, Secrets
from mxcluster.model.knob import WITH_SCHEME, knobs_of, read
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
        engine=engine(options),
        given_bound=shown(options.env.get(BOUND)),
        data_src=shown(options.data_src),
    )
    yield from _refused_of_scheme(options)
    for contradict, message in CONTRADICTIONS:
        if contradict(options):
            yield message % texts
    if is_batch(options):
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
