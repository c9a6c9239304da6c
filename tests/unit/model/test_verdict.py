"""The verdicts of this and of the last version are read; a damaged one names its fault."""

import json
import pathlib

import pytest

from mxcluster.model.failures import KINDS
from mxcluster.model.shapes import Wrong
from mxcluster.model.verdict import Verdict

SAMPLES = pathlib.Path(__file__).parent / "samples" / "verdicts"
NAMES = sorted(path.name for path in SAMPLES.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_verdict_is_read_with_all_its_fields(name):
    content = json.loads((SAMPLES / name).read_text())
    failure = content["first_failure"]
    found = Verdict.decode(content).encode()
    if failure:  # the table of kinds replaces the field echo of the last version
        kind = found["first_failure"].pop("kind")
        assert kind == failure.pop("kind", kind) or kind in KINDS
        failure.pop("echo", None)
    assert found == content


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"accuracy": "x"}, "accuracy='x' is not a number"),
        ({"first_failure": {}}, "first_failure=.* is not an object with role, name"),
        ({"nodes": {"../x": "done"}}, "nodes.key='../x' is not the name of a host"),
        ({"exit_codes": {"worker-0": 10**9}}, "exit_codes.worker-0=1000000000 is not"),
    ],
)
def test_a_damaged_verdict_is_refused(wrong, words):
    content = dict(json.loads((SAMPLES / "failed.json").read_text()), **wrong)
    with pytest.raises(Wrong, match="^" + words):
        Verdict.decode(content)
