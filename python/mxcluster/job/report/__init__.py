"""What is left of a job on the controller: runs/<job id>/ with its verdict, curves and report.

    plan.json verdict.json report.html curves.png events.jsonl nodes/<host>/... checkpoints/...

Needs jinja2 and matplotlib, which are imported only when something is drawn; nodes need neither.
"""
import contextlib
import json
import os
from typing import Any, Callable, Dict, List, Optional

from mxcluster import events as event_files
from mxcluster import replies, stalls
from mxcluster import verdict as verdicts
from mxcluster.errors import BadInput
from mxcluster.report import archive, arrivals, files

MOST_TOLD = 500  # characters of a line, and lines of a node

def assemble(run_dir: str, archives: Dict[str, str], plan: Optional[Dict[str, Any]] = None,
             cache_dir: Optional[str] = None, answers: Optional[Dict[str, Dict[str, Any]]] = None) -> Dict[str, Any]:
    """Make the run folder of a job from what its nodes sent, and return the verdict.

    `archives` is {host: path of the tar file of its job folder}; `plan` is written to plan.json unless None, and then
    has to be there already. A host without an archive, or with one that cannot be used, costs the job its success but
    never the logs of the others. `cache_dir`: see write(). Doing it again gives the same.

    `answers` is {host: what the controller has heard besides}: {"status", "lost", "left", "problem", "untrue", "behind",
    "uneven"}, any of them, see `verdict.compute`. That status counts if none was packed.
    """
    os.makedirs(run_dir, exist_ok=True)
    if plan is not None:
        files.write_json(os.path.join(run_dir, "plan.json"), plan)
    plan = files.read_plan(run_dir)
    problems = archive.unpack_all({host: archives.get(host) for host in plan["nodes"]}, run_dir)
    if plan["options"].get("savemodel"):
        arrivals.settle(os.path.join(run_dir, "checkpoints"), plan["options"]["network"], plan["options"]["keep_checkpoints"])
    found = {host: path for host, path in ((host, os.path.join(files.node_dir(run_dir, host), event_files.FILE))
                                           for host in plan["nodes"]) if os.path.exists(path)}
    events = event_files.merge(found.values(), [own_events(plan, host) for host in found])
    with files.replacing(os.path.join(run_dir, event_files.FILE)) as stream:
        for event in events:
            stream.write(json.dumps(event) + "\n")
    statuses = {}  # type: Dict[str, Any]
    for host in plan["nodes"]:
        try:
            known = None if host in problems else files.read_status(run_dir, host)
            statuses[host] = replies.packed(host, known, plan) if known is not None else None
        except BadInput as refusal:
            problems[host] = str(refusal)
    said = {host: (answers or {}).get(host) or {} for host in plan["nodes"]}
    for host in problems:
        statuses[host] = None
        problems[host] = said[host].get("problem") or problems[host]
        with contextlib.suppress(BadInput):
            statuses[host] = replies.packed(host, said[host]["status"], plan) if said[host].get("status") else None
    for host, one in said.items():
        if one.get("uneven") and statuses[host] and not statuses[host].get("first_failure"):
            statuses[host]["first_failure"] = stalls.failure(plan, host, one["uneven"])
    verdict = verdicts.compute(plan, statuses, events, problems,
                               lost={host: one["lost"] for host, one in said.items() if one.get("lost")},
                               untrue={host: one["untrue"] for host, one in said.items() if one.get("untrue")},
                               left={host: one["left"] for host, one in said.items() if one.get("left") is not None},
                               warnings=[line for host in plan["nodes"] for line in _behind(host, said[host])],
                               files=sum(files.own_files(run_dir, host) for host in plan["nodes"]))
    files.write_json(os.path.join(run_dir, "verdict.json"), verdict)
    write(run_dir, cache_dir)
    return verdict


def own_events(plan: Dict[str, Any], host: str) -> Callable[[Dict[str, Any]], bool]:
    """Whether an event is one, and of the host's own processes: no node tells of the workers of another."""
    own = [(process["role"], process["index"]) for process in plan["processes"] if process["host"] == host]
    return lambda event: replies.is_event(event) and (event.get("role") is None or (event["role"], event.get("index")) in own)


def heard(wait: Any, contact: Any = None) -> Dict[str, Any]:
    """What the results of waiting for a node and contacting it tell besides its files, for `assemble`.

    Any of them may be missing.
    """
    wait, contact = (given if isinstance(given, dict) else {} for given in (wait, contact))
    collect = wait.get("packed") if isinstance(wait.get("packed"), dict) else {}
    problem = refusal(wait) or collect.get("problem")
    return {"status": wait.get("status"), "lost": wait.get("lost") or contact.get("lost"), "left": collect.get("left"),
            "problem": problem, "untrue": collect.get("untrue"), "behind": collect.get("behind"), "uneven": wait.get("uneven")}


def refusal(result: Dict[str, Any]) -> Optional[str]:
    """Why Ansible could not do a task on a node; None if it could.

    Of a module that broke off, the reason is the last line of what it printed to stderr.
    """
    if not (result.get("failed") or result.get("unreachable")):
        return None
    message = str(result.get("msg") or "no reason was given")
    if message.startswith("MODULE FAILURE"):
        lines = str(result.get("module_stderr") or result.get("module_stdout") or "").strip().splitlines()
        message = "the module broke off on the node: %s" % (lines[-1].strip() if lines else "it printed nothing")
    return message


def _behind(host: str, said: Dict[str, Any]) -> List[str]:
    """What a node tells of a script's files that stayed there; it is a node's word, so no more than some lines of it count."""
    told = said.get("behind")
    return ["%s: %s" % (host, line[:MOST_TOLD]) for line in (told if isinstance(told, list) else [])[:MOST_TOLD]
            if isinstance(line, str)]


def write(run_dir: str, cache_dir: Optional[str] = None) -> List[str]:
    """Draw curves.png and write report.html from the other files of `run_dir`; returns the paths written.

    Without any event to draw there is no curves.png. `cache_dir` is where matplotlib may keep its list of fonts
    (default: a temporary folder), so that nothing is written into anybody's home. Raises BadInput if `run_dir` holds
    no run.
    """
    from mxcluster.report import curves, page, series
    plan = files.read_plan(run_dir)
    verdict = files.read_json(os.path.join(run_dir, "verdict.json"))
    path = os.path.join(run_dir, event_files.FILE)
    if verdict is None or not os.path.exists(path):
        raise BadInput("%s has no verdict.json or no events.jsonl: its job has not been collected" % run_dir)
    data = series.collect(plan, event_files.read(path))
    drawn = curves.draw(data, plan, verdict, cache_dir)
    html, picture = os.path.join(run_dir, "report.html"), os.path.join(run_dir, "curves.png")
    if drawn:
        with files.replacing(picture, binary=True) as stream:
            stream.write(drawn)
    elif os.path.exists(picture):
        os.remove(picture)  # of an earlier attempt
    with files.replacing(html) as stream:
        stream.write(page.render(data, plan, verdict, drawn, files.logs(run_dir, plan)))
    return [html, picture] if drawn else [html]
