"""``python -m mxcluster.run``: the beginning and the end of every process of a job.

    run serve                       the scheduler or a server, as DMLC_ROLE says
    run program NAME -- ARGUMENTS   a worker with one of mxcluster's training programs
    run script PATH -- ARGUMENTS    a worker with a user's script, unmodified, in the folder that it lies in

A worker gets mxcluster's kv-stores in ``mx.kv.create``.  When its script is done it meets the others, still under watch,
before it frees its store: a process that frees it earlier would wait in ps-lite for peers that may be dead, and
one that keeps asking for the dead afterwards would abort.
"""

import faulthandler
import gc
import importlib
import os
import runpy
import signal
import sys
import threading
import traceback

from mxcluster import compat, events, exitcodes, library, network, pulse
from mxcluster.watch import Watch, timeout_from_env, watching_handle

_FREE_SECONDS = 30.0


class Worker(object):
    """One worker: its kv-store, if the script makes a distributed one, and the watch over the others."""

    def __init__(self):
        self.store = None
        self.watch = None

    def make(self, create):
        """Makes a distributed kv-store of the script by calling `create`, under watch from the beginning."""
        refuse_taken_port()
        self.watch = Watch(watching_handle(), timeout_from_env())
        self.watch.start()
        pulse.enter(pulse.MEETING)
        self.store = create()  # held here, so that a script that drops it does not free it
        pulse.attach(self.store)
        return self.store

    def run(self, what, name, arguments):
        """Runs the program or script; returns the exit status."""
        mx = compat.import_mxnet()
        from mxcluster.kvstore import orders
        from mxcluster.kvstore.install import install
        install(self.make)
        if "DMLC_ROLE" in os.environ:
            orders.install()
        mx.kvstore.KVStore.__del__ = lambda store: None  # `_finish` frees the one that matters, at the right time
        status = _status_of(_program if what == "program" else _script, name, arguments)
        if status == 0 and self.store is None and "DMLC_ROLE" in os.environ:
            sys.stderr.write("mxcluster: %s ended without making a distributed kv-store, so it trained alone and the servers "
                             "wait for nothing: let it call mx.kv.create(%r), or run it with -e kv=local\n"
                             % (name, os.environ.get("MXCLUSTER_KV", "dist_sync")))
            status = exitcodes.NO_KVSTORE
        if status == 0 and self.store is not None:
            self._finish()
        if status == 0:
            events.from_env().write("done")  # an exit status alone can lie
        return status

    def _finish(self):
        from mxnet.base import _LIB, check_call
        if hasattr(self.store, "close"):
            self.store.close()
        pulse.enter(pulse.FINISHED)
        self.store._barrier()
        self.watch.stop()
        gc.collect()
        # Everybody has passed the barrier; if one dies now, only this timer notices.
        timer = threading.Timer(_FREE_SECONDS, os._exit, [exitcodes.PEER_DIED])
        timer.daemon = True
        timer.start()
        check_call(_LIB.MXKVStoreFree(self.store.handle))
        timer.cancel()


def _status_of(function, name, arguments):
    """Runs `function` as the interpreter would run a script, and gives the exit status that it would have."""
    try:
        result = function(name, arguments)
        return result if isinstance(result, int) else 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write("%s\n" % (end.code,))
        return 1
    except BaseException:
        traceback.print_exc()
        return 1


def _program(name, arguments):
    return importlib.import_module("mxcluster.programs." + name).main(arguments)


def _script(path, arguments):
    # Not before MXNet is imported: a file of the script's folder could stand for a module of Python's own.
    os.chdir(os.path.dirname(os.path.abspath(path)))
    sys.argv = [path] + arguments
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")


def refuse_taken_port():
    """Ends this process if it cannot listen where it shall: ps-lite's servers and workers would silently listen elsewhere."""
    address, port = os.environ["DMLC_NODE_HOST"], int(os.environ["PORT"])
    why = network.can_bind(address, port)
    if why:
        sys.stderr.write("mxcluster: bind failed: %s:%d, %s; it was free when the job was planned, and is held by %s now\n"
                         % (address, port, why, network.who_listens(address, port) or "another user's program"))
        sys.stderr.flush()
        os._exit(exitcodes.PORT_TAKEN)


def show_stacks_when_asked():
    """SIGUSR1 writes the stacks of all threads to the log, also where Python waits inside MXNet."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def main(argv):
    """Returns the exit status; see the module for the arguments."""
    show_stacks_when_asked()
    pulse.start()
    if argv == ["serve"]:
        from mxcluster import server
        is_scheduler = os.environ["DMLC_ROLE"] == "scheduler"
        (library.load if is_scheduler else compat.import_mxnet)()  # this takes its time: before the port is looked at
        refuse_taken_port()
        return server.schedule() if is_scheduler else server.serve()
    if len(argv) < 3 or argv[0] not in ("program", "script") or argv[2] != "--":
        sys.stderr.write(__doc__)
        return 2
    return Worker().run(argv[0], argv[1], argv[3:])


if __name__ == "__main__":
    exit_status = main(sys.argv[1:])
    pulse.leave()
    sys.stdout.flush()
    sys.stderr.flush()
    if exit_status:
        # A normal exit would free the kv-store, which waits for processes that wait for this one.
        os._exit(exit_status)
