"""Assign GPUs to workers, find the speeds of the GPUs, and check the batch size."""

from typing import Dict, List, Mapping, Optional, Sequence, Union

from mxcluster import work_load
from mxcluster.errors import BadInput, for_each, refuse
from mxcluster.job.plan.parts import parts
from mxcluster.job.plan.ports import Held
from mxcluster.lists import unique
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.node_record import NodeRecord
from mxcluster.model.plan import Process

Measured = Dict[str, Dict[int, float]]  # {host: {GPU number: samples/s}}


def per_worker(
    lines: Sequence[str],
    knob: Union[str, List[int]],
    variables: Mapping[str, HostVariables],
    records: Mapping[str, NodeRecord],
    held: Optional[Held] = None,
) -> List[List[int]]:
    """Return a list of GPU numbers for each worker, in the order of `lines`.

    If `knob` is 'auto', the host variable `gpus` decides. If the host variable is 'auto', too,
    the workers of a host share all free GPUs of the host. Several workers on a host get equal parts
    of the GPUs, in order. If no equal parts are possible, each of the first workers gets one GPU
    more. On a host without GPUs, each worker gets []. Raises BadInput if a named GPU is missing or
    in use, or if a host with GPUs has fewer free GPUs than workers.

    Args: `lines` the host of each worker; `knob` the job's option `gpus`; `variables` {host: host
    variables}; `records` {host: node record}; `held` the GPUs in use, see `ports.Held`.
    """

    def of_host(host: str) -> List[List[int]]:
        numbers = variables[host].gpus if knob == "auto" else knob
        holders = ((held or {}).get(host) or {}).get("gpus") or {}
        return _of_host(host, lines.count(host), numbers, records[host].gpus, holders)

    hosts = unique(lines)
    queues = dict(zip(hosts, for_each(of_host, hosts)))
    return [queues[host].pop(0) for host in lines]


def work_loads(
    lines: Sequence[str],
    gpu_lists: Sequence[Sequence[int]],
    variables: Mapping[str, HostVariables],
    records: Mapping[str, NodeRecord],
    measured: Optional[Measured] = None,
) -> List[List[float]]:
    """Return a list of GPU speeds for each worker; [] for equal or unknown speeds.

    The host variable gpu_speeds lists the speeds of the node's GPUs by GPU number. This variable
    takes precedence over the speeds of a profile. Only the proportions of the speeds matter. Raises
    BadInput if gpu_speeds has more or fewer numbers than the node has GPUs.

    Args: `lines` the host of each worker; `gpu_lists` the GPU numbers of each worker; `measured`
    the speeds from `profiled.gpu_speeds`.
    """

    def of_host(host: str) -> Sequence[float]:
        return _speeds(host, variables[host].gpu_speeds, records[host].gpus)

    hosts = unique(lines)
    by_host = dict(zip(hosts, for_each(of_host, hosts)))
    found = []
    for host, numbers in zip(lines, gpu_lists):
        there = (measured or {}).get(host, {})
        if by_host[host]:
            found.append([by_host[host][number] for number in numbers])
        else:
            found.append([there[gpu] for gpu in numbers] if set(numbers) <= set(there) else [])
    return [speeds if len(set(speeds)) > 1 else [] for speeds in found]


def _speeds(host: str, speeds: Sequence[float], there: int) -> Sequence[float]:
    if speeds and len(speeds) != there:
        raise BadInput(
            "%s: gpu_speeds=%s has %d numbers, but the node has %s: give the speed of each GPU of "
            "the node in the order of the GPU numbers, or leave gpu_speeds out"
            % (
                host,
                ",".join("%g" % speed for speed in speeds),
                len(speeds),
                _count(there),
            )
        )
    return speeds


def _count(gpus: int) -> str:
    """Return a number of GPUs as text."""
    return "no GPU" if not gpus else "one GPU" if gpus == 1 else "%d GPUs" % gpus


def check_batch(batch_size: int, workers: Sequence[Process]) -> None:
    """Refuse a batch size that leaves a GPU of a worker without a sample.

    Args: `workers` the processes of the plan with the role worker.
    """
    problems = []
    for process in workers:
        gpus, loads = process.gpus, process.work_load
        samples = work_load.split(batch_size, loads or [1] * len(gpus)) if gpus else []
        if 0 in samples:
            problems.append(
                "batch_size=%d is too small for the GPUs %s of %s on %s: these GPUs would get %s "
                "samples%s. Use a larger batch_size, or name fewer GPUs in gpus"
                % (
                    batch_size,
                    ",".join(map(str, gpus)),
                    process.name,
                    process.host,
                    ", ".join(map(str, samples)),
                    " (by gpu_speeds)" if loads else "",
                )
            )
    refuse(problems)


def _of_host(
    host: str,
    workers: int,
    knob: Union[str, List[int]],
    there: int,
    held: Dict[str, str],
) -> List[List[int]]:
    numbers = list(range(there)) if isinstance(knob, str) else list(knob)
    if any(number >= there for number in numbers):
        named = ", number 0" if there == 1 else ", 0 to %d" % (there - 1) if there else ""
        raise BadInput(
            "%s: gpus=%s, but the node has %s%s: name GPUs of this node, or leave gpus at auto"
            % (host, ",".join(map(str, numbers)), _count(there), named)
        )
    busy = [number for number in numbers if str(number) in held]
    numbers = [number for number in numbers if number not in busy] if knob == "auto" else numbers
    if busy and (knob != "auto" or len(numbers) < workers):
        has = ", ".join("GPU %d is held by %s" % (number, held[str(number)]) for number in busy)
        cure = "leave gpus at auto to take the free GPUs, " if knob != "auto" else ""
        left = (
            ", and %d GPUs are free for %d workers" % (len(numbers), workers)
            if knob == "auto"
            else ""
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
                _count(len(numbers)),
                workers,
                len(numbers),
            )
        )
    return parts(numbers, [1] * workers)
