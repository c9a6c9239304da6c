"""The pages in a real browser: Chromium without a display, from file://, without a network."""

import json
import time

import pytest
from playwright.sync_api import sync_playwright

from mxcluster.job.report import history
from mxcluster.job.sweep.report import render
from tests import needs
from tests.machine import Stopwatch
from tests.unit.job.report.test_history import write_run
from tests.unit.job.sweep.test_summary import comparison

pytestmark = pytest.mark.slow

DRAWN = "#figures[data-drawn]"
PATIENCE = 120000  # milliseconds; a busy machine draws a page in a minute
# The numbers of a line in the browser: the figure, the line, and the visible points.
LINE = "([figure, line]) => mxcluster.state.lines.filter(one => one.figure.title === figure)[line]"
# The texts of a page with those in the shadow trees of BokehJS, of visible elements only.
TEXTS = """function texts(root) {
  return [...root.querySelectorAll("*")].map(one =>
    (one.classList.contains("bk-tooltip-content") && one.offsetParent ? one.textContent : "")
    + (one.shadowRoot ? texts(one.shadowRoot) : "")).join(" ");
}"""
MANY = 2000


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        path = needs.find_program("chromium")
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def open_page(browser):
    """Return a function that opens a file, and fails at the end if the page asked a network."""
    problems, contexts = [], []

    def visit(path, width=1400):
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda one: one.url.startswith(("file:", "blob:", "data:")) or problems.append(one.url),
        )
        page.goto("file://%s" % path)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not problems


def column(page, figure, line, name):
    return page.evaluate(
        "([figure, line, name]) => Array.from((%s)([figure, line]).source.data[name])" % LINE,
        [figure, line, name],
    )


def visible(page, figure, line):
    return page.evaluate(
        "place => (%s)(place).glyphs.every(glyph => glyph.visible)" % LINE, [figure, line]
    )


def test_a_reader_looks_into_the_curves(good_run, open_page):
    page = open_page(good_run / "report.html")
    page.wait_for_selector(DRAWN)
    assert page.get_attribute("#figures", "data-drawn") == "4"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    seconds = column(page, "Training loss", 0, "x")
    assert len(seconds) == 60 and 0 < seconds[0] < seconds[-1] < 10

    for axis, last in (("step", 60), ("epoch", 6), ("samples", 1920)):
        page.select_option("select[name=axis]", axis)
        page.wait_for_function("axis => mxcluster.state.axis === axis", arg=axis)
        page.wait_for_function(
            "last => mxcluster.state.lines.length === 12 &&"
            " mxcluster.state.lines[0].source.data.x.at(-1) === last",
            arg=last,
        )
    page.wait_for_selector(DRAWN)

    noisy = column(page, "Training loss", 0, "y")
    page.locator("input[name=smoothing]").fill("20")
    smooth = column(page, "Training loss", 0, "y")

    def moves(values):
        return sum(abs(one - other) for one, other in zip(values, values[1:]))

    assert moves(smooth) < moves(noisy)
    assert visible(page, "Training loss", 2) and visible(page, "Validation accuracy", 2)
    page.locator("input[name=member]").nth(2).uncheck()
    assert not visible(page, "Training loss", 2) and not visible(page, "Validation accuracy", 2)
    assert visible(page, "Training loss", 1)
    page.get_by_role("button", name="all").click()
    assert visible(page, "Training loss", 2)
    page.check("input[name=log]")
    page.wait_for_function("mxcluster.state.plots[0].left[0].type === 'LogAxis'")


def test_the_mouse_over_a_curve_shows_its_figures(good_run, open_page):
    page = open_page(good_run / "report.html")
    page.wait_for_selector(DRAWN)
    box = page.locator(".plot").first.bounding_box()
    words, shown = ("worker-", "Training loss", "seconds"), ""
    deadline, height = time.monotonic() + PATIENCE / 1000, 0
    while time.monotonic() < deadline and not all(word in shown for word in words):
        height = (height + 2) % 60  # the mouse goes down over the curves
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * (30 + height) / 100)
        time.sleep(0.1)
        shown = page.evaluate("(%s)(document)" % TEXTS)
    assert all(word in shown for word in words), shown


