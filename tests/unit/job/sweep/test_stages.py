"""Which jobs a sweep still has to run."""

from mxcluster.job.sweep import stages
from tests.unit.job.sweep.cluster import compared, measured, record, spec_of


def names(jobs):
    return [job.name for job in jobs]


def records_of(spec, **figures):
    """Return the records of the first stage; `figures` {scheme: [fields of the record by rate]}."""
    found = {}
    for scheme, each in figures.items():
        for rate, fields in zip(spec.rates, each):
            name = "%s-lr%g-seed0" % (scheme, rate.lr)
            found[name] = record(name, **fields)
    return found


def test_a_benchmark_runs_what_has_no_record():
    spec = spec_of(worker_counts="1,2,4")
    jobs = stages.next_jobs(spec, {})
    assert names(jobs) == ["001", "002", "003"] and stages.most_jobs(spec) == 3
    found = {"002": measured(jobs[1], 10.0)}
    assert names(stages.next_jobs(spec, found)) == ["001", "003"]
    found.update(dict.fromkeys(("001", "003"), found["002"]))
    assert stages.next_jobs(spec, found) == []


def test_the_first_stage_is_every_rate_with_one_seed():
    spec = compared("bsp", "asp")
    first = ["bsp-lr0.025-seed0", "bsp-lr0.05-seed0", "asp-lr0.025-seed0", "asp-lr0.05-seed0"]
    assert names(stages.next_jobs(spec, {})) == first
    found = {first[1]: record(first[1])}
    assert names(stages.next_jobs(spec, found)) == [first[0]] + first[2:]
    assert stages.choose(spec, found) is None and stages.most_jobs(spec) == 4 + 2 * 2 * 2


def test_other_seeds_run_at_the_best_and_at_the_common_rate():
    spec = compared("bsp", "asp", "ssp")
    found = records_of(
        spec,
        bsp=[{"target_s": 9.0}, {"target_s": 5.0}],  # best: 0.05
        asp=[{"target_s": 8.0}, {"target_s": None}],  # best: 0.025
        ssp=[{"target_s": 20.0}, {"target_s": 8.0}],  # best: 0.05
    )
    chosen = stages.choose(spec, found)
    assert chosen.best == {"bsp": 0.05, "asp": 0.025, "ssp": 0.05}
    # Both rates are the worst of some scheme; 0.05 is so for one, 0.025 for two.
    assert chosen.common == 0.05
    assert names(stages.next_jobs(spec, found)) == [
        "bsp-lr0.05-seed1",
        "asp-lr0.025-seed1",
        "ssp-lr0.05-seed1",
        "bsp-lr0.05-seed2",
        "asp-lr0.025-seed2",
        "ssp-lr0.05-seed2",
        "asp-lr0.05-seed1",  # the common rate
        "asp-lr0.05-seed2",
    ]
    for job in stages.next_jobs(spec, found):
        found[job.name] = record(job.name)
    assert stages.next_jobs(spec, found) == []


def test_the_common_rate_is_the_least_bad_of_all():
    spec = compared("bsp", "asp", rates=("1/4", "1/2", "1"))
    found = records_of(
        spec,
        bsp=[{"target_s": 9.0}, {"target_s": 6.0}, {"target_s": 5.0}],
        asp=[{"target_s": 5.0}, {"target_s": 6.0}, {"target_s": 9.0}],
    )
    chosen = stages.choose(spec, found)
    assert chosen.best == {"bsp": 0.05, "asp": 0.0125} and chosen.common == 0.025


def test_without_the_target_the_accuracy_decides():
    spec = compared("bsp")
    found = records_of(spec, bsp=[{"accuracy": 0.8}, {"accuracy": 0.7}])
    assert stages.choose(spec, found).best == {"bsp": 0.025}
    found = records_of(spec, bsp=[{"accuracy": 0.8}, {"accuracy": 0.7, "target_s": 90.0}])
    assert stages.choose(spec, found).best == {"bsp": 0.05}
    equal = records_of(spec, bsp=[{"target_s": 5.0}, {"target_s": 5.0}])
    assert stages.choose(spec, equal) == stages.Choice({"bsp": 0.025}, 0.025)


def test_a_diverged_job_counts_and_a_failed_one_is_the_worst():
    spec = compared("bsp", "asp")
    found = records_of(
        spec,
        bsp=[{"state": "failed", "accuracy": None}, {"state": "diverged", "accuracy": None}],
        asp=[{"state": "failed"}, {"state": "failed"}],
    )
    chosen = stages.choose(spec, found)
    assert chosen.best == {"bsp": 0.05} and chosen.common == 0.05
    assert names(stages.next_jobs(spec, found)) == ["bsp-lr0.05-seed1", "bsp-lr0.05-seed2"]


def test_nothing_is_left_if_all_jobs_failed():
    spec = compared("bsp")
    found = records_of(spec, bsp=[{"state": "failed"}, {"state": "failed"}])
    assert stages.choose(spec, found) == stages.Choice({}, None)
    assert stages.next_jobs(spec, found) == []
