"""Run a scheduler or a server.

By itself, MXNet runs a server's loop inside ``import mxnet``, which never returns. This module
starts the loop after the import. So mxcluster can watch the other processes and check every
message. mxcluster also ends the process after an exception in the user's optimizer. MXNet itself
would drop this exception and go on without learning.
"""

import ctypes
import json
import os
import re
import sys
import traceback
from typing import Any, Callable, Optional

from mxcluster import checkpoints, events, exit_codes, phases, schemes, seal
from mxcluster.errors import MxclusterError, PeerDied
from mxcluster.model.events import ServerSpeed
from mxcluster.node import addresses, mxnet_compat
from mxcluster.node.mxnet_types import KVStore, Optimizer
from mxcluster.training import kvstore, mxnet_library, pulse_file
from mxcluster.training.death_watch import Watch, timeout_from_env

Updates = Any  # kvstore.optimizer_states.Updates
# A server's update: Updates, gsync_server.GroupUpdate or ssync_server.StaleUpdate.
Update = Any

_CONTROLLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
# Only this command reaches Python. MXNet's C++ handles some of the other commands. An unknown
# command ends the server under MXNet 1.2.1. Newer versions drop such a command.
_OURS = 0
# A folder that a process can enter, and in which no user, not even root, can make a file.
_NOWHERE = "/proc"
_MOST_TOLD = 20  # most refusals in the log, so that a program outside the job cannot fill it


def schedule() -> int:
    """Run the scheduler until the workers end the job. Return the exit status 0.

    The scheduler computes nothing, so the function loads only MXNet's C library.
    """
    handle, mxnet = ctypes.c_void_p(), mxnet_library.load()
    mxnet_library.check(mxnet.MXKVStoreCreate(b"dist_async", ctypes.byref(handle)))
    watch = Watch(timeout_from_env())
    watch.start()
    watch.watch(handle)
    pulse_file.enter(phases.CONNECTING)  # MXNet's loop does not report its end.
    os.chdir(_NOWHERE)  # see `serve`
    mxnet_library.check(
        mxnet.MXKVStoreRunServer(handle, _CONTROLLER(lambda command, body, _: None), None)
    )
    watch.stop()
    mxnet_library.check(mxnet.MXKVStoreFree(handle))
    return 0


def serve() -> int:
    """Run a server until the workers end the job. Return the exit status 0.

    If the server cannot start, print the reason to stderr and return 1.
    """
    # MXNet's thread pool would cost more time than it saves: a server updates one array at a time.
    if "MXCLUSTER_GROUP" in os.environ:
        os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")
    mx = mxnet_compat.import_mxnet()
    from mxnet.base import _LIB, check_call

    store = mx.kvstore.create("dist_async")  # The workers' messages name its scheme later.
    watch = Watch(timeout_from_env())
    try:
        commands = Commands(store)
    except MxclusterError as error:
        sys.stderr.write("mxcluster: %s\n" % error)
        return 1
    watch.start()
    watch.watch(store.handle)
    pulse_file.enter(phases.CONNECTING)  # MXNet's loop does not report its end.
    # MXNet's C++ carries out some commands of workers without a check. For example, the profiler
    # writes a file rank<n>_<name> into the working directory, with the <name> from a message.
    os.chdir(_NOWHERE)

    def controller(command: int, body: Optional[bytes], _: Optional[int]) -> None:
        if command == _OURS:
            _guarded(
                commands.receive,
                "a worker's command failed on the server: see the error in the traceback above",
            )(body)

    check_call(_LIB.MXKVStoreRunServer(store.handle, _CONTROLLER(controller), None))
    watch.stop()
    commands.close()
    return 0


