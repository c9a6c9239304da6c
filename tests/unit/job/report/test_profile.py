"""A profile from the events of a job that measured, its lines and panels, and drifted speeds."""

import html

import pytest

from mxcluster.cluster import profile as profiles
from mxcluster.errors import BadInput
from mxcluster.job.plan.processes import ranks
from mxcluster.job.report import curves, job_figures, page, profile, series
from mxcluster.model.events import End, Event, Profile, ServerSpeed
from mxcluster.model.plan import UsedProfile
from mxcluster.model.profile import ServerTimes, Speed
from mxcluster.model.shapes import Wrong
from tests.unit.job.report import fake_run
from tests.unit.job.report.fake_run import make_plan

SPEEDS = (100.0, 101.0, 50.0, 51.0)
SIZES = [64, 8, 640, 10]


def measured_events(plan, speeds=SPEEDS):
    """Return the events that workers and servers write; a server's rank is in its figures."""
    servers = plan.of_role("server")
    found = [
        Profile(
            time=1795250000.0 + index,
            role="worker",
            index=index,
            alone=Speed(samples_per_s=1.1 * speed, spread=0.01),
            together=Speed(samples_per_s=speed, spread=0.01),
            servers=[ServerTimes(push_s=1.0 + rank, pull_s=0.5) for rank in range(len(servers))],
            exchange_s=0.01,
            parameters=None if index else SIZES,
            mxnet=None if index else "1.9.1",
        )
        for index, speed in enumerate(speeds)
    ]
    return found + [
        ServerSpeed(
            time=1795250000.0,
            role="server",
            index=server.index,
            updates_per_s=100.0 + server.index,
        )
        for server in servers
    ]


@pytest.fixture
def plan():
    return make_plan(groups=1, kv="dist_async").replaced(job="20261121-101500-profile")


@pytest.fixture
def whole(plan):
    return profiles.complete(profile.measured(plan, measured_events(plan)))


def test_the_events_of_all_nodes_become_a_profile(plan, whole):
    assert profiles.Profile.decode(whole.encode()) == whole
    found = ["%s %d" % (one.host, one.number) for one in whole.workers]
    assert found == ["node1 0", "node1 1", "node2 0", "node2 1"]
    assert whole.groups == [[0, 1], [2, 3]] and whole.parameters == SIZES
    assert (whole.network, whole.batch_size, whole.mxnet) == ("mlp", 32, "1.9.1")


def test_the_speeds_of_a_workers_gpus_are_in_the_profile(plan):
    events = measured_events(plan)
    processes = [
        one.replaced(gpus=[1, 3]) if one.name == "worker-2" else one for one in plan.processes
    ]
    plan = plan.replaced(processes=processes)
    events[2] = events[2].replaced(gpu_speeds=[30.0, 10.0])
    whole = profiles.complete(profile.measured(plan, events))
    assert profiles.Profile.decode(whole.encode()) == whole
    assert profiles.gpu_speeds(whole) == {"node1": {}, "node2": {1: 30.0, 3: 10.0}}
    assert "GPUs of node2 alone: 1: 30, 3: 10 samples/s" in profile.lines(whole)
    events[2] = events[2].replaced(gpu_speeds=[30.0])
    with pytest.raises(BadInput, match="worker-2 on node2 are invalid: .* each of its GPUs"):
        profile.measured(plan, events)


def test_a_worker_knows_servers_by_rank_and_the_profile_by_index(plan, whole):
    servers = plan.of_role("server")
    order = ranks(servers)
    assert order == [1, 0]  # ps-lite sorts addresses in descending order
    for worker in whole.workers:
        assert [one.push_s for one in worker.servers] == [1.0 + rank for rank in order]
    assert [one.updates_per_s for one in whole.servers] == [100.0, 101.0]


def test_missing_figures_are_named(plan):
    events = measured_events(plan)
    words = "lacks the figures of worker-2, server-0, server-1: run profile.yml again"
    with pytest.raises(BadInput, match=words):
        profile.measured(plan, [*events[:2], events[3]])
    with pytest.raises(BadInput, match="lacks the parameters of worker-0"):
        profile.measured(plan, [events[0].replaced(mxnet=None), *events[1:]])


def test_a_worker_with_figures_of_too_few_servers_is_named(plan):
    events = measured_events(plan)
    events[1] = events[1].replaced(servers=events[1].servers[:1])
    with pytest.raises(
        BadInput, match="the figures of worker-1 on node1 are invalid: .* each of 2 servers"
    ):
        profile.measured(plan, events)


