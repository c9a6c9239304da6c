"""The command lines of MXNet's launch.py and MXNet-G, as knobs of train.yml."""

import pytest

from mxcluster.cli import launch_line
from mxcluster.errors import BadInput
from mxcluster.job import options

BARE = ["python", "train.py"]


@pytest.fixture
def parse(tmp_path):
    """Parse a command line in a folder with train.py and a file hosts."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "hosts").write_text("10.0.0.1\n10.0.0.2:2222 # by the door\n\nnode3 slots=2\n")

    def run(*argv, **environ):
        line = launch_line.parse(list(argv), str(tmp_path), environ)
        known = {name: value for name, value in line.knobs.items() if name != "secret_env"}
        options.cast(known)  # train.yml accepts all of them
        return line

    return run


def test_the_launch_line_of_the_sources(parse, tmp_path):
    line = parse(
        *"-n 4 -s 2 -i eth0 --launcher ssh -H hosts python train.py --kv-store dist_gsync".split()
    )
    assert line.inventories == [] and line.knobs == {
        "launcher": "ssh",
        "num_workers": 4,
        "num_servers": 2,
        "script": str(tmp_path / "train.py"),
        "script_args": ["--kv-store", "dist_gsync"],
        "kv": "dist_gsync",
        "round_robin": ["10.0.0.1", "10.0.0.2", "node3", "node3"],
        "dmlc_interface": "eth0",
    }
    assert line.notes == [
        "the nodes run train.py with the Python of their own environments, not with python"
    ]


@pytest.mark.parametrize("launcher", ["slurm", "sge"])
def test_a_batch_system_gives_a_node_for_each_worker_unless_told_otherwise(parse, launcher):
    words = ["-n", "4", "-s", "2", "--launcher", launcher, "--knob", "parallel_environment=mpi"]
    line = parse(*words, *BARE)
    assert line.knobs["num_nodes"] == 4 and line.knobs["round_robin"] == ["all"]
    assert parse(*words, "--knob", "num_nodes=2", *BARE).knobs["num_nodes"] == "2"


@pytest.mark.parametrize(
    "arguments, kv",
    [
        ([], "dist_sync"),
        (["--kv-store", "dist_sync", "--kv-store", "dist_async"], "dist_async"),
        (["--kvstore", "dist_sync_device"], "dist_device_sync"),
        (["--kv_store=dist_ssync", "--staleness", "5"], "dist_ssync"),
    ],
)
def test_the_servers_suit_the_scripts_kv_store(parse, arguments, kv):
    line = parse("-n", "2", *BARE, *arguments)
    assert line.knobs["kv"] == kv and line.knobs.get("staleness") == (
        "5" if kv == "dist_ssync" else None
    )
    assert any("use dist_sync" in note for note in line.notes) is (arguments == [])


def test_variables_reach_their_processes_and_secrets_stay_secret(parse):
    line = parse(
        *("-n", "1", "--env", "MODE", "--env", "A=b=c", "--env", "WANDB_API_KEY"),
        *("--env-server", "OMP_NUM_THREADS:3,B:2", "--env-worker", "URL:http://x:1/a,b"),
        *BARE,
        MODE="fast",
        WANDB_API_KEY="k",
        OMP_NUM_THREADS="1",
        AWS_SECRET_ACCESS_KEY="s",
        DMLC_INTERFACE="ib0",
        PS_VERBOSE="1",
        UNRELATED="x",
    )
    both = {"MODE": "fast", "A": "b=c", "OMP_NUM_THREADS": "1"}
    assert line.knobs["env_server"] == dict(both, OMP_NUM_THREADS="3", B="2")
    assert line.knobs["env_worker"] == dict(both, URL="http://x:1/a,b")
    assert line.knobs["secret_env"] == {"WANDB_API_KEY": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    assert (line.knobs["dmlc_interface"], line.knobs["ps_verbose"]) == ("ib0", "1")


@pytest.mark.parametrize(
    "command",
    [
        ["python train.py --kv-store dist_sync 'a b' --lr=0.1"],
        ["--", "python -u ./train.py --kv-store dist_sync 'a b' \"--lr=0.1\""],
        ["A=1 B='2 3' KEY=k python train.py --kv-store dist_sync 'a b' --lr=0.1"],
        ["env A=1 'B=2 3' KEY=k python train.py --kv-store dist_sync a\\ b --lr=0.1"],
        ["A=1", "B=2 3", "KEY=k", "python", "train.py", *"--kv-store dist_sync".split(), "a b"],
        ["/usr/bin/env", "A=1", "B=2 3", "KEY=k", "train.py", "--kv-store", "dist_sync", "a b"],
    ],
)
def test_the_command_of_launch_py_may_be_one_word_and_begin_with_variables(
    parse, tmp_path, command
):
    knobs = parse("-n", "1", *command).knobs
    assert (knobs["script"], knobs["kv"]) == (str(tmp_path / "train.py"), "dist_sync")
    assert knobs["script_args"][:3] == ["--kv-store", "dist_sync", "a b"]
    assert knobs["script_args"][3:] in ([], ["--lr=0.1"])
    has_variables = any("A=1" in word for word in command)
    for name in ("env_server", "env_worker"):
        assert knobs.get(name) == ({"A": "1", "B": "2 3"} if has_variables else None)
    assert knobs.get("secret_env") == ({"KEY": "k"} if has_variables else None)


def test_quoted_signs_of_a_shell_reach_the_script(parse):
    line = parse("-n", "1", "python train.py 'a;b' \"c|d\" e\\;f '$x' '*.rec' g~h#")
    assert line.knobs["script_args"] == ["a;b", "c|d", "e;f", "$x", "*.rec", "g~h#"]


@pytest.mark.parametrize(
    "command, words",
    [
        ("cd mine && python train.py", "needs a shell for &,"),
        ('python train.py "$HOME"', "needs a shell for $,"),
        ("python train.py *.rec", "needs a shell for *,"),
        ("python train.py\npython train.py", "needs a shell for its lines,"),
        ("python train.py 'a", "cannot be read (No closing quotation): correct the quotes"),
        ("env -i python train.py", "has an option of env"),
        ("A=1", "is empty: write [NAME=VALUE ...] python script.py"),
        ("", "the command is missing"),
    ],
)
def test_a_command_in_one_word_is_refused_where_it_needs_a_shell(parse, command, words):
    with pytest.raises(BadInput) as refusal:
        parse("-n", "1", command)
    assert words in str(refusal.value), str(refusal.value)


def test_further_knobs_and_an_inventory(parse, tmp_path):
    line = parse("-n", "1", "--inventory", "mine", "--knob", "lease=20", *BARE)
    assert line.knobs["lease"] == "20" and line.inventories == [str(tmp_path / "mine")]


@pytest.mark.parametrize(
    "argv, words",
    [
        (BARE, ["-n/--num-workers"]),
        (["-n", "2"], ["the command is missing"]),
        (["-n", "2", "-s", "0", *BARE], ["-s 0", "at least one server"]),
        (["-n", "2", "--launcher", "yarn", *BARE], ["--launcher yarn", "YARN", "mpi, sge"]),
        (["-n", "2", "--launcher", "local", "-H", "hosts", *BARE], ["local", "leave -H hosts out"]),
        (["-n", "2", "--p3", *BARE], ["--p3", "P3 transport"]),
        (["-n", "2", "-p", "0", *BARE], ["-p 0", "profile.yml"]),
        (["-n", "2", "--env", "NOT_SET", *BARE], ["--env NOT_SET", "not set here"]),
        (["-n", "2", "--env-server", "A=3", *BARE], ["--env-server A=3", "NAME:VALUE"]),
        (["-n", "2", "-H", "none", *BARE], ["none cannot be read", "No such file"]),
        (["-n", "2", "python", "gone.py"], ["gone.py does not exist"]),
        (["-n", "2", "./a.out", "x"], ["./a.out x", "no Python script"]),
        (["-n", "2", *BARE, "--kv-store", "local"], ["--kv-store local", "dist_gsync"]),
    ],
)
def test_refusals_name_the_word_and_the_cure(parse, argv, words):
    with pytest.raises(BadInput) as refusal:
        parse(*argv)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.parametrize(
    "line", ["10.0.0.1 10.0.0.2", "node1 slots=0", "node1:", "a;b", "n slot=1"]
)
def test_a_wrong_line_of_the_file_of_hosts_is_named(parse, tmp_path, line):
    (tmp_path / "hosts").write_text("node1\n%s\n" % line)
    with pytest.raises(BadInput) as refusal:
        parse("-n", "2", "-H", "hosts", *BARE)
    assert "hosts line 2" in str(refusal.value) and line in str(refusal.value)


def test_a_hosts_file_of_too_many_slots_is_refused(parse, tmp_path):
    (tmp_path / "hosts").write_text("node1 slots=256\n" * 17)
    with pytest.raises(BadInput, match="-H .*hosts has more than 4096 slots"):
        parse("-n", "2", "-H", "hosts", "python", "train.py")
