"""The knobs that a job could read: the report and knobs.yml have no others."""

import pytest

from mxcluster.job import read_knobs
from mxcluster.model.job_knobs import Options
from tests.unit.job.report import fake_run


def readable(**options):
    plan = fake_run.make_plan(workers=2, groups=1, kv=options.get("kv", "dist_sync"), servers=1)
    return read_knobs.readable(plan.replaced(options=Options(**options)))


@pytest.mark.parametrize(
    "options, read, unread",
    [
        ({}, {"lr", "network", "kv", "num_workers"}, {"script_args", "queue", "image", "gsync_y"}),
        (
            {"script": "/a/train.py"},
            {"script", "script_root", "data_dir", "data_allocator", "env", "kv"},
            {"lr", "network", "data", "num_epochs", "batch_size", "measured", "program"},
        ),
        ({"kv": "dist_gsync"}, {"gsync_y", "gsync_max_y"}, {"staleness"}),
        ({"kv": "dist_ssync"}, {"staleness"}, {"gsync_y"}),
        ({"launcher": "slurm"}, {"queue", "gres", "num_nodes"}, {"parallel_environment"}),
        ({"runtime": "docker"}, {"image", "image_python"}, set()),
        ({"compression": "2bit"}, {"compression_threshold"}, {"least_batch"}),
        ({"balance": "deadline"}, {"least_batch"}, {"compression_threshold"}),
        ({"program": "profile"}, {"network", "batch_size"}, {"num_epochs", "savemodel"}),
    ],
)
def test_a_job_reads_the_knobs_of_its_kind(options, read, unread):
    found = readable(**options)
    assert read <= found and not unread & found, (read - found, unread & found)
