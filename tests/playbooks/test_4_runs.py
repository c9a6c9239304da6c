"""The history of runs on the terminal and as a page."""

from tests.recap import changes
from tests.unit.job.report.test_history import write_run


def test_runs_are_listed_found_and_written_to_a_page(project, tmp_path):
    for job, fields in (
        ("first", {"tag": "paper", "note": "the \x1b[31mfirst", "accuracy": 0.9, "started": 1e9}),
        ("second", {"state": "FAILED", "started": 2e9}),
    ):
        write_run(tmp_path, job, **fields)
    runs = "runs_dir=%s" % tmp_path
    result = project.run("runs.yml", "-e", runs)
    assert result.code == 0, result.output
    odd = tmp_path / "odd.yml"
    odd.write_text("odd-name: {hosts: {node1: }}\n")
    process = project.start("runs.yml", "-i", "inventory/local", "-i", str(odd), "-e", runs)
    assert "[WARNING]" in project.finish(process), "before the playbook starts"
    assert "[WARNING]: Invalid characters were found in group names" in project.ansible_log()
    for words in ("first", "0.9000", "paper", "second", "FAILED", str(tmp_path / "index.html")):
        assert words in result.output, result.output
    assert "\x1b[31m" not in result.output
    assert (tmp_path / "index.html").stat().st_size > 100000
    result = project.run("runs.yml", "-e", runs, "-e", "find=PAPER", "--check")
    assert result.code == 0 and "first" in result.output and "second" not in result.output
    note = ("-e", "job=first", "-e", "note='the best one'")
    result = project.run("runs.yml", "-e", runs, *note, "--check")
    assert result.code == 0 and "the best one" not in result.output, result.output
    assert sum(changes(project.ansible_log()).values()) == 1
    for number in (1, 0):  # a second time, nothing changes
        result = project.run("runs.yml", "-e", runs, *note)
        assert result.code == 0 and "the best one" in result.output, result.output
        assert sum(changes(project.ansible_log()).values()) == number
    assert "paper" in result.output and "second" not in result.output, "the tag stays"
    result = project.run("runs.yml", "-e", runs, "-e", "job=first", "-e", "tag=")
    assert result.code == 0 and "paper" not in result.output, result.output
    assert "the best one" in (tmp_path / "index.html").read_text()
    for words, refusal in (
        ("job=first1", "did you mean 'first'"),
        ("note=x", "add -e job=<job>"),
        ("tag='two words' job=first", "at most 40 letters"),
    ):
        result = project.run("runs.yml", "-e", runs, "-e", words)
        assert result.code != 0 and refusal in result.output, result.output
    result = project.run("runs.yml", "-e", "findd=x")
    assert result.code != 0 and "did you mean" in result.output, result.output


def test_a_tag_and_a_note_are_knobs_of_a_job(project):
    plan = ("train.yml", "-e", "plan_only=true")
    result = project.run(*plan, "-e", "tag=paper", "-e", "note='a larger lr'")
    assert result.code == 0, result.output
    result = project.run(*plan, "-e", "tag='two words'")
    assert result.code != 0 and "at most 40 letters" in result.output, result.output
