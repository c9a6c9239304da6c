"""Choose the knobs of a job of profile.yml, which measures the cluster and trains nothing."""

from typing import Any, Dict

Json = Dict[str, Any]

PROGRAM = "profile"  # the program of a job that measures
# A measurement takes these knobs from the user. All other knobs keep their defaults, so that no
# knob of a training can make a measurement fail.
KNOBS = (
    "network",
    "data",
    "batch_size",
    "step_ms",
    "seed",
    "num_workers",
    "num_servers",
    "without",
    "launcher",
    "mpi_runtime",
    "mpi_pre_execution_command",
    "gpus",
    "hosts_file",
    "dmlc_interface",
    "ps_verbose",
    "root_port",
    "env",
    "secret_env",
    "lease",
    "heartbeat_timeout",
    "start_timeout",
    "stall_timeout",
    "job_id",
    "plan_only",
    "runs_dir",
)


def knobs_of(given: Json) -> Json:
    """Return {knob: value} for a job of profile.yml: kv=dist_async, and the KNOBS in `given`.

    Under dist_async no push waits for another worker, so one worker can measure alone.

    Args: `given` {knob: value} from the user.
    """
    return dict({name: given[name] for name in KNOBS if name in given}, kv="dist_async")


def is_profile(options: Json) -> bool:
    """Return True if a job with these `options` measures the cluster for a profile."""
    return options.get("program") == PROGRAM and not options.get("script")
