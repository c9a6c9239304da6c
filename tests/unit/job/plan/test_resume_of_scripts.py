"""A job with a script resumes from the files that the script of an earlier job has saved."""

import json
import os

import pytest
import yaml

from mxcluster.errors import BadInput
from mxcluster.job import what_ran
from mxcluster.job.plan import inputs
from mxcluster.model.plan import WORKER
from tests.plans import write_record
from tests.unit.job.plan.test_inputs import INVENTORY, folders_in
from tests.unit.job.report.test_checkpoint_arrivals import save_files
from tests.unit.job.test_what_ran import record_of


@pytest.fixture
def plan(tmp_path):
    """Return a function that plans a job; the run `first` of a script has saved nothing yet."""
    (tmp_path / "nodes").mkdir()
    for host in "ab":
        write_record(tmp_path / "nodes", host)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("print(1)\n")

    def run(**options):
        return inputs.plan_job(options, INVENTORY, folders_in(tmp_path))

    for job, options in (
        ("first", {"script": "mine/train.py", "script_args": ["--lr", "0.1"], "lr": 0.5}),
        ("own", {"num_epochs": 3}),
    ):
        made = run(kv="dist_async", job_id=job, **options)
        (tmp_path / "runs" / job / "checkpoints").mkdir(parents=True)
        (tmp_path / "runs" / job / "plan.json").write_text(json.dumps(made.plan.encode()))
    return run


@pytest.mark.slow
def test_the_new_job_takes_the_script_and_its_last_whole_checkpoint(plan, tmp_path):
    folder = tmp_path / "runs" / "first" / "checkpoints"
    for worker, number in (("worker-1", 1), ("worker-1", 2), ("worker-10", 7)):
        save_files(folder, worker, number, step=str(number))
    (folder / "worker-1-0002" / "step").write_text("?")
    made = plan(resume="first", job_id="second")
    options = made.plan.options
    assert (options.script, options.script_args) == (
        str(tmp_path / "mine" / "train.py"),
        ["--lr", "0.1"],
    )
    assert (made.plan.kv, options.model_load_epoch, made.model) == ("dist_async", 0, "")
    assert [os.path.relpath(path, str(folder)) for path in made.resume] == [
        "worker-1-0001.json",
        "worker-1-0001/step",
    ]
    assert "worker-1-0001, with 1 file" in made.table and "skipped: " in made.table
    assert made.script and plan(resume="first", script_args=["x"]).plan.options.script_args == ["x"]


@pytest.mark.slow
def test_each_worker_of_a_script_gets_a_folder_for_its_checkpoints(plan, tmp_path):
    save_files(tmp_path / "runs" / "first" / "checkpoints", "worker-0", 1, step="1")
    made = plan(resume="first", kv="dist_sync", job_id="third").plan
    for process in made.processes:
        folder = process.env.get("MXCLUSTER_CHECKPOINTS")
        if process.role == WORKER:
            assert folder == "%s/saved/%s" % (made.nodes[process.host].job_dir, process.name)
        else:
            assert folder is None
        assert "MXCLUSTER_RESUME" not in process.env, "servers have nothing to restore"
    workers = plan(kv="dist_sync", job_id="fourth").plan.of_role(WORKER)
    assert not any("MXCLUSTER_CHECKPOINTS" in process.env for process in workers)


@pytest.mark.slow
def test_a_resumed_script_gets_the_packages_of_the_earlier_job(plan, tmp_path):
    """The run folder has a copy of the file, which may have changed since."""
    wanted = tmp_path / "mine" / "requirements.txt"
    wanted.write_text("six\n")
    kept = tmp_path / "runs" / "packed" / "requirements.txt"
    made = plan(script="mine/train.py", requirements=str(wanted), job_id="packed", kv="dist_sync")
    (kept.parent / "checkpoints").mkdir(parents=True)
    save_files(kept.parent / "checkpoints", "worker-0", 1, step="1")
    (kept.parent / "plan.json").write_text(json.dumps(made.plan.encode()))
    assert plan(resume="packed").plan.options.requirements == str(wanted), "of an earlier version"
    wanted.write_text("six\ntqdm\n")  # while the job waits for room, for example
    record = record_of(made.plan, given={"requirements": "x"})
    what_ran.write(str(kept.parent), record, made.plan.options, "", requirements=made.requirements)
    assert plan(resume="packed").plan.options.requirements == str(kept)
    assert kept.read_text() == "six\n"
    assert yaml.safe_load((kept.parent / "knobs.yml").read_text()) == {"requirements": str(kept)}
    again = plan(resume="packed", requirements=str(wanted)).plan
    assert again.options.requirements == str(wanted), "the user has named it again"
    wanted.unlink()
    assert plan(resume="packed").plan.options.requirements == str(kept)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"resume": "first"}, "no complete checkpoint of the script in"),
        ({"resume": "own", "script": "mine/train.py"}, "this job ran the training program"),
        ({"resume": "none", "script": "mine/train.py"}, "none has no plan.json"),
        ({"resume": "first", "script": "mine/other.py"}, "no complete checkpoint"),
    ],
)
def test_a_job_that_cannot_be_resumed_is_refused(plan, given, words):
    with pytest.raises(BadInput, match=words):
        plan(**given)


@pytest.mark.slow
def test_a_script_that_is_gone_is_named(plan, tmp_path):
    save_files(tmp_path / "runs" / "first" / "checkpoints", "worker-0", 1, step="1")
    (tmp_path / "mine" / "train.py").unlink()
    with pytest.raises(BadInput, match="script=.*train.py' does not exist"):
        plan(resume="first")
