"""What the controller reads for a plan, and what it says when it is not as it should be."""

import base64
import io
import json
import zipfile

import pytest

from mxcluster import package, planning
from mxcluster.errors import BadInput

INVENTORY = {"groups": {"scheduler": ["a"], "servers": ["a"], "workers": ["a", "b"]}, "forks": 5,
             "hosts": {"a": {"node_address": "127.0.0.11"}, "b": {"node_address": "127.0.0.12"}}}


@pytest.fixture
def plan(tmp_path):
    """Plans with the options given, in a project of two nodes."""
    (tmp_path / "nodes").mkdir()
    for host in "ab":
        record = {"schema": 1, "host": host, "interfaces": {"lo": ["127.0.0.1/8"]}, "address_of_default_route": None,
                  "gpus": 0, "python": "/env/bin/python", "mxnet": "1.9.1", "model_zoo": [], "job_dir": "/jobs/" + host,
                  "data_dir": "/data"}
        (tmp_path / "nodes" / (host + ".json")).write_text(json.dumps(record))

    def run(**options):
        return planning.plan_job(options, INVENTORY, str(tmp_path / "nodes"), str(tmp_path / "runs"), str(tmp_path))
    return run


def test_a_node_is_asked_for_what_its_processes_need(plan):
    looks = plan(kv="dist_sync", root_port="9300")["looks"]
    assert looks["a"] == {"address": "127.0.0.11", "interface": "lo", "ports": [9300, 9301, 9302], "gpus": [],
                          "jobs_dir": "/jobs/a",
                          "files": ["/data/digits.npz"], "python": "/env/bin/python",
                          "package": package.archive()[0], "open_files": planning.LEAST_OPEN_FILES,
                          "free": {"/jobs/a": planning.LEAST_DISK, "/dev/shm": planning.LEAST_SHM}}
    assert plan(kv="local")["looks"]["a"]["ports"] == []


def test_the_job_is_named_by_time_and_scheme(plan):
    assert plan(kv="dist_gsync")["plan"]["job"].endswith("-dist_gsync")


def test_a_name_is_used_once(plan, tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    with pytest.raises(BadInput, match="job_id='mine' has been used"):
        plan(job_id="mine")


def test_a_script_takes_along_what_lies_beside_it(plan, tmp_path):
    folder = tmp_path / "code"
    (folder / ".git").mkdir(parents=True)
    for name in ("train.py", "model.py", ".git/config"):
        (folder / name).write_text(name)
    planned = plan(script="code/train.py")
    packed = zipfile.ZipFile(io.BytesIO(base64.b64decode(planned["script"])))
    assert packed.namelist() == ["model.py", "train.py"]
    worker = planned["plan"]["processes"][-1]
    assert worker["command"][3:6] == ["mxcluster.run", "script", worker["env"]["MXCLUSTER_JOB_DIR"] + "/script/train.py"]


def test_data_that_is_brought_need_not_be_there_yet(plan, tmp_path):
    (tmp_path / "mine").mkdir()
    mnist = {"data": "mnist", "data_dir": "/data/mnist"}
    assert plan(**mnist)["looks"]["b"]["files"] == ["/data/mnist"]
    planned = plan(data_src="mine", **mnist)
    assert planned["looks"]["b"]["files"] == [] and planned["plan"]["options"]["data_src"] == str(tmp_path / "mine")
    with pytest.raises(BadInput, match="data_src='other' does not exist"):
        plan(data_src="other", **mnist)


def test_a_folder_that_is_too_large_is_refused(plan, tmp_path):
    (tmp_path / "train.py").write_text("")
    with (tmp_path / "data.bin").open("wb") as data:
        data.truncate(planning.MOST_CODE + 1)
    with pytest.raises(BadInput, match="a folder of their own"):
        plan(script="train.py")


def test_a_record_that_is_no_record_is_named(plan, tmp_path):
    (tmp_path / "nodes" / "a.json").write_text("{")
    with pytest.raises(BadInput, match="a.json is not a node record.*run provision.yml"):
        plan()


def test_a_model_that_is_not_there_says_which_are(plan, tmp_path):
    (tmp_path / "runs" / "old" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "old" / "checkpoints" / "mlp-0004.params").write_text("")
    with pytest.raises(BadInput, match="model_load_epoch=5.*mlp-0004.params"):
        plan(model_load_epoch=5, model_load_job="old")
    planned = plan(model_load_epoch=4, model_load_job="old")
    assert planned["model"].endswith("old/checkpoints/mlp-0004.params")


@pytest.fixture
def three(plan, tmp_path):
    """Plans in a cluster of three nodes, one of which has no record; what it has to say is not asked for."""
    inventory = {"groups": {"scheduler": ["a"], "servers": ["a", "c"], "workers": ["a", "b", "c"]}, "forks": 5,
                 "hosts": dict(INVENTORY["hosts"], c={"node_address": "127.0.0.13", "workers_per_host": 2})}

    def run(**options):
        return planning.plan_job(options, inventory, str(tmp_path / "nodes"), str(tmp_path / "runs"), str(tmp_path))
    return run


@pytest.mark.parametrize("without", ["c", ["c"], '["c"]', "c, c"])
def test_a_host_that_is_left_out_is_not_needed(three, without):
    planned = three(kv="dist_gsync", without=without, num_workers=4, num_servers=2)
    assert list(planned["plan"]["nodes"]) == ["a", "b"] == list(planned["looks"])
    assert (planned["plan"]["workers"], planned["plan"]["servers"]) == (2, 1)
    assert "without c" in planned["table"] and "num_workers=4: 2 are left" in planned["table"]
    assert planned["plan"]["options"]["without"] == ["c"]


@pytest.mark.parametrize("options,words", [
    ({"without": "a"}, "without=a leaves no host in the group scheduler, which has a: put another host into that group"),
    ({"without": "a,c"}, "without=a,c leaves no host in the group servers, which has a, c"),
    ({"without": "bb"}, "without=bb: there is no such host in the inventory.*a, c, b"),
    ({"without": "a,b,c", "kv": "local"}, "leaves no host in the group workers"),
    ({"without": 3}, "without=3 is refused: it must be the names of hosts"),
    ({"without": "c", "hosts_file": "mine", "groups_file": "mine"}, "without=c: take these hosts out of your hosts_file, "),
])
def test_what_cannot_be_left_out(three, tmp_path, options, words):
    (tmp_path / "mine").write_text("127.0.0.11\n127.0.0.12\n127.0.0.13\n")
    with pytest.raises(BadInput, match=words):
        three(**dict({"kv": "dist_sync"}, **options))


def test_files_that_know_of_it_are_taken(three, tmp_path):
    (tmp_path / "mine").write_text("127.0.0.12\n127.0.0.11\n")
    workers = [process["host"] for process in three(kv="dist_sync", without="c", hosts_file="mine")["plan"]["processes"]
               if process["role"] == "worker"]
    assert workers == ["b", "a"]
