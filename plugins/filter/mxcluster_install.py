"""Filters: explain failed installations with mxcluster.cluster.install_failures."""

from mxcluster.cluster import install_failures


class FilterModule(object):
    """The filter plugins that Ansible loads."""

    def filters(self):
        """Return the filters of this file by name."""
        return {
            "mxcluster_explained": install_failures.explained,
            "mxcluster_is_full": install_failures.is_full,
            "mxcluster_lacks_dependencies": install_failures.lacks_dependencies,
            "mxcluster_needs": install_failures.needs,
            "mxcluster_said": install_failures.said,
            "mxcluster_updates": install_failures.updates,
        }
