"""Save the optimizer's states on the servers, and load the states for any number of servers.

MXNet cannot save the states of servers: `save_optimizer_states` raises an error. The files of a
checkpoint name a state by the parameter's number. This number is the parameter's place among all
parameters, the same under every scheme. A server holds flat arrays. ps-lite may split an array over
all servers, in order of their ranks. In this case `load` joins the parts.
"""

import hashlib
import math
import os
from typing import Dict, List, Sequence, Set, Tuple, Union

import numpy
from mxnet import nd
from mxnet.optimizer import get_updater

from mxcluster import checkpoints, events
from mxcluster.errors import BadInput
from mxcluster.model.checkpoint import ServerManifest
from mxcluster.model.events import Restored
from mxcluster.node.mxnet_types import NDArray, Optimizer, State
from mxcluster.training.kvstore.server_update import Index, States, Update

Arrays = Dict[str, numpy.ndarray]  # the content of a server's file in a checkpoint

# The message if a key for an exchange of numbers (`assigned_key`) is the key of a parameter.
NOT_A_PARAMETER = (
    "the key %d holds a parameter, so workers cannot exchange numbers under this key: use a key "
    "after the keys of all parameters"
)


class Updates(Update):
    """MXNet's updater of `optimizer`, with the states of a checkpoint.

    Args:
        optimizer: an MXNet Optimizer.
        restored: the states from `load`, {} for a new job.
        rank: this server's rank.
        servers: the number of servers.
        names: the names of the parameters in order. Only a worker without servers needs `names`,
            because MXNet then passes a name as `index` in place of a number.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        restored: States,
        rank: int = 0,
        servers: int = 1,
        names: Sequence[str] = (),
    ) -> None:
        self._updater = get_updater(optimizer)
        self._optimizer, self._restored = optimizer, restored
        self._rank, self._servers = rank, servers
        self._numbers = {name: number for number, name in enumerate(names)}
        # {parameter: the number of elements of its weight on this server}
        self._sizes: Dict[Union[int, str], int] = {}
        self._assigned: Set[Union[int, str]] = set()  # keys that hold no parameters

    def assign(self, number: int) -> None:
        """See `Update`."""
        if number in self._sizes:
            raise BadInput(NOT_A_PARAMETER % number)
        self._assigned.add(number)

    def __call__(self, index: Index, grad: NDArray, weight: NDArray) -> None:
        """Update `weight` with `grad`. The first update of a parameter restores its state."""
        index = index.decode() if isinstance(index, bytes) else index
        if index in self._assigned:
            weight[:] = grad
            return
        if index not in self._sizes:
            self._sizes[index] = size_of(weight)
            if self._number(index) in self._restored and index not in self._updater.states:
                self._restore(index, weight)
        self._updater(index, grad, weight)

    def _number(self, index: Union[int, str]) -> int:
        return self._numbers[index] if isinstance(index, str) else index

    def _restore(self, index: Union[int, str], weight: NDArray) -> None:
        number = self._number(index)
        state = self._optimizer.create_state_multi_precision(index, weight)
        arrays = flat(state)
        pieces = shares(
            number,
            self._restored[number],
            arrays,
            size_of(weight),
            (self._rank, self._servers, unit_of_cuts()),
        )
        for target, piece in zip(arrays, pieces):
            target[:] = nd.array(piece.reshape(target.shape), ctx=target.context, dtype=piece.dtype)
            target.wait_to_read()
        self._updater.states[index], self._updater.states_synced[index] = state, True
        trace(number, self._rank, [array.asnumpy() for array in arrays])

    def save(self, folder: str, name: str, number: str) -> None:
        """See `Update`."""
        found: Arrays = {}
        for index, size in self._sizes.items():
            states = [array.asnumpy() for array in flat(self._updater.states[index])]
            found.update(content(self._number(index), size, states))
        save(folder, name, number, found, self._rank, self._servers)


def trace(parameter: int, rank: int, arrays: List[numpy.ndarray]) -> None:
    """Write an event with the digests of a parameter's restored states, if MXCLUSTER_TRACE is 1.

    Args:
        parameter: the parameter's number.
        rank: this server's rank.
        arrays: the states.
    """
    if os.environ.get("MXCLUSTER_TRACE") == "1":
        events.from_env().write(
            Restored(
                parameter=parameter,
                rank=rank,
                states=[hashlib.sha256(array.tobytes()).hexdigest() for array in arrays],
            )
        )


def content(parameter: int, size: int, arrays: List[numpy.ndarray]) -> Arrays:
    """Return the entries {name: array} of a parameter's states in a checkpoint file.

    Args:
        parameter: the parameter's number.
        size: the number of the parameter's elements on this server.
        arrays: the states.
    """
    found = {"size_%d" % parameter: numpy.array(size)}
    for place, array in enumerate(arrays):
        found["state_%d_%d" % (parameter, place)] = numpy.array(array).reshape(-1)
    return found


def save(folder: str, name: str, number: str, found: Arrays, rank: int, servers: int) -> None:
    """Write one server's part of the checkpoint `name`, and the manifest of this part.

    Args: `folder` the folder of the checkpoints; `number` the checkpoint's id; `found` {name:
    array} from `content`; `rank` the server's rank; `servers` the number of servers.
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "%s.server-%d" % (name, rank))

    def fill(partial: str) -> None:
        with open(partial, "wb") as stream:
            # mypy takes an array for numpy's option allow_pickle, which is no name of `content`.
            numpy.savez(stream, **found)  # type: ignore[arg-type]

    checkpoints.write(path + ".npz", fill)
    manifest = ServerManifest(files={}, id=number, rank=rank, servers=servers)
    checkpoints.write_manifest(path + ".json", [path + ".npz"], manifest)


