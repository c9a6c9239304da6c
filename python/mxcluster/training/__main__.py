"""Run one process of a job from its start to its end: ``python -m mxcluster.training``.

    serve                       the scheduler or a server; DMLC_ROLE names the role
    program NAME -- JSON        a worker that runs the training program NAME of mxcluster
    script PATH -- ARGUMENTS    a worker that runs the user's unmodified script in its own folder

In a worker, ``mx.kv.create`` also makes mxcluster's kv-stores. A script's work may go on after the
last line of the script: Python waits for threads, and calls the functions that the script has
registered with `atexit`. Only then the worker waits for the other workers at a barrier, while the
`death_watch` still runs. Then the worker stops the watch and frees its store. Without the barrier,
ps-lite would wait for peers that may be dead. If the watch ran on without the store, ps-lite would
abort.
"""

import atexit
import faulthandler
import gc
import os
import signal
import sys
import sysconfig
import threading
import traceback
import types
from typing import Callable, Dict, List, Optional

from mxcluster import events, exit_codes, phases
from mxcluster.model.events import Done
from mxcluster.node import addresses, cores, mxnet_compat
from mxcluster.node.mxnet_types import KVStore
from mxcluster.package import LAYER, SCRIPT_PLACE
from mxcluster.training import late_variables, mxnet_library, pulse_file, scheduler
from mxcluster.training.death_watch import Deadline, Watch, timeout_from_env, watching_handle

_FREE_SECONDS = 30.0
# Seconds for threads and `atexit` functions of a script that has failed. They may wait for other
# processes, which in turn wait for this process.
_LAST_SECONDS = 10.0


class Worker(object):
    """The distributed kv-store of one worker, and the death watch of this store.

    ``store`` is None until the script makes a distributed kv-store.
    """

    def __init__(self) -> None:
        self.store: KVStore = None
        self._watch = Watch(timeout_from_env())
        self._freeing = Deadline(_FREE_SECONDS)
        self._name, self._process = "", os.getpid()
        self._script = ""  # the folder of all code of the script, "" for a program
        self._environment: Optional[Dict[str, str]] = dict(os.environ)  # None after the warning
        self._status = 1  # the exit status of the script

    def make(self, create: Callable[[], KVStore]) -> KVStore:
        """Begin the death watch, then return the distributed kv-store that `create()` makes.

        If another program holds the port of this process, the method ends the process with the exit
        code PORT_TAKEN.
        """
        refuse_taken_port()
        self._warn_of_late_variables()
        self._watch.watch(watching_handle())
        pulse_file.enter(phases.CONNECTING)
        self.store = create()  # kept, so that the script cannot free the store
        pulse_file.attach(self.store)
        return self.store

    def run(self, kind: str, name: str, arguments: List[str]) -> None:
        """Run a program or script with `arguments`.

        `kind` is "program" or "script", and `name` is the program's name or the script's path. The
        worker ends, and gets its exit status, while Python shuts down (see `_end`).
        """
        mx = mxnet_compat.import_mxnet()
        self._watch.start()
        self._freeing.start()
        # Python calls the last registered function first: those of the script, then this one, then
        # those of MXNet.
        atexit.register(self._end)
        from mxcluster.training.kvstore import server_messages
        from mxcluster.training.kvstore.install import install

        install(self.make)
        self._script = _root(name) if kind == "script" else ""
        if "DMLC_ROLE" in os.environ:
            server_messages.install()
        # `_finish` frees the distributed store, after the barrier of all workers.
        mx.kvstore.KVStore.__del__ = lambda store: None
        self._name = name
        self._status = _status_of(_program if kind == "program" else _script, name, arguments)
        pulse_file.end_script()
        if self._status:
            timer = threading.Timer(_LAST_SECONDS, self._give_up)
            timer.daemon = True
            timer.start()

    def _give_up(self) -> None:
        """End this process while threads or `atexit` functions of the failed script still run."""
        sys.stderr.write(
            "mxcluster: threads or exit functions of the failed script still ran after %d s; "
            "ending\n" % _LAST_SECONDS
        )
        sys.stderr.flush()
        os._exit(self._status)

    def _warn_of_late_variables(self) -> None:
        """Warn once, in the log and the report, of variables that the script has set too late."""
        text = self._environment and late_variables.warning(self._environment, os.environ)
        if text:
            events.note(text)
            self._environment = None

    def _end(self) -> None:
        """Finish the work with the other workers, and end this process if its status is not 0.

        Python calls this method after the script's threads and `atexit` functions, and before
        MXNet's own `atexit` functions. A child that the script has forked keeps its status, and has
        no work with the other workers to finish.
        """
        if os.getpid() != self._process:
            sys.stdout.flush()
            sys.stderr.flush()
            if self._status:
                os._exit(self._status)
            return
        try:
            status = self._status or self._finish()
        except BaseException:  # Python would print this exception, and exit with 0.
            traceback.print_exc()
            status = 1
        leave(status)

    def _finish(self) -> int:
        """Wait for the other workers, then free the store. Return the exit status of this process.

        The status is NO_KVSTORE if a worker of a distributed job has made no distributed kv-store.
        """
        from mxnet.base import _LIB, check_call

        self._warn_of_late_variables()
        if self.store is None and "DMLC_ROLE" in os.environ:
            sys.stderr.write(
                "mxcluster: %s ended without making a distributed kv-store, so this worker trained "
                "alone and used no server: call mx.kv.create(%r) in the script, or run the script "
                "with -e kv=local\n" % (self._name, os.environ.get("MXCLUSTER_KV", "dist_sync"))
            )
            return exit_codes.NO_KVSTORE
        if self.store is not None:
            if hasattr(self.store, "close"):
                self.store.close()
            pulse_file.enter(phases.FINISHED)
            self.store._barrier()
            self._watch.stop()
            gc.collect()
            # All workers have passed the barrier. From now on only the deadline detects a dead
            # worker.
            self._freeing.begin()
            check_call(_LIB.MXKVStoreFree(self.store.handle))
            self._freeing.meet()
        # A script that calls os._exit(0) skips this event.
        events.from_env().write(Done(asked=self._has_asked()))
        return 0

    def _has_asked(self) -> Optional[bool]:
        """Return True if the script has asked for its share of the data, None for a program."""
        if not self._script:
            return None
        from mxcluster.training import data_share  # Only such a worker needs it.

        return data_share.was_asked_for(self._script)


