"""Define the knobs of train.yml and mpi.yml, with one field for each knob.

Each class is a section: its docstring is a comment in the generated files, which keep this order.
`make docs` generates these texts from the fields: the defaults, the argument specs and the README
table of the role train_job, the knobs in group_vars/all.yml, and docs/knobs.md. Code reads a knob
as an attribute of Options, such as `options.batch_size`. `mxcluster.job.options` has the rules
between several knobs.

A worker's training program gets the knobs of Scheme, Training and Measurements (ProgramArguments).
"""

import re
from typing import List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

from mxcluster import schemes
from mxcluster.datasets import DATASETS
from mxcluster.launchers import LAUNCHERS, SSH
from mxcluster.model.knob import (
    BENCHMARK,
    COMPARE,
    MPI,
    PROFILE,
    PROVISION,
    SWEPT,
    TRAIN,
    VERIFY,
    WITH_SCHEME,
    knob,
    knobs_of,
)
from mxcluster.model.names import JOB_ID, MOST_GPU
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import Wrong, each, text
from mxcluster.model.written import (
    MOST,
    Written,
    above_0,
    converted,
    cpus,
    duration,
    environment,
    free,
    gpus,
    matching,
    metrics,
    needed,
    one_of,
    or_word,
    real_number,
    seconds,
    switch,
    to_bool,
    to_gpus,
    to_list,
    to_names,
    to_text,
    to_words,
    whole_number,
)
from mxcluster.numbers import to_float, to_int

T = TypeVar("T")

PROGRAMS = ("image_classification",)
DEADLINE = "deadline"  # the value of the knob `balance`
MEASURING = "profile"  # the program of profile.yml
# The networks of the program itself. The node record lists the networks of MXNet's model zoo.
NETWORKS = ("mlp", "lenet", "resnet20", "inception-bn-28-small")

# The names of networks without BatchNorm, own ones and those of the model zoo.
_WITHOUT_BATCH_NORM = re.compile(r"mlp|lenet|alexnet|squeezenet.*|vgg[0-9]+")


def has_batch_norm(network: str) -> bool:
    """Return True if the network of this name, own or of MXNet's model zoo, has BatchNorm."""
    return not _WITHOUT_BATCH_NORM.fullmatch(network)


# The values of the knob `runtime`, and the default image, which the role container_image brings.
HOST = "host"  # the runtime without containers
RUNTIMES = (HOST, "docker", "podman")
IMAGE = "localhost/mxcluster"
MPI_ENGINES = ("auto", "openmpi", "mpich", "intelmpi")

# The workers, servers or nodes of a job. Its plan takes seconds.
MOST_PROCESSES = 4096
MOST_SAMPLES = 100000000  # of an epoch; a worker holds a number of 8 bytes for each
MOST_SECONDS = 10000000  # of a timeout
MOST_MS = 3600000  # of a step
MOST_MB = 1000000
MOST_SCRIPT_MB = 90  # the zip file in base64 fits into a request to a node
# A smaller array is not worth a message to every server.
LEAST_BOUND = 1000
MOST_BOUND = 2**31 - 1

_MEASURED = SWEPT + (PROFILE,)  # profile.yml reads the knob, too
_EVERY = SWEPT + (MPI, PROFILE)
tag_of_run = matching(r"[A-Za-z0-9_.-]{0,40}", "at most 40 letters, digits, '_', '.' and '-'")
note_of_run = matching(r"[^\x00-\x1f\x7f-\x9f]{0,200}", "a line of at most 200 characters")


def _is_limit(text: str) -> bool:
    # Slurm takes 0 as no limit.
    return text == "" or bool(
        re.fullmatch(r"[1-9][0-9]{0,6}|[0-9]{1,4}:[0-5][0-9](:[0-5][0-9])?", text)
        and re.search("[1-9]", text)
    )


def _to_processes(value: object) -> Union[str, int]:
    """Return the int that `to_int` returns, or 'gpus' for one process on each GPU.

    The word gpus gives 'gpus'. The text `nvidia-smi -L | wc -l` also gives 'gpus', because this
    command prints the number of GPUs.
    """
    if isinstance(value, str) and "".join(value.split()) in ("gpus", "nvidia-smi-L|wc-l"):
        return "gpus"
    return to_int(value)


def _to_staleness(value: object) -> Optional[int]:
    return None if value in ("", None) else to_int(value)


_path = free("a path")
_word = matching(
    r"([A-Za-z0-9_][A-Za-z0-9_.:,=@*+-]*)?", "one word of letters, digits and '_.:,=@*+-'"
)
_job_of_runs = matching("(%s)?" % JOB_ID, "the id of a job in runs/")
_files_of_tasks = converted(to_names, "paths on the controller, such as mount.yml,modules.yml")
_timeout = Written(
    to_float,
    lambda number: number == 0 or 5 <= number <= MOST_SECONDS,
    "0 (no limit) or a number of seconds from 5 to %d" % MOST_SECONDS,
    "float",
    "0 is no limit, otherwise from 5 to %d." % MOST_SECONDS,
)


