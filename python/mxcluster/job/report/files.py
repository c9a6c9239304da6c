"""The files of a run folder: where they are, and reading and replacing them."""
import contextlib
import json
import os
from typing import Any, Dict, Iterator, List, Optional

from mxcluster.errors import BadInput
from mxcluster.package import OWN_FOLDERS
from mxcluster.verdict import printable

TAIL_LINES = 60
TAIL_BYTES = 64 * 1024


def node_dir(run_dir: str, host: str) -> str:
    """The folder of what a node sent."""
    return os.path.join(run_dir, "nodes", host)


def read_plan(run_dir: str) -> Dict[str, Any]:
    """The plan of the run. Raises BadInput when the folder does not hold a run."""
    found = read_json(os.path.join(run_dir, "plan.json"))
    if found is None:
        raise BadInput("%s has no plan.json: give the folder of a run, runs/<job id>" % run_dir)
    return found


def read_status(run_dir: str, host: str) -> Optional[Dict[str, Any]]:
    """The last status that the agent of `host` wrote, None when there is none."""
    return read_json(os.path.join(node_dir(run_dir, host), "status.json"))


def own_files(run_dir: str, host: str) -> int:
    """How many files that a script wrote have come from `host`."""
    return sum(len(names) for _, _, names in os.walk(os.path.join(node_dir(run_dir, host), OWN_FOLDERS)))


def logs(run_dir: str, plan: Dict[str, Any]) -> Dict[str, List[str]]:
    """{process name: last lines of its log}; no lines for a log that was not collected."""
    return {process["name"]: tail(os.path.join(node_dir(run_dir, process["host"]), process["name"] + ".log"))
            for process in plan["processes"]}


def tail(path: str, lines: int = TAIL_LINES) -> List[str]:
    """The last lines of a file without control characters, [] when there is no such file."""
    try:
        with open(path, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            content = stream.read()
    except FileNotFoundError:
        return []
    return [printable(line) for line in content.decode("utf-8", "replace").split("\n")[-lines - 1:] if line.strip()]


def read_json(path: str) -> Optional[Any]:
    """The content of a JSON file, None when there is no such file. Raises BadInput when it is not JSON."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadInput("%s is not valid JSON: %s" % (path, error)) from error


def write_json(path: str, content: Any) -> None:
    """Replace a JSON file as a whole."""
    with replacing(path) as stream:
        json.dump(content, stream, indent=1)
        stream.write("\n")


@contextlib.contextmanager
def replacing(path: str, binary: bool = False) -> Iterator[Any]:
    """A stream whose content takes the place of `path` when all of it has been written, and not before."""
    with open(path + ".new", "wb" if binary else "w", encoding=None if binary else "utf-8") as stream:
        yield stream
    os.replace(path + ".new", path)
