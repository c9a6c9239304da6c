"""Run the probe or the agent with the rights of the training user."""

import io
import json
import os
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from mxcluster.errors import DAMAGED, MxclusterError
from mxcluster.node import json_cli, processes, training_user

Json = Dict[str, Any]

# File descriptors for the answer of this process. Child processes close these descriptors.
ANSWERS = []  # type: List[int]
# Timeout in seconds for the answer of the training user's process to a command.
LIMIT, LIMITS = 300.0, {"collect": 3600.0}
OF_NODE = ("look", "record", "check", "machine")


def argv_for(asked: Json, target: Optional[int] = None) -> List[str]:
    """Return the arguments of mxcluster.node.probe or mxcluster.agent for asked["command"].

    `target`: the file descriptor into which `collect` writes. Without `target`, `collect` writes to
    the path asked["output"].
    """
    command = asked["command"]
    if command in OF_NODE:
        return [command, "--request", json.dumps(asked["request"], sort_keys=True)]
    if command == "jobs":
        return (
            [command, "--jobs-dir", os.path.abspath(asked["jobs_dir"])]
            + (["--job", asked["job"]] if asked["job"] else [])
            + ([] if asked["check"] else ["--clear"])
        )
    argv = [command, "--job-dir", os.path.abspath(asked["job_dir"])]
    if command == "prepare" or command == "start" and asked["plan"]:
        argv += ["--plan"] * (command == "start") + ["--secret-env"]
    if command == "wait":
        argv += ["--seconds", str(asked["seconds"]), "--renew"] + (
            ["--took", asked["took"]] if asked["took"] else []
        )
    elif command == "stop":
        argv += ["--peer"] if asked["peer"] else []
    elif command == "piece":
        argv += [
            "--file",
            asked["file"],
            "--offset",
            str(asked["offset"]),
            "--most",
            str(asked["most"]),
        ]
    elif command == "logs":
        argv += ["--lines", str(asked["lines"])]
    elif command == "collect":
        argv += (
            ["--output", os.path.abspath(asked["output"])]
            if target is None
            else ["--output-fd", str(target)]
        )
    return argv


def answer_of(asked: Json, target: Optional[int] = None) -> Json:
    """Run the probe or the agent with asked["command"], and return the program's answer (dict).

    If asked["user"] is another user, a child process with that user's rights runs the program.
    `target`: see `argv_for`. Raises MxclusterError if the command fails.

    The command `start` runs in a new Python process, because the started agent outlives the
    command. In a fork of root's process the kernel would deny the agent access to its own files in
    /proc.
    """
    refusing = Refusing(asked["check"])
    argv, entry = argv_for(asked, target), training_user.other(refusing, asked["user"])
    if asked["command"] == "start":
        return _heard(argv, *_of_program(argv, entry, told(asked)))
    if entry is None:
        return _heard(argv, *_in_process(argv, told(asked)))
    if asked["command"] == "record":
        _prove_that_it_runs(entry)
    limit = LIMITS.get(asked["command"], LIMIT) + (asked["seconds"] or 0)
    return _heard(
        argv,
        *training_user.ask_as(refusing, entry, _child_of(os.getpid(), argv, told(asked)), limit),
    )


def _child_of(parent: int, argv: List[str], stdin: str) -> Callable[[], Tuple[Json, int]]:
    """Return a function that carries out `argv` in the child process (see `_in_process`).

    The child ends with the process `parent` (a pid). Other processes of the same user cannot read
    the child's memory or open the child's descriptors. `stdin`: the text that the command reads.
    """

    def work() -> Tuple[Json, int]:
        processes.set_pdeathsig(parent, signal.SIGTERM)
        processes.hide()
        for descriptor in ANSWERS:
            os.close(descriptor)
        return _in_process(argv, stdin)

    return work


def _prove_that_it_runs(entry: Any) -> None:
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


def told(asked: Json) -> str:
    """Return the plan, secrets, token and script in `asked` as JSON for stdin of the agent.

    These values go through stdin, because any user of the node can read a command line.
    """
    wanted = ("plan", "secret_env", "token", "script")
    return json.dumps({name: asked[name] for name in wanted if asked.get(name)}, sort_keys=True)


class Refusing:
    """A substitute for AnsibleModule, as an argument of `mxcluster.node.training_user`."""

    def __init__(self, check_mode: bool) -> None:
        self.check_mode = check_mode

    def fail_json(self, msg: str) -> None:
        """Raise MxclusterError with `msg`."""
        raise MxclusterError(msg)


def _in_process(argv: List[str], stdin: str) -> Tuple[Json, int]:
    """Run the command line `argv` in this process and return (answer, exit status).

    `stdin`: the text that the command reads. Output of libraries goes to stderr.
    """
    sys.stdin, sys.stdout = io.StringIO(stdin), sys.stderr
    try:
        return json_cli.of(_run, argv)
    finally:
        sys.stdin, sys.stdout = sys.__stdin__, sys.__stdout__


def _run(argv: List[str]) -> Json:
    if argv[0] == "look":
        from mxcluster.agent import claims

        return program_of("look").run(argv, claims.held)
    return program_of(argv[0]).run(argv)


def program_of(command: str) -> Any:
    """Return the module that carries out `command`: the probe or the agent's command line.

    Most calls happen in the training user's process. The import is inside the function, because
    root's process works without the module.
    """
    if command in OF_NODE:
        from mxcluster.node import probe

        return probe
    from mxcluster.agent import __main__

    return __main__


def _of_program(argv: List[str], entry: Any, stdin: str) -> Tuple[Json, int]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mxcluster.agent"] + argv,
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            preexec_fn=(lambda: training_user.drop_rights(entry)) if entry else None,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {
            "error": "cannot run %s as %s on this node (%s): run provision.yml, which checks "
            "this Python" % (sys.executable, entry.pw_name if entry else "the login user", error)
        }, 1
    try:
        return json.loads(done.stdout.decode().splitlines()[-1]), done.returncode
    except (IndexError,) + DAMAGED:
        last = (
            "\n".join(done.stderr.decode(errors="replace").strip().splitlines()[-5:]) or "(nothing)"
        )
        return {
            "error": "`%s` ended with status %d and without an answer on this node. Correct the "
            "error in the last output, and run the playbook again:\n%s"
            % (" ".join(argv[:3]), done.returncode, last)
        }, 1


def _heard(argv: List[str], found: Any, code: int) -> Json:
    if code == 0 and isinstance(found, dict):
        return found
    raise MxclusterError(
        found["error"]
        if isinstance(found, dict) and "error" in found
        else "`%s` ended with status %d and without an answer: check the training user's processes "
        "on this node, and run the playbook again" % (" ".join(argv[:3]), code)
    )


def call(argv: List[str]) -> Tuple[int, str, str]:
    """Run the system program `argv`, and return (exit status, stdout, stderr).

    If the program does not start, the exit status is 127, and stderr has the reason.
    """
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
        )
    except OSError as error:
        return 127, "", "cannot run `%s` on this node: %s" % (argv[0], error.strerror)
    return (
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )
