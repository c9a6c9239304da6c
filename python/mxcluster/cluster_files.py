"""Parse, check and write the cluster files hosts, groups and data_sharding.

MXNet-G (Grouping-SGD, CCGrid 2019) defines the formats:

- hosts: one IPv4 address a line. Line i is worker i. Several workers on a host repeat the line.
- groups: one group a line, as the addresses of its workers, separated by blanks.
- data_sharding: `begin end` a line. Line i is worker i's share of the data, as fractions of 1.

Parsers accept blank lines, tabs, CRLF and comments after '#'. Every message names file, line, value
and cure. One BadInput lists all mistakes of a file.
"""

import ipaddress
import re
import sys
from fractions import Fraction
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from mxcluster.errors import BadInput, refuse, shown, some
from mxcluster.lists import several, unique
from mxcluster.numbers import to_float

Share = Tuple[float, float]


def is_ipv4(text: str) -> bool:
    """Return True if `text` is an IPv4 address without leading zeros.

    Some programs read a number with a leading zero as octal.
    """
    try:
        return str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        return False


# hosts


def parse_hosts(text: str, name: str = "hosts", known: Optional[Sequence[str]] = None) -> List[str]:
    """Return the IPv4 address of each worker, in the order of the lines.

    Args: `text` the content of the file; `name` the file's name in messages; `known` the allowed
    addresses, None to allow all addresses.

    Raises BadInput that lists all mistakes.
    """
    addresses, problems = [], []
    for number, fields in _lines(text):
        address = fields[0]
        if len(fields) > 1:
            problems.append(
                "%s line %d: %s has %d words: write one address a line, and repeat the line for "
                "several workers on a host" % (name, number, shown(" ".join(fields)), len(fields))
            )
        elif not is_ipv4(address):
            problems.append(
                "%s line %d: %s is not an IPv4 address: write the worker's address as four "
                "numbers, such as 10.0.0.5" % (name, number, shown(address))
            )
        elif known is not None and address not in known:
            problems.append(
                "%s line %d: %s is not an address of the group workers (addresses: %s): correct "
                "the address, or add the host with this address to the group workers"
                % (name, number, address, some(unique(known), 8) or "none")
            )
        addresses.append(address)
    refuse(problems)
    if not addresses:
        raise BadInput(
            "%s has 0 workers: write one IPv4 address a line, one line per worker" % name
        )
    return addresses


def render_hosts(addresses: Sequence[str]) -> str:
    """Return the text of the file hosts for `addresses`, the inverse of parse_hosts."""
    return "".join(address + "\n" for address in addresses)


# groups


def parse_groups(text: str, hosts: Sequence[str], name: str = "groups") -> List[List[int]]:
    """Return the groups as lists of worker indices, in the order of the lines.

    An address stands for all workers with this address. Raises BadInput for an address without a
    worker, for a repeated address, and for a worker without a group.

    Args: `text` the content of the file; `hosts` the addresses of all workers by index; `name` the
    file's name in messages.
    """
    seen: Dict[str, int] = {}
    groups, problems = [], []
    for number, fields in _lines(text):
        group = []
        for address in fields:
            if address not in hosts:
                problems.append(
                    "%s line %d: %s is not a worker. The workers are %s. Correct or remove the "
                    "address (blanks separate addresses)"
                    % (name, number, shown(address), some(unique(hosts), 8))
                )
            elif address in seen:
                problems.append(
                    "%s line %d: %s is already in the group of line %d, and a worker belongs to "
                    "one group: remove the address from one line"
                    % (name, number, address, seen[address])
                )
            else:
                seen[address] = number
                group += [index for index, host in enumerate(hosts) if host == address]
        groups.append(sorted(group))
    problems += [
        "%s: worker %s is in no group: add its address to a line, or to a new line"
        % (name, address)
        for address in unique(hosts)
        if address not in seen
    ]
    refuse(problems)
    return groups


