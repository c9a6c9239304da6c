"""Check the hooks of a site before a job starts. This module imports Ansible."""

import os
import shutil
from typing import List, Optional

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import is_encrypted_file

from mxcluster.ansible import attempts
from mxcluster.errors import refuse, shown
from mxcluster.model.hooks import GivenHooks, Hooks
from mxcluster.model.job_knobs import Controller
from mxcluster.model.knob import read


def hooks(given: GivenHooks, cwd: str) -> Hooks:
    """Return the hooks of a job from the knobs notify_command, tasks_before and tasks_after.

    The next attempts at a job have no hooks: the run of the first attempt has run or will run them.

    Args: `given` these knobs, as the user wrote them; `cwd` the folder at which relative paths
    begin.

    Raises BadInput if a value is wrong, if the program does not exist on this controller, or if a
    file is missing or no list of tasks.
    """
    knobs = read(Controller, vars(given))
    if attempts.is_child() and not attempts.parent():
        return Hooks()
    problems: List[str] = []
    notify = list(knobs.notify_command)
    if notify:
        path = os.path.join(cwd, os.path.expanduser(notify[0]))
        program = shutil.which(os.path.normpath(path) if "/" in notify[0] else notify[0])
        if program is None:
            problems.append(
                "notify_command: there is no program %s on this controller: install it, or give "
                "its absolute path" % shown(notify[0])
            )
        notify[0] = program or notify[0]
    files = {}
    for name in ("tasks_before", "tasks_after"):
        paths = [os.path.join(cwd, os.path.expanduser(path)) for path in vars(knobs)[name]]
        files[name] = paths
        problems += ["%s: %s" % (name, wrong) for wrong in map(problem_of, paths) if wrong]
    refuse(problems)
    return Hooks(notify=notify, before=files["tasks_before"], after=files["tasks_after"])


def problem_of(path: str) -> Optional[str]:
    """Return what is wrong with a file of tasks on this controller, None for a good file."""
    if not os.path.isfile(path):
        return "%s is no file on this controller: correct the path" % path
    try:
        with open(path, "rb") as stream:
            if is_encrypted_file(stream):
                return None  # Ansible has the password of the vault only when it runs the tasks
        tasks = DataLoader().load_from_file(path)
    except (AnsibleError, OSError) as error:
        return "%s cannot be read (%s): correct this file" % (path, " ".join(str(error).split()))
    if not isinstance(tasks, list) or not tasks or not all(isinstance(one, dict) for one in tasks):
        return "%s has no list of tasks: write tasks as in tasks/main.yml of a role" % path
    if any("hosts" in one for one in tasks):
        return "%s is a playbook: give a file with the tasks alone, without plays" % path
    return None
