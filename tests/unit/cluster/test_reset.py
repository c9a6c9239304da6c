"""What a reset may remove, and the lines about it."""

import pytest

from mxcluster.cluster import reset
from mxcluster.errors import BadInput
from mxcluster.model.module_answers import AbsentAnswer

ENV = AbsentAnswer(removed=["/opt/mxcluster/env"], kept={})
HOSTS = AbsentAnswer(removed=[], kept={"/etc/mxcluster/hosts": "changed by hand"})


def test_the_parts_of_a_request_have_an_order():
    assert reset.parts([]) == [] and reset.parts(["homes", "data", "homes"]) == ["data", "homes"]
    assert reset.parts(["driver", "cuda"]) == ["cuda", "driver"]


def test_an_unknown_part_is_refused_with_the_known_ones():
    with pytest.raises(BadInput) as refused:
        reset.parts(["data", "home"])
    assert "also='home' is refused: choose from data, homes, cuda and driver" in str(refused.value)
    assert "did you mean 'homes'" in str(refused.value)


def test_running_jobs_are_named_with_their_nodes():
    reset.refuse_jobs({"alpha": [], "beta": []})
    with pytest.raises(BadInput) as refused:
        reset.refuse_jobs({"alpha": ["one", "two"], "beta": [], "gamma": ["one"]})
    assert "one and two on alpha; one on gamma" in str(refused.value)
    assert "stop.yml" in str(refused.value)


def test_nodes_with_the_same_result_share_their_lines():
    answers = {"alpha": [ENV, HOSTS], "beta": [ENV], "gamma": [ENV], "delta": []}
    assert reset.lines(answers, check=False) == [
        "alpha:",
        "  removed   /opt/mxcluster/env",
        "  stays     /etc/mxcluster/hosts: changed by hand",
        "beta and gamma:",
        "  removed   /opt/mxcluster/env",
        "delta:",
        "  nothing to remove",
    ]
    assert reset.lines({"beta": [ENV]}, check=True)[1] == "  to remove /opt/mxcluster/env"
