"""The files that this and the last version wrote are read with all their fields."""

import json
import pathlib

import pytest

from mxcluster.cluster import profile
from mxcluster.job.sweep import results, specs, stages, summary
from mxcluster.model.checkpoint import CheckpointManifest, ServerManifest
from mxcluster.model.profile import Profile

SAMPLES = pathlib.Path(__file__).parent / "samples"


def read(*path):
    return json.loads(SAMPLES.joinpath(*path).read_text())


def test_a_profile():
    found = profile.of_file(str(SAMPLES / "profile" / "profile.json"))
    assert found.encode() == read("profile", "profile.json")
    assert found == Profile.decode(found.encode())


@pytest.mark.parametrize("name", ["benchmark", "compare"])
def test_the_files_of_a_sweep(name):
    folder = SAMPLES / "sweeps" / name
    content = read("sweeps", name, "sweep.json")
    spec = specs.checked(content, content["sweep"], "sweep.json")
    assert spec.encode() == content
    records = results.read(str(folder), spec)
    lines = (folder / "results.jsonl").read_text().splitlines()
    assert [one.encode() for one in records.values()] == [json.loads(line) for line in lines]
    assert results.as_csv(list(records.values())) == (folder / "results.csv").read_text()
    assert stages.next_jobs(spec, records) == []
    assert summary.text(spec, records, "x")[0] == "OK        sweep %s: 2 jobs" % content["sweep"]


def test_the_manifests_of_a_checkpoint():
    for name, kind in (
        ("mlp-0005.json", CheckpointManifest),
        ("mlp-0005.server-0.json", ServerManifest),
    ):
        assert kind.decode(read("checkpoint", name)).encode() == read("checkpoint", name)
