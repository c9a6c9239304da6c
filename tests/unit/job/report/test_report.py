import datetime
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
from html.parser import HTMLParser

import pytest
from PIL import Image

from mxcluster.job import read_knobs, report
from mxcluster.job.report import curves, files, job_figures, node_ends, page, resources, series
from mxcluster.job.report import figures as report_figures
from mxcluster.job.report.figures import Figures, Line, Lines, Member
from mxcluster.model import plan as plans
from mxcluster.model.answers import Lost, NodeResult
from mxcluster.model.events import (
    Balance,
    Batch,
    End,
    Epoch,
    Event,
    NodeUsage,
    Note,
    Start,
    StepTimes,
    Updates,
    Usage,
)
from mxcluster.model.plan import Plan
from mxcluster.model.run_record import Clone, Code, Controller, NodeOfRun, RunRecord
from tests.unit import statuses
from tests.unit.job.report import fake_run

NO_FIGURES = Figures([], [])


class Page(HTMLParser):
    """The texts of a page, and the addresses that its tags load or link to."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.addresses, self.texts = [], [], []
        self.source = source
        self.feed(self.source)
        self.text = re.sub(r"\s+", " ", " ".join(self.texts))

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [
            value
            for name, value in attributes
            if name in ("src", "srcset", "href", "action", "data")
        ]

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.slow
def test_a_node_cannot_report_events_of_another_nodes_workers(tmp_path, cache_dir):
    """Otherwise one node could report that all workers are done."""
    plan = fake_run.make_plan(workers=4, groups=1, kv="dist_sync", servers=1)
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=2, batches=4)
    done = (
        '{"event": "done", "time": 1.0, "role": "worker", "index": %d, "host": "node%d", '
        '"text": "forged"}\n'
    )
    path = tmp_path / "nodes" / "node2" / "events.jsonl"
    lines = [
        line
        for line in path.read_text().splitlines(True)
        if '"done"' not in line or '"index": 3' in line
    ]
    path.write_text("".join(lines) + done % (0, 1) + done % (0, 2) + done % (2, 1))
    with tarfile.open(archives["node2"], "w") as tar:
        tar.add(str(path.parent), arcname=".")
    report.assemble(str(tmp_path / "run"), archives, plan, cache_dir)
    events = [
        json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    ]
    times = [event["time"] for event in events]
    assert times == sorted(times), "the events of all nodes are merged by time"
    forged = [(event["host"], event["index"]) for event in events if event.get("text") == "forged"]
    assert forged in ([("node2", 2)], [("node1", 2)]), (
        "a node may report any events of its own worker"
    )


@pytest.mark.slow
def test_the_page_needs_no_network(good_run, failed_run):
    for run in (good_run, failed_run):
        found = Page((run / "report.html").read_text())
        assert found.addresses and all((run / address).exists() for address in found.addresses), (
            found.addresses
        )
        assert not {"link", "iframe", "object", "img"} & set(found.tags), set(found.tags)
        own = re.sub(r'id="library">[^<]*<', "", found.source)
        assert own != found.source and not re.search(r"https?://|url\(|@import", own)


@pytest.mark.slow
def test_a_page_with_figures_is_small(good_run):
    assert (good_run / "report.html").stat().st_size < 1 << 20


def test_the_page_of_a_success_has_the_figures(good_run):
    found = Page((good_run / "report.html").read_text()).text
    verdict = json.loads((good_run / "verdict.json").read_text())
    for words in (
        "OK",
        verdict["job"],
        "97.22 %",
        "%.0f" % verdict["samples_per_s"],
        "mlp on digits",
        "Y of the groups",
        "worker 3",
        "127.0.0.12:9093",
        "0.75 – 1",
        "317 samples, 3 repeated",
        "batch_size",
    ):
        assert words in found, words
    assert "First failure" not in found


@pytest.mark.slow
def test_the_page_of_a_failure_begins_with_its_cause(failed_run):
    found = Page((failed_run / "report.html").read_text()).text
    for words in (
        "FAILED",
        "worker 3 on node2: exited with status 1",
        "Hint:",
        "killed by signal 15 (SIGTERM)",
        "<script>alert('log')</script>",
    ):
        assert words in found, words
    assert found.index("First failure") < found.index("Curves")


def test_the_page_tells_what_ran(good_run, tmp_path):
    """Only the knobs that the job could read, and those of the user stand out."""
    plan = files.read_plan(str(good_run))
    before = (good_run / "report.html").read_text()
    assert "made by a controller that attached to the job" in before
    assert "<dt>queue</dt>" not in before
    node = NodeOfRun(cpu="EPYC <b>", cores=2, memory_mb=2048, gpus=["V100", "V100"], mxnet="1.9.1")
    clone = Clone(commit="ab" * 20, clean=False)
    known = Controller(
        mxcluster="0.1.0", package="m.zip", clone=clone, ansible_core="2.16.1", python="3.11.2"
    )
    record = RunRecord(
        job=plan.job,
        command=["ansible-playbook", "train.yml", "-e", "lr=0.1"],
        inventory=["inventory/local"],
        controller=known,
        nodes=dict.fromkeys(plan.nodes, node),
        code=Code(path="train.py", folder="/repo", sha256="0" * 64, clone=clone),
        given={"lr": "0.1", "batch_size": "64"},
        of_inventory=["batch_size"],
        resolved=plan.options,
        begun="2026-11-27T09:30:00+01:00",
        ended="2026-11-27T09:31:00+01:00",
    )
    html = page.render(
        series.collect(plan, []), plan, fake_run.verdict(fake_run.failure()), NO_FIGURES, {}, record
    )
    found = Page(html).text
    for words in (
        "started 2026-11-27 09:30:00+01:00",
        "What ran",
        "ansible-playbook train.yml -e lr=0.1",
        "commit abababababab with changes",
        "2 x V100",
        "EPYC <b>, 2 cores",
        "2.0 GB",
        "MXNet 1.9.1",
        "train.py in script.zip",
        "knobs.yml",
    ):
        assert words in found, words
    assert re.findall(r'class="given"[^>]*><dt>(\w+)<', html) == ["lr"]
    assert re.findall(r"<dt>(\w+)</dt><dd>\d+ \(inventory\)<", html) == ["batch_size"]


def test_logs_are_escaped_and_lose_their_colours(failed_run, good_run):
    source = (failed_run / "report.html").read_text()
    assert "<script>alert" not in source and "&lt;script&gt;alert" in source
    assert "colours red" in (good_run / "report.html").read_text()
    assert "\x1b" not in (good_run / "report.html").read_text()


def test_the_text_describes_the_panels_of_the_picture():
    pages = {}
    for groups in (1, 2):
        plan = fake_run.make_plan(workers=4, groups=groups)
        events = [Batch(role="worker", index=0, loss=1.0), End(role="worker", index=1, accuracy=1)]
        if groups == 2:
            events.append(Updates(role="server", index=0, group=0, y={"1": 1}))
        data = series.collect(plan, events)
        verdict = fake_run.verdict()
        figures = job_figures.of_job(data, plan, verdict)
        pages[groups] = page.render(data, plan, verdict, figures, {})
    curves = 'aria-label="Training loss, Validation accuracy of every worker over time'
    assert curves + '"' in pages[1] and curves + '; Histogram of Y"' in pages[2]


def page_of(plan, events):
    """Return the text of the page of a successful job with these events."""
    source = page.render(series.collect(plan, events), plan, fake_run.verdict(), NO_FIGURES, {})
    return Page(source).text


def used(plan, busy=0.5, **node):
    """Return events of the meters of `plan`, all processes of which use half a core."""
    found = [
        Usage(time=t, role=p.role, index=p.index, cpu=0.5, busy=busy, memory=10**9 + int(t))
        for p in plan.processes
        for t in (1.0, 2.0, 4.0)
    ]
    return found + [
        NodeUsage(time=t, host=host, own=0.004 * t, **node)
        for host in plan.nodes
        for t in (1.0, 2.0, 4.0)
    ]


def test_the_resources_have_a_panel_and_figures():
    plan = fake_run.make_plan()
    verdict = fake_run.verdict(bottleneck="the CPU of <server-0>")
    data = series.collect(plan, used(plan, received=2e6, sent=3e6, link=1.25e9))
    curves_of = job_figures.of_job(data, plan, verdict)
    figures = job_figures.with_resources(curves_of, data, plan, verdict)
    assert [one.title for one in figures.figures] == [
        "CPU (cores)",
        "Memory (GB)",
        "Network, received (MB/s)",
        "Network, sent (MB/s)",
    ]
    names = [one.name for one in figures.members]
    assert len(names) == len(set(names)) == len(plan.processes) + len(plan.nodes)
    assert figures.figures[0].lines[0].y == [0.5] * 3
    text = Page(page.render(data, plan, verdict, figures, {})).text
    assert "The training waits for the CPU of <server-0>." in text
    assert "server-0 node1 0.50 cores 50 % 1.00 GB" in text and "GPU memory" not in text
    # The means are over time: of 0.4, 0.8 and 1.6 % for 1, 1 and 2 seconds.
    assert "node1 2.0 MB/s 3.0 MB/s 1250.0 MB/s 1.10 %" in text, text


def test_figures_of_workers_and_of_resources_share_their_members():
    plan = fake_run.make_plan()
    events = [*used(plan), Batch(time=1.0, role="worker", index=2, loss=1.0)]
    data, verdict = series.collect(plan, events), fake_run.verdict()
    figures = job_figures.with_resources(
        job_figures.of_job(data, plan, verdict), data, plan, verdict
    )
    names = [one.name for one in figures.members]
    assert names[0].startswith("worker-2") and len(names) == len(set(names))
    assert 0 in [line.member for line in figures.figures[1].lines], "the worker has one switch"


def test_what_no_meter_knows_is_not_measured_and_not_0():
    plan = fake_run.make_plan()
    plan = plan.replaced(
        processes=[
            one.replaced(gpus=[0]) if one.name == "worker-0" else one for one in plan.processes
        ]
    )
    events = [
        Usage(time=1.0, role="server", index=0, cpu=0.5),
        Usage(time=1.0, role="worker", index=99, cpu=0.5),  # not of the plan
        NodeUsage(time=1.0, host="elsewhere", received=1.0),
    ]
    text = page_of(plan, events)
    assert "server-0 node1 0.50 cores not measured not measured" in text
    assert "worker-0 node1 not measured not measured not measured not measured" in text
    assert "node1 not measured not measured not measured 0: not measured not measured" in text
    assert "elsewhere" not in text and "No figures" not in text


def test_a_page_without_figures_of_a_meter_says_why():
    assert "Resources No figures: " in page_of(fake_run.make_plan(), [])
    assert "ended before their meters had looked twice" in resources.why_empty(3.0)
    assert "no meter of the job has measured" in resources.why_empty(60.0)


def test_the_time_of_the_curves_begins_with_the_processes_own_events():
    plan = fake_run.make_plan()
    data = series.collect(plan, [*used(plan), Batch(time=2.0, role="worker", index=0, loss=1.0)])
    assert data.begin == 2.0 and data.workers[0].points["loss"] == [(0.0, 1.0)]
    figures = job_figures.with_resources(NO_FIGURES, data, plan, fake_run.verdict())
    assert figures.figures[0].lines[0].x == {"seconds": [0.0, 2.0]}


def test_dropped_updates_have_a_column():
    plan, applied = fake_run.make_plan(), Updates(role="server", index=0, group=0, y={"1": 3})
    assert "Dropped" not in page_of(plan, [applied])
    text = page_of(
        plan, [applied, Updates(role="server", index=0, group=1, y={}, dropped={"4": 17})]
    )
    assert "Updates Dropped Mean Y" in text and "0–1 3 0 1.00" in text and "2–3 0 17" in text, text


def test_every_foreign_text_is_escaped():
    evil = "<img src=x onerror=alert(1)>"
    plan = fake_run.make_plan(workers=2, groups=1)
    processes = plan.processes[:-1] + [plan.processes[-1].replaced(host=evil)]
    options = plan.options.replaced(network=evil)
    plan = plan.replaced(job=evil, kv=evil, options=options, processes=processes)
    failure = fake_run.failure(role=evil, host=evil, reason=evil, log=[evil])
    verdict = fake_run.verdict(failure, job=evil, kv=evil)
    data = series.collect(plan, [Note(time=1.0, role=evil, index=0, host=evil, text=evil)])
    source = page.render(
        data, plan, verdict, job_figures.of_job(data, plan, verdict), {"worker-1": [evil]}
    )
    assert "<img" not in source and source.count("&lt;img src=x") >= 9, source


def test_names_cannot_end_the_script_of_the_figures():
    evil = "</script><script>alert(1)</script>"
    lines = Lines(evil, ["seconds"], evil, [Line(0, {"seconds": [1.0, None]}, [2.0, math.nan])])
    figures = Figures([Member(evil, evil)], [lines])
    for text in (report_figures.text(figures), report_figures.call(evil, figures)):
        assert "<" not in text and "NaN" not in text
    assert json.loads(report_figures.text(figures))["members"][0]["name"] == evil


@pytest.mark.slow
def test_a_job_of_many_workers_has_a_page_below_2_mb():
    plan = fake_run.make_plan(workers=300, groups=1)
    events = [
        Batch(time=1.0 + n, role="worker", index=index, loss=1 / (n + 3), samples_per_s=n / 7)
        for index in range(plan.workers)
        for n in range(200)
    ]
    events += [
        Usage(
            time=1.0 + n / 3,
            role=p.role,
            index=p.index,
            cpu=1 / (n + 3),
            busy=0.5,
            memory=10**9 + n,
        )
        for p in plan.processes
        for n in range(600)
    ]
    events += [
        NodeUsage(time=1.0 + n / 3, host=host, received=1e6 / (n + 3), sent=1e6 / (n + 7))
        for host in plan.nodes
        for n in range(600)
    ]
    verdict, data = fake_run.verdict(), series.collect(plan, events)
    figures = job_figures.of_job(data, plan, verdict)
    figures = job_figures.with_resources(figures, data, plan, verdict)
    source = page.render(data, plan, verdict, figures, {})
    assert len(source) < 2 << 20, len(source)


def test_a_page_lists_the_knobs_that_the_job_could_read():
    of = {}
    for kv, script in (("dist_sync", ""), ("dist_gsync", ""), ("dist_sync", "/home/me/train.py")):
        plan = fake_run.make_plan(kv=kv, script=script, groups=1)
        of[kv, bool(script)] = read_knobs.readable(plan)
    assert {"lr", "network", "num_epochs"} <= of["dist_sync", False]
    assert not {"gsync_y", "staleness", "script_args"} & of["dist_sync", False]
    assert "gsync_y" in of["dist_gsync", False]
    script = of["dist_sync", True]
    assert {"script", "script_args", "data_dir", "lease"} <= script
    assert not {"lr", "network", "num_epochs", "data", "program"} & script


def test_points_have_their_place_in_the_training():
    plan = fake_run.make_plan(workers=2, groups=1)
    worker = {"role": "worker", "index": 0}
    events = [
        Start(time=10.0, batches=4, **worker),
        Batch(time=11.0, epoch=1, batch=1, step=6, samples=60, loss=0.5, **worker),
        Epoch(time=12.0, epoch=1, samples=80, accuracy=0.9, **worker),
        End(time=13.0, accuracy=0.91, **worker),
    ]
    readings = series.collect(plan, events).workers[0].readings
    assert readings["loss"] == [(1.0, 6, 1.5, 60, 0.5)]
    assert readings["accuracy"] == [(2.0, 6, 2.0, 80, 0.9), (3.0, 6, 2.0, 80, 0.91)]
    figures = job_figures.of_job(series.collect(plan, events), plan, fake_run.verdict()).figures
    assert [list(figure.axes) for figure in figures] == [list(series.AXES)] * 2


def test_a_failed_job_without_events_has_a_start_with_its_zone(failed_run, tmp_path):
    run = shutil.copytree(failed_run, tmp_path / "run")
    (run / "events.jsonl").write_text("")
    report.write(str(run))
    began = datetime.datetime.fromtimestamp(fake_run.BEGIN).astimezone()
    assert "started " + began.isoformat(" ", "seconds") in (run / "report.html").read_text()


def test_a_balanced_job_shows_the_batch_sizes_of_each_group():
    for groups, first, then in (
        (1, ["start 40, 24, 32, 32"], " 2 40, 40, 32, 16 400, 390"),
        (2, ["start a 40, 24", "start b 32, 32"], " 2 a 40, 40, 32, 16 400, 390"),
    ):
        balance = plans.Balance(sizes=[40, 24, 32, 32], least=[1] * 4, most=[128] * 4)
        plan = fake_run.make_plan(groups=groups).replaced(balance=balance)
        sizes = Balance(
            role="worker", index=0, epoch=1, sizes=[40, 40, 32, 16], speeds=[400.4, 390]
        )
        found = page_of(plan, [sizes])
        for text in (*first, then):
            assert text in found, text


def test_a_job_with_a_deadline_shows_small_batches_and_the_parts_of_a_step():
    balance = plans.Balance(sizes=[40, 24, 32, 32], least=[1] * 4, most=[128] * 4)
    plan = fake_run.make_plan(groups=1)
    plan = plan.replaced(balance=balance, options=plan.options.replaced(balance="deadline"))
    sizes = Balance(
        **dict(role="worker", index=0, epoch=1, sizes=[64, 32, 16, 16]),
        speeds=[400.4, 200, 100, 100],
        small=[4, 2, 1, 1],
        deadline_s=0.16,
    )
    parts = StepTimes(
        **dict(role="worker", index=2, steps=40, samples=640, data=0.04, compute=6.4),
        **dict(exchange=0.0, remainder=0.2, push_pull=0.5, quota=0.02),
    )
    found = page_of(plan, [sizes, parts])
    assert "start 40, 24, 32, 32 3, 2, 2, 2" in found
    assert " 2 64, 32, 16, 16 4, 2, 1, 1 0.16 400, 200, 100, 100" in found
    assert "Parts of a step" in found and "worker 2 40 179 160 1 0 5 12.5 0.5" in found
    assert "Parts of a step" not in page_of(plan, [sizes])


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"workers": 40, "groups": 4, "servers": 4},
        {"workers": 40, "groups": 40, "servers": 1},
        {"workers": 1, "groups": 1, "kv": "local", "servers": 0},
    ],
    ids=["40 workers", "40 groups", "one worker"],
)
def test_pictures_of_all_sizes(how, cache_dir):
    plan = fake_run.make_plan(**how)
    events = [
        event
        for index in range(plan.workers)
        for event in fake_run.worker_events(plan, index, epochs=2, batches=4)
    ]
    if plan.kv == "dist_gsync":
        events += fake_run.server_events(plan, 0)
    data = series.collect(plan, list(map(Event.decode, events)))
    picture = curves.draw(data, plan, fake_run.verdict(), cache_dir)
    width, height = Image.open(io.BytesIO(picture)).size
    assert width > 1000 and height > 600, (width, height)


@pytest.mark.parametrize(
    "kinds, panels", [(("batch",), 2), (("epoch",), 1), (("gsync",), 1), (("start",), 0)]
)
def test_missing_series_leave_no_empty_panel(kinds, panels, cache_dir, monkeypatch):
    plan = fake_run.make_plan(workers=2)
    events = fake_run.worker_events(plan, 0, epochs=2, batches=4) + list(
        fake_run.server_events(plan, 0)
    )
    events = [Event.decode(event) for event in events if event["event"] in kinds]
    monkeypatch.setattr(curves.style, "png", lambda figure: figure.axes)
    drawn = curves.draw(series.collect(plan, events), plan, fake_run.verdict(), cache_dir)
    assert len(drawn) == panels


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_the_name_of_the_failed_process_lies_inside_of_the_axes(
    part, failed_run, cache_dir, monkeypatch
):
    drawn = []
    monkeypatch.setattr(curves.style, "png", lambda figure: drawn.append(figure) or b"png")
    plan = Plan.decode(json.loads((failed_run / "plan.json").read_text()))
    lines = (failed_run / "events.jsonl").read_text().splitlines()
    data = series.collect(plan, [Event.decode(json.loads(line)) for line in lines])
    longest = max(moment for one in data.workers.values() for moment, _ in one.points["loss"])
    cause = fake_run.failure(time=data.begin + part * longest)
    curves.draw(data, plan, fake_run.verdict(cause), cache_dir)
    (figure,) = drawn
    figure.canvas.draw()
    ((axis, text),) = [(axis, text) for axis in figure.axes for text in axis.texts]
    inside, box = axis.get_window_extent(), text.get_window_extent()
    assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and box.y1 <= inside.y1


def test_a_job_without_events_has_a_page_and_no_picture(tmp_path):
    plan = fake_run.make_plan(script="/home/me/train.py").replaced(slowdowns=[1, 1, 1, 2.5])
    run = tmp_path / "run"
    run.mkdir()
    (run / "curves.png").write_bytes(b"of an earlier attempt")
    verdict = report.assemble(str(run), {}, plan).encode()
    assert not verdict["ok"] and set(verdict["nodes"].values()) == {"missing"}
    assert verdict["first_failure"]["host"] == "node1"
    assert not (run / "curves.png").exists()
    found = Page((run / "report.html").read_text()).text
    assert "There is nothing to draw" in found
    assert "Figures: none: print lines as mx.callback.Speedometer and Module.fit do" in found
    assert "slows down worker 3 by the factor 2.5. Times and speeds" in found


@pytest.mark.slow
def test_the_command_makes_the_report_again_and_writes_nothing_into_home(good_run, tmp_path):
    before = (good_run / "report.html").read_text()
    (good_run / "report.html").unlink()
    environment = dict(
        os.environ,
        HOME=str(tmp_path),
        XDG_CACHE_HOME=str(tmp_path / "c"),
        XDG_CONFIG_HOME=str(tmp_path / "d"),
    )
    environment.pop("MPLCONFIGDIR", None)
    command = [sys.executable, "-m", "mxcluster.job.report"]
    done = subprocess.run(
        command + [str(good_run)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done
    assert str(good_run / "report.html") in done.stdout
    assert (good_run / "report.html").read_text() == before
    assert list(tmp_path.iterdir()) == []
    refused = subprocess.run(
        command + [str(tmp_path)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 1 and refused.stderr.startswith(
        "error: %s has no plan.json" % tmp_path
    ), refused


def test_the_list_of_files_left_on_a_node_is_limited():
    behind = ["worker-0: 1 file stays", "x" * 1000, *["more"] * 500]
    lines = node_ends.warnings("node1", NodeResult(behind=behind, outside=["pid 7 runs"]))
    assert lines[:2] == ["node1: worker-0: 1 file stays", "node1: " + "x" * 500]
    assert len(lines) == 501 and lines[-1] == "node1: pid 7 runs"
    assert node_ends.warnings("node1", NodeResult()) == []


FULL = {
    "failed": True,
    "msg": "MODULE FAILURE\nSee stdout/stderr for the exact error",
    "module_stderr": 'Traceback (most recent call last):\n  File "x.py", line 1\nOSError: [Errno '
    "28] No space left on device: '/tmp/a'\n",
}


@pytest.mark.parametrize(
    "wait, words",
    [
        (
            {"failed": True, "msg": "/jobs/j/status.json is not JSON"},
            "/jobs/j/status.json is not JSON",
        ),
        (
            FULL,
            "the module of a task crashed on the node: OSError: [Errno 28] No space left on "
            "device: '/tmp/a'",
        ),
        ({"ended": True, "packed": {"files": 3}}, None),
    ],
)
def test_the_problem_is_the_nodes_own_reason(wait, words):
    lost = {"since": 1.0, "why": "No route to host"}
    found = node_ends.of_results(wait, {"lost": lost})
    assert found.problem == words and found.lost == Lost(**lost)
    assert node_ends.of_results(dict(wait, lost=dict(lost, since=2.0)), {}).lost.since == 2.0


def test_each_failed_wait_is_reported_with_its_own_reason(tmp_path, cache_dir):
    plan = fake_run.make_plan()
    missing = {host: str(tmp_path / "collected" / (host + ".tar")) for host in plan.nodes}
    answers = {
        host: node_ends.of_results({"failed": True, "msg": "%s has its own reason" % host})
        for host in ("node1", "node2")
    }
    verdict = report.assemble(str(tmp_path / "run"), missing, plan, cache_dir, answers).encode()
    assert (
        verdict["first_failure"]["reason"]
        == "the controller could not collect the status of this node: node1 has its own reason"
    )
    assert (
        "node2: the controller could not collect the files of this node: node2 has its own reason"
        in verdict["warnings"]
    ), verdict
    assert str(tmp_path) not in json.dumps(verdict), (
        "a path of the controller does not describe a node"
    )


def test_a_run_has_all_files_of_a_node_that_kept_none():
    """Only then may the next jobs remove the job's folder on the node."""
    end = NodeResult(status=statuses.status({"processes": []}))
    ends = {
        "whole": end,
        "left": end.replaced(behind=["worker-0: big.bin stays on the node"]),
        "broken": end.replaced(problem="the archive is damaged"),
        "lost": NodeResult(),
    }
    assert node_ends.complete(ends) == ["whole"]
