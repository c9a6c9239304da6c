"""Carry out commands with the rights of the training user."""

import os
import pwd
import signal
import subprocess
import sys
import types
from typing import List, Optional, Tuple

from mxcluster.errors import MxclusterError
from mxcluster.model.answers import Answer
from mxcluster.model.protocol import RecordNode, Request
from mxcluster.node import json_cli, processes, quota, training_user

# File descriptors for the answer of this process. Child processes close these descriptors.
ANSWERS: List[int] = []


def answer_of(request: Request, target: Optional[int] = None) -> Answer:
    """Carry out `request`, and return the answer.

    If the user of the request is another user, a child process with that user's rights carries out
    the request. The child ends with this process. Other processes of the same user cannot read the
    child's memory or open the child's descriptors. `target`: see `commands.carry_out`. Raises
    MxclusterError if the command fails or if the answer is invalid.
    """
    refusing, parent, spent = Refusing(request.check), os.getpid(), quota.own_cpu()

    def in_child() -> Tuple[object, int]:
        processes.set_pdeathsig(parent, signal.SIGTERM)
        processes.hide()
        quota.OF_PARENT[:] = [spent]
        for descriptor in ANSWERS:
            os.close(descriptor)
        return _in_process(request, target)

    entry = training_user.other(refusing, request.user)
    if entry is None:
        return _checked(request, *_in_process(request, target))
    if isinstance(request, RecordNode):
        _prove_that_it_runs(entry)
    return _checked(request, *training_user.ask_as(refusing, entry, in_child, request.limit()))


def _prove_that_it_runs(entry: pwd.struct_passwd) -> None:
    """Check that the user of the passwd entry `entry` can run this Python, as a job will do.

    Raises MxclusterError if Python does not start.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            preexec_fn=lambda: training_user.drop_rights(entry),
        )
        why = done.stderr.decode(errors="replace").strip() if done.returncode else ""
    except (OSError, subprocess.SubprocessError) as error:
        why = str(error)
    if why:
        raise MxclusterError(
            "the training user %s cannot run the Python %s: %s. If a permission is missing, let "
            "all users read and enter all folders on the path of this Python. For a virtual "
            "environment, do the same for the path of the base Python"
            % (entry.pw_name, sys.executable, why)
        )


class Refusing:
    """A substitute for AnsibleModule, as an argument of `mxcluster.node.training_user`."""

    def __init__(self, check_mode: bool) -> None:
        self.check_mode = check_mode

    def fail_json(self, msg: str) -> None:
        """Raise MxclusterError with `msg`."""
        raise MxclusterError(msg)


def _in_process(request: Request, target: Optional[int]) -> Tuple[object, int]:
    return json_cli.of(lambda: commands().carry_out(request, target).encode())


def commands() -> types.ModuleType:
    """Return the module `commands`.

    Most calls happen in the training user's process. The import is inside the function, because
    root's process works without the module.
    """
    from mxcluster.entry import commands as module

    return module


def _checked(request: Request, found: object, code: int) -> Answer:
    if code == 0:
        return request.decoded("the process of the training user", found)
    raise MxclusterError(
        found["error"]
        if isinstance(found, dict) and "error" in found
        else "the command %s ended with status %d and without an answer: check the training user's "
        "processes on this node, and run the playbook again" % (request.KIND, code)
    )
