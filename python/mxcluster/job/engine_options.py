"""Check the knob engine_options, further arguments of `sbatch` or `qsub`. All functions are pure.

mxcluster submits a script of its own on stdin, and follows one job with the id that the program
prints. An option that changes this protocol is refused by name. mxcluster's own arguments come
last, so that they take precedence over all other options.

The names are those of Slurm 22.05 (sbatch.1) and of Son of Grid Engine 8.1.9 (submit.1).
"""

from typing import Dict, Iterator, List, Tuple

from mxcluster.errors import shown
from mxcluster.job import launchers

# {long option of sbatch: (short option or "", reason of the refusal)}. sbatch accepts a part
# of a long name, a value after "=" or in the next word, and several short options in one word.
_OF_SBATCH: Dict[str, Tuple[str, str]] = {
    "array": ("a", "mxcluster follows one job, and an array has several"),
    "cluster-constraint": ("", "mxcluster asks only the cluster of the submit host"),
    "clusters": ("M", "mxcluster asks only the cluster of the submit host"),
    "chdir": ("D", "the job runs in its job folder"),
    "error": ("e", "mxcluster reads the output of the job from batch.log"),
    "gid": ("", "the submitting user owns the job"),
    "help": ("h", "sbatch would submit nothing"),
    "job-name": ("J", "job_id sets the name of the job"),
    "nodes": ("N", "num_nodes sets the number of nodes"),
    "ntasks": ("n", "num_nodes sets the number of tasks"),
    "output": ("o", "mxcluster reads the output of the job from batch.log"),
    "quiet": ("Q", "sbatch would not print the id of the job"),
    "requeue": ("", "max_restarts sets the number of restarts"),
    "signal": ("", "a signal ends the programs of mxcluster"),
    "test-only": ("", "sbatch would submit nothing"),
    "uid": ("", "the submitting user owns the job"),
    "usage": ("", "sbatch would submit nothing"),
    "version": ("V", "sbatch would submit nothing"),
    "wait": ("W", "sbatch would wait for the end of the job"),
    "wrap": ("", "mxcluster submits its own script"),
}
# Options of sbatch that take no value in the next word.
_FLAGS = (
    "contiguous,exclusive,get-user-env,help,hold,ignore-pbs,nice,no-bell,no-kill,no-requeue,"
    "overcommit,oversubscribe,parsable,propagate,quiet,reboot,requeue,share,spread-job,test-only,"
    "usage,use-min-nodes,verbose,version,wait,x11"
).split(",")
_SHORT_FLAGS = "hHkOQsvVW"

# {option of qsub: reason of the refusal}.
_OF_QSUB = {
    "-@": "mxcluster cannot check the options in its file",
    "-b": "mxcluster submits its own script",
    "-C": "mxcluster submits its own script",
    "-ckpt": "max_restarts sets the number of restarts",
    "-cwd": "the job runs in its job folder",
    "-e": "mxcluster reads the output of the job from batch.log",
    "-help": "qsub would submit nothing",
    "-i": "mxcluster submits its own script",
    "-inherit": "mxcluster submits its own script",
    "-j": "mxcluster reads the output of the job from batch.log",
    "-N": "job_id sets the name of the job",
    "-now": "qsub would not queue the job",
    "-o": "mxcluster reads the output of the job from batch.log",
    "-pe": "parallel_environment and num_nodes set it",
    "-q": "queue sets the queue",
    "-r": "max_restarts sets the number of restarts",
    "-S": "mxcluster submits its own script",
    "-sync": "qsub would wait for the end of the job",
    "-t": "mxcluster follows one job, and an array has several",
    "-tc": "mxcluster follows one job, and an array has several",
    "-verify": "qsub would submit nothing",
    "-wd": "the job runs in its job folder",
}
# {option of qsub: number of words that follow}. All other options have one.
_WORDS = dict.fromkeys(
    "-clear -cwd -h -hard -help -noshell -nostdin -notify -soft -terse -V -verbose -verify".split(),
    0,
)
_WORDS["-pe"] = 2
_VERIFY = ("v", "p")  # values of -w with which qsub submits nothing


def problems(launcher: str, words: List[str]) -> List[str]:
    """Return a message for each word of engine_options that mxcluster refuses, or [].

    Args: `launcher` the knob, slurm or sge; `words` the knob engine_options.
    """
    program, refused = _PROGRAMS[launcher]
    return [
        "engine_options: %s is refused, because %s: remove this argument of %s"
        % (shown(word), why, program)
        for word, why in refused(words)
    ]


def _sbatch(words: List[str]) -> Iterator[Tuple[str, str]]:
    """Yield (word, reason) for each refused argument of sbatch."""
    short = {letter: why for letter, why in _OF_SBATCH.values() if letter}
    takes_value = False
    for word in words:
        if takes_value and not word.startswith("-"):
            takes_value = False
        elif word.startswith("--") and len(word) > 2:
            name, equals, _ = word[2:].partition("=")
            reasons = [_OF_SBATCH[one][1] for one in _OF_SBATCH if one.startswith(name)]
            if reasons and name != "":
                yield word, reasons[0]
            takes_value = not equals and not any(flag.startswith(name) for flag in _FLAGS)
        elif word.startswith("-") and len(word) > 1 and word != "--":
            takes_value = True
            for place, letter in enumerate(word[1:], 2):
                if letter in short:
                    yield word, short[letter]
                takes_value = place == len(word) and letter not in _SHORT_FLAGS
                if letter not in _SHORT_FLAGS:  # the rest of the word is its value
                    break
        else:
            takes_value = False
            yield word, "it is no option, and mxcluster submits its own script"


def _qsub(words: List[str]) -> Iterator[Tuple[str, str]]:
    """Yield (word, reason) for each refused argument of qsub."""
    values, option = 0, ""
    for word in words:
        if values:
            values -= 1
            if option == "-binding" and word in ("env", "pe", "set"):
                values += 1
            if option == "-w" and word in _VERIFY:
                yield "-w " + word, "qsub would submit nothing"
        elif not word.startswith("-") or len(word) < 2:
            yield word, "it is no option, and mxcluster submits its own script"
        else:
            option, values = word, _WORDS.get(word, 1)
            if word in _OF_QSUB:
                yield word, _OF_QSUB[word]


# {launcher: (the program that submits a job, the function that yields its refused arguments)}.
_PROGRAMS = {launchers.SLURM: ("sbatch", _sbatch), launchers.SGE: ("qsub", _qsub)}
