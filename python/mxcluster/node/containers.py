"""Check the container engine of this node, and write the command lines of containers.

The engines are docker and podman. A container has the network of the node and the user of the job,
and no additional rights. All functions run as the training user.
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
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from mxcluster import calls, errors
from mxcluster.calls import Ended
from mxcluster.errors import DAMAGED, BadInput
from mxcluster.model.engine import MpiEngine
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.plan import Container
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import Shape, anything, each, optional, table, text, words
from mxcluster.node import gpus
from mxcluster.node.mpi_installation import INFINIBAND, EngineLook

T = TypeVar("T")

LABEL = "mxcluster.job_dir"  # the label of each container with the path of the job folder
SHARED_MEMORY = "/dev/shm"
PID_MAX = "/proc/sys/kernel/pid_max"
CHECK_SECONDS = 120.0  # the first start of a large image is slow
CLIENT_SECONDS = CHECK_SECONDS + 10.0  # the container ends before its client
REMOVE_SECONDS = 20.0  # the end of a job waits no longer for an engine
REMOVE_PAUSE = 0.2  # seconds between two removals
LAST_LINES = 3
# With these variables a client finds the engine, and the user's files of the engine.
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
# The name of this node's architecture in images.
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
NO_PROGRAM = (126, 127)  # the exit statuses for a program that the image lacks or cannot run


class Engine(NamedTuple):
    """A container engine: the oldest supported version, and advice for installation and access."""

    least: Tuple[int, ...]
    install: str
    allow: str


ENGINES = {
    # The option --pull is new in docker 20.10. Without the option, a start may ask a registry.
    "docker": Engine(
        (20, 10),
        "apt-get install docker.io, or docker-ce of Docker's repository for CentOS",
        "start docker with `systemctl start docker`. If docker runs, this user may not use docker: "
        "add the user to the group docker, which gives the rights of root (docs/security.md), or "
        "use runtime=podman",
    ),
    "podman": Engine(
        (3, 0),
        "apt-get install podman crun, or dnf install podman",
        "a user without root needs a range in /etc/subuid and /etc/subgid, and the program "
        "newuidmap (package uidmap)",
    ),
}


class _Version(Record):
    """The version of podman in its `info`."""

    version: str = field(words, key="Version", default="")


def _list_or_null(value: object) -> List[object]:
    return each(anything)(value or [])


class Info(Record):
    """The answer of an engine's `info`. docker and podman have different fields."""

    server_version: str = field(words, key="ServerVersion", default="")
    """Of docker."""
    podman: _Version = field(record(_Version), key="version", default=_Version())
    errors: Sequence[object] = field(_list_or_null, key="ServerErrors", default=[])
    runtimes: Sequence[str] = field(
        lambda value: list(table(text, anything)(value or {})), key="Runtimes", default=[]
    )
    security: Sequence[object] = field(_list_or_null, key="SecurityOptions", default=[])


class Image(Record):
    """The fields of `image inspect` that count."""

    id: Optional[str] = field(optional(text), key="Id", default=None)
    architecture: Optional[str] = field(optional(words), key="Architecture", default=None)


class Contents(Record):
    """The answer of `mxcluster.node.image_check` in a container."""

    problems: Sequence[str] = field(each(words))
    mpi: Optional[MpiEngine] = field(optional(record(MpiEngine)))


def package_folder() -> str:
    """Return the folder from which this process and each container import mxcluster."""
    return os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))


def client_environment() -> Dict[str, str]:
    """Return the environment of a client of the engine. It has no variable of the job."""
    return {name: os.environ[name] for name in CLIENT if name in os.environ}


