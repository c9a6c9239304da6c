"""Names in the files of an inventory: a misspelt name is refused with the nearest name."""

import os
import pathlib

import pytest

from mxcluster.ansible import inventory_names, role_specs

PROJECT = pathlib.Path(__file__).resolve().parents[3]
ROLES = os.listdir(PROJECT / "roles")
DOCUMENTED = role_specs.documented(str(PROJECT))


def check(*names, site=()):
    return inventory_names.check(names, DOCUMENTED, ROLES, site)


@pytest.mark.parametrize(
    "name, known",
    [
        ("train_job_num_epoch", "train_job_num_epochs"),
        ("mxnet_verson", "mxnet_version"),
        ("worker_shar", "worker_share"),
        ("work_share", "worker_share"),
        ("slodwown", "slowdown"),
        ("gpu_speds", "gpu_speeds"),
        ("mxcluster_homr", "mxcluster_home"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_name(name, known):
    found = check(name)
    (problem,) = found.problems
    assert "%s is unknown (did you mean %s?): correct the name" % (name, known) in problem
    assert found.notes == []


@pytest.mark.parametrize("name", ["train_job_learning_rate_of_all", "mxcluster_folder_of_nodes"])
def test_an_unknown_name_of_mxcluster_is_refused_without_a_near_name_too(name):
    (problem,) = check(name).problems
    assert name + " is unknown, because mxcluster has no variable of this name" in problem
    assert "mxcluster_site_variables" not in problem


def test_another_unknown_name_with_a_roles_prefix_is_a_note_until_the_site_claims_it():
    found = check("cuda_of_the_rack")
    assert found.problems == [] and "begins with the name of a role" in found.notes[0]
    assert check("cuda_of_the_rack", site=["cuda_of_the_rack"]) == ([], [])
    assert check("worker_shar", site=["worker_shar"]) == ([], [])


@pytest.mark.parametrize(
    "name",
    ["rack", "ansible_prot", "env", "train_job_kv", "worker_share", "_own", "cpu_cores", "site"],
)
def test_other_names_are_accepted(name):
    """A bare short name is reported by the plan, and sets no knob."""
    assert check(name) == ([], [])


@pytest.mark.parametrize(
    "one, other, edits",
    [("", "", 0), ("", "ab", 2), ("share", "shar", 1), ("lr", "rl", 1), ("kitten", "sitting", 3)],
)
def test_the_distance_counts_letters_and_swaps(one, other, edits):
    assert inventory_names.distance(one, other) == edits
    assert inventory_names.distance(other, one) == edits
