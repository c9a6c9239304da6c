"""The report of an acceptance has the facts of the nodes, and no word of the site."""

import copy
import json

import pytest

from mxcluster.cluster import verify
from mxcluster.cluster.verify import acceptance
from mxcluster.errors import BadInput
from mxcluster.model.acceptance import Outcome, Report
from mxcluster.model.check_answer import Checked, RendezvousReport
from mxcluster.model.plan import Node
from mxcluster.model.run_record import Controller
from mxcluster.model.shapes import Wrong
from tests.unit.cluster.verify import test_gpus, test_verify

CONTROLLER = Controller(
    mxcluster="0.1.0", package="mxcluster-0.zip", ansible_core="2.16.14", python="3.11.7"
)
HOSTS = ("gpu7.lab.example.org", "10.20.0.3", "kanarienvogel")
SYSTEM = {
    "cpu": "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz",
    "cores": 56,
    "memory_mb": 257000,
    "gpus": ["Tesla V100-SXM2-16GB"],
    "driver": "470.256.02",
    "kernel": "3.10.0-1160.119.1.el7.x86_64",
    "system": "CentOS Linux 7 (Core)",
    "distribution": "centos",
    "release": "7.9.2009",
    "selinux": "enforcing",
    "versions": {"glibc": "2.17", "systemd": "219", "yum": "3.4.3", "dkms": ""},
}
GPUS = {name: fact for name, fact in test_gpus.WELL.items() if name != "wanted"}
ANSWER = dict(test_verify.ANSWER, system=SYSTEM, gpus=GPUS, seconds={"mxnet": 2.5})
CANARIES = (
    "kanarie-7f3a",
    "10.9.8.77",
    "/home/kanarie/.ssh/id_rsa",
    "kanarie@10.9.8.77",
    "AAAAC3NzaC1lZDI1NTE5AAAAIKanarie",
    "gpu9.lab.example.org",
)


def reported(known, reports=None, build="cu92"):
    """Return the report as JSON. Args: `known` {host: its answer, None without one}."""
    wanted = dict(test_verify.WANTED)
    del wanted["nodes"]
    node = {"address": "10.20.0.1", "build": build, "cuda": test_gpus.WANTED}
    nodes = {host: Node.decode(node) for host in known}
    met = {host: RendezvousReport.decode(one) for host, one in (reports or {}).items()}
    verdict = verify.judge(nodes, known, met, verify.Wanted.decode(wanted))
    found = acceptance.of(verdict, nodes, known, CONTROLLER, 1764259200.0)
    assert Report.decode(json.loads(json.dumps(found.encode()))) == found
    return found.encode()


def test_facts_of_nodes():
    found = reported({HOSTS[0]: Checked.decode(ANSWER), HOSTS[1]: None})
    first, second = found["nodes"]
    assert first["name"] == "node1" and first["mxnet"] == "1.9.1" and first["build"] == "cu92"
    system = {name: fact for name, fact in SYSTEM.items() if name != "system"}
    assert first["system"] == system and first["seconds"] == {"mxnet": 2.5}
    assert first["cuda"] == {
        "wanted": "9.2.148",
        "nvcc": "9.2.148",
        "driver_api": 11040,
        "runtime": 9020,
        "cudnn": "7.6.5",
        "cudnn_loaded": "7.6.5",
        "nccl_loaded": "",
        "nouveau": False,
        "capabilities": ["7.0", "7.0"],
        "trials": {"0": "ok", "1": "ok", "0 -> 1": "ok", "1 -> 0": "ok"},
        "errors": [],
    }
    assert second["name"] == "node2" and second["mxnet"] == "" and "system" not in second
    assert found["status"] == 2 and found["controller"]["ansible_core"] == "2.16.14"
    why = {line["check"]: line["why"] for line in found["checks"]}
    assert why["every node answers"][0].startswith("node2 does not answer: correct the error")


def test_the_compiler_of_a_patch_has_four_numbers():
    for nvcc, told in (("9.2.148.1", "9.2.148.1"), ("9.2.88", "9.2.88"), ("10.9.8.77", "")):
        answer = Checked.decode(dict(ANSWER, gpus=dict(GPUS, nvcc=nvcc)))
        assert reported({HOSTS[0]: answer})["nodes"][0]["cuda"]["nvcc"] == told