def load(folder: str, name: str) -> States:
    """Return the optimizer's states in a checkpoint: {parameter's number: (size, [state, ...])}.

    ``size`` is the number of elements of the parameter's weight. A state is a flat numpy array.

    Args:
        folder: the folder of the checkpoints.
        name: the checkpoint's name.

    Raises BadInput if a file is missing or has a wrong digest.
    """
    manifest, parts = checkpoints.read(folder, name).manifest, []
    for rank in range(manifest.servers):
        path = os.path.join(folder, "%s.server-%d.npz" % (name, rank))
        with numpy.load(path, allow_pickle=False) as file:
            parts.append({key: file[key] for key in file.files})
    return joined(parts)


def resumed() -> States:
    """Return the states of the checkpoint from which this job resumes, in the form of `load`.

    The result is {} for a new job.
    """
    name = os.environ.get("MXCLUSTER_RESUME")
    if not name:
        return {}
    return load(os.path.join(os.environ["MXCLUSTER_JOB_DIR"], checkpoints.RESUMED), name)


def joined(parts: List[Arrays]) -> States:
    """Join the servers' parts of the states, and return the states in the form of `load`. Pure.

    Args:
        parts: the content {name: array} of each server's file, in order of rank.
    """
    result = {}
    for index in sorted({int(key.split("_")[1]) for part in parts for key in part}):
        holding = [part for part in parts if "size_%d" % index in part]
        sizes = [int(part["size_%d" % index]) for part in holding]
        places = len([key for key in holding[0] if key.startswith("state_%d_" % index)])
        states = []
        for place in range(places):
            pieces = [part["state_%d_%d" % (index, place)] for part in holding]
            is_split = [piece.size for piece in pieces] == sizes
            # A state that is not split is the same on all servers.
            states.append(numpy.concatenate(pieces) if is_split else pieces[0])
        result[index] = (sum(sizes), states)
    return result


def shares(
    parameter: int,
    saved: Tuple[int, List[numpy.ndarray]],
    targets: Sequence[Union[NDArray, numpy.ndarray]],
    size: int,
    server: Tuple[int, int, int],
) -> List[numpy.ndarray]:
    """Return this server's parts of a parameter's saved states, one for each of `targets`.

    Args:
        parameter: the parameter's number.
        saved: the parameter's entry in the result of `load`.
        targets: the arrays of this job's optimizer, which get the parts.
        size: the number of elements of the weight on this server.
        server: (rank, servers, unit) as in `share`.

    Raises BadInput if the checkpoint has another number of states, or states of other sizes or
    types.
    """
    total, states = saved
    if len(targets) != len(states):
        raise BadInput(
            "parameter %d has %d arrays of the optimizer's state in the checkpoint, but this "
            "optimizer has %d: resume with the optimizer that saved the checkpoint"
            % (parameter, len(states), len(targets))
        )
    pieces = [share(state, total, size, *server) for state in states]
    for piece, target in zip(pieces, targets):
        if piece.size != size_of(target) or piece.dtype != numpy.dtype(target.dtype):
            raise BadInput(
                "a state of parameter %d has %d numbers of type %s in the checkpoint, but %d "
                "numbers of type %s in this job: resume with the same network and optimizer"
                % (
                    parameter,
                    piece.size,
                    piece.dtype,
                    size_of(target),
                    numpy.dtype(target.dtype),
                )
            )
    return pieces


def share(
    state: numpy.ndarray, total: int, size: int, rank: int, servers: int, unit: int = 1
) -> numpy.ndarray:
    """Return this server's part of the flat array `state` of one weight. Pure.

    The result is the whole `state` if the state or the weight is not split. MXNet cuts an array at
    ``round(total / servers * rank)`` (kvstore_dist.h, EncodeDefaultKey). MXNet cuts compressed
    gradients between units (EncodeCompressedKey).

    Args:
        state: a flat numpy array.
        total: the number of elements of the whole weight.
        size: the number of elements of the weight on this server.
        rank: this server's rank.
        servers: the number of servers.
        unit: the number of elements of a unit, from `unit_of_cuts`.

    Raises BadInput if `size` is not the size of this server's part.
    """
    if state.size != total or size == total:
        return state
    units = -(-total // unit)
    begin, end = [
        min(total, unit * int(math.floor(float(units) / servers * number + 0.5)))
        for number in (rank, rank + 1)
    ]
    if end - begin != size:
        raise BadInput(
            "server %d of %d holds %d of %d numbers of a weight, but the checkpoint requires %d: "
            "resume with the network that saved the checkpoint"
            % (rank, servers, size, total, end - begin)
        )
    return state[begin:end]


def unit_of_cuts() -> int:
    """Return the number of elements of a unit. MXNet cuts arrays only between units.

    With 2-bit compression one float32 holds 16 elements of a gradient, so a unit has 16 elements.
    """
    return 16 if os.environ.get("MXCLUSTER_COMPRESSION") == "2bit" else 1


def flat(state: State) -> List[NDArray]:
    """Return the NDArrays in an optimizer's `state`, in order."""
    return [leaf for leaf in leaves(state) if hasattr(leaf, "asnumpy")]


def leaves(state: State) -> List[State]:
    """Return all parts of `state` except None as a flat list, in order.

    `state` is a value, or nested tuples or lists of values.
    """
    if isinstance(state, (tuple, list)):
        return [leaf for part in state for leaf in leaves(part)]
    return [] if state is None else [state]


def size_of(array: NDArray) -> int:
    """Return the number of elements of `array`."""
    return int(numpy.prod(array.shape))