def _inherited(shape: Written[T], default: T, playbooks: Sequence[str] = SWEPT) -> T:
    """Return the definition of a knob that a resumed job takes from the job before."""
    return knob(shape, default, True, playbooks)


def _of_train(shape: Written[T], default: T) -> T:
    """Return the definition of a knob that only train.yml reads."""
    return knob(shape, default, playbooks=(TRAIN,))


def _mpi(shape: Written[T], default: T) -> T:
    """Return the definition of a knob that only mpi.yml reads."""
    return knob(shape, default, playbooks=(MPI,))


class Scheme(Record):
    """The parallel scheme."""

    kv: str = _inherited(one_of(*schemes.NAMES), "dist_sync", (TRAIN,))
    """The parallel scheme: {schemes}."""


class Program(Record):
    """The program: one of mxcluster or the user's script."""

    program: str = _inherited(
        Written(
            to_text,
            lambda text: text in PROGRAMS + (MEASURING,),
            "one of " + ", ".join(PROGRAMS),
            "str",
            choices=PROGRAMS,
        ),
        "image_classification",
        (TRAIN,),
    )
    """The training program of mxcluster. Every worker runs the program."""
    script: str = _inherited(_path, "", (TRAIN,))
    """Your own script on the controller. Every worker runs the script instead of the program.
    `train.yml` copies the script's folder to the nodes."""
    script_root: str = _inherited(_path, "", (TRAIN,))
    """The folder on the controller that holds all code of the script, such as the root of your
    project. `train.yml` copies this folder to the nodes instead of the script's own folder. `git`
    is the root of the git clone that holds the script."""
    script_mb: int = _inherited(whole_number(1, MOST_SCRIPT_MB), 16, (TRAIN,))
    """The limit in megabytes for the folder that goes to the nodes with the script."""
    requirements: str = _inherited(_path, "", (TRAIN,))
    """A requirements file on the controller with packages of the script. `train.yml` installs the
    packages and their dependencies as wheels, in a folder of their own on each node. They cannot
    replace MXNet or numpy."""
    script_args: Sequence[str] = _inherited(
        converted(
            to_list,
            "a list of strings (write numbers in quotes), such as "
            '\'{"script_args": ["--lr", "0.1"]}\'',
        ),
        [],
        (TRAIN,),
    )
    """The arguments of the script, a list of strings. The script gets each string unchanged."""
    metrics: Mapping[str, str] = _inherited(metrics, {}, (TRAIN,))
    """Figures in the lines that the script prints, a dict of names and regular expressions of
    Python. The first group is the number. A group `epoch` is the number of the epoch, from 0. The
    names `loss`, `accuracy` (on held-out samples, 0 to 1), `samples_per_s` and `epoch` mean the
    same as in an event; each other name gets a curve of its own. MXNet's own lines need no entry.
    """
    server_classes: Sequence[str] = _inherited(
        Written(
            to_list,
            lambda texts: all(
                re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", one) for one in texts
            ),
            "a list of module:Class, each class at the top level of its module, such as "
            '\'{"server_classes": ["mine:MyOptimizer"]}\'',
        ),
        [],
        (TRAIN,),
    )
    """Classes of the script that the workers may send to the servers: a list of `module:Class`, in
    modules beside the script or of MXNet. The classes of `mx.optimizer` and `mx.lr_scheduler` need
    no entry. The servers refuse all other classes."""


