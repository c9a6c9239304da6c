"""The command line of a container, and the check of a node's engine and image.

Small programs stand in for docker and podman.
"""

import json
import os
import resource

import pytest

from mxcluster.model.node_requests import LookRequest
from mxcluster.model.plan import Container
from mxcluster.node import containers
from mxcluster.node.containers import Info

ALICE = (1000, 1000, [27, 1000])
ROOT = (0, 0, [0])
GOOD = {"Id": "sha256:12", "Architecture": containers.ARCHITECTURE}


def job(engine="docker"):
    return Container(engine=engine, image="training:1", python="python3")


def words(engine="docker", user=ALICE, **given):
    given.setdefault("infiniband", False)
    return containers.run_options(
        job(engine), [("/jobs/j", True), ("/a,b", False)], user=user, **given
    )


def values(line, option):
    return [line[place + 1] for place, word in enumerate(line) if word == option]


def test_a_container_has_the_network_user_and_groups_of_its_node():
    line = words()
    assert line[:3] == ["docker", "run", "--rm"]
    assert values(line, "--network") == ["host"]
    assert values(line, "--user") == ["1000:1000"] and values(line, "--group-add") == ["27"]
    assert values(line, "--pull") == ["never"]
    assert "no-new-privileges" in values(line, "--security-opt")
    assert "--privileged" not in line and "--pid" not in line and "--cap-add" not in line


def test_mounts_have_the_same_path_inside_and_only_the_job_is_writable():
    mounts = values(words(), "--mount")
    package = containers.package_folder()
    assert mounts == [
        "type=bind,src=/dev/shm,dst=/dev/shm",
        "type=bind,src=%s,dst=%s,readonly" % (package, package),
        "type=bind,src=/jobs/j,dst=/jobs/j",
        'type=bind,"src=/a,b","dst=/a,b",readonly',
    ]


def test_a_container_has_the_shared_memory_of_its_node_or_its_own():
    own = containers.run_options(job().replaced(shm_size=512), [], user=ALICE, infiniband=False)
    assert values(own, "--shm-size") == ["512m"] and "/dev/shm" not in str(own)
    assert "--shm-size" not in words()


def test_only_infiniband_brings_a_device_and_locked_memory():
    line = words(infiniband=True)
    assert values(line, "--device") == ["/dev/infiniband"]
    assert values(line, "--cap-add") == ["IPC_LOCK"]
    assert "memlock=-1:-1" in values(line, "--ulimit")
    assert "--device" not in words() and "memlock" not in str(words())


def test_a_process_may_open_as_many_files_as_the_agent():
    limits = "nofile=%d:%d" % resource.getrlimit(resource.RLIMIT_NOFILE)
    assert limits in values(words(), "--ulimit")
    assert values(words("podman"), "--ulimit") == []  # rootless podman keeps those of the user


@pytest.mark.parametrize("allowed, limit", [(100, 100), (1 << 20, 32768), (None, 32768)])
def test_podman_of_root_asks_for_no_more_processes_than_it_has(
    monkeypatch, tmp_path, allowed, limit
):
    """By itself, podman 4 asks for 1048576, for which it needs CAP_SYS_RESOURCE."""
    real, allowed = resource.getrlimit, resource.RLIM_INFINITY if allowed is None else allowed
    monkeypatch.setattr(
        containers.resource,
        "getrlimit",
        lambda kind: (50, allowed) if kind == resource.RLIMIT_NPROC else real(kind),
    )
    (tmp_path / "pid_max").write_text("32768\n")
    monkeypatch.setattr(containers, "PID_MAX", str(tmp_path / "pid_max"))
    assert "nproc=%d:%d" % (limit, limit) in values(words("podman", user=ROOT), "--ulimit")
    assert "nproc" not in str(words())  # docker asks for no such limit


