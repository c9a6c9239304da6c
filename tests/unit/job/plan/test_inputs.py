"""The controller's input for a plan, and the messages about wrong input."""

import base64
import io
import json
import sys
import zipfile

import pytest

from mxcluster import package
from mxcluster.errors import BadInput
from mxcluster.job.plan import inputs, look
from mxcluster.model.inventory import Inventory
from mxcluster.model.node_record import Network
from tests.plans import write_record

INVENTORY = Inventory(
    groups={"scheduler": ["a"], "servers": ["a"], "workers": ["a", "b"]},
    forks=5,
    hosts={"a": {"node_address": "127.0.0.11"}, "b": {"node_address": "127.0.0.12"}},
)


def folders_in(path, records=None):
    """Return the controller's folders in the folder `path`."""
    return inputs.Folders(records or str(path / "nodes"), str(path / "runs"), str(path))


@pytest.fixture
def plan(tmp_path):
    """Return a function that plans with the given options, in a project of two nodes."""
    (tmp_path / "nodes").mkdir()
    for host in "ab":
        write_record(tmp_path / "nodes", host)

    def run(**options):
        return inputs.plan_job(options, INVENTORY, folders_in(tmp_path))

    return run


@pytest.mark.slow
def test_a_look_has_the_ports_gpus_and_files_of_a_nodes_processes(plan):
    looks = plan(kv="dist_sync", root_port="9300", job_id="one").looks
    assert looks["a"].encode() == {
        "address": "127.0.0.11",
        "interface": "lo",
        "ports": [9300, 9301, 9302],
        "gpus": [],
        "jobs_dir": "/jobs/a",
        "job": "one",
        "keep_jobs": 50,
        "all_gpus": {"record": 0, "bus": 0},
        "versions": {"fingerprints": {}},
        "files": ["/data/digits.npz"],
        "data_dir": "",
        "engine": "",
        "python": "/env/bin/python",
        "package": package.archive()[0],
        "open_files": look.LEAST_OPEN_FILES,
        "free": {"/jobs/a": look.LEAST_DISK, "/dev/shm": look.LEAST_SHM},
    }
    contained = plan(kv="dist_sync", runtime="docker", job_id="two")
    assert contained.looks["a"].container == contained.plan.container
    assert plan(kv="local").looks["a"].ports == []


def test_launcher_mpi_asks_each_node_for_its_engine(plan, tmp_path):
    with pytest.raises(BadInput) as refusal:
        plan(launcher="mpi", mpi_runtime="mpich")
    assert "the paths of the nodes differ" in str(refusal.value) and "/jobs/a" in str(refusal.value)
    for path in (tmp_path / "nodes").iterdir():
        path.write_text(json.dumps(dict(json.loads(path.read_text()), job_dir="/jobs")))
    made = plan(launcher="mpi", mpi_runtime="mpich", mpi_pre_execution_command="module load mpich")
    assert made.plan.ports_open == list(made.plan.nodes) == ["a", "b"]
    for one in made.looks.values():
        assert one.mpi.runtime == "mpich" and one.mpi.pre_execution == "module load mpich"