def render_groups(groups: Sequence[Sequence[int]], hosts: Sequence[str]) -> str:
    """Return the text of the file groups, the inverse of parse_groups.

    The file has each address once. So the function raises BadInput if the workers of one address
    are in different groups.

    Args: `groups` lists of worker indices; `hosts` the addresses of all workers by index.
    """
    lines = [unique(hosts[index] for index in group) for group in groups]
    everywhere = [address for line in lines for address in line]
    refuse(
        "groups: the workers on %s are in different groups: put all workers of a host into one "
        "group" % address
        for address in unique(everywhere)
        if everywhere.count(address) > 1
    )
    return "".join(" ".join(line) + "\n" for line in lines)


# data_sharding


def parse_data_sharding(text: str, workers: int, name: str = "data_sharding") -> List[Share]:
    """Return the share (begin, end) of each worker, as fractions of 1. Line i is for worker i.

    Args: `text` the content of the file; `workers` the number of workers; `name` the file's name in
    messages.

    Raises BadInput that lists all mistakes.
    """
    shares, numbers, problems = [], [], []
    for number, fields in _lines(text):
        where = "%s line %d: %s" % (name, number, shown(" ".join(fields)))
        try:
            begin, end = [to_float(field) + 0.0 for field in fields]
        except ValueError:
            problems.append(
                "%s is not a share: write two numbers, begin and end, such as 0 0.25" % where
            )
            continue
        shares.append((begin, end))
        numbers.append(number)
    refuse(problems)
    check_data_sharding(shares, workers, name, numbers)
    return shares


def check_data_sharding(
    shares: Sequence[Share],
    workers: int,
    name: str = "data_sharding",
    numbers: Optional[Sequence[int]] = None,
) -> None:
    """Raise BadInput unless the shares divide [0, 1] without gap and overlap, one share per worker.

    The shares may follow each other in any order. Share i belongs to worker i.

    Args: `shares` [(begin, end)]; `workers` the number of workers; `name` the file's name and
    `numbers` the line numbers of the shares in messages (1, 2, ... by default).
    """
    numbers = numbers or range(1, len(shares) + 1)
    problems = []
    if len(shares) != workers:
        problems.append(
            "%s: %s for %s: write one line `begin end` per worker, in the order of "
            "hosts" % (name, several(len(shares), "line"), several(workers, "worker"))
        )
    for number, (begin, end) in zip(numbers, shares):
        if not begin < end:
            problems.append(
                "%s line %d: %r %r is %s: begin must be smaller than end"
                % (name, number, begin, end, "empty" if begin == end else "reversed")
            )
        elif begin < 0 or end > 1:
            problems.append(
                "%s line %d: %r %r is outside of 0 to 1: write fractions of the training data"
                % (name, number, begin, end)
            )
    refuse(problems or _seams(shares, name, numbers))


def _seams(shares: Sequence[Share], name: str, numbers: Sequence[int]) -> Iterator[str]:
    """Yield a message for each gap or overlap between two shares, and for each gap at 0 or 1."""
    pieces = sorted(zip(shares, numbers))
    (begin, end), last = pieces[0]
    if begin != 0:
        yield (
            "%s line %d: the first share begins at %r, so no worker reads the samples before "
            "this share. Let the first share begin at 0" % (name, last, begin)
        )
    for (begin, next_end), number in pieces[1:]:
        if begin != end:
            fault = "no worker would read the gap" if begin > end else "the two shares overlap"
            yield (
                "%s line %d begins at %r and line %d ends at %r: %s. Write the same number in both "
                "lines" % (name, number, begin, last, end, fault)
            )
        if next_end > end:
            end, last = next_end, number
    if end != 1:
        yield (
            "%s line %d: the last share ends at %r, so no worker reads the samples after this "
            "share. Let the last share end at 1" % (name, last, end)
        )


def render_data_sharding(shares: Sequence[Share]) -> str:
    """Return the text of the file data_sharding, the inverse of parse_data_sharding.

    The function writes numbers with repr, which keeps every bit of a float.
    """
    return "".join("%r %r\n" % (begin, end) for begin, end in shares)


# from shares to samples and batches


def length(share: Share) -> Fraction:
    """Return the exact length of a share, as a fraction of 1.

    Begin and end count as the decimal numbers that repr writes.
    """
    begin, end = share
    return Fraction(repr(float(end))) - Fraction(repr(float(begin)))


