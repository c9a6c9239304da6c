"""The container image of a job's processes, and what they see of their node."""

from typing import Any, Dict, List, Optional, Sequence

from mxcluster.errors import BadInput, some
from mxcluster.lists import unique

HOST = "host"  # the runtime without containers


def of(
    options: Dict[str, Any], image: str, shm_size: Optional[int] = None
) -> Optional[Dict[str, Any]]:
    """Return {"engine", "image", "python", "shm_size"}, None if a job's processes run on the host.

    Args: `shm_size` the MB of a container's own /dev/shm. None for that of the node, in which the
    servers of the node share the weights.
    """
    if options["runtime"] == HOST:
        return None
    return {
        "engine": options["runtime"],
        "image": image,
        "python": options["image_python"],
        "shm_size": shm_size,
    }


def python(options: Dict[str, Any], node: Dict[str, Any]) -> str:
    """Return the Python that runs a job's processes on `node`, an entry of the plan's nodes."""
    path: str = node["python"] if options["runtime"] == HOST else options["image_python"]
    return path


def mounts(*folders: Optional[str]) -> List[str]:
    """Return the folders of a node that a container reads, besides the job folder and the package.

    Args: `folders` the option data_dir, and those of mxcluster's own data sets and of CUDA; "" or
    None for a folder that the node does not have.
    """
    return unique(folder for folder in folders if folder)


def check_units(runtime: str, hosts: Sequence[str], variables: Dict[str, Dict[str, Any]]) -> None:
    """Refuse podman on hosts where the agent is a systemd unit.

    The unit forbids set-uid programs, and podman without root needs newuidmap, which is one.
    """
    units = [host for host in hosts if (variables.get(host) or {}).get("mxcluster_user") != ""]
    if runtime == "podman" and units:
        raise BadInput(
            "runtime=podman on %s: the unit of the agent allows no set-uid program there, which "
            "podman needs without root: set mxcluster_user: '' in the inventory, so that the login "
            "user trains, or use runtime=docker" % some(units)
        )
