"""Plan the containers of a job: the image, and the folders of the node that a container reads."""

from typing import List, Mapping, Optional, Sequence

from mxcluster.errors import BadInput, refuse, some
from mxcluster.lists import unique
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.job_knobs import HOST, RUNTIMES, Options
from mxcluster.model.plan import Container, Node, Plan

KNOBS = ("image", "image_python")  # the knobs that only jobs in containers read


def refuse_unread(runtime: str, anew: Sequence[str]) -> None:
    """Raise BadInput if the user gave a knob of containers with -e to a job on the host.

    Such a knob is allowed in the inventory, because it describes the site there.

    Args: `runtime` the value of the knob; `anew` the names of the knobs given with -e.
    """
    engines = [name for name in RUNTIMES if name != HOST]
    refuse(
        "-e %s: runtime=%s does not read this knob. Leave the knob out, or use -e runtime=%s"
        % (name, runtime, " or -e runtime=".join(engines))
        for name in anew
        if name in KNOBS and runtime == HOST
    )


def of(options: Options, image: str, shm_size: Optional[int] = None) -> Optional[Container]:
    """Return the containers of a job, or None for a job on the host.

    Args: `shm_size` the size in MB of /dev/shm in each container. With None, all containers have
    /dev/shm of the node, where the servers of the node share the weights.
    """
    if options.runtime == HOST:
        return None
    return Container(
        engine=options.runtime, image=image, python=options.image_python, shm_size=shm_size
    )


def lines(plan: Plan) -> List[str]:
    """Return the line about containers for the table of a plan, [] without containers."""
    container = plan.container
    return (
        ["in containers of %s, image %s" % (container.engine, container.image)] if container else []
    )


def python(options: Options, node: Node) -> str:
    """Return the program of Python for the job's processes on `node`."""
    path: str = node.python if options.runtime == HOST else options.image_python
    return path


def mounts(*folders: Optional[str]) -> List[str]:
    """Return the folders of a node that a container reads, besides the job folder and the package.

    Args: `folders` the knob data_dir, the folder of mxcluster's own data sets, and the folder of
    CUDA. A value of "" or None means that the node has no such folder.
    """
    return unique(folder for folder in folders if folder)


def check_units(runtime: str, hosts: Sequence[str], variables: Mapping[str, HostVariables]) -> None:
    """Refuse podman on hosts with the agent in a systemd unit.

    Without root, podman needs the set-uid program newuidmap. The unit forbids set-uid programs.
    """
    units = [host for host in hosts if variables[host].mxcluster_user]
    if runtime == "podman" and units:
        raise BadInput(
            "runtime=podman on %s is refused: the agent's unit forbids set-uid programs, which "
            "podman needs without root: set mxcluster_user: '' in the inventory, so that the login "
            "user trains, or use runtime=docker" % some(units)
        )
