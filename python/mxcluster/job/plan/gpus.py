"""Assign GPUs to workers."""

from typing import Any, Dict, List, Optional, Sequence, Union

from mxcluster.errors import BadInput, for_each
from mxcluster.job.plan.members import host_variable
from mxcluster.job.plan.ports import Held
from mxcluster.lists import unique


def per_worker(
    lines: Sequence[str],
    asked: Union[str, List[int]],
    variables: Dict[str, Dict[str, Any]],
    records: Dict[str, Dict[str, Any]],
    held: Optional[Held] = None,
) -> List[List[int]]:
    """Return the GPU numbers of each worker, by index.

    Args: `lines` the workers' hosts by index; `asked` the job's option `gpus`; `held` the GPUs in
    use (see `ports`).

    If `asked` is 'auto', the host variable `gpus` counts. If that is 'auto' too, the workers get
    all free GPUs of the node. A named GPU must be free. Several workers on a host get equal parts
    of its list, in order, and the first ones get one GPU more.
    """
    hosts = unique(lines)
    queues = dict(
        zip(
            hosts,
            for_each(
                lambda host: _of_host(
                    host,
                    lines.count(host),
                    asked,
                    variables,
                    records[host],
                    ((held or {}).get(host) or {}).get("gpus") or {},
                ),
                hosts,
            ),
        )
    )
    return [queues[host].pop(0) for host in lines]


def takes_all(
    host: str, asked: Union[str, List[int]], variables: Dict[str, Dict[str, Any]]
) -> bool:
    """Return True if the workers of `host` take all free GPUs; `asked` is the option `gpus`."""
    return (host_variable("gpus", host, variables) if asked == "auto" else asked) == "auto"


def _of_host(
    host: str,
    workers: int,
    asked: Union[str, List[int]],
    variables: Dict[str, Dict[str, Any]],
    record: Dict[str, Any],
    held: Dict[str, str],
) -> List[List[int]]:
    there = record.get("gpus") or 0
    wanted = host_variable("gpus", host, variables) if asked == "auto" else asked
    numbers = list(range(there)) if wanted == "auto" else list(wanted)
    if any(number >= there for number in numbers):
        has = (
            "no GPU"
            if not there
            else "one GPU, number 0"
            if there == 1
            else "%d GPUs, 0 to %d" % (there, there - 1)
        )
        raise BadInput(
            "%s: gpus=%s, but the node has %s: name GPUs that it has, or leave gpus at auto"
            % (host, ",".join(map(str, numbers)), has)
        )
    busy = [number for number in numbers if str(number) in held]
    numbers = [number for number in numbers if number not in busy] if wanted == "auto" else numbers
    if busy and (wanted != "auto" or len(numbers) < workers):
        has = ", ".join("GPU %d is held by %s" % (number, held[str(number)]) for number in busy)
        cure = "leave gpus at auto to take the free GPUs, " if wanted != "auto" else ""
        left = (
            ", which leaves %d for %d workers" % (len(numbers), workers) if wanted == "auto" else ""
        )
        raise BadInput(
            "%s: %s%s: %swait until the GPU is free, or train on the CPU with -e gpus=''"
            % (host, has, left, cure)
        )
    if numbers and len(numbers) < workers:
        raise BadInput(
            "%s: gpus=%s gives only %s to %d workers: lower workers_per_host to at most %d, or "
            "train on the CPU with gpus=''"
            % (
                host,
                ",".join(map(str, numbers)),
                "one GPU" if len(numbers) == 1 else "%d GPUs" % len(numbers),
                workers,
                len(numbers),
            )
        )
    size, more = divmod(len(numbers), workers)
    ends = [(index + 1) * size + min(index + 1, more) for index in range(workers)]
    return [numbers[begin:end] for begin, end in zip([0] + ends, ends)]
