"""The check of a container image's archive from a node, before other nodes load the archive."""

import hashlib
import io
import json
import tarfile

import pytest

from mxcluster.cluster import image_archive
from mxcluster.errors import BadInput

NAME, CONFIG = "localhost/mxcluster", b'{"rootfs": {"diff_ids": []}}'
ID = hashlib.sha256(CONFIG).hexdigest()
BLOB = "blobs/sha256/" + ID
MANIFEST = {"Config": BLOB, "RepoTags": [NAME + ":latest"], "Layers": []}
ENTRY = {
    "digest": "sha256:" + ID,
    "annotations": {
        "io.containerd.image.name": NAME + ":latest",
        "org.opencontainers.image.ref.name": "latest",
    },
}


def member(name, content=b"", **fields):
    found = tarfile.TarInfo(name)
    found.size = len(content)
    for field, value in fields.items():
        setattr(found, field, value)
    return found, content


def as_json(name, value):
    return member(name, json.dumps(value).encode())


def link(name, target):
    return member(name, type=tarfile.SYMTYPE, linkname=target)


GOOD = as_json("manifest.json", [MANIFEST])
OTHER = dict(ENTRY, annotations={image_archive.NAMES[0]: "debian:12"})


def checked(tmp_path, *members, name=NAME, identity="sha256:" + ID):
    path = tmp_path / "image.tar"
    with tarfile.open(str(path), "w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    image_archive.check(str(path), name, identity)


@pytest.mark.parametrize(
    "name, tags",
    [
        (NAME, [NAME + ":latest"]),
        (NAME, None),
        ("mxcluster", ["mxcluster:latest"]),
        ("docker.io/library/mxcluster:2", ["mxcluster:2"]),
        ("site:5000/mxcluster", ["site:5000/mxcluster:latest"]),
    ],
)
def test_an_archive_of_the_one_image_is_accepted(tmp_path, name, tags):
    checked(
        tmp_path,
        member("blobs/", type=tarfile.DIRTYPE),
        member(BLOB, CONFIG),
        member("l1/layer.tar", b"x", pax_headers={"mtime": "1.5"}),
        link("l2/layer.tar", "../l1/layer.tar"),
        as_json("manifest.json", [dict(MANIFEST, RepoTags=tags)]),
        name=name,
    )


def test_the_id_may_be_that_of_the_manifest(tmp_path):
    """Docker with its images in containerd names an image by its manifest."""
    manifest = b"{}"
    identity = hashlib.sha256(manifest).hexdigest()
    files = [member(BLOB, CONFIG), member("blobs/sha256/" + identity, manifest), GOOD]
    index = as_json("index.json", {"manifests": [dict(ENTRY, digest="sha256:" + identity)]})
    checked(tmp_path, *files, index, identity=identity)


@pytest.mark.parametrize(
    "more, words",
    [
        ([as_json("manifest.json", [dict(MANIFEST, RepoTags=["debian:12"])])], "also .*debian:12"),
        ([GOOD, as_json("index.json", {"manifests": [ENTRY] * 2})], "damaged .too many values"),
        ([GOOD, as_json("index.json", {"manifests": [OTHER]})], "also name an image 'debian:12'"),
        ([as_json("manifest.json", [dict(MANIFEST, Config="other")])], "no file other"),
        ([member("manifest.json", b"[" * 100000)], "damaged"),
        ([], "no file manifest.json"),
        ([as_json("x/../manifest.json", [MANIFEST])], "the name 'x/../manifest.json'"),
        ([GOOD] * 2, "manifest.json twice"),
        ([link("manifest.json", "other.json")], "manifest.json is a link"),
        ([link("a/layer.tar", ".."), member("a/layer.tar/manifest.json"), GOOD], "below a link"),
        ([member("pipe", type=tarfile.FIFOTYPE)], "a member has the type b'6'"),
        ([member("big", pax_headers={"comment": "x" * 70000})], "a member has the type b'x'"),
    ],
)
def test_another_archive_is_refused(tmp_path, more, words):
    """Before, all nodes loaded the archive unread, so it could replace any image."""
    with pytest.raises(BadInput, match=words):
        checked(tmp_path, member(BLOB, CONFIG), *more)


def test_another_image_than_the_named_one_is_refused(tmp_path):
    """The file of the configuration may have the name of any digest."""
    for identity in ("0" * 64, ""):
        with pytest.raises(BadInput, match="holds another image than"):
            checked(tmp_path, member(BLOB, CONFIG), GOOD, identity=identity)
    with pytest.raises(BadInput, match="holds another image than"):
        checked(tmp_path, member(BLOB, b"{}"), GOOD)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "image.tar").write_bytes(b"x" * 2000)
    with pytest.raises(BadInput, match="is damaged"):
        image_archive.check(str(tmp_path / "image.tar"), NAME, ID)