class Training(Record):
    """The training: network, data, learning rate, checkpoints."""

    network: str = _inherited(
        needed("the name of a network, such as mlp"), "mlp", (TRAIN, COMPARE, PROFILE)
    )
    """`mlp`, `lenet`, `resnet20`, `inception-bn-28-small`, or a network of MXNet's model zoo."""
    data: str = _inherited(one_of(*DATASETS), "digits", _MEASURED)
    """The data set. `warped` has small noisy pictures of warped digits, a harder task."""
    data_dir: str = _inherited(
        matching(r"(/.*)?", "a path on the nodes that begins with '/'"), "", SWEPT + (MPI,)
    )
    """The folder on the nodes with the files of mnist, cifar10 or imagenet. An absolute path.
    Containers have the folder, too, and cannot write to it."""
    data_allocator: int = knob(
        Written(
            to_int,
            lambda number: number in (0, 1),
            "0 (equal shares) or 1 (shares of data_sharding)",
            "int",
        ),
        0,
        playbooks=SWEPT + (VERIFY,),
    )
    """0 gives every worker an equal share of the data, 1 gives each worker its share in
    `data_sharding`."""
    batch_size: int = _inherited(whole_number(1, MOST), 32, (TRAIN, COMPARE, PROFILE))
    """The number of samples in a batch of one worker."""
    balance: str = _inherited(one_of("none", "batch", DEADLINE), "none", (TRAIN, BENCHMARK))
    """`batch` fits the batch sizes of the workers to their measured speeds at the end of every
    epoch. The sum of the sizes stays `batch_size` times the number of workers. Under `dist_gsync`,
    the sum of each group stays the same too. `deadline` gives all workers the same time for a step,
    and the update is the mean over all samples that they have trained in it. `none` gives every
    worker `batch_size`. `batch` and `deadline` require the training program of mxcluster, and one
    of the schemes {sums_every_step}."""
    least_batch: int = _inherited(whole_number(1, MOST), 1)
    """The least number of samples in a small batch of `balance=deadline`. A network with BatchNorm
    needs about 8, because BatchNorm takes mean and variance of one small batch."""
    lr: float = knob(above_0(MOST), 0.05, inherited=True)
    """The learning rate."""
    momentum: float = _inherited(real_number(0, 0.999), 0.9, (TRAIN, BENCHMARK))
    """The momentum of SGD: the part of the previous step in a step of the weights."""
    compression: str = _inherited(one_of("none", "2bit"), "none")
    """The form in which a worker sends a gradient. `none` is the gradient itself. `2bit` sends 2
    bits for each number, a 16th of the bytes. A worker adds the gradient to the remainder of the
    previous steps, and sends -`compression_threshold`, 0 or `compression_threshold`. The worker
    keeps the new remainder for the next step. This knob is for the training program of mxcluster. A
    script calls `kv.set_gradient_compression` instead. `2bit` is refused under
    {no_compression}."""
    compression_threshold: float = _inherited(
        Written(
            to_float,
            lambda number: 0 < number <= MOST and round(number, 6) == number,
            "a number above 0 and at most %d with at most 6 decimals, such as 0.5, because MXNet "
            "sends only 6 decimals to the servers" % MOST,
            "float",
            "Above 0, at most %d, with at most 6 decimals." % MOST,
        ),
        2.0,
    )
    """The absolute value of the numbers other than 0 that `compression=2bit` sends for a gradient.
    The gradient is the sum over a worker's batch. MXNet's own default is 0.5."""
    lr_factor: float = _inherited(above_0(1), 1.0)
    """The program multiplies the learning rate by this factor every `lr_factor_epoch` epochs."""
    lr_factor_epoch: float = _inherited(above_0(MOST), 1.0)
    """The number of epochs between two multiplications with `lr_factor`."""
    on_nan: str = _inherited(one_of("stop", "continue"), "stop")
    """The program's reaction to a loss of NaN: `stop` the job, or `continue`."""
    num_epochs: int = _inherited(whole_number(1, MOST), 20, (TRAIN, COMPARE))
    """The number of epochs to train."""
    num_examples: int = _inherited(whole_number(0, MOST_SAMPLES, zero="all"), 0)
    """The number of training samples of an epoch; 0 takes all samples of the data set."""
    seed: int = _inherited(whole_number(0, 2**31 - 1), 0, _MEASURED)
    """The seed of initial weights, shuffling and synthetic data."""
    savemodel: bool = _inherited(switch, False, (TRAIN,))
    """With `true`, the job saves the weights and the optimizer's state after every epoch. The
    controller fetches these checkpoints to `runs/<job>/checkpoints` while the job runs."""
    keep_checkpoints: int = _inherited(whole_number(1, MOST), 3, (TRAIN,))
    """The number of most recent checkpoints to keep, of the program or of a script."""
    keep_best: bool = _inherited(switch, False, (TRAIN,))
    """With `true` and `savemodel`, the checkpoint with the highest accuracy on held-out samples
    stays beside the last `keep_checkpoints`. A script keeps its best files itself."""
    model_load_epoch: int = _of_train(whole_number(0, MOST, zero="start afresh"), 0)
    """Start from the model that `model_load_job` saved after this epoch. 0 starts with new weights.
    """


