"""Call the programs of Slurm: sinfo, sbatch, scontrol, scancel and srun."""

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
    number_of,
    seconds,
)
from mxcluster.errors import did_you_mean

FACTS = Facts(
    title="Slurm",
    submit="sbatch",
    start="srun",
    cancel="scancel",
    queue="partition",
    gres="`gpu:2` of each node for `sbatch --gres`",
    needs={},
    programs=("sinfo", "sbatch", "scontrol", "scancel"),
    package="slurm-client",
    tells_cpus=True,
)
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD")
RUNNING = ("RUNNING", "STAGE_OUT", "SIGNALING", "RESIZING")
# {state of a job that Slurm has ended: reason}. In all other states the job has ended by itself.
# AGAIN has the states and reasons of which the nodes or Slurm are the cause.
ENDINGS = {
    "CANCELLED": "a user or an administrator cancelled it with scancel",
    "TIMEOUT": "its time limit was over; raise time_limit",
    "DEADLINE": "its deadline was over",
    "NODE_FAIL": "a node of the job failed",
    "BOOT_FAIL": "a node of the job did not boot",
    "PREEMPTED": "another job has taken its nodes",
    "OUT_OF_MEMORY": "it used more memory than requested; add --mem to engine_options",
    "REVOKED": "another cluster runs it",
}
FAILURES = {
    "NodeDown": "a node of the job failed",
    "JobLaunchFailure": "a node could not start it; read the log of slurmd on the first node",
    "SystemFailure": "Slurm itself failed; read the log of slurmctld",
}
LAUNCH_FAILED = "launch_failed_requeued_held"
AGAIN = {"NODE_FAIL", "BOOT_FAIL", "PREEMPTED"} | set(FAILURES)
# The options of sbatch are those of Slurm 22.05 (sbatch.1).
# {reason of a refusal: the refused options of sbatch, with the short option after a colon}. sbatch
# accepts a part of a long name, a value after "=" or in the next word, and several short options in
# one word.
_REFUSED = {
    LOG: "error:e output:o",
    NAME: "job-name:J",
    ONE_JOB: "array:a",
    OWN_FOLDER: "chdir:D",
    OWN_RESTARTS: "requeue",
    OWN_SCRIPT: "wrap",
    WAIT % "sbatch": "wait:W",
    NOTHING % "sbatch": "help:h test-only usage version:V",
    "a signal ends the programs of mxcluster": "signal",
    "mxcluster asks only the cluster of the submit host": "cluster-constraint clusters:M",
    "num_nodes sets the number of nodes": "nodes:N",
    "num_nodes sets the number of tasks": "ntasks:n",
    "sbatch would not print the id of the job": "quiet:Q",
    "the submitting user owns the job": "gid uid",
}
_OPTIONS = [
    (option.partition(":"), why) for why, options in _REFUSED.items() for option in options.split()
]
# {long option: reason}, sorted, as a part of a name may fit several options; {letter: reason}.
_LONG = dict(sorted((name, why) for (name, _, _), why in _OPTIONS))
_SHORT = {letter: why for (_, _, letter), why in _OPTIONS if letter}
# Options of sbatch that take no value in the next word.
_FLAGS = (
    "contiguous,exclusive,get-user-env,help,hold,ignore-pbs,nice,no-bell,no-kill,no-requeue,"
    "overcommit,oversubscribe,parsable,propagate,quiet,reboot,requeue,share,spread-job,test-only,"
    "usage,use-min-nodes,verbose,version,wait,x11"
).split(",")
_SHORT_FLAGS = "hHkOQsvVW"


def refused(words: Sequence[str]) -> Iterator[Tuple[str, str]]:
    """Yield (word, reason) for each refused argument of sbatch."""
    takes_value = False
    for word in words:
        if takes_value and not word.startswith("-"):
            takes_value = False
        elif word.startswith("--") and len(word) > 2:
            name, equals, _ = word[2:].partition("=")
            reasons = [why for option, why in _LONG.items() if option.startswith(name)]
            if reasons and name != "":
                yield word, reasons[0]
            takes_value = not equals and not any(flag.startswith(name) for flag in _FLAGS)
        elif word.startswith("-") and len(word) > 1 and word != "--":
            takes_value = True
            for place, letter in enumerate(word[1:], 2):
                if letter in _SHORT:
                    yield word, _SHORT[letter]
                takes_value = place == len(word) and letter not in _SHORT_FLAGS
                if letter not in _SHORT_FLAGS:  # the rest of the word is its value
                    break
        else:
            takes_value = False
            yield word, NO_OPTION


