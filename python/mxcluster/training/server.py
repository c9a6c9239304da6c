"""The life of a scheduler or a server.

MXNet would run it inside ``import mxnet`` and never come back, without a place to watch the others, to notice that the
user's optimizer raises (MXNet swallows exceptions of the updater and goes on without learning), or to look at what it is
sent before it is unpickled.
"""

import ctypes
import json
import os
import re
import sys
import traceback

from mxcluster import checkpoints, compat, events, exitcodes, library, network, pulse
from mxcluster.errors import MxclusterError
from mxcluster.kvstore import seal
from mxcluster.package import SCRIPT_FOLDER
from mxcluster.watch import Watch, timeout_from_env

_CONTROLLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
# The only command that reaches Python. Of all others MXNet's C++ knows some; 1.2.1 ends at one that it does not know, and
# newer ones drop it.
_OURS = 0
_NOWHERE = "/proc"  # a folder that can be entered, and in which nobody, not even root, can make a file
_MOST_TOLD = 20  # refusals; a log that a stranger can fill is one more thing that he can break


def schedule():
    """Runs the scheduler until the workers say that the job is over; returns the exit status. It computes nothing, and needs no
    more of MXNet than its C library."""
    handle, mxnet = ctypes.c_void_p(), library.load()
    library.check(mxnet.MXKVStoreCreate(b"dist_async", ctypes.byref(handle)))
    watch = Watch(handle, timeout_from_env())
    watch.start()
    pulse.enter(pulse.MEETING)  # MXNet's loop does not say when it is over
    os.chdir(_NOWHERE)  # see `serve`
    library.check(mxnet.MXKVStoreRunServer(handle, _CONTROLLER(lambda command, body, _: None), None))
    watch.stop()
    library.check(mxnet.MXKVStoreFree(handle))
    return 0


def serve():
    """Runs a server until the workers say that the job is over; returns the exit status."""
    if "MXCLUSTER_GROUP" in os.environ:  # it works on one array at a time: handing each to a thread takes longer than the work
        os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")
    mx = compat.import_mxnet()
    from mxnet.base import _LIB, check_call
    store = mx.kvstore.create("dist_async")  # the workers decide what it becomes
    watch = Watch(store.handle, timeout_from_env())
    try:
        commands = Commands(store)
    except MxclusterError as error:
        sys.stderr.write("mxcluster: %s\n" % error)
        return 1
    watch.start()
    pulse.enter(pulse.MEETING)  # MXNet's loop does not say when it is over
    # MXNet's C++ carries out some commands of workers itself, and asks nobody: its profiler writes to rank<n>_<name>, for any
    # <name> that it is told, from the working directory on.
    os.chdir(_NOWHERE)

    def controller(command, body, _):
        if command == _OURS:
            _guarded(commands.receive, "what a worker has told the server to do failed")(body)

    check_call(_LIB.MXKVStoreRunServer(store.handle, _CONTROLLER(controller), None))
    watch.stop()
    commands.close()
    return 0


