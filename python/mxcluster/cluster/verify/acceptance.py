"""Make the report of an acceptance: the verdict and the facts of the nodes, without the site.

The report names the nodes node1, node2, ... in the order of the inventory. Facts that are versions
must look like versions. All other texts go through the Redactor.
"""

import json
import os
import re
import time
from typing import Dict, List, Mapping, Optional, Pattern, Sequence, Union

from mxcluster import file_io
from mxcluster.cluster.verify.redaction import HIDDEN, Redactor
from mxcluster.model import acceptance
from mxcluster.model.acceptance import Outcome, Report
from mxcluster.model.check_answer import (
    Checked,
    CheckError,
    CudaDriver,
    CudaProbe,
    CudaRuntime,
    GpuFacts,
    MxnetFacts,
    SystemFacts,
)
from mxcluster.model.cluster_verdict import ClusterVerdict
from mxcluster.model.node_record import Cuda
from mxcluster.model.plan import Node
from mxcluster.model.run_record import Controller

_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,2}")
# Of a kernel's release, the version and what distributions append. The rest may be a site's.
_KERNEL = re.compile(
    r"[0-9]{1,2}(\.[0-9]{1,6}){1,2}(?!\.?[0-9])(-[0-9]{1,6}(\.[0-9]{1,6}){0,2}(?!\.?[0-9]))?"
    r"(\.el[0-9](_[0-9]{1,2})?)?(\.x86_64|-amd64|-generic)?"
)
# The names that makers give to their products.
_CPU = re.compile(r"(Intel\(R\)|AMD|Common KVM) [A-Za-z0-9()@. -]{1,80}")
_GPU = re.compile(r"(NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID) [A-Za-z0-9()/. -]{1,60}")


def names(nodes: Mapping[str, Node]) -> Dict[str, str]:
    """Return {host: its name in the report}. Args: `nodes` of the plan."""
    return {host: "node%d" % number for number, host in enumerate(nodes, 1)}


def of(
    verdict: ClusterVerdict,
    nodes: Mapping[str, Node],
    answers: Mapping[str, Optional[Checked]],
    controller: Controller,
    now: float,
) -> Report:
    """Return the report.

    Args: `verdict` on the cluster; `nodes` of the plan; `answers` {host: check results of the node,
    or None without an answer}; `controller` its software; `now` the time in unix seconds.
    """
    hosts = names(nodes)
    redactor = Redactor(hosts)
    return Report(
        time=now,
        controller=controller,
        status=verdict.status,
        checks=[
            line.replaced(
                check=redactor.text(line.check), why=[redactor.text(why) for why in line.why]
            )
            for line in verdict.checks
        ],
        nodes=[_node(hosts[host], node, answers[host], redactor) for host, node in nodes.items()],
    )


def of_steps(controller: Controller, steps: Sequence[Outcome], now: float) -> Report:
    """Return the report of an acceptance run whose verify.yml has written no report.

    Args: `controller` its software; `steps` of the run; `now` the time in unix seconds.
    """
    return Report(time=now, controller=controller, status=2, steps=steps)


def outcome(host: str, known: Outcome) -> Outcome:
    """Return the end of a step without the site's words in the reason.

    Args: `host` the name or address of the only node, which is node1 in the inventory.
    """
    return known.replaced(why=Redactor({host: "node1", "node1": "node1"}).text(known.why))


def add_steps(path: str, steps: Sequence[Outcome]) -> None:
    """Add `steps` to the report in the file `path`. Raises BadInput if the file is damaged."""
    report = file_io.read_json(path, Report.decode)
    if report:
        file_io.replace(path, _text(report.replaced(steps=steps)))


def write(folder: str, report: Report) -> str:
    """Write `report` into `folder`, which may be missing, and return the path of the file.

    The name of the file has the time of the report.
    """
    moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(report.time))
    path = os.path.join(os.path.abspath(folder), "acceptance-%s.json" % moment)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file_io.replace(path, _text(report))
    return path


