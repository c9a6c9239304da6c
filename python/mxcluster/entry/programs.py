"""Run the probe or the agent for a command, with the rights of the training user."""

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

# Descriptors for this process's answer. Children close them.
ANSWERS = []  # type: List[int]
# Seconds that root waits for the answer of the user's process to a command.
LIMIT, LIMITS = 300.0, {"collect": 3600.0}
OF_NODE = ("look", "record", "check", "machine")


def argv_for(asked: Json, target: Optional[int] = None) -> List[str]:
    """Return the arguments of mxcluster.node.probe or mxcluster.agent for asked["command"].

    `target`: the descriptor that `collect` writes to, None to use the path in `asked`.
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
    """Return the answer (dict) of the probe or the agent to asked["command"].

    If there is a training user, a child process with that user's rights runs the program.
    `target`: see `argv_for`. Raises MxclusterError if the command fails.

    The command `start` runs in a new Python, because the started agent outlives the command. In a
    fork of root's process the kernel would deny the agent access to the agent's files in /proc.
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
    """Return a function for the child process, which carries out `argv` with `_in_process`.

    The child ends with the process `parent`. No other process of the user can read the child's
    memory or open its descriptors.
    """

    def work():
        processes.set_pdeathsig(parent, signal.SIGTERM)
        processes.hide()
        for descriptor in ANSWERS:
            os.close(descriptor)
        return _in_process(argv, stdin)

    return work


def _prove_that_it_runs(entry: Any) -> None:
    """Start this Python once as the user of the passwd entry `entry`, as a job will do.

    Raises MxclusterError if that fails.
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
            "the training user %s cannot run the Python %s: %s. If a permission is missing, make "
            "all folders on the path to this Python, and to the Python that its environment uses, "
            "readable and executable for all users" % (entry.pw_name, sys.executable, why)
        )


def told(asked: Json) -> str:
    """Return the plan, secrets, token and script in `asked` as JSON for the stdin of the agent.

    These values go through stdin, because any user of the node can read a command line.
    """
    wanted = ("plan", "secret_env", "token", "script")
    return json.dumps({name: asked[name] for name in wanted if asked.get(name)}, sort_keys=True)


class Refusing:
    """A substitute for an Ansible module, with the parts that `node.training_user` uses."""

    def __init__(self, check_mode: bool):
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

    The import is inside the function, so that it mostly happens in the user's process. That process
    needs the module anyway, and root's process does not.
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
            "error": "%s cannot be run as %s: %s"
            % (sys.executable, entry.pw_name if entry else "the login user", error)
        }, 1
    try:
        return json.loads(done.stdout.decode().splitlines()[-1]), done.returncode
    except (IndexError,) + DAMAGED:
        last = (
            "\n".join(done.stderr.decode(errors="replace").strip().splitlines()[-5:]) or "(nothing)"
        )
        return {
            "error": "`%s` ended with status %d and without an answer. Its last output:\n%s"
            % (" ".join(argv[:3]), done.returncode, last)
        }, 1


def _heard(argv: List[str], found: Any, code: int) -> Json:
    if code == 0 and isinstance(found, dict):
        return found
    raise MxclusterError(
        found["error"]
        if isinstance(found, dict) and "error" in found
        else "`%s` ended with status %d and without an answer" % (" ".join(argv[:3]), code)
    )


def call(argv: List[str]) -> Tuple[int, str, str]:
    """Run the system program `argv` and return (exit status, stdout, stderr).

    The status is 127 if the program cannot be run; then stderr has the reason.
    """
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
        )
    except OSError as error:
        return 127, "", "`%s` cannot be run: %s" % (argv[0], error.strerror)
    return (
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )
