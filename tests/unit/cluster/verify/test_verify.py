"""The verdict on a cluster, case by case, from answers as nodes give them."""
import copy

import pytest

from mxcluster import verify

GIB = 1 << 30
ANSWER = {"mxnet": {"python": "3.6.8", "numpy": "1.19.5", "mxnet": "1.9.1", "libmxnet": "a" * 64,
                    "compiled_in": True, "says": ""},
          "files": {"hosts": {"sha256": "h"}, "groups": {"sha256": "g"}},
          "room": {"/opt/mxcluster": 50 * GIB, "/dev/shm": GIB},
          "ssh": {"peers": {"a": None, "b": None, "c": None}}, "gpus": None}
MEETING = {"met": [{"host": "a", "rtt": 0.001, "offset": 0.01}], "unreachable": [], "taken": [], "missing": [],
           "limits": {"open_files": 4096}}
WANTED = {"files": {"hosts": "h", "groups": "g"}, "nodes": {host: {"build": "cpu"} for host in "abc"}, "ssh": True, "met": True,
          "max_clock_offset": 1.0, "min_disk_mb": 1024, "min_shm_mb": 32, "min_open_files": 1024}


def judged(change=lambda answers, meetings, wanted: None):
    answers, meetings = ({host: copy.deepcopy(what) for host in "abc"} for what in (ANSWER, MEETING))
    for host in "abc":
        meetings[host]["host"] = host
    wanted = copy.deepcopy(WANTED)
    change(answers, meetings, wanted)
    return verify.judge(answers, meetings, wanted)


def failures(verdict):
    return {line["check"]: line["why"] for line in verdict["checks"] if line["result"] == "failed"}


def test_all_is_well():
    verdict = judged()
    assert verdict["ok"] and verdict["status"] == 0 and failures(verdict) == {}
    assert verify.text(verdict, "verify.json")[0] == "OK        3 nodes: 13 ok"


def put(*keys):
    *path, value = keys

    def change(answers, meetings, wanted):
        place = {"answers": answers, "meetings": meetings, "wanted": wanted}
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    return change


FILES, ROOM = "hosts, groups and data_sharding as planned", "room on disks and in shared memory"
SSH, TCP = "ssh from every node to every other", "TCP between all roles on the planned ports"
LOST = {"host": "c", "name": "worker-1", "address": "10.0.0.3", "port": 9091, "reason": "timed out"}


@pytest.mark.parametrize("change, check, says", [
    (put("answers", "c", "mxnet", "libmxnet", "b" * 64), "the same libmxnet.so", "a, b: aaaaaaaaaaaa; c: bbbbbbbbbbbb: run"),
    (put("answers", "b", "mxnet", "numpy", "1.16"), "the same numpy", "a, c: 1.19.5; b: 1.16"),
    (put("answers", "b", "mxnet", {"error": "no MXNet", "libmxnet": "a" * 64}), "the same MXNet",
     "b: no MXNet: run provision.yml"),
    (put("answers", "a", "mxnet", dict(ANSWER["mxnet"], compiled_in=False, says="USE_DIST_KVSTORE")),
     "MXNet has the distributed kv-store", "a: USE_DIST_KVSTORE: install the official wheel"),
    (put("answers", "c", "files", "groups", {"sha256": "x"}), FILES, "c: groups is not what"),
    (put("answers", "c", "files", "groups", {"error": "line 1"}), FILES, "c: line 1"),
    (put("answers", "a", "ssh", "peers", "b", "Permission denied."), SSH, "a to b: Permission denied: run"),
    (put("answers", "a", "ssh", {"peers": {"error": "Permission denied."}}), SSH, "a to error: Permission denied: run"),
    *((put("answers", "c", name, {"error": "it broke"}), check, "c: this could not be looked at (it broke): mend that there")
      for name, check in (("files", FILES), ("ssh", SSH), ("room", ROOM))),
    (put("answers", "a", "room", "/dev/shm", 1 << 20), ROOM, "a: /dev/shm has 1 MiB free, less than 32"),
    (put("meetings", "b", "unreachable", [LOST]), TCP, "b cannot reach c (worker-1 at 10.0.0.3:9091): timed out. Is its agent"),
    (put("meetings", "b", None), TCP, "b: its agent did not get through the meeting"),
    (put("meetings", "b", {"error": "ended: lease"}), TCP, "b: its agent did not get through the meeting (ended: lease)"),
    (put("meetings", "c", "taken", ["port 9091 is in use"]), TCP, "c: port 9091 is in use"),
    (put("meetings", "b", "met", [{"host": "a", "rtt": 0.5, "offset": -1.5}]), "clocks within 1 s",
     "clocks of b and c differ by 1.5 s"),
    (put("meetings", "c", "limits", {"open_files": 256}), "open files", "c: a process may open 256 files, fewer than 1024"),
])
def test_what_fails_is_named_with_its_cure(change, check, says):
    verdict = judged(change)
    assert list(failures(verdict)) == [check] and verdict["status"] == 1 and not verdict["ok"]
    assert says in failures(verdict)[check][0]
    assert any(says in line for line in verify.text(verdict, "verify.json"))


