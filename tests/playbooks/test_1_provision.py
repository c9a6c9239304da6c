"""provision.yml on the local inventory: truthful, idempotent, and nowhere but in the state folder."""

import re


def changes(output):
    """{host: (changed, failed)} of the recap."""
    return {host: (int(changed), int(failed)) for host, changed, failed in re.findall(
        r"^(\S+)\s*: ok=\d+\s+changed=(\d+)\s+unreachable=0\s+failed=(\d+)", output, re.MULTILINE)}


def files(project):
    return {str(path.relative_to(project.path)) for path in project.path.rglob("*")
            if ".state" not in path.parts and "__pycache__" not in path.parts}


def test_check_mode_on_a_bare_tree_promises_and_does_nothing(bare_project):
    result = bare_project.run("provision.yml", "--check")
    assert result.code == 0, result.output
    assert any(changed for changed, _ in changes(result.output).values()), result.output
    left = [path for path in bare_project.path.glob(".state/*") if path.name not in ("ansible", "local")]
    left += [path for path in bare_project.path.glob(".state/local/*") if path.name != "tmp"]
    assert not left, left


def test_provision_writes_into_the_state_folder_only(bare_project):
    before = files(bare_project)
    result = bare_project.run("provision.yml")
    assert result.code == 0, result.output
    assert files(bare_project) == before
    assert list(bare_project.home.rglob("*")) == [] and list(bare_project.tmp.rglob("*")) == []


def test_a_second_run_changes_nothing(project):
    result = project.run("provision.yml")
    assert result.code == 0 and set(changes(result.output).values()) == {(0, 0)}, result.output


def test_check_mode_after_it_has_nothing_to_promise(project):
    result = project.run("provision.yml", "--check")
    assert result.code == 0 and set(changes(result.output).values()) == {(0, 0)}, result.output


def test_limit_to_one_node_leaves_the_records_of_the_others(project):
    before = sorted(path.name for path in project.path.glob(".state/local/nodes/*.json"))
    result = project.run("provision.yml", "--limit", "node2")
    assert result.code == 0, result.output
    assert before == sorted(path.name for path in project.path.glob(".state/local/nodes/*.json")) == [
        "node%d.json" % number for number in range(1, 5)]
