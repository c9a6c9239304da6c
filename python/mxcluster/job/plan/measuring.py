"""The knobs of a job that measures the cluster for a profile, and trains nothing."""

from typing import Any, Dict

Json = Dict[str, Any]

PROGRAM = "profile"  # the program of such a job
# The knobs of the user that count: the model, the machines and the run. All others keep their
# defaults, so that no knob of a training can make a measurement fail.
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
    """Return the knobs of a job that measures, from those of the user.

    Under dist_async no push waits for another worker, so that one worker can measure alone.
    """
    return dict({name: given[name] for name in KNOBS if name in given}, kv="dist_async")


def is_profile(options: Json) -> bool:
    """Return True if the job with these `options` measures the cluster."""
    return options.get("program") == PROGRAM and not options.get("script")
