"""The acceptance of a real machine (real.sh), with a node of the stand-in as the machine."""

import json
import subprocess
import sys

import pytest

from mxcluster.model.acceptance import PASSED, Report
from tools import acceptance

# The variables of a site with mirrors, and of the connection to a container.
SITE = (
    "nvidia_mirror",
    "nvidia_sha256",
    "nvidia_keys",
    "el7_repos_mirror",
    "el7_repos_vault",
    "el7_repos_epel",
    "el7_repos_epel_fingerprint",
    "cuda_store_dir",
    "mxnet_version",
    "train_job_env",
    "ansible_ssh_private_key_file",
    "node_host_key",
)


@pytest.mark.soak
def test_every_step_passes_and_the_report_names_nothing(cluster, tmp_path):
    """The unit tests show that a step that fails stops the steps that need it."""
    content = "\n".join("%s: {{ %s | to_json }}" % (name, name) for name in SITE)
    written = cluster.command(
        "ansible",
        *cluster.inventories,
        "gpu1",
        *"--connection local -e ansible_become=false -m ansible.builtin.copy -e".split(),
        json.dumps({"ansible_python_interpreter": sys.executable}),
        "-a",
        json.dumps({"content": content, "dest": str(tmp_path / "site.yml"), "mode": "0600"}),
    )
    assert written.code == 0, written.output
    address = cluster.variables["gpu1"]["ansible_host"]
    folder = tmp_path / "acceptance"
    argv = ["--yes", "--vars", str(tmp_path / "site.yml"), "--folder", str(folder), address]
    script = str(acceptance.PROJECT / "molecule" / "el7" / "real.sh")
    done = subprocess.run([script, *argv], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    output = done.stdout.decode()
    logs = "\n".join(path.read_text()[-3000:] for path in folder.glob("*.log"))
    assert done.returncode == 1, output + logs  # the stand-in has neither libcuda nor a GPU
    (path,) = (folder / "runs").glob("acceptance-*.json")
    text = path.read_text()
    report = Report.decode(json.loads(text))
    failed = {step.step for step in report.steps if step.result != PASSED}
    assert failed == {"verify", "train on GPUs"}, output + logs
    (node,) = report.nodes
    assert (node.system.distribution, node.system.release) == ("centos", "7.9.2009"), text
    assert node.build == "cu92" and node.mxnet == "1.2.1" and report.status == 1, text
    for word in (address, "gpu1", str(tmp_path), cluster.shell("gpu1", "cat /etc/machine-id")):
        assert word not in text, (word, text)
