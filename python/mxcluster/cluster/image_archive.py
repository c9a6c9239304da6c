"""Check the archive of a container image that a node has saved, before other nodes load it.

The engine loads whatever the archive holds, so a node could replace any image of the others. The
archive must hold one image, with the wanted name and id. The engine checks the layers against the
image's configuration, and the id is the SHA-256 of the configuration.
"""

import hashlib
import json
import re
import tarfile
from typing import Dict, Set, Union

from mxcluster.cluster import container_image
from mxcluster.errors import DAMAGED, BadInput, shown

MOST_MEMBERS, MOST_BYTES = 10000, 1 << 23  # members of an archive; bytes of a file that is read
MOST_HEADER = 1 << 16  # bytes of an extended header, which tarfile reads into memory
NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")  # tags in index.json
CURE = (
    "If a program on the node has changed the archive, repair the node. Otherwise save the image "
    "by hand, and name the file in container_image_archive"
)


def check(path: str, name: str, identity: str) -> None:
    """Raise BadInput unless the archive holds one image, with this name and id only.

    Args: `path` of the archive on the controller; `name` of the image, container_image_name;
    `identity` the id of the image on the node.
    """
    try:
        _check(path, name, identity)
    except DAMAGED + (tarfile.TarError, EOFError) as error:
        raise BadInput(
            "the archive of the image %s is damaged (%s). %s" % (name, error, CURE)
        ) from error


def _check(path: str, name: str, identity: str) -> None:
    with tarfile.open(path, "r:", tarinfo=_Member) as archive:
        members = _members(archive)

        def read(member: str) -> bytes:
            found = members.get(member)
            stream = archive.extractfile(found) if found and found.isfile() else None
            if found is None or stream is None or found.size > MOST_BYTES:
                raise ValueError("it has no file %s of at most %d bytes" % (member, MOST_BYTES))
            return stream.read()

        (image,) = container_image.archived_images(json.loads(read("manifest.json").decode()))
        tags, ids = set(image.tags or ()), {_digest(read(image.config))}
        if "index.json" in members:
            index = container_image.ArchiveIndex.decode(json.loads(read("index.json").decode()))
            (entry,) = index.manifests
            annotations = entry.annotations or {}
            tags |= {annotations[key] for key in NAMES if key in annotations}
            blob = "blobs/sha256/" + container_image.bare(entry.digest)
            ids |= {_digest(read(blob))} if blob in members else set()
    wrong = sorted(tags - _tags(name))
    if wrong:
        raise BadInput(
            "the archive of the image %s would also name an image %s. %s"
            % (name, ", ".join(map(shown, wrong)), CURE)
        )
    if container_image.bare(identity) not in ids:
        raise BadInput(
            "the archive of the image %s holds another image than %s, which the node has named. %s"
            % (name, shown(identity), CURE)
        )


class _Member(tarfile.TarInfo):
    """A member of the archive. Headers that an engine could read in another way are refused."""

    @classmethod
    def frombuf(cls, buf: Union[bytes, bytearray], encoding: str, errors: str) -> "_Member":
        member = super().frombuf(buf, encoding, errors)
        kinds = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)
        if member.type == tarfile.XHDTYPE and member.size <= MOST_HEADER:
            return member
        if member.type not in kinds:
            raise ValueError("a member has the type %r" % member.type)
        return member


def _members(archive: tarfile.TarFile) -> Dict[str, tarfile.TarInfo]:
    """Return {name: member}. Raise ValueError if two members could be one file for an engine."""
    found, links = {}, set()  # type: Dict[str, tarfile.TarInfo], Set[str]
    for member in archive:
        parts = member.name.split("/")
        if member.issparse() or not all(
            re.match(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,255}$", part) for part in parts
        ):
            raise ValueError("a member has the name %s" % shown(member.name))
        if member.issym():  # earlier versions of docker link equal layers
            if parts[1:] != ["layer.tar"]:
                raise ValueError("%s is a link" % member.name)
            links.add(member.name)
        if member.name in found or len(found) >= MOST_MEMBERS:
            raise ValueError("it has %s twice, or too many members" % member.name)
        found[member.name] = member
    for name in found:
        if any(name.startswith(link + "/") for link in links):
            raise ValueError("%s is below a link" % name)
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _tags(name: str) -> Set[str]:
    """Return the forms in which an engine writes the name of an image into an archive."""
    tagged = name if ":" in name.split("/")[-1] else name + ":latest"
    short = re.sub(r"^docker\.io/(library/)?", "", tagged)
    forms = {tagged, short, "docker.io/" + short, short.rpartition(":")[2]}
    return forms if "/" in short else forms | {"localhost/" + short, "docker.io/library/" + short}
