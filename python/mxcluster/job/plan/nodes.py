"""Make the nodes of a plan from the node records, and check the records."""

import posixpath
from typing import Dict, Iterable, Mapping

from mxcluster.cluster.driver import restarts
from mxcluster.errors import refuse
from mxcluster.job.plan import containers
from mxcluster.lists import grouped, unique
from mxcluster.model.job_knobs import HOST, Options
from mxcluster.model.node_record import NodeRecord
from mxcluster.model.plan import Node, Place


def nodes_of(
    places: Mapping[str, Place],
    records: Mapping[str, NodeRecord],
    job: str,
    options: Options,
) -> Dict[str, Node]:
    """Return {host: its node in the plan} of a training.

    Raises BadInput if a node is not provisioned, or if the versions of MXNet differ.
    """
    check_provisioned(places, records)
    check_versions(places, records)
    nodes = {}
    for host, place in places.items():
        record = records[host]
        folders = (options.data_dir, record.data_dir, record.cuda.folder if record.cuda else "")
        nodes[host] = node_of(place, record, job).replaced(
            cuda=record.cuda,
            mounts=None if options.runtime == HOST else containers.mounts(*folders),
        )
    return nodes


def node_of(place: Place, record: NodeRecord, job: str) -> Node:
    """Return the node of a plan, without CUDA."""
    return Node(
        address=place.address,
        interface=place.interface,
        job_dir=posixpath.join(record.job_dir, job),
        python=record.python or "",
        build=record.target,
    )


def check_provisioned(hosts: Iterable[str], records: Mapping[str, NodeRecord]) -> None:
    """Refuse nodes whose driver waits for a restart, and records without the path of Python.

    Other versions of mxcluster wrote such records (`node_record.from_file`).
    """
    waiting = restarts({host: records[host] for host in hosts})
    refuse(
        "%s: %s, and only a restart can change this: restart %s, then run provision.yml again"
        % (host, why, host)
        for host, why in waiting.items()
    )
    refuse(
        "%s: another version of mxcluster has provisioned the node: run provision.yml" % host
        for host in hosts
        if not records[host].python
    )


def check_versions(hosts: Iterable[str], records: Mapping[str, NodeRecord]) -> None:
    """Refuse nodes with different versions of MXNet.

    Also refuse nodes with the same build of MXNet, such as cu92, but different files libmxnet.so.
    Nodes with a CPU build and nodes with a GPU build may share a job.

    Each version of MXNet has a different protocol between servers and workers. The versions of
    Python and numpy may differ, because optimizers travel as JSON (`kvstore.optimizer_json`).
    """
    problems = []
    versions = grouped((records[host].mxnet or "unknown", host) for host in hosts)
    if len(versions) > 1:
        problems.append(
            "the nodes have different versions of MXNet (%s), and a job needs one version: set the "
            "same mxnet_version for these nodes, and run provision.yml"
            % "; ".join("%s: %s" % (version, ", ".join(versions[version])) for version in versions)
        )
    libraries = {host: records[host].fingerprints.get("libmxnet.so", "") for host in hosts}
    # The files libmxnet.so of GPU builds and CPU builds differ, so compare nodes with equal builds.
    for target in unique(records[host].target for host in hosts):
        builds = grouped(
            (digest, host)
            for host, digest in libraries.items()
            if digest and records[host].target == target
        )
        if len(builds) > 1:
            problems.append(
                "the nodes have different builds of libmxnet.so (sha256 %s): remove the folder "
                "mxcluster_env_dir on the nodes with the wrong build, and run provision.yml"
                % "; ".join(
                    "%s: %s" % (digest[:12], ", ".join(builds[digest])) for digest in builds
                )
            )
    refuse(problems)
