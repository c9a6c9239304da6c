"""Every MXNet version of the table, with and without MKL, goes through provision.yml and trains."""

import json

import pytest

from mxcluster.cluster import pairs, version_table
from tests.pythons import find_python

pytestmark = pytest.mark.soak  # the wheels have 500 MB, and each version takes most of a minute

BUILDS = [
    (mxnet, build)
    for mxnet, row in version_table.table()["mxnet"].items()
    for build in ("openblas", "mkl")
    if pairs.target("", build == "mkl") in row["wheels"]
]


@pytest.mark.parametrize("mxnet, build", BUILDS)
def test_a_version_trains(project, mxnet, build):
    """The newest Python of 3.6 to 3.11 that runs this MXNet runs it here."""
    python = [one for one in pairs.pythons(mxnet) if version_table.number(one) <= (3, 11)][-1]
    folder = project.small_inventory("mxnet-%s-%s" % (mxnet, build))
    settings = folder / "group_vars" / "all.yml"
    text = settings.read_text()
    for old, new in (
        ('mxnet_python: "{{ ansible_playbook_python }}"', "mxnet_python: " + find_python(python)),
        ('mxnet_version: "1.9.1"', 'mxnet_version: "%s"\nmxnet_build: %s' % (mxnet, build)),
    ):
        assert old in text, old
        text = text.replace(old, new)
    settings.write_text(text)
    result = project.run("-i", folder, "provision.yml")
    assert result.code == 0, result.output
    record = json.loads(
        (project.path / ".state" / folder.name / "nodes" / "node1.json").read_text()
    )
    assert record["mxnet"] == mxnet and record["python_version"].startswith(python + "."), record
    result, run = project.train("-i", folder, kv="dist_sync", num_epochs=15)
    assert result.code == 0, result.output
    assert json.loads((run / "verdict.json").read_text())["accuracy"] >= 0.9, result.output
