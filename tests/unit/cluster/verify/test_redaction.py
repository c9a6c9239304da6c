"""Only numbers, versions and public words stay in a text for other people."""

import pytest

from mxcluster.cluster.verify.redaction import HIDDEN, Redactor

REDACTOR = Redactor({"gpu7": "node1", "gpu7.lab.example.org": "node2", "10.20.0.3": "node3"})


@pytest.mark.parametrize(
    "secret",
    [
        "kanarienvogel",
        "hunter2!x",
        "192.0.2.77",
        "192.0.2.77:9091",
        "fe80::5054:ff:fe12:3456",
        "00:11:22:33:44:55",
        "/home/kanarienvogel/.ssh/id_ed25519",
        "~/mxcluster/jobs/kanarienvogel",
        "/opt/mxcluster/kanarienvogel",
        "/usr/local/kanarienvogel/lib64/libcudart.so.9.2",
        "kanarienvogel@gpu7",
        "gpu8.lab.example.org",
        "gpu7.other.example.org",
        "https://user:kanarienvogel@mirror.example.org/el7",
        "AAAAC3NzaC1lZDI1NTE5AAAAIKanarienvogelKanarienvogel",
        "GPU-8f3c1a2b-0000-4c1d-9d1e-000000000001",
        "MXCLUSTER_TOKEN=0123456789abcdef0123456789abcdef",
        "1234567890",
    ],
)
def test_a_word_of_the_site_is_hidden(secret):
    for text in ("%s", "failed (%s).", "'%s'", "password=%s", "%s: run provision.yml", "[%s]"):
        assert secret not in REDACTOR.text(text % secret), text
    assert REDACTOR.text("ssh failed (%s)" % secret) == "ssh failed (%s)" % HIDDEN


@pytest.mark.parametrize(
    "text",
    [
        "OSError: libcudart.so.9.2: cannot open shared object file: No such file or directory",
        "driver 396.26 is older than 396.37, which CUDA 9.2 needs: install a newer driver",
        "version GLIBC_2.27 not found (required by libmxnet.so)",
        "ssh: connect to host port 22: Connection refused",
        "/dev/shm has 12 MiB free, less than verify_min_shm_mb=32",
        "/usr/local/cuda-9.2/lib64/libcudart.so.9.2: undefined symbol: cudaRuntimeGetVersion",
        "/proc/driver/nvidia/version: Permission denied (publickey,password).",
    ],
)
def test_a_reason_that_helps_stays(text):
    found = REDACTOR.text(text)
    assert found == text or found == text.replace("verify_min_shm_mb=32", HIDDEN)


def test_nodes_have_the_names_of_the_report():
    text = "gpu7: ssh to gpu7.lab.example.org failed; 10.20.0.3 answers, gpu7, too"
    found = REDACTOR.text(text)
    assert found == "node1: ssh to node2 failed; node3 answers, node1, too"


def test_hidden_words_in_a_row_are_one():
    assert REDACTOR.text("qq7 xyzzy9 plugh1: failed") == "%s: failed" % HIDDEN
