"""Convert a plan to text, with a table of the processes."""

from fractions import Fraction
from typing import Iterator, List, Optional, Tuple

from mxcluster import batch_sizes, deadline, schemes, work_load
from mxcluster.cluster_files import batches_per_epoch, cut
from mxcluster.cluster_files import length as length_of
from mxcluster.datasets import training_samples
from mxcluster.errors import BadInput
from mxcluster.job import launchers
from mxcluster.job.options import step_size
from mxcluster.job.plan import containers, paces
from mxcluster.lists import aligned, grouped, several, spans
from mxcluster.model.job_knobs import DEADLINE, Options, has_batch_norm
from mxcluster.model.plan import Balance, Plan, Process

HEADINGS = ("role", "index", "host", "address:port", "interface", "GPUs", "CPUs", "group", "share")
CPUS = HEADINGS.index("CPUs")  # the column of a job whose processes have CPUs of their own


def table(plan: Plan) -> str:
    """Return the plan as text: job, scheme, program and batches, then a line for each process."""
    rows = [HEADINGS] + [_row(process, plan) for process in plan.processes]
    if not any(process.cpus for process in plan.processes):
        rows = [row[:CPUS] + row[CPUS + 1 :] for row in rows]
    return "\n".join([*_heading(plan), "", *aligned(rows)]) + "\n"


def batches(plan: Plan) -> Optional[Tuple[List[int], List[int]]]:
    """Return each worker's number of batches and of repeated samples in an epoch, as two lists.

    The result is None for a script. Raises BadInput if a batch is larger than the data set, or if a
    share holds no sample.
    """
    options = plan.options
    if options.script:
        return None
    samples = training_samples(options.data, options.num_examples)
    ranges = cut(plan.shares, samples)
    if options.batch_size > samples:
        raise BadInput(
            "batch_size=%d is more than the %d training samples of %s, so every batch would repeat "
            "samples: use at most %d, or less with several workers"
            % (options.batch_size, samples, options.data, samples)
        )
    if plan.balance:
        together = plan.together
        weights = [
            sum((length_of(plan.shares[index]) for index in one), Fraction(0)) for one in together
        ]
        _, counts, repeated = batch_sizes.epoch_of(plan.balance.sizes, samples, together, weights)
        # With balance=deadline a worker goes on in its shard, and fills up no batch.
        return counts, [0] * len(counts) if options.balance == DEADLINE else repeated
    return batches_per_epoch(ranges, options.batch_size, schemes.waiting_sets(plan.kv, plan.groups))


def _heading(plan: Plan) -> Iterator[str]:
    options = plan.options
    staleness = "" if plan.staleness is None else " (staleness %d)" % plan.staleness
    numbers = (
        several(plan.workers, "worker"),
        several(len(plan.groups), "group"),
        several(plan.servers, "server"),
    )
    yield "job %s" % plan.job
    yield "kv %s%s, %s in %s, %s" % (plan.kv, staleness, *numbers)
    yield from containers.lines(plan)
    yield from launchers.lines(plan)
    yield from _one_group(plan)
    yield from plan.profile.notes if plan.profile else []
    yield from _of_groups(options, len(plan.groups))
    if options.bigarray_bound:
        yield "arrays of %d numbers or more are split over all servers (bigarray_bound)" % (
            options.bigarray_bound
        )
    yield from filter(None, [paces.emulated(plan)])
    counts = batches(plan)
    if counts is None:
        yield "script %s" % " ".join([options.script, *options.script_args])
        if options.script_root:
            yield "the folder %s goes to the nodes" % options.script_root
    else:
        yield from _training(plan, *counts)


def _one_group(plan: Plan) -> Iterator[str]:
    """Yield the line about a scheme with groups that has a single group."""
    alone = schemes.of(plan.kv).with_one_group
    if alone and len(plan.groups) == 1:
        yield "%s with one group of all workers trains as %s does: %s" % (
            plan.kv,
            alone,
            "the profile has one group"
            if plan.profile and "groups" in plan.profile.uses
            else "no profile fits this job, so grouping=auto measures the workers first"
            if plan.needs_profile
            else "for several groups, set worker_group for the workers' hosts, or set "
            "groups_file, or let mxcluster measure the workers (-e grouping=auto)",
        )


