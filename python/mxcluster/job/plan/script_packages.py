"""Plan the packages of a script: the layer of the knob `requirements` on each node.

A layer is a folder of packages beside the environment of a node. Its wheels depend on the node's
MXNet and Python, so nodes with equal versions have equal layers. The controller chooses the wheels
once and keeps the choice in its store. A later plan of the same file needs no package index.
"""

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxcluster.cluster import extra_packages, pairs, wheels
from mxcluster.cluster.extra_packages import ExtraPackage
from mxcluster.errors import BadInput, some
from mxcluster.model.node_record import NodeRecord
from mxcluster.model.plan import SERVER, WORKER, Plan
from mxcluster.model.software import Layer
from mxcluster.package import LAYER, layer_folder

KNOB = "requirements"


class Store(NamedTuple):
    """The store of wheels on the controller.

    Attributes:
        folder: the path of the store.
        known_only: True in check mode, which changes no file: only earlier choices count.
    """

    folder: str
    known_only: bool = False


def add(
    plan: Plan, records: Mapping[str, NodeRecord], store: Optional[Store]
) -> Tuple[Plan, List[str]]:
    """Return (`plan` with the layers of its script, notes for the user).

    Without the knob the plan stays as it is. Raises BadInput if the requirements file is wrong, or
    if a package conflicts with MXNet. Raises MxclusterError if a package has no wheel.

    Args: `records` the node record of each host of the plan; `store` None to check only the file.
    """
    options = plan.options
    if not options.requirements:
        return plan, []
    wanted = extra_packages.of_file(options.requirements, KNOB)
    if not wanted or store is None:
        return plan, []
    # A server imports the classes of the script from the script's modules.
    roles = (WORKER, SERVER) if options.server_classes else (WORKER,)
    hosts = sorted({process.host for process in plan.processes if process.role in roles})
    layers: Dict[Tuple[str, ...], Optional[Layer]] = {}
    of_host: Dict[str, Layer] = {}
    for host in hosts:
        record = records[host]
        versions = record.mxnet or "", record.python_version or ""
        if versions not in layers:
            layers[versions] = _layer(host, record, wanted, store)
        found = layers[versions]
        if found is not None:
            of_host[host] = found
    if len(of_host) < len(hosts):
        return plan, ["check mode chooses no wheels for %s" % options.requirements]
    return _with(plan, of_host, roles), [
        "%s for Python %s: %s"
        % (
            KNOB,
            ", ".join(layer.builds[0].python),
            some(list(layer.builds[0].wheels)) or "all packages are in the environment",
        )
        for layer in {layer.digest: layer for layer in of_host.values()}.values()
    ]


def text_of(path: str) -> str:
    """Return the content of the requirements file `path`, "" without a path.

    `add` has read the file before. A job may wait for hours, so the record of the run gets this
    content, and not that of the file at the start.
    """
    if not path:
        return ""
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def _layer(
    host: str, record: NodeRecord, wanted: Sequence[ExtraPackage], store: Store
) -> Optional[Layer]:
    """Return the layer of `host`; None in check mode without an earlier choice.

    Raises BadInput for a node whose versions have no row in the tables.
    """
    # The wheels beside MXNet are those of all its builds, also of an own build (mxnet_wheel).
    environment = pairs.environment(record.mxnet or "unknown", pairs.CPU)
    python = ".".join((record.python_version or "").split(".")[:2])
    if environment.build_for(python) is None:
        raise BadInput(
            "%s: %s has no packages for Python %s: run provision.yml, which renews the node record"
            % (host, environment.name, python or "of an unknown version")
        )
    given = environment, wanted, python, store.folder
    found = extra_packages.layer(*given, known_only=True)
    if found is None and not store.known_only:
        with wheels.locked(store.folder):
            found = extra_packages.layer(*given)
    return found


def _with(plan: Plan, layers: Mapping[str, Layer], roles: Sequence[str]) -> Plan:
    """Return `plan` with the layers of its hosts, and with the folder of a layer in environments.

    Args: `roles` of the processes that import packages of the script.
    """
    return plan.replaced(
        layers={layer.digest: layer for layer in layers.values()},
        nodes={
            host: node.replaced(layer=layers[host].digest) if host in layers else node
            for host, node in plan.nodes.items()
        },
        processes=[
            process.replaced(
                env={
                    **process.env,
                    LAYER: layer_folder(
                        plan.nodes[process.host].python, layers[process.host].digest
                    ),
                }
            )
            if process.role in roles
            else process
            for process in plan.processes
        ],
    )
