"""The first word to a node, over Ansible's own connection: what cannot work is said here, before anything is touched.

Documentation is with the module of the same name.
"""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import time

from ansible import constants as C
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display

from mxcluster.node_task import NodeTask

display = Display()


class ActionModule(NodeTask):
    """Asks the node who one is there, and for a Python."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super(ActionModule, self).run(tmp, task_vars)
        asked = time.time()
        told, _ = self.hello(self._task.args, task_vars)
        if told.get("failed") and not told.pop("refused", False) and not boolean(self._task.args.get("required", True)):
            display.display("not asked: %s" % told["msg"], color=C.COLOR_WARN)
            told = {"lost": {"since": asked, "why": told["msg"]}}
        return dict(result, changed=False, **told)
