"""The look at a node, and its record."""
import json
import os
import socket
import subprocess
import sys
import time

import pytest

import mxcluster
from mxcluster import answer, gpus, network, node, records, software

KNOWN = {"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.5/24"], "ib0": []}


def call(*argv, **environment):
    """(exit status, JSON answer) of `python -m mxcluster.node argv`."""
    paths = environment.pop("PYTHONPATH", "").split() + [os.path.dirname(os.path.dirname(mxcluster.__file__))]
    ran = subprocess.run([sys.executable, "-m", "mxcluster.node"] + list(argv), stdout=subprocess.PIPE, timeout=30,
                         env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths), **environment))
    lines = ran.stdout.decode().splitlines()
    assert len(lines) == 1, ran
    return ran.returncode, json.loads(lines[0])


def test_a_node_that_can_do_all_of_it(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.11", 0))
        port = free.getsockname()[1]
    request = {"address": "127.0.0.11", "interface": "lo", "ports": [port], "gpus": [], "files": [str(tmp_path)],
               "python": sys.executable}
    begun = time.monotonic()
    code, told = call("look", "--request", json.dumps(request))
    assert (code, told["problems"]) == (0, [])
    assert told["facts"]["interfaces"] == network.interfaces()
    assert time.monotonic() - begun < 2, "no MXNet is imported for a look"


def test_every_problem_is_told_at_once_with_value_and_cure():
    code, told = call("look", "--request", json.dumps({
        "address": "203.0.113.9", "interface": "nic9", "ports": [9091], "gpus": [77], "files": ["/no/such/file"],
        "python": "/no/such/python"}))
    assert code == 0
    address, interface, gpu, python, path = told["problems"]
    assert address.startswith("address 203.0.113.9 is not on this node (") and "127.0.0.1 (lo)" in address
    assert address.endswith("run provision.yml, which asks the node anew")
    assert interface.startswith("interface nic9 is not on this node any more; it has ")
    assert interface.endswith("run provision.yml, which asks the node anew")
    assert gpu.startswith("GPU 77 is not on this node")
    assert python == "python /no/such/python cannot be run on this node: run provision.yml"
    assert path.startswith("/no/such/file does not exist on this node: ")


def test_gpus_that_cannot_be_used_are_told_in_one_line(monkeypatch):
    """What the plan has counted on, and what there is; not each GPU once more."""
    monkeypatch.setattr(gpus, "listed", lambda: [])
    (problem,) = node.look({"gpus": [0, 1], "all_gpus": {"record": 2, "bus": 2}})["problems"]
    assert problem.startswith("the PCI bus has 2 GPUs and the driver shows 0: ") and "run provision.yml" in problem
    (problem,) = node.look({"gpus": [], "all_gpus": {"record": 0, "bus": 1}})["problems"]
    assert problem.startswith("the PCI bus has 1 GPUs and the driver shows 0: ")


def test_a_host_name_is_refused_as_an_address():
    assert node.address_problems("node1.example", KNOWN) == [
        "address 'node1.example' is not a literal IPv4 address, which ps-lite needs: set node_address"]


@pytest.mark.parametrize("interface, address, words", [
    ("eno1", "10.0.0.5", "interface eno1 is not on this node any more; it has eth0, ib0, lo: "
                         "run provision.yml, which asks the node anew"),
    ("ib0", "10.0.0.5", "interface ib0 has no IPv4 address any more; the node has 10.0.0.5 (eth0), 127.0.0.1 (lo): "
                        "give it one, or run provision.yml, which asks the node anew"),
    ("eth0", "127.0.0.11", "interface eth0 does not hold the address 127.0.0.11 any more, it holds 10.0.0.5/24: "
                           "run provision.yml, which asks the node anew"),
    ("lo", "127.0.0.11", None), ("eth0", "10.0.0.5", None), ("eth0", None, None), ("", "10.0.0.5", None)])
def test_interfaces(interface, address, words):
    assert node.interface_problems(interface, address, KNOWN) == ([words] if words else [])


def test_a_port_in_use_names_its_holder():
    with socket.socket() as server:
        server.bind(("127.0.0.11", 0))
        server.listen(1)
        port = server.getsockname()[1]
        problem = node.port_problem("127.0.0.11", port)
        assert problem.startswith("port %d on 127.0.0.11 is in use by pid %d (" % (port, os.getpid())), problem
        assert "-e root_port=" in problem
    assert node.port_problem("127.0.0.11", port) is None


def test_the_record(tmp_path):
    """With stand-ins: what the real MXNet versions answer is tested where they are installed (tests/training)."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("__version__ = '1.23.5'")
    (tmp_path / "numpy" / "version.py").write_text("1.23.5")
    zoo = tmp_path / "mxnet" / "gluon" / "model_zoo"
    zoo.mkdir(parents=True)
    (tmp_path / "mxnet" / "__init__.py").write_text("__version__ = '1.9.1'")
    (tmp_path / "mxnet" / "gluon" / "__init__.py").write_text("")
    (zoo / "__init__.py").write_text("")
    (zoo / "vision.py").write_text("def get_model(name):\n"
                                   "    raise ValueError('Model %s is not supported. Available options are\\n\\t%s'\n"
                                   "                     % (name, '\\n\\t'.join(['resnet18_v1', 'alexnet'])))\n")
    code, record = call("record", PYTHONPATH=str(tmp_path))
    assert code == 0
    assert record == {"address_of_default_route": network.default_route_address(),
                      "interfaces": network.interfaces(), "gpus": gpus.count(),
                      "python_version": ".".join(map(str, sys.version_info[:3])), "mxnet": "1.9.1", "numpy": "1.23.5",
                      "hostname": socket.gethostname(), "host_keys": node.host_keys(),
                      "model_zoo": ["alexnet", "resnet18_v1"],
                      "fingerprints": {"numpy": software.fingerprint(str(tmp_path / "numpy" / "version.py"))}}
    (tmp_path / "mxnet" / "libmxnet.so").write_text("the library")
    whole = dict(record, fingerprints=dict(record["fingerprints"], **{
        "libmxnet.so": software.fingerprint(str(tmp_path / "mxnet" / "libmxnet.so"))}))
    assert call("record", PYTHONPATH=str(tmp_path))[1] == whole
    (tmp_path / "mxnet" / "__init__.py").write_text("raise OSError('libgfortran.so.3: cannot open')")
    known = json.dumps({"known": whole})
    assert call("record", "--request", known, PYTHONPATH=str(tmp_path)) == (0, whole), "MXNet is not imported"
    for other in (dict(whole, python_version="3.5.0"), dict(whole, fingerprints=record["fingerprints"]), dict(whole, mxnet="")):
        code, told = call("record", "--request", json.dumps({"known": other}), PYTHONPATH=str(tmp_path))
        assert code != 0 and "MXNet cannot be imported" in told["error"], told
    code, told = call("machine")
    assert code == 0 and told == {name: record[name] for name in records.MACHINE}
    assert records.of_node(record) == record


def test_host_keys(tmp_path):
    (tmp_path / "ssh_host_rsa_key.pub").write_text("ssh-rsa AAAAB3 root@here\n")
    (tmp_path / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAAC3 root@here\n")
    (tmp_path / "ssh_host_ed25519_key").write_text("secret")
    assert node.host_keys(str(tmp_path)) == ["ssh-ed25519 AAAAC3", "ssh-rsa AAAAB3"]


def test_another_version_of_mxcluster_is_refused():
    assert node.package_problems("mxcluster-0123456789ab.zip", "/lib/mxcluster-0123456789ab-3.6") == []
    assert node.package_problems("mxcluster-0123456789ab.zip", "/project/node") == []  # run from its source
    (told,) = node.package_problems("mxcluster-0123456789ab.zip", "/lib/mxcluster-ffffffffffff-3.6")
    assert "(mxcluster-ffffffffffff.zip) than the controller (mxcluster-0123456789ab.zip): run provision.yml" in told


def test_room(tmp_path):
    assert node.room_problems({str(tmp_path): 1, str(tmp_path / "not" / "yet"): 1}, 1) == []
    problems = node.room_problems({str(tmp_path): 1 << 60}, 1 << 40)
    assert str(tmp_path) in problems[0] and "make room" in problems[0] and "nofile" in problems[1]


def test_a_record_without_mxnet_says_what_to_do(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('No module named numpy')")
    code, told = call("record", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert told["error"] == ("MXNet cannot be imported by %s (ImportError: No module named numpy): run provision.yml"
                             % sys.executable)


@pytest.mark.parametrize("argv, words", [
    ([], "required: command"), (["dance"], "invalid choice: 'dance'"), (["look", "--request", "{"], "is not JSON"),
    (["look", "--request", "[]"], "is not a JSON object")])
def test_a_wrong_command_line_is_answered_in_json_too(argv, words, capsys):
    assert answer.give(node.run, argv) == 1
    told = json.loads(capsys.readouterr().out)
    assert words in told["error"], told


def test_an_error_of_our_own_is_told_as_one(capsys):
    assert answer.give(lambda argv: {}["nothing"], []) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": "KeyError: 'nothing' (an error in mxcluster itself)"}
    assert "Traceback" in err


def test_what_others_have_is_told(tmp_path):
    with socket.socket() as server, socket.socket() as bound:
        server.bind(("127.0.0.11", 0))
        server.listen(1)
        bound.bind(("127.0.0.11", 0))  # it does not listen, so only who wants this very port hears of it
        ports = [server.getsockname()[1], bound.getsockname()[1]]
        found = node.held("127.0.0.11", [ports[1]], str(tmp_path))["ports"]
        assert found[str(ports[0])] == "another program" and str(ports[1]) in found
        assert node.held("127.0.0.11", [ports[0]], None)["ports"][str(ports[0])].startswith("pid %d (" % os.getpid())
        assert str(ports[0]) not in node.held("127.0.0.12", [], None)["ports"]
        assert not node.look({"address": "127.0.0.11", "ports": ports})["fits"]
    assert node.look({"address": "127.0.0.11", "ports": ports})["fits"]