def test_a_false_figure_of_a_node_is_a_damaged_event(plan):
    event = measured_events(plan)[1].encode()
    event["together"]["samples_per_s"] = -5.0
    with pytest.raises(Wrong, match="together.samples_per_s=-5"):
        Event.decode(event)


def test_the_lines_show_speeds_groups_and_shares(whole):
    lines = profile.lines(whole)
    assert lines[0].split() == ["worker", "alone", "together", "exchange", "group", "share"]
    assert lines[1].split() == ["node1/0", "110", "100", "10.0", "ms", "speed1", "33.33", "%"]
    assert lines[4].split()[-4:] == ["ms", "speed2", "16.67", "%"]
    assert "speeds in samples/s of mlp on digits, batches of 32; noise 5.0 %" in lines
    assert "server node1/0: 100 updates of the model a second" in lines


def test_many_workers_do_not_fill_the_terminal():
    plan = make_plan(workers=60, groups=1, kv="dist_async")
    found = profiles.complete(profile.measured(plan, measured_events(plan, [100.0] * 60)))
    lines = profile.lines(found)
    assert len(lines) < 50 and "and 28 more workers, in profile.json" in lines
    assert lines[-1] == "and %d more lines of advice, in profile.json" % (len(found.advice) - 8)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [4, 60])
def test_the_picture_has_a_panel_for_workers_steps_and_servers(cache_dir, workers, monkeypatch):
    plan = make_plan(workers=workers, groups=1, kv="dist_async")
    found = profiles.complete(profile.measured(plan, measured_events(plan, [100.0] * workers)))
    data = series.collect(plan, [])._replace(profile=found)
    monkeypatch.setattr(curves.style, "png", lambda figure: figure.axes)
    assert len(curves.draw(data, plan, fake_run.verdict(), cache_dir)) == 3


def test_a_legend_lies_above_the_bars(plan, whole, cache_dir, monkeypatch):
    monkeypatch.setattr(curves.style, "png", lambda figure: figure)
    data = series.collect(plan, [])._replace(profile=whole)
    figure = curves.draw(data, plan, fake_run.verdict(), cache_dir)
    figure.canvas.draw()
    for axis in figure.axes[:2]:
        bottom = axis.get_legend().get_window_extent().y0
        assert all(bar.get_window_extent().y1 <= bottom for bar in axis.patches)


def test_the_page_of_a_profile_has_its_advice_and_its_groups(plan, whole):
    options = plan.options.replaced(program="profile")
    plan = plan.replaced(options=options)
    data = series.collect(plan, [])._replace(profile=whole)
    verdict = fake_run.verdict(proposal=profile.lines(whole))
    figures = job_figures.of_job(data, plan, verdict)
    assert [figure.kind for figure in figures.figures] == ["bars"] * 3
    source = page.render(data, plan, verdict, figures, {})
    for words in (whole.advice[-1], "2 groups, 2 servers", "profile of the cluster"):
        assert html.escape(words, quote=False) in source, words
    assert ">dist_async ·" not in source


def after(speeds, uses=("groups",), fits=True):
    used = UsedProfile(
        job="mine-profile", fits=fits, uses=list(uses), speeds=list(SPEEDS), noise=0.05
    )
    plan = make_plan().replaced(profile=used)
    ends = [
        End(role="worker", index=index, samples_per_s=speed) for index, speed in enumerate(speeds)
    ]
    return profile.drifted(plan, ends)


def test_speeds_like_those_of_the_profile_give_no_warning():
    assert after(SPEEDS) == after([80.0, 80.0, 40.0, 40.0]) == []
    assert after([100.0, 100.0, 42.0, 42.0]) == []  # a change of 19 %


def test_a_group_that_has_become_slower_is_named():
    (line,) = after([100.0, 100.0, 25.0, 25.0])
    assert (
        "since the profile mine-profile: the group b has become slower by the factor 2 in "
        "comparison with the group a" in line
    )
    assert "profile.yml -e apply=true" in line


def test_only_groups_of_a_profile_that_fits_can_drift():
    slower = [100.0, 100.0, 25.0, 25.0]
    assert after(slower, uses=["shares"]) == after(slower, fits=False) == []
    assert after([None] * 4) == []
