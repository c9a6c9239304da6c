"""The command line of mxcluster.entry on a node, and the check of its answer."""

import json

import pytest

from mxcluster.ansible import node_program
from mxcluster.ansible.contact import Output
from mxcluster.errors import MxclusterError
from mxcluster.model.protocol import COMMANDS
from tests.unit import statuses

# Ansible acts on these keys of a result.
OF_ANSIBLE = (
    "add_group add_host ansible_facts changed deprecations diff exception failed invocation msg rc "
    "results skipped unreachable warnings"
).split()
RUNNING = statuses.status({"processes": []}).encode()
DONE = statuses.status({"processes": [], "state": "ended", "reason": "done"}).encode()


def request(command, **fields):
    return COMMANDS[command].decode(dict({"job_dir": "/jobs/j1", "output": "/o"}, **fields))


@pytest.mark.parametrize(
    "command, answer, of_task",
    [
        ("wait", {"status": RUNNING, "progress": {}}, {"changed": False, "ended": False}),
        ("wait", {"status": DONE, "progress": {}}, {"changed": False, "ended": True}),
        ("stop", {"ran": True, "status": None}, {"changed": True}),
        ("stop", {"ran": False, "status": None}, {"changed": False}),
        (
            "look",
            {"problems": [], "held": {"ports": {}, "gpus": {}}, "fits": True},
            {"changed": False},
        ),
        (
            "jobs",
            {"jobs": [{"job": "one", "state": "prepared"}], "cleared": []},
            {"has": True, "paths": {"python": "/p", "jobs_dir": "/jobs"}, "changed": False},
        ),
        (
            "jobs",
            {"jobs": [], "cleared": ["old"]},
            {"has": False, "paths": {"python": "/p", "jobs_dir": "/jobs"}, "changed": True},
        ),
    ],
)
def test_the_result_is_the_answers_last_line(command, answer, of_task):
    """Output of a library does not hide the answer, and no answer tells Ansible what to do."""
    job = {"job": "one", "jobs_dir": "/jobs"} if command == "jobs" else {}
    forged = dict(dict.fromkeys(OF_ANSIBLE, {"x": 1}), _ansible_no_log=True)
    out = "a library says hello\n%s\n" % json.dumps(dict(forged, **answer))
    found = node_program.result("/p", request(command, **job), "node1", Output(rc=0, stdout=out))
    assert set(found) & set(forged) == {"changed"}
    assert {name: found[name] for name in of_task} == of_task and set(answer) <= set(found)


@pytest.mark.parametrize(
    "command, result",
    [
        ("start", {"changed": True}),
        ("wait", {"changed": False, "status": None, "progress": {}, "ended": True}),
        ("stop", {"changed": False, "status": None, "ran": False}),
    ],
)
def test_check_mode_reports_that_the_command_did_not_run(command, result):
    assert node_program.of_check_mode(request(command)) == dict(
        result, msg="check mode: mxcluster did not run the command %s" % command
    )


@pytest.mark.parametrize(
    "code, out, err, message",
    [
        (1, '{"error": "an agent runs, pid 7"}\n', "noise", "an agent runs, pid 7"),
        (
            1,
            "",
            "Traceback\n/p: No module named mxcluster\n",
            "/p -I -m mxcluster.entry (start) ended with status 1 and without an answer: the "
            "node may have another version of mxcluster; run "
            "provision.yml (running jobs go on). The last output:\nTraceback\n"
            "/p: No module named mxcluster",
        ),
        (
            0,
            "[1]\n",
            "",
            "/p -I -m mxcluster.entry (start) ended with status 0 and without an answer: correct "
            "the error on the node, and run the playbook again. The last output:\n[1]",
        ),
        (
            127,
            "",
            "sh: /p: not found",
            "cannot run /p on this node (sh: /p: not found): run provision.yml",
        ),
        (
            127,
            "",
            "sh: sudo: not found",
            "cannot run /p on this node (sh: sudo: not found): correct the error on the node, and "
            "run the playbook again",
        ),
    ],
)
def test_an_error_becomes_a_clean_message(code, out, err, message):
    with pytest.raises(MxclusterError) as caught:
        output = Output(rc=code, stdout=out, stderr=err)
        node_program.result("/p", request("start"), "node1", output)
    assert str(caught.value) == message
