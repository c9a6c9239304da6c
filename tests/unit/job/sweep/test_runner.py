"""Begin, run, interrupt and go on, with simulated jobs."""

import copy
import json

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.sweep import report, results, runner, summary
from tests.inventories.cases import changed, plan_of
from tests.unit.job.plan.test_submission import submitted
from tests.unit.job.report import fake_run
from tests.unit.job.sweep.cluster import LOCAL, means, planned, spec_of
from tests.unit.job.sweep.test_results import OK, of_measured, ran
from tests.unit.model.test_files import SAMPLES as FILES

SAMPLES = FILES / "sweeps"
FAILED = fake_run.verdict(fake_run.failure(exit_code=-9))


class Cluster:
    """Runs jobs by writing their run folders; `verdicts` {job id: verdict, None for none}."""

    def __init__(self, runs):
        self.runs, self.verdicts, self.started, self.stopped, self.said = runs, {}, [], [], []
        self.knobs = []
        self.means = means(planned, self.start, self.stopped.append, self.said)
        self.means = self.means._replace(show=self.said.append)

    def start(self, knobs):
        self.started.append(knobs["job_id"])
        self.knobs.append(knobs)
        verdict = self.verdicts.get(knobs["job_id"], OK)
        if isinstance(verdict, BaseException):
            raise verdict
        if verdict is None:
            return 4
        ran(self.runs / knobs["job_id"], verdict, [of_measured(0)])
        return 0 if verdict.ok else 2

    def go(self, spec, again=""):
        return runner.go(spec, str(self.runs), self.means, again)

    def opened(self, given=None, playbook="benchmark.yml", options=None, names=None):
        given = dict({"sweep": "mine"}, **(given or {}))
        return runner.opened(
            playbook,
            given,
            options or {},
            list(given) if names is None else names,
            str(self.runs),
            "/",
            self.means.plan_of,
        )


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "runs").mkdir()
    return Cluster(tmp_path / "runs")


LISTS = {"networks": "mlp,lenet", "worker_counts": "1"}


def test_a_sweep_runs_all_jobs_in_order(cluster):
    spec = cluster.opened(LISTS)
    assert not (cluster.runs / "mine").exists(), "opening writes nothing"
    records = cluster.go(spec)
    assert cluster.started == ["mine-001", "mine-002"] and set(records) == {"001", "002"}
    path = cluster.runs / "mine" / "sweep.json"
    assert json.loads(path.read_text()) == spec.encode()
    assert [one["network"] for one in cluster.knobs] == ["mlp", "lenet"]
    assert cluster.said[0] == (
        "SWEEP     job 1 of 2, 001: network=mlp kv=dist_sync batch_size=32 scaling=weak workers=1"
    )
    assert cluster.said[1] == "RESULT    mine-001 ok, 1000 samples/s"
    assert cluster.said[2].startswith("SWEEP     job 2 of 2, 002: network=lenet")
    assert "left" in cluster.said[2], "an estimate after the first job"


