"""Healthy jobs in a row, all of which must end well: 5 here, 50 with `make soak`."""

import os


def test_jobs_in_a_row(project):
    schemes = ("dist_sync", "dist_async", "dist_gsync", "dist_ssync")
    for number in range(int(os.environ.get("MXCLUSTER_SOAK_JOBS", "5"))):
        result, _ = project.train(kv=schemes[number % len(schemes)], num_epochs=2, job_id="soak-%d" % number)
        print("soak: job %d, %s, %.1f s, exit status %d" % (number, schemes[number % 4], result.seconds, result.code), flush=True)
        assert result.code == 0, result.output
        project.wait_for_nothing_left(2)
