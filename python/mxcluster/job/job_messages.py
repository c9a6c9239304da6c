"""Make the lines of status.yml, stop.yml, logs.yml, stacks.yml and of jobs without a controller."""

import json
from typing import Iterable, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster.errors import BadInput
from mxcluster.job import verdict_text
from mxcluster.job.listing import ABSENT, some_hosts
from mxcluster.lists import several
from mxcluster.model import answers
from mxcluster.model.listing import InterruptedJob, ListedJob
from mxcluster.model.record import encode

Stops = Mapping[str, Optional[answers.Stopped]]  # {host: answer to stop, None without an answer}


class Stopped(NamedTuple):
    """The result of stop.yml."""

    lines: List[str]
    # True if no node has a leftover, and every node that may run the job has a result. In a dry run
    # always True.
    ok: bool


class Save(NamedTuple):
    """The wait of stop.yml for the next checkpoint of a job.

    Attributes: `before` and `after` the names of the newest checkpoint before and after the wait,
    "" without a checkpoint; `has_ended` True if the job has ended in the meantime; `is_known` False
    if the node did not tell its checkpoints.
    """

    before: str
    after: str
    has_ended: bool
    is_known: bool = True

    @property
    def has_saved(self) -> bool:
        """True if the job has completed a checkpoint during the wait."""
        return self.after not in ("", self.before)


def of_logs(job: str, logs: Mapping[str, Optional[Mapping[str, List[str]]]]) -> List[str]:
    """Return the last lines of all logs of a job as text lines.

    Args: `job` the job's id; `logs` {host: {log name: [line, ...]}, None for a host without logs}.
    Raises BadInput if `job` is "".
    """
    if not job:
        raise BadInput(
            "no job runs on these nodes: name an ended job with -e job=<id>. status.yml lists the "
            "ids"
        )
    lines = ["LOGS      of the job %s" % job]
    for host, of_host in sorted(logs.items()):
        lines += of_host_logs(
            host, {name: entries or ["(nothing)"] for name, entries in (of_host or {}).items()}
        )
    return lines if len(lines) > 1 else lines + ["  no node has a log of this job"]


def of_host_logs(host: str, logs: Mapping[str, Sequence[str]]) -> List[str]:
    """Return the lines of a node's logs, with the node and the process in front of each.

    Args: `logs` {log name: [line, ...]}.
    """
    return [
        verdict_text.printable("  %s/%s | %s" % (host, name, entry))
        for name, entries in sorted(logs.items())
        for entry in entries
    ]


def of_followed(job: str, asked: Iterable[str], followed: Iterable[str]) -> List[str]:
    """Return the last lines of logs.yml after it has shown the lines of a job to the job's end.

    Args: `asked` the hosts whose logs the playbook has followed; `followed` those that have
    answered to the end.
    """
    lost = sorted(set(asked) - set(followed))
    return [
        "ENDED     the job %s. Its verdict: train.yml -e attach=%s" % (job, job),
        *["no answer from %s: its last lines may be missing" % host for host in lost],
    ]


def of_stacks(job: str, found: Mapping[str, answers.Stacks]) -> List[str]:
    """Return the stack traces of a job's processes as text lines.

    Args: `found` {host: its answer}.
    """
    lines = ["STACKS    of the job %s" % job]
    for host, answer in sorted(found.items()):
        silent = {name: ["no stack trace: " + why] for name, why in answer.silent.items()}
        lines += of_host_logs(host, {**answer.stacks, **silent})
    return lines if len(lines) > 1 else lines + ["  no node has a running process of this job"]


def of_stops(
    jobs: Sequence[ListedJob],
    stopped: Mapping[str, Stops],
    is_dry_run: bool,
    saves: Mapping[str, Save] = {},
) -> Stopped:
    """Return the joined results of `of_stop` for `jobs`.

    Args: `stopped` {job id: results of the command stop}; `saves` {job id: the wait for its next
    checkpoint}.
    """
    if not jobs:
        return Stopped(["OK        no job runs on these nodes"], True)
    found = [of_stop(job, stopped.get(job.job, {}), is_dry_run) for job in jobs]
    lines = []
    for job, one in zip(jobs, found):
        lines += one.lines + (of_save(job, saves[job.job]) if job.job in saves else [])
    return Stopped(lines, all(one.ok for one in found))


