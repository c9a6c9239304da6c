"""Define the knobs of train.yml and mpi.yml, with one entry for each knob.

`make docs` generates these texts from the table: the defaults, the argument specs and the README
table of the role train_job, the knobs in group_vars/all.yml, and docs/knobs.md. These modules read
the table:

- `options`: types, limits, and what a resumed job inherits;
- `mxcluster.ansible.knobs`: the names for -e;
- `plan.processes` and `training.programs`: the arguments of a training program.

The module `options` has the rules between several knobs.
"""

import re
from typing import Any, List, Tuple

from mxcluster import schemes
from mxcluster.datasets import DATASETS
from mxcluster.job import launchers, option_types
from mxcluster.job.option_types import (
    MOST,
    MOST_GPU,
    MOST_TEXT,
    Knob,
    Option,
    above_0,
    between,
    is_job_id,
    to_text,
)
from mxcluster.numbers import to_float, to_int

PROGRAMS = ("image_classification",)
# The networks of the program itself. The node record lists the networks of MXNet's model zoo.
NETWORKS = ("mlp", "lenet", "resnet20", "inception-bn-28-small")

# The values of the knob `runtime`, and the default image, which the role container_image brings.
HOST = "host"  # the runtime without containers
RUNTIMES = (HOST, "docker", "podman")
IMAGE = "localhost/mxcluster"

# The workers, servers or nodes of a job. Its plan takes seconds.
MOST_PROCESSES = 4096
MOST_SAMPLES = 100000000  # of an epoch; a worker holds a number of 8 bytes for each
MOST_SECONDS = 10000000  # of a timeout
MOST_MS = 3600000  # of a step
MOST_MB = 1000000
# A smaller array is not worth a message to every server.
LEAST_BOUND = 1000

_ENVIRONMENT = (
    "a dict of environment variables with strings of one line and at most %d KiB, such as "
    '\'{"OMP_NUM_THREADS": "1"}\'' % (MOST_TEXT >> 10)
)
_CASTS = {"str": to_text, "int": to_int, "float": to_float, "bool": option_types.to_bool}


def _to_staleness(value: Any) -> Any:
    return None if value == "" else to_int(value)


def _is_absolute_or_empty(path: str) -> bool:
    return path == "" or path.startswith("/")


def _is_limit(text: str) -> bool:
    # Slurm takes 0 as no limit.
    return text == "" or bool(
        re.fullmatch(r"[1-9][0-9]{0,6}|[0-9]{1,4}:[0-5][0-9](:[0-5][0-9])?", text)
        and re.search("[1-9]", text)
    )


def _is_word_or_empty(text: str) -> bool:
    return text == "" or bool(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:,=@*+-]*", text))


def _is_job_id_or_empty(text: str) -> bool:
    return text == "" or is_job_id(text)


def _is_none_or_from_5_s(seconds: float) -> bool:
    return seconds == 0 or 5 <= seconds <= MOST_SECONDS


def _is_bound(numbers: int) -> bool:
    return numbers == 0 or LEAST_BOUND <= numbers <= 2**31 - 1


def _is_image(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9][\w./:@-]*", name))


def _is_image_or_empty(name: str) -> bool:
    return name == "" or _is_image(name)


def _is_program(path: str) -> bool:
    return bool(re.fullmatch(r"(/[\w.+-]+)+|\w[\w.+-]*", path))


def _has_6_decimals(number: float) -> bool:
    return 0 < number <= MOST and round(number, 6) == number


