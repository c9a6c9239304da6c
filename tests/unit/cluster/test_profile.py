"""The profile of a cluster: what follows from the measured part, its checks, and its fit."""

import json
import re
import time

import pytest

from mxcluster.cluster import predictions, profile
from mxcluster.cluster_files import check_data_sharding
from mxcluster.errors import BadInput
from mxcluster.model.profile import MeasuredProfile, Profile
from mxcluster.model.shapes import Wrong
from tests.unit.cluster.profiles import completed, measured

UNEQUAL = {"a": 100, "b": 101, "c": 50, "d": 25}


def test_what_follows_from_the_speeds():
    given = measured(UNEQUAL, servers=[100.0, 300.0])
    found = completed(given)
    assert found.noise == 0.05
    assert found.groups == [[0, 1], [2], [3]]
    assert found.labels == ["speed1", "speed2", "speed3"]
    total = 100 + 100 + 50 + 25
    ends = [end for _, end in found.shares]
    assert ends == [100 / total, 200 / total, 250 / total, 1.0]
    check_data_sharding(found.shares, 4)
    # Times of a model: 10 ms + 2 ms, and 3.3 ms + 2 ms: 112 numbers for the server 1.
    assert found.placement == [1, 1, 0, 0]
    assert found.advice[0] == "groups: 3 groups would compute 174 % more samples/s than one group"
    for name in given:
        assert found.encode()[name] == given[name]
    assert Profile.decode(json.loads(json.dumps(found.encode()))) == found


@pytest.mark.parametrize(
    "spreads, noise", [([0.01, 0.02, 0.03, 0.9], 0.05), ([0.1, 0.2, 0.4, 0.4], 0.3)]
)
def test_the_noise_is_the_median_spread_with_a_floor(spreads, noise):
    given = measured(UNEQUAL)
    for worker, spread in zip(given["workers"], spreads):
        worker["together"]["spread"], worker["alone"]["spread"] = spread, 5.0
    assert completed(given).noise == pytest.approx(noise)


def test_the_workers_of_a_host_stay_together():
    """The file groups names a host by its address."""
    for speeds in ([100, 20], [20, 100]):
        found = completed(measured({"a": speeds, "b": [100, 100], "c": 19.9}))
        assert found.groups == [[2, 3], [0, 1, 4]]
    lengths = [end - begin for begin, end in found.shares]
    assert lengths[0] == pytest.approx(lengths[4]) == pytest.approx(19.9 / (3 * 19.9 + 200))


def test_a_profile_without_workers_or_servers():
    with pytest.raises(Wrong, match=r"workers=\[\] is not a list with a worker"):
        MeasuredProfile.decode(measured({"a": []}))
    found = completed(measured({"a": 5}, servers=()))
    assert found.placement == [] and found.groups == [[0]] and found.shares == [(0, 1)]


def _at(*path, value):
    def change(content):
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change, words",
    [
        (_at("schema", value=2), "schema=2 is not the schema 1"),
        (_at("workers", 0, "number", value=1), None),
        (_at("workers", 1, "host", value="a"), "workers=.'a worker 0'. is not a list with each"),
        (_at("workers", 0, "alone", "samples_per_s", value=0), "alone.samples_per_s=0 is not"),
        (_at("workers", 0, "servers", value=[]), r"workers\[0\].servers=0 is not .* of 1 servers"),
        (_at("groups", value=[[0, 1]]), "groups=.* is not a list of groups with each worker once"),
        (_at("groups", value=[[0, 1], [2, 9], [3]]), "groups=.*with each worker once"),
        (_at("labels", value=["x"]), "labels=.*a label of each group"),
        (_at("shares", 0, value=[0.5]), r"shares\[0\]=.* is not a pair of numbers"),
        (_at("shares", 0, value=[0.1, 0.2]), "shares=.* is not a division of 0 to 1"),
        (_at("placement", value=[0]), "placement=.0. is not a list with a server of each"),
        (_at("placement", value=[0, 0, 0, 1]), "placement=.* is not a list of servers below 1"),
    ],
)
def test_damaged_content_is_refused(change, words, tmp_path):
    content, path = completed(measured(UNEQUAL)).encode(), tmp_path / "profile.json"
    change(content)
    path.write_text(json.dumps(content))
    if words is None:  # not damaged: the numbers of a host need not begin at 0
        assert profile.of_file(str(path))
        return
    with pytest.raises(BadInput, match="profile.json is damaged .*%s.*run profile.yml" % words):
        profile.of_file(str(path))


