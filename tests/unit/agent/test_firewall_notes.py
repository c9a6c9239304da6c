"""Notes of the firewall's holder are added to the job's events, and so to its report."""

import json

from mxcluster import events
from mxcluster.agent.folder import JobFolder
from mxcluster.agent.supervisor import Supervisor
from mxcluster.node import firewall, processes
from tests.plans import part_of


def test_a_reload_of_the_firewall_is_among_the_jobs_events(tmp_path, monkeypatch):
    folder, run = tmp_path / "job-1", tmp_path / "run"
    folder.mkdir()
    run.mkdir()
    monkeypatch.setattr(firewall, "FOLDER", str(run))
    monkeypatch.setattr(processes, "end_groups", lambda *_, **__: [])  # this process is the agent
    plan = part_of()
    (folder / "plan.json").write_text(json.dumps(plan.encode()))
    supervisor = Supervisor(JobFolder(str(folder)), plan)
    supervisor.copy_firewall_notes()
    assert not (folder / "events.jsonl").exists()  # no note, no event
    (run / "job-1.notes").write_text("the firewall was reloaded during the job\n")
    supervisor.end("done")
    ((event, _),) = events.read(str(folder / "events.jsonl"))
    assert event.text == "node1: the firewall was reloaded during the job"
