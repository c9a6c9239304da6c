"""Drift of a provisioned node: which changes count, and which reason is shown."""

import json
import os
import pwd

import pytest

from mxcluster.cluster import drift
from mxcluster.model.node_record import NodeFacts, NodeRecord
from tests import ansible_modules, needs
from tests.pythons import find_python

SEEN = {
    "/etc/mxcluster/hosts": '["0100644", 0, 0, 12, "1.0", "1.0"]',
    "user trainer": '[7, 7, "/home/trainer", "/bin/sh"]',
}
FACTS = NodeFacts(gpus=0, hostname="node1", address_of_default_route="10.0.0.1")
RECORD = NodeRecord(python="/p", job_dir="/j", data_dir="/d", host="node1", **vars(FACTS))
LAYOUT = {"mxcluster_job_dir": "/opt/jobs", "mxcluster_user": "trainer"}
KNOWN = drift.State(digests={"a": "d", "b": "d"}, seen=SEEN, layout=LAYOUT)


def test_an_unchanged_node_has_no_drift():
    assert drift.why_before_asking(KNOWN, {"a": "d", "b": "d"}, {}) is None
    assert drift.why_before_asking(KNOWN, {"a": "d"}, {"b": "d"}) is None
    assert drift.why_cluster(KNOWN, {"b": "d"}) is None
    assert drift.why(KNOWN, SEEN, RECORD, FACTS) is None


def test_an_input_of_the_cluster_alone_changes_only_the_files_of_the_cluster():
    assert drift.why_before_asking(KNOWN, {"a": "d"}, {"b": "e", "c": "f"}) is None
    assert drift.why_cluster(KNOWN, {"b": "e", "c": "f"}) == (
        "b, c changed since the last provisioning"
    )
    why = "the node's settings have changed since the last provisioning: a"
    assert drift.why_before_asking(KNOWN, {"a": "e"}, {"b": "e"}) == why


def test_sources_records_and_variables_change_the_digest(tmp_path):
    """The project's sources, the records of all nodes, and the variables of the node count."""
    source, record = tmp_path / "roles" / "cuda" / "tasks" / "main.yml", tmp_path / "node1.json"
    source.parent.mkdir(parents=True)
    found = []

    def digests(wanted):
        sources = drift.of_sources(str(tmp_path))
        return sources, drift.of_files([str(record)]), drift.of_value(wanted)

    for text, told, wanted in [
        ("a", None, {}),
        ("b", None, {}),
        ("b", "{}", {}),
        ("b", "{ }", {}),
        ("b", "{ }", {"a": 1}),
    ]:
        source.write_text(text)
        if told is not None:
            record.write_text(told)
        found.append(digests(wanted))
        assert found[-1] == digests(wanted)
    assert len(set(map(repr, found))) == len(found)
    (tmp_path / "roles" / "x.pyc").write_text("Python's own")
    assert digests({"a": 1}) == found[-1]


def test_the_stored_state_is_private_and_torn_files_are_ignored(tmp_path):
    path = tmp_path / "drift" / "node1.json"
    assert drift.remembered(str(path)) == drift.State()
    drift.remember(str(path), KNOWN)
    assert drift.remembered(str(path)) == KNOWN and path.stat().st_mode & 0o777 == 0o600
    for broken in ("", "[]", "{"):
        path.write_text(broken)
        assert drift.remembered(str(path)) == drift.State()


def test_the_state_of_the_last_version_is_read(tmp_path):
    """It had a list for each file."""
    seen = {path: json.loads(state) for path, state in SEEN.items()}
    (tmp_path / "node1.json").write_text(json.dumps(dict(KNOWN.encode(), seen=seen)))
    assert drift.remembered(str(tmp_path / "node1.json")) == KNOWN


def test_a_state_of_an_older_version_tells_nothing_about_the_layout():
    changed = dict(LAYOUT, mxcluster_job_dir="/data/jobs")
    assert drift.moved(KNOWN, changed) == {"mxcluster_job_dir": ("/opt/jobs", "/data/jobs")}
    assert drift.moved(drift.State(seen=SEEN), changed) == {}


