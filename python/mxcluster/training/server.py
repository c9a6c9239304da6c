"""Run a server. Import this module after `mxnet_compat.import_mxnet`.

By itself, MXNet runs a server's loop inside ``import mxnet``, which never returns. This module
starts the loop after the import. So mxcluster can watch the other processes and check every
message. mxcluster also ends the process after an exception in the user's optimizer. MXNet itself
would drop this exception and go on without learning.
"""

import contextlib
import json
import os
import sys
import traceback
from typing import Iterator, Optional, Type, TypeVar

import mxnet
from mxnet.base import _LIB, check_call

from mxcluster import checkpoints, events, exit_codes, phases, schemes, seal
from mxcluster.errors import MxclusterError, PeerDied
from mxcluster.model.events import ServerSpeed
from mxcluster.model.record import Record
from mxcluster.model.server_messages import ForgetRequest, MeasureRequest, Report, SaveRequest
from mxcluster.node import addresses
from mxcluster.node.mxnet_types import KVStore, NDArray, Optimizer
from mxcluster.training import kvstore, pulse_file
from mxcluster.training.death_watch import Watch, timeout_from_env
from mxcluster.training.kvstore import optimizer_json, optimizer_states, server_classes
from mxcluster.training.kvstore.agreement import Agreement
from mxcluster.training.kvstore.optimizer_advice import advice
from mxcluster.training.kvstore.server_speed import updates_per_s
from mxcluster.training.kvstore.server_update import Context, Index, Update
from mxcluster.training.scheduler import CONTROLLER, NOWHERE

R = TypeVar("R", bound=Record)

# Only this command reaches Python. MXNet's C++ handles some of the other commands. An unknown
# command ends the server under MXNet 1.2.1. Newer versions drop such a command.
_TO_PYTHON = 0
_MOST_LOGGED = 20  # most refusals in the log, so that a program outside the job cannot fill it


def serve() -> int:
    """Run a server until the workers end the job. Return the exit status 0.

    If the server cannot start, print the reason to stderr and return 1.
    """
    # MXNet's thread pool would cost more time than it saves: a server updates one array at a time.
    if "MXCLUSTER_GROUP" in os.environ:
        os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")
    store = mxnet.kvstore.create("dist_async")  # The workers' messages name its scheme later.
    watch = Watch(timeout_from_env())
    try:
        commands = Commands(store)
    except MxclusterError as error:
        sys.stderr.write("mxcluster: %s\n" % error)
        return 1
    watch.start()
    watch.watch(store.handle)
    pulse_file.enter(phases.CONNECTING)  # MXNet's loop does not report its end.
    os.chdir(NOWHERE)

    def controller(command: int, body: Optional[bytes], _: Optional[int]) -> None:
        if command == _TO_PYTHON:
            with _fatal("a worker's command failed on the server"):
                commands.receive(body)

    check_call(_LIB.MXKVStoreRunServer(store.handle, CONTROLLER(controller), None))
    watch.stop()
    commands.close()
    return 0


