"""The files of a batch job, split by node; forged ones are not used."""

import io
import json
import tarfile

import pytest

from mxcluster.job import report, restarts
from mxcluster.job.report import batch
from mxcluster.model.answers import NodeResult
from mxcluster.model.failures import Failure
from mxcluster.model.record import encode
from mxcluster.model.verdict import Verdict
from tests.unit.job.plan.test_submission import completed, submitted
from tests.unit.statuses import compute

STATUS = {"job": "job-1", "agent": {"pid": 5, "start_time": 1}, "processes": []}
STATUS.update(state="ended", reason="failed", started=1.0, ended=2.0)
OTHERS = {"n2": None, "n3": None}  # nodes without a status
CANCELLED = {"role": "agent", "name": "agent", "time": 2.0, "kind": "batch"}
CANCELLED["reason"] = "Slurm has ended the job 7: CANCELLED"


@pytest.fixture
def archive(tmp_path):
    """Return a function that writes the submit host's archive with `files`, and splits it."""

    def split(files, plan=None, status=None):
        path = tmp_path / "login.tar"
        with tarfile.open(str(path), "w") as tar:
            for name, content in files.items():
                text = content if isinstance(content, str) else json.dumps(encode(content))
                info = tarfile.TarInfo(name)
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
        ends = {"login": NodeResult(status=status)}
        return batch.split(
            plan or submitted()[0], {"login": str(path)}, ends, str(tmp_path / "parts")
        )

    return split


def names(path):
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_each_node_gets_its_files(archive):
    plan, archives, answers, failure = archive(
        {
            "planned.json": completed(submitted()).encode(),
            "parts.json": {"n2": {"left": ["pid 7 still runs"], "lost": None}},
            "status.json": STATUS,
            "batch.log": "the head",
            "checkpoints/mlp-0005.params": "x",
            "nodes/n1/job-1/worker-0.log": "hello",
            "nodes/n2/job-1/files/worker-1/out.txt": "found",
        }
    )
    assert sorted(plan.nodes) == sorted(archives) == ["n1", "n2", "n3"] and failure is None
    assert names(archives["n1"]) == ["batch.log", "checkpoints/mlp-0005.params", "worker-0.log"]
    assert names(archives["n2"]) == ["files/worker-1/out.txt"]
    assert answers["n2"].left == ["pid 7 still runs"] and answers["n1"].left is None


def test_without_a_plan_the_job_stays_that_of_the_submit_host(archive):
    submission, _ = submitted()
    status = dict(STATUS, first_failure=CANCELLED)
    plan, archives, _, failure = archive({"status.json": status}, submission)
    assert plan is submission and list(archives) == ["login"]
    assert failure.reason.startswith("Slurm has ended")


@pytest.mark.parametrize("host", ["../../etc", ""])
def test_a_forged_plan_is_not_used(archive, host):
    made = completed(submitted()).encode()
    made["nodes"][host] = made["nodes"].pop("n2")
    for process in made["processes"]:
        process["host"] = host if process["host"] == "n2" else process["host"]
    submission, _ = submitted()
    assert archive({"planned.json": made}, submission)[0] is submission


def test_the_plan_of_another_job_is_not_used(archive):
    submission, _ = submitted()
    other = dict(completed(submitted()).encode(), job="job-2")
    assert archive({"planned.json": other}, submission)[0] is submission


def test_a_job_that_never_got_nodes_has_a_report(tmp_path, archive):
    submission, _ = submitted()
    files = {"status.json": dict(STATUS, first_failure=CANCELLED), "batch.log": "the head"}
    plan, archives, answers, failure = archive(files, submission)
    run = tmp_path / "runs" / "job-1"
    found = report.assemble(str(run), archives, plan, str(tmp_path), answers, failure)
    assert not found.ok and found.first_failure.reason == CANCELLED["reason"]
    assert "CANCELLED" in (run / "report.html").read_text()


def test_a_job_whose_first_node_failed_starts_again(archive):
    """The head and its agent were killed, so the status of their node is the last one before."""
    submission, request = submitted()
    gone = dict(CANCELLED, kind="node", reason="Slurm has ended the job 7: NODE_FAIL")
    files = {
        "status.json": dict(STATUS, first_failure=gone),
        "planned.json": completed((submission, request)).encode(),
    }
    plan, _, _, engine = archive(files, submission)
    plan = plan.replaced(options=plan.options.replaced(max_restarts=1, savemodel=True))
    running = dict(STATUS, host="n1", state="running", reason=None, ended=None)
    echo = dict(gone, reason="exited with status 91", kind=None, exit_code=91)
    others = dict(STATUS, host="n2", reason="peer", first_failure=echo)
    found = compute(plan, dict(OTHERS, n1=running, n2=others), [], engine=engine)
    assert found["first_failure"]["reason"] == gone["reason"]
    decision = restarts.decide(plan, Verdict.decode(found), None, lambda _: False)
    assert decision.extra.job_id == plan.job + "-r1", decision


def test_an_end_by_the_batch_system_explains_killed_processes():
    """The signals of the batch system also reach the processes, before their agents notice."""
    plan = completed(submitted())
    worker = dict(CANCELLED, name="worker-0", host="n1", role="worker", index=0)
    killed = dict(worker, exit_code=-15, reason="killed by signal 15 (SIGTERM)", kind=None)
    status = dict(STATUS, host="n1", first_failure=killed)
    own = dict(worker, exit_code=3, reason="exited with status 3", kind=None)

    def first(failure, engine):
        found = compute(
            plan,
            dict(OTHERS, n1=dict(status, first_failure=failure)),
            [],
            engine=engine,
        )
        return found["first_failure"]["reason"]

    engine = Failure.decode(dict(CANCELLED, host="login"))
    assert first(killed, engine) == CANCELLED["reason"]
    assert first(killed, None) == killed["reason"]
    assert first(own, engine) == own["reason"]


def test_a_job_that_the_batch_system_killed_has_a_duration():
    """The agents were killed before they could write their ends."""
    status = dict(STATUS, host="n1", state="running", reason=None, started=100.0, ended=None)
    engine = Failure.decode(dict(CANCELLED, host="login", time=112.5))
    found = compute(completed(submitted()), dict(OTHERS, n1=status), [], engine=engine)
    assert found["seconds"] == 12.5
    assert compute(completed(submitted()), dict(OTHERS, n1=status), [])["seconds"] == 0.0