def run_options(
    container: Container,
    mounts: Iterable[Tuple[str, bool]],
    gpus: Iterable[str] = (),
    infiniband: Optional[bool] = None,
    user: Optional[Tuple[int, int, List[int]]] = None,
) -> List[str]:
    """Return the words of `docker run` before the image, without --interactive and labels.

    A container without "shm_size" has /dev/shm of the node, where the servers of the node share the
    weights. The log driver is none, because the agent writes the logs. `label=disable` is necessary
    under SELinux: files with the labels of the node would be closed to the container.

    Args:
        container: the containers of the plan.
        mounts: (path, True if writable) of files and folders. They have the same path inside.
        gpus: the result of `gpu_options`.
        infiniband: True if the node has InfiniBand. With None, the function looks into /dev.
        user: (uid, gid, [additional groups]), by default the user of this process.
    """
    engine = container.engine
    uid, gid, groups = user or (os.geteuid(), os.getegid(), os.getgroups())
    rootless = engine == "podman" and uid != 0
    has_infiniband = os.path.isdir(INFINIBAND) if infiniband is None else infiniband
    words = [engine, "run", "--rm", "--pull", "never", "--log-driver", "none", "--no-healthcheck"]
    words += ["--network", "host", "--user", "%d:%d" % (uid, gid)]
    words += ["--userns", "keep-id"] if rootless else ["--userns", "host"]
    if not rootless:  # a rootless engine can map only the main group of the user
        for group in sorted(set(groups) - {gid}):
            words += ["--group-add", str(group)]
        # The engine's own limit may be 1024, but a server has a connection to each worker.
        words += ["--ulimit", "nofile=%d:%d" % resource.getrlimit(resource.RLIMIT_NOFILE)]
        if engine == "podman":  # its own limit is above that of a root without CAP_SYS_RESOURCE
            words += ["--ulimit", "nproc=%d:%d" % ((_most_processes(),) * 2)]
    words += ["--security-opt", "no-new-privileges", "--security-opt", "label=disable"]
    words += ["--env", "HOME=/tmp", "--env", "PYTHONPATH=" + package_folder()]
    size = container.shm_size
    words += ["--shm-size", "%dm" % size] if size else ["--mount", _mount(SHARED_MEMORY, True)]
    for path, writable in [(package_folder(), False), *mounts]:
        words += ["--mount", _mount(path, writable)]
    if has_infiniband:  # RDMA locks memory
        words += ["--device", INFINIBAND, "--cap-add", "IPC_LOCK"]
        words += ["--ulimit", "host" if rootless else "memlock=-1:-1"]
    return words + list(gpus)


def _most_processes() -> int:
    """Return how many processes this user may have; at most as many as the kernel can have."""
    with open(PID_MAX) as stream:
        most = int(stream.read())
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return most if allowed == resource.RLIM_INFINITY else min(most, allowed)


def _mount(path: str, writable: bool) -> str:
    fields = ["type=bind", "src=" + path, "dst=" + path] + ["readonly"] * (not writable)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)  # the engines parse CSV
    return line.getvalue()


def gpu_options(engine: str, info: Info, root: str = "/") -> Optional[List[str]]:
    """Return the options that give the node's GPUs to a container, or None if the engine cannot.

    A container gets all GPUs. CUDA_VISIBLE_DEVICES chooses among the GPUs, as on the node itself.

    Args: `info` the answer of the engine's `info`; `root` the folder with etc, var and usr.
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
    if "nvidia" in info.runtimes:
        return ["--runtime", "nvidia"] + wishes
    hooks = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
    if any(os.path.exists(os.path.join(root, "usr/bin", hook)) for hook in hooks):
        return ["--gpus", "all"] + wishes
    return None


def first_process(container: Container) -> List[str]:
    """Return the last words of `docker run`, which start `mxcluster.node.contained`.

    They replace the program of the image (ENTRYPOINT).
    """
    words = ["--entrypoint", container.python, container.image]
    return words + ["-u", "-m", "mxcluster.node.contained"]


def ask(engine: str, *words: str, stdin: str = "", patience: float = CLIENT_SECONDS) -> Ended:
    """Run a client of the engine with `words` for at most `patience` seconds."""
    return calls.run([engine, *words], patience, client_environment(), stdin, folder="/")


def info_of(engine: str) -> Info:
    """Return the answer of the engine's `info`, without fields if there is no answer in JSON."""
    return _json(Info.decode, ask(engine, "info", "--format", "{{json .}}").out) or Info()


def look(container: Container, request: LookRequest) -> EngineLook:
    """Check this node for the containers `container` of the job of `request`.

    The function runs the image once. The container imports MXNet, or finds the MPI engine.
    """
    image: Optional[Image] = None
    try:
        info = _info_of_usable(container.engine)
        image = _image(container)
        if image.architecture not in (None, "", ARCHITECTURE):
            raise BadInput(
                "the image %s is built for %s, and this node is %s: build the image for %s"
                % (container.image, image.architecture, ARCHITECTURE, ARCHITECTURE)
            )
        options = gpu_options(container.engine, info) if gpus.count() else []
        if options is None and request.gpus:
            raise BadInput(
                "%s gives no GPU to containers on this node: install nvidia-container-toolkit and "
                "configure %s for it, or use runtime=host, or start the job without GPUs"
                % (container.engine, container.engine)
            )
        found = _contents(container, options or [], request)
    except BadInput as refusal:
        return EngineLook([str(refusal)], image=image.id if image else None)
    return EngineLook(list(found.problems), found.mpi, image.id)


