import json

import pytest

from mxcluster.job import options
from mxcluster.job.options import PLANNED_VARIABLES
from mxcluster.job.plan import processes
from mxcluster.model.node_record import Cuda
from mxcluster.model.plan import Node
from tests.plans import plan_with, process_of

NODES = {"a": Node(address="10.0.0.1"), "b": Node(address="10.0.0.2")}
NODE = Node(python="/env/bin/python", job_dir="/jobs/j1")
WORKER = process_of(gpus=[2, 3])


def environment(process, plan):
    return processes.environment(process, plan, processes.of_all(plan))


def test_order_names_and_ports():
    found = processes.lay_out("a", ["b", "b"], ["a", "b"], NODES)
    assert [(process.name, process.host, process.port) for process in found] == [
        ("scheduler-0", "a", 9091),
        ("server-0", "b", 9091),
        ("server-1", "b", 9092),
        ("worker-0", "a", 9092),
        ("worker-1", "b", 9093),
    ]


def test_without_a_scheduler_no_process_listens():
    assert [process.port for process in processes.lay_out(None, [], ["a"], NODES)] == [None]


def plan_of(**given):
    return plan_with(nodes={"node1": NODE.encode()}).replaced(options=options.cast(given))


@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_command_of_scheduler_and_servers(role):
    found = processes.command(process_of(role), plan_of(script="x.py"), None)
    assert found == ["/env/bin/python", "-u", "-m", "mxcluster.training", "serve"]


def test_command_of_a_script():
    arguments = ["--name", "two words", "", "$HOME"]
    plan = plan_of(script="path/to/my train.py", script_args=arguments)
    worker = process_of(index=1)
    worker = worker.replaced(folder=processes.own_folder(worker, plan.options))
    assert worker.folder == "files/worker-1"
    command = processes.command(worker, plan, None)
    assert command[4:] == ["script", "/jobs/j1/files/worker-1/my train.py", "--", *arguments]


@pytest.mark.parametrize("role,script", [("server", "x.py"), ("scheduler", "x.py"), ("worker", "")])
def test_only_workers_with_a_script_have_their_own_folder(role, script):
    assert processes.own_folder(process_of(role), options.cast({"script": script})) is None


def arguments_of(given, data_dir="", model_file=None):
    plan = plan_of(**given)
    found = processes.program_arguments(WORKER, plan.options, data_dir, model_file)
    command = processes.command(WORKER, plan, found)
    assert command[4:7] == ["program", "image_classification", "--"]
    return json.loads(command[7])


def test_command_of_the_program():
    given = {"kv": "dist_gsync", "lr": "1e-3", "num_epochs": "2"}
    assert arguments_of(given) == dict(kv="dist_gsync", lr=0.001, num_epochs=2, gpus=[0, 1])


@pytest.mark.parametrize(
    "given, data_dir, expected",
    [
        ({}, "/state/data", "/state/data"),
        ({"data_dir": "/mine"}, "/state/data", "/mine"),
        ({}, "", None),
        ({"data": "mnist", "data_dir": "/mine"}, "/state/data", "/mine"),
    ],
)
def test_folder_of_the_data(given, data_dir, expected):
    assert arguments_of(given, data_dir).get("data_dir") == expected


def test_loading_and_saving_a_model():
    given = {"savemodel": "yes", "model_load_epoch": "3", "model_load_job": "old"}
    arguments = arguments_of(given, "", "/models/net.params")
    assert (arguments["savemodel"], arguments["model_load_epoch"]) == (True, 3)
    assert arguments["model_load_file"] == "/models/net.params"
    assert not {"model_load_file", "savemodel"} & set(arguments_of({}, "", "/models/net.params"))


PLAN = plan_with(
    job="j1",
    kv="dist_ssync",
    workers=3,
    servers=1,
    staleness=4,
    groups=[[0, 2], [1]],
    root={"address": "10.0.0.1", "port": 9091},
    heartbeat={"interval": 1, "timeout": 3},
    timeouts={"start": 60.0, "stall": 300.0},
    nodes={"b": {"address": "10.0.0.2", "interface": "ib0", "job_dir": "/jobs/j1"}},
    options={
        "kv": "dist_ssync",
        "staleness": 4,
        "ps_verbose": 1,
        "env": {"OMP_NUM_THREADS": "1"},
        "server_classes": ["mine:Sgd", "mine:Decay"],
        "resume": "old",
        "model_load_epoch": 5,
    },
)
PROCESS = process_of(
    index=1,
    host="b",
    address="10.0.0.2",
    port=9094,
    gpus=[1, 3],
    group=1,
    share=(0.1, 1 / 3),
)
SERVER = PROCESS.replaced(role="server", gpus=[], group=None, share=None)