def test_a_job_that_failed_because_of_the_interruption_runs_again(cluster):
    cluster.verdicts["mine-001"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        cluster.go(cluster.opened(LISTS))
    ran(cluster.runs / "mine-001", FAILED, [])  # its lease ran out, and a report was made
    records = cluster.go(cluster.opened())
    assert cluster.started == ["mine-001", "mine-001-a2", "mine-002"]
    assert records["001"].state == "ok"
    # A job that ended before its record is not run again.
    folder = cluster.runs / "mine"
    (folder / "results.jsonl").unlink()
    (folder / "running.json").write_text('{"job": "001", "id": "mine-001-a2"}')
    cluster.go(cluster.opened())
    assert cluster.started[3:] == ["mine-002-a2"] and cluster.stopped == ["mine-001", "mine-001-a2"]


def test_a_job_without_a_verdict_ends_the_sweep(cluster):
    cluster.verdicts["mine-001"] = None
    with pytest.raises(BadInput, match="mine-001 ended with exit status 4 and no verdict"):
        cluster.go(cluster.opened(LISTS))
    assert cluster.started == ["mine-001"]


def test_failed_jobs_run_again_only_on_request(cluster):
    cluster.verdicts["mine-001"] = FAILED
    records = cluster.go(cluster.opened(LISTS))
    assert [records[name].state for name in ("001", "002")] == ["failed", "ok"]
    assert "RESULT    mine-001 failed: gone" in cluster.said
    cluster.go(cluster.opened())
    assert len(cluster.started) == 2
    records = cluster.go(cluster.opened(), again="failed")
    assert cluster.started[2:] == ["mine-001-a2"] and records["001"].id == "mine-001-a2"
    lines = (cluster.runs / "mine" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["job"] for line in lines] == ["001", "002"]


def test_jobs_with_late_steps_run_again_only_on_request(cluster):
    records = cluster.go(cluster.opened(LISTS))
    records["002"] = records["002"].replaced(late=True, late_steps=7)
    results.write(str(cluster.runs / "mine"), records.values())
    assert runner.outcome(records["002"]) == (
        "RESULT    mine-002 ok, 1000 samples/s, up to 7 late steps of a worker"
    )
    cluster.go(cluster.opened(), again="failed")
    assert len(cluster.started) == 2, "a job with late steps has not failed"
    records = cluster.go(cluster.opened({"again": "late"}), again="late")
    assert cluster.started[2:] == ["mine-002-a2"] and not records["002"].late


def test_two_controllers_do_not_run_one_sweep(cluster):
    spec = cluster.opened(LISTS)

    def start(knobs):
        with pytest.raises(BadInput, match="sweep=mine is already running"):
            cluster.go(spec)
        return Cluster.start(cluster, knobs)

    runner.go(spec, str(cluster.runs), cluster.means._replace(start=start))


@pytest.mark.parametrize(
    "given,words",
    [
        ({"networks": "alexnett"}, "job 001: network='alexnett' is unknown"),
        ({"worker_counts": "1,9"}, "job 002: num_workers=9, but the cluster has only 4 workers"),
        ({"networks": "mlp,lenet", "max_jobs": "5"}, "has 6 jobs, but max_jobs=5"),
        ({"kvs": "local", "worker_counts": "2"}, "the sweep has no job"),
        ({"rendezvous": "127.0.0.12:9300"}, "job 001: rendezvous=127.0.0.12:9300"),
        ({"again": "failed"}, "the sweep 'mine' does not exist"),
    ],
)
def test_an_impossible_sweep_is_refused_before_it_starts(cluster, given, words):
    with pytest.raises(BadInput) as refusal:
        cluster.opened(given)
    assert words in str(refusal.value)
    assert list(cluster.runs.iterdir()) == [] and not cluster.started


def test_knobs_of_train_yml_are_refused_before_it_starts(cluster):
    with pytest.raises(BadInput, match="lr='fast' is refused"):
        cluster.opened(options={"lr": "fast"}, names=["lr"])
    # 4 workers alone; for each scheme 2 momenta with 4 rates, which grow by 4 at each end, and 2
    # settings with 100 seeds.
    many = {"schemes": "bsp,asp", "seeds": "100", "max_jobs": "50"}
    with pytest.raises(BadInput, match="up to 452 jobs, but max_jobs=50"):
        cluster.opened(many, "compare.yml")


@pytest.mark.parametrize("playbook", ["benchmark.yml", "compare.yml"])
def test_a_sweep_does_not_measure_the_workers_itself(cluster, playbook):
    """Without labels a plan with grouping=auto needs a profile, and there is none."""
    hosts = {host: {"worker_group": None} for host in LOCAL["hosts"]}

    def unlabelled(knobs):
        return plan_of(changed(LOCAL, {"options": dict(knobs), "hosts": hosts}))

    cluster.means = cluster.means._replace(plan_of=unlabelled)
    given = {"kvs": "dist_gsync"} if playbook == "benchmark.yml" else {}
    grouping = {"options": {"grouping": "auto"}, "names": ["grouping", *given]}
    with pytest.raises(BadInput, match="grouping=auto: no profile fits .* Run profile.yml -e app"):
        cluster.opened(given, playbook, **grouping)
    assert cluster.opened(given, playbook, names=list(given)).sweep == "mine"


@pytest.mark.parametrize("playbook", ["benchmark.yml", "compare.yml"])
def test_a_sweep_of_batch_jobs_is_refused(cluster, playbook):
    """Their plan is a submission without workers."""
    plan, _ = submitted()
    cluster.means = cluster.means._replace(plan_of=lambda knobs: plan)
    with pytest.raises(BadInput, match="launcher=slurm is refused for a sweep.*launcher=ssh"):
        cluster.opened(playbook=playbook)


def test_a_folder_of_something_else_is_no_sweep(cluster):
    (cluster.runs / "mine").mkdir()
    with pytest.raises(BadInput, match="holds no sweep"):
        cluster.opened()
    (cluster.runs / "mine" / "sweep.json").write_text('{"schema": 9, "playbook": "benchmark.yml"}')
    with pytest.raises(BadInput, match="which this version of mxcluster writes"):
        cluster.opened()


SMALL = {"schemes": "fastest", "lr_factors": "1", "momenta": "0", "lr_growth": "0", "seeds": "1"}


def test_a_job_of_some_workers_gets_a_hosts_file(cluster):
    path, texts = cluster.runs / "mine" / "job.hosts", []
    start = cluster.means.start

    def noted(knobs):
        texts.append(path.read_text() if knobs.get("hosts_file") == str(path) else None)
        return start(knobs)

    cluster.means = cluster.means._replace(start=noted)
    cluster.go(cluster.opened(dict(SMALL, schemes="bsp,fastest"), "compare.yml"))
    alone, both = ["127.0.0.1%d\n" % number for number in (1, 2, 3, 4)], "127.0.0.11\n127.0.0.12\n"
    assert texts == [*alone, None, both, None, both]


def test_a_comparison_of_another_method_does_not_go_on(cluster):
    """Its records have the time of worker 0's epochs, so both would be compared."""
    cluster.go(cluster.opened(SMALL, "compare.yml"))
    path = cluster.runs / "mine" / "sweep.json"
    content = json.loads(path.read_text())
    for earlier in (dict(content, method=1), {**content, "method": None}):
        path.write_text(json.dumps(earlier))
        with pytest.raises(BadInput, match="another method of comparison.*choose another name"):
            cluster.opened({}, "compare.yml", names=["sweep"])
    old = json.loads((SAMPLES / "compare-method-1" / "sweep.json").read_text())
    path.write_text(json.dumps(dict(old, sweep="mine")))
    with pytest.raises(BadInput, match="another method of comparison"):
        cluster.opened({}, "compare.yml", names=["sweep"])


def test_a_slow_worker_of_the_inventory_is_noted(cluster):
    """The first job of a comparison has the first worker only, which is not the slow one."""
    slow = changed(LOCAL, {"hosts": {"node4": {"slowdown": 4}}})
    cluster.means = cluster.means._replace(
        plan_of=lambda knobs: plan_of(changed(slow, {"options": dict(knobs)}))
    )
    (note,) = cluster.opened(dict(SMALL, schemes="bsp", seeds="5"), "compare.yml").notes
    assert "slow" in note, note


def test_jobs_that_differ_in_seed_and_setting_are_planned_once():
    asked = []

    def plan(knobs):
        asked.append(knobs)
        return planned(knobs)

    spec = spec_of("compare.yml", plan=plan, schemes="bsp,asp", seeds=3)
    del asked[:]
    # 4 rates with 2 momenta, and the workers alone.
    assert len(runner.check(spec, plan)) == 4 + 2 * 8 and len(asked) == 1 + 2


def test_a_report_is_written_of_what_there_is(cluster, monkeypatch):
    wrote = []
    monkeypatch.setattr(report, "write", lambda *given: wrote.append(given))
    spec = cluster.opened(LISTS)
    runner.report_on(spec, str(cluster.runs), "cache")
    assert wrote == []
    cluster.go(spec)
    runner.report_on(spec, str(cluster.runs), "cache")
    assert set(wrote[0][2]) == {"001", "002"}


VALUES = (None, True, -1, 1e300, "x", [], ["x"], {}, {"x": 1})


def places(value):
    """Yield the paths of all values in JSON: tuples of keys and indices."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield (key,)
        if isinstance(inner, (dict, list)):
            for more in places(inner):
                yield (key,) + more


def damages(value):
    """Yield copies of the JSON `value`, each with one field missing or of another value."""
    for path in places(value):
        for new in ("missing",) + VALUES:
            other = copy.deepcopy(value)
            inner = other
            for key in path[:-1]:
                inner = inner[key]
            if new == "missing":
                del inner[path[-1]]
            else:
                inner[path[-1]] = new
            yield path, other


@pytest.mark.slow
@pytest.mark.parametrize(
    "playbook, given",
    [
        ("benchmark.yml", LISTS),
        ("compare.yml", dict(SMALL, schemes="bsp,fastest")),
    ],
)
def test_each_damage_of_a_sweeps_files_is_refused_by_the_files_name(cluster, playbook, given):
    """No damage ends in another error; a damage without effect is accepted."""
    cluster.go(cluster.opened(given, playbook))
    folder = cluster.runs / "mine"
    lines = (folder / "results.jsonl").read_text().splitlines(True)
    contents = {
        "sweep.json": [json.loads((folder / "sweep.json").read_text()), json.dumps],
        "results.jsonl": [
            json.loads(lines[0]),
            lambda one: json.dumps(one) + "\n" + "".join(lines[1:]),
        ],
        "running.json": [{"job": "002", "id": "mine-002"}, json.dumps],
        "stopped.json": [["mine-002"], json.dumps],
    }

    def look():
        spec = cluster.opened({"sweep": "mine"}, playbook, names=["sweep"])
        runner.dry_run(spec, str(cluster.runs), planned)
        records = runner._earlier(spec, str(folder), str(cluster.runs), cluster.means)
        runner._stopped(str(folder))
        summary.text(spec, records, str(folder))
        report.render(spec, records)

    refused = 0
    for name, (content, render) in contents.items():
        path = folder / name
        before = path.read_bytes() if path.exists() else None
        whole = [b"", b"{", b"null", b"3", b"[" * 100000 + b"\n", b"\xff\n", b'"x"\n']
        for text in whole + [render(other).encode() for _, other in damages(content)]:
            path.write_bytes(text)
            try:
                look()
            except BadInput as refusal:
                if "is unknown to the program" in str(refusal):  # a sound name of no network
                    continue
                assert str(path) in str(refusal), refusal
                assert "remove" in str(refusal) or "choose another name" in str(refusal), refusal
                refused += 1
            if before is None:
                if path.exists():
                    path.unlink()
            else:
                path.write_bytes(before)
    assert refused > 100
