"""Arguments of sbatch and qsub that would break the submission are refused in every form."""

import pytest

from mxcluster import batch_systems
from mxcluster.errors import BadInput
from mxcluster.job import options

PARALLEL = {"parallel_environment": "mpi"}
SBATCH = (
    # long, with a value after "=" or in the next word, abbreviated, short, joined, in a bundle
    [["--array=1-3"], ["--array", "1-3"], ["--arr=1-3"], ["--arra", "1-3"], ["-a", "1-3"]]
    + [["-a1-3"], ["-va1-3"], ["-v", "-a1-3"], ["--mem", "8G", "--array=1"], ["-svW"], ["--te"]]
    + [["--wrap=id"], ["--nodes=7"], ["-kN5"], ["--output=/x"], ["--error=/x"], ["--chdir=/x"]]
    + [["--clusters=b"], ["--job-name=x"], ["--help"], ["-h"], ["--usage"], ["-V"], ["-vQ"]]
    + [["--ntasks=4"], ["--requeue"], ["--cluster-constraint=x"], ["--uid=0"], ["--gid=0"]]
    # no options
    + [["--signal=B:USR1@60"], [""], ["-"], ["--"], ["script.sh"], ["--mem=8G", "script.sh"]]
    + [["--exclusive", "x.sh"], ["-H", "x.sh"], ["-c4", "x.sh"], ["--mem", "8G", "x.sh"], [":"]]
)
QSUB = (
    [["-t", "1-3"], ["-l", "gpu=2", "-t", "1-3"], ["-tc", "2"], ["-sync", "y"], ["-sync", "yes"]]
    + [["-pe", "x", "4"], ["-o", "/x"], ["-e", "/x"], ["-j", "n"], ["-b", "n"], ["-b", "y"]]
    + [["-wd", "/x"], ["-cwd"], ["-N", "x"], ["-S", "/bin/bash"], ["-q", "a.q"], ["-r", "y"]]
    + [["-now", "y"], ["-verify"], ["-w", "v"], ["-w", "p"], ["-@", "file"], ["-i", "/x"]]
    + [["-help"], ["-inherit"], ["-clear", "-t", "1"], ["-V", "-sync", "y"]]
    + [["-C", "#!"], ["-ckpt", "blcr"], ["-verbose", "-verify"]]
    + [["script.sh"], [""], ["-"], ["-P", "lab", "script.sh"], ["-V", "script.sh"]]
    + [["-binding", "set", "linear:4", "script.sh"]]
)


@pytest.mark.parametrize(
    "launcher, words",
    [("slurm", words) for words in SBATCH] + [("sge", words) for words in QSUB],
    ids=lambda one: one if isinstance(one, str) else " ".join(one) or "empty",
)
def test_an_option_that_changes_the_submission_is_refused(launcher, words):
    program, more = {"slurm": ("sbatch", {}), "sge": ("qsub", PARALLEL)}[launcher]
    with pytest.raises(BadInput, match="^engine_options: '.*' is refused, because .*: remove this"):
        options.cast(dict(more, launcher=launcher, engine_options=words))
    assert all(line.endswith(program) for line in batch_systems.refusals(launcher, words))


@pytest.mark.parametrize(
    "launcher, words",
    [
        ("slurm", ["--mem=8G", "--cpus-per-task=16", "--exclude", "n3", "-x", "n4", "-wn5"]),
        ("slurm", ["--begin=now+1hour", "--hold", "-H", "--nodelist", "n1,n2", "--qos", "long"]),
        ("slurm", ["--no-kill", "-s", "--export=NONE", "-c", "4", "--constraint", "a&b"]),
        ("slurm", ["--kill-on-invalid-dep=yes", "--open-mode=append", "--get-user-env", "-i/x"]),
        ("sge", ["-binding", "set", "linear:4", "-binding", "linear:2", "-m", "bea", "-M", "me"]),
    ],
)
def test_other_options_are_accepted(launcher, words):
    given = dict(PARALLEL if launcher == "sge" else {}, launcher=launcher, engine_options=words)
    assert options.cast(given).engine_options == words


@pytest.mark.parametrize("limit", ["0", "0:00", "00:00", "0:00:00", "00:00:00"])
def test_a_time_limit_of_zero_is_refused(limit):
    """It is no limit in Slurm."""
    with pytest.raises(BadInput, match="time_limit='%s' is refused: .*above 0" % limit):
        options.cast({"launcher": "slurm", "time_limit": limit})
    assert options.cast({"launcher": "slurm", "time_limit": "0:00:30"}).time_limit == "0:00:30"