class Rules(Record):
    """The rules of the schemes, and the start from a checkpoint."""

    lr_scale: str = _inherited(one_of("auto", "none"), "auto", (TRAIN, BENCHMARK))
    """`auto` divides the program's `lr` by the number of workers under {updates_each_push}, because
    there each push of a worker changes the weights. `none` uses `lr` unchanged."""
    gsync_y: str = _inherited(one_of("rate", "gradient", "one"), "rate")
    """The value that `dist_gsync` with several groups divides by Y, the number of updates since the
    group's previous update: `rate` is the learning rate, `gradient` is the gradient, and `one`
    disables the division. For SGD without weight decay and clipping, `rate` and `gradient` give the
    same result."""
    gsync_compensation: float = knob(
        real_number(0, MOST, zero="no compensation"), 0.0, inherited=WITH_SCHEME
    )
    """Delay compensation of DC-ASGD for `dist_gsync` with several groups: a group's gradient g
    becomes g + `gsync_compensation` * g * g * d, where d is the change of the weights by other
    groups since the group's last pull. 0 disables the compensation."""
    gsync_max_y: int = knob(whole_number(0, MOST, zero="drop no update"), 0, inherited=WITH_SCHEME)
    """`dist_gsync` with several groups drops an update whose Y is above this number. Y is the
    number of updates since the group's previous update. The weights stay, and the group pulls the
    newest weights. For groups of equal speed, Y is near the number of groups. 0 drops no update."""
    staleness: Optional[int] = knob(
        Written(
            _to_staleness,
            lambda number: number is None or 0 <= number <= MOST,
            "a whole number from 0 to %d (only kv=dist_ssync uses it)" % MOST,
            limits="From 0 to %d." % MOST,
        ),
        None,
        inherited=WITH_SCHEME,
    )
    """The number of iterations that a worker may be ahead of the slowest worker, for `dist_ssync`
    only. The default is 3."""
    resume: str = _of_train(_job_of_runs, "")
    """The id of an interrupted job with `savemodel`, or with a script that has saved files in
    `$MXCLUSTER_CHECKPOINTS`. The new job continues from the last complete checkpoint, on any number
    of workers and servers. The new job inherits the training knobs and the script unless you set
    them again."""
    model_load_job: str = _of_train(_job_of_runs, "")
    """The id of the job for `model_load_epoch`, a folder of `runs/`."""
    data_src: str = knob(_path, "")
    """A folder on the controller. Before the start, `train.yml` copies the files of this folder to
    `data_dir` on the workers' nodes, and skips equal files."""


class Machines(Record):
    """The machines: nodes, GPUs, shares of the data."""

    num_workers: int = knob(
        whole_number(0, MOST_PROCESSES, zero="all"), 0, playbooks=(TRAIN, PROFILE)
    )
    """The number of workers to use, in the order of the inventory; 0 uses all workers."""
    num_servers: int = knob(whole_number(0, MOST_PROCESSES, zero="all"), 0, playbooks=_MEASURED)
    """The number of servers to use, in the order of the inventory; 0 uses all servers."""
    without: Sequence[str] = knob(
        converted(to_names, "the names of hosts, such as node3,node4"),
        [],
        playbooks=_EVERY + (VERIFY,),
    )
    """Hosts of the inventory that the job does not use, such as `node3,node4`. Ansible does not
    contact these hosts, so they may be down."""
    without_workers: Sequence[str] = knob(
        converted(to_names, "the names of hosts, such as node3,node4"), [], playbooks=(TRAIN,)
    )
    """Hosts of the inventory that get no worker, such as `node3,node4`. Their servers and the
    scheduler stay. `profile.yml` says when a job is faster without its slow workers."""
    round_robin: Sequence[str] = knob(
        Written(
            to_words,
            lambda hosts: len(hosts) <= MOST_PROCESSES,
            "at most %d names or addresses of hosts, such as node3,node4, or all" % MOST_PROCESSES,
        ),
        [],
    )
    """The hosts that get `num_servers` servers and then `num_workers` workers in turn, such as
    `node3,node4`. MXNet's `launch.py` uses the lines of its hosts file in the same way. A host may
    occur several times. `all` takes all hosts of the inventory. Without this knob the groups of the
    inventory place the processes."""
    gpus: Union[str, List[int]] = knob(gpus, "auto", playbooks=_MEASURED)
    """GPU numbers for the workers of a host, such as `0,1`. `auto` takes all GPUs of the host, an
    empty string no GPU. From 0 to {most_gpu}."""
    cpus: Union[str, List[int]] = knob(cpus, [], playbooks=_MEASURED + (VERIFY,))
    """The CPUs that the servers and workers of a host share out: `auto` for all CPUs that the host
    gives to the job, or numbers such as `0-7`. Each process runs on CPUs of its own, with a thread
    of OpenMP for each core. With `auto` or without this knob, the host variable `cpus` decides if
    it has a value. Without both the processes run on all CPUs. From 0 to {most_cpu}."""
    grouping: str = knob(one_of("given", "auto"), "given")
    """The source of the groups if `worker_group` and `groups_file` are not set. Both values take
    the groups of a fitting profile that `profile.yml` has measured. Without a fitting profile,
    `given` makes one group of all workers, and `auto` first runs `profile.yml`."""
    hosts_file: str = knob(_path, "", playbooks=_MEASURED + (PROVISION, VERIFY))
    """Your own `hosts` file on the controller: a worker's address on each line."""
    groups_file: str = knob(_path, "", playbooks=SWEPT + (PROVISION, VERIFY))
    """Your own `groups` file: the addresses of a group on each line."""
    data_sharding_file: str = knob(_path, "", playbooks=SWEPT + (PROVISION, VERIFY))
    """Your own `data_sharding` file: begin and end of a worker's share on each line."""


