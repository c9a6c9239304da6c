"""A push of a worker does not overtake the last pull of its key."""

from tests.training.conftest import by_turns
from tests.training.loopback import Job, log_of


@by_turns("kv, groups", ("dist_gsync", (0, 1)), ("dist_ssync", (0, 0)), ("dist_sync", (0, 0)))
def test_a_gradient_that_is_ready_waits_for_the_last_pull(every_mxnet, tmp_path, kv, groups):
    """Once workers trained different weights, without an error: also under MXNet's own stores."""
    more = {"arguments": [kv], "staleness": 100}
    job = Job(every_mxnet.python, tmp_path, "overtaking.py", kv, groups, **more).succeed()
    assert "push() did not return" not in job.evidence(), job.evidence()
    assert "in order" in log_of(tmp_path, "worker-1"), job.evidence()