class Commands(object):
    """Carries out the sealed messages (`mxcluster.seal`) of the job's workers on this server.

    Raises MxclusterError if the server cannot read the job's token, a class that the job declares,
    or the checkpoint.

    Args:
        store: the server's kv-store.
    """

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self._folder = os.environ["MXCLUSTER_JOB_DIR"]
        self._opener = seal.Opener(seal.read_token(self._folder))
        self._classes = server_classes.allowed()
        self._restored = optimizer_states.resumed()
        self._update, self._has_begun = Update(), False
        self._agreement = Agreement()
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
            self._log(refusal)
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
                raise optimizer_json.Forbidden(
                    "servers know no such message: start the job again with train.yml, which "
                    "copies one version of mxcluster to all nodes"
                )
            carry_out(message)
        except optimizer_json.Forbidden as refusal:
            raise MxclusterError(
                "the message %r of %s was refused: %s" % (message.kind, message.sender, refusal)
            ) from refusal

    def close(self) -> None:
        """End the work of the update. The server calls this method once, after its loop."""
        self._update.close()

    def _begin(self, message: seal.Message) -> None:
        """Make the update of the scheme in `message`, if the server has none.

        A worker's kv-store sends the name of the scheme before the first push.
        """
        if self._has_begun:
            return
        self._has_begun = True
        scheme = schemes.of(message.payload.decode("ascii", "replace"))
        context = Context(self._store.rank, self._restored, self._updates)
        self._update = kvstore.load(scheme.update)(context) if scheme.update else self._update
        # Without an updater MXNet sums the pushes under a synchronous scheme, and a script may want
        # the sums. Under an asynchronous scheme MXNet aborts.
        if scheme.update or schemes.updates_each_push(scheme):
            self._run(self._update)

    def _updates(self, optimizer: Optimizer, number: int = 1) -> optimizer_states.Updates:
        """Return the `optimizer_states.Updates` of `optimizer`.

        `number` counts the job's optimizers from 1. Only optimizer 1 starts with the states of the
        checkpoint that the job resumes.
        """
        restored = self._restored if number == 1 else {}
        servers = int(os.environ["DMLC_NUM_SERVER"])
        # Before the start of the server, ps-lite crashes at `rank`.
        return optimizer_states.Updates(optimizer, restored, self._store.rank, servers)

    def _run(self, update: Update) -> None:
        """Make MXNet call `update`, in the phase UPDATING.

        The agent reads the phase from the pulse file, and so detects an update that never ends.
        """

        def updater(index: Index, grad: NDArray, weight: NDArray) -> None:
            pulse_file.enter(phases.UPDATING)
            with _fatal("the optimizer failed on the server"):
                update(index, grad, weight)
            pulse_file.enter(phases.SERVING)

        pulse_file.enter(phases.SERVING)
        self._store._set_updater(updater)

    def _set_optimizer(self, message: seal.Message) -> None:
        if self._update.takes_reports:
            raise optimizer_json.Forbidden(
                "servers of this job's scheme accept an optimizer only from mxcluster's kv-store: "
                "give the name of the job's scheme to mx.kv.create()"
            )
        optimizer = self._read(message.payload.decode("utf-8", "replace"))
        self._advise(optimizer)
        self._update = self._updates(optimizer)
        self._run(self._update)

    def _read(self, text: str) -> Optimizer:
        return optimizer_json.check_optimizer(optimizer_json.decode(text, self._classes))

    def _agree(self, message: seal.Message) -> None:
        """Check that a worker's optimizer and order of keys equal those of the first worker.

        If the version of the optimizer is new, the scheme's update uses this optimizer from now on.
        Raises BadInput if the workers differ.
        """
        report = _content(message, Report)
        optimizer = self._read(report.optimizer) if report.optimizer else None
        if self._agreement.is_new(message.sender, report, optimizer):
            self._advise(optimizer)
            self._update.use(optimizer, report.number)

    def _advise(self, optimizer: Optimizer) -> None:
        """Warn in the log and the report if `optimizer` works in an unexpected way on servers.

        All servers get the optimizer, but only the first server writes the warning.
        """
        text = advice(optimizer)
        if text and os.environ["MXCLUSTER_INDEX"] == "0":
            events.note(text)

    def _refresh(self, message: seal.Message) -> None:
        self._update.refresh(int(message.payload))

    def _assign(self, message: seal.Message) -> None:
        """Make each push of the key in `message` replace the key's value.

        See `kvstore.assigned_key`.
        """
        self._update.assign(int(message.payload))

    @staticmethod
    def _serves(sender: str) -> bool:
        """Return True if this process serves the group of the worker `sender` ("worker-0").

        A host has one server process for each group. Only the process of the worker's group acts.
        """
        own, groups = os.environ.get("MXCLUSTER_GROUP"), os.environ["MXCLUSTER_GROUPS"].split(",")
        return own is None or groups[int(sender.split("-")[1])] == own

    def _save(self, message: seal.Message) -> None:
        if self._serves(message.sender):
            request = _content(message, SaveRequest)
            folder = os.path.join(self._folder, checkpoints.FOLDER)
            self._update.save(folder, request.name, request.id)

    def _forget(self, message: seal.Message) -> None:
        if self._serves(message.sender):
            request = _content(message, ForgetRequest)
            folder = os.path.join(self._folder, checkpoints.FOLDER)
            checkpoints.forget(folder, request.network, request.epochs, request.spared)

    def _measure(self, message: seal.Message) -> None:
        """Measure the speed at which this server updates the model that `message` describes.

        The method writes the event `server_speed`.
        """
        request = _content(message, MeasureRequest)
        speed = updates_per_s(self._updates, request.sizes, request.seconds)
        events.from_env().write(ServerSpeed(updates_per_s=speed))

    def _log(self, refusal: seal.NotSealed) -> None:
        """Log the `refusal` of a message without a valid seal."""
        self._refused += 1
        if self._refused > _MOST_LOGGED:
            return
        # ps-lite does not report the sender of a message.
        peers = addresses.peers_of(os.environ["DMLC_NODE_HOST"], int(os.environ["PORT"]))
        events.note(
            "a message from one of %s was refused, and the job goes on: %s%s"
            % (
                ", ".join(peers) or "the closed connections",
                refusal,
                "; further refusals are not logged" if self._refused == _MOST_LOGGED else "",
            )
        )


def _content(message: seal.Message, kind: Type[R]) -> R:
    """Return the content of `message`. Raises ValueError for JSON of another kind."""
    return kind.decode(json.loads(message.payload.decode("utf-8")))


@contextlib.contextmanager
def _fatal(failure: str) -> Iterator[None]:
    """End this process after an exception in the with block. ctypes would drop the exception.

    The process writes the reason to stderr and ends with the exit code UPDATER_FAILED. The reason
    is the text of an MxclusterError. For any other exception the reason is `failure`, after a
    traceback. If another server process of this host has died, the exit code is PEER_DIED.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, MxclusterError):  # Its message is complete.
            sys.stderr.write("mxcluster: %s; ending\n" % error)
        else:
            traceback.print_exc()
            sys.stderr.write(
                "mxcluster: %s: see the error in the traceback above; ending\n" % failure
            )
        sys.stderr.flush()
        is_echo = isinstance(error, PeerDied)
        os._exit(exit_codes.PEER_DIED if is_echo else exit_codes.UPDATER_FAILED)
