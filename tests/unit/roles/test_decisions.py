"""What tasks decide in situations that are rare: their own expressions, carried out by Ansible."""
import pathlib

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"


def task(path, module, arguments=None):
    """The one task of a file that runs this module (with these arguments)."""
    def all_of(entries):
        for entry in entries:
            yield entry
            yield from all_of(entry.get("block") or [])
    found = [one for one in all_of(yaml.safe_load((ROLES / path).read_text()))
             if module in one and arguments in (None, one[module])]
    assert len(found) == 1, (path, module, found)
    return found[0]


def decided(expression, **variables):
    """What Ansible makes of an expression without braces."""
    return Templar(DataLoader(), variables=variables).template("{{ %s }}" % expression)


@pytest.mark.parametrize("lost, attached, undone", [(["b"], False, True), (["a", "b"], False, True), ([], False, False),
                                                    (["b"], True, False)])
def test_a_job_that_one_node_could_not_start_is_undone(lost, attached, undone):
    condition = task("train_job/tasks/main.yml", "ansible.builtin.include_tasks", "undo.yml")["when"]
    assert decided(condition, __train_job_attached=attached, __train_job_not_started=lost) is undone


def test_who_only_attaches_does_not_end_a_job_that_he_cannot_reach():
    keeper = task("train_job/tasks/follow.yml", "mxcluster_node")["mxcluster_node"]["keeper"].strip("{} ")
    assert decided(keeper, __train_job_attached=True) is False and decided(keeper, __train_job_attached=False) is True


def test_stop_fails_if_anything_may_be_left():
    condition = task("jobs/tasks/stopped.yml", "ansible.builtin.assert")["ansible.builtin.assert"]["that"]
    assert decided(condition, __jobs_told={"ok": False}) is False and decided(condition, __jobs_told={"ok": True}) is True


def test_a_node_that_has_left_with_the_shared_key_is_not_forgotten():
    """Its record is what reminds the person to make a new key."""
    loop = task("ssh_mesh/tasks/main.yml", "ansible.builtin.file")["loop"].strip("{} ")
    found = decided(loop, __ssh_mesh={"gone": ["a", "b"], "still_hold": ["b"]})
    assert found == [["a", "nodes"], ["a", "drift"]] or found == [("a", "nodes"), ("a", "drift")]