@pytest.mark.parametrize("text", ["", "null", "[" * 100000, '{"schema": 1}'])
def test_content_that_is_no_profile_is_refused(text, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"profile.json is damaged \(.*\): run profile.yml again$"):
        profile.of_file(str(path))
    assert profile.of_file(str(tmp_path / "none.json")) is None


def test_the_workers_of_a_host_must_be_in_one_group():
    content = completed(measured({"a": [100, 100], "b": 5})).encode()
    content.update(groups=[[0], [1, 2]])
    with pytest.raises(Wrong, match="is not a list with all workers of a host in one group"):
        Profile.decode(content)


def test_the_fit_to_the_workers_of_a_job():
    found = completed(measured({"a": [100, 100], "b": 50, "c": 25}))
    everyone = [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    whole = profile.fits(found, everyone)
    assert whole.positions == [0, 1, 2, 3] and whole.note == ""
    assert profile.groups_of(whole) == ([[0, 1], [2], [3]], ["speed1", "speed2", "speed3"])
    other = profile.fits(found, everyone[::-1])
    assert other.positions == [3, 2, 1, 0]
    assert profile.groups_of(other)[0] == [[2, 3], [1], [0]]
    assert list(profile.job_speeds(other).values()) == [25, 50, 100, 100]


def test_workers_that_are_gone_leave_the_others_in_their_groups():
    found = completed(measured({"a": [100, 100], "b": 50, "c": 25}))
    fit = profile.fits(found, [("c", 0), ("a", 1)])
    assert profile.groups_of(fit) == ([[1], [0]], ["speed1", "speed3"])
    assert fit.note == (
        "the profile profile-1 of 2025-11-23 also has the speeds of a worker 0, b worker 0, which "
        "this job leaves out. The job's workers keep their groups"
    )


def test_a_worker_that_the_profile_lacks_is_named():
    found = completed(measured({"a": 100, "b": 50}))
    fit = profile.fits(found, [("a", 0), ("a", 1), ("x", 0)])
    assert fit.positions is None
    assert fit.note == (
        "the profile profile-1 of 2025-11-23 has no speed of a worker 1, x worker 0: run "
        "profile.yml again"
    )


def test_the_speed_of_a_server_is_that_of_update_and_network():
    given = measured({"a": 1, "b": 1, "c": 1}, servers=[100.0, 10.0])
    for worker, seconds in zip(given["workers"], (0.01, 0.02, 9.0)):
        worker["servers"][1] = {"push_s": seconds, "pull_s": 3 * seconds}
    speeds = profile.server_speeds(MeasuredProfile.decode(given))
    assert list(speeds) == ["a server 0", "a server 1"]
    assert list(speeds.values()) == pytest.approx([1 / 0.012, 1 / 0.18])


def advised(*arguments, **more):
    return "\n".join(completed(measured(*arguments, **more)).advice)


def test_advice_on_a_network_that_is_too_small():
    # 32 samples take 0.32 s alone; the exchange of 1 s leaves 4 * 32 / 1.32 = 97 samples/s.
    text = advised(dict.fromkeys("abcd", 100), exchange=1.0)
    assert (
        "this network is too small to gain from 4 nodes: a step of all 4 workers takes about "
        "1320 ms, including 1000 ms for the exchange, and d worker 0 alone computes 100 samples/s. "
        "Train with one worker" in text
    )
    text = advised({"a": [50, 50]}, alone={"a": 101}, exchange=0.0)
    assert "the workers slow each other down, so train with one worker" in text
    assert "too small" not in text


def test_advice_has_plain_figures():
    text = advised({"a": 13600, "b": 3710}, exchange=0.0021)
    assert "alone computes 13600" in text
    assert not re.search(r"\de[+-]\d", text), text


def test_a_cluster_that_gains_is_not_told_to_train_with_one_worker():
    text = advised(UNEQUAL, exchange=0.0)
    assert "a step of all 4 workers takes about 1280 ms, including 0 ms for the exchange" in text
    assert "rain with one worker" not in text
    assert "a step of all" not in advised({"a": 100})


def test_a_cluster_gains_if_only_some_of_its_workers_are_faster_than_one():
    """The table of schemes then says to train with these workers, and the advice agrees."""
    given = measured({"a": 100, "b": 100, "c": 100, "d": 25}, servers=(1.0,), exchange=0.01)
    complete = completed(dict(given, batch_size=1))
    found = predictions.predict(complete)
    assert predictions.best(found, complete).title == "BSP, the 3 fastest workers"
    assert not [line for line in complete.advice if "rain with one worker" in line]


def test_groups_gain_nothing_where_the_exchange_takes_the_time():
    """Alone 100 and 50 samples/s; with 10 s for each exchange, all steps take about as long."""
    assert completed(measured({"a": 100, "b": 50}, exchange=0.001)).groups == [[0], [1]]
    assert completed(measured({"a": 100, "b": 50}, exchange=10.0)).groups == [[0, 1]]


def test_a_noisy_exchange_divides_no_equal_machines():
    """These figures are from a machine with forty programs on its two cores."""
    given = measured({"a": 235, "b": 244, "c": 133, "d": 66}, batch_size=16)
    for worker, seconds in zip(given["workers"], (0.032, 0.077, 0.061, 0.018)):
        worker["exchange_s"] = seconds
    assert completed(given).groups == [[0, 1], [2], [3]]


def test_a_profile_of_an_earlier_version_still_gives_its_groups():
    """An earlier version divided workers that differ by 6 %."""
    content = completed(measured({"a": 100, "b": 94})).encode()
    content.update(groups=[[0], [1]], labels=["speed1", "speed2"], advice=["groups: two workers"])
    found = Profile.decode(content)
    fit = profile.fits(found, [("a", 0), ("b", 0)])
    assert profile.groups_of(fit) == ([[0], [1]], ["speed1", "speed2"])
    assert profile.reason(fit) == "2 groups would compute 3 % more samples/s than one group"


def test_advice_on_the_number_of_servers():
    # The computation of a step takes 0.32 s.
    text = advised({"a": 100, "b": 100}, exchange=0.16)
    assert "the exchange with 1 server takes 33 % of a step: more servers" in text
    text = advised({"a": 100, "b": 100}, exchange=0.001, servers=[9, 9])
    assert "one server is enough (num_servers=1): the exchange with 2 servers takes 0.31 %" in text
    for seconds, servers in ((0.05, [9]), (0.05, [9, 9]), (0.001, [9])):
        text = advised({"a": 100, "b": 100}, exchange=seconds, servers=servers)
        assert "one server is enough" not in text and "more servers" not in text


def test_advice_on_workers_that_share_a_host():
    text = advised({"a": [60, 60], "b": 100}, alone={"a": 100})
    assert (
        "a: its 2 workers are 40 % slower together than alone. All these workers together "
        "compute 120 samples/s, and one worker alone computes 100" in text
    )
    assert "workers_per_host=1" not in text and "b:" not in text
    text = advised({"a": [50, 50], "b": 100}, alone={"a": 100, "b": 200})
    assert ", so workers_per_host=1 is as fast" in text
    assert "b: its worker is 50 % slower while the other workers compute" in text
    assert "slower" not in advised({"a": [98, 98]}, alone={"a": 100})


def test_a_thousand_workers():
    speeds = {"n%d" % index: 100.0 + 37 * index % 1000 for index in range(1000)}
    began = time.process_time()
    found = completed(measured(speeds, servers=[100.0] * 8))
    assert Profile.decode(json.loads(json.dumps(found.encode()))) == found
    assert time.process_time() - began < 2