def test_bytecode_of_another_process_is_no_change_of_the_sources(tmp_path):
    """Python writes `NAME.pyc.NUMBER` and renames the file: another run may see it at any time."""
    (tmp_path / "plugins" / "__pycache__").mkdir(parents=True)
    (tmp_path / "plugins" / "one.py").write_text("")
    before = drift.of_sources(str(tmp_path))
    for name in ("one.cpython-311.pyc", "one.cpython-311.pyc.140230820374384"):
        (tmp_path / "plugins" / "__pycache__" / name).write_text("bytecode")
    assert drift.of_sources(str(tmp_path)) == before
    (tmp_path / "plugins" / "two.py").write_text("")
    assert drift.of_sources(str(tmp_path)) != before


def test_a_reset_forgets_all_but_the_files_that_stay(tmp_path):
    path = str(tmp_path / "drift" / "node1.json")
    assert not drift.forget(path, [], check=False)
    drift.remember(path, KNOWN)
    assert drift.forget(path, ["/etc/mxcluster/hosts", "/x"], check=True)
    assert drift.remembered(path) == KNOWN
    assert drift.forget(path, ["/etc/mxcluster/hosts", "/x"], check=False)
    kept = {"/etc/mxcluster/hosts": SEEN["/etc/mxcluster/hosts"]}
    assert drift.remembered(path) == drift.State(seen=kept)
    assert not drift.forget(path, ["/etc/mxcluster/hosts"], check=False)
    assert drift.forget(path, [], check=False) and not os.path.exists(path)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_a_node_reports_each_change(tmp_path, version):
    (tmp_path / "etc").mkdir()
    (tmp_path / "lib" / "of" / "it").mkdir(parents=True)
    hosts, link = tmp_path / "etc" / "hosts", tmp_path / "etc" / "link"
    deep = tmp_path / "lib" / "of" / "it" / "deep.py"
    hosts.write_text("10.0.0.1\n")
    deep.write_text("")
    link.symlink_to("hosts")

    def look():
        files = [str(tmp_path / name) for name in ("etc", "etc/*", "no/*", "lib/**")]
        return shown(tmp_path, version, files=files)

    first = look()
    folders = {str(tmp_path / name) for name in ("etc", "lib/of", "lib/of/it")}
    assert set(first) == folders | {str(hosts), str(link), str(deep)} and first == look()
    os.utime(str(hosts), (1, 1))
    second = look()
    assert {path for path in first if second[path] != first[path]} == {str(hosts)}
    hosts.chmod(0o600)
    link.unlink()
    link.symlink_to("other")
    third = look()
    assert {path for path in first if third[path] != second[path]} == {str(hosts), str(link)}
    (tmp_path / "etc" / "new").write_text("")
    assert set(look()) - set(first) == {str(tmp_path / "etc" / "new")}


def shown(folder, version, **given):
    """Return what the module answers under a node's Python."""
    return ansible_modules.run(
        "mxcluster_drift", folder, under=find_python(version), **dict({"files": []}, **given)
    )["seen"]


@pytest.mark.slow
@needs.root
@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_root_does_not_follow_the_training_users_links(tmp_path, version):
    """The module looks as that user, so a link leads no further than the user's permissions."""
    secret, link = tmp_path / "secret", tmp_path / "link"
    secret.mkdir(mode=0o700)
    (secret / "key").write_text("")
    link.symlink_to(secret)
    nobody = pwd.getpwnam("nobody")
    seen = shown(
        tmp_path, version, user="nobody", user_files=[str(link), str(link / "key"), "~/.bashrc"]
    )
    assert seen == {
        str(link): [str(secret)],
        "user nobody": [nobody.pw_uid, nobody.pw_gid, nobody.pw_dir, nobody.pw_shell],
    }
    assert shown(tmp_path, version, user="nobody-of-this-name", user_files=[str(link)]) == {}


@pytest.mark.slow
@needs.root
@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_a_path_that_other_users_can_change_is_reported(tmp_path, version):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        (folder / "env").mkdir(parents=True)
    roots = [str(folder / "env") for folder in (mine, theirs)]
    assert shown(tmp_path, version, roots=roots) == {}
    theirs.chmod(0o777)
    assert shown(tmp_path, version, roots=roots) == {"way to " + roots[1]: str(theirs)}