def _text(report: Report) -> str:
    return json.dumps(report.encode(), indent=1) + "\n"


def _node(name: str, node: Node, answer: Optional[Checked], redactor: Redactor) -> acceptance.Node:
    """Return the facts of a node. Without an answer only the build of the plan is known."""
    found = acceptance.Node(name=name, build=redactor.text(node.build))
    if answer is None:
        return found
    mxnet = answer.mxnet
    return found.replaced(
        mxnet=redactor.text(mxnet.mxnet if isinstance(mxnet, MxnetFacts) else mxnet.error),
        libmxnet=mxnet.libmxnet,
        system=_system(answer.system, redactor) if answer.system else None,
        cuda=_cuda(node.cuda, answer.gpus, redactor) if node.cuda and answer.gpus else None,
        seconds={redactor.text(name): taken for name, taken in answer.seconds.items()},
    )


def _system(facts: SystemFacts, redactor: Redactor) -> acceptance.System:
    kernel = _KERNEL.match(facts.kernel)
    return acceptance.System(
        distribution=redactor.text(facts.distribution),
        release=_version(facts.release),
        kernel=kernel.group() if kernel else "",
        selinux=facts.selinux,
        cpu=_product(_CPU, facts.cpu),
        cores=facts.cores,
        memory_mb=facts.memory_mb,
        versions={redactor.text(name): _version(text) for name, text in facts.versions.items()},
        driver=_version(facts.driver),
        gpus=[_product(_GPU, gpu) for gpu in facts.gpus],
    )


def _cuda(wanted: Cuda, facts: Union[CheckError, GpuFacts], redactor: Redactor) -> acceptance.Cuda:
    found = acceptance.Cuda(wanted=_version(wanted.release))
    if isinstance(facts, CheckError):
        return found.replaced(errors=[redactor.text(facts.error)])
    probe = facts.probe if isinstance(facts.probe, CudaProbe) else None
    driver = probe.driver if probe and isinstance(probe.driver, CudaDriver) else None
    runtime = probe.runtime if probe and isinstance(probe.runtime, CudaRuntime) else None
    return found.replaced(
        nvcc=_compiler(facts.nvcc or "", found.wanted),
        driver_api=driver.version if driver else 0,
        runtime=runtime.version if runtime else 0,
        cudnn=_version(facts.cudnn),
        cudnn_loaded=_version(probe.cudnn if probe else None),
        nccl_loaded=_version(probe.nccl if probe else None),
        nouveau=facts.nouveau,
        capabilities=[gpu.capability for gpu in driver.gpus] if driver else [],
        trials={
            trial: redactor.text(error) if error else "ok" for trial, error in facts.trials.items()
        },
        errors=[redactor.text(error) for error in _errors(facts)],
    )


def _errors(facts: GpuFacts) -> List[str]:
    """Return the errors of CUDA's libraries, and the libraries that the linker does not find."""
    found = ["%s: not found" % library for library in facts.unresolved]
    probe = facts.probe
    parts = [probe.driver, probe.runtime] if isinstance(probe, CudaProbe) else [probe]
    return found + [part.error for part in parts if isinstance(part, CheckError)]


def _compiler(version: str, release: str) -> str:
    """Return the version of nvcc. A patch adds a fourth number to `release`, as in 9.2.148.1."""
    head, _, patch = version.rpartition(".")
    is_patched = bool(release) and head == release and re.fullmatch(r"[0-9]{1,3}", patch)
    return version if is_patched else _version(version)


def _version(text: Optional[str]) -> str:
    """Return `text` if it is a version, else ""."""
    return text if text and _VERSION.fullmatch(text) else ""


def _product(makers: Pattern[str], name: str) -> str:
    """Return the name of a product if it begins with its maker, else HIDDEN."""
    return name if makers.fullmatch(name) else HIDDEN
