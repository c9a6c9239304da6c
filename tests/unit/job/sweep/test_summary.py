"""Rows, tables and pictures of a sweep."""

import csv
import html
import io

import pytest

from mxcluster.job.sweep import comparison as sweep_comparison
from mxcluster.job.sweep import comparison_rows, plot_figures, plots, report, specs, summary
from mxcluster.model.sweep import Environment
from tests.unit.job.sweep.cluster import compared, measured, name_of, record, spec_of


def benchmark(speeds, **knobs):
    """Return (specification, records) of a benchmark whose jobs reach `speeds`, in order."""
    spec = spec_of(**knobs)
    jobs = specs.benchmark_jobs(spec)
    assert len(jobs) == len(speeds)
    found = {
        job.name: measured(job, speed or 1.0, "ok" if speed else "failed")
        for job, speed in zip(jobs, speeds)
    }
    return spec, found


def efficiencies(spec, found):
    return [
        (row.efficiency and round(row.efficiency, 3), row.against)
        for row in summary.benchmark_rows(spec, found)
    ]


def test_without_one_worker_efficiency_is_against_the_fewest():
    assert efficiencies(*benchmark([180, 320], worker_counts="2,4")) == [(1.0, 2), (0.889, 2)]
    assert efficiencies(*benchmark([0, 180, 320])) == [(None, 0), (1.0, 2), (0.889, 2)]


def test_an_efficiency_far_above_1_has_a_remark():
    """The base job has been slowed down: more workers do not make a worker faster."""
    spec, found = benchmark([100, 472, 380])
    [remark] = summary.too_efficient(spec, found)
    assert "(002) is no gain: the job with 1 worker, which it is measured against" in remark
    assert "note      " + remark in summary.text(spec, found, "runs/mine")
    assert remark in report.render(spec, found)
    assert summary.too_efficient(*benchmark([100, 210, 320])) == []
    assert summary.too_efficient(*benchmark([0, 180, 0])) == []
    assert summary.too_efficient(compared(), {}) == []


def test_other_networks_schemes_and_batches_are_no_base():
    spec, found = benchmark([100, 180, 50, 60], batch_sizes="16,32", worker_counts="1,2")
    assert efficiencies(spec, found) == [(1.0, 1), (0.9, 1), (1.0, 1), (0.6, 1)]
    spec, found = benchmark([100, 180, 50, 60], networks="mlp,lenet", worker_counts="1,2")
    assert efficiencies(spec, found)[3] == (0.6, 1)
    spec, found = benchmark([100, 180, 50, 60], kvs="dist_sync,dist_async", worker_counts="1,2")
    assert efficiencies(spec, found)[3] == (0.6, 1)


def test_strong_scaling_compares_equal_batches_of_all_workers():
    spec, found = benchmark(
        [100, 190, 50, 60, 150, 90],
        scaling="weak,strong",
        batch_sizes="64,32",
        worker_counts="1,2",
    )
    about = [
        (row.about.scaling, row.about.batch_size, row.about.workers)
        for row in summary.benchmark_rows(spec, found)
    ]
    assert about[2] == ("strong", 32, 2) and about[5] == ("strong", 16, 2)
    by_job = dict(zip(about, efficiencies(spec, found)))
    assert by_job["strong", 32, 2] == (0.25, 1), "50 of two workers against 100 of one, batch 64"
    assert by_job["strong", 16, 2] == (0.75, 1), "90 against 60, batch 32"


def test_the_text_of_a_benchmark():
    spec, found = benchmark([100, 0, 320])
    found["002"] = found["002"].replaced(why="the GPU is gone\nand more")
    lines = summary.text(spec, found, "runs/mine")
    assert lines[0] == "FAILED    sweep mine: 3 jobs, 1 failed"
    assert lines[1].split()[:7] == ["job", "network", "kv", "batch", "GPUs", "scaling", "workers"]
    assert lines[2].split()[-6:] == ["100", "100", "%", "10", "9", "20"]
    assert "failed" in lines[3]
    assert "failed    mine-002: the GPU is gone and more" in lines, (
        "a node's text has no line breaks"
    )
    assert "again     -e sweep=mine -e again=failed" in lines
    assert lines[-1] == "report    runs/mine/report.html"
    assert (
        summary.text(*benchmark([100, 200, 300]), "runs/mine")[0] == "OK        sweep mine: 3 jobs"
    )


