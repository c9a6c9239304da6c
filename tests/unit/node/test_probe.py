"""The look at a node before a job, and the node's record."""

import json
import os
import socket
import subprocess
import sys

import pytest

import mxcluster
from mxcluster.agent import claims
from mxcluster.model.engine import MpiEngine
from mxcluster.model.node_record import MachineFacts, NodeFacts
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.protocol import COMMANDS
from mxcluster.node import addresses, cores, driver, gpus, probe, quota, software
from mxcluster.node.mpi_installation import EngineLook
from tests.networks import own_network

ADDRESS = own_network() + ".11"
NO_JOBS = {"ports": {}, "gpus": {}}
KNOWN = {"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.5/24"], "ib0": []}


def call(command, request=None, python=sys.executable, **environment):
    """Carry out a command of the probe in a process; return (exit status, JSON answer)."""
    package = os.path.dirname(os.path.dirname(mxcluster.__file__))
    paths = environment.pop("PYTHONPATH", "").split() + [package]
    ran = subprocess.run(
        [python, "-m", "mxcluster.entry"],
        input=COMMANDS[command](arguments=request or {}).to_bytes(),
        stdout=subprocess.PIPE,
        timeout=120,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths), **environment),
    )
    return ran.returncode, json.loads(ran.stdout.decode().splitlines()[-1])


def look(**request):
    return probe.look(LookRequest.decode(request), lambda folder: NO_JOBS)


def test_a_suitable_node_has_no_problems(tmp_path):
    with socket.socket() as free:
        free.bind((ADDRESS, 0))
        port = free.getsockname()[1]
    request = dict(address=ADDRESS, interface="lo", ports=[port], gpus=[], files=[str(tmp_path)])
    request["python"] = sys.executable
    (tmp_path / "mxnet.py").write_text("raise SystemExit('a look must not import MXNet')")
    code, told = call("look", request, PYTHONPATH=str(tmp_path))
    assert (code, told["problems"]) == (0, [])
    assert told["fits"] is True


def test_every_problem_is_reported_at_once_with_value_and_remedy():
    request = dict(address="203.0.113.9", interface="nic9", ports=[9091], gpus=[77])
    request.update(files=["/no/such/file"], python="/no/such/python")
    code, told = call("look", request)
    assert code == 0
    address, interface, gpu, python, path = told["problems"]
    assert address.startswith("address 203.0.113.9 is not on this node (")
    assert "127.0.0.1 (lo)" in address and address.endswith("which reads the node's facts again")
    assert interface.startswith("interface nic9 is not on this node any more; the node has ")
    assert gpu.startswith("GPU 77 is not on this node")
    assert python == "cannot run python /no/such/python on this node: run provision.yml"
    assert path.startswith("/no/such/file does not exist on this node: ")


@pytest.mark.parametrize(
    "interface, address, words",
    [
        ("eno1", "10.0.0.5", "is not on this node any more; the node has eth0, ib0, lo: run prov"),
        ("ib0", "10.0.0.5", "has no IPv4 address any more; the node has 10.0.0.5 (eth0), 127.0.0."),
        ("eth0", "127.0.0.11", "the address 127.0.0.11 any more, but has 10.0.0.5/24: run prov"),
        ("lo", "127.0.0.11", None),
        ("", "10.0.0.5", None),
    ],
)
def test_a_missing_interface_or_address_is_a_problem(interface, address, words):
    problems = probe.interface_problems(interface, address, KNOWN)
    assert not problems if words is None else words in problems[0]


def test_a_port_in_use_is_reported_with_its_process():
    with socket.socket() as server:
        server.bind((ADDRESS, 0))
        server.listen(1)
        port = server.getsockname()[1]
        problem = probe.port_problem(ADDRESS, port)
        assert problem.startswith("port %d on %s is in use by pid " % (port, ADDRESS)), problem
        assert "-e root_port=" in problem
    assert probe.port_problem(ADDRESS, port) is None


