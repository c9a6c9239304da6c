"""Containers on one node: what an engine offers, and the command line that runs a program in one.

The engines are docker and podman. A job's process in a container has the network, the shared memory
and the user of the node. It has no rights besides. All functions run as the training user.
"""

import csv
import glob
import io
import json
import os
import platform
import re
import resource
import shutil
import subprocess
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from mxcluster import errors
from mxcluster.node.mpi_installation import INFINIBAND

Json = Dict[str, Any]

LABEL = "mxcluster.job_dir"  # on each container of a job: the path of its job folder on the node
SHARED_MEMORY = "/dev/shm"
CHECK_SECONDS = 120.0  # a large image reads slowly for the first time
CLIENT_SECONDS = 10.0  # more for the client, so that the container ends before it
REMOVE_SECONDS = 20.0  # the end of a job waits no longer for an engine without an answer
LAST_LINES = 3
# The variables by which a client finds its engine and the user's files of the engine.
CLIENT = (
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # of the kernel: of an image
NO_PROGRAM = (126, 127)  # exit status of an engine: the image cannot run the program, or lacks it


class Engine(NamedTuple):
    """A container engine: its oldest version, how to install it, and how a user may use it."""

    least: Tuple[int, ...]
    install: str
    allow: str


ENGINES = {
    # --pull, which keeps a start from asking a registry, is new in 20.10.
    "docker": Engine(
        (20, 10),
        "apt-get install docker.io, or docker-ce of Docker's repository for CentOS",
        "start it with `systemctl start docker`. If it runs, this user may not use it: use "
        "runtime=podman, or add the user to the group docker, which makes the user root by another "
        "name (docs/security.md)",
    ),
    "podman": Engine(
        (3, 0),
        "apt-get install podman crun, or dnf install podman",
        "a user without root needs a range in /etc/subuid and /etc/subgid, and the program "
        "newuidmap (package uidmap)",
    ),
}


def package_folder() -> str:
    """Return the folder from which this Python, and that of each container, imports mxcluster."""
    return os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))


def client_environment() -> Dict[str, str]:
    """Return the environment of a client of the engine. It holds no variable of the job."""
    return {name: os.environ[name] for name in CLIENT if name in os.environ}


def run_options(
    container: Json,
    mounts: Iterable[Tuple[str, bool]],
    gpus: Iterable[str] = (),
    infiniband: Optional[bool] = None,
    user: Optional[Tuple[int, int, List[int]]] = None,
) -> List[str]:
    """Return the words of `docker run` up to the image, without --interactive and labels.

    Args: `container` {"engine", "image", "python", "shm_size"} of the plan; `mounts` (path,
    writable?) of files and folders that have the same path inside; `gpus` the result of
    `gpu_options`; `infiniband` whether the node has it, by default as /dev shows; `user` (uid, gid,
    further groups), by default those of this process.

    Without "shm_size" (MB) the container shares the node's /dev/shm: the servers of a node keep the
    weights there. The engine keeps no second copy of the log. SELinux would deny the node's files,
    whose labels belong to the node.
    """
    engine = container["engine"]
    uid, gid, groups = user or (os.geteuid(), os.getegid(), os.getgroups())
    rootless = engine == "podman" and uid != 0
    has_infiniband = os.path.isdir(INFINIBAND) if infiniband is None else infiniband
    words = [engine, "run", "--rm", "--pull", "never", "--log-driver", "none", "--no-healthcheck"]
    words += ["--network", "host", "--user", "%d:%d" % (uid, gid)]
    words += ["--userns", "keep-id"] if rootless else ["--userns", "host"]
    if not rootless:  # a rootless engine can map no group but the user's own
        for group in sorted(set(groups) - {gid}):
            words += ["--group-add", str(group)]
        # The engine's own limit may be 1024; a server has a connection to each worker.
        words += ["--ulimit", "nofile=%d:%d" % resource.getrlimit(resource.RLIMIT_NOFILE)]
    words += ["--security-opt", "no-new-privileges", "--security-opt", "label=disable"]
    words += ["--env", "HOME=/tmp", "--env", "PYTHONPATH=" + package_folder()]
    size = container.get("shm_size")
    words += ["--shm-size", "%dm" % size] if size else ["--mount", _mount(SHARED_MEMORY, True)]
    for path, writable in [(package_folder(), False), *mounts]:
        words += ["--mount", _mount(path, writable)]
    if has_infiniband:  # RDMA pins memory
        words += ["--device", INFINIBAND, "--cap-add", "IPC_LOCK"]
        words += ["--ulimit", "host" if rootless else "memlock=-1:-1"]
    return words + list(gpus)


