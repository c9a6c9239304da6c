"""Choose the first batch size and the emulated slowdown of each worker."""

from typing import Dict, List, Mapping, Optional, Sequence

from mxcluster import batch_sizes, deadline, work_load
from mxcluster.errors import BadInput, refuse, some
from mxcluster.lists import unique
from mxcluster.model.checkpoint import CheckpointManifest, Progress
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.job_knobs import DEADLINE, Options
from mxcluster.model.plan import Balance, Changes, Plan
from mxcluster.model.program_arguments import ProgramArguments

Variables = Mapping[str, HostVariables]


def first_sizes(
    options: Options,
    lines: Sequence[str],
    variables: Variables,
    loads: Sequence[Sequence[float]],
    waiting: Sequence[Sequence[int]],
    speeds: Optional[Sequence[float]] = None,
) -> Optional[Balance]:
    """Return the first batch sizes and their bounds, None for a job with balance=none.

    With balance=deadline the sizes are the planned samples of a step, and the bounds are those of
    the small batches, with least_batch as the least size.

    The sizes of workers that wait for each other add up to batch_size times the number of these
    workers. Each size gives every GPU of the worker a sample, and is at most the worker_batch_max
    of the host. Within these bounds, the sizes are proportional to `speeds`, or equal without
    `speeds`. Raises BadInput if no sizes meet the bounds.

    Args: `lines` the host of each worker; `variables` {host: host variables}; `loads` the
    speeds of the GPUs of each worker; `waiting` lists with the indices of workers that wait for
    each other; `speeds` the speed or earlier batch size of each worker.
    """
    if options.balance == "none":
        return None
    limits = [variables[host].worker_batch_max for host in lines]
    by_deadline = options.balance == DEADLINE
    least = [work_load.least(of_gpus) if of_gpus else 1 for of_gpus in loads]
    if by_deadline:
        least = [max(size, options.least_batch) for size in least]
        _check_small(lines, least, limits)
    sizes, most = [0] * len(lines), [0] * len(lines)
    for members in waiting:
        total = options.batch_size * len(members)
        for worker in members:
            most[worker] = min(limits[worker] or total, total)
        try:
            found = batch_sizes.divide(
                [speeds[worker] if speeds else 1 for worker in members],
                total,
                [1 if by_deadline else least[worker] for worker in members],
                [total if by_deadline else most[worker] for worker in members],
            )
        except BadInput as refusal:
            raise BadInput(
                "balance=%s with batch_size=%d%s: %s"
                % (
                    options.balance,
                    options.batch_size,
                    "" if len(waiting) == 1 else " in the group of worker %d" % members[0],
                    refusal,
                )
            ) from None
        for worker, size in zip(members, found):
            sizes[worker] = size
    return Balance(sizes=sizes, least=least, most=most)


def _check_small(lines: Sequence[str], least: Sequence[int], limits: Sequence[int]) -> None:
    """Refuse small batches above worker_batch_max. Args: `lines` the host of each worker."""
    refuse(
        "%s: worker_batch_max=%d is below the least size %d of a small batch (least_batch): use a "
        "larger worker_batch_max, or a smaller least_batch" % (host, limit, size)
        for host, size, limit in unique(zip(lines, least, limits))
        if 0 < limit < size
    )


def small_sizes(balance: Balance) -> List[int]:
    """Return the first size of each worker's small batches, with balance=deadline."""
    return deadline.small_sizes(balance.sizes, balance.least, balance.most)


def earlier_progress(
    manifest: Optional[CheckpointManifest], workers: int, options: Options
) -> Optional[Progress]:
    """Return the state of balance=deadline from the manifest of a checkpoint.

    The result is None for another number of workers, whose speeds and shards are unknown. With
    another batch_size the speeds count, but the deadline and the shards are new.
    """
    found = manifest.progress if manifest else None
    if not manifest or not found or options.balance != DEADLINE or len(found.speeds) != workers:
        return None
    if manifest.batch_size == options.batch_size:
        return found
    walks = [deadline.Walk(*pair) for pair in zip(found.passes, found.positions)]
    return found.replaced(
        seconds=None,
        passes=[deadline.anew(walk).number for walk in walks],
        positions=[0] * workers,
    )