def test_environment_of_a_worker():
    assert environment(PROCESS, PLAN) == {
        "DMLC_ROLE": "worker",
        "DMLC_PS_ROOT_URI": "10.0.0.1",
        "DMLC_PS_ROOT_PORT": "9091",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "3",
        "DMLC_NODE_HOST": "10.0.0.2",
        "DMLC_INTERFACE": "ib0",
        "PORT": "9094",
        "PS_VERBOSE": "1",
        "PS_HEARTBEAT_INTERVAL": "1",
        "PS_HEARTBEAT_TIMEOUT": "3",
        "MXCLUSTER_START_TIMEOUT": "60",
        "CUDA_VISIBLE_DEVICES": "1,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MXCLUSTER_JOB": "j1",
        "MXCLUSTER_ROLE": "worker",
        "MXCLUSTER_INDEX": "1",
        "MXCLUSTER_HOST": "b",
        "MXCLUSTER_JOB_DIR": "/jobs/j1",
        "MXCLUSTER_KV": "dist_ssync",
        "MXCLUSTER_GROUPS": "0,1,0",
        "MXCLUSTER_GROUP": "1",
        "MXCLUSTER_SHARE": "0.1 0.3333333333333333",
        "MXCLUSTER_STALENESS": "4",
        "MXCLUSTER_SERVER_CLASSES": "mine:Sgd,mine:Decay",
        "MXCLUSTER_RESUME": "mlp-0005",
        "OMP_NUM_THREADS": "1",
    }


def test_unequal_gpus_are_an_argument_and_a_variable():
    worker, chosen = PROCESS.replaced(work_load=[3.0, 0.1]), options.cast({})
    arguments = processes.program_arguments(worker, chosen, "", None)
    assert (arguments.gpus, arguments.work_load) == ([0, 1], [3.0, 0.1])
    assert processes.program_arguments(PROCESS, chosen, "", None).work_load == []
    assert environment(worker, PLAN)["MXCLUSTER_WORK_LOAD"] == "3,0.1"
    assert "MXCLUSTER_WORK_LOAD" not in environment(SERVER, PLAN)


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_bound_and_compression_are_variables_of_all_processes(role):
    chosen = PLAN.options.replaced(bigarray_bound=2000, compression="2bit")
    env = environment(PROCESS.replaced(role=role), PLAN.replaced(options=chosen))
    assert env["MXNET_KVSTORE_BIGARRAY_BOUND"] == "2000" and env["MXCLUSTER_COMPRESSION"] == "2bit"


def test_environment_of_a_server():
    env = environment(SERVER, PLAN)
    assert (
        env["DMLC_ROLE"] == env["MXCLUSTER_ROLE"] == "server" and env["CUDA_VISIBLE_DEVICES"] == ""
    )
    assert (
        "MXCLUSTER_GROUP" not in env
        and "MXCLUSTER_SHARE" not in env
        and env["MXCLUSTER_GROUPS"] == "0,1,0"
    )


def test_variables_of_servers_and_workers_alone_win_over_those_of_all():
    chosen = PLAN.options.replaced(
        env={"A": "all", "B": "all"},
        env_server={"A": "server"},
        env_worker={"A": "worker", "C": "worker"},
    )
    for role, expected in (
        ("scheduler", ("all", "all", None)),
        ("server", ("server", "all", None)),
        ("worker", ("worker", "all", "worker")),
    ):
        env = environment(PROCESS.replaced(role=role), PLAN.replaced(options=chosen))
        assert tuple(env.get(name) for name in "ABC") == expected


def test_environment_of_kv_local():
    env = environment(
        PROCESS.replaced(port=None), PLAN.replaced(kv="local", root=None, staleness=None)
    )
    assert not [name for name in env if name.startswith(("DMLC_", "PS_")) or name == "PORT"]
    assert "MXCLUSTER_STALENESS" not in env and env["MXCLUSTER_KV"] == "local"


def test_variables_of_the_plan_are_refused_as_user_variables():
    ours = set(environment(PROCESS, PLAN)) - set(PLAN.options.env)
    assert [
        name for name in ours if name not in PLANNED_VARIABLES and not name.startswith("MXCLUSTER_")
    ] == []


def test_the_plans_cuda_libraries_precede_the_users_libraries():
    node = PLAN.nodes["b"].replaced(cuda=Cuda(folder="/usr/local/cuda-9.2"))
    own = PLAN.replaced(options=PLAN.options.replaced(env={"LD_LIBRARY_PATH": "/mine"}))
    assert environment(PROCESS, own)["LD_LIBRARY_PATH"] == "/mine"
    with_cuda = own.replaced(nodes={"b": node})
    assert environment(PROCESS, with_cuda)["LD_LIBRARY_PATH"] == "/usr/local/cuda-9.2/lib64:/mine"


@pytest.mark.parametrize(
    "kv, homes", [("dist_gsync", "1*2,0*1,1*1"), ("dist_ssync", "0*2,1*1,0*1")]
)
def test_the_servers_of_parameters_are_hosts_or_ranks(kv, homes):
    servers = [
        process_of("server", number - 1, address="10.0.0.%d" % number, port=1) for number in (1, 2)
    ]
    plan = PLAN.replaced(kv=kv, placement=[1, 1, 0, 1], processes=servers)
    assert processes.homes(plan) == homes
    if kv == "dist_ssync":
        assert environment(PROCESS, plan)["MXCLUSTER_PLACEMENT"] == homes
