"""verify.yml checks the cluster; check mode asks the nodes and changes nothing."""

import json

import yaml

from tests.playbooks.conftest import NET


def test_broken_and_silent(project):
    """The exit status is 1 for a failed check, and 2 for a node without an answer.

    test_0_cores.py and molecule verify clusters without a fault.
    """
    groups = project.path / ".state" / "local" / "etc" / "groups"
    good = groups.read_text()
    groups.write_text(good.replace(NET + ".12", NET + ".99"))
    try:
        result = project.run("verify.yml")
    finally:
        groups.write_text(good)
    assert result.code == 1, result.output
    verdict = json.loads((project.path / ".state" / "local" / "verify.json").read_text())
    assert verdict["status"] == 1 and len(verdict["checks"]) == 11
    last = project.ansible_log().split("PLAY RECAP")[1]
    assert "node3: groups line 1: '%s.99' is not a worker" % NET in last, last
    assert "; groups: worker %s.12 is in no group" % NET in last, last

    folder = project.inventory("silent")
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())
    node4 = hosts["all"]["children"]["workers"]["hosts"]["node4"]
    node4.update(ansible_connection="ssh", ansible_host=NET + ".99", ansible_port=1)
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))
    result = project.run("verify.yml", "-i", folder)
    assert result.code == 2, result.output
    last = project.ansible_log().split("PLAY RECAP")[1]
    assert (
        "node4 (%s.99, port 1): cannot reach the node" % NET in result.output
        and "node4 does not answer" in last
    )
    for words in (
        "ok        MXNet has the distributed kv-store",
        "not run   clocks: not all nodes answer",
    ):
        assert words in last and words in result.output, (last, result.output)


def test_check_mode_starts_nothing(project):
    before = project.jobs()
    result, run = project.train("--check", detach=True)
    assert result.code == 0 and not run.exists() and project.jobs() == before, result.output
    assert "STARTED" not in result.output and not project.folders(run.name), result.output
    result = project.run("verify.yml", "--check")
    assert (
        result.code == 0 and "not run   clocks: a dry run starts no rendezvous" in result.output
    ), result.output
    assert not project.processes()
