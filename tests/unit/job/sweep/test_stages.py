"""Which jobs a sweep still has to run."""

from mxcluster.job.sweep import comparison_rows, stages
from mxcluster.model.sweep import Setting
from tests.unit.job.sweep.cluster import compared, measured, name_of, record, spec_of


def names(jobs):
    return [job.name for job in jobs]


def records_of(spec, **figures):
    """Return the records of seed 0; `figures` {scheme: [fields of the record by rate]}."""
    found = {}
    for scheme, each in figures.items():
        for rate, fields in zip(spec.rates, each):
            name = name_of(scheme, rate.lr, 0)
            found[name] = record(name, **fields)
    return found


def at(lr, momentum=0.9):
    return Setting(lr, momentum)


def test_a_benchmark_runs_what_has_no_record():
    spec = spec_of(worker_counts="1,2,4")
    jobs = stages.next_jobs(spec, {})
    assert names(jobs) == ["001", "002", "003"] and stages.most_jobs(spec) == 3
    found = {"002": measured(jobs[1], 10.0)}
    assert names(stages.next_jobs(spec, found)) == ["001", "003"]
    found.update(dict.fromkeys(("001", "003"), found["002"]))
    assert stages.next_jobs(spec, found) == []


def test_the_workers_train_alone_first():
    spec = compared("bsp", rates=("1",), solo=True)
    solo = ["solo-0", "solo-1", "solo-2", "solo-3"]
    assert names(stages.next_jobs(spec, {})) == solo + ["bsp-lr0.05-m0.9-seed0"]


def test_every_setting_trains_with_the_seeds_that_choose():
    spec = compared("bsp", "asp", momenta=[0, 0.9], choosing_seeds=2)
    first = [
        name_of(scheme, lr, seed, momentum)
        for scheme in ("bsp", "asp")
        for momentum in (0, 0.9)
        for lr in (0.025, 0.05)
        for seed in (0, 1)
    ]
    assert names(stages.next_jobs(spec, {})) == first
    found = {first[1]: record(first[1])}
    assert names(stages.next_jobs(spec, found)) == [first[0]] + first[2:]
    assert stages.choose(spec, found) is None
    assert stages.most_jobs(spec) == 2 * (4 * 2 + 2 * 3)


def test_the_worst_of_a_settings_seeds_counts():
    spec = compared("bsp", choosing_seeds=2)
    times = {(0.025, 0): 9.0, (0.025, 1): 9.5, (0.05, 0): 5.0, (0.05, 1): None}
    found = {
        name_of("bsp", lr, seed): record(name_of("bsp", lr, seed), time)
        for (lr, seed), time in times.items()
    }
    assert stages.choose(spec, found).best == {"bsp": at(0.025)}


def test_other_seeds_measure_at_the_best_and_at_the_common_setting():
    spec = compared("bsp", "asp", "ssp", seeds=2)
    found = records_of(
        spec,
        bsp=[{"target_s": 9.0}, {"target_s": 5.0}],  # best: 0.05
        asp=[{"target_s": 8.0}, {"target_s": None}],  # best: 0.025
        ssp=[{"target_s": 20.0}, {"target_s": 8.0}],  # best: 0.05
    )
    chosen = stages.choose(spec, found)
    assert chosen.best == {"bsp": at(0.05), "asp": at(0.025), "ssp": at(0.05)}
    # Both rates are the worst of some scheme; 0.05 is so for one, 0.025 for two.
    assert chosen.common == at(0.05)
    assert names(stages.next_jobs(spec, found)) == [
        name_of("bsp", 0.05, 1),
        name_of("asp", 0.025, 1),
        name_of("ssp", 0.05, 1),
        name_of("bsp", 0.05, 2),
        name_of("asp", 0.025, 2),
        name_of("ssp", 0.05, 2),
        name_of("asp", 0.05, 1),  # the common setting
        name_of("asp", 0.05, 2),
    ]
    for job in stages.next_jobs(spec, found):
        found[job.name] = record(job.name)
    assert stages.next_jobs(spec, found) == []


def test_the_common_setting_can_be_left_out():
    spec = compared("bsp", "asp", common=False, seeds=2)
    found = records_of(spec, bsp=[{"target_s": 9.0}, {}], asp=[{"target_s": 8.0}, {}])
    assert stages.choose(spec, found).common is None
    measuring = names(stages.next_jobs(spec, found))
    assert len(measuring) == 4 and len(found) + len(measuring) == stages.most_jobs(spec)
    found.update((name, record(name)) for name in measuring)
    assert stages.next_jobs(spec, found) == []
    assert {kind for row in comparison_rows.rows(spec, found) for kind in row.kinds} == {"best"}