def of_stop(job: ListedJob, stopped: Stops, is_dry_run: bool) -> Stopped:
    """Return the result of stop.yml for one job."""
    if is_dry_run:
        running = [host for host, state in job.nodes.items() if state == "running"]
        what = (
            "would be ended on " + some_hosts(running)
            if running
            else "does not run, so stop.yml would do nothing"
        )
        return Stopped(["CHECK     the job %s %s" % (job.job, what)], True)
    ran = [host for host, answer in stopped.items() if answer and answer.ran]
    searched = {host: answer.left for host, answer in stopped.items() if answer}
    lost = [
        host
        for host, state in job.nodes.items()
        if state == "not asked" or state == "running" and stopped.get(host) is None
    ]
    ok = not any(searched.values()) and not lost
    lines = [
        "%s the job %s %s"
        % (
            "OK       " if ok else "FAILED   ",
            job.job,
            "has been ended on " + some_hosts(ran) if ran else "had ended already",
        )
    ]
    if searched:
        there = [host for host, state in job.nodes.items() if state not in ABSENT]
        lines += verdict_text.of_leftovers(there, searched)
    lines += [
        "not asked %s: the job may still run on this node. Make the node reachable, then run "
        "stop.yml again" % host
        for host in lost
    ]
    return Stopped(lines, ok)


def of_save(job: ListedJob, save: Save) -> List[str]:
    """Return text lines about the wait for the next checkpoint of the stopped `job`."""
    goes_on = "train.yml -e resume=%s" % job.job
    if job.detached:
        goes_on = "train.yml -e attach=%s, which fetches the checkpoint, and then %s" % (
            job.job,
            goes_on,
        )
    if not save.is_known:
        lines = [
            "lost      perhaps the training after the last checkpoint, because the node that "
            "completes the checkpoints did not tell them: the report of the job has the last one"
        ]
    elif save.has_saved:
        lines = ["saved     the checkpoint %s" % save.after]
    elif save.has_ended:
        lines = ["saved     nothing more: the job had ended before its next checkpoint"]
    elif save.after:
        lines = [
            "lost      the training after the checkpoint %s, because the job completed no other "
            "one within save_timeout" % save.after
        ]
    else:
        return [
            "lost      all training of the job, because the job completed no checkpoint within "
            "save_timeout"
        ]
    return lines + (["next      %s" % goes_on] if save.after or not save.is_known else [])


def of_detached(job: str, inventory: str) -> List[str]:
    """Return text lines with the commands for a job that runs without a controller.

    Args: `job` the job's id; `inventory` the argument of -i in these commands, "" for no -i.
    """
    return [
        "STARTED   job %s, which runs without a controller. These commands work on any controller "
        "with this inventory:" % job
    ] + _commands(job, inventory)


def of_interrupted(left: InterruptedJob, inventory: str) -> List[str]:
    """Return text lines about a job whose controller was interrupted.

    Args: `inventory` as in `of_detached`.
    """
    end = (
        "It has no lease, so it runs to its end."
        if left.lease is None
        else "Its lease ends the job %g to %g s after the last poll. Attaching renews the lease, "
        "or brings the results." % (left.lease, 2 * left.lease)
    )
    return [
        "LEFT      job %s, which still runs on its nodes. %s" % (left.job, end),
        *_commands(left.job, inventory),
    ]


def _commands(job: str, inventory: str) -> List[str]:
    """Return text lines with the commands that look at a job, attach to it and end it."""
    with_inventory = "ansible-playbook %s" % ("-i %s " % inventory if inventory else "")
    return [
        "look      %sstatus.yml" % with_inventory,
        "attach    %strain.yml -e attach=%s" % (with_inventory, job),
        "logs      %slogs.yml -e job=%s" % (with_inventory, job),
        "end       %sstop.yml -e job=%s" % (with_inventory, job),
    ]


def of_disks(disks: Mapping[str, answers.DiskUse]) -> List[str]:
    """Return [line] about the disk space of job folders, [] without figures.

    Args: `disks` {host: the figures of this node}.
    """
    if not disks:
        return []
    fullest = min(sorted(disks), key=lambda host: disks[host].free)
    return [
        verdict_text.printable(
            "disk      %s: %s with %.1f GB; least free: %.1f GB on %s"
            % (
                several(len(disks), "node"),
                several(sum(one.jobs for one in disks.values()), "job folder"),
                1e-9 * sum(one.bytes for one in disks.values()),
                1e-9 * disks[fullest].free,
                fullest,
            )
        )
    ]


def as_json(
    jobs: Sequence[ListedJob],
    lost: Sequence[str],
    restart_needed: Mapping[str, str],
    disks: Mapping[str, answers.DiskUse],
) -> str:
    """Return the job list as one line of JSON.

    Args: `lost` the hosts without a job list; `restart_needed` {host: the reason of the restart
    that its driver needs}; `disks` as for `of_disks`.
    """
    found = {
        "jobs": jobs,
        "not_asked": sorted(lost),
        "restart_needed": restart_needed,
        "disk": disks,
    }
    return json.dumps(encode(found), sort_keys=True)
