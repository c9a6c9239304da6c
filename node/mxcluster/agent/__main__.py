"""`python -m mxcluster.agent prepare|start|run|wait|status|stop|collect --job-dir DIR`: one JSON object on stdout.

Exit status 0; on an error 1, and the object is {"error": "what is wrong, where, and what to do"}.
"""
import json
import sys
from typing import List

from mxcluster import answer
from mxcluster.agent import commands
from mxcluster.agent.folder import JobFolder


def run(argv: List[str]) -> dict:
    """Carry out one command line and return its answer."""
    parser = answer.Parser(prog="mxcluster.agent", description="Runs one node's processes of one job.")
    parser.add_argument("command", choices=("prepare", "start", "run", "wait", "status", "stop", "collect"))
    parser.add_argument("--job-dir", required=True, help="the job's folder on this node; holds plan.json")
    parser.add_argument("--plan", action="store_true", help="prepare, start: read this node's part of the plan from stdin")
    parser.add_argument("--seconds", type=float, default=5.0, help="wait: how long at most (default: 5)")
    parser.add_argument("--renew", action="store_true", help="wait: renew the job's lease meanwhile")
    parser.add_argument("--output", help="collect: the tar file to write")
    given = parser.parse_args(argv)
    folder = JobFolder(given.job_dir)
    if given.command == "start":
        return commands.start(folder, json.load(sys.stdin) if given.plan else None)
    if given.command == "prepare":
        return commands.prepare(folder, json.load(sys.stdin))
    if given.command == "wait":
        return commands.wait(folder, given.seconds, given.renew)
    if given.command == "collect":
        if not given.output:
            parser.error("collect needs --output FILE")
        return commands.collect(folder, given.output)
    return {"run": commands.run, "status": commands.status, "stop": commands.stop}[given.command](folder)


if __name__ == "__main__":
    sys.exit(answer.give(run, sys.argv[1:]))
