"""Names of -e: a playbook of this run reads the name, or the run is refused."""

import pathlib
import re

import pytest
import yaml
from ansible.vars.reserved import is_reserved_name

from mxcluster.ansible import knobs

PROJECT = pathlib.Path(__file__).resolve().parents[3]
SOURCES = {
    path: path.read_text()
    for folder in ("playbooks", "roles")
    for path in PROJECT.glob(folder + "/**/*.yml")
}


def unknown(*names, playbooks=("train.yml",), inventory=()):
    documented = ("mxnet_version", "train_job_kv", "train_job_poll")
    return knobs.unknown(names, playbooks, documented, inventory)


@pytest.mark.parametrize(
    "playbook,name,words",
    [
        ("train.yml", "bath_size", "-e bath_size is unknown, because no role, playbook or invent"),
        ("stop.yml", "job_id", "-e job_id is a knob of mpi.yml, profile.yml and train.yml, and st"),
        ("provision.yml", "mxnet_verson", "(did you mean 'mxnet_version'?)"),
        ("train.yml", "poll", "(did you mean 'train_job_poll'?)"),
        ("train.yml", "_raw_params", "write -e name=value"),
    ],
)
def test_an_unknown_name_is_refused(playbook, name, words):
    problems = unknown(name, playbooks=[playbook])
    assert len(problems) == 1 and words in problems[0], problems


@pytest.mark.parametrize(
    "playbook,name",
    [
        ("train.yml", "batch_size"),
        ("train.yml", "attach"),
        ("stop.yml", "all"),
        ("status.yml", "train_job_kv"),
        ("provision.yml", "cluster_network"),
        ("provision.yml", "the_sites_own"),
    ],
)
def test_a_known_name_is_allowed(playbook, name):
    assert unknown(name, playbooks=[playbook], inventory=["the_sites_own"]) == []


def test_two_playbooks_read_the_names_of_both():
    assert unknown("kv", "job", playbooks=["train.yml", "logs.yml"]) == []


def test_the_inventory_may_define_a_knob_of_another_playbook():
    assert unknown("env", playbooks=["provision.yml"], inventory=["env"]) == []


def test_every_playbook_of_the_project_is_in_the_table():
    assert set(knobs.PLAYBOOKS) == {path.name for path in PROJECT.glob("playbooks/*.yml")}


@pytest.mark.parametrize("playbook", sorted(knobs.PLAYBOOKS))
def test_every_playbook_checks_the_names_first(playbook):
    first = yaml.safe_load(SOURCES[PROJECT / "playbooks" / playbook])[0]
    imported = first.get("ansible.builtin.import_playbook")
    if imported:
        first = yaml.safe_load(SOURCES[PROJECT / "playbooks" / imported])[0]
    begin = first["tasks"][0]
    assert begin["ansible.builtin.import_role"] == {"name": "preflight", "rolespec_validate": False}
    assert first["hosts"] == "all:localhost" and "when" not in begin
    assert set(first) <= {"name", "hosts", "run_once", "tags", "tasks"}
    assert [
        task
        for task in yaml.safe_load(SOURCES[PROJECT / "roles" / "preflight" / "tasks" / "main.yml"])
        if "mxcluster_preflight" in task and "when" not in task
    ]


@pytest.mark.parametrize("role", sorted(knobs.SHORT))
def test_the_short_names_match_the_roles_variables(role):
    defaults = yaml.safe_load((PROJECT / "roles" / role / "defaults" / "main.yml").read_text())
    of_role = set(defaults) - {"train_job_poll"}
    if role == "verify":  # the limits of its checks have no short names
        of_role = {name for name in of_role if not re.match("verify_(max|min)_", name)}
    assert {"%s_%s" % (role, name) for name in knobs.SHORT[role]} == of_role


def test_only_extra_variables_are_knobs():
    """A bare variable of the inventory (`env: production`) must not act as a knob."""
    names = {name for of_playbook in knobs.PLAYBOOKS.values() for name in of_playbook} - {
        "apply",
        "attach",
    }
    bare = re.compile(r"(?<![\w.'\"])(%s) *\| *default\(" % "|".join(sorted(names)))
    for path, text in SOURCES.items():
        assert not bare.search(text), "%s: read it through the filter mxcluster_knobs" % path


def test_no_name_is_a_word_of_ansible():
    """Ansible would show a warning about it in each run."""
    names = {name for playbook in knobs.PLAYBOOKS for name in knobs.PLAYBOOKS[playbook]}
    assert "notify_command" in names and not [name for name in names if is_reserved_name(name)]


def test_attach_allows_no_knob_of_the_plan():
    allowed = ["attach", "runs_dir", "without", "ansible_user", "mxcluster_home", "of_the_site"]
    assert knobs.beside_attach(allowed) == []
    problems = knobs.beside_attach(["attach", "lr", "kv"])
    assert [line.split(" is not ")[0] for line in problems] == ["-e kv", "-e lr"]
    assert problems[0].endswith("remove this knob")
