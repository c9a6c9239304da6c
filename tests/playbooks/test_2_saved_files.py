"""A script saves files, and a later job goes on from them, by itself or with `resume`."""

import json
import os
import pathlib
import signal

from mxcluster import checkpoints

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "saving.py"
ALONE = "import mxnet as mx\nkv = mx.kv.create('dist_sync')\nprint('is first:', kv.rank == 0)\n"


def began(run):
    """Return the lines in which the workers of a run tell where they began."""
    logs = sorted((run / "nodes").glob("*/worker-*.log"))
    return [line for log in logs for line in log.read_text().splitlines() if "BEGAN" in line]


def test_a_script_goes_on_from_the_files_that_it_has_saved(project, tmp_path):
    """Its worker is killed, and the job restarts; then a user resumes it with other workers."""
    runs, packages = project.path / "runs", tmp_path / "mine.txt"
    packages.write_text("six==1.14.0\n")
    options = {
        "kv": "dist_sync",
        "script": str(SCRIPT),
        "script_args": ["3"],
        "requirements": str(packages),
        "job_id": "saves",
        "num_workers": 3,
        "num_servers": 1,
        "max_restarts": 1,
        "restart_delay": 0,
    }
    process = project.start("train.yml", "-e", json.dumps(options))
    kept = runs / "saves" / "checkpoints"

    def saved():
        found = [checkpoints.last_complete(str(kept), one)[0] for one in checkpoints.workers(kept)]
        return [one.name for one in found if one]

    project.until(process, saved)
    [name] = saved()
    assert (kept / name / "state" / "round.txt").read_text() == "3", "it comes while the job runs"
    part = next(
        one for one in project.status("saves", "node2")["processes"] if one["role"] == "worker"
    )
    os.kill(part["pid"], signal.SIGKILL)
    output = project.finish(process)
    project.wait_for_nothing_left()
    assert process.returncode == 0, output
    assert "RESTART   job saves-r1" in output and "from checkpoint 1" in output, output
    shares = ["0-333", "334-666", "667-999"]
    assert sorted(began(runs / "saves-r1")) == [
        "BEGAN after round 3 with samples " + one for one in shares
    ]
    assert "never asked" not in output

    packages.unlink()  # the run folder has a copy
    result, run = project.train(
        resume="saves-r1", job_id="saves-again", num_workers=2, num_servers=1
    )
    assert result.code == 0, result.output
    assert ": six==1.14.0" in result.output and "six" in (run / "requirements.txt").read_text()
    assert "resumes from" in result.output and "with 1 file" in result.output, result.output
    assert sorted(began(run)) == [
        "BEGAN after round 6 with samples " + one for one in ("0-499", "500-999")
    ]


def test_a_script_that_never_asks_for_its_share_is_told_so(project, tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    result, run = project.train(
        kv="dist_sync", script=str(script), num_workers=2, num_servers=1, job_id="unasked"
    )
    assert result.code == 0, result.output
    words = "the workers 0-1 never asked for their share of the data"
    assert words in result.output, result.output
    assert words in (run / "report.html").read_text()
    result, later = project.train(resume="unasked", job_id="unasked-later")
    assert result.code != 0 and not later.exists(), result.output
    assert "no complete checkpoint of the script in" in result.output, result.output
