"""Call the programs of Grid Engine: qconf, qselect, qsub, qstat, qacct, qdel and qrsh."""

import re
from typing import Dict, Iterator, List, Sequence, Tuple

from mxcluster.batch_systems import (
    LOG,
    NAME,
    NO_OPTION,
    NOTHING,
    ONE_JOB,
    OWN_FOLDER,
    OWN_RESTARTS,
    OWN_SCRIPT,
    WAIT,
    Facts,
    Request,
    State,
    ask,
    call,
    head_killed,
    job_name,
    last,
    number_of,
    seconds,
)
from mxcluster.errors import MxclusterError, did_you_mean

FACTS = Facts(
    title="Grid Engine",
    submit="qsub",
    start="qrsh",
    cancel="qdel",
    queue="queue",
    gres="`gpu=2` of each slot for `qsub -l`",
    needs={"parallel_environment": "`qconf -spl` lists the names"},
    programs=("qsub", "qstat", "qdel", "qconf", "qselect"),
    package="gridengine-client",
)
# Settings of a parallel environment without which `qrsh -inherit` starts no program on a node.
NEEDED = {"control_slaves": "TRUE", "job_is_first_task": "FALSE"}
# Values of "failed" in the accounting, see sge_status(5): the job has ended by itself; a limit was
# over; a signal has ended a program of the job.
BY_ITSELF, LIMIT, SIGNAL = 0, 37, 100
# Values of "failed" if Grid Engine or a node could not run or finish the job.
OF_A_NODE = {1, 3, 4, 6, 7, 8, 18, 19, 20, 21, 24, 25, 30}
KILLED = 128  # the exit status of a program that a signal has ended is KILLED plus the signal
RULE = "allocation_rule"  # the setting of a parallel environment, such as 1 or $fill_up
# The options of qsub are those of Son of Grid Engine 8.1.9 (submit.1).
# {reason of a refusal: the refused options of qsub}.
_REFUSED = {
    LOG: "-e -j -o",
    NAME: "-N",
    ONE_JOB: "-t -tc",
    OWN_FOLDER: "-cwd -wd",
    OWN_RESTARTS: "-ckpt -r",
    OWN_SCRIPT: "-b -C -i -inherit -S",
    WAIT % "qsub": "-sync",
    NOTHING % "qsub": "-help -verify",
    "mxcluster cannot check the options in its file": "-@",
    "parallel_environment and num_nodes set it": "-pe",
    "qsub would not queue the job": "-now",
    "queue sets the queue": "-q",
}
_OF_QSUB = {option: why for why, options in _REFUSED.items() for option in options.split()}
# {option of qsub: number of words that follow}. All other options have one.
_WORDS = dict.fromkeys(
    "-clear -cwd -h -hard -help -noshell -nostdin -notify -soft -terse -V -verbose -verify".split(),
    0,
)
_WORDS["-pe"] = 2
_VERIFY = ("v", "p")  # values of -w with which qsub submits nothing


def refused(words: Sequence[str]) -> Iterator[Tuple[str, str]]:
    """Yield (word, reason) for each refused argument of qsub."""
    values, option = 0, ""
    for word in words:
        if values:
            values -= 1
            if option == "-binding" and word in ("env", "pe", "set"):
                values += 1
            if option == "-w" and word in _VERIFY:
                yield "-w " + word, NOTHING % "qsub"
        elif not word.startswith("-") or len(word) < 2:
            yield word, NO_OPTION
        else:
            option, values = word, _WORDS.get(word, 1)
            if word in _OF_QSUB:
                yield word, _OF_QSUB[word]


def problem(wanted: Request) -> str:
    """Return the reason why this host cannot submit the job, or "".

    `wanted`: the wishes of the job. Raises MxclusterError if Grid Engine does not answer.
    """
    code, out, err = call(["qconf", "-spl"])
    if code and "no parallel environment" not in (out + err):
        raise MxclusterError("`qconf -spl`: %s" % last(err or out))
    known, name = ([] if code else out.split()), wanted.environment
    if not name:
        return (
            "launcher=sge needs a parallel environment: use -e parallel_environment=NAME. Grid "
            "Engine has %s" % (", ".join(known) or "none")
        )
    if name not in known:
        return (
            "parallel_environment=%s: Grid Engine has no such parallel environment%s: use one of "
            "%s, or add one with `qconf -ap`" % (name, did_you_mean(name, known), ", ".join(known))
        )
    settings = _settings(name)
    rule = settings.get(RULE, "unknown")
    wrong = ["%s %s" % (key, value) for key, value in NEEDED.items() if settings.get(key) != value]
    if wrong:
        return (
            "parallel_environment=%s: qrsh cannot start programs on its nodes: set %s with `qconf "
            "-mp %s`, or name another parallel environment" % (name, " and ".join(wrong), name)
        )
    if not rule.isdigit():
        return (
            "parallel_environment=%s: its allocation_rule is %s, so the number of nodes of a job "
            "is unknown before the start: use a parallel environment with a number, such as 1 (one "
            "slot on each node)" % (name, rule)
        )
    queue = ["-q", wanted.queue] if wanted.queue else []
    code, out, err = call(["qselect", "-pe", name] + queue)
    places = {line.partition("@")[2] for line in out.split() if "@" in line}
    if not places:
        return (
            "queue=%s: no such queue has the parallel environment %s: correct the name, or add the "
            "environment to the pe_list of a queue" % (wanted.queue, name)
        )
    if wanted.nodes > len(places):
        return (
            "num_nodes=%d: only %d nodes have queues with the parallel environment %s: lower "
            "num_nodes" % (wanted.nodes, len(places), name)
        )
    return ""