class Run(Record):
    """The run: containers, network, environment, timeouts."""

    runtime: str = knob(one_of(*RUNTIMES), HOST, playbooks=SWEPT + (MPI,))
    """The place of the processes. `host` starts the processes on the node itself. `docker` and
    `podman` start the processes in containers of `image`, or of `mpi_image` under `mpi.yml`. The
    agent always runs on the node itself."""
    image: str = knob(
        matching(
            r"[A-Za-z0-9][\w./:@-]*",
            "the name of a container image, such as localhost/mxcluster:1",
        ),
        IMAGE,
    )
    """The container image for `runtime=docker` or `podman`. The image has Python, numpy and an
    MXNet with the distributed kv-store. Each node must have the image, because a start asks no
    registry. The role `container_image` brings an image to the nodes."""
    image_python: str = knob(
        matching(
            r"(/[\w.+-]+)+|\w[\w.+-]*",
            "the name or the absolute path of a program, such as python3",
        ),
        "python3",
        playbooks=SWEPT + (MPI,),
    )
    """The Python in the image, a name or an absolute path."""
    dmlc_interface: str = knob(
        free("the name of a network interface, such as eth0"),
        "",
        playbooks=_EVERY + (PROVISION, VERIFY),
    )
    """The network interface of the training traffic, such as `ib0`. The default is the interface of
    the node's address."""
    bigarray_bound: int = knob(
        Written(
            to_int,
            lambda number: number == 0 or LEAST_BOUND <= number <= MOST_BOUND,
            "0 (MXNet's 1000000) or a whole number from %d to %d" % (LEAST_BOUND, MOST_BOUND),
            "int",
            "From %d to %d, or 0 for MXNet's default of 1000000." % (LEAST_BOUND, MOST_BOUND),
        ),
        0,
    )
    """MXNet splits an array of at least this many numbers evenly over all servers, and stores a
    smaller array on one server. All processes get this bound as `MXNET_KVSTORE_BIGARRAY_BOUND`."""
    ps_verbose: int = knob(
        Written(to_int, lambda number: number in (0, 1, 2), "0, 1 or 2", "int", choices=(0, 1, 2)),
        0,
        playbooks=_MEASURED,
    )
    """The log level of ps-lite: 0 logs nothing, 1 connections, 2 every message."""
    root_port: Union[str, int] = knob(
        Written(
            or_word("auto", to_int),
            lambda port: port == "auto" or isinstance(port, int) and 1024 <= port <= 65000,
            "auto (the first free port from 9091 on) or a port number from 1024 to 65000",
        ),
        "auto",
        playbooks=_EVERY + (VERIFY,),
    )
    """The scheduler's port, 1024 to 65000. The other processes on an address take the following
    ports. `auto` takes the first port from 9091 on where all of these ports are free."""
    env: Mapping[str, str] = knob(environment, {}, playbooks=_MEASURED)
    """Environment variables for every process, a dict. Their values are visible in the output, in
    `runs/` and on the nodes. Variables that control loading (`PATH`, `PYTHONPATH`, `LD_PRELOAD`)
    are refused."""
    env_server: Mapping[str, str] = knob(environment, {})
    """Environment variables for the servers, a dict like `env`. These values have priority over
    `env`."""
    env_worker: Mapping[str, str] = knob(environment, {})
    """Environment variables for the workers, a dict like `env`. These values have priority over
    `env`."""
    collect_mb: int = knob(whole_number(0, MOST_MB), 1024, playbooks=(TRAIN, MPI))
    """The limit in megabytes for the files of a script that each node sends to
    `runs/<job>/nodes/<host>/files/<worker>` at the end of the job. Small files come first. Files
    above the limit stay on the node, and the report names them. 0 sends no file. It is also the
    limit for one checkpoint of a script."""
    keep_jobs: int = knob(whole_number(0, MOST, zero="all"), 50, playbooks=SWEPT + (MPI,))
    """The number of ended jobs whose folders each node keeps; 0 keeps all. The start of a job
    removes older folders, the oldest first, but only if all files of the old job are in `runs_dir`.
    The playbook names these jobs before the start."""
    lease: float = knob(seconds(1, 86400), 60.0, playbooks=_EVERY)
    """A job ends itself after this number of seconds without a poll of the controller. If the
    controller polls late, the limit is up to twice this number. If the controller runs on the
    node's own machine, the limit is twice this number, at least 180 s."""
    wait_for_room: float = _of_train(duration(1, MOST_SECONDS, zero="refuse the job"), 0.0)
    """The longest time to wait until the ports and GPUs that the job names or needs are free on all
    of its nodes, such as `90s`, `30m`, `2h` or `1d`; a number is in seconds. Jobs that wait for the
    same nodes start in the order of their arrival. 0 refuses the job if another job holds a port or
    GPU."""
    after: str = _of_train(matching("(%s)?" % JOB_ID, "the id of a job"), "")
    """The id of a job on nodes of this job. The new job waits until that job and its restarts have
    ended, with any result."""
    detach: bool = knob(switch, False, playbooks=(TRAIN, MPI))
    """Start the job and exit. The job has no lease. `train.yml -e attach=<job>` waits for the end
    of the job, on any controller."""
    max_restarts: int = _of_train(whole_number(0, 1000), 0)
    """The maximum number of restarts of a job with `savemodel` or with a script after a fault of a
    node (a killed process or agent, a lost node). The job resumes from the last complete checkpoint
    on the remaining nodes. An error of the program never causes a restart."""
    restart_delay: float = _of_train(seconds(0, 86400), 10.0)
    """The number of seconds before the first restart. Each further restart doubles the number."""
    elastic: bool = _of_train(switch, False)
    """With `max_restarts`, each attempt takes all nodes that answer at its start. An attempt leaves
    out a node that does not answer, and a later attempt takes the node back. Without `elastic`, a
    lost node stays out."""
    # With a timeout below 2 s, a single late heartbeat would end a healthy job.
    heartbeat_timeout: int = knob(
        whole_number(2, 3600, "a whole number of seconds from 2 to 3600"), 5, playbooks=_EVERY
    )
    """A process without a heartbeat for this number of seconds counts as dead."""
    # A process reports progress about once a second. With a limit below 5 s, healthy jobs end.
    start_timeout: float = knob(_timeout, 60.0, playbooks=_MEASURED)
    """The maximum number of seconds from the start of a process to its kv-store. Raise the limit
    for scripts with a long preparation. Time that the process waits for a CPU core does not count,
    up to the same number of seconds."""
    stall_timeout: float = knob(_timeout, 300.0, playbooks=_MEASURED)
    """After this number of seconds without progress, the agents end the job, and the verdict names
    the process that blocks the other processes."""
    max_time: float = knob(
        duration(1, MOST_SECONDS, zero="no limit"), 0.0, playbooks=SWEPT + (MPI,)
    )
    """The longest time of the job, such as `90s`, `30m`, `8h` or `1d12h`; a number is in seconds.
    Then the agents end the job. Its files come to the controller as those of every job. The
    attempts of `max_restarts` share the time. Time in the queue of a batch system does not count.
    In a sweep, each job has this time."""
    expect_accuracy: float = _inherited(real_number(0, 1, zero="no check"), 0.0, (TRAIN,))
    """The least accuracy on held-out samples at the end, from 0 to 1. A job below it, or without an
    accuracy, counts as failed. The accuracy of a script is that of its lines or events. 0 checks
    nothing."""
    job_id: str = knob(
        matching(
            "(%s)?" % JOB_ID,
            "made of letters, digits, '.', '_' and '-', beginning with a letter or digit (at most "
            "100)",
        ),
        "",
        playbooks=(TRAIN, MPI, PROFILE),
    )
    """The name of the job. The default consists of the time and the scheme."""
    tag: str = knob(tag_of_run, "", playbooks=_EVERY)
    """A word of yours for the history, by which `runs.yml` finds the job."""
    note: str = knob(note_of_run, "", playbooks=_EVERY)
    """A sentence of yours for the history of `runs.yml`, such as the purpose of the job."""
    plan_only: bool = knob(switch, False, playbooks=_EVERY)
    """Show the plan and start nothing."""


