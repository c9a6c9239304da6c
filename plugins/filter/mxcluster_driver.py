"""Filters: decide about NVIDIA's driver with mxcluster.cluster.driver."""

from ansible.errors import AnsibleFilterError

from mxcluster.cluster import driver
from mxcluster.errors import MxclusterError
from mxcluster.model.node_record import Driver


def named(function):
    """Return a filter that calls `function`, and names the host in an error.

    Its first argument is the host's name, which stands before the bar of the template.
    """

    def call(host, *arguments, **options):
        try:
            return function(*arguments, **options)
        except MxclusterError as refusal:
            raise AnsibleFilterError("%s: %s" % (host, refusal))

    return call


class FilterModule(object):
    """The filter plugins that Ansible loads."""

    def filters(self):
        """Return the filters of this file by name."""
        return {
            "mxcluster_driver_plan": named(driver.plan),
            "mxcluster_driver_choose": named(driver.choose),
            "mxcluster_driver_kernels": driver.kernels,
            "mxcluster_driver_vault": driver.vault,
            "mxcluster_driver_unbuilt": driver.unbuilt,
            "mxcluster_driver_lacking_arguments": driver.lacking_arguments,
            "mxcluster_driver_busy": driver.busy,
            "mxcluster_driver_restart": lambda state: driver.restart_reason(Driver.decode(state)),
        }