def _status_of(
    function: Callable[[str, List[str]], Optional[int]], name: str, arguments: List[str]
) -> int:
    """Call function(name, arguments) and return the exit status of this process.

    An int from `function` or from SystemExit is the status, and None gives 0. After any other
    exception the function prints the traceback, from the first line of the script `name` on, and
    returns 1.
    """
    try:
        result = function(name, arguments)
        return result if isinstance(result, int) else 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write("%s\n" % (end.code,))
        return 1
    except BaseException as error:
        traceback.print_exception(type(error), error, _of_script(error, name))
        return 1


def _of_script(error: BaseException, path: str) -> Optional[types.TracebackType]:
    """Return the traceback of `error` from the first line of the script `path` on.

    A script with a syntax error has run no line, so the result is None: the error names the line.
    Returns the whole traceback of any other error without a line of the script.
    """
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    return trace or (None if isinstance(error, SyntaxError) else error.__traceback__)


def _program(name: str, arguments: List[str]) -> int:
    from mxcluster.training import programs  # Only such a worker needs the classes of the knobs.

    return programs.main(name, arguments)


def _script(path: str, arguments: List[str]) -> None:
    # Only now, after the import of MXNet: during the import a file of the script's folder could
    # replace a module of Python's standard library.
    folder, root = os.path.dirname(os.path.abspath(path)), _root(path)
    os.chdir(root)
    sys.argv = [path] + arguments
    sys.path[:0] = [folder, root] if root != folder else [folder]
    # The script stays the main module until the process ends, as under `python script.py`. Its
    # threads may pickle functions of the main module, for example.
    main_module = types.ModuleType("__main__")
    main_module.__file__ = path
    sys.modules["__main__"] = main_module
    with open(path, "rb") as stream:
        code = compile(stream.read(), path, "exec", dont_inherit=True)
    exec(code, vars(main_module))


def add_layer() -> None:
    """Let this process import the packages of the script, if the job has some.

    The folder comes after the packages of the environment, so that it replaces none of them, and
    before the packages of mxnet_packages, which the environment imports last.
    """
    layer = os.environ.get(LAYER)
    if layer:
        own = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        last = max(
            (index for index, path in enumerate(sys.path) if path in own), default=len(sys.path)
        )
        sys.path.insert(last + 1, layer)


def _root(path: str) -> str:
    """Return the folder of all code of the script `path`.

    With script_root the script is below this folder, such as in root/scripts.
    """
    folder, place = os.path.dirname(os.path.abspath(path)), os.environ.get(SCRIPT_PLACE, "")
    return folder[: -len(place)].rstrip("/") if place else folder


def refuse_taken_port() -> None:
    """End this process with PORT_TAKEN if another program holds this process's planned port.

    Without this check, ps-lite's servers and workers would listen on another port without a
    message.
    """
    address, port = os.environ["DMLC_NODE_HOST"], int(os.environ["PORT"])
    fault = addresses.can_bind(address, port)
    if fault:
        holder = addresses.who_listens(address, port) or "another user's program"
        sys.stderr.write(
            "mxcluster: bind failed: %s:%d, %s. The port was free when the job was planned, but "
            "%s holds the port now. Start the job again, or choose another -e root_port\n"
            % (address, port, fault, holder)
        )
        sys.stderr.flush()
        os._exit(exit_codes.PORT_TAKEN)


def leave(status: int) -> None:
    """Write the last progress. If `status` is not 0, end this process with it at once.

    A normal exit would free the kv-store, and so wait for the other processes. But after a failure
    the other processes wait for this process.
    """
    pulse_file.leave()
    sys.stdout.flush()
    sys.stderr.flush()
    if status:
        os._exit(status)


def main(argv: List[str]) -> None:
    """Run the process that `argv` describes, and end this process if its status is not 0.

    `argv` is ["serve"], ["program", NAME, "--", ...] or ["script", PATH, "--", ...]. For any
    other `argv` print the usage to stderr, and end with the status 2.
    """
    # A fatal signal such as SIGSEGV writes the stacks of all threads to stderr. So does SIGUSR1,
    # even while Python waits in MXNet.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    cores.bind(os.environ)  # before the first thread, which would keep all CPUs
    pulse_file.start()
    add_layer()
    if argv == ["serve"]:
        # MXNet loads for seconds. Check the port after the load, just before ps-lite binds.
        if os.environ["DMLC_ROLE"] == "scheduler":
            mxnet_library.load()
            refuse_taken_port()
            leave(scheduler.schedule())
        else:
            mxnet_compat.import_mxnet()
            refuse_taken_port()
            from mxcluster.training import server

            leave(server.serve())
    elif len(argv) < 3 or argv[0] not in ("program", "script") or argv[2] != "--":
        sys.stderr.write(__doc__)
        leave(2)
    else:
        Worker().run(argv[0], argv[1], argv[3:])


if __name__ == "__main__":
    main(sys.argv[1:])