def test_a_drag_zooms_all_curves(good_run, open_page):
    page = open_page(good_run / "report.html")
    page.wait_for_selector(DRAWN)
    ends = "mxcluster.state.plots.slice(0, 3).map(({x_range}) => [x_range.start, x_range.end])"
    page.wait_for_function("mxcluster.state.plots[0].x_range.end > 0")
    before = page.evaluate(ends)[0]
    box = page.locator(".plot").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6, steps=5)
    page.mouse.up()
    page.wait_for_function(
        "([start, end]) => (({x_range}) => start < x_range.start && x_range.end < end)"
        "(mxcluster.state.plots[0])",
        arg=before,
    )
    assert len(set(map(tuple, page.evaluate(ends)))) == 1


def test_a_phone_shows_the_curves_below_each_other(good_run, open_page):
    page = open_page(good_run / "report.html", 390)
    page.wait_for_selector(DRAWN)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    boxes = [place.bounding_box() for place in page.locator(".plot").all()]
    assert len({box["x"] for box in boxes}) == 1 and len(boxes) == 4
    assert all(300 < box["width"] <= 390 for box in boxes)


def test_a_long_title_keeps_the_tools_on_a_phone(tmp_path, open_page):
    (tmp_path / "report.html").write_text(render(*comparison()))
    page = open_page(tmp_path / "report.html", 390)
    page.wait_for_selector(DRAWN)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    titles = page.evaluate("mxcluster.state.plots.map(plot => plot.title.text)")
    assert all(len(line) <= 35 for title in titles for line in title.split("\n"))
    assert any("\n" in title for title in titles)


def test_the_name_of_a_bar_has_a_word_in_each_line(tmp_path, open_page):
    """Long names beside each other, such as those of the schemes, would overlap."""
    text = render(*comparison()).replace('"ASP"', '"BSP with a deadline"')
    (tmp_path / "report.html").write_text(text)
    page = open_page(tmp_path / "report.html")
    page.wait_for_selector(DRAWN)
    names = page.evaluate(
        "mxcluster.state.plots.flatMap(one => [...one.below[0].major_label_overrides.values()])"
    )
    assert "BSP\nwith\na\ndeadline" in names


def test_two_runs_of_the_history_on_one_page(good_run, failed_run, tmp_path, open_page):
    for run, job in ((good_run, "one"), (failed_run, "two")):
        write_run(tmp_path, job, started=5.0, note="the " + job)
        text = (run / "curves.js").read_text()
        (tmp_path / job / "curves.js").write_text(text.replace(json.dumps(run.name), '"%s"' % job))
    write_run(tmp_path, "three", state="FAILED", accuracy=0.5, started=1.0)
    page = open_page(history.write_page(str(tmp_path)))
    rows = page.locator("#runs tbody tr:visible")
    assert rows.count() == 3
    page.fill("#filter", "failed")
    assert rows.count() == 1 and "three" in rows.first.inner_text()
    page.fill("#filter", "accuracy>0.4")
    assert rows.count() == 1 and "three" in rows.first.inner_text()
    page.fill("#filter", "time>60 accuracy<0.4")
    assert rows.count() == 0
    page.fill("#filter", "")
    page.click("th:text-is('accuracy')")
    assert "three" in rows.first.inner_text()
    page.check("input[value=one]")
    assert page.locator("#comparison").is_hidden()
    page.check("input[value=two]")
    page.wait_for_selector(DRAWN)
    page.wait_for_function("mxcluster.state.lines.length > 12")
    names = page.locator(".members label").all_inner_texts()
    assert [name.strip() for name in names] == ["one", "two"]
    page.locator("input[name=member]").nth(0).uncheck()
    assert not visible(page, "Training loss", 0) and visible(page, "Training loss", 4)


def test_2000_runs_open_in_3_s(tmp_path, open_page):
    for number in range(MANY):
        fields = {"accuracy": 0.9, "samples_per_s": 5000.0, "started": 1.7e9 + number}
        write_run(tmp_path, "job-%04d" % number, knobs={"lr": "0.1"}, note="a note", **fields)
    path = history.write_page(str(tmp_path))
    with Stopwatch() as watch:
        page = open_page(path)
        assert page.locator("#runs tbody tr").count() == MANY
    assert watch.within(3)
    page.fill("#filter", "job-1234")
    assert page.locator("#runs tbody tr:visible").count() == 1