class Commands(object):
    """Carries out the sealed messages (`mxcluster.seal`) of the job's workers on this server.

    ``given`` has the optimizer's states from the checkpoint that the job resumes, {} for a new job.

    Raises MxclusterError if the server cannot read the job's token, a class that the job declares,
    or the checkpoint.

    Args:
        store: the server's kv-store.
    """

    def __init__(self, store: KVStore) -> None:
        from mxcluster.training.kvstore import (
            agreement,
            optimizer_advice,
            optimizer_json,
            optimizer_states,
            server_classes,
        )

        self._store, self._json, self._states = store, optimizer_json, optimizer_states
        self._advice = optimizer_advice.advice
        self._folder = os.environ["MXCLUSTER_JOB_DIR"]
        self._opener = seal.Opener(seal.read_token(self._folder))
        self._classes = server_classes.allowed(server_classes.declared_classes())
        self.given = optimizer_states.resumed()
        self._update: Update = None
        self._agreement = agreement.Agreement()
        self._refused = 0

    def receive(self, body: Optional[bytes]) -> None:
        """Carry out the message `body` of a worker. None counts as an empty message.

        A message that no worker of this job has sealed is only logged. Raises MxclusterError for a
        worker's own message with forbidden content. The server must end then, because the worker
        would train on without the effect of this message.
        """
        try:
            message = self._opener.opened(body)
        except seal.NotSealed as refusal:
            self._tell(refusal)
            return
        carry_out = {
            "optimizer": self._set_optimizer,
            "begin": self._begin,
            "training": self._agree,
            "refresh": self._refresh,
            "save": self._save,
            "forget": self._forget,
            "measure": self._measure,
            "assign": self._assign,
        }.get(message.kind)
        try:
            if carry_out is None:
                raise self._json.Forbidden(
                    "servers know no such message: start the job again with train.yml, which "
                    "copies one version of mxcluster to all nodes"
                )
            carry_out(message)
        except self._json.Forbidden as refusal:
            raise MxclusterError(
                "the message %r of %s was refused: %s" % (message.kind, message.sender, refusal)
            ) from refusal

    @property
    def rank(self) -> int:
        """The rank of the server in ps-lite.

        Read the rank only after MXNet has started the server. Before the start, ps-lite crashes.
        """
        return self._store.rank

    def close(self) -> None:
        """Call `close` of the scheme's update object, if the object has this method.

        The server calls this method once, after its loop.
        """
        if hasattr(self._update, "close"):
            self._update.close()

    def _begin(self, message: seal.Message) -> None:
        """Make the update object of the scheme in `message`, if the server has no such object.

        The object, such as a `GroupUpdate`, updates the weights with each push. A worker's kv-store
        sends the name of the scheme before the first push. Under MXNet's own schemes the object
        refuses what needs an optimizer, until an optimizer comes.
        """
        if self._update is not None:
            return
        scheme = schemes.of(message.payload.decode("ascii", "replace"))
        if scheme.update:
            self._update = kvstore.load(scheme.update)(self)
        else:
            self._update = self._states.NoOptimizer()
        # Without an updater MXNet sums the pushes under a synchronous scheme, and a script may want
        # the sums. Under an asynchronous scheme MXNet aborts.
        if scheme.update or schemes.updates_each_push(scheme):
            self._run(self._update)

    def updates(self, optimizer: Optimizer, number: int = 1) -> Updates:
        """Return the `optimizer_states.Updates` of `optimizer`.

        `number` counts the job's optimizers from 1. Optimizer 1 starts with the states of the
        checkpoint that the job resumes.
        """
        # The states of a checkpoint belong to the first optimizer.
        given = self.given if number == 1 else {}
        return self._states.Updates(optimizer, given, self.rank, int(os.environ["DMLC_NUM_SERVER"]))

    def _run(self, update: Update) -> None:
        pulse_file.enter(phases.SERVING)
        self._store._set_updater(
            _guarded(
                _felt(update),
                "the optimizer failed on the server: see the error in the traceback above",
            )
        )

    def _set_optimizer(self, message: seal.Message) -> None:
        if hasattr(self._update, "use"):
            raise self._json.Forbidden(
                "servers of this job's scheme accept an optimizer only from mxcluster's kv-store: "
                "give the name of the job's scheme to mx.kv.create()"
            )
        optimizer = self._read(message.payload.decode("utf-8", "replace"))
        self._advise(optimizer)
        self._update = self.updates(optimizer)
        self._run(self._update)

    def _read(self, text: str) -> Optimizer:
        return self._json.check_optimizer(self._json.decode(text, self._classes))

    def _agree(self, message: seal.Message) -> None:
        """Check that a worker's optimizer and order of keys equal those of the first worker.

        If the version of the optimizer is new, the scheme's update object uses this optimizer from
        now on. Raises BadInput if the workers differ.
        """
        told = json.loads(message.payload.decode("utf-8"))
        optimizer = self._read(told["optimizer"]) if told["optimizer"] else None
        if self._agreement.is_new(message.sender, told, optimizer):
            self._advise(optimizer)
            self._update.use(optimizer, told["number"])

    def _advise(self, optimizer: Optimizer) -> None:
        """Warn in the log and the report if `optimizer` works in an unexpected way on servers.

        All servers get the optimizer, but only the first server writes the warning.
        """
        text = self._advice(optimizer)
        if text and os.environ["MXCLUSTER_INDEX"] == "0":
            events.note(text)

    def _refresh(self, message: seal.Message) -> None:
        self._update.refresh(int(message.payload))

    def _assign(self, message: seal.Message) -> None:
        """Make each push of the key in `message` replace the key's value.

        See `kvstore.assigned_key`.
        """
        if not hasattr(self._update, "assign"):
            raise self._json.Forbidden(
                "servers of this job's scheme store only model parameters: use kv=dist_sync"
            )
        self._update.assign(int(message.payload))

    @staticmethod
    def _serves(sender: str) -> bool:
        """Return True if this process serves the group of the worker `sender` ("worker-0").

        A host has one server process for each group. Only the process of the worker's group acts.
        """
        own, groups = os.environ.get("MXCLUSTER_GROUP"), os.environ["MXCLUSTER_GROUPS"].split(",")
        return own is None or groups[int(sender.split("-")[1])] == own

    def _save(self, message: seal.Message) -> None:
        if not self._serves(message.sender):
            return
        told = json.loads(message.payload.decode("utf-8"))
        self._update.save(
            os.path.join(self._folder, checkpoints.FOLDER), _plain(told["name"]), told["id"]
        )

    def _forget(self, message: seal.Message) -> None:
        if not self._serves(message.sender):
            return
        told = json.loads(message.payload.decode("utf-8"))
        checkpoints.forget(
            os.path.join(self._folder, checkpoints.FOLDER),
            _plain(told["network"]),
            int(told["epochs"]),
            told.get("spare", ""),
        )

    def _measure(self, message: seal.Message) -> None:
        """Measure the speed at which this server updates the model that `message` describes.

        The method writes the event `server_speed`.
        """
        from mxcluster.training.kvstore import server_speed

        told = json.loads(message.payload.decode("utf-8"))
        speed = server_speed.updates_per_s(self.updates, told["sizes"], told["seconds"])
        events.from_env().write(ServerSpeed(updates_per_s=speed))

    def _tell(self, refusal: seal.NotSealed) -> None:
        """Log the `refusal` of a message without a valid seal."""
        self._refused += 1
        if self._refused > _MOST_TOLD:
            return
        # ps-lite does not report the sender of a message.
        peers = addresses.peers_of(os.environ["DMLC_NODE_HOST"], int(os.environ["PORT"]))
        text = "a message from one of %s was refused, and the job goes on: %s%s" % (
            ", ".join(peers) or "the closed connections",
            refusal,
            "; further refusals are not logged" if self._refused == _MOST_TOLD else "",
        )
        events.note(text)


