"""Rows, tables and pictures of a sweep."""

import pytest

from mxcluster.job.sweep import plots, report, specs, summary
from mxcluster.model.sweep import Environment
from tests.unit.job.sweep.cluster import compared, measured, record, spec_of


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
    """Return (specification, records): BSP is best at 0.05, and ASP at 0.025."""
    spec = compared("bsp", "asp", seeds=seeds)
    found = {}

    def add(scheme, lr, seed, time, **more):
        name = "%s-lr%g-seed%d" % (scheme, lr, seed)
        found[name] = record(name, time, **more)

    add("bsp", 0.025, 0, 30.0)
    add("asp", 0.05, 0, None, accuracy=0.4)
    for seed in range(seeds):
        add("bsp", 0.05, seed, bsp[seed], accuracy=0.9 + 0.01 * seed)
        add("asp", 0.025, seed, asp[seed], y={"a": {"mean": 1.5, "counts": {"1": 1, "2": 1}}})
        # At a tie of ranks the smaller rate is the common one.
        add("bsp", 0.025, seed, 30.0)
    return spec, found


def test_the_rows_of_a_comparison():
    spec, found = comparison()
    rows = {(row.scheme, row.lr): row for row in summary.comparison_rows(spec, found)}
    assert set(rows) == {("bsp", 0.05), ("asp", 0.025), ("bsp", 0.025)}
    assert rows["bsp", 0.05].kinds == ["best"]
    assert rows["asp", 0.025].kinds == ["best", "common"]
    assert rows["bsp", 0.025].kinds == ["common"]
    bsp, asp = rows["bsp", 0.05], rows["asp", 0.025]
    assert bsp.target_s == (10.5, 11.0, 11.5)
    assert bsp.accuracy.median == pytest.approx(0.91) and bsp.reached == 3
    assert asp.reached == 2 and asp.y == 1.5
    assert asp.target_s == (5.5, 6.0, None), "never is infinite"
    assert asp.speedup == pytest.approx(11 / 6) and bsp.speedup == 1.0


def test_a_failed_job_is_no_result_of_its_scheme():
    spec, found = comparison()
    name = "bsp-lr0.05-seed1"
    found[name] = found[name].replaced(state="failed", target_s=None, why="the node is gone")
    row = summary.comparison_rows(spec, found)[0]
    assert row.reached == len(row.jobs) == 2 and row.target_s.median == 10.5


def test_a_target_that_nobody_reaches_is_said():
    spec, found = comparison(asp=(None, None, None))
    text = "\n".join(summary.text(spec, found, "runs/mine"))
    assert "never" in text and "0 of 3" in text and "3 of 3" in text
    rows = summary.comparison_rows(spec, found)
    assert next(row for row in rows if row.scheme == "asp").speedup is None


PNG = b"\x89PNG"


def test_pictures_and_pages(tmp_path):
    for spec, found, words in (
        (*benchmark([100, 180, 0]), ("100 %", "90 %", "failed", "resnet20")),
        (*comparison(), ("11.0 s", "2 of 3", "bsp-lr0.05-seed2", "1.5")),
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


def test_the_highest_point_of_the_times_lies_inside_of_the_axes(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(plots.style, "png", lambda figure: drawn.append(figure) or b"png")
    spec, found = comparison()
    plots.comparison(summary.comparison_rows(spec, found), 0.9, str(tmp_path))
    axis = drawn[0].axes[1]
    highest = max(y for line in axis.lines for y in line.get_ydata())
    assert axis.get_ylim()[1] > 1.05 * highest


def test_an_unfinished_comparison_has_a_page_without_a_picture(tmp_path):
    assert plots.benchmark(summary.benchmark_rows(*benchmark([0, 0, 0]))) == b""
    spec, found = comparison()
    del found["bsp-lr0.025-seed0"]
    assert summary.comparison_rows(spec, found) == []
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
    for lr in ("0.025", "0.05"):
        name = "asp-lr%s-seed0" % lr
        found[name] = found[name].replaced(state="failed", target_s=None, why="gone")
    assert summary.failed_schemes(spec, found) == ["ASP"]
    lines = summary.text(spec, found, "runs/mine")
    assert "ASP all failed" in [" ".join(line.split()) for line in lines]
    (_, _, table), _ = report.tables(spec, found)
    assert table[-1][:4] == ["ASP", "", "", "all failed"] and len(table[-1]) == len(table[0])
    assert summary.failed_schemes(compared("bsp"), {}) == []


def test_a_row_without_a_good_job_says_so():
    spec, found = comparison()
    for seed in range(3):
        bsp, asp = ("%s-lr0.025-seed%d" % (scheme, seed) for scheme in ("bsp", "asp"))
        found[bsp] = found[bsp].replaced(state="failed", why="gone")
        found[asp] = found[asp].replaced(target_s=None, accuracy=0.1)
    rows = [row._replace(jobs=[]) for row in summary.comparison_rows(spec, found)[:1]]
    titles, cells = summary.comparison_table(rows, 0.9)
    assert cells[3] == "all failed" and len(cells) == len(titles) and not any(cells[4:])


def test_environments_are_told_once():
    spec, found = benchmark([1, 2, 3])
    found["003"] = found["003"].replaced(environment=Environment(mxnet=["1.5.1"], nodes=4))
    assert report.environments(list(found.values())) == [
        ("001, 002", "mxnet 1.9.1"),
        ("003", "mxnet 1.5.1"),
    ]


def found_of(gsp, balanced, fastest, bsp=10.0, asp=None):
    """Return the findings of a comparison with these times to the target of the only seed."""
    times = {"bsp": bsp, "asp": asp, "gsp": gsp, "balanced": balanced, "fastest": fastest}
    spec = compared(*times, rates=("1",), seeds=1)
    records = {
        "%s-lr0.05-seed0" % scheme: record("%s-lr0.05-seed0" % scheme, target_s=time)
        for scheme, time in times.items()
    }
    return summary.findings(spec, records)


def test_a_comparison_says_who_wins_and_who_loses():
    assert found_of(gsp=4.0, balanced=16.0, fastest=5.0, asp=8.0) == [
        "GSP wins against ASP, the best of BSP, ASP and SSP: it reaches 90 % in 4.0 s, 2.00 times "
        "as fast as the rival.",
        "GSP wins against fastest group alone: it reaches 90 % in 4.0 s, 1.25 times as fast as the "
        "rival.",
        "load-balanced BSP loses against ASP, the best of BSP, ASP and SSP: it reaches 90 % in "
        "16.0 s, 0.50 times as fast as the rival.",
        "load-balanced BSP loses against fastest group alone: it reaches 90 % in 16.0 s, 0.31 times"
        " as fast as the rival.",
    ]
    missed = found_of(gsp=None, balanced=10.0, fastest=None)
    assert missed[0] == "GSP loses: at least half of the seeds do not reach 90 %."
    assert missed[1].endswith("as fast as the rival. The quartiles of the seeds overlap.")
    assert missed[2:] == [
        "load-balanced BSP reaches 90 % in 10.0 s, and fastest group alone does not."
    ]
    assert summary.findings(compared("bsp", "gsp"), {}) == []
