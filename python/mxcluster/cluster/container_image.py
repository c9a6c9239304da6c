"""The container image of the training processes: what is in it, and which nodes lack it. Pure."""

import hashlib
import json
from typing import Any, Dict, List, Optional, Sequence

from mxcluster.errors import BadInput
from mxcluster.lists import unique

Json = Dict[str, Any]

LABEL = "mxcluster.recipe"  # of the image: the digest of all that made it


def recipe(environment: Json, python: str, base: str, dockerfile: str) -> Json:
    """Return {"python", "requirements", "digest"}: the wheels of the image, for Python `python`.

    The result has the form of the needs of a node, for `mxcluster_downloads`. The digest changes
    with everything that makes the image.

    Args: `environment` {"builds", "hashes", "name", "note"} of a node's versions; `python` such as
    "3.11"; `base` the name of the base image; `dockerfile` the text of the Dockerfile. BadInput if
    no wheels are known for this Python.
    """
    build = next((one for one in environment["builds"] if python in one["python"]), None)
    if build is None:
        known = sorted({version for one in environment["builds"] for version in one["python"]})
        raise BadInput(
            "container_image_python=%s: there are no wheels of %s for it: set it to one of %s, the "
            "version of Python in container_image_base"
            % (python, environment.get("name") or "MXNet", ", ".join(known))
        )
    requirements = [
        " ".join(
            [wheel] + ["--hash=sha256:" + digest for digest in _list(environment["hashes"][wheel])]
        )
        for wheel in build["wheels"] + [build["pip"]]
    ]
    made_of = json.dumps([python, base, dockerfile, requirements])
    return {
        "python": python,
        "requirements": requirements,
        "digest": hashlib.sha256(made_of.encode()).hexdigest(),
    }


def _list(digests: Any) -> List[str]:
    return [digests] if isinstance(digests, str) else list(digests)


def distribution(seen: Dict[str, str], hosts: Sequence[str], name: str, wanted: Json) -> Json:
    """Return which node gives the image to which others.

    Args:
        seen: {host: the answer of `image inspect`, "" without the image}.
        hosts: the nodes in the order of the inventory.
        name: the name of the image.
        wanted: {"recipe": digest, "ids": [id, ...]}; "" and [] if any image of this name will do.

    Returns:
        {"source", "build", "lacking"}: "source" the node that has the wanted image, "" for none;
        "build" whether it has to be built there first; "lacking" the nodes with another image or
        none.

    BadInput if no node has an image that is not built here.
    """
    found = {host: _image(seen.get(host) or "") for host in hosts}
    if wanted["ids"]:  # an archive of the controller
        other = [host for host in hosts if _id(found[host]) not in wanted["ids"]]
        return {"source": "", "build": False, "lacking": other}
    right = [
        host
        for host in hosts
        if found[host] and (not wanted["recipe"] or _recipe(found[host]) == wanted["recipe"])
    ]
    if not right and not wanted["recipe"]:
        raise BadInput(
            "no node has the image %s: load it on one of them, or give it with "
            "container_image_archive, or let it be built from a base with container_image_base"
            % name
        )
    source = (right or list(hosts))[0]
    image = _id(found[source]) if right else ""
    other = [host for host in hosts if host != source and (not image or _id(found[host]) != image)]
    return {"source": source, "build": not right, "lacking": other}


def _image(text: str) -> Optional[Json]:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else None


def _recipe(image: Optional[Json]) -> str:
    labels = ((image or {}).get("Config") or {}).get("Labels") or {}
    return str(labels.get(LABEL) or "")


def _id(image: Optional[Json]) -> str:
    return _bare(str((image or {}).get("Id") or ""))


def _bare(identity: str) -> str:
    """Return the id of an image without the name of its digest, which docker shows."""
    return identity.split(":")[-1]


def ids_in(manifest: str, index: str, archive: str) -> List[str]:
    """Return the ids that the image in an archive of `docker save` can have on a node.

    The id is the digest of the image's configuration. Where docker keeps its images in containerd,
    it is that of the image's manifest, which index.json names.

    Args: `manifest` and `index` the texts of manifest.json and index.json in the archive, `index`
    "" without such a file; `archive` its path, for the message. BadInput if the archive holds no
    image, or several.
    """
    try:
        found = json.loads(manifest)
        configs = [str(one["Config"]) for one in found]
    except (ValueError, KeyError, TypeError):
        configs = []
    if len(configs) != 1:
        raise BadInput(
            "container_image_archive=%s is no file that holds one image (%d found): make it with "
            "`docker save --output FILE IMAGE`" % (archive, len(configs))
        )
    try:
        manifests = [str(one["digest"]) for one in json.loads(index)["manifests"]]
    except (ValueError, KeyError, TypeError):
        manifests = []
    # "<id>.json" of the older form of the archive, "blobs/sha256/<id>" of the newer one
    return unique([configs[0].split("/")[-1].replace(".json", "")] + list(map(_bare, manifests)))
