"""Save and load checkpoints of a Module.

The files have MXNet's own names: <network>-%04d.params with the number of trained epochs, and
<network>-symbol.json. When worker 0 requests a checkpoint, each server writes its part of the
optimizer's states. The folder has the same path on all nodes. See `mxcluster.checkpoints`.
"""

import json
import os
import uuid
from typing import Any, Dict

import mxnet as mx

from mxcluster import checkpoints
from mxcluster.errors import BadInput
from mxcluster.model.checkpoint import CheckpointManifest
from mxcluster.node.mxnet_types import KVStore, Module, Symbol
from mxcluster.training.kvstore import optimizer_states

Json = Dict[str, Any]


class Saver(object):
    """Writes checkpoints of a training.

    Args:
        folder: the path of the folder for the checkpoints.
        network: the first part of the file names.
        symbol: the network.
        module: the Module that trains the network.
        kv: the kv-store of the training.
        kept: the number of checkpoints to keep. `save` deletes older checkpoints.
        about: further entries of the manifests, such as the seed.
    """

    def __init__(
        self,
        folder: str,
        network: str,
        symbol: Symbol,
        module: Module,
        kv: KVStore,
        kept: int,
        about: Json,
    ) -> None:
        self.folder, self.network, self.symbol, self.module, self.kv = (
            folder,
            network,
            symbol,
            module,
            kv,
        )
        self.kept, self.about = kept, about
        self.distributed = "DMLC_ROLE" in os.environ
        self.updates: Any = None  # optimizer_states.Updates, or None in a distributed job
        if not self.distributed:  # This process updates the weights itself.
            self.updates = optimizer_states.Updates(
                module._optimizer, optimizer_states.resumed(), names=module._param_names
            )
            kv._set_updater(self.updates)

    def save(self, epochs: int) -> None:
        """Write the checkpoint after `epochs` epochs, and delete old checkpoints.

        The method writes the manifest last, so that no reader takes an incomplete checkpoint.
        """
        name, number = checkpoints.name_of(self.network, epochs), uuid.uuid4().hex
        os.makedirs(self.folder, exist_ok=True)
        # The server processes of a host, one for each group, write one part together.
        servers = (
            self.kv.layout.hosts
            if hasattr(self.kv, "layout")
            else int(os.environ.get("DMLC_NUM_SERVER", 1))
        )
        if self.distributed:
            self._tell("save", name=name, id=number)
        else:
            self.updates.save(self.folder, name, number)
        weights, auxiliary = self.module.get_params()
        arrays = {"arg:" + key: array for key, array in weights.items()}
        arrays.update({"aux:" + key: array for key, array in auxiliary.items()})
        path = os.path.join(self.folder, name)
        checkpoints.write(
            os.path.join(self.folder, "%s-symbol.json" % self.network), self.symbol.save
        )
        checkpoints.write(path + ".params", lambda partial: mx.nd.save(partial, arrays))
        checkpoints.write_manifest(
            path + ".json",
            [path + ".params"],
            CheckpointManifest(
                files={},
                id=number,
                epoch=epochs,
                network=self.network,
                servers=servers,
                **self.about,
            ),
        )
        # Delete old checkpoints last, when the new checkpoint is complete.
        held = checkpoints.hold(os.path.dirname(self.folder), name)
        if self.distributed:
            self._tell("forget", network=self.network, epochs=epochs - self.kept, spare=held)
        checkpoints.forget(self.folder, self.network, epochs - self.kept, held)

    def _tell(self, kind: str, **what: Any) -> None:
        """Send a message of `kind` with the fields `what` to all servers."""
        from mxcluster.training.kvstore import server_messages

        server_messages.tell(self.kv, kind, json.dumps(what))


def load(path: str, module: Module) -> None:
    """Set the weights of `module` from the .params file `path`.

    `module` is bound and initialised. Raises BadInput if the file is missing, of another format or
    of another network.
    """
    if not os.path.isfile(path):
        raise BadInput("model_load_file=%s does not exist: correct the path" % path)
    try:
        arrays = mx.nd.load(path)
    except (mx.base.MXNetError, ValueError) as error:
        raise BadInput(
            "model_load_file=%s is not a .params file of MXNet (%s): give the path of such a file"
            % (path, str(error).splitlines()[0])
        ) from None
    arrays = arrays if isinstance(arrays, dict) else {}
    loaded, wrong = [], []
    for kind, own in zip(("arg:", "aux:"), module.get_params()):
        loaded.append({name: arrays.get(kind + name) for name in own})
        wrong += [
            name
            for name, array in loaded[-1].items()
            if array is None or array.shape != own[name].shape
        ]
    if wrong:
        raise BadInput(
            "model_load_file=%s does not fit this network and data set: %d arrays are missing or "
            "have another shape, such as %s. Use the --network and --data of the saved model"
            % (path, len(wrong), sorted(wrong)[0])
        )
    module.set_params(*loaded)
