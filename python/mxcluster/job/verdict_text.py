"""Show the verdict on a job, and make lines of text from the words and figures of nodes."""

import os
import re
from typing import Iterable, List, Mapping, Sequence

from mxcluster.lists import several
from mxcluster.model.failures import ON_REQUEST, TIME, Failure
from mxcluster.model.verdict import Verdict
from mxcluster.numbers import figure as figure
from mxcluster.package import OWN_FOLDERS

# {pattern of messages in a log: the advice for them}
_HINTS = {
    "bind failed": "the process could not listen on its port. If another program holds the port "
    "(see 'ss -ltnp'), end that program, or choose another port with -e root_port=. If the node "
    "lacks this address, correct node_address.",
    "Address already in use": "another program holds the port; 'ss -ltnp' shows the program. If "
    "the program belongs to a job, end that job with stop.yml. Otherwise choose another port with "
    "-e root_port=.",
    "compile with USE_DIST_KVSTORE": "this MXNet was built without the distributed kv-store: "
    "install the official wheel with provision.yml on this host.",
    "No module named": "a Python module is missing on the nodes: put a module of your own beside "
    "the script. For any other module, name its package in a file for -e requirements=FILE.",
    "GPU support is disabled|GPU is not enabled": "the job uses GPUs, but the host has an MXNet "
    "wheel for CPUs: provision the host with a CUDA version, or train with -e gpus=''.",
    "libcudart": "the host lacks the CUDA runtime of this MXNet wheel: provision the host with the "
    "wheel's CUDA version.",
    "No space left on device": "a disk is full: delete files on that node, or set "
    "mxcluster_job_dir to another disk.",
    "bad_alloc|MemoryError|out of memory": "the process ran out of memory: use a smaller "
    "batch_size, or fewer workers on this host.",
}

# Sequences that a terminal interprets: CSI (colours, cursor), strings (titles, links, the
# clipboard), and other escapes.
_COMMANDS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)


def text(verdict: Verdict, run_dir: str) -> List[str]:
    """Return the text lines with the verdict, for the end of train.yml.

    Args: `verdict` of the job; `run_dir` the job's folder on the controller, which
    holds the report.
    """
    last = ["warning   %s" % printable(warning) for warning in verdict.warnings]
    if verdict.figures and verdict.ok:
        last.append("figures   %s" % verdict.figures)
    if verdict.bottleneck:
        last.append("limit     %s" % verdict.bottleneck)
    if verdict.files:
        where = os.path.join(run_dir, "nodes", "*", OWN_FOLDERS)
        last.append("files     %d files of the program, in %s" % (verdict.files, where))
    if verdict.best_checkpoint:
        last.append("best      the checkpoint %s, by its accuracy" % verdict.best_checkpoint)
    last.append("report    %s" % os.path.join(run_dir, "report.html"))
    failure = verdict.first_failure
    lines = _of_failure(verdict, failure, run_dir) if failure else _of_success(verdict)
    return [printable(line) for line in lines + last]


def _of_success(verdict: Verdict) -> List[str]:
    count = len(verdict.exit_codes)
    who = "all %d processes" % count if count > 1 else "its only process"
    lines = ["OK        job %s (%s): %s exited with 0" % (verdict.job, verdict.kv, who)]
    if verdict.accuracy is not None:
        lines.append("accuracy  %.4f on held-out samples (worker-0)" % verdict.accuracy)
    lines.append("time      %s" % clock(verdict.seconds))
    if verdict.samples_per_s is not None:
        lines.append("speed     %s samples/s" % figure(verdict.samples_per_s))
    return lines + ["profile   " + line for line in (verdict.proposal or [])]


def _of_failure(verdict: Verdict, failure: Failure, run_dir: str) -> List[str]:
    # Without the status of any node the time is unknown.
    after = " after %s" % clock(verdict.seconds) if verdict.seconds else ""
    lines = [
        "FAILED    job %s (%s)%s" % (verdict.job, verdict.kv, after),
        "first     %s" % sentence(failure),
    ]
    if failure.kind == ON_REQUEST:  # the node that noticed the request first does not matter
        lines = [
            "STOPPED   job %s (%s)%s: the job was stopped on request"
            % (verdict.job, verdict.kv, after)
        ]
    if failure.kind == TIME:  # each node ends the job by its own clock, and no log has a cause
        lines = [
            "TIME      job %s (%s)%s" % (verdict.job, verdict.kv, after),
            "first     %s" % failure.reason,
        ]
    else:
        lines += ["  %s/%s | %s" % (failure.host, failure.name, entry) for entry in failure.log]
    lines += ["hint      %s" % hint for hint in hints(failure)]
    lines += _next(verdict, failure)
    lines += of_leftovers(verdict.nodes, verdict.left)
    return lines + ["logs      %s" % os.path.join(run_dir, "nodes")]


def _next(verdict: Verdict, failure: Failure) -> List[str]:
    """Return [a line] about how a job goes on that has ended on request or by its max_time."""
    if failure.kind not in (ON_REQUEST, TIME):
        return []
    if verdict.checkpoint:
        names = verdict.job, verdict.checkpoint
        return ["next      train.yml -e resume=%s, from the checkpoint %s" % names]
    if failure.kind == TIME:
        return ["next      the job has no checkpoint: start it again with a larger max_time"]
    return []


def hints(failure: Failure) -> List[str]:
    """Return a line of advice for each known error message in the log lines of `failure`."""
    log = "\n".join(failure.log)
    return [hint for messages, hint in _HINTS.items() if re.search(messages, log, re.IGNORECASE)]


def of_leftovers(nodes: Iterable[str], left: Mapping[str, Sequence[str]]) -> List[str]:
    """Return text lines with the leftovers of a job, and with the `nodes` that were not searched.

    Args: `nodes` the hosts of the job; `left` {host: [leftover, ...]} of the searched hosts.
    """
    lines = [
        "left      %s: %s" % (host, printable(found))
        for host in sorted(left)
        for found in left[host]
    ]
    if left and not lines:
        lines.append(
            "left      nothing: no process, port, unit or firewall rule on %s"
            % several(len(left), "node")
        )
    unseen = sorted(set(nodes) - set(left))
    return lines + (["not searched: %s" % ", ".join(unseen)] if unseen else [])


def sentence(failure: Failure) -> str:
    """Return `failure` as one line, such as "worker 1 on node2: killed by signal 9 (SIGKILL)"."""
    index = "" if failure.index is None else " %s" % failure.index
    return printable("%s%s on %s: %s" % (failure.role, index, failure.host, failure.reason))


def clock(seconds: float) -> str:
    """Return `seconds` as the text of a clock, such as "0:07", "12:31" or "1:02:03"."""
    whole = int(seconds + 0.5)
    if whole >= 3600:
        return "%d:%02d:%02d" % (whole // 3600, whole // 60 % 60, whole % 60)
    return "%d:%02d" % (whole // 60, whole % 60)


def printable(text: str) -> str:
    """Return the `text` of a node as one line without commands for a terminal or a page.

    The function drops escape sequences, control characters, characters without width, and
    characters that reverse the direction of writing. A tab becomes four spaces. A newline becomes
    one space, so that the text of a node cannot add a line to the report. `shapes.words` cleans one
    value when the codec reads it. This function also cleans logs, which no codec reads.
    """
    if text.isprintable():
        return text
    text = _COMMANDS.sub("", text.replace("\t", "    "))
    return "".join(
        sign if sign.isprintable() else " " if sign.isspace() and sign != "\r" else ""
        for sign in text
    )
