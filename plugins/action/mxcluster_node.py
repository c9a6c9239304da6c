"""Beside the module of the same name, on the controller: what one node has come to is told to those who wait for others.

ps-lite's heartbeats tell the nodes themselves, but only once all processes have met: a script that fails on one node before
it makes its kv-store would leave the others waiting for it.
"""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Runs the module; a `wait` with a `board` ends its node's part when another node's has failed."""

    def run(self, tmp=None, task_vars=None):
        result = super(ActionModule, self).run(tmp, task_vars)
        arguments = dict(self._task.args)
        result.update(self._ask(arguments, task_vars))
        if arguments.get("board") and arguments.get("command") == "wait" and result.get("status"):
            board, host = arguments["board"], task_vars["inventory_hostname"]
            if failed(result["status"]):
                post(board, host)
            elif not result["ended"] and others(board, host):
                stopped = self._ask(dict(arguments, command="stop"), task_vars)
                if not stopped.get("failed"):
                    result.update(ended=True, status=stopped["status"])
        return result

    def _ask(self, arguments, task_vars):
        return self._execute_module(module_name="mxcluster_node", module_args=arguments, task_vars=task_vars)


def failed(status):
    """Whether a node's part of a job has ended otherwise than well."""
    return status["state"] == "ended" and status["reason"] != "done"


def post(board, host):
    """Puts the host's name on the board, a folder on the controller."""
    if not os.path.isdir(board):
        try:
            os.makedirs(board)
        except OSError:
            if not os.path.isdir(board):  # another fork may have made it
                raise
    open(os.path.join(board, host), "w").close()


def others(board, host):
    """The hosts on the board but this one, sorted."""
    return sorted(name for name in os.listdir(board) if name != host) if os.path.isdir(board) else []
