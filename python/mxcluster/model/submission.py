"""Define the request of a job to a batch system, from which the first node makes the plan."""

from typing import Mapping, Optional, Sequence

from mxcluster import batch_systems
from mxcluster.model import names
from mxcluster.model.checkpoint import CheckpointManifest
from mxcluster.model.node_record import Cuda
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, json_object, one_of, optional, table, text, whole, words

NODES = "nodes"  # the folder in the job folder that holds a folder for each node
MOST = 100000  # nodes, hosts or arguments
_json = json_object(12)


class SharedFacts(Record, nulls=True):
    """The facts of the submit host that all nodes of its job share, as they share its folder."""

    python: str = field(names.path)
    job_dir: str = field(names.path)
    data_dir: str = field(names.path)
    target: str = field(words)
    cuda: Optional[Cuda] = field(optional(record(Cuda)), default=None)


class BatchRequest(Record, nulls=True):
    """The resources that a job requests from a batch system."""

    launcher: str = field(one_of(*batch_systems.names()))
    nodes: int = field(whole(0, MOST))
    queue: str = field(text, default="")
    environment: str = field(text, default="")
    """The parallel environment of Grid Engine."""
    time: str = field(text, default="")
    """The time limit."""
    gres: str = field(text, default="")
    """The generic resources."""
    options: Sequence[str] = field(each(text, MOST), default=[])
    """Further arguments of sbatch or qsub."""

    @property
    def resources(self) -> "BatchRequest":
        """The request without the inputs of a plan."""
        return BatchRequest(**{name: vars(self)[name] for name in BatchRequest.FIELDS})

    @property
    def request(self) -> batch_systems.Request:
        """The request for the module of the batch system, which imports no class of this folder."""
        known = vars(self)
        return batch_systems.Request(*(known[name] for name in batch_systems.Request._fields))


class Submission(BatchRequest):
    """The request of a job to a batch system, and the inputs of its plan on the first node."""

    # Variables of an inventory, which also has variables of other programs. `host_variables` checks
    # them when the nodes are known, after their merge.
    common: Mapping[str, object] = field(_json, default={})
    """The host variables of all nodes."""
    own: Mapping[str, Optional[Mapping[str, object]]] = field(
        table(text, optional(_json), MOST), default={}
    )
    """{host of the inventory: its host variables}. A node with this name gets them."""
    shared: SharedFacts = field(record(SharedFacts), key="record")
    model_file: Optional[str] = field(optional(text), default=None)
    """The path of the saved model to start from, see `job.plan.site.Inputs`."""
    checkpoint: Optional[CheckpointManifest] = field(
        optional(record(CheckpointManifest)), default=None
    )
    """The manifest of the checkpoint to resume."""