class Launching(Record):
    """The launcher: how the agents of the nodes start."""

    launcher: str = knob(one_of(*LAUNCHERS), SSH, playbooks=_MEASURED)
    """The way in which the agents start. {launchers}"""
    mpi_runtime: str = knob(one_of(*MPI_ENGINES), "auto", playbooks=_EVERY)
    """The MPI engine of the nodes, for `launcher=mpi` and `mpi.yml`. `auto` takes the engine of the
    `mpirun` in the `PATH`."""
    mpi_pre_execution_command: str = knob(
        free("commands for bash, such as 'source /opt/intel/oneapi/setvars.sh'"),
        "",
        playbooks=_EVERY,
    )
    """Commands for bash that load the MPI engine and the program of `mpi.yml`, such as `source
    /opt/intel/oneapi/setvars.sh`. The commands run on each node during the checks, and again before
    mpirun starts. With `mpi.yml` they also run before the daemons of mpirun start. So the commands
    may only set variables."""
    submit_host: str = knob(_word, "")
    """The host of the inventory that submits the job to {batch_systems}. The default is the host of
    the group `scheduler`."""
    num_nodes: int = knob(whole_number(1, MOST_PROCESSES), 1)
    """The number of nodes that the job requests from {batch_systems}. The first node runs the
    scheduler. Each node runs `servers_per_host` servers and `workers_per_host` workers; the submit
    host has these variables."""
    queue: str = knob(_word, "")
    """The {queues}. The default is the default of the batch system."""
    parallel_environment: str = knob(_word, "")
    """The parallel environment of Grid Engine. Its allocation rule must be a number."""
    time_limit: str = knob(
        Written(
            to_text,
            _is_limit,
            "a number of minutes, H:MM or H:MM:SS, above 0, in quotes in YAML",
            "str",
        ),
        "",
    )
    """The time limit of the job in {batch_systems}: a number of minutes, H:MM or H:MM:SS, above 0.
    The default is the default of the batch system."""
    gres: str = knob(_word, "")
    """Resources: {resources}."""
    engine_options: Sequence[str] = knob(
        converted(to_list, 'a list of strings, such as \'{"engine_options": ["--mem=8G"]}\''), []
    )
    """Further arguments of {submit_programs}, a list of strings. Arguments that change what
    {submit_programs} does for mxcluster are refused, such as `--array` and `--wait`. The arguments
    of other knobs take precedence."""


