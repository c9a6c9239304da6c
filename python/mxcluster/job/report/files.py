"""Find, read and replace the files of a run folder."""

import json
import os
from typing import Dict, List, Optional

from mxcluster.errors import BadInput
from mxcluster.file_io import read_json, replace
from mxcluster.job.verdict_text import printable
from mxcluster.model.plan import Plan
from mxcluster.model.record import encode
from mxcluster.model.run_record import RunRecord
from mxcluster.model.verdict import CURE, Verdict
from mxcluster.package import OWN_FOLDERS

RECORD = "run.json"
TAIL_LINES = 60
TAIL_BYTES = 64 * 1024


def node_dir(run_dir: str, host: str) -> str:
    """Return the path of the folder in `run_dir` with the files of the node `host`."""
    return os.path.join(run_dir, "nodes", host)


def read_plan(run_dir: str) -> Plan:
    """Return the plan of the run in the folder `run_dir`.

    Raises BadInput if the folder has no plan.json, or if this file is damaged.
    """
    found: Optional[Plan] = read_json(os.path.join(run_dir, "plan.json"), Plan.of_run)
    if found is None:
        raise BadInput("%s has no plan.json: give the folder of a job, runs/<job>" % run_dir)
    return found


def read_verdict(run_dir: str) -> Optional[Verdict]:
    """Return the verdict of the run in the folder `run_dir`, or None without a verdict.

    Raises BadInput if verdict.json is damaged.
    """
    return read_json(os.path.join(run_dir, "verdict.json"), Verdict.decode, CURE)


def read_record(run_dir: str) -> Optional[RunRecord]:
    """Return the record of what ran in `run_dir`, None for a job of an earlier version.

    Raises BadInput if run.json is damaged.
    """
    return read_json(os.path.join(run_dir, RECORD), RunRecord.decode)


def own_files(run_dir: str, host: str) -> int:
    """Return the number of files of the user's script that the controller fetched from `host`."""
    return sum(
        len(names) for _, _, names in os.walk(os.path.join(node_dir(run_dir, host), OWN_FOLDERS))
    )


def logs(run_dir: str, plan: Plan) -> Dict[str, List[str]]:
    """Return {process name: [line, ...]} with the last lines of each process's log.

    The list is empty for a log that the controller did not collect.
    """
    return {
        process.name: tail(os.path.join(node_dir(run_dir, process.host), process.name + ".log"))
        for process in plan.processes
    }


def tail(path: str) -> List[str]:
    """Return the last TAIL_LINES lines of the log file `path`, without blank lines.

    The function removes control characters, and reads at most the last TAIL_BYTES bytes. Of the
    frames of a progress bar, which a carriage return separates, the last one stays.
    The list is empty if the file does not exist.
    """
    try:
        with open(path, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            content = stream.read()
    except FileNotFoundError:
        return []
    return [
        printable(line.rstrip("\r").split("\r")[-1])
        for line in content.decode("utf-8", "replace").split("\n")[-TAIL_LINES - 1 :]
        if line.strip()
    ]


def write_json(path: str, content: object) -> None:
    """Write `content`, records or JSON, to the file `path`, and replace an earlier file."""
    replace(path, json.dumps(encode(content), indent=1) + "\n")
