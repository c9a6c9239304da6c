"""Filters: functions of the package for the templates of the roles.

FILTERS names the function of each filter. A refused value becomes a failed task with the message of
the function.
"""

import re

from ansible.errors import AnsibleFilterError, AnsibleUndefinedVariable
from jinja2.exceptions import UndefinedError
from jinja2.runtime import Undefined

from mxcluster.ansible import network_facts
from mxcluster.ansible.preflight_checks import undefined
from mxcluster.cluster import container_image, driver, install_failures, ssh_mesh, versions
from mxcluster.errors import MxclusterError
from mxcluster.job import kept_runs
from mxcluster.job.plan.elastic import hosts_to_try
from mxcluster.job.plan.mpi_inputs import Engine, different_engines
from mxcluster.job.verdict_text import printable
from mxcluster.model import node_record
from mxcluster.model.checkpoint import Offer
from mxcluster.model.host_variables import PLAN, read_by
from mxcluster.model.module_answers import MachineAnswer
from mxcluster.model.node_record import Driver
from mxcluster.model.shapes import Wrong
from mxcluster.model.software import Environment, NeededDriver

GROUPS = ("scheduler", "servers", "workers")
# The group of hosts that Slurm or Grid Engine may choose. No playbook contacts these hosts, but
# their host variables count.
BATCH_NODES = "batch_nodes"


def refusing(function):
    """Return a filter that calls `function`, and fails with the message of its refusal."""

    def call(*arguments, **options):
        try:
            return function(*arguments, **options)
        except (MxclusterError, Wrong) as refusal:
            raise AnsibleFilterError(str(refusal))

    return call


def named(function):
    """Return a filter that calls `function`, and names the host in an error.

    Its first argument is the host's name, which stands before the bar of the template.
    """

    def call(host, *arguments, **options):
        try:
            return function(*arguments, **options)
        except (MxclusterError, Wrong) as refusal:
            raise AnsibleFilterError("%s: %s" % (host, refusal))

    return call


def mxcluster_elastic(given, groups):
    """Return the hosts that an elastic job may lose, see `elastic.hosts_to_try`.

    Args: `given` {name: value} of the knobs elastic and without; `groups` Ansible's variable of
    this name.
    """
    knobs = [given.get(name) for name in ("elastic", "without")]
    return hosts_to_try(*knobs, groups)


def mxcluster_versions(node, choice):
    """Return the software to install on a node as JSON, as described at `versions.decide`."""
    return versions.read(node["host"], choice, node).encode()


def mxcluster_image_recipe(environment, *parts):
    """Return the recipe of the container image as JSON, see `container_image.recipe`."""
    return container_image.recipe(Environment.decode(environment), *parts).encode()


def mxcluster_image_nodes(seen, hosts, name, wanted):
    """Return the nodes that give and get the image as JSON, see `container_image.distribution`."""
    return container_image.distribution(
        seen, list(hosts), name, container_image.Wanted.decode(wanted)
    ).encode()


def mxcluster_driver_plan(settings, needed, machine, rpms):
    """Return the plan for the driver of a node as JSON, see `driver.plan`."""
    return driver.plan(
        driver.Settings.decode(settings),
        NeededDriver.decode(needed),
        MachineAnswer.decode(machine),
        rpms,
    ).encode()


def mxcluster_interfaces(facts_of):
    """Return {host: Network as JSON}. Args: `facts_of` {host: the variable ansible_facts}."""
    return {host: network_facts.of(host, facts).encode() for host, facts in facts_of.items()}


def mxcluster_record(facts, host, places):
    """Return the record of the node `host` as JSON.

    Args: `facts` that the node reports; `places` {name: value} of the node's paths and of other
    facts, which replace facts of the same name in `facts`.
    """
    return node_record.make(host, facts, places).encode()


