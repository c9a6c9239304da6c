"""The controller's part of reset.yml."""

from plugins.action import mxcluster_absent, mxcluster_reset
from tests.ansible_modules import carry_out

RUNNING = {"jobs": [{"job": "one", "state": "running"}, {"job": "old", "state": "ended"}]}


def test_a_running_job_refuses_the_reset():
    answers = {"alpha": {"jobs": []}, "beta": RUNNING, "gamma": {}}
    told = carry_out(mxcluster_reset, command="plan", also=[], jobs=answers)
    assert told["failed"] and "one on beta" in told["msg"] and "old" not in told["msg"]
    told = carry_out(mxcluster_reset, command="plan", also="homes,data", jobs={"alpha": {}})
    assert told["also"] == ["data", "homes"]


def test_a_host_without_answers_has_no_lines():
    answers = {
        "alpha": [{"removed": ["/opt/x"], "kept": {}}, {"skipped": True, "changed": False}, {}],
        "localhost": {},
    }
    told = carry_out(mxcluster_reset, command="report", answers=answers)
    assert told["mxcluster_verdict_text"] == ["alpha:", "  removed   /opt/x"]


def test_the_nodes_that_limit_leaves_out_count_as_users_of_shared_folders():
    variables = {
        "groups": {"scheduler": ["a"], "workers": ["a", "b", "c"], "other": ["x"]},
        "ansible_play_hosts_all": ["a"],
        "hostvars": {
            "a": {"ansible_connection": "local"},
            "b": {"ansible_connection": "local"},
            "c": {},
        },
        "inventory_hostname": "a",
    }
    assert mxcluster_absent.left_out(variables) == {"others": ["b", "c"], "here": ["b"]}
    variables["hostvars"]["a"] = {}
    assert mxcluster_absent.left_out(variables) == {"others": ["b", "c"], "here": []}