def earlier_sizes(manifest: Optional[CheckpointManifest], workers: int) -> Optional[Sequence[int]]:
    """Return the batch size of each worker from the manifest of a checkpoint.

    The result is None if the manifest lacks the sizes of exactly `workers` workers.
    """
    sizes = manifest.batch_sizes if manifest else None
    return sizes if sizes and len(sizes) == workers else None


def slowdowns(options: Options, lines: Sequence[str], variables: Variables) -> List[float]:
    """Return a list with the host variable slowdown, a factor of at least 1, of each worker.

    Raises BadInput if a host with a script is slowed down, because scripts run at full speed.

    Args: `lines` the host of each worker.
    """
    if options.script:
        refuse(
            "%s: %s has no effect on a script, because only mxcluster's program applies "
            "slowdowns: remove %s from the inventory, or leave the script out"
            % (host, value, value.split("=")[0])
            for host in unique(lines)
            for value in _slowing(variables[host])
        )
    return [variables[host].slowdown for host in lines]


def _slowing(variables: HostVariables) -> List[str]:
    """Return the host variables that slow a worker down, such as "slowdown=2"."""
    changes = variables.slowdown_changes
    return (["slowdown=%g" % variables.slowdown] if variables.slowdown > 1 else []) + (
        ["slowdown_changes=%s" % ",".join("%g" % one for one in changes)] if changes else []
    )


def changes(lines: Sequence[str], variables: Variables) -> List[Changes]:
    """Return the changes of the emulated speed of each worker, [] if no speed changes.

    Args: `lines` the host of each worker.
    """
    found = [
        Changes(factors=own.slowdown_changes, every=own.slowdown_every)
        for own in (variables[host] for host in lines)
    ]
    return found if any(one.factors for one in found) else []


def slowed(arguments: ProgramArguments, plan: Plan, worker: int) -> ProgramArguments:
    """Return the arguments of the program of a worker with its emulated slowness."""
    own = _changes_of(plan, worker)
    return arguments.replaced(
        slowdown=plan.slowdowns[worker],
        slowdown_changes=own.factors,
        slowdown_every=own.every,
    )


def unusual_sizes(plan: Plan) -> Dict[str, List[int]]:
    """Return {field of ProgramArguments: batch size of each worker} of a plan.

    The function leaves out batch sizes that are the program's defaults, so that the plan of a job
    with many workers stays small.
    """
    balance, batch, count = plan.balance, plan.options.batch_size, len(plan.slowdowns)
    if not balance:
        return {}
    usual = plan.options.least_batch if plan.options.balance == DEADLINE else 1
    members_of = {worker: len(members) for members in plan.together for worker in members}
    return {
        name: sizes
        for name, sizes, usual in (
            ("batch_sizes", balance.sizes, [batch] * count),
            ("batch_least", balance.least, [usual] * count),
            ("batch_most", balance.most, [batch * members_of[one] for one in range(count)]),
        )
        if sizes != usual
    }


def _changes_of(plan: Plan, worker: int) -> Changes:
    return dict(enumerate(plan.changes)).get(worker, Changes())


def _slowed(plan: Plan, worker: int) -> str:
    """Return the words about the slowness of a worker, "" for a worker with its own speed."""
    factor, own = plan.slowdowns[worker], _changes_of(plan, worker)
    if own.factors:
        factors = " and ".join("%g" % (factor * one) for one in own.factors)
        return "worker %d by the factors %s in turn, each for %g s" % (worker, factors, own.every)
    return "worker %d by the factor %g" % (worker, factor) if factor != 1 else ""


def emulated(plan: Plan) -> str:
    """Return a line about the emulated slowness of a job, or "" without emulation."""
    slow = list(filter(None, (_slowed(plan, worker) for worker in range(len(plan.slowdowns)))))
    least = plan.options.step_ms or 0
    parts = []
    if slow:
        parts.append("the program slows down %s" % some(slow))
    if least:
        parts.append(
            "%d samples take at least %g ms" % (plan.options.batch_size, least)
            + (" times the worker's factor" if slow else "")
        )
    if not parts:
        return ""
    return "emulated slowness: %s. Times and speeds do not describe the real machines" % (
        " and ".join(parts)
    )