@pytest.mark.slow
def test_the_record_of_a_node(tmp_path):
    """With simulated packages; tests/training has the answers of real MXNet versions."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("__version__ = '1.23.5'")
    (tmp_path / "numpy" / "version.py").write_text("1.23.5")
    zoo = tmp_path / "mxnet" / "gluon" / "model_zoo"
    zoo.mkdir(parents=True)
    (tmp_path / "mxnet" / "__init__.py").write_text("__version__ = '1.9.1'")
    (tmp_path / "mxnet" / "gluon" / "__init__.py").write_text("")
    (zoo / "__init__.py").write_text("")
    (zoo / "vision.py").write_text(
        "def get_model(name):\n"
        "    raise ValueError('Model %s is not supported. Available options are\\n\\t%s'\n"
        "                     % (name, '\\n\\t'.join(['resnet18_v1', 'alexnet'])))\n"
    )
    code, answer = call("record", PYTHONPATH=str(tmp_path))
    record, limit = answer["record"], quota.tightest()
    assert code == 0 and NodeFacts.decode(record) == NodeFacts(
        address_of_default_route=addresses.default_route_address(),
        interfaces=addresses.interfaces(),
        driver=driver.state(),
        gpus=gpus.count(),
        cores=cores.usable(),
        cpu_limit=limit.cpus if limit else None,
        python_version=".".join(map(str, sys.version_info[:3])),
        mxnet="1.9.1",
        numpy="1.23.5",
        hostname=socket.gethostname(),
        host_keys=probe.host_keys(),
        modules=record["modules"],
        model_zoo=["alexnet", "resnet18_v1"],
        fingerprints={"numpy": software.fingerprint(str(tmp_path / "numpy" / "version.py"))},
    )
    assert {"mxnet", "numpy", "sys", "json", "_ctypes"} <= set(record["modules"])
    assert "absent" not in record["modules"] and len(record["modules"]) > 150
    (tmp_path / "mxnet" / "libmxnet.so").write_text("the library")
    library = {"libmxnet.so": software.fingerprint(str(tmp_path / "mxnet" / "libmxnet.so"))}
    whole = dict(record, fingerprints=dict(record["fingerprints"], **library))
    assert call("record", PYTHONPATH=str(tmp_path))[1] == {"record": whole}
    (tmp_path / "mxnet" / "__init__.py").write_text("raise OSError('libgfortran.so.3: cannot')")
    # A CUDA that was replaced since then may lack a library, so the linker is asked.
    places = {"PYTHONPATH": str(tmp_path), "PATH": "%s/bin:%s" % (tmp_path, os.environ["PATH"])}
    for found, status in (("/usr/lib64/libcufft.so.9.2", 0), ("not found", 1)):
        script = "#!/bin/sh\necho '\tlibcufft.so.9.2 => %s'\n" % found
        (tmp_path / "bin" / "ldd").write_text(script)
        (tmp_path / "bin" / "ldd").chmod(0o755)
        code, told = call("record", {"known": whole}, **places)
        assert code == status, told
        assert status or told == {"record": whole}, "the second record must not import MXNet"
    for other in (
        dict(whole, python_version="3.5.0"),
        dict(whole, fingerprints=record["fingerprints"]),
        dict(whole, mxnet="a broken record"),
    ):
        code, told = call("record", {"known": other}, PYTHONPATH=str(tmp_path))
        assert code != 0 and "cannot import MXNet" in told["error"], told
    assert probe.machine() == MachineFacts.decode(record)


def test_host_keys_are_read_from_public_files(tmp_path):
    (tmp_path / "ssh_host_rsa_key.pub").write_text("ssh-rsa AAAAB3 root@here\n")
    (tmp_path / "ssh_host_ed25519_key").write_text("secret")
    assert probe.host_keys(str(tmp_path)) == ["ssh-rsa AAAAB3"]


def test_another_version_of_mxcluster_is_a_problem():
    name = "mxcluster-0123456789ab.zip"
    assert probe.package_problems(name, "/lib/mxcluster-0123456789ab-3.6") == []
    assert probe.package_problems(name, "/project/node") == [], "run from the source folder"
    (problem,) = probe.package_problems(name, "/lib/mxcluster-ffffffffffff-3.6")
    assert "(mxcluster-ffffffffffff.zip) than the controller (%s): run provision" % name in problem


def test_too_little_disk_space_and_too_few_open_files_are_problems(tmp_path):
    assert probe.room_problems({str(tmp_path): 1, str(tmp_path / "not" / "yet"): 1}, 1) == []
    problems = probe.room_problems({str(tmp_path): 1 << 60}, 1 << 40)
    assert str(tmp_path) in problems[0] and "nofile" in problems[1]


def test_the_look_asks_the_image_for_its_mpi_engine_instead_of_the_node(monkeypatch):
    engine = MpiEngine(engine="openmpi", version="4.1.4")

    def look_at_image(container, request):
        assert container.image == "i" and request.mpi.runtime == ""
        return EngineLook(["no image"], engine, "sha256:1")

    monkeypatch.setattr(probe.containers, "look", look_at_image)
    container = {"engine": "docker", "image": "i", "python": "python3"}
    found = look(container=container, mpi={"runtime": "", "pre_execution": ""})
    assert found.problems == ["no image"]
    assert found.image == "sha256:1" and found.facts.mpi == engine


def test_a_record_without_mxnet_says_how_to_install_it(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('No module named numpy')")
    code, told = call("record", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert told["error"].startswith("%s cannot import MXNet (ImportError: No mo" % sys.executable)
    assert "Otherwise remove %s on this node, and run provision.yml" % sys.prefix in told["error"]


def test_no_advice_removes_the_folder_of_the_systems_python(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('No module named numpy')")
    system = os.path.join(sys.base_prefix, "bin", "python3")
    code, told = call("record", python=system, PYTHONPATH=str(tmp_path))
    assert code == 1 and "remove" not in told["error"], told
    assert "install MXNet and numpy for %s again" % system in told["error"], told


def test_ports_of_other_programs_are_reported(tmp_path):
    with socket.socket() as server, socket.socket() as bound:
        server.bind((ADDRESS, 0))
        server.listen(1)
        bound.bind((ADDRESS, 0))  # without listening: only a request for its port finds it
        ports = [server.getsockname()[1], bound.getsockname()[1]]
        found = probe.held(ADDRESS, [ports[1]], claims.held(str(tmp_path))).ports
        assert found[str(ports[0])] == "another program" and str(ports[1]) in found
        own = probe.held(ADDRESS, [ports[0]], NO_JOBS).ports[str(ports[0])]
        assert own.startswith("pid %d (" % os.getpid())
        assert str(ports[0]) not in probe.held(own_network() + ".12", [], NO_JOBS).ports
        assert not look(address=ADDRESS, ports=ports).fits
    assert look(address=ADDRESS, ports=ports).fits
