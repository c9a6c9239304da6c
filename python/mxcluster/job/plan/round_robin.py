"""Place the processes of a job on a list of hosts in turn, as MXNet's launch.py does."""

from typing import Callable, List, Optional, Tuple

from mxcluster.errors import BadInput, did_you_mean, for_each
from mxcluster.job.plan.site import Site
from mxcluster.lists import unique
from mxcluster.model.job_knobs import Options
from mxcluster.model.node_record import Network

ALL = "all"


def place(site: Site, options: Options) -> Tuple[List[str], List[str]]:
    """Return (the host of each server, the host of each worker).

    Process i runs on host i modulo the number of hosts. The servers come first, then the workers.
    Raises BadInput for a name or address of no host in the inventory.

    Args: `options` with round_robin, num_servers and num_workers.
    """
    known = unique(
        host for name in ("scheduler", "servers", "workers") for host in site.groups[name]
    )
    if options.round_robin == [ALL]:
        hosts = known
    else:
        entries = unique(options.round_robin)
        found = for_each(lambda entry: _host(entry, known, site), entries)
        host_of = dict(zip(entries, found))
        hosts = [host_of[entry] for entry in options.round_robin]
    count = options.num_servers
    dealt = [hosts[index % len(hosts)] for index in range(count + options.num_workers)]
    return dealt[:count], dealt[count:]


def _host(entry: str, known: List[str], site: Site) -> str:
    """Return the host with the name or the address `entry`.

    The function compares with the names of the inventory first. Then it compares with the address
    of the training traffic, with the address for Ansible, and with all other addresses of the node.
    """
    ways: Tuple[Callable[[str], bool], ...] = (
        lambda host: host == entry,
        lambda host: _address(host, site) == entry,
        lambda host: site.variables[host].ansible_host == entry,
        lambda host: host in site.records and entry in _addresses(site.records[host]),
    )
    for way in ways:
        found = [host for host in known if way(host)]
        if len(found) == 1:
            return found[0]
        if found:
            raise BadInput(
                "round_robin: %s is an address of %s: use the names of the inventory"
                % (entry, " and ".join(found))
            )
    if entry == ALL:
        raise BadInput("round_robin: all stands for all hosts: leave the other names out")
    raise BadInput(
        "round_robin: %s is no host of the inventory, by name or address%s (the hosts are %s): "
        "correct it, choose another inventory, or add the host to the inventory and run "
        "provision.yml" % (entry, did_you_mean(entry, known + [ALL]), ", ".join(known))
    )


def _address(host: str, site: Site) -> Optional[str]:
    try:
        return site.find(host).address
    except BadInput:  # make_plan refuses this host if the job uses the host
        return None


def _addresses(record: Network) -> List[str]:
    """Return all addresses of a node, except those of loopback interfaces."""
    listed = [one for those in record.interfaces.values() for one in those]
    return [one.split("/")[0] for one in listed if not one.startswith("127.")]