def _mount(path: str, writable: bool) -> str:
    fields = ["type=bind", "src=" + path, "dst=" + path] + ["readonly"] * (not writable)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)  # the engines read it as CSV
    return line.getvalue()


def gpu_options(engine: str, info: Json, root: str = "/") -> Optional[List[str]]:
    """Return the options with which a container sees the node's GPUs, None if there is no way.

    A container gets all GPUs, and CUDA_VISIBLE_DEVICES chooses among them, as on the node itself.

    Args: `info` the answer of the engine's `info`; `root` the folder of /etc, /var and /usr.
    """
    wishes = ["--env", "NVIDIA_VISIBLE_DEVICES=all"]
    wishes += ["--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    if engine == "podman":
        specs = [
            path
            for folder in ("etc/cdi", "var/run/cdi")
            for path in glob.glob(os.path.join(root, folder, "nvidia*"))
        ]
        return ["--device", "nvidia.com/gpu=all"] if specs else None
    if "nvidia" in (info.get("Runtimes") or {}):
        return ["--runtime", "nvidia"] + wishes
    hooks = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
    if any(os.path.exists(os.path.join(root, "usr/bin", hook)) for hook in hooks):
        return ["--gpus", "all"] + wishes
    return None


def first_process(container: Json) -> List[str]:
    """Return the last words of `docker run`; stdin has what `mxcluster.node.contained` asks for.

    A program that the image would run before (ENTRYPOINT) does not run.
    """
    words = ["--entrypoint", container["python"], container["image"]]
    return words + ["-u", "-m", "mxcluster.node.contained"]


def ask(
    engine: str, *words: str, stdin: str = "", patience: float = CHECK_SECONDS + CLIENT_SECONDS
) -> Tuple[int, str, str]:
    """Run a client of the engine with `words` and return (exit status, stdout, stderr).

    The status is 124 if the client takes longer than `patience` seconds.
    """
    try:
        done = subprocess.run(
            [engine] + list(words),
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=client_environment(),
            cwd="/",
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return 124, "", "no answer within %d s" % patience
    except OSError as error:
        return 127, "", str(error)
    return (
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )


def info_of(engine: str) -> Json:
    """Return the answer of the engine's `info` (dict), {} without an answer in JSON."""
    return _json(ask(engine, "info", "--format", "{{json .}}")[1]) or {}


def look(
    container: Json,
    needs_gpus: bool,
    has_gpus: bool,
    cuda: Optional[str] = None,
    mpi: Optional[Json] = None,
) -> Json:
    """Return whether this node can run `container`: {"problems": [text, ...], "image", "mpi"}.

    "image" is the id of the image, or None. The image is run once, and imports its MXNet or finds
    its MPI engine. "mpi" is the answer of `mpi_installation.look` in the image, None without `mpi`.

    Args: `container` as for `run_options`; `needs_gpus` whether a process of the job uses GPUs
    here; `has_gpus` whether the node has any; `cuda` the folder of CUDA on the node, if any; `mpi`
    the request of `mpi_installation.look`, for an MPI program.
    """
    engine = container["engine"]
    info, problem = _engine(engine)
    if problem:
        return _seen(None, problem)
    image, problem = _image(container)
    if problem:
        return _seen(image, problem)
    gpus = gpu_options(engine, info) if has_gpus else []
    if gpus is None and needs_gpus:
        return _seen(
            image,
            "%s offers no GPU to containers on this node: install nvidia-container-toolkit and "
            "configure %s for it, or use runtime=host, or let the job use no GPU"
            % (engine, engine),
        )
    found, problem = _contents(container, gpus or [], cuda, mpi)
    return _seen(image, problem) if problem else dict(found, image=image)


def _seen(image: Optional[str], problem: str) -> Json:
    return {"problems": [problem], "image": image, "mpi": None}


def _engine(engine: str) -> Tuple[Json, Optional[str]]:
    """Return (the answer of the engine's info, a problem with the engine or None)."""
    least, install, allow = ENGINES[engine]
    if not shutil.which(engine):
        return {}, "%s is not installed on this node: install it (%s), or use runtime=host" % (
            engine,
            install,
        )
    code, out, err = ask(engine, "info", "--format", "{{json .}}")
    info = _json(out) or {}
    version = str(info.get("ServerVersion") or (info.get("version") or {}).get("Version") or "")
    if code != 0 or not version or info.get("ServerErrors"):
        told = err.strip() or "; ".join(map(str, info.get("ServerErrors") or [])) or out.strip()
        return {}, "%s does not answer to %s on this node (%s): %s" % (
            engine,
            _user(),
            last_lines(told),
            allow,
        )
    if "ServerVersion" not in info and engine == "docker":
        return {}, "the program docker of this node is podman: use runtime=podman"
    if numbers(version) < least:
        return {}, "%s %s of this node is too old: it must be %s or newer" % (
            engine,
            version,
            ".".join(map(str, least)),
        )
    if any("rootless" in str(one) for one in info.get("SecurityOptions") or []):
        return {}, (
            "docker runs without root on this node, so its containers cannot have the user of "
            "the job's files: use runtime=podman"
        )
    return info, None


def _image(container: Json) -> Tuple[Optional[str], Optional[str]]:
    """Return (the id of the image on this node or None, a problem with it or None)."""
    engine, name = container["engine"], container["image"]
    code, out, err = ask(engine, "image", "inspect", name)
    found = _json(out)
    if code != 0 or not isinstance(found, list) or not found:
        return None, (
            "the image %s is not on this node (%s: %s): bring it with provision.yml -e "
            "container_image_engine=%s -e container_image_name=%s"
            % (name, engine, last_lines(err) or "no such image", engine, name)
        )
    image, ours = found[0], ARCHITECTURES.get(platform.machine(), platform.machine())
    if image.get("Architecture") not in (None, "", ours):
        return image.get(
            "Id"
        ), "the image %s is built for %s, and this node is %s: give another" % (
            name,
            image["Architecture"],
            ours,
        )
    return image.get("Id"), None


def _contents(
    container: Json, gpus: List[str], cuda: Optional[str], mpi: Optional[Json]
) -> Tuple[Json, Optional[str]]:
    """Run `image_check` in the image. Return (its answer, why there is none or None)."""
    engine, name, python = (container[key] for key in ("engine", "image", "python"))
    words = run_options(container, [(cuda, False)] if cuda else [], gpus)[1:]
    words += ["--interactive"] + first_process(container)
    asked = {
        "command": [python, "-m", "mxcluster.node.image_check"]
        + [json.dumps({"image": name, "mpi": mpi})],
        "env": {"LD_LIBRARY_PATH": cuda + "/lib64"} if cuda else {},
        "seconds": CHECK_SECONDS,
    }
    code, out, err = ask(engine, *words, stdin=json.dumps(asked))
    told = _json(out.strip().splitlines()[-1]) if out.strip() else None
    if code in NO_PROGRAM and told is None:
        return {}, "the image %s cannot run %s (%s): name its Python with -e image_python=..." % (
            name,
            python,
            last_lines(err),
        )
    if not isinstance(told, dict) or not {"problems", "mpi"} <= set(told):
        return {}, "the image %s could not be run by %s on this node (status %d): %s" % (
            name,
            engine,
            code,
            last_lines(err or out),
        )
    return {"problems": told["problems"], "mpi": told["mpi"]}, None


def remove(engine: str, folder: str) -> List[str]:
    """Remove the containers of the job in `folder` that the engine still has. Return their ids."""
    label = "label=%s=%s" % (LABEL, folder)
    code, out, _ = ask(engine, "ps", "--all", "--quiet", "--filter", label, patience=REMOVE_SECONDS)
    found = out.split() if code == 0 else []
    if found:
        ask(engine, "rm", "--force", "--volumes", *found, patience=REMOVE_SECONDS)
    return found


def numbers(version: str) -> Tuple[int, ...]:
    """Return the leading numbers of a version: (20, 10, 24) for "20.10.24+dfsg1"."""
    return tuple(int(one) for one in re.findall(r"\d+", version.split("+")[0].split("-")[0])[:3])


def last_lines(text: str) -> str:
    """Return the last lines of a program's output as one line."""
    return " ".join(line.strip() for line in text.strip().splitlines()[-LAST_LINES:])[-500:]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _user() -> str:
    return "root" if os.geteuid() == 0 else "the user with id %d" % os.geteuid()
