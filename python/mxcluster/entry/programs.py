"""How the package's programs are asked for a command, with the rights of the training user."""
import io
import json
import os
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import answer, processes, user
from ..errors import MxclusterError

Json = Dict[str, Any]

# The descriptor that this process answers to: no child's business.
ANSWERS = []  # type: List[int]
# Seconds after which a command that no process of the user's has answered is given up.
LIMIT, LIMITS = 300.0, {"collect": 3600.0}
OF_NODE = ("look", "record", "check", "machine")


def argv_for(asked: Json, target: Optional[int] = None) -> List[str]:
    """The command line of mxcluster.node or mxcluster.agent for it; `target` is a descriptor that `collect` writes to."""
    command = asked["command"]
    if command in OF_NODE:
        return [command, "--request", json.dumps(asked["request"], sort_keys=True)]
    if command == "jobs":
        return ([command, "--jobs-dir", os.path.abspath(asked["jobs_dir"])] + (["--job", asked["job"]] if asked["job"] else [])
                + ([] if asked["check"] else ["--clear"]))
    argv = [command, "--job-dir", os.path.abspath(asked["job_dir"])]
    if command == "prepare" or command == "start" and asked["plan"]:
        argv += ["--plan"] * (command == "start") + ["--secret-env"]
    if command == "wait":
        argv += ["--seconds", str(asked["seconds"]), "--renew"] + (["--took", asked["took"]] if asked["took"] else [])
    elif command == "stop":
        argv += ["--peer"] if asked["peer"] else []
    elif command == "piece":
        argv += ["--file", asked["file"], "--offset", str(asked["offset"]), "--most", str(asked["most"])]
    elif command == "logs":
        argv += ["--lines", str(asked["lines"])]
    elif command == "collect":
        argv += ["--output", os.path.abspath(asked["output"])] if target is None else ["--output-fd", str(target)]
    return argv


def answer_of(asked: Json, target: Optional[int] = None) -> Json:
    """The answer of the package to a command, given by a child process of the user's, if there is a user to become.

    An agent that this starts lives on. It gets a process that has never been root's: the kernel keeps things of others from
    their owner.
    """
    refusing = Refusing(asked["check"])
    argv, entry = argv_for(asked, target), user.other(refusing, asked["user"])
    if asked["command"] == "start":
        return _heard(argv, *_of_program(argv, entry, told(asked)))
    if entry is None:
        return _heard(argv, *_in_process(argv, told(asked)))
    if asked["command"] == "record":
        _prove_that_it_runs(entry)
    limit = LIMITS.get(asked["command"], LIMIT) + (asked["seconds"] or 0)
    return _heard(argv, *user.ask_as(refusing, entry, _child_of(os.getpid(), argv, told(asked)), limit))


def _child_of(parent: int, argv: List[str], stdin: str) -> Callable[[], Tuple[Json, int]]:
    """What the child does, once it is the user's: it ends with its parent, and no other process of the user's looks into it."""
    def work():
        processes.set_pdeathsig(parent, signal.SIGTERM)
        processes.hide()
        for descriptor in ANSWERS:
            os.close(descriptor)
        return _in_process(argv, stdin)
    return work


def _prove_that_it_runs(entry: Any) -> None:
    """A job will start this Python as the user: MxclusterError if that cannot be done."""
    try:
        done = subprocess.run([sys.executable, "-I", "-c", ""], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, cwd="/", preexec_fn=lambda: user.drop_rights(entry))
        why = done.stderr.decode(errors="replace").strip() if done.returncode else ""
    except (OSError, subprocess.SubprocessError) as error:
        why = str(error)
    if why:
        raise MxclusterError("%s cannot run %s, with which it shall train: %s. Let everybody read and enter the folders on the "
                             "way to it, and to the Python that it was made with" % (entry.pw_name, sys.executable, why))


def told(asked: Json) -> str:
    """What goes to the stdin of who prepares a job: nothing of it may be on a command line."""
    wanted = ("plan", "secret_env", "token", "script")
    return json.dumps({name: asked[name] for name in wanted if asked.get(name)}, sort_keys=True)


class Refusing:
    """What `mxcluster.user` wants of a module."""

    def __init__(self, check_mode: bool):
        self.check_mode = check_mode

    def fail_json(self, msg: str) -> None:
        """Raises it."""
        raise MxclusterError(msg)


def _in_process(argv: List[str], stdin: str) -> Tuple[Json, int]:
    """(answer, exit status) of a command line, carried out here. What libraries print goes where errors go."""
    sys.stdin, sys.stdout = io.StringIO(stdin), sys.stderr
    try:
        return answer.of(_run, argv)
    finally:
        sys.stdin, sys.stdout = sys.__stdin__, sys.__stdout__


def _run(argv: List[str]) -> Json:
    return program_of(argv[0]).run(argv)


def program_of(command: str) -> Any:
    """The module that carries out a command. It is imported only now, and mostly by the user who needs it in a job, too."""
    if command in OF_NODE:
        from mxcluster import node as program
    else:
        from mxcluster.agent import __main__ as program
    return program


def _of_program(argv: List[str], entry: Any, stdin: str) -> Tuple[Json, int]:
    try:
        done = subprocess.run([sys.executable, "-m", "mxcluster.agent"] + argv, input=stdin.encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd="/", preexec_fn=(lambda: user.drop_rights(entry)) if entry else None)
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": "%s cannot be run as %s: %s" % (sys.executable, entry.pw_name if entry else "yourself", error)}, 1
    try:
        return json.loads(done.stdout.decode().splitlines()[-1]), done.returncode
    except (IndexError, ValueError, RecursionError):
        last = "\n".join(done.stderr.decode(errors="replace").strip().splitlines()[-5:]) or "(nothing)"
        return {"error": "`%s` ended with status %d and without an answer. Its last words:\n%s"
                         % (" ".join(argv[:3]), done.returncode, last)}, 1


def _heard(argv: List[str], found: Any, code: int) -> Json:
    if code == 0 and isinstance(found, dict):
        return found
    raise MxclusterError(found["error"] if isinstance(found, dict) and "error" in found else
                         "`%s` ended with status %d and without an answer" % (" ".join(argv[:3]), code))


def call(argv: List[str]) -> Tuple[int, str, str]:
    """(exit status, stdout, stderr) of a program of the system's."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
    except OSError as error:
        return 127, "", "`%s` cannot be run: %s" % (argv[0], error.strerror)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