def problem(wanted: Request) -> str:
    """Return the reason why this host cannot submit the job, or "".

    `wanted`: the wishes of the job. Raises MxclusterError if Slurm does not answer.
    """
    partitions = _partitions(ask(["sinfo", "--noheader", "--format=%R|%P|%D"]))
    queue = wanted.queue or next((name for name, one in partitions.items() if one[1]), "")
    if not queue:
        return "launcher=slurm: Slurm has no default partition: use -e queue=NAME"
    if queue not in partitions:
        return "queue=%s: Slurm has no such partition%s: use one of %s" % (
            queue,
            did_you_mean(queue, partitions),
            ", ".join(sorted(partitions)),
        )
    if wanted.nodes > partitions[queue][0]:
        return (
            "num_nodes=%d: the partition %s has only %d nodes: lower num_nodes, or name another "
            "partition with -e queue=" % (wanted.nodes, queue, partitions[queue][0])
        )
    return ""


def _partitions(output: str) -> Dict[str, List[int]]:
    """Return {partition: [number of nodes, 1 for the default partition or 0]}.

    `output`: the output of sinfo.
    """
    found = {}  # type: Dict[str, List[int]]
    for line in output.splitlines():
        name, marked, nodes = line.split("|")[:3]
        count = found.setdefault(name.strip(), [0, 0])
        count[0] += int(nodes)  # sinfo prints a line for each state of nodes
        count[1] = int(marked.strip().endswith("*"))
    return found


def submit(folder: str, job: str, wanted: Request, script: str) -> str:
    """Submit the shell script `script`, and return the id of the job in Slurm.

    The output of the script goes to batch.log in `folder`. Raises MxclusterError if Slurm refuses
    the job.

    Args: `folder` the job folder; `job` the id of the job in mxcluster; `wanted` its wishes.
    """
    # mxcluster's own arguments come last: the last of equal options counts.
    argv = ["sbatch", *wanted.options]
    argv += ["--parsable", "--job-name=" + job_name(job), "--chdir=" + folder]
    argv += ["--output=%s/batch.log" % folder, "--no-requeue"]
    argv += ["--nodes=%d" % wanted.nodes, "--ntasks-per-node=1"]
    argv += ["--partition=" + wanted.queue] * bool(wanted.queue)
    if wanted.time:
        argv.append("--time=%d" % -(-seconds(wanted.time) // 60))
    argv += ["--gres=" + wanted.gres] * bool(wanted.gres)
    return number_of("slurm", argv, script, ";")


def state(number: str) -> State:
    """Return the State of Slurm's job `number`."""
    code, out, err = call(["scontrol", "--oneliner", "show", "job", number])
    if code:
        known = "Invalid job id" in err + out
        return State("ended" if known else "unknown")
    fields = dict(word.partition("=")[::2] for word in out.split())
    name, reason = fields.get("JobState", ""), fields.get("Reason", "")
    if name in WAITING:
        if reason == LAUNCH_FAILED:
            return State("stuck", FAILURES["JobLaunchFailure"], True)
        return State("waits", "" if reason == "None" else reason)
    if name == "SUSPENDED":
        return State("suspended")
    if name in RUNNING:
        return State("runs")
    if name == "COMPLETING":  # the real state shows when all processes of the job have ended
        return State("ends")
    if name in ENDINGS:
        return State("ended", "%s: %s" % (name, ENDINGS[name]), name in AGAIN)
    if reason in FAILURES:
        return State("ended", "%s: %s" % (reason, FAILURES[reason]), True)
    signum = fields.get("ExitCode", "").partition(":")[2]
    if signum.isdigit() and int(signum):
        return head_killed(int(signum))
    return State("ended", "", True)


def cancel(number: str) -> None:
    """Cancel Slurm's job `number`. An ended job does not change."""
    call([FACTS.cancel, number])


def identity(environ: Dict[str, str]) -> str:
    """Return the id in Slurm of the job of this process. `environ`: its variables."""
    return environ["SLURM_JOB_ID"]


def hosts(environ: Dict[str, str]) -> List[str]:
    """Return the nodes of the job of this process. This process runs on the first node."""
    return ask(["scontrol", "show", "hostnames", environ["SLURM_JOB_NODELIST"]]).split()


def on_node(host: str, argv: List[str]) -> List[str]:
    """Return the argument list that runs `argv` once on the node `host` of the job.

    The program gets the stdin of srun, and all CPUs and GPUs of the job on this node. The program
    ends with srun.
    """
    return [
        "srun",
        "--nodes=1",
        "--ntasks=1",
        "--nodelist=" + host,
        "--cpu-bind=none",
        "--unbuffered",
        "--quiet",
    ] + argv