def _are_classes(texts: List[str]) -> bool:
    return all(re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", text) for text in texts)


def _knob(
    name: str,
    type: str,
    default: Any,
    *,
    cast: Any = None,
    check: Any = None,
    choices: Any = None,
    message: str = "",
    description: str,
    inherited: Any = False,
    flag: str = "",
    own: bool = False,
    no_log: bool = False,
) -> Knob:
    """Return a Knob with these fields, as `option_types.Knob` describes.

    Without `cast`, the function takes the conversion for `type` from _CASTS. The type "raw" needs a
    `cast`, unless only the role reads the knob.
    """
    option = Option(name, default, cast or _CASTS.get(type), check, message)
    return Knob(*option, type, description, choices, inherited, flag, own, no_log)


def _count(
    name: str,
    default: int,
    low: int,
    high: int,
    description: str,
    cure: str = "",
    **more: Any,
) -> Knob:
    return _knob(
        name,
        "int",
        default,
        check=between(low, high),
        message="a whole number from %d to %d%s" % (low, high, cure),
        description="%s From %d to %d." % (description, low, high),
        **more,
    )


def _positive(name: str, default: float, description: str, **more: Any) -> Knob:
    return _knob(
        name,
        "float",
        default,
        check=above_0(MOST),
        message="a number above 0 and at most %d, such as %r" % (MOST, default),
        description="%s Above 0, at most %d." % (description, MOST),
        **more,
    )


def _switch(name: str, description: str, **more: Any) -> Knob:
    return _knob(name, "bool", False, message="true or false", description=description, **more)


def _choice(name: str, default: str, names: Tuple[str, ...], description: str, **more: Any) -> Knob:
    return _knob(
        name,
        "str",
        default,
        check=names,
        choices=names,
        message="one of " + ", ".join(names),
        description=description,
        **more,
    )


def _word(name: str, description: str) -> Knob:
    return _knob(
        name,
        "str",
        "",
        check=_is_word_or_empty,
        message="one word of letters, digits and '_.:,=@*+-'",
        description=description,
    )


def _path(name: str, description: str) -> Knob:
    return _knob(name, "str", "", message="a path", description=description)


OF_MPI = "An MPI program (mpi.yml)."  # the section whose knobs only mpi.yml reads
MPI_ENGINES = ("auto", "openmpi", "mpich", "intelmpi")

# Each title is a comment in the defaults of the role. All generated files keep this order.
SECTIONS = {
    "The parallel scheme.": (
        _choice(
            "kv",
            "dist_sync",
            schemes.NAMES,
            "The parallel scheme: %s."
            % ", ".join("`%s` (%s)" % (one.name, one.title) for one in schemes.SCHEMES),
            inherited=True,
            flag="--kv-store",
        ),
    ),
    "The program: one of mxcluster or the user's script.": (
        _choice(
            "program",
            "image_classification",
            PROGRAMS,
            "The training program of mxcluster. Every worker runs the program.",
            inherited=True,
        ),
        _path(
            "script",
            "Your own script on the controller. Every worker runs the script instead of the "
            "program. `train.yml` copies the script's folder to the nodes.",
        ),
        _knob(
            "script_args",
            "raw",
            [],
            cast=option_types.to_list,
            message="a list of strings (write numbers in quotes), such as "
            '\'{"script_args": ["--lr", "0.1"]}\'',
            description="The arguments of the script, a list of strings. The script gets each "
            "string unchanged.",
        ),
        _knob(
            "server_classes",
            "raw",
            [],
            cast=option_types.to_list,
            check=_are_classes,
            message="a list of module:Class, each class at the top level of its module, such as "
            '\'{"server_classes": ["mine:MyOptimizer"]}\'',
            description="Classes of the script that the workers may send to the servers: a list "
            "of `module:Class`, in modules beside the script or of MXNet. The classes of "
            "`mx.optimizer` and `mx.lr_scheduler` need no entry. The servers refuse all other "
            "classes.",
        ),
    ),
    "The training: network, data, learning rate, checkpoints.": (
        _knob(
            "network",
            "str",
            "mlp",
            check=bool,
            message="the name of a network, such as mlp",
            description="`mlp`, `lenet`, `resnet20`, `inception-bn-28-small`, or a network of "
            "MXNet's model zoo.",
            inherited=True,
            flag="--network",
        ),
        _choice(
            "data",
            "digits",
            tuple(DATASETS),
            "The data set. `warped` has small noisy pictures of warped digits, a harder task.",
            inherited=True,
            flag="--data",
        ),
        _knob(
            "data_dir",
            "str",
            "",
            check=_is_absolute_or_empty,
            message="a path on the nodes that begins with '/'",
            description="The folder on the nodes with the files of mnist, cifar10 or imagenet. An "
            "absolute path. Containers have the folder, too, and cannot write to it.",
            inherited=True,
        ),
        _path(
            "data_src",
            "A folder on the controller. Before the start, `train.yml` copies the files of this "
            "folder to `data_dir` on the workers' nodes, and skips equal files.",
        ),
        _count(
            "batch_size",
            32,
            1,
            MOST,
            "The number of samples in a batch of one worker.",
            inherited=True,
            flag="--batch-size",
        ),
        _choice(
            "balance",
            "none",
            ("none", "batch"),
            "`batch` fits the batch sizes of the workers to their measured speeds at the end of "
            "every epoch. The sum of the sizes stays `batch_size` times the number of workers. "
            "Under `dist_gsync`, the sum of each group stays the same too. `none` gives every "
            "worker `batch_size`. `batch` requires the training program of mxcluster, and one of "
            "the schemes %s."
            % ", ".join(
                "`%s`" % one.name for one in schemes.SCHEMES if schemes.sums_every_step(one)
            ),
            inherited=True,
            flag="--balance",
        ),
        _positive("lr", 0.05, "The learning rate.", inherited=True, flag="--lr"),
        _choice(
            "lr_scale",
            "auto",
            ("auto", "none"),
            "`auto` divides the program's `lr` by the number of workers under %s, because there "
            "each push of a worker changes the weights. `none` uses `lr` unchanged."
            % " and ".join(
                "`%s`" % one.name for one in schemes.SCHEMES if schemes.updates_each_push(one)
            ),
            inherited=True,
        ),
        _choice(
            "gsync_y",
            "rate",
            ("rate", "gradient", "one"),
            "The value that `dist_gsync` with several groups divides by Y, the number of updates "
            "since the group's previous update: `rate` is the learning rate, `gradient` is the "
            "gradient, and `one` disables the division. For SGD without weight decay and "
            "clipping, `rate` and `gradient` give the same result.",
            inherited=True,
        ),
        _choice(
            "compression",
            "none",
            ("none", "2bit"),
            "The form in which a worker sends a gradient. `none` is the gradient itself. `2bit` "
            "sends 2 bits for each number, a 16th of the bytes. A worker adds the gradient to the "
            "remainder of the previous steps, and sends -`compression_threshold`, 0 or "
            "`compression_threshold`. The worker keeps the new remainder for the next step. This "
            "knob is for the training program of mxcluster. A script calls "
            "`kv.set_gradient_compression` instead. `2bit` is refused under %s."
            % " and ".join("`%s`" % one.name for one in schemes.SCHEMES if one.no_compression),
            inherited=True,
            flag="--compression",
        ),
        _knob(
            "compression_threshold",
            "float",
            2.0,
            check=_has_6_decimals,
            message="a number above 0 and at most %d with at most 6 decimals, such as 0.5, because "
            "MXNet sends only 6 decimals to the servers" % MOST,
            description="The absolute value of the numbers other than 0 that `compression=2bit` "
            "sends for a gradient. The gradient is the sum over a worker's batch. MXNet's own "
            "default is 0.5. Above 0, at most %d, with at most 6 decimals." % MOST,
            inherited=True,
            flag="--compression-threshold",
        ),
        _knob(
            "gsync_compensation",
            "float",
            0.0,
            check=between(0, MOST),
            message="a number from 0 to %d, such as 0.04 (0: no compensation)" % MOST,
            description="Delay compensation of DC-ASGD for `dist_gsync` with several groups: a "
            "group's gradient g becomes g + `gsync_compensation` * g * g * d, where d is the "
            "change of the weights by other groups since the group's last pull. From 0 to %d; 0 "
            "disables the compensation." % MOST,
            inherited="dist_gsync",
        ),
        _count(
            "gsync_max_y",
            0,
            0,
            MOST,
            "`dist_gsync` with several groups drops an update whose Y is above this number. Y is "
            "the number of updates since the group's previous update. The weights stay, and the "
            "group pulls the newest weights. For groups of equal speed, Y is near the number of "
            "groups. 0 drops no update.",
            cure=" (0: drop no update)",
            inherited="dist_gsync",
        ),
        _knob(
            "lr_factor",
            "float",
            1.0,
            check=lambda value: 0 < value <= 1,
            message="a number above 0 and at most 1, such as 0.9",
            description="The program multiplies the learning rate by this factor every "
            "`lr_factor_epoch` epochs. Above 0, at most 1.",
            inherited=True,
            flag="--lr-factor",
        ),
        _positive(
            "lr_factor_epoch",
            1.0,
            "The number of epochs between two multiplications with `lr_factor`.",
            inherited=True,
            flag="--lr-factor-epoch",
        ),
        _choice(
            "on_nan",
            "stop",
            ("stop", "continue"),
            "The program's reaction to a loss of NaN: `stop` the job, or `continue`.",
            inherited=True,
            flag="--on-nan",
        ),
        _count(
            "num_epochs",
            20,
            1,
            MOST,
            "The number of epochs to train.",
            inherited=True,
            flag="--num-epochs",
        ),
        _count(
            "num_examples",
            0,
            0,
            MOST_SAMPLES,
            "The number of training samples of an epoch; 0 takes all samples of the data set.",
            inherited=True,
            flag="--num-examples",
            cure=" (0: all)",
        ),
        _knob(
            "seed",
            "int",
            0,
            check=between(0, 2**31 - 1),
            message="a whole number from 0 to 2147483647",
            description="The seed of initial weights, shuffling and synthetic data. From 0 to "
            "2147483647.",
            inherited=True,
            flag="--seed",
        ),
        _switch(
            "savemodel",
            "With `true`, the job saves the weights and the optimizer's state after every epoch. "
            "The controller fetches these checkpoints to `runs/<job>/checkpoints` while the job "
            "runs.",
            inherited=True,
            flag="--savemodel",
        ),
        _count(
            "keep_checkpoints",
            3,
            1,
            MOST,
            "The number of most recent checkpoints to keep.",
            inherited=True,
            flag="--keep-checkpoints",
        ),
        _knob(
            "resume",
            "str",
            "",
            check=_is_job_id_or_empty,
            message="the id of a job in runs/",
            description="The id of an interrupted job with `savemodel`. The new job continues "
            "from the last complete checkpoint, on any number of workers and servers. The new job "
            "inherits the training knobs unless you set them again.",
        ),
        _count(
            "model_load_epoch",
            0,
            0,
            MOST,
            "Start from the model that `model_load_job` saved after this epoch. 0 starts with new "
            "weights.",
            flag="--model-load-epoch",
            cure=" (0: start afresh)",
        ),
        _knob(
            "model_load_job",
            "str",
            "",
            check=_is_job_id_or_empty,
            message="the id of a job in runs/",
            description="The id of the job for `model_load_epoch`, a folder of `runs/`.",
        ),
    ),
    "The machines: nodes, GPUs, shares of the data.": (
        _count(
            "num_workers",
            0,
            0,
            MOST_PROCESSES,
            "The number of workers to use, in the order of the inventory; 0 uses all workers.",
            cure=" (0: all)",
        ),
        _count(
            "num_servers",
            0,
            0,
            MOST_PROCESSES,
            "The number of servers to use, in the order of the inventory; 0 uses all servers.",
            cure=" (0: all)",
        ),
        _knob(
            "without",
            "raw",
            [],
            cast=option_types.to_names,
            message="the names of hosts, such as node3,node4",
            description="Hosts of the inventory that the job does not use, such as `node3,node4`. "
            "Ansible does not contact these hosts, so they may be down.",
        ),
        _knob(
            "round_robin",
            "raw",
            [],
            cast=option_types.to_words,
            check=lambda hosts: len(hosts) <= MOST_PROCESSES,
            message="at most %d names or addresses of hosts, such as node3,node4, or all"
            % MOST_PROCESSES,
            description="The hosts that get `num_servers` servers and then `num_workers` workers "
            "in turn, such as `node3,node4`. MXNet's `launch.py` uses the lines of its hosts file "
            "in the same way. A host may occur several times. `all` takes all hosts of the "
            "inventory. Without this knob the groups of the inventory place the processes.",
        ),
        _knob(
            "gpus",
            "raw",
            "auto",
            cast=option_types.to_gpus,
            message="auto, '' (none) or GPU numbers from 0 to %d such as 0,1" % MOST_GPU,
            description="GPU numbers for the workers of a host, such as `0,1`. `auto` takes all "
            "GPUs of the host, an empty string no GPU. From 0 to %d." % MOST_GPU,
        ),
        _knob(
            "data_allocator",
            "int",
            0,
            check=(0, 1),
            message="0 (equal shares) or 1 (shares of data_sharding)",
            description="0 gives every worker an equal share of the data, 1 gives each worker its "
            "share in `data_sharding`.",
            flag="--data-allocator",
        ),
        _choice(
            "grouping",
            "given",
            ("given", "auto"),
            "The source of the groups if `worker_group` and `groups_file` are not set. Both values "
            "take the groups of a fitting profile that `profile.yml` has measured. Without a "
            "fitting profile, `given` makes one group of all workers, and `auto` first runs "
            "`profile.yml`.",
        ),
        _path(
            "hosts_file",
            "Your own `hosts` file on the controller: a worker's address on each line.",
        ),
        _path("groups_file", "Your own `groups` file: the addresses of a group on each line."),
        _path(
            "data_sharding_file",
            "Your own `data_sharding` file: begin and end of a worker's share on each line.",
        ),
    ),
    "The run: scheme, network, environment, timeouts.": (
        _choice(
            "runtime",
            HOST,
            RUNTIMES,
            "The place of the processes. `host` starts the processes on the node itself. `docker` "
            "and `podman` start the processes in containers of `image`, or of `mpi_image` under "
            "`mpi.yml`. The agent always runs on the node itself.",
        ),
        _knob(
            "image",
            "str",
            IMAGE,
            check=_is_image,
            message="the name of a container image, such as localhost/mxcluster:1",
            description="The container image for `runtime=docker` or `podman`. The image has "
            "Python, numpy and an MXNet with the distributed kv-store. Each node must have the "
            "image, because a start asks no registry. The role `container_image` brings an image "
            "to the nodes.",
        ),
        _knob(
            "image_python",
            "str",
            "python3",
            check=_is_program,
            message="the name or the absolute path of a program, such as python3",
            description="The Python in the image, a name or an absolute path.",
        ),
        _knob(
            "step_ms",
            "float",
            0.0,
            check=between(0, MOST_MS),
            message="a number of milliseconds from 0 to %d" % MOST_MS,
            description="For rehearsals: the forward and backward pass of `batch_size` samples "
            "takes at least this number of milliseconds, and more samples take longer in "
            "proportion. The host variable `slowdown` multiplies this time. 0 sets no minimum. The "
            "figures of such a job do not describe its nodes. From 0 to %d." % MOST_MS,
            flag="--step-ms",
        ),
        _knob(
            "staleness",
            "raw",
            None,
            cast=_to_staleness,
            check=lambda value: value is None or 0 <= value <= MOST,
            message="a whole number from 0 to %d (only kv=dist_ssync uses it)" % MOST,
            description="The number of iterations that a worker may be ahead of the slowest "
            "worker, for `dist_ssync` only. The default is 3. From 0 to %d." % MOST,
            inherited="dist_ssync",
        ),
        _knob(
            "dmlc_interface",
            "str",
            "",
            message="the name of a network interface, such as eth0",
            description="The network interface of the training traffic, such as `ib0`. The "
            "default is the interface of the node's address.",
        ),
        _knob(
            "bigarray_bound",
            "int",
            0,
            check=_is_bound,
            message="0 (MXNet's 1000000) or a whole number from %d to 2147483647" % LEAST_BOUND,
            description="MXNet splits an array of at least this many numbers evenly over all "
            "servers, and stores a smaller array on one server. All processes get this bound as "
            "`MXNET_KVSTORE_BIGARRAY_BOUND`. From %d to 2147483647, or 0 for MXNet's default of "
            "1000000." % LEAST_BOUND,
        ),
        _knob(
            "ps_verbose",
            "int",
            0,
            check=between(0, 2),
            choices=(0, 1, 2),
            message="0, 1 or 2",
            description="The log level of ps-lite: 0 logs nothing, 1 connections, 2 every message.",
        ),
        _knob(
            "root_port",
            "raw",
            "auto",
            cast=option_types.to_port,
            check=lambda port: port == "auto" or 1024 <= port <= 65000,
            message="auto (the first free port from 9091 on) or a port number from 1024 to 65000",
            description="The scheduler's port, 1024 to 65000. The other processes on an address "
            "take the following ports. `auto` takes the first port from 9091 on where all of "
            "these ports are free.",
        ),
        _knob(
            "env",
            "raw",
            {},
            cast=option_types.to_environment,
            message=_ENVIRONMENT,
            description="Environment variables for every process, a dict. Their values are visible "
            "in the output, in `runs/` and on the nodes. Variables that control loading (`PATH`, "
            "`PYTHONPATH`, `LD_PRELOAD`) are refused.",
        ),
        _knob(
            "env_server",
            "raw",
            {},
            cast=option_types.to_environment,
            message=_ENVIRONMENT,
            description="Environment variables for the servers, a dict like `env`. These values "
            "have priority over `env`.",
        ),
        _knob(
            "env_worker",
            "raw",
            {},
            cast=option_types.to_environment,
            message=_ENVIRONMENT,
            description="Environment variables for the workers, a dict like `env`. These values "
            "have priority over `env`.",
        ),
        _knob(
            "secret_env",
            "raw",
            {},
            description="Environment variables for tokens and passwords, a dict like `env`. Their "
            "values are absent from the output, from the files of `runs/` and from process lists. "
            "Give the dict from a vault or with `-e @file`.",
            own=True,
            no_log=True,
        ),
        _count(
            "collect_mb",
            1024,
            0,
            MOST_MB,
            "The limit in megabytes for the files of a script that each node sends to "
            "`runs/<job>/nodes/<host>/files/<worker>` at the end of the job. Small files come "
            "first. Files above the limit stay on the node, and the report names them. 0 sends no "
            "file.",
        ),
        _knob(
            "lease",
            "float",
            60.0,
            check=between(1, 86400),
            message="a number of seconds from 1 to 86400",
            description="A job ends itself after this number of seconds without a poll of the "
            "controller. If the controller polls late, the limit is up to twice this number. If "
            "the controller runs on the node's own machine, the limit is twice this number, at "
            "least 180 s. From 1 to 86400.",
        ),
        _switch(
            "detach",
            "Start the job and exit. The job has no lease. `train.yml -e attach=<job>` waits for "
            "the end of the job, on any controller.",
        ),
        _count(
            "max_restarts",
            0,
            0,
            1000,
            "The maximum number of restarts of a job with `savemodel` after a fault of a node (a "
            "killed process or agent, a lost node). The job resumes from the last complete "
            "checkpoint on the remaining nodes. An error of the program never causes a restart.",
        ),
        _knob(
            "restart_delay",
            "float",
            10.0,
            check=between(0, 86400),
            message="a number of seconds from 0 to 86400",
            description="The number of seconds before the first restart, from 0 to 86400. Each "
            "further restart doubles the number.",
        ),
        # With a timeout below 2 s, a single late heartbeat would end a healthy job.
        _knob(
            "heartbeat_timeout",
            "int",
            5,
            check=between(2, 3600),
            message="a whole number of seconds from 2 to 3600",
            description="A process without a heartbeat for this number of seconds counts as dead. "
            "From 2 to 3600.",
        ),
        # A process reports progress about once a second. With a limit below 5 s, healthy jobs end.
        _knob(
            "start_timeout",
            "float",
            60.0,
            check=_is_none_or_from_5_s,
            message="0 (no limit) or a number of seconds from 5 to %d" % MOST_SECONDS,
            description="The maximum number of seconds from the start of a process to its "
            "kv-store; 0 is no limit, otherwise from 5 to %d. Raise the limit for scripts with a "
            "long preparation. Time that the process waits for a CPU core does not count, up to "
            "the same number of seconds." % MOST_SECONDS,
        ),
        _knob(
            "stall_timeout",
            "float",
            300.0,
            check=_is_none_or_from_5_s,
            message="0 (no limit) or a number of seconds from 5 to %d" % MOST_SECONDS,
            description="After this number of seconds without progress, the agents end the job, "
            "and the verdict names the process that blocks the other processes. 0 is no limit, "
            "otherwise from 5 to %d." % MOST_SECONDS,
        ),
        _knob(
            "job_id",
            "str",
            "",
            check=_is_job_id_or_empty,
            message="made of letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit (at most 100)",
            description="The name of the job. The default consists of the time and the scheme.",
        ),
        _switch("plan_only", "Show the plan and start nothing."),
    ),
    "The launcher: how the agents of the nodes start.": (
        _choice(
            "launcher",
            launchers.SSH,
            tuple(launchers.LAUNCHERS),
            "The way in which the agents start. "
            + " ".join(
                "`%s`: %s." % (one.name, one.description) for one in launchers.LAUNCHERS.values()
            ),
        ),
        _choice(
            "mpi_runtime",
            "auto",
            MPI_ENGINES,
            "The MPI engine of the nodes, for `launcher=mpi` and `mpi.yml`. `auto` takes the "
            "engine of the `mpirun` in the `PATH`.",
        ),
        _knob(
            "mpi_pre_execution_command",
            "str",
            "",
            message="commands for bash, such as 'source /opt/intel/oneapi/setvars.sh'",
            description="Commands for bash that load the MPI engine and the program of `mpi.yml`, "
            "such as `source /opt/intel/oneapi/setvars.sh`. The commands run on each node during "
            "the checks, and again before mpirun starts. With `mpi.yml` they also run before the "
            "daemons of mpirun start. So the commands may only set variables.",
        ),
        _word(
            "submit_host",
            "The host of the inventory that submits the job to Slurm or Grid Engine. The default "
            "is the host of the group `scheduler`.",
        ),
        _count(
            "num_nodes",
            1,
            1,
            MOST_PROCESSES,
            "The number of nodes that the job requests from Slurm or Grid Engine. The first node "
            "runs the scheduler. Each node runs `servers_per_host` servers and `workers_per_host` "
            "workers; the submit host has these variables.",
        ),
        _word(
            "queue",
            "The partition of Slurm or the queue of Grid Engine. The default is the default of the "
            "batch system.",
        ),
        _word(
            "parallel_environment",
            "The parallel environment of Grid Engine. Its allocation rule must be a number.",
        ),
        _knob(
            "time_limit",
            "str",
            "",
            check=_is_limit,
            message="a number of minutes, H:MM or H:MM:SS, above 0, in quotes in YAML",
            description="The time limit of the job in Slurm or Grid Engine: a number of minutes, "
            "H:MM or H:MM:SS, above 0. The default is the default of the batch system.",
        ),
        _word(
            "gres",
            "Resources: `gpu:2` of each node for `sbatch --gres`, or `gpu=2` of each slot for "
            "`qsub -l`.",
        ),
        _knob(
            "engine_options",
            "raw",
            [],
            cast=option_types.to_list,
            message='a list of strings, such as \'{"engine_options": ["--mem=8G"]}\'',
            description="Further arguments of `sbatch` or `qsub`, a list of strings. Arguments "
            "that change what `sbatch` or `qsub` does for mxcluster are refused, such as `--array` "
            "and `--wait`. The arguments of other knobs take precedence.",
        ),
    ),
    OF_MPI: (
        _knob(
            "mpi_command",
            "str",
            "",
            check=bool,
            message="the command of an MPI program, such as './solve input.txt'",
            description="The MPI program and its arguments, a command for bash. Every process of "
            "MPI runs this command in the folder `$MXCLUSTER_WORK_DIR` of its node. The folder "
            "holds the resource files.",
        ),
        _knob(
            "mpi_num_instances",
            "raw",
            "all",
            cast=option_types.to_int_or_all,
            check=lambda number: number == "all" or 1 <= number <= MOST_PROCESSES,
            message="all, or a number of nodes from 1 to %d" % MOST_PROCESSES,
            description="The number of nodes to use, in the order of the group workers; `all` uses "
            "the whole group. From 1 to %d. mpirun runs on the first node." % MOST_PROCESSES,
        ),
        _knob(
            "mpi_processes_per_node",
            "raw",
            1,
            cast=option_types.to_processes,
            check=lambda number: number == "gpus" or 1 <= number <= 1024,
            message="a number from 1 to 1024, or gpus (one process for each GPU)",
            description="The number of MPI processes on each node, from 1 to 1024. `gpus`, or "
            "Batch Shipyard's `nvidia-smi -L | wc -l`, starts one process for each GPU of the job "
            "on the node.",
        ),
        _knob(
            "mpi_coordination_command",
            "str",
            "",
            message="a command for bash, such as './prepare.sh'",
            description="A command for bash that runs once on each node before mpirun starts. If "
            "the command fails, the job fails. Background processes of the command end with the "
            "job.",
        ),
        _knob(
            "mpi_image",
            "str",
            "",
            check=_is_image_or_empty,
            message="the name of a container image, such as localhost/solve:1, or empty",
            description="The container image with the MPI engine, the program, bash and Python 3.6 "
            "or newer. `runtime=docker` and `runtime=podman` run all processes of a node in one "
            "container of this image. Each node must have the image.",
        ),
        _count(
            "mpi_shm_size",
            1024,
            16,
            MOST_MB,
            "The size of `/dev/shm` of a container of `mpi_image`, in MB.",
        ),
        _knob(
            "mpi_gpus",
            "raw",
            "auto",
            cast=option_types.to_gpus_or_all,
            message="all or auto, '' (none) or GPU numbers from 0 to %d such as 0,1" % MOST_GPU,
            description="The GPUs that the processes of each node see: `auto` or `all`, an empty "
            "string for none, or numbers such as `0,1`. From 0 to %d." % MOST_GPU,
        ),
        _knob(
            "mpi_infiniband",
            "raw",
            "auto",
            cast=option_types.to_bool_or_auto,
            message="auto, true or false",
            description="`true` lets the engine use only InfiniBand between nodes, and refuses "
            "nodes without InfiniBand. `false` forbids InfiniBand. `auto` leaves the choice to the "
            "engine.",
        ),
        _knob(
            "mpi_env",
            "raw",
            {},
            cast=option_types.to_environment,
            message=_ENVIRONMENT,
            description="Environment variables for every process, a dict, as `env` for a training "
            "job. Variables of the engine are allowed, such as `OMPI_MCA_btl`.",
        ),
        _knob(
            "mpi_resource_files",
            "raw",
            [],
            cast=option_types.to_names,
            message="paths on the controller, such as solve,input.txt",
            description="Files and folders on the controller. `mpi.yml` copies these files and "
            "folders, under their own names, into the folder `$MXCLUSTER_WORK_DIR` of every node.",
        ),
        _choice(
            "mpi_output",
            "always",
            ("always", "success", "failure"),
            "The result of the job after which the controller fetches the files that the program "
            "wrote into `$MXCLUSTER_WORK_DIR`: `success`, `failure`, or `always` for both. The "
            "files go to `runs/<job>/nodes/<host>/files`. `collect_mb` limits the size of the "
            "files.",
        ),
    ),
    "Measurements.": (
        _count(
            "measured",
            0,
            0,
            MOST,
            "Train only `warm_up` batches and then this number of batches, on every worker, and "
            "report the seconds of the measured batches. The job ignores `num_epochs` and reports "
            "no accuracy. 0 measures nothing.",
            flag="--measured",
            cure=" (0: none)",
        ),
        _count(
            "warm_up",
            10,
            0,
            MOST,
            "The number of batches before the batches that `measured` counts.",
            flag="--warm-up",
        ),
        _switch(
            "measure_waits",
            "Let every worker report the time of its waits for weights. With `true`, a step "
            "begins only after all weights have arrived.",
            flag="--measure-waits",
        ),
    ),
    "The controller: polls and results.": (
        _knob(
            "poll",
            "int",
            2,
            choices=(1, 2, 3, 5, 10, 20, 30),
            description="The number of seconds between two polls of the nodes. The live line on "
            "the terminal is up to this number of seconds old.",
            own=True,
        ),
        _knob(
            "runs_dir",
            "path",
            "{{ playbook_dir | dirname }}/runs",
            cast=to_text,
            check=bool,
            message="the path of a folder on the controller, such as /data/runs",
            description="The folder of the results on the controller. The default is `runs` in "
            "the project. mxcluster checks before the start of a job that it can write to this "
            "folder.",
            own=True,
        ),
    ),
}

KNOBS = tuple(knob for knobs in SECTIONS.values() for knob in knobs)
# The knobs that are options of a plan. A plan of an MPI program also has the knobs in MPI.
MPI = SECTIONS[OF_MPI]
RUNS_DIR = next(knob for knob in KNOBS if knob.name == "runs_dir")
OPTIONS = tuple(knob for knob in KNOBS if not knob.own and knob not in MPI)
