"""Every MXNet version of the table, with and without MKL, goes through provision.yml and trains."""

import json

import pytest

from mxcluster.cluster import pairs, version_table
from tests.pythons import find_python

pytestmark = pytest.mark.soak  # the wheels have 500 MB, and each version takes most of a minute


def newest(mxnet, limit):
    """Return the newest Python up to `limit` that runs this MXNet."""
    known = pairs.pythons(mxnet)
    return [one for one in known if version_table.number(one) <= limit][-1]


# numpy 1 comes with Python 3.11, numpy 2 with 3.13.
BUILDS = [
    (mxnet, build, python)
    for mxnet, row in version_table.table().mxnet.items()
    for build in ("openblas", "mkl")
    if pairs.target("", build == "mkl") in row.wheels
    for python in sorted({newest(mxnet, (3, 11)), newest(mxnet, (3, 13))})
]


@pytest.mark.parametrize("mxnet, build, python", BUILDS)
def test_a_version_trains(project, mxnet, build, python):
    folder = project.small_inventory("mxnet-%s-%s-%s" % (mxnet, build, python))
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
