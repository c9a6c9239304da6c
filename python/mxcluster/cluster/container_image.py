"""Decide the contents of the container image of the jobs, and find the nodes without the image.

All functions are pure.
"""

import hashlib
import json
from typing import Any, Dict, List, Sequence

from mxcluster.cluster import wheels
from mxcluster.errors import BadInput
from mxcluster.lists import unique
from mxcluster.model import shapes

Json = Dict[str, Any]

LABEL = "mxcluster.recipe"  # the label of the image with the digest of its recipe


def recipe(environment: Json, python: str, base: str, dockerfile: str) -> Json:
    """Return the recipe of the image, {"python", "requirements", "digest"}.

    "requirements" are the lines of a requirements file. The action `mxcluster_downloads` accepts
    the recipe as the needs of a node. "digest" changes with each argument.

    Args:
        environment: {"builds", "hashes", "name", "note"} of the versions of a node.
        python: the version of Python in the image, such as "3.11".
        base: the name of the base image.
        dockerfile: the text of the Dockerfile.

    Raises:
        BadInput: the table of versions has no wheels for this Python.
    """
    if not any(python in one["python"] for one in environment["builds"]):
        known = sorted({version for one in environment["builds"] for version in one["python"]})
        raise BadInput(
            "container_image_python=%s is refused, because %s has no wheels for it: choose a "
            "container_image_base with one of Python %s, and set container_image_python to it"
            % (python, environment.get("name") or "MXNet", ", ".join(known))
        )
    need = wheels.needs(environment, python)
    made_of = json.dumps([python, base, dockerfile, need.requirements])
    return need.replaced(digest=hashlib.sha256(made_of.encode()).hexdigest()).encode()


def distribution(seen: Dict[str, str], hosts: Sequence[str], name: str, wanted: Json) -> Json:
    """Return the node that gives the image, and the nodes that get the image.

    Args:
        seen: {host: output of `image inspect`, "" without the image}.
        hosts: the nodes in the order of the inventory.
        name: the name of the image.
        wanted: {"recipe": digest, "ids": [id, ...]}. "" and [] accept each image of this name.

    Returns:
        {"source", "id", "build", "lacking"}. "source": the node with the wanted image, "" if an
        archive gives the image. With a recipe this is the first node, because a node that only
        claims to have the image could decide what the others run. "id": the id of the image on this
        node, "" without the image. "build": True if this node has to build the image first.
        "lacking": the nodes without the image, or with another image of this name.

    Raises:
        BadInput: no node has the image, and nothing builds the image. Or nodes have different
            images, and neither a recipe nor an archive decides between them.
    """
    found = {host: _image(seen.get(host) or "") for host in hosts}
    if wanted["ids"]:  # an archive of the controller has the image
        other = [host for host in hosts if _id(found[host]) not in wanted["ids"]]
        return {"source": "", "id": "", "build": False, "lacking": other}
    if wanted["recipe"]:
        right = [host for host in hosts[:1] if _recipe(found[host]) == wanted["recipe"]]
    else:
        right = [host for host in hosts if found[host]]
    if not right and not wanted["recipe"]:
        raise BadInput(
            "no node has the image %s: load the image on one node, or name a file of the image in "
            "container_image_archive, or name the base of a new image in container_image_base"
            % name
        )
    ids = {host: _id(found[host])[:12] for host in right}
    if len({_id(found[host]) for host in right}) > 1:
        raise BadInput(
            "the nodes have different images %s (%s): save the wanted image with `docker save "
            "--output FILE %s`, and name the file in container_image_archive"
            % (name, ", ".join("%s: %s" % (host, ids[host]) for host in right), name)
        )
    source = (right or list(hosts))[0]
    image = _id(found[source]) if right else ""
    other = [host for host in hosts if host != source and (not image or _id(found[host]) != image)]
    return {"source": source, "id": image, "build": not right, "lacking": other}


# The fields of `image inspect` that decide. A node without labels has the value null.
_INSPECTED = shapes.each(
    shapes.fields(
        {"Id": shapes.matching(r"(sha256:)?[0-9a-f]+", "the id of an image", 200)},
        {
            "Config": shapes.fields(
                {}, {"Labels": shapes.optional(shapes.fields({}, {LABEL: shapes.text}))}
            )
        },
    )
)


def _image(text: Any) -> Json:
    """Return the answer of a node about its image, {} without the image or for another text.

    A node with a wrong answer gets the image.
    """
    try:
        found = _INSPECTED(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return {}
    return dict(found[0]) if found else {}


def _recipe(image: Json) -> str:
    labels = (image.get("Config") or {}).get("Labels") or {}
    return str(labels.get(LABEL, ""))


def _id(image: Json) -> str:
    return bare(image.get("Id", ""))


def bare(identity: str) -> str:
    """Return the id of an image without the name of the digest, such as "sha256:"."""
    return identity.split(":")[-1]


def ids_in(manifest: str, index: str, archive: str) -> List[str]:
    """Return the possible ids of the image in an archive of `docker save`, on a node.

    The id is the digest of the image's configuration. If docker keeps its images in containerd, the
    id is the digest of the image's manifest, which index.json names.

    Args:
        manifest: the text of manifest.json in the archive.
        index: the text of index.json in the archive, "" without this file.
        archive: the path of the archive, for the message.

    Raises:
        BadInput: the archive does not hold exactly one image.
    """
    try:
        found = json.loads(manifest)
        configs = [str(one["Config"]) for one in found]
    except (ValueError, KeyError, TypeError):
        configs = []
    if len(configs) != 1:
        raise BadInput(
            "container_image_archive=%s holds %d images instead of one: make the file with "
            "`docker save --output FILE IMAGE`" % (archive, len(configs))
        )
    try:
        manifests = [str(one["digest"]) for one in json.loads(index)["manifests"]]
    except (ValueError, KeyError, TypeError):
        manifests = []
    # Older archives have "<id>.json", newer archives have "blobs/sha256/<id>".
    return unique([configs[0].split("/")[-1].replace(".json", "")] + list(map(bare, manifests)))