def test_jobs_with_late_steps_are_named(tmp_path):
    for spec, found in (benchmark([100, 180, 320]), comparison()):
        assert summary.late(spec, found) == []
        assert not [line for line in summary.text(spec, found, "runs/mine") if "late" in line]
        names = list(found)[:2]
        for name in names:
            found[name] = found[name].replaced(late=True)
        text = "these jobs had late steps: mine-%s, mine-%s; run them again with" % tuple(names)
        assert "late      " + text in "\n".join(summary.text(spec, found, "runs/mine"))
        assert text in report.render(spec, found)


def comparison(seeds=3, bsp=(10.0, 12.0, 11.0), asp=(5.0, None, 6.0)):
    """Return (specification, records): BSP is best at 0.05, and ASP at 0.025.

    Seed 0 chooses, with times that no seed measures. The workers alone have 50 samples/s each.
    """
    spec = compared("bsp", "asp", seeds=seeds, solo=True)
    found = {
        job.name: record(job.name, accuracy=None, samples_per_s=50.0)
        for job in sweep_comparison.solo_jobs(spec)
    }

    def add(scheme, lr, seed, time, **more):
        name = name_of(scheme, lr, seed)
        found[name] = record(name, time, **more)

    add("bsp", 0.025, 0, 30.0)
    add("asp", 0.05, 0, None, accuracy=0.4)
    add("bsp", 0.05, 0, 1.0)
    add("asp", 0.025, 0, 1.0)
    for number in range(seeds):
        seed = number + 1
        add("bsp", 0.05, seed, bsp[number], accuracy=0.9 + 0.01 * number)
        counts = {"a": {"mean": 1.5 + number, "counts": {"1": 1, "2": 1}}}
        add("asp", 0.025, seed, asp[number], y=counts, samples_per_s=150.0 + 10 * number)
        # At a tie of ranks the smaller rate is the common one.
        add("bsp", 0.025, seed, 30.0)
    return spec, found


def test_the_rows_of_a_comparison():
    spec, found = comparison()
    each = comparison_rows.rows(spec, found)
    rows = {(row.scheme, row.setting.lr): row for row in each}
    assert set(rows) == {("bsp", 0.05), ("asp", 0.025), ("bsp", 0.025)}
    assert rows["bsp", 0.05].kinds == ["best"]
    assert rows["asp", 0.025].kinds == ["best", "common"]
    assert rows["bsp", 0.025].kinds == ["common"]
    bsp, asp = rows["bsp", 0.05], rows["asp", 0.025]
    assert bsp.target_s == (10.5, 11.0, 11.5), "the seed that chose has 1.0 s, and does not count"
    assert bsp.accuracy.median == pytest.approx(0.91) and bsp.reached == 3
    assert asp.reached == 2 and asp.y == (2.0, 2.5, 3.0)
    assert asp.target_s == (5.5, 6.0, None), "never is infinite"
    assert bsp.speedup == (1.0, 1.0, 1.0)


def test_a_speed_up_has_quartiles_over_the_seeds():
    """Each seed has its own ratio: 10 / 5, 12 / 4 and 11 / 11."""
    spec, found = comparison(asp=(5.0, 4.0, 11.0))
    row = next(row for row in comparison_rows.rows(spec, found) if row.scheme == "asp")
    assert row.speedup == (1.5, 2.0, 2.5)
    spec, found = comparison(bsp=(10.0, 12.0, None), asp=(5.0, None, None))
    row = next(row for row in comparison_rows.rows(spec, found) if row.scheme == "asp")
    assert row.speedup == (0.5, 1.0, 1.5), "2, 0, and no ratio if both miss the target"


def test_the_speeds_are_parts_of_the_absolute_limit():
    """The limit is the sum of the solo speeds of the same run, 4 x 50 samples/s."""
    spec, found = comparison()
    assert comparison_rows.absolute_limit(spec, found) == 200.0
    asp = next(row for row in comparison_rows.rows(spec, found) if row.scheme == "asp")
    assert asp.part == (0.775, 0.8, 0.825)
    words = "limit, 200 samples/s, the sum of the workers' speeds alone: BSP 0.50 (0.50 to 0.50);"
    assert any(words in line for line in comparison_rows.findings(spec, found)), "the baseline, too"
    found["solo-2"] = found["solo-2"].replaced(state="failed", why="gone")
    asp = next(row for row in comparison_rows.rows(spec, found) if row.scheme == "asp")
    assert asp.part.median is None and comparison_rows.findings(spec, found) == []


