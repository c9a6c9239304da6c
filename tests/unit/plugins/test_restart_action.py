"""The action plugin mxcluster_restart. test_2_restarts.py runs attempts in playbooks."""

from plugins.action import mxcluster_restart
from tests import ansible_modules


def test_an_attempt_without_a_verdict_names_the_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr(mxcluster_restart.attempts, "run", lambda extra, show: 99)
    monkeypatch.setattr(mxcluster_restart.attempts, "end_with_parent", lambda: None)
    told = ansible_modules.carry_out(
        mxcluster_restart,
        run_dir=str(tmp_path / "mine"),
        text=["FAILED    job mine"],
        restart={"text": "RESTART   job mine-r1", "extra": {"job_id": "mine-r1"}, "delay": 0},
    )
    assert told["verdict"] is None and told["mxcluster_exit_status"] == 99
    assert told["text"] == [
        "FAILED    job mine-r1: ansible-playbook ended with status 99 before the verdict. See the "
        "error in the output above",
        "next      run status.yml. If it lists the job, run train.yml -e attach=mine-r1",
        "          If not, remove the error, and run train.yml -e resume=mine",
    ]