def test_every_check_keeps_its_name():
    answers, met = Checked.decode(ANSWER), test_verify.RENDEZVOUS
    found = reported(dict.fromkeys(HOSTS, answers), dict.fromkeys(HOSTS, met))
    assert len(found["checks"]) > 15
    assert not [line for line in found["checks"] if "hidden" in line["check"]], found["checks"]


def leaves(value, path=()):
    """Yield the path of each text in JSON; that of a name of an object ends with None."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*path, name, None)
            yield from leaves(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    elif isinstance(value, str) or value is None:
        yield path


def put(value, path, canary):
    """Put a canary into the place `path` of JSON."""
    *folders, name = path if path[-1] is not None else path[:-1]
    for folder in folders:
        value = value[folder]
    if path[-1] is None:
        value[canary] = value.pop(name)
    else:
        value[name] = canary


FAILED = dict(
    ANSWER,
    mxnet={"error": "cannot import MXNet: x", "libmxnet": "a" * 64, "python": "x"},
    files={name: {"error": "x"} for name in test_verify.FILES},
    room={"error": "x"},
    gpus=dict(
        GPUS,
        unresolved=["x"],
        trials={"0": "x", "1": "x"},
        probe=dict(
            test_gpus.PROBE, driver={"error": "x", "status": 3}, runtime={"error": "x", "status": 3}
        ),
    ),
)
BROKEN = dict(FAILED, gpus={"error": "x"}, ports_open="x", ssh={"error": "x"})


@pytest.mark.slow
@pytest.mark.parametrize("answer", [ANSWER, FAILED, BROKEN], ids=["well", "failed", "broken"])
def test_a_canary_in_any_text_of_a_node_stays_at_the_site(answer):
    """Each text and each name of an answer is replaced by a canary, and sought in the report."""
    placed = 0
    for path in leaves(answer):
        for canary in (*CANARIES, "words: %s; and (%s) in '%s' of %s, %s: %s." % CANARIES):
            changed = copy.deepcopy(answer)
            put(changed, path, canary)
            try:
                known = Checked.decode(changed)
            except Wrong:  # the codec refuses such an answer
                continue
            found = json.dumps(reported({HOSTS[0]: Checked.decode(ANSWER), HOSTS[1]: known}))
            placed += 1
            assert not [one for one in (*CANARIES, "anarie") if one in found], (path, canary)
    assert placed > 50


def test_a_canary_in_the_rendezvous_and_in_the_plan_stays_at_the_site():
    for canary in CANARIES:
        peer = {"host": HOSTS[1], "name": canary, "address": "10.20.0.3", "port": 9091}
        lost = dict(
            test_verify.RENDEZVOUS,
            unreachable=[dict(peer, reason="%s timed out" % canary)],
            taken=["port 9091 is in use by %s" % canary],
        )
        known = dict.fromkeys((HOSTS[0], canary), Checked.decode(ANSWER))
        found = json.dumps(reported(known, {HOSTS[0]: lost}, canary))
        assert canary not in found and "10.20.0" not in found and "lab.example" not in found


def test_steps_join_the_report(tmp_path):
    made = acceptance.of_steps(CONTROLLER, [], 1764259200.0)
    path = acceptance.write(str(tmp_path / "runs"), made)
    why = "fatal: [node1]: FAILED! => gpu7.lab.example.org refused kanarie"
    step = Outcome(step="provision", result="failed", seconds=61.5, why=why)
    acceptance.add_steps(path, [acceptance.outcome("gpu7.lab.example.org", step)])
    with open(path) as stream:
        (found,) = json.load(stream)["steps"]
    assert found["step"] == "provision" and found["seconds"] == 61.5
    assert found["why"] == "fatal: [node1]: FAILED! => node1 refused [hidden]"
    with open(path, "w") as stream:
        stream.write('{"time": 1')
    with pytest.raises(BadInput, match="is damaged"):
        acceptance.add_steps(path, [])