def mxcluster_inventory(hostvars, groups):
    """Return {"groups": {group: [host]}, "hosts": {host: {variable: value}}} for a plan.

    The hosts have only the variables that a plan reads, and no facts, so --limit has no effect.

    Args: `hostvars` and `groups` Ansible's variables of these names.

    Raises AnsibleFilterError with all host variables whose templates use an undefined variable.
    """
    members = {group: list(groups.get(group, [])) for group in GROUPS}
    hosts, problems = {}, {}
    for host in sorted(set(sum(members.values(), [])).union(groups.get(BATCH_NODES, []))):
        hosts[host], known = {}, hostvars[host]
        for name in read_by(PLAN):
            try:
                if name in known:
                    hosts[host][name] = defined(known[name])
            except (AnsibleUndefinedVariable, UndefinedError) as error:
                problems.setdefault((name, str(error)), []).append(host)
    if problems:
        raise AnsibleFilterError(undefined(problems))
    return {"groups": members, "hosts": hosts}


def defined(value):
    """Return the value of a host variable.

    Raises AnsibleUndefinedVariable for a template with an undefined variable, whose text
    ansible-core 2.16 leaves in `hostvars`. Newer versions raise the error themselves.
    """
    if isinstance(value, Undefined) or isinstance(value, str) and re.search(r"\{[{%]", value):
        raise AnsibleUndefinedVariable(str(value))
    return value


def mxcluster_mpi_engines(engines):
    """Return a message if nodes have different MPI engines, from {host: engine of the look}."""
    found = {
        host: Engine.decode(one) if (one or {}).get("engine") else None
        for host, one in engines.items()
    }
    return printable(different_engines(found))


def mxcluster_newest_checkpoint(answer):
    """Return the name of a node's newest checkpoint, "" without one.

    Args: `answer` the result of mxcluster_node command=status.
    """
    offer = answer.get("checkpoints")
    return Offer.decode(offer).newest if offer else ""


FILTERS = {
    "mxcluster_driver_plan": named(mxcluster_driver_plan),
    "mxcluster_driver_choose": named(lambda *given: driver.choose(*given).encode()),
    "mxcluster_driver_kernels": lambda machine: driver.kernels(MachineAnswer.decode(machine)),
    "mxcluster_driver_vault": driver.vault,
    "mxcluster_driver_unbuilt": lambda version, wanted, machine, status: driver.unbuilt(
        version, wanted, MachineAnswer.decode(machine), status
    ),
    "mxcluster_driver_lacking_arguments": driver.lacking_arguments,
    "mxcluster_driver_busy": lambda users, jobs: driver.busy(users, driver.Jobs.decode(jobs)),
    "mxcluster_driver_restart": lambda state: driver.restart_reason(Driver.decode(state)),
    "mxcluster_elastic": mxcluster_elastic,
    "mxcluster_explained": install_failures.explained,
    "mxcluster_image_ids": refusing(container_image.ids_in),
    "mxcluster_image_nodes": refusing(mxcluster_image_nodes),
    "mxcluster_image_recipe": refusing(mxcluster_image_recipe),
    "mxcluster_interfaces": refusing(mxcluster_interfaces),
    "mxcluster_inventory": mxcluster_inventory,
    "mxcluster_is_full": install_failures.is_full,
    "mxcluster_lacks_dependencies": install_failures.lacks_dependencies,
    "mxcluster_mpi_engines": mxcluster_mpi_engines,
    "mxcluster_needs": install_failures.needs,
    "mxcluster_newest_checkpoint": mxcluster_newest_checkpoint,
    "mxcluster_old_jobs": kept_runs.announcement,
    "mxcluster_other_cublas": versions.other_cublas,
    "mxcluster_record": refusing(mxcluster_record),
    "mxcluster_messages": install_failures.messages,
    "mxcluster_ssh": ssh_mesh.of_ssh,
    "mxcluster_ssh_on": ssh_mesh.on_node,
    "mxcluster_updates": install_failures.updates,
    "mxcluster_versions": refusing(mxcluster_versions),
}


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self):
        """Return {name of a filter: its function}."""
        return FILTERS
