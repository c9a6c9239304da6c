"""The rows about MXNet on each GPU: its installation, gpu_trial, and verify.yml."""

import json
import os

import pytest

from mxcluster.cluster.verify import gpus as judged
from mxcluster.model.cluster_verdict import FAILED, NOT_RUN, OK, ClusterVerdict
from mxcluster.node import gpu_check
from tests.gpu import figures, gates
from tests.gpu.gates import CUDART, IDLE, MXNET, TWO


@pytest.mark.row("provision.yml installs MXNet for the GPUs", MXNET)
def test_the_cluster_is_provisioned(here, provisioned, seen):
    seen(here.mxnet.described)
    assert not provisioned.problem, provisioned.problem


def trials(cluster):
    """Return {GPU or pair: error or None} of gpu_trial on all GPUs, under the nodes' Python."""
    environment = dict(os.environ, **cluster.project.environment)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    count = len(cluster.here.gpus)
    return gpu_check.trials(count, environment, str(cluster.state / "env" / "bin" / "python"))


@pytest.mark.row("gpu_trial: kernels, cuBLAS and cuDNN on every GPU", MXNET, IDLE)
def test_mxnet_computes_on_every_gpu(cluster, seen):
    found = {name: why for name, why in trials(cluster).items() if "->" not in name}
    seen(", ".join("GPU %s %s" % (name, why or "right") for name, why in found.items()))
    assert set(found.values()) == {None}


@pytest.mark.row("gpu_trial: copies between all GPUs", MXNET, TWO, IDLE)
def test_mxnet_copies_between_gpus(cluster, seen):
    found = {name: why for name, why in trials(cluster).items() if "->" in name}
    seen(", ".join("%s %s" % (name, why or "right") for name, why in found.items()))
    assert set(found.values()) == {None}


@pytest.mark.row("verify.yml: its checks of GPUs", MXNET, IDLE)
def test_verify_checks_the_gpus(cluster, seen):
    if not cluster.cuda:  # a prepared MXNet may need none
        pytest.skip(gates.missing([CUDART], cluster.here))
    result = cluster.run("verify.yml", "box")
    path = cluster.state / "verify.json"
    assert path.exists(), figures.last_words(result.output)
    verdict = ClusterVerdict.decode(json.loads(path.read_text()))
    labels = [label for label, _ in judged.CHECKS]
    lines = [line for line in verdict.checks if line.check in labels]
    by = {kind: [line for line in lines if line.result == kind] for kind in (OK, NOT_RUN, FAILED)}
    for kind, some in by.items():
        seen("%s: %s" % (kind, ", ".join(line.check for line in some) or "none"))
    assert not by[FAILED], "; ".join(
        "%s: %s" % (one.check, "; ".join(one.why)) for one in by[FAILED]
    )
    assert {line.check for line in lines} == set(labels), "verify.yml has not checked all"
    assert len(by[OK]) >= 5, figures.last_words(result.output)
