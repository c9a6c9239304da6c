"""The predicted speed of each scheme, computed by hand, and the scheme to use."""

import pytest

from mxcluster.cluster import predictions
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import read
from tests.unit.cluster.profiles import completed, measured

UNEQUAL = {"a": 100, "b": 100, "c": 50, "d": 25}
# The exchange takes 0.1 s, the computation of 32 samples 0.32, 0.32, 0.64 and 1.28 s.
EXCHANGE = 0.1


def predicted(profile):
    return {one.title: one for one in predictions.predict(profile)}


def chosen(speeds, **more):
    profile = completed(dict(measured(speeds), **more))
    return predictions.best(predictions.predict(profile), profile)


def test_the_speed_of_each_scheme():
    profile = completed(measured(UNEQUAL, exchange=EXCHANGE))
    assert profile.groups == [[0, 1], [2], [3]]
    found = {title: one.samples_per_s for title, one in predicted(profile).items()}
    steps = [0.42, 0.42, 0.74, 1.38]
    assert found == {
        "the fastest worker alone": 100,
        "BSP": pytest.approx(4 * 32 / 1.38),
        # Sizes of 46.5, 46.5, 23.3 and 11.6 samples.
        "load-balanced BSP": pytest.approx(128 / (max(47 / 100, 23 / 50, 12 / 25) + 0.1)),
        "BSP with a deadline": pytest.approx(128 / (128 / 275 * 33 / 32 + 0.1)),
        "BSP, the 2 fastest workers": pytest.approx(64 / 0.42),
        "GSP": pytest.approx(64 / 0.42 + 32 / 0.74 + 32 / 1.38),
        "SSP": pytest.approx(4 * 32 / 1.38),
        "ASP": pytest.approx(sum(32 / step for step in steps)),
    }
    assert predictions.limit(profile) == 275


def test_every_worker_trains_a_sample_before_a_deadline():
    profile = completed(dict(measured({"a": 100, "b": 1}, exchange=0.1), batch_size=4))
    found = predicted(profile)["BSP with a deadline"]
    assert found.samples_per_s == pytest.approx(8 / 1.1)
    assert found.knobs == {"kv": "dist_sync", "balance": "deadline"}


def test_train_yml_accepts_the_knobs_of_each_scheme():
    for one in predicted(completed(measured(UNEQUAL))).values():
        assert read(Options, one.knobs)


def test_the_servers_limit_the_schemes_that_update_at_each_push():
    """100 workers push 312 times a second, and the servers can do 30 and 20 updates."""
    workers = {"n%d" % number: 100 for number in range(100)}
    found = predicted(completed(measured(workers, servers=[30.0, 20.0])))
    assert found["ASP"].samples_per_s == pytest.approx(50 * 32)
    assert found["SSP"].samples_per_s == pytest.approx(50 * 32)
    assert found["BSP"].samples_per_s == pytest.approx(100 * 32 / 0.321)


def test_the_fastest_workers_are_those_that_maximize_m_times_the_slowest():
    # m s_m is 100, 180, 240, 200 and 5.
    speeds = {"d": 50, "a": 100, "c": 80, "e": 1, "b": 90}
    found = predicted(completed(measured(speeds, exchange=0.0)))
    fastest = found["BSP, the 3 fastest workers"]
    assert fastest.samples_per_s == pytest.approx(240) and fastest.workers == 3
    assert fastest.knobs == {"kv": "dist_sync", "without_workers": "d,e"}


def test_a_host_takes_part_with_all_its_workers():
    found = predicted(completed(measured({"a": [100, 20], "b": 60, "c": 50}, exchange=0.0)))
    assert found["BSP, the 2 fastest workers"].knobs["without_workers"] == "a"
    equal = predicted(completed(measured({"a": 9, "b": 9})))
    assert not [title for title in equal if title.startswith("BSP, the")]


@pytest.mark.parametrize(
    "speeds, more, title",
    [
        (dict.fromkeys("abcd", 100), {}, "BSP"),
        ({"a": 100, "b": 94}, {}, "BSP"),
        (UNEQUAL, {}, "load-balanced BSP"),
        ({"a": 100, "b": 100, "c": 100, "d": 10}, {}, "load-balanced BSP"),
        # A batch of one sample makes each step of the slow worker long.
        ({"a": 100, "b": 100, "c": 3}, {"batch_size": 4}, "BSP, the 2 fastest workers"),
        # A step of the slow pair takes 2 s; with balance=batch their batches cannot be smaller.
        ({"a": 64, "b": 64, "c": 0.5, "d": 0.5}, {"batch_size": 1}, "BSP, the 2 fastest workers"),
        ({"a": 30, "b": 20, "c": 10, "d": 10}, {"batch_size": 1}, "GSP"),
    ],
)
def test_the_scheme_to_use(speeds, more, title):
    assert chosen(speeds, **more).title == title


def test_one_worker_alone_is_the_one_to_use_where_the_exchange_takes_the_time():
    profile = completed(measured({"a": 99, "b": 100}, exchange=1.0))
    found = predictions.best(predictions.predict(profile), profile)
    assert (found.title, found.workers) == ("the fastest worker alone", 1)
    assert found.knobs == {"kv": "local", "without_workers": "a"}


def test_no_stale_gradients_for_a_gain_below_15_percent():
    """With batches of one sample, balance=batch is no faster than dist_sync."""
    profile = completed(dict(measured({"a": 10, "b": 8}), batch_size=1))
    found = predicted(profile)
    assert found["ASP"].samples_per_s > 1.12 * found["BSP"].samples_per_s
    assert predictions.best(list(found.values()), profile).title == "BSP"


def test_a_single_worker_has_no_choice():
    assert predictions.predict(completed(measured({"a": 100}))) == []
