"""Grid Engine: what is refused before anything is submitted, and the states of jobs.

The texts are those of Son of Grid Engine 8.1.9.
"""

import pytest

from mxcluster.batch_systems import Request, problem, sge
from mxcluster.errors import MxclusterError

WANTED = Request(3, queue="", environment="mpi", time="", gres="", options=[])
QSTAT = """\
job-ID  prior   name       user         state submit/start at     queue               slots
------------------------------------------------------------------------------------------------
      7 0.55500 mxcluster- mxcluster    r     11/23/2026 18:00:00 main.q@node1            3
      8 0.00000 mxcluster- mxcluster    qw    11/23/2026 18:00:01                         3
      9 0.00000 mxcluster- mxcluster    Eqw   11/23/2026 18:00:01                         3
     10 0.00000 mxcluster- mxcluster    hqw   11/23/2026 18:00:01                         3
     11 0.55500 mxcluster- mxcluster    dr    11/23/2026 18:00:00 main.q@node1            3
     12 0.55500 mxcluster- mxcluster    S     11/23/2026 18:00:00 main.q@node1            3
"""
TIGHT = "control_slaves     TRUE\njob_is_first_task  FALSE\n"
ANSWERS = {
    "qconf -spl": "fill\nloose\nmpi",
    "qconf -sp mpi": "pe_name            mpi\nallocation_rule    1\n" + TIGHT,
    "qconf -sp fill": "pe_name            fill\nallocation_rule    $fill_up\n" + TIGHT,
    "qconf -sp loose": "pe_name   loose\nallocation_rule    1\ncontrol_slaves     FALSE\n",
    "qselect -pe mpi": "main.q@node1\nmain.q@node2\nmain.q@node3\nother.q@node1",
    "qselect -pe fill": "main.q@node1",
    "qstat -u *": QSTAT,
    "qstat -j 8": 'job_number: 8\nscheduling info:            cannot run in PE "mpi"\n',
    "qstat -j 9": "job_number: 9\nerror reason    1:          11/23/2026 18:00:02 [3000:17]: "
    'error: can\'t open output file "/shared/jobs/job-1/batch.log": No such file or directory\n',
    "qacct -j 5": "failed       100 : assumedly after job\ndeleted_by   mxcluster@node1\n",
    "qacct -j 4": "failed       0    \nexit_status  1\n",
}


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Put programs on the PATH that give the texts of ANSWERS; return those that were asked."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for call, text in ANSWERS.items():
        (texts / call.replace(" ", "_")).write_text(text)
    for name in ("qconf", "qselect", "qstat", "qacct", "qsub", "qdel"):
        program = tmp_path / name
        program.write_text(
            '#!/bin/sh\necho "%s $*" >>%s/asked\nname=$(echo "%s $*" | tr " " _)\n'
            'cat "%s/$name" 2>/dev/null || { echo "%s: no answer" >&2; exit 1; }\n'
            % (name, tmp_path, name, texts, name)
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_a_job_that_fits_has_no_problem(told):
    assert problem("sge", WANTED) == ""


@pytest.mark.parametrize(
    "wanted,words",
    [
        ({"environment": ""}, "launcher=sge needs a parallel environment: use -e parallel_envir"),
        ({"environment": "mpl"}, "parallel_environment=mpl: Grid Engine has no such parallel en"),
        ({"environment": "fill"}, "parallel_environment=fill: its allocation_rule is $fill_up"),
        ({"environment": "loose"}, "parallel_environment=loose: qrsh cannot start programs on it"),
        ({"nodes": 4}, "num_nodes=4: only 3 nodes have queues with the parallel environment mpi"),
        ({"queue": "nowhere"}, "queue=nowhere: no such queue has the parallel environment"),
    ],
)
def test_what_grid_engine_cannot_give_is_refused(told, wanted, words):
    assert problem("sge", WANTED._replace(**wanted)).startswith(words)


def test_a_refusal_of_qsub_is_shown(told):
    with pytest.raises(MxclusterError, match="Grid Engine refuses the job: qsub: no answer"):
        sge.submit("/shared/jobs/job-1", "1-job", WANTED, "#!/bin/sh\n")
    asked = (told / "asked").read_text()
    assert "-N mxcluster-1-job -wd /shared/jobs/job-1" in asked and "-pe mpi 3" in asked


def test_resources_become_arguments_of_qsub(told):
    (told / "qsub").write_text('#!/bin/sh\necho "$*" >%s/argv\necho 12\n' % told)
    wanted = WANTED._replace(queue="main.q", time="1:30", gres="gpu=2", options=["-P", "lab"])
    assert sge.submit("/jobs/job-1", "job-1", wanted, "#!/bin/sh\n") == "12"
    argv = (told / "argv").read_text()
    assert argv.startswith("-P lab -hard -terse ") and "-q main.q -l h_rt=5400 -l gpu=2" in argv


def test_states_of_jobs(told):
    assert sge.state("7") == ("runs", "", False)
    assert sge.state("8") == ("waits", 'cannot run in PE "mpi"', False)
    assert sge.state("11").phase == "ends" and sge.state("12").phase == "suspended"
    reason = 'can\'t open output file "/shared/jobs/job-1/batch.log": No such file or directory'
    assert sge.state("9") == ("stuck", reason, False)  # until its user or a manager clears it
    assert sge.state("10").phase == "waits"
    assert sge.state("5") == ("ended", "mxcluster@node1 deleted it with qdel", False)
    assert sge.state("4") == ("ended", "", False)  # by itself, or in an old version by qdel
    assert sge.state("3") == ("ended", "", False), "without an accounting file nobody knows"
    (told / "qstat").write_text("#!/bin/sh\nexit 1\n")
    assert sge.state("7") == ("unknown", "", False)


def record(failed, status, host="node1", deleted="NONE"):
    """Return a record of `qacct -j`."""
    fields = (("hostname", host), ("failed", failed), ("deleted_by", deleted))
    lines = ["=" * 62] + ["%-13s%s" % field for field in fields + (("exit_status", status),)]
    return "\n".join(lines) + " " * 18 + "\n"


SIGNAL, LIMIT = "100 : assumedly after job", "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit"


@pytest.mark.parametrize(
    "told,words,again",
    [
        (record(SIGNAL, 137) + record(LIMIT, 137, "node2"), "a limit was over (qmaster enf", False),
        (record(LIMIT, 137), "a limit was over (qmaster enf", False),
        (record(SIGNAL, 137) + record(0, 0, "node2"), "killed by signal 9 (SIGKILL)", True),
        (record(SIGNAL, 139), "killed by signal 11 (SIGSEGV)", False),
        (record(0, 0, "node2") + record(SIGNAL, 137, deleted="ann@a"), "ann@a deleted it", False),
        (record("21  : in recognizing job", 0), "a node could not run or finish it (in re", True),
        (record("26  : opening input/output file", 0), "opening input/output file", False),
        (record(0, 1), "", True),
        ("failed       100 : assumedly after job\nexit_status  137\n", "a user deleted it", False),
    ],
)
def test_grid_engine_tells_whether_another_attempt_may_succeed(told, words, again):
    found = sge._ended(0, told)
    assert found.phase == "ended" and found.again == again and words in found.why, found
    assert bool(words) == bool(found.why)


def test_the_nodes_of_a_job(tmp_path):
    (tmp_path / "hosts").write_text("node2 1 main.q@node2 UNDEFINED\nnode1 1 main.q@node1 0:0\n")
    found = sge.hosts({"PE_HOSTFILE": str(tmp_path / "hosts")})
    assert found == ["node2", "node1"]
    assert sge.on_node("node1", ["prog"]) == ["qrsh", "-inherit", "node1", "prog"]
