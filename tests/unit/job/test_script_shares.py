"""The warning about workers of a script that read the same data."""

import pytest

from mxcluster.job import script_shares
from mxcluster.model.events import Done
from tests.unit.job.report.fake_run import make_plan


def warnings(asked, script="/my/train.py"):
    plan = make_plan(workers=len(asked))
    plan = plan.replaced(options=plan.options.replaced(script=script))
    events = [Done(role="worker", index=index, asked=one) for index, one in enumerate(asked)]
    return script_shares.unasked(plan, events)


def test_workers_that_never_asked_for_their_share_are_named():
    [text] = warnings([False, True, False, False])
    assert text.startswith("the workers 0, 2-3 never asked") and "mxcluster.share" in text


@pytest.mark.parametrize("asked", [[True, True], [False, True], [False], [None, None]])
def test_one_worker_alone_or_an_older_node_gives_no_warning(asked):
    assert not warnings(asked)


def test_the_program_of_mxcluster_gives_no_warning():
    assert not warnings([False, False], script="")
