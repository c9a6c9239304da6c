"""Decide the contents of the container image of the jobs, and find the nodes without the image.

All functions are pure.
"""

import hashlib
import json
from typing import List, Mapping, Optional, Sequence

from mxcluster.cluster import wheels
from mxcluster.errors import BadInput
from mxcluster.lists import unique
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, flag, matching, optional, table, text
from mxcluster.model.software import Environment

LABEL = "mxcluster.recipe"  # the label of the image with the digest of its recipe


class Wanted(Record):
    """The image that all nodes must have. "" and [] accept each image of the name."""

    recipe: str = field(text)
    """The digest of the recipe."""
    ids: Sequence[str] = field(each(text))
    """The possible ids, of an archive."""


class Distribution(Record):
    """The node that gives the image, and the nodes that get the image."""

    source: str = field(text)
    """The node with the wanted image, empty if an archive gives the image. With a recipe this is
    the first node, because a node that only claims to have the image could decide what the others
    run."""
    id: str = field(text)
    """The id of the image on this node, empty without the image."""
    build: bool = field(flag)
    """True if this node has to build the image first."""
    lacking: Sequence[str] = field(each(text))
    """The nodes without the image, or with another image of this name."""


class _Config(Record):
    """The configuration in `image inspect`. A node without labels has the value null."""

    labels: Optional[Mapping[str, str]] = field(
        optional(table(text, text)), key="Labels", default=None
    )


class _Image(Record):
    """The fields of `image inspect` that decide."""

    id: str = field(matching(r"(sha256:)?[0-9a-f]+", "the id of an image", 200), key="Id")
    config: _Config = field(record(_Config), key="Config", default=_Config())


_inspected = each(record(_Image))


class ArchivedImage(Record):
    """An image in manifest.json of an archive."""

    config: str = field(text, key="Config")
    """The file of the configuration."""
    tags: Optional[Sequence[str]] = field(optional(each(text)), key="RepoTags", default=None)


class ArchivedManifest(Record):
    """A manifest in index.json of an archive."""

    digest: str = field(text)
    annotations: Optional[Mapping[str, str]] = field(optional(table(text, text)), default=None)


class ArchiveIndex(Record):
    """The content of index.json of an archive."""

    manifests: Sequence[ArchivedManifest] = field(each(record(ArchivedManifest)))


archived_images = each(record(ArchivedImage))  # the content of manifest.json


def recipe(environment: Environment, python: str, base: str, dockerfile: str) -> wheels.Need:
    """Return the recipe of the image: the wheels, and a digest that changes with each argument.

    The action `mxcluster_downloads` accepts the recipe as the needs of a node.

    Args:
        environment: the environment of a node.
        python: the version of Python in the image, such as "3.11".
        base: the name of the base image.
        dockerfile: the text of the Dockerfile.

    Raises:
        BadInput: the table of versions has no wheels for this Python.
    """
    if environment.build_for(python) is None:
        raise BadInput(
            "container_image_python=%s is refused, because %s has no wheels for it: choose a "
            "container_image_base with one of Python %s, and set container_image_python to it"
            % (python, environment.name, ", ".join(sorted(set(environment.pythons()))))
        )
    need = wheels.needs(environment, python)
    made_of = json.dumps([python, base, dockerfile, need.requirements])
    return need.replaced(digest=hashlib.sha256(made_of.encode()).hexdigest())


def distribution(
    seen: Mapping[str, Optional[str]], hosts: Sequence[str], name: str, wanted: Wanted
) -> Distribution:
    """Return the node that gives the image, and the nodes that get the image.

    Args:
        seen: {host: output of `image inspect`, "" without the image}. A node with another output
            counts as a node without the image.
        hosts: the nodes in the order of the inventory.
        name: the name of the image.
        wanted: the image that all nodes must have.

    Raises:
        BadInput: no node has the image, and nothing builds the image. Or nodes have different
            images, and neither a recipe nor an archive decides between them.
    """
    found = {host: _image(seen.get(host)) for host in hosts}
    ids = {host: bare(image.id) if image else "" for host, image in found.items()}
    if wanted.ids:  # an archive of the controller has the image
        other = [host for host in hosts if ids[host] not in wanted.ids]
        return Distribution(source="", id="", build=False, lacking=other)
    if wanted.recipe:
        right = [host for host in hosts[:1] if _recipe(found[host]) == wanted.recipe]
    else:
        right = [host for host in hosts if found[host]]
    if not right and not wanted.recipe:
        raise BadInput(
            "no node has the image %s: load the image on one node, or name a file of the image in "
            "container_image_archive, or name the base of a new image in container_image_base"
            % name
        )
    if len({ids[host] for host in right}) > 1:
        raise BadInput(
            "the nodes have different images %s (%s): save the wanted image with `docker save "
            "--output FILE %s`, and name the file in container_image_archive"
            % (name, ", ".join("%s: %s" % (host, ids[host][:12]) for host in right), name)
        )
    source = (right or list(hosts))[0]
    image = ids[source] if right else ""
    other = [host for host in hosts if host != source and (not image or ids[host] != image)]
    return Distribution(source=source, id=image, build=not right, lacking=other)


def _image(answer: object) -> Optional[_Image]:
    """Return the answer of a node about its image, None without the image or for another text."""
    try:
        found = _inspected(json.loads(text(answer)))
    except (ValueError, RecursionError):  # Wrong is a ValueError
        return None
    return found[0] if found else None


def _recipe(image: Optional[_Image]) -> str:
    return (image.config.labels or {}).get(LABEL, "") if image else ""


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
        found = archived_images(json.loads(manifest))
    except (ValueError, RecursionError):
        found = []
    if len(found) != 1:
        raise BadInput(
            "container_image_archive=%s holds %d images instead of one: make the file with "
            "`docker save --output FILE IMAGE`" % (archive, len(found))
        )
    try:
        manifests = [one.digest for one in ArchiveIndex.decode(json.loads(index)).manifests]
    except (ValueError, RecursionError):
        manifests = []
    # Older archives have "<id>.json", newer archives have "blobs/sha256/<id>".
    config = found[0].config.split("/")[-1].replace(".json", "")
    return unique([config, *map(bare, manifests)])