def test_the_common_setting_is_the_least_bad_of_all():
    spec = compared("bsp", "asp", rates=("1/4", "1/2", "1"))
    found = records_of(
        spec,
        bsp=[{"target_s": 9.0}, {"target_s": 6.0}, {"target_s": 5.0}],
        asp=[{"target_s": 5.0}, {"target_s": 6.0}, {"target_s": 9.0}],
    )
    chosen = stages.choose(spec, found)
    assert chosen.best == {"bsp": at(0.05), "asp": at(0.0125)} and chosen.common == at(0.025)


def test_the_best_momentum_is_chosen_with_the_rate():
    spec = compared("bsp", momenta=[0, 0.9])
    times = {(0.025, 0.0): 9.0, (0.05, 0.0): 4.0, (0.025, 0.9): 5.0, (0.05, 0.9): 7.0}
    found = {
        name_of("bsp", lr, 0, momentum): record(name_of("bsp", lr, 0, momentum), time)
        for (lr, momentum), time in times.items()
    }
    assert stages.choose(spec, found).best == {"bsp": at(0.05, 0.0)}


def grow(spec, times, scheme="bsp"):
    """Run all jobs of `scheme` that choose, each with the time of its rate. Return the records."""
    found = {}
    while stages.choose(spec, found) is None:
        for job in stages.next_jobs(spec, found):
            found[job.name] = record(job.name, times.get(job.about.lr))
    return found


def test_the_rates_grow_until_the_best_is_not_at_their_edge():
    """The best rate is two steps above the list; a step beyond shows that it is the best."""
    spec = compared("bsp", rates=("1/2", "1"), lr_growth=4)
    times = {0.025: 9.0, 0.05: 8.0, 0.1: 7.0, 0.2: 6.0, 0.4: 6.5, 0.8: 1.0}
    found = grow(spec, times)
    assert sorted(one.about.lr for one in found.values()) == [0.025, 0.05, 0.1, 0.2, 0.4]
    assert stages.choose(spec, found).best == {"bsp": at(0.2)}
    assert not comparison_rows.remarks(spec, found)
    down = grow(spec, {0.025: 5.0, 0.05: 8.0, 0.0125: 6.0})
    assert sorted(one.about.lr for one in down.values()) == [0.0125, 0.025, 0.05]


def test_the_rates_grow_by_a_bound_and_a_remark_says_so():
    spec = compared("bsp", rates=("1/3", "1"), lr_growth=2)
    found = grow(spec, {0.05: 8.0, 0.15: 7.0, 0.45: 6.0, 1.35: 5.0})
    lrs = sorted(one.about.lr for one in found.values())
    assert lrs == [0.0166667, 0.05, 0.15, 0.45], "by the ratio at the end of the list"
    (remark,) = comparison_rows.remarks(spec, found)
    assert "grown by lr_growth=2 rates: BSP with momentum 0.9 at 0.45. A better" in remark


def test_each_momentum_has_a_list_that_grows_by_itself():
    """Without momentum, larger rates are best."""
    spec = compared("bsp", rates=("1/2", "1", "2"), lr_growth=3, momenta=[0, 0.9])
    first = {job.name: record(job.name, 5.0) for job in stages.next_jobs(spec, {})}
    for name, one in first.items():
        time = abs(one.about.lr - 0.05) + 1 if one.about.momentum else 1 / one.about.lr
        first[name] = one.replaced(target_s=time)
    assert names(stages.next_jobs(spec, first)) == [name_of("bsp", 0.2, 0, 0)]


def test_without_the_target_the_accuracy_decides():
    spec = compared("bsp")
    found = records_of(spec, bsp=[{"accuracy": 0.8}, {"accuracy": 0.7}])
    assert stages.choose(spec, found).best == {"bsp": at(0.025)}
    found = records_of(spec, bsp=[{"accuracy": 0.8}, {"accuracy": 0.7, "target_s": 90.0}])
    assert stages.choose(spec, found).best == {"bsp": at(0.05)}
    equal = records_of(spec, bsp=[{"target_s": 5.0}, {"target_s": 5.0}])
    assert stages.choose(spec, equal) == stages.Choice({"bsp": at(0.025)}, at(0.025))


def test_a_diverged_job_counts_and_a_failed_one_is_the_worst():
    spec = compared("bsp", "asp", seeds=2)
    found = records_of(
        spec,
        bsp=[{"state": "failed", "accuracy": None}, {"state": "diverged", "accuracy": None}],
        asp=[{"state": "failed"}, {"state": "failed"}],
    )
    chosen = stages.choose(spec, found)
    assert chosen.best == {"bsp": at(0.05)} and chosen.common == at(0.05)
    assert names(stages.next_jobs(spec, found)) == [
        name_of("bsp", 0.05, 1),
        name_of("bsp", 0.05, 2),
    ]


def test_nothing_is_left_if_all_jobs_failed():
    spec = compared("bsp", lr_growth=3)
    found = records_of(spec, bsp=[{"state": "failed"}, {"state": "failed"}])
    assert stages.choose(spec, found) == stages.Choice({}, None)
    assert stages.next_jobs(spec, found) == []
