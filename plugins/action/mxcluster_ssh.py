"""Run the module mxcluster_ssh on a node, and check the answer on the controller."""

from mxcluster.ansible.module_task import ModuleTask


class ActionModule(ModuleTask):
    """The action plugin of `mxcluster_ssh`."""