def test_what_an_mxnet_does_not_tell_is_not_called_ok():
    verdict = judged(put("answers", "b", "mxnet", {"error": "it crashes", "python": "3.6.8", "libmxnet": "a" * 64}))
    assert list(failures(verdict)) == ["the same MXNet"]
    assert [(line["check"], line["why"]) for line in verdict["checks"] if line["result"] == "not run"] == [
        ("the same numpy", ["not known of b"]), ("MXNet has the distributed kv-store", ["not known of b"])]


def test_a_port_that_is_taken_explains_what_others_miss():
    def change(answers, meetings, wanted):
        meetings["c"]["taken"] = ["port 9091 is in use"]
        meetings["b"]["unreachable"] = [LOST]  # whatever holds the port has answered, or not
    verdict = judged(change)
    assert failures(verdict) == {TCP: ["c: port 9091 is in use"]}
    assert [line["why"] for line in verdict["checks"] if line["check"] == "clocks"] == [["not all nodes have met"]]


def test_an_offset_that_the_way_there_explains_is_none():
    assert judged(put("meetings", "b", "met", [{"host": "a", "rtt": 2.0, "offset": 1.5}]))["ok"]


def test_clocks_of_nodes_that_have_not_met_are_compared_too():
    """Workers meet the scheduler and servers only; here each is right to 0.7 s by the scheduler's clock, in different ways."""
    def change(answers, meetings, wanted):
        meetings["a"]["met"] = [{"host": "b", "rtt": 0.1, "offset": 0.7}, {"host": "c", "rtt": 0.1, "offset": -0.7}]
        for host, offset in (("b", -0.71), ("c", 0.71)):
            meetings[host]["met"] = [{"host": "a", "rtt": 0.2, "offset": offset}]
    assert failures(judged(change)) == {"clocks within 1 s": [
        "the clocks of b and c differ by 1.4 s: let chrony or ntpd set them"]}


def test_the_way_round_leaves_more_open():
    def change(answers, meetings, wanted):
        meetings["a"]["met"] = [{"host": "b", "rtt": 0.4, "offset": 0.6}, {"host": "c", "rtt": 0.5, "offset": -0.7}]
        meetings["b"]["met"] = meetings["c"]["met"] = []
    assert judged(change)["ok"]


def test_one_wrong_clock_of_many_is_not_told_by_each():
    hosts = ["n%d" % number for number in range(50)]
    meetings = {"n0": {"met": [{"host": host, "rtt": 0.001, "offset": (host == "n7") * 9.0}
                               for index, host in enumerate(hosts) if index]}}
    told = verify.clocks(meetings, 1.0)
    assert told == ["the clocks of n7 and n9 differ by 9.0 s: let chrony or ntpd set them"]
    assert verify.clocks({"n0": None, "n1": {}}, 1.0) == []


def test_a_node_that_does_not_answer():
    verdict = judged(put("answers", "c", None))
    assert verdict["status"] == 2 and failures(verdict) == {"every node answers": ["c does not answer, see above"]}
    assert [line["check"] for line in verdict["checks"] if line["result"] == "not run"] == [
        "TCP between all roles on the planned ports", "clocks", "open files"]


@pytest.mark.parametrize("change, count", [(put("wanted", "ssh", False), 1), (put("wanted", "met", False), 3)])
def test_what_was_not_asked_says_so(change, count):
    verdict = judged(change)
    assert verdict["ok"] and sum(line["result"] == "not run" for line in verdict["checks"]) == count


def test_ports_that_nothing_closes_are_told_and_no_fault():
    def change(answers, meetings, wanted):
        answers["a"]["ports_open"] = answers["b"]["ports_open"] = "no root"
        answers["c"]["ports_open"] = ""
    verdict = judged(change)
    assert verdict["ok"] and [line["why"] for line in verdict["checks"] if line["result"] == "not run"] == [["a, b: no root"]]


def test_nodes_with_gpus_have_another_library_than_those_without():
    """It is compared among each kind; and their GPUs are judged."""
    cuda = {"version": "9.2", "release": "9.2.148", "driver": "396.37", "cudnn": None, "gpus": 1}

    def change(answers, meetings, wanted):
        for host in "bc":
            wanted["nodes"][host] = {"build": "cu92", "cuda": cuda}
            answers[host]["mxnet"]["libmxnet"] = "b" * 64
            answers[host]["gpus"] = {"listed": 1, "driver": "470.256.02", "nouveau": False, "nvcc": "9.2.148",
                                     "device_query": None, "cudnn": None, "unresolved": [], "computes": {"0": None}}
    verdict = judged(change)
    assert verdict["ok"] and failures(verdict) == {}
    assert [line["result"] for line in verdict["checks"] if line["check"] == "MXNet computes on every GPU"] == ["ok"]

    def differ(answers, meetings, wanted):
        change(answers, meetings, wanted)
        answers["c"]["mxnet"]["libmxnet"] = "c" * 64
    assert failures(judged(differ)) == {
        "the same libmxnet.so": ["b: bbbbbbbbbbbb; c: cccccccccccc: run provision.yml without --limit"]}


def test_builds_differ_without_a_cuda_of_ours_too():
    """Without root CUDA is the person's own, and the plan knows nothing of it."""
    def change(answers, meetings, wanted):
        wanted["nodes"]["c"]["build"] = "cu92"
        answers["c"]["mxnet"]["libmxnet"] = "c" * 64
        answers["b"]["gpus"] = {"never": "asked for"}
    assert judged(change)["ok"]
