"""Node records: the controller checks each field of a node's answer."""

import json
import pathlib
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mxcluster.cluster import node_records, ssh_mesh
from mxcluster.errors import BadInput
from mxcluster.job.plan import addresses
from mxcluster.model import node_record
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.node_record import NodeRecord, Ssh

SAMPLES = pathlib.Path(__file__).parent / "samples" / "node_records"
PROJECT = pathlib.Path(__file__).resolve().parents[3]
VARIABLES = yaml.safe_load((PROJECT / "roles" / "train_job" / "vars" / "main.yml").read_text())
FACTS = {
    "address_of_default_route": "10.0.0.2",
    "interfaces": {"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.2/24"], "ib0": []},
    "hostname": "b.lab",
    "host_keys": ["ssh-ed25519 AAAAC3Nz", "ssh-rsa AAAAB3Nz=="],
    "gpus": 2,
    "python_version": "3.6.8",
    "mxnet": "1.2.1",
    "numpy": "1.14.6",
    "model_zoo": ["alexnet", "squeezenet1.0"],
    "modules": ["json", "mxnet"],
    "fingerprints": {"numpy": "0" * 64},
}
PLACES = {
    "python": "/opt/mxcluster/env/bin/python",
    "job_dir": "/opt/mxcluster/jobs",
    "data_dir": "/opt/mxcluster/data",
    "target": "cu92",
    "bus": "2",
    "cuda": {"version": "9.2", "folder": "/usr/local/cuda-9.2", "cudnn": None, "gpus": 2},
    "ssh": {"public_key": "ssh-ed25519 AAAAC3Nz", "user": "mxcluster", "port": "22"},
}


def made(**facts):
    return node_record.make("b", dict(FACTS, **facts), PLACES)


def test_a_record_has_the_facts_of_the_node_and_the_values_of_the_role():
    record = made()
    cuda = {"version": "9.2", "folder": "/usr/local/cuda-9.2", "sass": [], "gpus": 2}
    places = dict(PLACES, bus=2, cuda=cuda, ssh=dict(PLACES["ssh"], port=22))
    assert record.encode() == dict(FACTS, host="b", schema=2, wheel="", **places)
    assert NodeRecord.decode(record.encode()) == record
    nothing = dict(PLACES, cuda="", ssh={"public_key": "", "user": "", "port": "22"})
    in_check_mode = node_record.make("b", {}, nothing)
    assert in_check_mode.cuda is None and in_check_mode.ssh == Ssh()


@pytest.mark.parametrize("version", ["schema_1", "last", "this"])
def test_records_of_earlier_versions_are_read(version):
    found = node_records.read(str(SAMPLES / version))["alpha"]
    found.refuse_damaged()
    assert found.interfaces["eth0"] == ["10.0.0.2/24"], "provision.yml --limit needs the addresses"
    if version == "schema_1":
        assert found.python is None, "the node told this path, and root runs no such program"
        return
    assert found.python == "/opt/mxcluster/env/bin/python" and found.target == "cu92"
    assert found.cuda.folder == "/usr/local/cuda-9.2" and found.driver.loaded == "470.82.01"
    assert found.ssh == Ssh(public_key="ssh-ed25519 AAAAC3Nz", user="mxcluster", port=22)
    of_now = json.loads((SAMPLES / "this" / "alpha.json").read_text())
    of_now.update({"wheel": ""} if version == "this" else {"modules": [], "wheel": ""})
    assert found.encode() == of_now, "the format of the file is unchanged"


@pytest.mark.parametrize(
    "facts, words",
    [
        ({"host_keys": ["ssh-ed25519 AAAA\n@cert-authority * ssh-ed25519 EVIL"]}, "host_keys[0]="),
        ({"host_keys": ["ssh-ed25519 AAAA comment"]}, "is not a public ssh key"),
        ({"hostname": "b\n    ProxyCommand /tmp/evil"}, "hostname="),
        ({"hostname": "-oProxyCommand=evil"}, "hostname="),
        (
            {"interfaces": {"eth0": ["10.0.0.2/24", "0.0.0.0/0"]}},
            "interfaces.eth0[1]='0.0.0.0' is not the IPv4 address of a host",
        ),
        ({"interfaces": {"eth0; reboot": []}}, "is not the name of a network interface"),
        ({"address_of_default_route": "10.0.0.2 -j ACCEPT"}, "address_of_default_route="),
        ({"gpus": True}, "gpus=True"),
        ({"mxnet": "1.2.1\x1b[2J"}, "mxnet='1.2.1"),
        ({"model_zoo": ["alexnet", "../x"]}, "model_zoo[1]="),
        ({"modules": ["json", "os.path"]}, "modules[1]="),
        ({"fingerprints": {"sh": "0" * 64}}, "fingerprints"),
    ],
)
def test_an_invalid_field_is_refused_by_node_and_name(facts, words):
    with pytest.raises(BadInput) as refusal:
        made(**facts)
    text = str(refusal.value)
    assert text.startswith("the node record of b is invalid (") and words in text
    assert "run provision.yml" in text and "\x1b" not in text


@pytest.mark.parametrize(
    "place", ["python", "job_dir", "data_dir", "ssh", "target", "cuda", "host", "schema"]
)
def test_the_node_cannot_set_a_path(place):
    assert made(**{place: "/tmp/evil"}) == made()