class MpiProgram(Record):
    """An MPI program (mpi.yml)."""

    mpi_command: str = _mpi(
        needed("the command of an MPI program, such as './solve input.txt'"), ""
    )
    """The MPI program and its arguments, a command for bash. Every process of MPI runs this command
    in the folder `$MXCLUSTER_WORK_DIR` of its node. The folder holds the resource files."""
    mpi_num_instances: Union[str, int] = _mpi(
        Written(
            or_word("all", to_int),
            lambda number: (
                number == "all" or isinstance(number, int) and 1 <= number <= MOST_PROCESSES
            ),
            "all, or a number of nodes from 1 to %d" % MOST_PROCESSES,
            limits="From 1 to %d." % MOST_PROCESSES,
        ),
        "all",
    )
    """The number of nodes to use, in the order of the group workers; `all` uses the whole group.
    mpirun runs on the first node."""
    mpi_processes_per_node: Union[str, int] = _mpi(
        Written(
            _to_processes,
            lambda number: number == "gpus" or isinstance(number, int) and 1 <= number <= 1024,
            "a number from 1 to 1024, or gpus (one process for each GPU)",
        ),
        1,
    )
    """The number of MPI processes on each node, from 1 to 1024. `gpus`, or Batch Shipyard's
    `nvidia-smi -L | wc -l`, starts one process for each GPU of the job on the node."""
    mpi_coordination_command: str = _mpi(free("a command for bash, such as './prepare.sh'"), "")
    """A command for bash that runs once on each node before mpirun starts. If the command fails,
    the job fails. Background processes of the command end with the job."""
    mpi_image: str = _mpi(
        matching(
            r"([A-Za-z0-9][\w./:@-]*)?",
            "the name of a container image, such as localhost/solve:1, or empty",
        ),
        "",
    )
    """The container image with the MPI engine, the program, bash and Python 3.6 or newer.
    `runtime=docker` and `runtime=podman` run all processes of a node in one container of this
    image. Each node must have the image."""
    mpi_shm_size: int = _mpi(whole_number(16, MOST_MB), 1024)
    """The size of `/dev/shm` of a container of `mpi_image`, in MB."""
    mpi_gpus: Union[str, List[int]] = _mpi(
        converted(
            or_word("all", to_gpus, "auto"),
            "all or auto, '' (none) or GPU numbers from 0 to %d such as 0,1" % MOST_GPU,
            limits="From 0 to %d." % MOST_GPU,
        ),
        "auto",
    )
    """The GPUs that the processes of each node see: `auto` or `all`, an empty string for none, or
    numbers such as `0,1`."""
    mpi_infiniband: Union[str, bool] = _mpi(
        converted(or_word("auto", to_bool), "auto, true or false"), "auto"
    )
    """`true` lets the engine use only InfiniBand between nodes, and refuses nodes without
    InfiniBand. `false` forbids InfiniBand. `auto` leaves the choice to the engine."""
    mpi_env: Mapping[str, str] = _mpi(environment, {})
    """Environment variables for every process, a dict, as `env` for a training job. Variables of
    the engine are allowed, such as `OMPI_MCA_btl`."""
    mpi_resource_files: Sequence[str] = _mpi(
        converted(to_names, "paths on the controller, such as solve,input.txt"), []
    )
    """Files and folders on the controller. `mpi.yml` copies these files and folders, under their
    own names, into the folder `$MXCLUSTER_WORK_DIR` of every node."""
    mpi_output: str = _mpi(one_of("always", "success", "failure"), "always")
    """The result of the job after which the controller fetches the files that the program wrote
    into `$MXCLUSTER_WORK_DIR`: `success`, `failure`, or `always` for both. The files go to
    `runs/<job>/nodes/<host>/files`. `collect_mb` limits the size of the files."""