@pytest.mark.parametrize(
    "engine,user,namespace,groups",
    [
        ("docker", ALICE, "host", ["27"]),
        ("podman", ALICE, "keep-id", []),
        ("podman", ROOT, "host", []),
    ],
)
def test_a_rootless_engine_maps_the_user_to_itself(engine, user, namespace, groups):
    line = words(engine, user)
    assert values(line, "--userns") == [namespace] and values(line, "--group-add") == groups


def test_gpus_come_by_the_way_that_the_engine_offers(tmp_path):
    root = str(tmp_path)
    assert containers.gpu_options("docker", Info(runtimes=["runc"]), root) is None
    found = containers.gpu_options("docker", Info.decode({"Runtimes": {"nvidia": {}}}), root)
    assert found[:2] == ["--runtime", "nvidia"] and "NVIDIA_VISIBLE_DEVICES=all" in found
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "nvidia-container-runtime-hook").touch()
    assert containers.gpu_options("docker", Info(), root)[:2] == ["--gpus", "all"]
    assert containers.gpu_options("podman", Info(), root) is None
    (tmp_path / "etc" / "cdi").mkdir(parents=True)
    (tmp_path / "etc" / "cdi" / "nvidia.yaml").touch()
    assert containers.gpu_options("podman", Info(), root) == ["--device", "nvidia.com/gpu=all"]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Return a function that installs a program docker with the given answers, (status, text)."""

    def install(info=None, image=None, run=(0, '{"problems": [], "mpi": null}'), name="docker"):
        answers = {
            "info": info or (0, json.dumps({"ServerVersion": "20.10.24+dfsg1"})),
            "image": image
            or (0, json.dumps([{"Id": "sha256:12", "Architecture": containers.ARCHITECTURE}])),
            "run": run,
        }
        lines = ["#!/bin/sh", 'echo "$@" >> %s' % (tmp_path / "asked")]
        for command, (status, text) in answers.items():
            out = "" if status == 0 else " >&2"
            lines.append(
                "[ $1 = %s ] && { cat <<'E'%s\n%s\nE\nexit %d; }" % (command, out, text, status)
            )
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("\n".join(lines))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", "%s:%s" % (program.parent, os.environ["PATH"]))
        return tmp_path / "asked"

    return install


def look(**needs):
    return containers.look(job(), LookRequest(**needs))


def test_a_good_node_has_no_problem_and_names_its_image(engine):
    asked = engine()
    assert look() == ([], None, "sha256:12")
    run = "--interactive --entrypoint python3 training:1 -u -m mxcluster.node.contained"
    assert run in asked.read_text()


@pytest.mark.parametrize(
    "answers,problem",
    [
        ({"info": (1, "permission denied while trying to connect")}, "permission denied"),
        ({"info": (0, '{"ServerVersion": "19.03.1"}')}, "install version 20.10 or newer"),
        ({"info": (0, '{"version": {"Version": "4.3.1"}}')}, "is podman: use runtime=podman"),
        (
            {"info": (0, '{"ServerVersion": "26.1", "SecurityOptions": ["name=rootless"]}')},
            "runs without root",
        ),
        ({"image": (1, "Error: No such image: training:1")}, "-e container_image_engine=docker"),
        ({"image": (0, json.dumps([{"Id": "1", "Architecture": "s390x"}]))}, "is built for s390x"),
        ({"run": (127, "exec: python3: not found")}, "name another Python with -e image_python"),
        ({"run": (0, '{"problems": ["it has no MXNet"], "mpi": null}')}, "it has no MXNet"),
    ],
)
def test_a_node_that_cannot_run_the_image_says_why(engine, answers, problem):
    engine(**answers)
    (found,) = look().problems
    assert problem in found


def test_a_node_without_the_engine_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = look().problems
    assert "docker is not installed" in found and "apt-get install docker.io" in found


def test_gpus_are_refused_only_if_a_worker_needs_them(engine, monkeypatch):
    engine()
    monkeypatch.setattr(containers.gpus, "count", lambda: 1)
    assert look().problems == []
    (found,) = look(gpus=[0]).problems
    assert "install nvidia-container-toolkit" in found