def _info_of_usable(engine: str) -> Info:
    """Return the answer of the engine's `info`. Raises BadInput if the engine is unusable."""
    least, install, allow = ENGINES[engine]
    if not shutil.which(engine):
        raise BadInput(
            "%s is not installed on this node: install it (%s), or use runtime=host"
            % (engine, install)
        )
    status, out, err = ask(engine, "info", "--format", "{{json .}}")
    info = _json(Info.decode, out) or Info()
    version = info.server_version or info.podman.version
    if status != 0 or not version or info.errors:
        user = "root" if os.geteuid() == 0 else "the user with id %d" % os.geteuid()
        reason = err.strip() or "; ".join(map(str, info.errors)) or out
        raise BadInput(
            "%s does not answer %s on this node (%s): %s"
            % (engine, user, last_lines(reason), allow)
        )
    if not info.server_version and engine == "docker":
        raise BadInput("the program docker of this node is podman: use runtime=podman")
    if numbers(version) < least:
        raise BadInput(
            "%s %s of this node is too old: install version %s or newer"
            % (engine, version, ".".join(map(str, least)))
        )
    if any("rootless" in str(one) for one in info.security):
        raise BadInput(
            "docker runs without root on this node, so containers cannot have the user of the "
            "job's files: use runtime=podman"
        )
    return info


def _image(container: Container) -> Image:
    """Return the facts of the job's image. Raises BadInput if the node has no such image."""
    engine, name = container.engine, container.image
    status, out, err = ask(engine, "image", "inspect", name)
    images = _json(each(record(Image)), out)
    if status != 0 or not images:
        raise BadInput(
            "the image %s is not on this node (%s: %s): bring the image with provision.yml -e "
            "container_image_engine=%s -e container_image_name=%s"
            % (name, engine, last_lines(err) or "no such image", engine, name)
        )
    return images[0]


def _contents(container: Container, of_gpus: List[str], request: LookRequest) -> Contents:
    """Run `image_check` in the image, and return its answer. Raises BadInput without an answer.

    Args: `of_gpus` the result of `gpu_options`.
    """
    engine, name, python = container.engine, container.image, container.python
    cuda, mpi = request.cuda, request.mpi
    options = run_options(container, [(cuda, False)] if cuda else [], of_gpus)[1:]
    options += ["--interactive"] + first_process(container)
    order = {
        "command": [python, "-m", "mxcluster.node.image_check"]
        + [json.dumps({"image": name, "mpi": mpi and mpi.encode()})],
        "env": {"LD_LIBRARY_PATH": cuda + "/lib64"} if cuda else {},
        "seconds": CHECK_SECONDS,
    }
    status, out, err = ask(engine, *options, stdin=json.dumps(order))
    found = _json(Contents.decode, out.strip().splitlines()[-1]) if out.strip() else None
    if found:
        return found
    if status in NO_PROGRAM:
        raise BadInput(
            "the image %s cannot run %s (%s): name another Python with -e image_python="
            % (name, python, last_lines(err))
        )
    raise BadInput(
        "%s cannot run the image %s on this node (status %d): %s"
        % (engine, name, status, last_lines(err or out))
    )


def remove(engine: str, folder: str) -> List[str]:
    """Remove the leftover containers of the job in `folder`, and return their ids.

    The function returns when the engine has none of them any more, or after REMOVE_SECONDS. The
    answer to one removal does not say so: an engine removes a container by itself when the first
    process has ended, and meanwhile refuses the second removal at once.
    """
    label = "label=%s=%s" % (LABEL, folder)
    removed: List[str] = []
    deadline = time.monotonic() + REMOVE_SECONDS

    def patience() -> float:
        return max(1.0, deadline - time.monotonic())

    while time.monotonic() < deadline:
        words = ("ps", "--all", "--quiet", "--filter", label)
        status, out, _ = ask(engine, *words, patience=patience())
        found = out.split() if status == 0 else []
        if not found:
            break
        removed += [one for one in found if one not in removed]
        ask(engine, "rm", "--force", "--volumes", *found, patience=patience())
        time.sleep(REMOVE_PAUSE)
    return removed


def numbers(version: str) -> Tuple[int, ...]:
    """Return the leading numbers of a version, such as (20, 10, 24) for "20.10.24+dfsg1"."""
    return tuple(int(one) for one in re.findall(r"\d+", version.split("+")[0].split("-")[0])[:3])


def last_lines(text: str) -> str:
    """Return the last lines of a program's output as one line."""
    return " ".join(line.strip() for line in text.strip().splitlines()[-LAST_LINES:])[-500:]


def _json(shape: Shape[T], output: str) -> Optional[T]:
    """Return the JSON of a program's output, or None for another output."""
    try:
        return shape(json.loads(output))
    except DAMAGED:
        return None
