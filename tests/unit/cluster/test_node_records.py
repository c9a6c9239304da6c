"""Node records: what a node tells is believed as far as it matches, and no further."""
import json
import pathlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mxcluster import mesh, planning, records
from mxcluster.errors import BadInput

PROJECT = pathlib.Path(__file__).resolve().parents[2]
VARIABLES = yaml.safe_load((PROJECT / "roles" / "train_job" / "vars" / "main.yml").read_text())
TOLD = {"address_of_default_route": "10.0.0.2", "interfaces": {"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.2/24"], "ib0": []},
        "hostname": "b.lab", "host_keys": ["ssh-ed25519 AAAAC3Nz", "ssh-rsa AAAAB3Nz=="], "gpus": 2, "python_version": "3.6.8",
        "mxnet": "1.2.1", "numpy": "1.14.6", "model_zoo": ["alexnet", "squeezenet1.0"], "fingerprints": {"numpy": "0" * 64}}
PLACES = {"python": "/opt/mxcluster/env/bin/python", "job_dir": "/opt/mxcluster/jobs", "data_dir": "/opt/mxcluster/data",
          "target": "cu92", "bus": "2", "cuda": {"version": "9.2", "folder": "/usr/local/cuda-9.2", "cudnn": None, "gpus": 2},
          "ssh": {"public_key": "ssh-ed25519 AAAAC3Nz", "user": "mxcluster", "port": "22"}}


def made(**told):
    return records.make("b", dict(TOLD, **told), PLACES)


def test_what_is_as_it_should_be_stays_as_it_is():
    record = made()
    assert record == dict(TOLD, host="b", schema=records.SCHEMA, **dict(PLACES, bus=2, ssh=dict(PLACES["ssh"], port=22)))
    assert records.read("b", json.loads(json.dumps(record))) == record
    assert records.make("b", {}, dict(PLACES, cuda="", ssh={"public_key": "", "user": "", "port": "22"}))["cuda"] is None


@pytest.mark.parametrize("told, words", [
    ({"host_keys": ["ssh-ed25519 AAAA\n@cert-authority * ssh-ed25519 EVIL"]}, "host_keys[0]="),
    ({"host_keys": ["@cert-authority * ssh-ed25519 AAAA"]}, "host_keys[0]="),
    ({"host_keys": ["ssh-ed25519 AAAA comment"]}, "is not a public ssh key"),
    ({"host_keys": "ssh-ed25519 AAAA"}, "host_keys='ssh-ed25519 AAAA' is not a list"),
    ({"hostname": "b\n    ProxyCommand /tmp/evil"}, "hostname="), ({"hostname": "*"}, "is not a host name"),
    ({"hostname": "-oProxyCommand=evil"}, "hostname="), ({"hostname": "b a"}, "hostname="),
    ({"interfaces": {"eth0": ["10.0.0.2/24", "0.0.0.0/0"]}}, "interfaces.eth0[1]='0.0.0.0' is not the IPv4 address of a machine"),
    ({"interfaces": {"eth0; reboot": []}}, "is not the name of a network interface"),
    ({"interfaces": {"eth0": ["10.0.0.2/33"]}}, "interfaces.eth0[0]="), ({"interfaces": []}, "interfaces="),
    ({"address_of_default_route": "10.0.0.2 -j ACCEPT"}, "address_of_default_route="),
    ({"gpus": -1}, "gpus=-1"), ({"gpus": True}, "gpus=True"), ({"gpus": "2"}, "gpus='2'"),
    ({"mxnet": "1.2.1\x1b[2J"}, "mxnet='1.2.1"), ({"python_version": None}, "python_version=None"),
    ({"numpy": "1; rm"}, "numpy="), ({"model_zoo": ["alexnet", "../x"]}, "model_zoo[1]="),
    ({"fingerprints": {"numpy": "short"}}, "fingerprints.numpy="), ({"fingerprints": {"sh": "0" * 64}}, "fingerprints"),
])
def test_what_cannot_be_is_refused_by_node_and_field(told, words):
    with pytest.raises(BadInput) as refusal:
        made(**told)
    assert str(refusal.value).startswith("the node record of b is refused: ") and words in str(refusal.value)
    assert "run provision.yml" in str(refusal.value) and "\x1b" not in str(refusal.value)


@pytest.mark.parametrize("place", ["python", "job_dir", "data_dir", "ssh", "target", "cuda", "host", "schema"])
def test_no_path_comes_from_the_node(place):
    assert made(**{place: "/tmp/evil"}) == made()


def test_the_role_adds_all_that_does_not_come_from_the_node():
    """What it leaves out would be nobody's word: a job would count on no GPU, and miss none."""
    places = yaml.safe_load((PROJECT / "roles" / "node_record" / "vars" / "main.yml").read_text())["__node_record_places"]
    assert set(places) == set(records.PLACES)