def _settings(environment: str) -> Dict[str, str]:
    """Return {name: first word} of the settings of a parallel environment."""
    lines = [line.split() for line in ask(["qconf", "-sp", environment]).splitlines()]
    return {words[0]: words[1] for words in lines if len(words) > 1}


def submit(folder: str, job: str, wanted: Request, script: str) -> str:
    """Submit the shell script `script`, and return the id of the job in Grid Engine.

    The output of the script goes to batch.log in `folder`. Raises MxclusterError if Grid Engine
    refuses the job.

    Args: `folder` the job folder; `job` the id of the job in mxcluster; `wanted` its wishes.
    """
    slots = wanted.nodes * int(_settings(wanted.environment)[RULE])
    # mxcluster's own arguments come last, and -hard ends an earlier -soft.
    argv = ["qsub", *wanted.options]
    argv += ["-hard", "-terse", "-N", job_name(job), "-wd", folder, "-j", "y", "-r", "n"]
    argv += ["-o", folder + "/batch.log", "-S", "/bin/sh", "-pe", wanted.environment, str(slots)]
    argv += ["-q", wanted.queue] if wanted.queue else []
    argv += ["-l", "h_rt=%d" % seconds(wanted.time)] if wanted.time else []
    argv += ["-l", wanted.gres] if wanted.gres else []
    return number_of("sge", argv, script, ".")


def state(number: str) -> State:
    """Return the State of Grid Engine's job `number`.

    Grid Engine forgets an ended job. The reason for the end is only in the accounting file, which
    `qacct` can read on some hosts.
    """
    code, out, err = call(["qstat", "-u", "*"])
    if code:
        return State("unknown")
    for words in (line.split() for line in out.splitlines()):
        if len(words) > 4 and words[0] == number:
            letters = words[4]
            if "E" in letters:
                return State("stuck", _why_it_is_stuck(number))
            if "q" in letters or "w" in letters or "h" in letters:
                return State("waits", _why_it_waits(number))
            if "d" in letters:
                return State("ends")
            return State("suspended" if set("sST") & set(letters) else "runs")
    return _ended(*call(["qacct", "-j", number])[:2])


def _why_it_waits(number: str) -> str:
    out = call(["qstat", "-j", number])[1]
    match = re.search(r"^scheduling info:\s+(.+(?:\n\s+.+)*)", out, re.M)
    return last(match.group(1)) if match else "no free slots, or the scheduler has not run yet"


def _why_it_is_stuck(number: str) -> str:
    """Return the reason why Grid Engine has put the job into an error state."""
    out = call(["qstat", "-j", number])[1]
    match = re.search(r"^error reason\s.*\]:\s+(?:error: )?(.+)", out, re.M)
    return match.group(1).strip() if match else "see `qstat -j %s`" % number


def _ended(code: int, output: str) -> State:
    """Return the State of an ended job. `code`, `output`: exit status and output of `qacct -j`.

    The output has a record for the job, and may have a record for each node, in any order. The
    record of one node can have the reason, while the others only have the signal.
    """
    records = [
        dict(re.findall(r"^(\w+)[ \t]+(.*?)[ \t]*$", record, re.M))
        for record in re.split(r"^=+$", output, flags=re.M)
    ]
    records = [one for one in records if re.match(r"\d+", one.get("failed", ""))]
    if code or not records:
        return State("ended")
    failed = {_number(one["failed"]): one["failed"].partition(":")[2].strip() for one in records}
    deleted = [one["deleted_by"] for one in records if one.get("deleted_by", "NONE") != "NONE"]
    if deleted:
        return State("ended", "%s deleted it with qdel" % deleted[0])
    if LIMIT in failed:
        return State("ended", "a limit was over (%s); raise time_limit" % failed[LIMIT])
    broken = sorted(set(failed) & OF_A_NODE)
    if broken:
        text = failed[broken[0]] or "failed %d" % broken[0]
        return State("ended", "a node could not run or finish it (%s)" % text, True)
    # Only newer versions of Grid Engine record the user who has deleted a job.
    is_known = all("deleted_by" in one for one in records)
    others = sorted(set(failed) - {BY_ITSELF, SIGNAL})
    if others:
        return State("ended", failed[others[0]] or "failed %d" % others[0])
    signals = [_number(one.get("exit_status", "")) - KILLED for one in records]
    if SIGNAL not in failed:
        return State("ended", "", is_known)
    if is_known and max(signals) > 0:
        return head_killed(max(signals))
    return State("ended", "%s: a user deleted it with qdel, or a limit was over" % failed[SIGNAL])


def _number(text: str) -> int:
    """Return the number at the beginning of `text`, 0 without a number."""
    match = re.match(r"\d+", text)
    return int(match.group()) if match else 0


def cancel(number: str) -> None:
    """Delete Grid Engine's job `number`. An ended job does not change."""
    call([FACTS.cancel, number])


def identity(environ: Dict[str, str]) -> str:
    """Return the id in Grid Engine of the job of this process. `environ`: its variables."""
    return environ["JOB_ID"]


def hosts(environ: Dict[str, str]) -> List[str]:
    """Return the nodes of the job of this process. This process runs on the first node.

    Each line of the file $PE_HOSTFILE is "host slots queue processors".
    """
    with open(environ["PE_HOSTFILE"], encoding="utf-8") as stream:
        found = [line.split()[0] for line in stream if line.strip()]
    return list(dict.fromkeys(found))


def on_node(host: str, argv: List[str]) -> List[str]:
    """Return the argument list that runs `argv` once on the node `host` of the job.

    The program gets stdin, and it ends with the job.
    """
    return ["qrsh", "-inherit", host] + argv
