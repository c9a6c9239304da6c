"""From the knobs of a sweep to its jobs."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.sweep import rendezvous, specs
from mxcluster.model import sweep_knobs
from mxcluster.model.sweep import FastestGroup
from tests.unit.job.sweep.cluster import compared, planned, spec_of


def test_a_benchmark_is_the_product_of_its_lists():
    spec = spec_of(networks="mlp,lenet", kvs="dist_sync,dist_async", batch_sizes="16,32")
    assert specs.powers(6) == [1, 2, 4, 6]
    jobs = specs.benchmark_jobs(spec)
    assert spec.knobs.worker_counts == [1, 2, 4] and len(jobs) == 2 * 2 * 2 * 3
    assert [job.name for job in jobs] == ["%03d" % number for number in range(1, 25)]
    assert [job.about.workers for job in jobs[:4]] == [1, 2, 4, 1]
    assert [job.about.batch_size for job in jobs[:6]] == [16] * 3 + [32] * 3
    assert specs.benchmark_jobs(spec) == jobs, "the same jobs when the sweep goes on"
    for job in jobs:
        options.cast(job.knobs)


def test_a_job_measures_synthetic_data_in_one_epoch():
    (none, two) = specs.benchmark_jobs(spec_of(worker_counts="2", gpu_counts="0,2"))
    assert (none.knobs["gpus"], two.knobs["gpus"]) == ("", "0,1")
    knobs = none.knobs
    assert knobs["measure_waits"] is False and (
        knobs["data"],
        knobs["warm_up"],
        knobs["measured"],
    ) == ("synthetic", 10, 50)
    assert knobs["num_examples"] == 2 * 32 * 60 and knobs["num_workers"] == 2
    assert not (knobs["plan_only"] or knobs["detach"] or knobs["savemodel"])


def test_knobs_of_train_yml_are_passed_on():
    base = {"data": "digits", "measured": 5, "warm_up": 3, "lr": 0.1}
    (job,) = specs.benchmark_jobs(spec_of(base=base, worker_counts="2"))
    knobs = job.knobs
    assert {name: knobs[name] for name in base} == base
    assert "num_examples" not in knobs


def test_strong_scaling_divides_the_batch():
    spec = spec_of(scaling="strong", batch_sizes="64", worker_counts="1,2,4")
    assert [job.knobs["batch_size"] for job in specs.benchmark_jobs(spec)] == [64, 32, 16]
    both = spec_of(scaling="weak,strong", batch_sizes="64", worker_counts="1,2")
    found = [(job.about.scaling, job.about.workers) for job in specs.benchmark_jobs(both)]
    assert found == [("weak", 1), ("weak", 2), ("strong", 2)], "one worker is one job under both"


def test_a_batch_that_cannot_be_divided_is_refused():
    spec = spec_of(scaling="strong", batch_sizes="64", worker_counts="3")
    with pytest.raises(BadInput, match="64 cannot be divided evenly among 3 workers"):
        specs.benchmark_jobs(spec)


def test_schemes_without_servers_have_one_worker():
    spec = spec_of(kvs="local,dist_sync", worker_counts="1,2", rendezvous="127.0.0.11:9300")
    jobs = specs.benchmark_jobs(spec)
    found = [(job.knobs["kv"], job.about.workers) for job in jobs]
    assert found == [("local", 1), ("dist_sync", 1), ("dist_sync", 2)]
    assert "root_port" not in jobs[0].knobs and jobs[1].knobs["root_port"] == "9300"


def test_a_knob_of_one_scheme_goes_to_this_scheme_only():
    spec = spec_of(base={"staleness": 1}, kvs="dist_ssync,dist_async", worker_counts="2")
    assert [job.knobs["staleness"] for job in specs.benchmark_jobs(spec)] == [1, ""]


def test_a_rendezvous_is_interface_address_and_port():
    spec = spec_of(rendezvous="lo:127.0.0.11:9300", worker_counts="2")
    (job,) = specs.benchmark_jobs(spec)
    assert (job.knobs["dmlc_interface"], job.knobs["root_port"]) == ("lo", "9300")
    rendezvous.check("127.0.0.11:9300", planned({"kv": "dist_sync"}))
    rendezvous.check("10.9.9.9:9300", planned({"kv": "local"}))  # no rendezvous


@pytest.mark.parametrize(
    "address,words",
    [("127.0.0.12", "put node2 into the group scheduler"), ("10.9.9.9", "the interface with")],
)
def test_a_rendezvous_elsewhere_is_refused(address, words):
    with pytest.raises(BadInput, match="the scheduler runs on node1.*127.0.0.11") as refusal:
        rendezvous.check(address + ":9300", planned({"kv": "dist_sync"}))
    assert words in str(refusal.value)


def test_the_rates_of_a_comparison():
    rates = specs.rates_of(["1/W", "1/sqrt(W)", "1/2", "1", "2"], 0.1, 4)
    assert [(rate.factor, rate.lr) for rate in rates] == [
        ("1/W", 0.025),
        ("1/sqrt(W)", 0.05),  # 1/2 is the same
        ("1", 0.1),
        ("2", 0.2),
    ]
    assert specs.rates_of(["0.3/3"], 0.1, 4)[0].lr == 0.01


@pytest.mark.parametrize("factor", ["0", "1/0", "0/W"])
def test_a_rate_of_0_is_refused(factor):
    with pytest.raises(BadInput, match="is not above 0"):
        specs.rates_of([factor], 0.1, 4)


def test_a_job_of_a_comparison():
    spec = compared("bsp", "gsp", base={"lr": 0.2, "gsync_y": "one", "seed": 7})
    rate = spec.rates[0]
    job = specs.comparison_job(spec, "gsp", rate.lr, 7)
    assert job.name == "gsp-lr0.1-seed7" and specs.seeds_of(spec) == [7, 8, 9]
    assert (job.knobs["kv"], job.knobs["lr"], job.knobs["lr_scale"]) == ("dist_gsync", 0.1, "none")
    assert job.knobs["gsync_y"] == "one" and job.knobs["measure_waits"] is True
    assert job.knobs["measured"] == 0, "a measurement of the inventory is none of a comparison"
    assert specs.comparison_job(spec, "bsp", rate.lr, 7).knobs["gsync_y"] == "rate"
    for scheme in ("bsp", "gsp"):
        options.cast(specs.comparison_job(spec, scheme, rate.lr, 7).knobs)


def test_steps_by_a_deadline_are_a_scheme_of_a_comparison():
    spec = compared("bsp", "deadline", base={"lr": 0.2, "least_batch": 4})
    job = specs.comparison_job(spec, "deadline", spec.rates[0].lr, 0)
    found = options.cast(job.knobs)
    assert (found.kv, found.balance, found.least_batch) == ("dist_sync", "deadline", 4)
    plain = options.cast(specs.comparison_job(spec, "bsp", spec.rates[0].lr, 0).knobs)
    assert plain.balance == "none"


def test_the_fastest_group_trains_alone():
    spec = compared("fastest")
    assert spec.fastest == FastestGroup(label="a", workers=2, hosts="127.0.0.11\n127.0.0.12\n")
    job = specs.comparison_job(spec, "fastest", spec.rates[0].lr, 0)
    assert job.knobs["kv"] == "dist_sync" and job.knobs["hosts_file"] == specs.HOSTS_FILE
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


def test_one_group_has_no_fastest_group():
    def plan(knobs):
        found = planned(knobs)
        return found.replaced(groups=[[0, 1, 2, 3]], group_labels=["all"])

    spec = spec_of("compare.yml", plan=plan, schemes="bsp,gsp,fastest")
    assert spec.knobs.schemes == ["bsp", "gsp"]
    assert any("GSP equals BSP" in note for note in spec.notes)
    with pytest.raises(BadInput, match="no scheme is left"):
        spec_of("compare.yml", plan=plan, schemes="fastest")


# Going on.


def going_on(spec, playbook="benchmark.yml", base=None, **knobs):
    given = list(knobs) + list(base or {})
    specs.going_on(spec, playbook, sweep_knobs.cast(playbook, knobs), base or {}, given)


def test_a_sweep_goes_on_with_the_same_knobs_or_none():
    spec = spec_of(base={"lr": 0.1}, networks="mlp")
    going_on(spec)
    going_on(spec, networks=["mlp"], base={"lr": 0.1})
    going_on(spec, sweep="mine", again="failed", max_jobs=1)
    going_on(spec_of(), worker_counts="")  # 1, 2, 4 as computed before


@pytest.mark.parametrize(
    "playbook,base,knobs,words",
    [
        ("compare.yml", {}, {}, "belongs to benchmark.yml"),
        ("benchmark.yml", {}, {"networks": "lenet"}, "networks=..mlp.., not ..lenet"),
        ("benchmark.yml", {"lr": 0.2}, {}, "with lr=0.1, not 0.2"),
        ("benchmark.yml", {"data": "digits"}, {}, "was begun without data"),
    ],
)
def test_other_knobs_are_refused(playbook, base, knobs, words):
    spec = spec_of(base={"lr": 0.1}, networks="mlp")
    with pytest.raises(BadInput, match=words):
        going_on(spec, playbook, base, **knobs)


def test_relative_paths_stay_true_in_another_folder():
    found = specs.base_of(
        "compare.yml",
        {"hosts_file": "hosts", "lr": "1", "kv": "dist_sync", "plan_only": "true"},
        ["hosts_file", "lr", "kv", "plan_only", "seeds"],
        "/where",
    )
    assert found == {"hosts_file": "/where/hosts", "lr": 1.0}


def test_all_wrong_knobs_of_train_yml_are_refused_together():
    with pytest.raises(BadInput) as refusal:
        specs.base_of("benchmark.yml", {"lr": "x", "measured": "many"}, ["lr", "measured"], "/")
    assert len(str(refusal.value).splitlines()) == 2 and "measured='many'" in str(refusal.value)


def test_a_run_of_a_job_has_an_unused_id():
    used = {"mine-001", "mine-001-a2"}
    assert specs.job_id("mine", "002", used.__contains__) == "mine-002"
    assert specs.job_id("mine", "001", used.__contains__) == "mine-001-a3"