def tasks_of(entries):
    """All tasks of a file, those in blocks too."""
    for entry in entries:
        yield entry
        for name in ("block", "rescue", "always", "tasks"):
            yield from tasks_of(entry.get(name) or [])


def test_what_root_runs_on_a_node_is_named_by_the_role():
    """Not by a record or a plan: what is in these may have been written on a node."""
    own = {"{{ mxcluster_env_dir }}/bin/python", "{{ __train_job_python }}"}
    folders = ("{{ mxcluster_job_dir }}", "{{ __train_job_folder }}")
    assert VARIABLES["__train_job_python"] in own
    assert VARIABLES["__train_job_folder"] == "{{ mxcluster_job_dir }}/{{ __train_job_planned.job }}"
    found = 0
    for path in [*PROJECT.glob("roles/*/*/*.yml"), *PROJECT.glob("playbooks/*.yml")]:
        content = yaml.safe_load(path.read_text())
        for task in tasks_of(content if isinstance(content, list) else []):
            for asked in [task["mxcluster_node"]] if "mxcluster_node" in task else []:
                found += 1
                assert asked["python"] in own, "%s: %s" % (path, asked["python"])
                for name in {"job_dir", "jobs_dir"} & set(asked):
                    assert asked[name].startswith(folders), "%s: %s" % (path, asked[name])
    assert found >= 12


def test_what_nobody_asked_for_is_dropped():
    assert made(ansible_facts={"x": 1}, anything=["else"]) == made()


def test_the_public_key_is_the_training_users_word_too():
    with pytest.raises(BadInput, match="ssh.public_key"):
        records.make("b", TOLD, dict(PLACES, ssh=dict(PLACES["ssh"], public_key='ssh-rsa AAAA\nssh-rsa BBBB')))


def test_records_on_disk_are_checked_when_they_are_read(tmp_path):
    """Those of earlier versions were written as the node told them."""
    (tmp_path / "b.json").write_text(json.dumps(made()))
    assert planning.read_records(str(tmp_path)) == {"b": made()}
    old = dict(TOLD, schema=1, host="b", python="/tmp/evil", job_dir="/opt/mxcluster/jobs", data_dir="/d", cuda=None, ssh={})
    (tmp_path / "b.json").write_text(json.dumps(old))
    read = planning.read_records(str(tmp_path))["b"]
    assert "python" not in read and read["interfaces"] == TOLD["interfaces"], "addresses serve provision.yml --limit"
    for hostile in (dict(old, host="a"), dict(old, hostname="x\nProxyCommand evil"), [], None):
        (tmp_path / "b.json").write_text(json.dumps(hostile))
        with pytest.raises(BadInput, match="the node record of b .*run provision.yml"):
            planning.read_records(str(tmp_path))


HOSTILE = st.one_of(st.text(max_size=30), st.sampled_from([
    "x\nProxyCommand evil", "@cert-authority", "*", "!b", "a b", 'x" ssh-rsa AAAA', "|1|x", "-oProxyCommand=evil", "a,*", "#"]))
WORDS = {"known_hosts": r"(\S+ )(ssh-\S+|ecdsa-\S+|sk-\S+) [A-Za-z0-9+/=]+",
         "config": r'(Host [^*?!"]+|    (HostName|IdentityFile|User|Port) \S+|# What follows .*|Match all)',
         "authorized_keys": r'from="[^" ]+" \S+ [A-Za-z0-9+/=]+ mxcluster:\S+'}


GOOD = {"name": "b.lab", "host key": "ssh-ed25519 AAAAC3Nz", "own key": "ssh-rsa AAAA", "user": "mx", "alias": "gate",
        "origin": "192.0.2.7", "host": "b"}


@pytest.mark.parametrize("which", sorted(GOOD))
@given(word=HOSTILE)
def test_no_word_becomes_two_in_ssh_files(which, word):
    """The renderers alone: records that have never been checked, and variables of whatever content. All others are as they
    should be, or each would hide what is let through elsewhere.
    """
    import re
    words = dict(GOOD, **{which: word})
    host = words["host"]
    record = {"hostname": words["name"], "host_keys": [words["host key"]], "interfaces": {},
              "ssh": {"public_key": words["own key"], "user": words["user"]}}
    variables = {host: {"ansible_host": words["alias"], "ssh_mesh_from": [words["origin"]]}}
    try:
        blocks = mesh.blocks({host: {"address": "10.0.0.2"}}, {host: record}, variables, "~/.ssh/k")
    except BadInput as refusal:
        known = "its ssh keys are not known here" if (which, word) == ("own key", "") else "ssh's files are not written"
        assert known in str(refusal) and "\n" not in str(refusal)
        return
    for block, allowed in WORDS.items():
        for line in blocks[block].split("\n"):
            assert re.fullmatch(allowed, line) and line[0] not in "@|#!*" or line.startswith("# What follows"), line