def test_the_role_sets_all_fields_that_the_node_does_not_set():
    """A missing field would have no source: a job would expect no GPU and report none as lost."""
    variables = yaml.safe_load((PROJECT / "roles/node_record/vars/main.yml").read_text())
    assert set(variables["__node_record_places"]) == set(node_record.Places.FIELDS)


def tasks_of(entries):
    """Yield all tasks of a file, also those in blocks."""
    for entry in entries:
        yield entry
        for name in ("block", "rescue", "always", "tasks"):
            yield from tasks_of(entry.get(name) or [])


def test_the_role_names_each_program_that_root_runs_on_a_node():
    """A record or a plan may contain text of a node, so neither names a program."""
    own = {"{{ mxcluster_env_dir }}/bin/python", "{{ __train_job_python }}"}
    folders = ("{{ mxcluster_job_dir }}", "{{ train_job_folder }}")
    assert VARIABLES["__train_job_python"] in own
    assert VARIABLES["train_job_folder"] == "{{ mxcluster_job_dir }}/{{ train_job_planned.job }}"
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


def test_the_public_key_is_checked_as_the_users_answer():
    with pytest.raises(BadInput, match="ssh.public_key"):
        two = dict(PLACES["ssh"], public_key="ssh-rsa AAAA\nssh-rsa BBBB")
        node_record.make("b", FACTS, dict(PLACES, ssh=two))


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(dict(made().encode(), host="a")),
        json.dumps(dict(made().encode(), hostname="x\nProxyCommand evil")),
        json.dumps({name: value for name, value in made().encode().items() if name != "job_dir"}),
        "[]",
        "",
        "[" * 100000,
        json.dumps(made().encode()).replace("b", "\xff", 1),
    ],
)
def test_a_damaged_record_stops_only_the_jobs_of_its_host(tmp_path, content):
    (tmp_path / "a.json").write_text(json.dumps(dict(made().encode(), host="a")))
    (tmp_path / "b.json").write_bytes(content.encode("latin-1"))
    records = node_records.read(str(tmp_path))
    variables = HostVariables(node_address="10.0.0.2")
    assert addresses.locate("a", variables, records["a"]).address == "10.0.0.2"
    with pytest.raises(BadInput, match="b: .*/b.json is damaged .*run provision.yml for this host"):
        addresses.locate("b", variables, records["b"])
    with pytest.raises(BadInput, match="b: .*/b.json is damaged .*run provision.yml for this host"):
        ssh_mesh.blocks({"a": {}, "b": {}}, records, dict.fromkeys("ab", variables), "/key")


def test_an_unreadable_folder_is_no_folder_without_records(tmp_path):
    """The message would name the nodes, which have records."""
    assert node_records.read(str(tmp_path / "nodes")) == {}
    (tmp_path / "nodes").write_text("")
    with pytest.raises(OSError):
        node_records.read(str(tmp_path / "nodes"))


HOSTILE = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["x\nProxyCommand evil", "@cert-authority", "*", "!b", "a b"]),
    st.sampled_from(['x" ssh-rsa AAAA', "|1|x", "-oProxyCommand=evil", "a,*", "#"]),
)
WORDS = {
    "known_hosts": r"(\S+ )(ssh-\S+|ecdsa-\S+|sk-\S+) [A-Za-z0-9+/=]+",
    "config": r'(Host [^*?!"]+|    (HostName|IdentityFile|User|Port) \S+|# The next lines .*|Match '
    r"all)",
    "authorized_keys": r'from="[^" ]+" \S+ [A-Za-z0-9+/=]+ mxcluster:\S+',
}


GOOD = {
    "name": "b.lab",
    "host key": "ssh-ed25519 AAAAC3Nz",
    "own key": "ssh-rsa AAAA",
    "user": "mx",
    "alias": "gate",
    "origin": "192.0.2.7",
    "host": "b",
}


@pytest.mark.parametrize("which", sorted(GOOD))
@given(word=HOSTILE)
def test_no_value_adds_a_word_to_ssh_files(which, word):
    """The renderers alone, with unchecked records and any variables.

    All other values are valid, since a second bad value would hide a mistake elsewhere.
    """
    words = dict(GOOD, **{which: word})
    host = words["host"]
    record = NodeRecord(
        host="b",
        job_dir="/jobs",
        data_dir="/data",
        hostname=words["name"],
        host_keys=[words["host key"]],
        ssh=Ssh(public_key=words["own key"], user=words["user"]),
    )
    own = HostVariables(ansible_host=words["alias"], ssh_mesh_from=[words["origin"]])
    try:
        blocks = ssh_mesh.blocks(
            {host: ssh_mesh.Node(address="10.0.0.2")}, {host: record}, {host: own}, "~/.ssh/k"
        )
    except BadInput as refusal:
        known = (
            "the controller lacks the ssh keys"
            if (which, word) == ("own key", "")
            else "mxcluster cannot write ssh's files"
        )
        assert known in str(refusal) and "\n" not in str(refusal)
        return
    for block, allowed in WORDS.items():
        for line in blocks[block].split("\n"):
            is_allowed = re.fullmatch(allowed, line) and line[0] not in "@|#!*"
            assert is_allowed or line.startswith("# The next lines"), line
