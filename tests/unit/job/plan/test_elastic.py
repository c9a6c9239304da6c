"""The hosts that an elastic job may lose."""

import pytest

from mxcluster.job.plan.elastic import hosts_to_try
from plugins.filter.mxcluster import mxcluster_elastic

GROUPS = {"scheduler": ["a"], "servers": ["a", "b"], "workers": ["b", "c"], "other": ["d"]}


@pytest.mark.parametrize(
    "given, hosts",
    [
        ({"elastic": "true", "max_restarts": "2"}, ["a", "b", "c"]),
        ({"elastic": True, "max_restarts": 1, "without": "b,c"}, ["a"]),
        ({"elastic": "true"}, []),
        ({"elastic": "false", "max_restarts": "2"}, []),
        ({"elastic": None, "max_restarts": "2"}, []),
        ({"elastic": "perhaps", "max_restarts": "2"}, []),
        ({"elastic": "true", "max_restarts": "many"}, []),
        ({}, []),
    ],
)
def test_an_elastic_job_may_lose_each_host_that_it_may_use(given, hosts):
    assert mxcluster_elastic(given, GROUPS) == hosts


def test_missing_groups_have_no_hosts():
    assert hosts_to_try("true", "2", None, {}) == []