class Measurements(Record):
    """Measurements and rehearsals."""

    measured: int = knob(whole_number(0, MOST, zero="none"), 0, playbooks=(TRAIN, BENCHMARK))
    """Train only `warm_up` batches and then this number of batches, on every worker, and report the
    seconds of the measured batches. The job ignores `num_epochs` and reports no accuracy. 0
    measures nothing."""
    warm_up: int = knob(whole_number(0, MOST), 10, playbooks=(TRAIN, BENCHMARK))
    """The number of batches before the batches that `measured` counts."""
    measure_waits: bool = _of_train(switch, False)
    """Let every worker report the time of its waits for weights. With `true`, a step begins only
    after all weights have arrived."""
    evaluations: int = knob(whole_number(0, 10**6, zero="none"), 0, playbooks=(TRAIN, COMPARE))
    """The number of evaluations of the servers' weights during the training, at equal spacing in
    samples. The workers take turns. A worker copies the weights that it has pulled, keeps the copy
    in its memory, and computes the accuracy after the training. With `evaluations`, no accuracy is
    computed at the ends of epochs. 0 computes only these. compare.yml evaluates 200 times, unless
    you give a number with -e."""
    step_ms: float = knob(
        real_number(0, MOST_MS, "a number of milliseconds from 0 to %d" % MOST_MS),
        0.0,
        playbooks=_MEASURED,
    )
    """For rehearsals: the forward and backward pass of `batch_size` samples takes at least this
    number of milliseconds, and more samples take longer in proportion. The host variable `slowdown`
    multiplies this time. 0 sets no minimum. The figures of such a job do not describe its nodes."""


class Controller(Record):
    """The controller: secrets, polls and results. A plan does not have these knobs."""

    secret_env: Mapping[str, str] = knob(environment, {}, playbooks=_EVERY, no_log=True)
    """Environment variables for tokens and passwords, a dict like `env`. Their values are absent
    from the output, from the files of `runs/` and from process lists. Give the dict from a vault or
    with `-e @file`."""
    # Ansible reserves the word `poll`, so that the knob has no short name after -e.
    poll: int = knob(
        Written(
            to_int,
            lambda number: 1 <= number <= 30,
            "a whole number from 1 to 30",
            "int",
            choices=(1, 2, 3, 5, 10, 20, 30),
        ),
        2,
        playbooks=(),
    )
    """The number of seconds between two polls of the nodes. The live line on the terminal is up to
    this number of seconds old. On a node with a quota below one CPU a poll lasts up to 15 s. Such a
    node ends its part of the job up to 15 s after a failure on another node."""
    runs_dir: str = knob(
        Written(
            to_text,
            bool,
            "the path of a folder on the controller, such as /data/runs",
            "path",
        ),
        "{{ playbook_dir | dirname }}/runs",
        playbooks=_EVERY,
    )
    """The folder of the results on the controller. The default is `runs` in the project. mxcluster
    checks before the start of a job that it can write to this folder."""
    notify_command: Sequence[str] = knob(
        converted(
            to_list,
            "a list of words, the program and its arguments, such as "
            '\'{"notify_command": ["mail", "-s", "a job has ended", "me"]}\'',
        ),
        [],
        playbooks=(TRAIN, MPI),
    )
    """A program on the controller and its arguments, a list of words. The program gets the verdict
    as JSON on its stdin when the job has ended, after the last restart. No shell reads the words.
    """
    tasks_before: Sequence[str] = knob(_files_of_tasks, [], playbooks=(TRAIN, MPI))
    """Your own files of Ansible tasks on the controller. Each node of the job runs the tasks before
    the job starts, without `become` unless a task sets it."""
    tasks_after: Sequence[str] = knob(_files_of_tasks, [], playbooks=(TRAIN, MPI))
    """As `tasks_before`, for the end of the job. The variable `train_job_verdict` has the content
    of `verdict.json`. A later `attach` does not run the tasks again."""


class Secrets(Record, strict=True):
    """The names in the knob secret_env, and the problems of this knob. No plan has the values."""

    names: Sequence[str] = field(each(text), default=[])
    problems: Sequence[str] = field(each(text), default=[])


NO_SECRETS = Secrets()
SECTIONS: Tuple[Type[Record], ...] = (
    Scheme,
    Program,
    Training,
    Rules,
    Machines,
    Run,
    Launching,
    MpiProgram,
    Measurements,
    Controller,
)


class Options(Scheme, Program, Training, Rules, Machines, Run, Launching, Measurements):
    """The knobs of a training job, as its plan holds them."""

    @property
    def measures_cluster(self) -> bool:
        """True for a job of profile.yml, which measures the cluster and trains nothing."""
        return self.program == MEASURING and not self.script

    def of_role(self, role: str) -> Mapping[str, str]:
        """Return the variables of env, env_server and env_worker for a process with `role`."""
        if role == "scheduler":
            return self.env
        return dict(self.env, **(self.env_server if role == "server" else self.env_worker))


class MpiOptions(Options, MpiProgram):
    """The knobs of an MPI program, as its plan holds them."""


# The values with which jobs of earlier versions trained, which lack these knobs.
_EARLIER = {"lr_scale": "none", "gsync_y": "gradient"}


def of_plan(value: object) -> Options:
    """Return the options of a plan, also of an earlier version. Raises Wrong if one is damaged."""
    if not isinstance(value, dict):
        raise Wrong("an object", value)
    cls = MpiOptions if "mpi_command" in value else Options
    given = {name: one for name, one in value.items() if one is not None}
    return cls.decode(dict(_EARLIER, **given))


# The short names of all knobs of the role train_job.
NAMES = tuple(name for section in SECTIONS for name in knobs_of(section) if name != "poll")
