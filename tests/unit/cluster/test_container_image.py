"""The recipe of an image, and the nodes without the image."""

import json

import pytest

from mxcluster.cluster.container_image import Wanted, distribution, ids_in, recipe
from mxcluster.errors import BadInput
from mxcluster.model.software import Environment

ENVIRONMENT = Environment.decode(
    {
        "name": "MXNet 1.9.1",
        "builds": [{"python": ["3.11"], "wheels": ["mxnet==1.9.1"], "pip": "pip==25.0.1"}],
        "hashes": {"mxnet==1.9.1": ["a" * 64], "pip==25.0.1": ["b" * 64, "c" * 64]},
    }
)
ANY, BUILT = Wanted(recipe="", ids=[]), Wanted(recipe="r1", ids=[])


def image(identity, made_of="r1"):
    return json.dumps(
        [{"Id": "sha256:" + identity, "Config": {"Labels": {"mxcluster.recipe": made_of}}}]
    )


def test_a_recipe_pins_every_wheel_and_changes_with_all_that_makes_the_image():
    made = recipe(ENVIRONMENT, "3.11", "debian:12", "FROM x")
    assert made.requirements == [
        "mxnet==1.9.1 --hash=sha256:" + "a" * 64,
        "pip==25.0.1 --hash=sha256:%s --hash=sha256:%s" % ("b" * 64, "c" * 64),
    ]
    assert made.digest == recipe(ENVIRONMENT, "3.11", "debian:12", "FROM x").digest
    for other in (("3.11", "debian:13", "FROM x"), ("3.11", "debian:12", "FROM y")):
        assert recipe(ENVIRONMENT, *other).digest != made.digest


def test_a_python_without_wheels_is_refused():
    with pytest.raises(BadInput, match="container_image_python=3.14.* one of Python 3.11"):
        recipe(ENVIRONMENT, "3.14", "debian:13", "")


@pytest.mark.parametrize(
    "seen,wanted,source,build,lacking",
    [
        ({"a": "[]", "b": ""}, BUILT, "a", True, ["b"]),
        ({"a": image("1"), "b": image("1")}, BUILT, "a", False, []),
        ({"a": "", "b": image("2", "")}, ANY, "b", False, ["a"]),
        ({"a": image("7"), "b": image("8")}, Wanted(recipe="", ids=["0", "7"]), "", False, ["b"]),
    ],
)
def test_only_nodes_with_another_image_get_one(seen, wanted, source, build, lacking):
    planned = distribution(seen, ["a", "b"], "training", wanted)
    assert (planned.source, planned.build, planned.lacking) == (source, build, lacking)


@pytest.mark.parametrize(
    "told",
    [
        "[7]",
        "null",
        '[{"Id": "../x"}]',
        '[{"Id": "7", "Config": {"Labels": ["r1"]}}]',
        '[{"Id": "7", "Config": {"Labels": {"mxcluster.recipe": ["r1"]}}}]',
        "[" * 100000,
        None,
    ],
)
def test_a_node_with_a_wrong_answer_counts_as_without_the_image(told):
    """The plan is made for all nodes at once, so one node must not end it."""
    planned = distribution({"a": image("1"), "b": told}, ["a", "b"], "training", BUILT)
    assert planned.encode() == {"source": "a", "id": "1", "build": False, "lacking": ["b"]}
    planned = distribution({"a": told, "b": image("1")}, ["a", "b"], "training", BUILT)
    assert planned.encode() == {"source": "a", "id": "", "build": True, "lacking": ["b"]}


def test_an_image_that_no_node_has_or_builds_is_refused():
    with pytest.raises(BadInput, match="no node has the image training"):
        distribution({"a": "[]", "b": ""}, ["a", "b"], "training", ANY)


def test_no_node_decides_between_two_images_of_the_name():
    """Before, the first node that claimed to have the image gave its own to all others."""
    seen = {"a": image("1"), "b": image("2")}
    with pytest.raises(BadInput, match="different images training .a: 1, b: 2.: .*_archive"):
        distribution(seen, ["a", "b"], "training", ANY)


def test_the_ids_of_an_archive_are_those_of_its_one_image():
    assert ids_in('[{"Config": "abc.json"}]', "", "x.tar") == ["abc"]
    index = '{"manifests": [{"digest": "sha256:def"}]}'
    assert ids_in('[{"Config": "blobs/sha256/abc"}]', index, "x.tar") == ["abc", "def"]
    for broken in ("", "{}", '[{"Config": "a.json"}, {"Config": "b.json"}]'):
        with pytest.raises(BadInput, match="instead of one.*docker save"):
            ids_in(broken, "", "x.tar")