def _training(plan: Plan, counts: List[int], repeated: List[int]) -> Iterator[str]:
    """Yield the lines about the training program. Args: `counts` and `repeated` of `batches`."""
    options = plan.options
    yield "program %s: network %s, data %s (%d samples), batch size %d per worker, %s" % (
        options.program,
        options.network,
        options.data,
        training_samples(options.data, options.num_examples),
        options.batch_size,
        _length(options),
    )
    if options.data_dir and options.data == "synthetic":
        yield "data_dir=%s has no effect: data=synthetic has no files" % options.data_dir
    if plan.balance and options.balance == DEADLINE:
        yield from _deadline(plan, plan.balance)
    elif plan.balance:
        yield (
            "batch sizes follow the workers' speeds (balance=%s), %d samples a step%s; "
            "first sizes: %s"
            % (
                options.balance,
                sum(plan.balance.sizes),
                " in all groups, constant in each group" if len(plan.together) > 1 else "",
                _per_worker(plan.balance.sizes),
            )
        )
    yield _step(options, plan.workers)
    if options.compression != "none":
        yield "workers send gradients with %s for each number, threshold %g (compression)" % (
            options.compression.replace("bit", " bits"),
            options.compression_threshold,
        )
    yield "%s per epoch: %s" % (
        "planned steps" if options.balance == DEADLINE else "batches",
        _per_worker(counts),
    )
    yield from _splits(plan)
    if any(repeated):
        yield "samples repeated per epoch to fill the batches: %d to %d a worker" % (
            min(repeated),
            max(repeated),
        )


def _deadline(plan: Plan, balance: Balance) -> Iterator[str]:
    """Yield the lines about balance=deadline."""
    small, progress = paces.small_sizes(balance), balance.progress
    yield "workers step by a common deadline (balance=deadline%s), about %d samples a step%s" % (
        ", %.3g s at first" % progress.seconds if progress and progress.seconds else "",
        sum(balance.sizes),
        " in all groups" if len(plan.together) > 1 else "",
    )
    yield "first samples a step: %s; of a small batch: %s" % (
        _per_worker(balance.sizes),
        _per_worker(small),
    )
    if min(small) < deadline.FEW and has_batch_norm(plan.options.network):
        yield (
            "warning: BatchNorm of %s takes mean and variance of small batches of %d samples: set "
            "least_batch=%d, and a larger batch_size if steps become too long"
            % (plan.options.network, min(small), deadline.FEW)
        )


def _of_groups(options: Options, groups: int) -> Iterator[str]:
    """Yield warnings about knobs of dist_gsync that have no effect or do harm.

    Args: `groups` the number of groups.
    """
    settings = [
        "%s=%g" % (name, vars(options)[name])
        for name in ("gsync_compensation", "gsync_max_y")
        if vars(options)[name]
    ]
    if settings and groups == 1:
        yield (
            "%s: no effect with one group, because no other group changes the weights"
            % ", ".join(settings)
        )
    elif 0 < options.gsync_max_y < groups:
        yield (
            "gsync_max_y=%d drops most updates of equally fast groups, because Y is then near %d: "
            "set gsync_max_y above the number of groups" % (options.gsync_max_y, groups)
        )


def _length(options: Options) -> str:
    """Return the length of the training as text: the number of epochs or of measured batches."""
    if options.measured:
        return "%d batches to warm up, %d measured" % (options.warm_up, options.measured)
    return several(options.num_epochs, "epoch")


def _step(options: Options, workers: int) -> str:
    """Return the line about the learning rate, with lr_scale if the scheme applies each push."""
    step = step_size(options, workers)
    if not schemes.updates_each_push(schemes.of(options.kv)) or workers == 1:
        return "learning rate %g" % step
    if step == options.lr:
        return "learning rate %g for every push of each of the %d workers (lr_scale=none)" % (
            step,
            workers,
        )
    return (
        "learning rate %g for every push: lr=%g divided by %d workers, because %s applies each "
        "push by itself (-e lr_scale=none takes lr as it is)"
        % (step, options.lr, workers, options.kv)
    )


def _splits(plan: Plan) -> Iterator[str]:
    """Yield a line with each GPU's number of samples in a batch, unless all GPUs are equal."""
    workers = grouped(
        (tuple(work_load.split(plan.options.batch_size, one.work_load)), one.index or 0)
        for one in plan.processes
        if one.work_load
    )
    if workers:
        yield "samples of a batch for each GPU: %s (gpu_speeds)" % ", ".join(
            "%s (%s)" % (" + ".join(map(str, samples)), _runs(those))
            for samples, those in workers.items()
        )


def _row(process: Process, plan: Plan) -> Tuple[str, ...]:
    port, group, share = process.port, process.group, process.share
    return (
        process.role,
        str(process.index),
        process.host,
        process.address if port is None else "%s:%d" % (process.address, port),
        plan.nodes[process.host].interface,
        ",".join(map(str, process.gpus)) or "-",
        ",".join(spans(process.cpus)) or "-",
        "-" if group is None else plan.group_labels[group],
        "-" if share is None else "%.6g %.6g" % share,
    )


def _per_worker(counts: List[int]) -> str:
    """Return the counts by worker as text: "12", or "8 (workers 0-3), 12 (worker 4)"."""
    if len(set(counts)) == 1:
        return str(counts[0])
    return ", ".join(
        "%d (%s)" % (count, _runs([index for index, other in enumerate(counts) if other == count]))
        for count in sorted(set(counts))
    )


def _runs(indices: List[int]) -> str:
    """Return worker indices as ranges: "workers 0-3, 7"."""
    return "worker%s %s" % ("" if len(indices) == 1 else "s", ", ".join(spans(indices)))
