"""Tests for the stand-in and for a real CentOS 7, as a container or as a machine (real.sh).

They come last: train.yml refuses gpu2 until a test of the driver restarts it.
"""

import json
import re

from tests.recap import changes


def test_the_nodes_are_centos_7(cluster):
    """Ansible uses Python 2.7 there, and its facts report CentOS 7.9."""
    answer = cluster.command(
        "ansible",
        *cluster.inventories,
        "all",
        "-m",
        "setup",
        "-a",
        "gather_subset=distribution,pkg_mgr",
    )
    answers = [
        text.split("=> ", 1)[1]
        for text in re.split(r"\n(?=\w+ \| )", answer.output)
        if "=> {" in text
    ]
    facts = [json.loads(text)["ansible_facts"] for text in answers]
    assert {
        (
            one["ansible_distribution"],
            one["ansible_distribution_version"],
            one["ansible_pkg_mgr"],
            one["discovered_interpreter_python"],
        )
        for one in facts
    } == {("CentOS", "7.9", "yum", "/usr/bin/python")}, answer.output
    for name in cluster.names:
        ask = "/usr/bin/python -c 'import sys; print(sys.version_info[:2])'"
        assert cluster.shell(name, ask) == "(2, 7)"


def faults(repositories):
    """Return the lines of yum's repository file that name a dead mirror or switch signatures off.

    Args: `repositories` the text of CentOS-Base.repo. Its archive may be a mirror of the site.
    """
    if not re.search(r"^(baseurl|mirrorlist)=", repositories, re.MULTILINE):
        return ["no URL"]
    dead = r"(?:baseurl|mirrorlist)=\S*//mirror(?:list)?\.centos\.org\S*|metalink=\S*"
    unsigned = r"gpgcheck *= *(?:0|[Ff]alse|no)"
    return re.findall("^(?:%s|%s)" % (dead, unsigned), repositories, re.MULTILINE)


def test_its_repositories_are_archives_with_signatures(cluster):
    for name in cluster.names:
        if cluster.variables[name].get("el7_repos_manage", True):  # else the files are the site's
            files = cluster.shell(name, "cat /etc/yum.repos.d/CentOS-Base.repo")
            assert not faults(files), files


def test_mxnet_runs_on_its_python(cluster):
    """MXNet has the wanted version, on the version of Python that the inventory names."""
    program = "%s -c 'import sys; print(sys.version_info[:2])'"
    for name in cluster.names:
        known = cluster.variables[name]
        python = known.get("mxcluster_home", "/opt/mxcluster") + "/env/bin/python"
        user = known.get("mxcluster_user", "mxcluster") or "root"
        ask = python + " -c 'import mxnet; print(mxnet.__version__)'"
        found = cluster.shell(name, ask, user).splitlines()[-1]
        assert found == known.get("mxnet_version", "1.2.1")
        wanted = cluster.shell(name, program % known.get("mxnet_python", "/usr/bin/python3"))
        assert cluster.shell(name, program % python, user) == wanted


def test_a_second_run_changes_nothing_and_the_cluster_trains(cluster):
    result = cluster.play("provision.yml")
    assert result.code == 0, result.output
    assert not any(changes(result.output).values()), result.output
    job = cluster.train(kv="dist_gsync", num_epochs=8, gpus="")
    assert job.result.code == 0 and job.verdict["accuracy"] > 0.8, job.result.output
