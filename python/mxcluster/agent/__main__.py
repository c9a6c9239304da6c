"""The command line of the agent, which prints one JSON object on stdout.

`python -m mxcluster.agent COMMAND --job-dir DIR` runs the commands prepare, start, run, launch,
watch, hold, join, wait, status, stop, collect, logs, plan and piece. `python -m mxcluster.agent
jobs --jobs-dir DIR` lists jobs.

The exit status is 0 on success. On an error the exit status is 1, and the object is {"error": "what
is wrong, where, and what to do"}.
"""

import json
import sys
from typing import Any, Callable, Dict, List

from mxcluster.agent import checkpoint_transfer, commands, engine, jobs
from mxcluster.agent.folder import LOG_LINES, JobFolder
from mxcluster.node import json_cli

# The commands of one job. Each takes the job folder and the parsed arguments.
COMMANDS: Dict[str, Callable[[JobFolder, Any], dict]] = {
    "prepare": lambda folder, given: commands.prepare(folder, *_told(given)),
    "start": lambda folder, given: commands.start(folder, *(_told(given) if given.plan else ())),
    "run": lambda folder, given: commands.run(folder),
    "launch": lambda folder, given: engine.launch(folder),
    "watch": lambda folder, given: engine.watch(folder),
    "hold": lambda folder, given: engine.hold(folder),
    "join": lambda folder, given: engine.join(folder),
    "wait": lambda folder, given: commands.wait(folder, given.seconds, given.renew, given.took),
    "status": lambda folder, given: commands.status(folder),
    "stop": lambda folder, given: commands.stop(folder, given.peer),
    "collect": lambda folder, given: commands.collect(folder, given.output or given.output_fd),
    "logs": lambda folder, given: commands.logs(folder, given.lines),
    "plan": lambda folder, given: commands.plan(folder),
    "piece": lambda folder, given: checkpoint_transfer.piece(
        folder, given.file, given.offset, given.most
    ),
}
ARGUMENTS: Dict[str, Dict[str, Any]] = {
    "--job-dir": {"help": "the job's folder on this node; holds plan.json"},
    "--jobs-dir": {"help": "jobs: the folder that holds the folders of all jobs"},
    "--job": {"help": "jobs: the id of a job to list at any age"},
    "--clear": {
        "action": "store_true",
        "help": "jobs: first remove tokens, leases and secrets of ended jobs",
    },
    "--lines": {
        "type": int,
        "default": LOG_LINES,
        "help": "logs: lines of each log (default: %(default)s)",
    },
    "--plan": {
        "action": "store_true",
        "help": "start: read this node's part of the plan from stdin, as the command prepare does",
    },
    "--secret-env": {
        "action": "store_true",
        "help": 'prepare, start: stdin has {"plan": the plan, "secret_env": {variable: value}, '
        '"token": the job\'s token, "script": the script\'s folder as a zip file in base64}',
    },
    "--seconds": {
        "type": float,
        "default": 5.0,
        "help": "wait: the longest wait in seconds (default: 5)",
    },
    "--renew": {"action": "store_true", "help": "wait: renew the job's lease during the wait"},
    "--took": {
        "default": "",
        "help": "wait: name of a checkpoint that the controller has fetched completely",
    },
    "--peer": {
        "action": "store_true",
        "help": "stop: record a failure on another node as the reason of the end",
    },
    "--file": {"default": "", "help": "piece: name of a checkpoint file"},
    "--offset": {
        "type": int,
        "default": 0,
        "help": "piece: the position of the first byte in the checkpoint file",
    },
    "--most": {
        "type": int,
        "default": 1 << 20,
        "help": "piece: the maximum number of bytes (default: %(default)s)",
    },
    "--output": {"help": "collect: the tar file to write"},
    "--output-fd": {
        "type": int,
        "help": "collect: the number of an open descriptor that replaces --output",
    },
}


def run(argv: List[str]) -> dict:
    """Run the command in `argv` and return the command's answer as a dict for JSON.

    Raises BadInput for a wrong command line, and the errors of the command.
    """
    parser = json_cli.Parser(
        prog="mxcluster.agent", description="Runs the processes that a job has on this node."
    )
    parser.add_argument("command", choices=[*COMMANDS, "jobs"])
    for name, how in ARGUMENTS.items():
        parser.add_argument(name, **how)
    given = parser.parse_args(argv)
    if given.command == "jobs":
        if not given.jobs_dir:
            parser.error("the command jobs needs --jobs-dir DIR")
        return jobs.listing(given.jobs_dir, also=given.job, clear=given.clear)
    if not given.job_dir:
        parser.error("the command %s needs --job-dir DIR" % given.command)
    if given.command == "collect" and not given.output and given.output_fd is None:
        parser.error("the command collect needs --output FILE or --output-fd NUMBER")
    return COMMANDS[given.command](JobFolder(given.job_dir), given)


def _told(given: Any) -> tuple:
    """Return the JSON of stdin as a tuple of arguments for `prepare` or `start`.

    With --secret-env the tuple is (plan, secret_env, token, script), where a missing value is None.
    Without --secret-env, stdin is the plan, and the tuple is (plan,). The values come from stdin,
    because any user of the node can read a command line.
    """
    told = json.load(sys.stdin)
    return (
        (told["plan"], told.get("secret_env"), told.get("token"), told.get("script"))
        if given.secret_env
        else (told,)
    )


if __name__ == "__main__":
    sys.exit(json_cli.give(run, sys.argv[1:]))
