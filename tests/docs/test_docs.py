"""What is documented is what there is."""

import importlib.util
import json
import pathlib
import re
import subprocess

import pytest
import yaml

from mxcluster import options
from tools import docs

PROJECT = pathlib.Path(__file__).resolve().parents[2]
INTERNAL = ("preflight", "cluster_files")  # their variables are the playbooks' to set, not the person's
ROLES = sorted(path.name for path in (PROJECT / "roles").iterdir() if path.is_dir())


def defaults_of(role):
    path = PROJECT / "roles" / role / "defaults" / "main.yml"
    return (yaml.safe_load(path.read_text()) if path.exists() else None) or {}


def test_tables_are_up_to_date():
    assert docs.main(check=True) == 0, "run `make docs`"


def test_the_readme_is_short():
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 250


@pytest.mark.parametrize("role", ROLES)
def test_specs_are_the_defaults(role):
    assert set(docs.options_of(role)) == set(defaults_of(role))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_complete_and_its_files_are_short(role):
    folder = PROJECT / "roles" / role
    assert (folder / "README.md").exists() and (folder / "meta" / "argument_specs.yml").exists()
    for path in folder.glob("tasks/*.yml"):
        assert len(path.read_text().splitlines()) <= 80, path


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.name)
def test_a_knob_has_one_default(option):
    """In the role, in its specs and in the package."""
    name = "train_job_" + option.name
    given = defaults_of("train_job")[name]
    assert options.cast({option.name: given}) == options.cast({})
    assert docs.options_of("train_job")[name]["default"] == given


def test_the_secret_knob_is_no_option():
    """Options are in the plan, which everybody can read."""
    assert "secret_env" not in [option.name for option in options.OPTIONS]
    secrets = yaml.safe_load((PROJECT / "roles" / "train_job" / "vars" / "main.yml").read_text())["__train_job_secrets"]
    assert secrets == "{{ ('train_job' | mxcluster_knobs('secret_env')).secret_env | mxcluster_secret_env }}"


def test_every_knob_stands_commented_out_in_group_vars():
    text = (PROJECT / "group_vars" / "all.yml").read_text()
    assert yaml.safe_load(text) is None, "a value that is not commented out would beat the roles' defaults for everybody"
    named = set(re.findall(r"^# ([a-z0-9_]+): ", text, re.MULTILINE))
    assert named == {name for role in ROLES if role not in INTERNAL for name in defaults_of(role)}


def test_playbooks_see_group_vars():
    assert (PROJECT / "playbooks" / "group_vars").resolve() == PROJECT / "group_vars"


def test_collections_are_those_of_the_bundle():
    """The playbooks need none; what molecule's need must be what the bundle of requirements-dev.txt brings."""
    bundle = pathlib.Path(importlib.util.find_spec("ansible_collections").submodule_search_locations[0])
    wanted = yaml.safe_load((PROJECT / "requirements.yml").read_text())["collections"]
    assert wanted
    for collection in wanted:
        manifest = json.loads((bundle / collection["name"].replace(".", "/") / "MANIFEST.json").read_text())
        assert collection["version"] == manifest["collection_info"]["version"], collection["name"]


def test_no_host_key_is_taken_on_trust():
    """Nothing of ours tells ssh to believe whoever answers, or to forget whom it knew."""
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=PROJECT).decode().split("\0")
    ours = [PROJECT / name for name in tracked if name and not name.startswith("tests/") and (PROJECT / name).is_file()]
    assert len(ours) > 100
    for path in ours:
        text = path.read_text(errors="replace").lower()
        assert not re.search(r"stricthostkeychecking[ =]*(no|off|accept-new)|host_key_checking *[=:] *(no|false)"
                             r"|knownhostsfile[ =]*/dev/null", text), path


def test_centos_7_is_not_asked_for_dnf():
    """It has yum alone; what installs RPMs goes through ansible.builtin.yum, or package where any system is meant."""
    for folder in ("roles", "playbooks"):
        for path in (PROJECT / folder).rglob("*.yml"):
            assert not re.search(r"^\s*(- )?(ansible\.builtin\.|ansible\.legacy\.)?dnf5?:", path.read_text(), re.MULTILINE), path
