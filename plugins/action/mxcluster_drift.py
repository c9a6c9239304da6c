"""Beside the module of the same name, on the controller: compares what the node shows with what is remembered of it."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display
from ansible.utils.unsafe_proxy import wrap_var

from mxcluster import drift, specs, verdict
from mxcluster.node_task import NodeTask, completed

# Variables that decide nothing of what goes on a node, or only in the run that they are given to.
OTHERS = ("train_job_", "jobs_", "verify_", "preflight_", "drift_", "ssh_mesh_new_key")
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

display = Display()


class ActionModule(NodeTask):
    """Says why there is something to do on the node, or remembers how it is now."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result, given = super(ActionModule, self).run(tmp, task_vars), self._task.args
        if given.get("command") == "common":
            return dict(result, changed=False, common=self._common(given))
        host, path, common = task_vars["inventory_hostname"], given["path"], given["common"]
        values = task_vars["hostvars"][host]
        variables = {name: values[name] for name in common["variables"] if name in values}
        digest = drift.digest_of(common["digest"], given["controller_files"], {"wanted": given["wanted"], "variables": variables})
        if given.get("command") == "remember":
            if self._task.check_mode:
                return dict(result, changed=False)
            asked = self._look(given, task_vars)
            if not asked.get("failed"):
                drift.remember(path, digest, asked["seen"])
            return dict(result, **asked)
        why = ("it is asked for" if boolean(given.get("anyway") or False)
               else self._why(given, drift.remembered(path), digest, task_vars))
        if why:
            display.display("%s: %s" % (host, verdict.printable(why)))
            if os.path.exists(path) and not self._task.check_mode:
                os.remove(path)  # until all is done
        return dict(result, changed=False, why=wrap_var(why))

    @staticmethod
    def _common(given):
        """Compute the part of the digest that all nodes share. It takes time for each node, so it is computed once in a run."""
        sources = given.get("sources") or drift.of_sources(PROJECT)
        records = [os.path.join(given["records_dir"], node + ".json") for node in given["nodes"]]
        return {"sources": sources, "digest": drift.digest_of(sources, records, given["wanted"]),
                "variables": [name for name in specs.documented(PROJECT) if not name.startswith(OTHERS)]}

    def _why(self, given, known, digest, task_vars):
        why = drift.why_before_asking(known, digest)
        if why:
            return why
        asked = self._look(given, task_vars)
        if asked.get("failed"):
            return asked.get("msg")
        before = drift.remembered(os.path.join(given["records_dir"], task_vars["inventory_hostname"] + ".json"))
        told = self.ask(completed({"command": "record", "python": given["python"], "user": given["user"],
                                   "request": {"known": before}}), task_vars)
        if told.get("failed") or not isinstance(told.get("record"), dict):
            return told.get("msg") or "it tells nothing of itself"
        return drift.why(known, asked["seen"], before, told["record"])

    def _look(self, given, task_vars):
        wanted = ("files", "roots", "user", "user_files")
        return self._execute_module(module_name="mxcluster_drift", module_args={name: given[name] for name in wanted},
                                    task_vars=task_vars)
