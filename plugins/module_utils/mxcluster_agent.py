# -*- coding: utf-8 -*-
"""How the package's programs on a node are asked, and what they answer."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os

NODE_COMMANDS = ("look", "record", "check")
# What Ansible acts on in a module's result. The programs that answer are the training user's: they say nothing to Ansible.
ANSIBLES_OWN = ("add_group", "add_host", "changed", "deprecations", "diff", "exception", "failed", "invocation", "msg", "rc",
                "results", "skipped", "unreachable", "warnings")

def argv_for(params, target=None):
    """The command line that carries out the module's parameters; `target` is a descriptor that `collect` writes to."""
    command = params["command"]
    if command in NODE_COMMANDS:
        return [params["python"], "-m", "mxcluster.node", command,
                "--request", json.dumps(params["request"], sort_keys=True)]
    if command == "jobs":
        return [params["python"], "-m", "mxcluster.agent", command, "--jobs-dir", os.path.abspath(params["jobs_dir"])] + (
            ["--job", params["job"]] if params["job"] else [])
    argv = [params["python"], "-m", "mxcluster.agent", command, "--job-dir", os.path.abspath(params["job_dir"])]
    if command == "start" and params["plan"]:
        argv += ["--plan"] + with_secrets(params)
    if command == "wait":
        argv += ["--seconds", str(params["seconds"]), "--renew"] + (["--took", params["took"]] if params["took"] else [])
    elif command == "stop":
        argv += ["--peer"] if params["peer"] else []
    elif command == "piece":
        argv += ["--file", params["file"], "--offset", str(params["offset"]), "--most", str(params["most"])]
    elif command == "logs":
        argv += ["--lines", str(params["lines"])]
    elif command == "collect":
        argv += ["--output", os.path.abspath(params["output"])] if target is None else ["--output-fd", str(target)]
    return argv


def told_to_start(params):
    """What goes to the stdin of who prepares a job: nothing of it may be on a command line."""
    if not with_secrets(params):
        return json.dumps(params["plan"])
    told = {name: params[name] for name in ("plan", "secret_env", "token") if params[name]}
    return json.dumps(told, sort_keys=True)


def with_secrets(params):
    """The argument for who reads the plan from stdin, if secrets are there too."""
    return ["--secret-env"] if params["secret_env"] or params["token"] else []


def run_as(module, argv, stdin=None, pass_fds=None):
    """The answer of the package's program, run as the user, if there is one, while this module goes on as root."""
    start = ["runuser", "-u", module.params["user"], "--"] if module.params["user"] else []
    code, out, err = module.run_command(start + argv, data=stdin, cwd="/", pass_fds=pass_fds, expand_user_and_vars=False)
    answer, error = parse_answer(argv, code, out, err)
    if error:
        module.fail_json(msg=error)
    return answer


def ask_root(module, command):
    """The answer of a command of mxcluster.node to root: no process of the training user's can write into it."""
    argv = [module.params["python"], "-I", "-m", "mxcluster.node", command]
    code, out, err = module.run_command(argv, cwd="/", expand_user_and_vars=False)
    answer, error = parse_answer(argv, code, out, err)
    if error:
        module.fail_json(msg=error)
    return answer


def parse_answer(argv, code, out, err):
    """(answer, None) from what the program printed, or (None, text of the error)."""
    try:
        # The answer is one line, the last: libraries may have printed others while they were imported.
        answer = json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        tail = "\n".join((err or out).strip().splitlines()[-5:]) or "(nothing)"
        cure = ": run provision.yml" if "No module named" in tail else ""
        return None, "%s ended with status %d and without an answer%s. Its last words:\n%s" % (
            " ".join(argv[:4]), code, cure, tail)
    if not isinstance(answer, dict):
        return None, "%s has answered with something else than an object" % " ".join(argv[:4])
    if code != 0:
        return None, str(answer.get("error") or "%s ended with status %d" % (" ".join(argv[:4]), code))
    return {key: value for key, value in answer.items()
            if key not in ANSIBLES_OWN and not key.startswith(("_", "ansible_"))}, None