@pytest.mark.slow
def test_planning_time_is_linear_in_the_number_of_nodes(tmp_path):
    """The test counts function calls, since other work on the machine changes the time."""

    def calls(count):
        records = tmp_path / str(count)
        records.mkdir()
        hosts, counted = {}, [0]
        for number in range(count):
            host, address = "node%d" % number, "10.0.%d.%d" % (number // 250, 1 + number % 250)
            hosts[host] = {}
            place = {"interfaces": {"eth0": [address + "/16"]}, "address_of_default_route": address}
            write_record(records, host, **place)
        inventory = Inventory(
            groups={"scheduler": ["node0"], "servers": ["node0"], "workers": list(hosts)},
            hosts=hosts,
            forks=count,
        )

        def count_calls(frame, event, argument):
            counted[0] += event in ("call", "c_call")

        sys.setprofile(count_calls)
        try:
            inputs.plan_job({"kv": "dist_sync"}, inventory, folders_in(tmp_path, str(records)))
        finally:
            sys.setprofile(None)
        return counted[0]

    few = calls(20)
    assert calls(220) - few < 12 * (calls(40) - few), "ten times as many additional nodes"


@pytest.mark.parametrize(
    "knob, all_gpus",
    [("auto", {"record": 0, "bus": 2}), ("", None), ("default of the host", None)],
)
def test_a_look_compares_the_gpus_with_the_record(plan, tmp_path, monkeypatch, knob, all_gpus):
    path = tmp_path / "nodes" / "b.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), bus=2)))
    if knob == "default of the host":
        monkeypatch.setitem(INVENTORY.hosts["b"], "gpus", "")
    assert plan(gpus="" if knob == "" else "auto").looks["b"].encode().get("all_gpus") == all_gpus


def test_a_node_with_an_old_record_is_named(plan, tmp_path):
    path = tmp_path / "nodes" / "b.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), schema=1, python="/tmp/evil")))
    with pytest.raises(
        BadInput,
        match="b: another version of mxcluster has provisioned the node: run provision.yml",
    ):
        plan()


def test_a_job_id_is_used_once(plan, tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    with pytest.raises(BadInput, match="job_id='mine' belongs to an earlier job"):
        plan(job_id="mine")


def test_a_script_is_sent_with_its_folder(plan, tmp_path):
    folder = tmp_path / "code"
    (folder / ".git").mkdir(parents=True)
    for name in ("train.py", "model.py", ".git/config"):
        (folder / name).write_text("# " + name)
    planned = plan(script="code/train.py")
    packed = zipfile.ZipFile(io.BytesIO(base64.b64decode(planned.script)))
    assert packed.namelist() == ["model.py", "train.py"]
    worker = planned.plan.processes[-1]
    assert worker.command[3:6] == [
        "mxcluster.training",
        "script",
        worker.env["MXCLUSTER_JOB_DIR"] + "/files/worker-1/train.py",
    ]


def test_the_plan_names_the_skipped_files_of_the_scripts_folder(plan, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import mxnet\n")
    (tmp_path / "code" / "gone").symlink_to("nowhere")
    (tmp_path / "code" / "linked").symlink_to(tmp_path)
    table = plan(script="code/train.py").table
    assert "gone (broken links)" in table and "linked (links to folders)" in table
    (tmp_path / "code" / "train.py").write_text("print 'Python 2'\n")
    with pytest.raises(BadInput, match="train.py': the script is not valid Python 3, line 1"):
        plan(script="code/train.py")


@pytest.mark.parametrize(
    "option, value", [("script", "nowhere/mine.py"), ("hosts_file", "missing")]
)
def test_a_missing_file_is_named(plan, option, value):
    with pytest.raises(BadInput, match="%s='%s' does not exist" % (option, value)):
        plan(**{option: value})


@pytest.mark.slow
def test_data_of_data_src_need_not_exist_on_the_node(plan, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train-images-idx3-ubyte").write_bytes(b"")
    mnist = {"data": "mnist", "data_dir": "/data/mnist"}
    assert plan(**mnist).looks["b"].files == ["/data/mnist"]
    planned = plan(data_src="mine", **mnist)
    assert planned.looks["b"].files == [] and planned.plan.options.data_src == str(
        tmp_path / "mine"
    )
    digits = {"data": "digits", "data_dir": "/data/own"}
    assert plan(**digits).looks["b"].files == ["/data/own/digits.npz"]
    assert plan(data_src="mine", **digits).looks["b"].files == []
    with pytest.raises(BadInput, match="data_src='other' does not exist"):
        plan(data_src="other", **mnist)


@pytest.mark.slow
def test_an_unused_data_dir_is_named(plan):
    assert (
        "data_dir=/data has no effect: data=synthetic has no files"
        in plan(data="synthetic", data_dir="/data").table
    )
    assert (
        "has no effect" not in plan(data="synthetic").table
        and "has no effect" not in plan(data_dir="/data").table
    )


def test_a_cluster_file_of_megabytes_is_refused(plan, tmp_path):
    with (tmp_path / "film").open("wb") as stream:
        stream.truncate(inputs.MOST_TEXT + 1)
    with pytest.raises(
        BadInput,
        match="film holds 4 MB, but a file hosts, groups or data_sharding may hold at most 4 MB",
    ):
        plan(groups_file="film")


def test_server_classes_must_lie_beside_the_script(plan, tmp_path):
    (tmp_path / "code" / "inner").mkdir(parents=True)
    for name in ("train.py", "mine.py", "inner/__init__.py", "inner/deep.py"):
        (tmp_path / "code" / name).write_text("")
    of_mxnet = "mxnet.contrib.svrg_optimization.svrg_optimizer:_SVRGOptimizer"
    there = ["mine:A", "inner:B", "inner.deep:C", of_mxnet]
    assert plan(script="code/train.py", server_classes=there).plan.options.server_classes == there
    with pytest.raises(
        BadInput,
        match="server_classes: other:A is invalid, because the module other is not in .*code, the",
    ):
        plan(script="code/train.py", server_classes=there + ["other:A"])


@pytest.mark.slow
def test_the_folder_of_a_project_is_sent_with_its_script(plan, tmp_path):
    for name in ("repo/.git/HEAD", "repo/scripts/train.py", "repo/mine.py", "other/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for root in ("repo", "git"):
        planned = plan(script="repo/scripts/train.py", script_root=root, server_classes=["mine:A"])
        assert planned.plan.options.script_root == str(tmp_path / "repo")
        names = zipfile.ZipFile(io.BytesIO(base64.b64decode(planned.script))).namelist()
        assert sorted(names) == ["mine.py", "scripts/", "scripts/train.py"]
        worker = planned.plan.of_role("worker")[0]
        assert worker.command[5].endswith("/files/worker-0/scripts/train.py"), worker.command
        for process in planned.plan.processes:
            assert process.role == "scheduler" or process.env[package.SCRIPT_PLACE] == "scripts"
    assert package.SCRIPT_PLACE not in plan(script="repo/mine.py").plan.processes[-1].env
    for root, words in (
        ("other", "script_root='other': the script .* is outside of this folder"),
        ("nowhere", "script_root='nowhere' does not exist"),
    ):
        with pytest.raises(BadInput, match=words):
            plan(script="repo/scripts/train.py", script_root=root)
    for knob in ({"script_root": "repo"}, {"script_mb": 20}):
        with pytest.raises(BadInput, match="needs a script: add the script"):
            plan(**knob)


def test_a_torn_node_record_is_named(plan, tmp_path):
    (tmp_path / "nodes" / "a.json").write_text("{")
    with pytest.raises(BadInput, match="a: .*/a.json is damaged.*run provision.yml"):
        plan()


def test_a_damaged_record_of_another_host_stops_no_job(plan, tmp_path):
    (tmp_path / "nodes" / "gone.json").write_text("{")
    assert "gone" not in plan().plan.nodes


def test_provisioning_replaces_a_damaged_record(tmp_path):
    (tmp_path / "a.json").write_text("{")
    seen = Network(interfaces={"lo": ["127.0.0.1/8"]})
    groups = dict.fromkeys(("scheduler", "servers", "workers"), ["a"])
    hosts = {"a": {"node_address": "127.0.0.11"}}
    inventory = Inventory(groups=groups, hosts=hosts, forks=5)
    planned = inputs.plan_cluster({}, inventory, str(tmp_path), {"a": seen}, str(tmp_path))
    assert planned.nodes["a"].address == "127.0.0.11"


def test_a_missing_model_names_the_existing_ones(plan, tmp_path):
    (tmp_path / "runs" / "old" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "old" / "checkpoints" / "mlp-0004.params").write_text("")
    with pytest.raises(BadInput, match="model_load_epoch=5.*mlp-0004.params"):
        plan(model_load_epoch=5, model_load_job="old")
    with pytest.raises(BadInput, match="There is no job nope: name a job in .*/runs"):
        plan(model_load_epoch=4, model_load_job="nope")
    planned = plan(model_load_epoch=4, model_load_job="old")
    assert planned.model.endswith("old/checkpoints/mlp-0004.params")


@pytest.fixture
def three(plan, tmp_path):
    """Return a function that plans for three nodes; c has no record, and `without` leaves c out."""
    inventory = Inventory(
        groups={"scheduler": ["a"], "servers": ["a", "c"], "workers": ["a", "b", "c"]},
        forks=5,
        hosts=dict(INVENTORY.hosts, c={"node_address": "127.0.0.13", "workers_per_host": 2}),
    )

    def run(lost=(), **options):
        return inputs.plan_job(options, inventory.replaced(lost=lost), folders_in(tmp_path))

    return run


@pytest.mark.parametrize("without", ["c", ["c"], '["c"]', "c, c"])
def test_a_host_in_without_needs_no_record(three, without):
    planned = three(kv="dist_gsync", without=without, num_workers=4, num_servers=2)
    assert list(planned.plan.nodes) == ["a", "b"] == list(planned.looks)
    assert (planned.plan.workers, planned.plan.servers) == (2, 1)
    assert "without c" in planned.table and "num_workers=4 is too high" in planned.table
    assert planned.plan.options.without == ["c"]


def test_a_lost_host_of_an_elastic_job_is_left_out_of_this_plan_only(three):
    planned = three(["c"], kv="dist_gsync", num_workers=4)
    assert list(planned.plan.nodes) == ["a", "b"] and planned.plan.options.without == []
    assert "without c: no answer" in planned.table and "num_workers=4 is too high" in planned.table
    both = three(["c", "b"], kv="dist_gsync", without="c")
    assert list(both.plan.nodes) == ["a"] and both.plan.options.without == ["c"]
    assert "without c\n" in both.table and "without b: no answer" in both.table
    with pytest.raises(
        BadInput, match="the lack of an answer of a leaves no host in the group sch"
    ):
        three(["a"], kv="dist_sync")
    with pytest.raises(BadInput, match="without=b,c and the lack of an answer of a leaves no host"):
        three(["a"], kv="local", without="b,c")


@pytest.mark.parametrize(
    "options,words",
    [
        (
            {"without": "bb"},
            "without=bb: the inventory has no such host.*: name one of a, c, b",
        ),
        ({"without": "a,b,c", "kv": "local"}, "leaves no host in the group workers"),
        ({"without": 3}, "without=3 is refused: it must be the names of hosts"),
        (
            {"without": "c", "hosts_file": "mine", "groups_file": "mine"},
            "If without=c is the cause, remove the addresses of these hosts from your hosts_file, ",
        ),
    ],
)
def test_without_refuses_a_needed_host(three, tmp_path, options, words):
    (tmp_path / "mine").write_text("127.0.0.11\n127.0.0.12\n127.0.0.13\n")
    with pytest.raises(BadInput, match=words):
        three(**dict({"kv": "dist_sync"}, **options))


def test_a_host_without_a_worker_keeps_its_servers_and_the_scheduler(three):
    planned = three(kv="dist_sync", without="c", without_workers="a", num_workers=2)
    found = [(one.role, one.host) for one in planned.plan.processes]
    assert found == [("scheduler", "a"), ("server", "a"), ("worker", "b")]
    assert "no workers on a\n" in planned.table and "num_workers=2 is too high" in planned.table
    assert planned.plan.options.without_workers == ["a"]
    alone = three(kv="local", without="c", without_workers="a").plan
    assert [(one.role, one.host) for one in alone.processes] == [("worker", "b")]


@pytest.mark.parametrize(
    "options,words",
    [
        ({"without_workers": "bb"}, "without_workers=bb: the inventory has no such host"),
        (
            {"without": "b,c", "without_workers": "a"},
            "without=b,c and without_workers=a leaves no host in the group workers, which has a",
        ),
        (
            {"without_workers": "a", "without": "c", "groups_file": "mine"},
            "If without=c and without_workers=a is the cause, remove the addresses",
        ),
    ],
)
def test_without_workers_refuses_a_needed_host(three, tmp_path, options, words):
    (tmp_path / "mine").write_text("127.0.0.11\n127.0.0.12\n")
    with pytest.raises(BadInput, match=words):
        three(kv="dist_sync", **options)


def test_a_hosts_file_without_the_host_is_accepted(three, tmp_path):
    (tmp_path / "mine").write_text("127.0.0.12\n127.0.0.11\n")
    workers = [
        process.host
        for process in three(kv="dist_sync", without="c", hosts_file="mine").plan.processes
        if process.role == "worker"
    ]
    assert workers == ["b", "a"]


def test_the_folders_of_the_results_are_checked(tmp_path, monkeypatch):
    state, runs = str(tmp_path / "state"), str(tmp_path / "runs")
    assert inputs.results_folder(runs, state) == runs and list(tmp_path.iterdir()) == []
    monkeypatch.setenv("HOME", str(tmp_path))
    assert inputs.results_folder("~/runs", state) == runs
    monkeypatch.chdir(tmp_path)
    for given in ("runs", "$HOME/runs"):
        assert inputs.results_folder(given, state) == runs
    for wrong in ("", " ", None, ["x"], True, "a\0b"):
        with pytest.raises(BadInput, match="runs_dir=.* is refused: it must be the path of a fold"):
            inputs.results_folder(wrong, state)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "job-1").write_text("")
    with pytest.raises(BadInput, match="runs_dir=.*/job-1: the controller cannot write"):
        inputs.results_folder(runs, state, "job-1")
    with pytest.raises(BadInput, match="mxcluster_state_dir=/proc/state: the controller cannot"):
        inputs.results_folder(runs, "/proc/state")
