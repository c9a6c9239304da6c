"""Give each worker its GPUs, their speeds, its first batch size and its share of the data."""

from typing import Dict, List, Mapping, NamedTuple, Optional

from mxcluster import schemes
from mxcluster.cluster import profile
from mxcluster.cluster.profile import Fit
from mxcluster.cluster_files import Share
from mxcluster.job.plan import gpus, paces, profiled, shares
from mxcluster.job.plan.cores import Wanted
from mxcluster.job.plan.division import Division
from mxcluster.job.plan.site import Inputs, Site
from mxcluster.model.plan import Balance


class Work(NamedTuple):
    """The work of each worker, in the order of the workers."""

    gpus: List[List[int]]  # the GPU numbers
    cpus: Mapping[str, Wanted]  # {host: the CPUs that its processes share out}
    loads: List[List[float]]  # the speeds of these GPUs; [] for equal or unknown speeds
    shares: List[Share]
    together: List[List[int]]  # the sets of workers that wait for each other
    balance: Optional[Balance]
    sources: profiled.Sources


def work_of(
    inputs: Inputs, site: Site, workers: List[str], division: Division, fitted: Optional[Fit]
) -> Work:
    """Return the work of each worker. Raises BadInput if a GPU is missing or a size impossible.

    Args: `workers` the host of each worker; `fitted` from `profiled.fit`.
    """
    options, variables, records = inputs.options, site.variables, inputs.records
    numbers = gpus.per_worker(workers, options.gpus, variables, records, inputs.held)
    # A job that measures speeds ignores the speeds of an earlier profile.
    known = profiled.complete(fitted)
    measured = profiled.gpu_speeds(
        None if options.measures_cluster else known, numbers, workers, options.batch_size
    )
    loads = gpus.work_loads(workers, numbers, variables, records, measured)
    earlier = paces.earlier_sizes(inputs.checkpoint, len(workers))
    together = schemes.merged_sets(options.kv, division.groups)
    balance = paces.first_sizes(
        options,
        workers,
        variables,
        [own or [1.0] * len(of_worker) for own, of_worker in zip(loads, numbers)],
        together,
        earlier or (list(profile.job_speeds(known).values()) if known else None),
    )
    if balance:
        progress = paces.earlier_progress(inputs.checkpoint, len(workers), options)
        balance = balance.replaced(progress=progress)
    parts = division.shares
    if balance:  # The batch sizes decide the shares, from the first epoch on.
        parts = shares.of_sizes(parts, balance.sizes, together)
    sources = profiled.Sources(
        groups=division.origin,
        shares=division.wants_profile,
        sizes=bool(balance) and not earlier,
        loads=loads != gpus.work_loads(workers, numbers, variables, records),
    )
    knob = options.cpus
    cpus: Dict[str, Wanted] = {
        # As for `gpus`, the host variable decides unless the knob has numbers.
        host: knob if knob and knob != "auto" else own.cpus or knob
        for host, own in variables.items()
    }
    return Work(numbers, cpus, loads, parts, together, balance, sources)