def _plain(name: str) -> str:
    """Return `name` if `name` is a plain file name, without a path to another folder.

    Raises ValueError for any other `name`.
    """
    if not re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*$", name):
        raise ValueError(
            "%r cannot be the name of a checkpoint: use only letters, digits, '.', '_' and '-'"
            % (name,)
        )
    return name


def _felt(update: Update) -> Callable[..., Any]:
    """Return a function that calls `update` in the phase UPDATING.

    After the call the process enters the phase SERVING. The agent reads the phase from the progress
    file, and so detects an update that never ends.
    """

    def call(*args: Any) -> Any:
        pulse_file.enter(phases.UPDATING)
        try:
            return update(*args)
        finally:
            pulse_file.enter(phases.SERVING)

    return call


def _guarded(function: Callable[..., Any], failed: str) -> Callable[..., Any]:
    """Return a function that calls `function`, and ends the process after an exception.

    The process then writes the reason to stderr and ends with the exit code UPDATER_FAILED. The
    reason is the text of an MxclusterError. For any other exception the reason is `failed`, after a
    traceback. Without this wrapper ctypes would drop the exception. If another server process of
    this host has died, the exit code is PEER_DIED.
    """

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except BaseException as error:
            if isinstance(error, MxclusterError):  # Its message is complete.
                sys.stderr.write("mxcluster: %s; ending\n" % error)
            else:
                traceback.print_exc()
                sys.stderr.write("mxcluster: %s; ending\n" % failed)
            sys.stderr.flush()
            is_echo = isinstance(error, PeerDied)
            os._exit(exit_codes.PEER_DIED if is_echo else exit_codes.UPDATER_FAILED)

    return call
