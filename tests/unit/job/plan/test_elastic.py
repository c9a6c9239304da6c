"""The hosts that an elastic job may lose."""

import pytest

from mxcluster.job.plan.elastic import hosts_to_try
from plugins.filter.mxcluster import mxcluster_elastic

GROUPS = {"scheduler": ["a"], "servers": ["a", "b"], "workers": ["b", "c"], "other": ["d"]}


@pytest.mark.parametrize(
    "given, hosts",
    [
        ({"elastic": "true"}, ["a", "b", "c"]),
        ({"elastic": True, "without": "b,c"}, ["a"]),
        ({"elastic": "false"}, []),
        ({"elastic": None}, []),
        ({"elastic": "perhaps"}, []),
        ({}, []),
    ],
)
def test_an_elastic_job_may_lose_each_host_that_it_may_use(given, hosts):
    assert mxcluster_elastic(given, GROUPS) == hosts


def test_missing_groups_have_no_hosts():
    assert hosts_to_try("true", None, {}) == []
