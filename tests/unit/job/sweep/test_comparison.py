"""From the knobs of a comparison to its specification and jobs."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.sweep import comparison
from mxcluster.model import sweep_schemes
from mxcluster.model.plan import UsedProfile
from mxcluster.model.sweep import FastestGroup, Setting
from tests.unit.job.sweep.cluster import compared, planned, spec_of

SETTING = Setting(0.1, 0.5)


def test_the_rates_of_a_comparison():
    rates = comparison.rates_of(["1/W", "1/sqrt(W)", "1/2", "1", "2"], 0.1, 4)
    assert [(rate.factor, rate.lr) for rate in rates] == [
        ("1/W", 0.025),
        ("1/sqrt(W)", 0.05),  # 1/2 is the same
        ("1", 0.1),
        ("2", 0.2),
    ]
    assert comparison.rates_of(["0.3/3"], 0.1, 4)[0].lr == 0.01


@pytest.mark.parametrize("factor", ["0", "1/0", "0/W"])
def test_a_rate_of_0_is_refused(factor):
    with pytest.raises(BadInput, match="is not above 0"):
        comparison.rates_of([factor], 0.1, 4)


def test_a_job_of_a_comparison():
    spec = compared("bsp", "gsp", base={"lr": 0.2, "gsync_y": "one", "seed": 7})
    job = comparison.job(spec, "gsp", SETTING, 8)
    assert job.name == "gsp-lr0.1-m0.5-seed8" and job.hosts == ()
    assert (job.knobs["kv"], job.knobs["lr"], job.knobs["lr_scale"]) == ("dist_gsync", 0.1, "none")
    assert job.knobs["momentum"] == 0.5 and job.knobs["seed"] == 8
    assert job.knobs["gsync_y"] == "one" and job.knobs["measure_waits"] is True
    assert job.knobs["measured"] == 0, "a measurement of the inventory is none of a comparison"
    assert comparison.job(spec, "bsp", SETTING, 8).knobs["gsync_y"] == "rate"


def test_each_scheme_evaluates_the_weights_in_the_same_way():
    spec, other = compared(), compared(base={"evaluations": 50})
    for scheme in sweep_schemes.NAMES[:-1]:
        assert comparison.job(spec, scheme, SETTING, 1).knobs["evaluations"] == 200
        assert comparison.job(other, scheme, SETTING, 1).knobs["evaluations"] == 50


def test_each_scheme_gets_shares_in_proportion_if_its_workers_can_use_them():
    """Under the others, every worker trains the same number of batches."""
    spec, equal = compared(), compared(base={"data_allocator": 0})
    found = {
        scheme: comparison.job(spec, scheme, SETTING, 1).knobs["data_allocator"]
        for scheme in sweep_schemes.NAMES[:-1]
    }
    apart = {"asp", "gsp", "ringmaster"}
    assert {scheme for scheme, allocator in found.items() if allocator} == apart, found
    assert comparison.job(equal, "asp", SETTING, 1).knobs["data_allocator"] == 0
    for scheme in found:
        options.cast(comparison.job(spec, scheme, SETTING, 1).knobs)


def test_no_seed_both_chooses_and_measures():
    spec = compared(base={"seed": 7}, choosing_seeds=2)
    assert comparison.choosing_seeds(spec) == [7, 8]
    assert comparison.measuring_seeds(spec) == [9, 10, 11]
    assert len(comparison.measuring_seeds(spec_of("compare.yml"))) == 5, "the default"


def test_fewer_than_5_seeds_that_measure_have_a_note():
    assert [note for note in compared(seeds=4).notes if "use seeds=5 or more" in note] == [
        "4 seeds measured, so medians and quartiles say little: use seeds=5 or more"
    ]
    assert not compared("bsp", seeds=5).notes


@pytest.mark.parametrize(
    "schemes, base, words",
    [
        (("bsp", "asp"), {}, "so ASP trains with equal shares"),
        (("asp", "gsp", "ringmaster"), {}, "so ASP, GSP and Ringmaster train with equal shares"),
        (("bsp", "ssp", "balanced"), {}, ""),
        (("asp",), {"data_allocator": 0}, ""),
    ],
)
def test_equal_shares_without_a_profile_have_a_note(schemes, base, words):
    """The local inventory has no profile and no worker_share."""
    notes = compared(*schemes, base=base, seeds=5).notes
    assert len(notes) == bool(words) and words in "".join(notes), notes


def test_shares_of_a_profile_or_of_worker_share_have_no_note():
    def shared(knobs):
        shares = [(0, 0.4), (0.4, 0.8), (0.8, 0.9), (0.9, 1)]
        return planned(knobs).replaced(shares=shares)

    def profiled(knobs):
        profile = UsedProfile(job="x", fits=True, uses=["shares"], noise=0.1, speeds=[1.0] * 4)
        return planned(knobs).replaced(profile=profile)

    for plan in (shared, profiled):
        assert not spec_of("compare.yml", plan=plan, schemes="asp", seeds="5").notes


def test_ringmaster_drops_late_updates_and_shrinks_none():
    spec = compared("ringmaster")
    knobs = comparison.job(spec, "ringmaster", SETTING, 1).knobs
    assert (knobs["kv"], knobs["gsync_y"], knobs["gsync_max_y"]) == ("dist_gsync", "one", 8)
    given = compared("ringmaster", "gsp", ringmaster_max_y=3, base={"gsync_y": "gradient"})
    knobs = comparison.job(given, "ringmaster", SETTING, 1).knobs
    assert (knobs["gsync_y"], knobs["gsync_max_y"]) == ("one", 3)
    assert "gsync_max_y" not in comparison.job(given, "gsp", SETTING, 1).knobs


def test_each_worker_trains_alone_for_the_limit():
    spec = compared("bsp", base={"seed": 7, "staleness": 2, "evaluations": 9}, solo=True)
    jobs = comparison.solo_jobs(spec)
    assert [(job.name, list(job.hosts)) for job in jobs] == [
        ("solo-%d" % index, ["127.0.0.1%d" % (index + 1)]) for index in range(4)
    ]
    assert [(job.about.scheme, job.about.worker) for job in jobs[:2]] == [("solo", 0), ("solo", 1)]
    knobs = options.cast(dict(jobs[0].knobs))
    assert (knobs.kv, knobs.measured, knobs.evaluations) == ("device", 30, 0)
    assert not knobs.measure_waits, "waits slow a worker down"
    assert comparison.solo_jobs(compared("bsp", solo=False)) == []


@pytest.mark.parametrize("samples, batches", [(1000, 30), (6400, 100), (1000000, 300)])
def test_a_worker_measures_an_epoch_of_its_share_alone(samples, batches):
    """Thirty short batches may end within one period of a quota of CPU time."""
    base = {"data": "synthetic", "num_examples": samples, "batch_size": 16}
    found = comparison.solo_jobs(compared("bsp", base=base, solo=True))
    assert {job.knobs["measured"] for job in found} == {batches}


def test_steps_by_a_deadline_are_a_scheme_of_a_comparison():
    spec = compared("bsp", "deadline", base={"lr": 0.2, "least_batch": 4})
    found = options.cast(comparison.job(spec, "deadline", SETTING, 1).knobs)
    assert (found.kv, found.balance, found.least_batch) == ("dist_sync", "deadline", 4)
    assert options.cast(comparison.job(spec, "bsp", SETTING, 1).knobs).balance == "none"


def test_the_fastest_group_trains_alone():
    spec = compared("fastest")
    assert spec.fastest == FastestGroup(label="a", workers=2, hosts="127.0.0.11\n127.0.0.12\n")
    job = comparison.job(spec, "fastest", SETTING, 0)
    assert job.knobs["kv"] == "dist_sync" and job.hosts == ["127.0.0.11", "127.0.0.12"]
    other = spec_of("compare.yml", schemes="fastest", fastest_group="b")
    assert other.fastest.hosts == "127.0.0.13\n127.0.0.14\n"


def test_the_fastest_group_of_a_profile():
    def plan(knobs):
        found = planned(knobs)
        return found.replaced(group_labels=["speed2", "speed1"])

    assert spec_of("compare.yml", plan=plan, schemes="fastest").fastest.label == "speed1"


def test_an_unknown_fastest_group_is_refused():
    with pytest.raises(BadInput, match="name one of a, b"):
        spec_of("compare.yml", schemes="fastest", fastest_group="third pair")


def test_one_group_has_no_fastest_group_and_no_ringmaster():
    def plan(knobs):
        found = planned(knobs)
        return found.replaced(groups=[[0, 1, 2, 3]], group_labels=["all"])

    spec = spec_of("compare.yml", plan=plan, schemes="bsp,gsp,ringmaster,fastest")
    assert spec.knobs.schemes == ["bsp", "gsp"]
    assert any("GSP equals BSP" in note for note in spec.notes)
    for name in ("ringmaster", "fastest"):
        assert any("leaves out the scheme `%s`" % name in note for note in spec.notes)
    with pytest.raises(BadInput, match="no scheme is left"):
        spec_of("compare.yml", plan=plan, schemes="fastest")
