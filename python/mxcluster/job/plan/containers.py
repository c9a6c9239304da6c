"""The container image of a job's processes, and what they see of their node."""

from typing import Any, Dict, List, Optional, Sequence

from mxcluster.errors import BadInput, some
from mxcluster.lists import unique

HOST = "host"  # the runtime without containers


def of(options: Dict[str, Any]) -> Optional[Dict[str, str]]:
    """Return {"engine", "image", "python"} of a job, None if its processes run on the host."""
    if options["runtime"] == HOST:
        return None
    return {
        "engine": options["runtime"],
        "image": options["image"],
        "python": options["image_python"],
    }


def mounts(data_dir: str, own_data_dir: Optional[str], cuda: Optional[Dict[str, str]]) -> List[str]:
    """Return the folders of a node that a container reads, besides the job folder and the package.

    Args: `data_dir` the option; `own_data_dir` the folder of mxcluster's own data sets; `cuda` the
    node's CUDA, {"folder"}.
    """
    folders = [data_dir, own_data_dir, (cuda or {}).get("folder")]
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
