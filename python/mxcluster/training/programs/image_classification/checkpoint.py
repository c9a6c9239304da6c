"""Save and load checkpoints of a Module.

The files have MXNet's own names: <network>-%04d.params with the number of trained epochs, and
<network>-symbol.json. When worker 0 requests a checkpoint, each server writes its part of the
optimizer's states. The folder has the same path on all nodes. See `mxcluster.checkpoints`.
"""

import os
import uuid
from typing import Optional, Sequence

import mxnet as mx

from mxcluster import checkpoints
from mxcluster.errors import BadInput
from mxcluster.model.checkpoint import CheckpointManifest, Progress
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.model.server_messages import ForgetRequest, SaveRequest
from mxcluster.node.mxnet_types import KVStore, Module
from mxcluster.training.kvstore import optimizer_states, server_messages


class Saver(object):
    """Writes checkpoints of a training.

    Args:
        folder: the path of the folder for the checkpoints.
        module: the Module that trains the network.
        kv: the kv-store of the training.
        kept: the number of checkpoints to keep. `save` deletes older checkpoints.
        manifest: the manifest of all checkpoints, which `save` completes.
        keeps_best: True if `save` also keeps the checkpoint with the highest accuracy.
    """

    def __init__(
        self,
        folder: str,
        module: Module,
        kv: KVStore,
        kept: int,
        manifest: CheckpointManifest,
        keeps_best: bool,
    ) -> None:
        self.folder, self.module, self.kv, self.kept = folder, module, kv, kept
        self.manifest, self.keeps_best = manifest, keeps_best
        self.best = (0.0, 0, "")  # accuracy, epochs and name of the best checkpoint
        # None in a distributed job, whose servers update the weights
        self.updates: Optional[optimizer_states.Updates] = None
        if "DMLC_ROLE" not in os.environ:
            self.updates = optimizer_states.Updates(
                module._optimizer, optimizer_states.resumed(), names=module._param_names
            )
            kv._set_updater(self.updates)

    def save(
        self,
        epochs: int,
        batch_sizes: Optional[Sequence[int]],
        progress: Optional[Progress],
        accuracy: Optional[float],
    ) -> None:
        """Write the checkpoint after `epochs` epochs, and delete old checkpoints.

        The method writes the manifest last, so that no reader takes an incomplete checkpoint.

        Args: `batch_sizes` the balanced batch size of each worker, None for other sizes;
        `progress` the state of balance=deadline, None for other jobs; `accuracy` of the weights on
        held-out samples, 0 to 1, None if it is unknown.
        """
        network, number = self.manifest.network, uuid.uuid4().hex
        name = checkpoints.name_of(network, epochs)
        os.makedirs(self.folder, exist_ok=True)
        if self.updates is None:
            server_messages.send(self.kv, "save", SaveRequest(name=name, id=number))
        else:
            self.updates.save(self.folder, name, number)
        weights, auxiliary = self.module.get_params()
        arrays = {"arg:" + key: array for key, array in weights.items()}
        arrays.update({"aux:" + key: array for key, array in auxiliary.items()})
        path = os.path.join(self.folder, name)
        symbol = os.path.join(self.folder, "%s-symbol.json" % network)
        checkpoints.write(symbol, self.module.symbol.save)
        checkpoints.write(path + ".params", lambda partial: mx.nd.save(partial, arrays))
        checkpoints.write_manifest(
            path + ".json",
            [path + ".params"],
            self.manifest.replaced(
                id=number,
                epoch=epochs,
                batch_sizes=batch_sizes,
                progress=progress,
                accuracy=accuracy,
            ),
        )
        # Delete old checkpoints last, when the new checkpoint is complete.
        spared, last = [checkpoints.hold(os.path.dirname(self.folder), name)], epochs - self.kept
        if self.keeps_best:
            self.best = max(self.best, (accuracy or 0.0, epochs, name))
            spared.append(self.best[2])
        if self.updates is None:
            request = ForgetRequest(network=network, epochs=last, spared=spared)
            server_messages.send(self.kv, "forget", request)
        checkpoints.forget(self.folder, network, last, spared)


def saver_of(args: ProgramArguments, module: Module, kv: KVStore, index: int) -> Optional[Saver]:
    """Return the Saver of the worker `index`, or None if this worker writes no checkpoints.

    Only worker 0 of a job that saves or resumes checkpoints has a Saver.
    """
    folder = os.environ.get("MXCLUSTER_JOB_DIR")
    if not folder or index != 0 or not (args.savemodel or os.environ.get("MXCLUSTER_RESUME")):
        return None
    manifest = CheckpointManifest(
        files={},
        epoch=0,
        # The server processes of a host, one for each group, write one part together.
        servers=kv.layout.hosts
        if hasattr(kv, "layout")
        else int(os.environ.get("DMLC_NUM_SERVER", 1)),
        network=args.network,
        kv=args.kv,
        seed=args.seed,
        workers=kv.num_workers,
        batch_size=args.batch_size,
    )
    saved = os.path.join(folder, checkpoints.FOLDER)
    return Saver(saved, module, kv, args.keep_checkpoints, manifest, args.keep_best)


def pull_newest(name: str, kv: KVStore, module: Module) -> None:
    """Pull the newest weights from the servers after the last update of all workers.

    Without servers the function does nothing. Args: `name` of the scheme, such as "dist_sync".
    """
    mx.nd.waitall()
    if not name.startswith("dist"):
        return
    kv._barrier()
    # Under dist_gsync a group's copy of the weights is as old as the group's last update.
    if hasattr(kv, "refresh"):
        kv.refresh()
    for number, parameter in enumerate(module._param_names):
        kv.pull(parameter, out=module._exec_group.param_arrays[number], priority=-number)
    mx.nd.waitall()
    # Module copies the weights from the devices for a checkpoint only if this flag is set.
    module._params_dirty = True


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