def test_each_median_has_its_quartiles():
    spec, found = comparison()
    titles, *cells = summary.comparison_table(comparison_rows.rows(spec, found), 0.9)
    asp = dict(zip(titles, next(row for row in cells if row[0] == "ASP")))
    assert asp["to 90 %"] == "6.0 s (5.5 s to never)"
    assert asp["samples/s"] == "160 (155 to 165)" and asp["of the limit"] == "0.80 (0.78 to 0.82)"
    assert asp["accuracy"] == "50.0 % (50.0 % to 50.0 %)" and asp["Y"] == "2.50 (2.00 to 3.00)"
    assert asp["waited"] == "25 % (25 % to 25 %)"
    assert "(" in asp["speed-up"]
    (row,) = [
        row
        for row in csv.DictReader(
            io.StringIO(comparison_rows.as_csv(comparison_rows.rows(spec, found)))
        )
        if row["scheme"] == "asp"
    ]
    assert [row["target_s_" + end] for end in ("low", "median", "high")] == ["5.5", "6.0", "never"]
    assert (row["setting"], row["reached"], row["seeds"]) == ("best and common", "2", "3")
    figures = plot_figures.comparison(comparison_rows.rows(spec, found), 0.9, 200.0).figures
    speeds = next(one for one in figures if one.title.startswith("Samples per second"))
    assert speeds.title.endswith("the limit")
    assert figures[-1].title == "Histogram of Y of ASP, all seeds", "the scheme with values of Y"
    assert speeds.bars[0].low[1] == 155 and speeds.bars[0].high[1] == 165 and speeds.level == 200.0


@pytest.mark.slow
def test_jobs_without_a_common_speed_have_no_bars_of_speeds(tmp_path):
    """A job that is shorter than a second has one report of each worker."""
    spec, found = comparison()
    short = {name: one.replaced(samples_per_s=None) for name, one in found.items()}
    rows = comparison_rows.rows(spec, short)
    titles = [one.title for one in plot_figures.comparison(rows, 0.9).figures]
    assert not [title for title in titles if title.startswith("Samples per second")]
    assert plots.comparison(rows, 0.9, None, str(tmp_path)).startswith(PNG)


def test_a_coarse_time_to_the_target_has_a_remark():
    spec, found = comparison()
    assert comparison_rows.remarks(spec, found)[1:] == []
    name = name_of("bsp", 0.05, 2)
    found[name] = found[name].replaced(resolution=0.05)
    remark = comparison_rows.remarks(spec, found)[-1]
    assert "the target of 1 job are coarser than 2 %: up to 5.0 %, of mine-bsp" in remark
    assert any(remark in line for line in summary.text(spec, found, "runs/mine"))
    assert remark in html.unescape(report.render(spec, found))


def test_a_failed_job_is_no_result_of_its_scheme():
    spec, found = comparison()
    name = name_of("bsp", 0.05, 2)
    found[name] = found[name].replaced(state="failed", target_s=None, why="the node is gone")
    row = comparison_rows.rows(spec, found)[0]
    assert row.reached == len(row.jobs) == 2 and row.target_s.median == 10.5


def test_a_target_that_nobody_reaches_is_said():
    spec, found = comparison(asp=(None, None, None))
    text = "\n".join(summary.text(spec, found, "runs/mine"))
    assert "never" in text and "0 of 3" in text and "3 of 3" in text
    rows = comparison_rows.rows(spec, found)
    assert next(row for row in rows if row.scheme == "asp").speedup.median == 0.0


PNG = b"\x89PNG"


@pytest.mark.slow
def test_pictures_and_pages(tmp_path):
    for spec, found, words in (
        (*benchmark([100, 180, 0]), ("100 %", "90 %", "failed", "resnet20")),
        (*comparison(), ("11.0 s", "2 of 3", "bsp-lr0.05-m0.9-seed2", "2.50", "solo-3")),
    ):
        folder = tmp_path / spec.KIND
        folder.mkdir()
        report.write(str(folder), spec, found, str(tmp_path / "cache"))
        assert (folder / "plots.png").read_bytes().startswith(PNG)
        page = (folder / "report.html").read_text()
        for word in words + ("mxnet 1.9.1", "all jobs", "mxcluster.show({", "../"):
            assert word in page, word


def test_a_page_links_to_the_reports_of_its_jobs():
    for spec, found in (benchmark([100, 180, 0]), comparison()):
        page = report.render(spec, found)
        for one in found.values():
            assert '<a href="../%s/report.html">' % one.id in page, one.id


