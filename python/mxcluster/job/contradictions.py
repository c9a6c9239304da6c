"""The contradictions between the options of a job: a condition and a message for each."""

from typing import Callable, Tuple

from mxcluster import schemes
from mxcluster.datasets import DATASETS
from mxcluster.environment import BOUND
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.job_knobs import DEADLINE, HOST, MEASURING, Options
from mxcluster.model.knob import knobs_of
from mxcluster.model.names import attempt

# The schemes whose update keeps its size under unequal batches.
BALANCED = tuple(one.name for one in schemes.SCHEMES if schemes.sums_every_step(one))
# A function that returns a true value for contradictory options, and the message, a %-format with
# the names of options.
Contradiction = Tuple[Callable[[Options], object], str]


def is_batch(options: Options) -> bool:
    """Return True if a batch system chooses the nodes of the job."""
    return LAUNCHERS[options.launcher].is_batch


def engine(options: Options) -> str:
    """Return the program of the site that starts the agents, "" without one."""
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
        lambda given: is_batch(given) and _is_set(given, name),
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
        lambda given: given.runtime != HOST and engine(given),
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
        lambda given: (
            given.round_robin and (given.hosts_file or given.without or given.without_workers)
        ),
        "round_robin=%(round_robin)s, hosts_file, without and without_workers all choose the hosts "
        "of the job: leave all but one of these knobs out",
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
    (
        lambda given: given.balance != "none" and given.compression != "none",
        "balance=%(balance)s is refused with compression=%(compression)s, because the workers tell "
        "each other their speeds and counts over the servers, and compression would change these "
        "numbers: use -e compression=none, or -e balance=none",
    ),
    (
        lambda given: given.balance == DEADLINE and given.least_batch > given.batch_size,
        "least_batch=%(least_batch)s is more than batch_size=%(batch_size)s, so a step would have "
        "more samples than batch_size for each worker: use a smaller least_batch",
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
    _not_with_script("evaluations", "only the program of mxcluster evaluates the servers' weights"),
    (
        lambda given: given.evaluations and given.measured,
        "evaluations=%(evaluations)s is refused with measured=%(measured)s, because a measurement "
        "reports no accuracy: leave evaluations or measured out",
    ),
    (
        lambda given: given.evaluations and given.keep_best,
        "evaluations=%(evaluations)s is refused with keep_best=true, because the ends of epochs "
        "then have no accuracy: leave evaluations or keep_best out",
    ),
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
    _not_for_batch("without_workers", "exclude nodes with engine_options"),
    (
        lambda given: is_batch(given) and given.round_robin not in ([], ["all"]),
        "round_robin=%(round_robin)s is refused with launcher=%(launcher)s, because the nodes are "
        "unknown before the job starts: use -e round_robin=all",
    ),
    _not_for_batch(
        "data_src", "copy the data to the file system that the nodes share, and leave data_src out"
    ),
    (
        lambda given: given.grouping == "auto" and is_batch(given),
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