class Commands(object):
    """What workers tell this server to do: those of this job, who can seal what they say (`kvstore.seal`).

    Raises MxclusterError if there is no token, or a class that the job declares or the checkpoint that it goes on from is
    not there.
    """

    def __init__(self, store):
        from mxcluster.kvstore import agreement, guard, states
        self._store, self._guard, self._states = store, guard, states
        self._folder = os.environ["MXCLUSTER_JOB_DIR"]
        self._opener = seal.Opener(seal.read_token(self._folder))
        self._classes = guard.names(declared_classes())
        self._given = states.resumed()
        self._update = None
        self._agreement = agreement.Agreement()
        self._refused = 0

    def receive(self, body):
        """Carry out one message (bytes).  What is not of this job, or not allowed, is told and changes nothing."""
        message = None
        try:
            message = self._opener.opened(body)
            {"optimizer": self._set_optimizer, "begin": self._begin, "training": self._agree, "refresh": self._refresh,
             "save": self._save, "forget": self._forget}[message.kind](message)
        except (seal.NotSealed, self._guard.Forbidden) as refusal:
            self._tell(message, refusal)

    def close(self):
        """To be called once when the workers are done."""
        if hasattr(self._update, "close"):
            self._update.close()

    def _begin(self, message):
        """A worker has a store of ours, whose name is the message: before anything is pushed its scheme runs here."""
        if self._update is None:
            groups = [int(group) for group in os.environ["MXCLUSTER_GROUPS"].split(",")]
            if message.payload == b"dist_ssync":
                from mxcluster.kvstore.stale import StaleUpdate
                self._update = StaleUpdate(len(groups), self._updates)
            else:
                from mxcluster.kvstore.group import of_process
                self._update = of_process(os.environ, self._store.rank, self._given)
            self._run(self._update)

    def _updates(self, optimizer, number=1):
        given = self._given if number == 1 else {}  # the states of a checkpoint are those of the first
        return self._states.Updates(optimizer, given, self._store.rank, int(os.environ["DMLC_NUM_SERVER"]))

    def _run(self, update):
        pulse.enter(pulse.SERVING)
        self._store._set_updater(_guarded(_felt(update), "the optimizer failed on the server"))

    def _set_optimizer(self, message):
        if hasattr(self._update, "use"):
            raise self._guard.Forbidden("this scheme hears of optimizers otherwise")
        self._update = self._updates(self._read(message.payload))
        self._run(self._update)

    def _read(self, payload):
        return self._guard.check_optimizer(self._guard.read(payload, self._classes))

    def _agree(self, message):
        """A worker's optimizer and the order of its keys: the first that tells of either decides, and others must agree."""
        told = json.loads(message.payload.decode("utf-8"))
        optimizer = self._read(told["optimizer"].encode("utf-8")) if told["optimizer"] else None
        if self._agreement.is_new(message.sender, told, optimizer):
            self._update.use(optimizer, told["number"])

    def _refresh(self, message):
        self._update.refresh(int(message.payload))

    @staticmethod
    def _serves(sender):
        """Whether this process serves the group of this worker: of the processes of a host, one for each group, that one acts."""
        own, groups = os.environ.get("MXCLUSTER_GROUP"), os.environ["MXCLUSTER_GROUPS"].split(",")
        return own is None or groups[int(sender.split("-")[1])] == own

    def _save(self, message):
        if not self._serves(message.sender):
            return
        told = json.loads(message.payload.decode("utf-8"))
        self._update.save(os.path.join(self._folder, checkpoints.FOLDER), _plain(told["name"]), told["id"])

    def _forget(self, message):
        if not self._serves(message.sender):
            return
        told = json.loads(message.payload.decode("utf-8"))
        checkpoints.forget(os.path.join(self._folder, checkpoints.FOLDER), _plain(told["network"]), int(told["epochs"]),
                           told.get("spare", ""))

    def _tell(self, message, refusal):
        self._refused += 1
        if self._refused > _MOST_TOLD:
            return
        # ps-lite does not say who has sent a message.
        peers = network.peers_of(os.environ["DMLC_NODE_HOST"], int(os.environ["PORT"]))
        sender = "of " + message.sender if message else "from one of " + (", ".join(peers) or "those who are gone")
        text = ("a message %s was refused, and the job goes on: %s%s"
                % (sender, refusal, "; further ones are not told" if self._refused == _MOST_TOLD else ""))
        sys.stderr.write("mxcluster: %s\n" % text)
        sys.stderr.flush()
        events.from_env().write("note", text=text)


def _plain(name):
    """The name of a file, which leads nowhere else."""
    if not re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*$", name):
        raise ValueError("%r is no name for a checkpoint: use letters, digits, '.', '_' and '-'" % (name,))
    return name


def declared_classes():
    """What the knob `server_classes` says; the folder of the job's script is where they are looked for first."""
    declared = [text for text in os.environ.get("MXCLUSTER_SERVER_CLASSES", "").split(",") if text]
    folder = os.path.join(os.environ.get("MXCLUSTER_JOB_DIR", "."), SCRIPT_FOLDER)
    if declared and os.path.isdir(folder) and folder not in sys.path:
        sys.path.insert(0, folder)
    return declared


def _felt(update):
    """`update`, but the server's pulse tells of it: one that never comes back is seen."""
    def call(*args):
        pulse.enter(pulse.UPDATING)
        try:
            return update(*args)
        finally:
            pulse.enter(pulse.SERVING)
    return call


def _guarded(function, failed):
    """`function`, but an exception ends the process instead of being swallowed by ctypes."""
    def call(*args):
        try:
            return function(*args)
        except BaseException as error:
            if isinstance(error, MxclusterError):  # it says itself what is wrong
                sys.stderr.write("mxcluster: %s; ending\n" % error)
            else:
                traceback.print_exc()
                sys.stderr.write("mxcluster: %s (see above); ending\n" % failed)
            sys.stderr.flush()
            os._exit(exitcodes.UPDATER_FAILED)
    return call