@pytest.mark.slow
def test_the_highest_point_of_the_times_lies_inside_of_the_axes(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(plots.style, "png", lambda figure: drawn.append(figure) or b"png")
    spec, found = comparison()
    plots.comparison(comparison_rows.rows(spec, found), 0.9, 200.0, str(tmp_path))
    axis = drawn[0].axes[1]
    highest = max(y for line in axis.lines for y in line.get_ydata())
    assert axis.get_ylim()[1] > 1.05 * highest


def test_an_unfinished_comparison_has_a_page_without_a_picture(tmp_path):
    assert plots.benchmark(summary.benchmark_rows(*benchmark([0, 0, 0]))) == b""
    spec, found = comparison()
    del found[name_of("bsp", 0.025, 0)]
    assert comparison_rows.rows(spec, found) == []
    assert summary.text(spec, found, "runs/mine")[0].startswith("OK        sweep mine: ")
    (tmp_path / "plots.png").write_bytes(b"of an earlier state")
    report.write(str(tmp_path), spec, found)
    page = (tmp_path / "report.html").read_text()
    assert "to do" in page and "There is nothing to draw yet" in page
    assert not (tmp_path / "plots.png").exists()


def test_the_job_with_one_worker_is_a_point_of_both_kinds_of_scaling():
    spec, found = benchmark([100, 180, 150], scaling="weak,strong", worker_counts="1,2")
    series = plots.series(summary.benchmark_rows(spec, found))
    found = {name: [row.record.samples_per_s for row in points] for name, points in series}
    assert found == {"weak, 32 each": [100, 180], "strong, 32 in all": [100, 150]}


def test_a_scheme_without_a_good_job_says_so():
    spec, found = comparison()
    for lr in (0.025, 0.05):
        name = name_of("asp", lr, 0)
        found[name] = found[name].replaced(state="failed", target_s=None, why="gone")
    assert comparison_rows.failed_schemes(spec, found) == ["ASP"]
    lines = summary.text(spec, found, "runs/mine")
    assert "ASP all failed" in [" ".join(line.split()) for line in lines]
    (_, _, table), _ = report.tables(spec, found)
    assert table[-1][:5] == ["ASP", "", "", "", "all failed"] and len(table[-1]) == len(table[0])
    assert comparison_rows.failed_schemes(compared("bsp"), {}) == []


def test_a_row_without_a_good_job_says_so():
    spec, found = comparison()
    rows = [row._replace(jobs=[]) for row in comparison_rows.rows(spec, found)[:1]]
    titles, cells = summary.comparison_table(rows, 0.9)
    assert cells[4] == "all failed" and len(cells) == len(titles) and not any(cells[5:])


def test_environments_are_told_once():
    spec, found = benchmark([1, 2, 3])
    found["003"] = found["003"].replaced(environment=Environment(mxnet=["1.5.1"], nodes=4))
    assert report.environments(list(found.values())) == [
        ("001, 002", "mxnet 1.9.1"),
        ("003", "mxnet 1.5.1"),
    ]


def found_of(gsp, balanced, fastest, bsp=10.0, asp=None):
    """Return the findings of a comparison with these times to the target of the seed 1."""
    times = {"bsp": bsp, "asp": asp, "gsp": gsp, "balanced": balanced, "fastest": fastest}
    spec = compared(*times, rates=("1",), seeds=1)
    records = {
        name_of(scheme, 0.05, seed): record(name_of(scheme, 0.05, seed), target_s=time)
        for scheme, time in times.items()
        for seed in (0, 1)
    }
    return comparison_rows.findings(spec, records)


def test_a_comparison_says_who_wins_and_who_loses():
    assert found_of(gsp=4.0, balanced=16.0, fastest=5.0, asp=8.0) == [
        "GSP wins against ASP, the best of BSP, ASP and SSP: it reaches 90 % in 4.0 s (4.0 s to "
        "4.0 s), 2.00 times as fast as the rival with 8.0 s (8.0 s to 8.0 s).",
        "GSP wins against fastest group alone: it reaches 90 % in 4.0 s (4.0 s to 4.0 s), 1.25 "
        "times as fast as the rival with 5.0 s (5.0 s to 5.0 s).",
        "load-balanced BSP loses against ASP, the best of BSP, ASP and SSP: it reaches 90 % in "
        "16.0 s (16.0 s to 16.0 s), 0.50 times as fast as the rival with 8.0 s (8.0 s to 8.0 s).",
        "load-balanced BSP loses against fastest group alone: it reaches 90 % in 16.0 s (16.0 s to "
        "16.0 s), 0.31 times as fast as the rival with 5.0 s (5.0 s to 5.0 s).",
    ]
    missed = found_of(gsp=None, balanced=10.0, fastest=None)
    assert missed[0] == "GSP loses: at least half of the seeds do not reach 90 %."
    assert missed[1].endswith(". The quartiles of the seeds overlap.")
    assert missed[2:] == [
        "load-balanced BSP reaches 90 % in 10.0 s (10.0 s to 10.0 s), and fastest group alone does "
        "not."
    ]
    assert comparison_rows.findings(compared("bsp", "gsp"), {}) == []
