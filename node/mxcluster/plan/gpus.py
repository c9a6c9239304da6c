"""Which GPUs each worker sees."""
from typing import Any, Dict, List, Sequence, Union

from ..errors import BadInput, for_each
from .members import host_variable, unique


def per_worker(lines: Sequence[str], asked: Union[str, List[int]], variables: Dict[str, Dict[str, Any]],
               records: Dict[str, Dict[str, Any]]) -> List[List[int]]:
    """The GPU numbers of every worker, by index; `lines` are the workers' hosts.

    `asked` is the job's option `gpus`; at 'auto' the host variable of that name counts, and at 'auto' there too it
    is all GPUs of the node. Several workers on a host get equal parts of its list, in order, the first ones one more.
    """
    hosts = unique(lines)
    queues = dict(zip(hosts, for_each(lambda host: _of_host(host, lines.count(host), asked, variables, records[host]),
                                      hosts)))
    return [queues[host].pop(0) for host in lines]


def _of_host(host: str, workers: int, asked: Union[str, List[int]], variables: Dict[str, Dict[str, Any]],
             record: Dict[str, Any]) -> List[List[int]]:
    there = record.get("gpus") or 0
    wanted = host_variable("gpus", host, variables) if asked == "auto" else asked
    numbers = list(range(there)) if wanted == "auto" else list(wanted)
    if any(number >= there for number in numbers):
        has = "no GPU" if not there else "one GPU, number 0" if there == 1 else "%d GPUs, 0 to %d" % (there, there - 1)
        raise BadInput("%s: gpus=%s, but the node has %s: name GPUs that it has, or leave gpus at auto"
                       % (host, ",".join(map(str, numbers)), has))
    if numbers and len(numbers) < workers:
        raise BadInput("%s: %d workers have only %s between them (gpus=%s): lower workers_per_host to at most %d, or "
                       "use gpus='' for none"
                       % (host, workers, "one GPU" if len(numbers) == 1 else "%d GPUs" % len(numbers),
                          ",".join(map(str, numbers)), len(numbers)))
    size, more = divmod(len(numbers), workers)
    ends = [(index + 1) * size + min(index + 1, more) for index in range(workers)]
    return [numbers[begin:end] for begin, end in zip([0] + ends, ends)]