def tile(
    lengths: Sequence[Fraction], order: Sequence[int], name: str = "worker_share"
) -> List[Share]:
    """Return shares (begin, end) with lengths in proportion to `lengths`, one after the other.

    The shares fill [0, 1]. The end of a share equals the begin of the next share exactly. Raises
    BadInput if a share is too small for a float.

    Args: `lengths` by worker index; `order` the worker indices in the order of their shares; `name`
    the origin of the lengths, for messages.
    """
    shares, total, before = [(0.0, 0.0)] * len(lengths), sum(lengths), Fraction(0)
    for index in order:
        shares[index] = (float(before / total), float((before + lengths[index]) / total))
        before += lengths[index]
    check_data_sharding(shares, len(shares), name)
    return shares


def cut(shares: Sequence[Share], samples: int) -> List[Tuple[int, int]]:
    """Return the range (first, last + 1) of the training samples of each worker.

    `largest_remainder` determines the length of each range. The ranges follow each other in the
    order of the shares and cover all samples. Raises BadInput if a worker would get no sample.

    Args: `shares` by worker index; `samples` the number of training samples.
    """
    sizes = largest_remainder([length(share) * samples for share in shares], samples)
    refuse(
        "worker %d with the share %r %r would get none of the %d training samples: give this "
        "worker a larger share, or use fewer workers (num_workers)"
        % (index, shares[index][0], shares[index][1], samples)
        for index, size in enumerate(sizes)
        if not size
    )
    ranges, first = [(0, 0)] * len(shares), 0
    for index in sorted(range(len(shares)), key=lambda i: shares[i]):
        ranges[index] = (first, first + sizes[index])
        first += sizes[index]
    return ranges


def largest_remainder(quotas: Sequence[Fraction], total: int) -> List[int]:
    """Return `quotas` as whole numbers with the sum `total`, by the largest remainder method.

    Each quota gets its whole part. The quotas with the largest remainders share the remaining
    units, one unit each. At a tie the lower index comes first.

    Args: `quotas` with the sum `total`.

    Source: Hamilton's method of apportionment.
    """
    sizes = [int(quota) for quota in quotas]
    # Round remainders, so that a tie between thirds does not depend on the last bit of a float.
    remainders = [round(float(quota - size), 6) for quota, size in zip(quotas, sizes)]
    for index in sorted(range(len(quotas)), key=lambda i: (-remainders[i], i))[
        : total - sum(sizes)
    ]:
        sizes[index] += 1
    return sizes


def batches_per_epoch(
    ranges: Sequence[Tuple[int, int]], batch_size: int, waiting: Sequence[Sequence[int]]
) -> Tuple[List[int], List[int]]:
    """Return ([batches], [repeated samples]) per epoch, by worker index.

    Workers that wait for each other must run the same number of batches. The largest shard among
    these workers determines the number. Workers with smaller shards repeat samples of their own
    shard.

    Args: `ranges` the result of `cut`; `batch_size` in samples; `waiting` the result of
    `schemes.waiting_sets`.
    """
    sizes = [end - begin for begin, end in ranges]
    batches = [-(-size // batch_size) for size in sizes]
    for members in waiting:
        most = max(batches[index] for index in members)
        for index in members:
            batches[index] = most
    return batches, [count * batch_size - size for count, size in zip(batches, sizes)]


# helpers


def _lines(text: str) -> Iterator[Tuple[int, List[str]]]:
    """Yield (line number, words) of each line with words before '#'. The first number is 1."""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text.lstrip("\ufeff")), 1):
        words = line.partition("#")[0].split()
        if words:
            yield number, words


def main(argv: List[str]) -> int:
    """Check a cluster file: `python -m mxcluster.cluster_files KIND FILE [HOSTS]`.

    KIND is hosts, groups or data_sharding. HOSTS is the path of the file hosts, which the kinds
    groups and data_sharding require. Returns 0 for a good file. For a bad file, prints the mistakes
    on stderr and returns 1.
    """
    kind, path = argv[:2]
    try:
        hosts = parse_hosts(_read(argv[2]), argv[2]) if kind != "hosts" else []
        if kind == "hosts":
            parse_hosts(_read(path), kind)
        elif kind == "groups":
            parse_groups(_read(path), hosts, kind)
        else:
            parse_data_sharding(_read(path), len(hosts), kind)
    except (BadInput, OSError, UnicodeDecodeError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
