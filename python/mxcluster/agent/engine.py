"""Start the agents of a job through an engine of the site: one `mpirun` on the first node.

On the first node `launch` starts a watcher (`watch`), the parent of the engine's program. The
program starts a holder (`hold`) on each node, and the holder starts the agent:

    watcher - mpirun - (ssh, the engine's daemon on the node) - holder - agent

An engine may kill the process that it has started without a warning, or one second after SIGTERM.
So this process is not the agent. The agent has a session of its own, as without an engine, and can
end its processes in order. The kernel sends SIGUSR1 to the agent at the end of the holder, and the
holder ends with its parent.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Dict, List, Set, Tuple, cast

from mxcluster import exit_codes
from mxcluster.agent import commands, daemon, engine_file
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import MxclusterError
from mxcluster.file_io import replace
from mxcluster.launchers import LAUNCHERS, MPI
from mxcluster.model import protocol
from mxcluster.model.answers import AgentStarted, JobStarted
from mxcluster.model.engine import EngineState, HolderLine, ProgramEnd
from mxcluster.model.node_requests import MpiRequest
from mxcluster.node import json_cli, mpi_engines, mpi_installation, processes

ENDS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
PERIOD = 0.5  # seconds between two checks
STARTS = 60.0  # timeout for the start of all agents, in seconds
STOPS = 10.0  # timeout for the end of an agent's processes, in seconds
# Seconds from the failure of a node's part of the job to the kill of the engine's program or daemon
# on this node. mpirun itself waits much longer for a lost node.
LINGERS = 10.0
MOST_LOG = 1 << 20  # the part of the engine's log, in bytes, in which holders report their starts
# mpirun also ends the agents after a failure on another node.
ENDED = (
    "mpirun has sent %s. If no other node has failed, mpirun itself got SIGTERM or SIGINT: find "
    "the program or the user that ended mpirun"
)
LINES = 8  # lines of the engine's log in a message
# The variables of this process that mpirun gets. A login or another engine may have set more, which
# mpirun must not see.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "SSH_AUTH_SOCK")


def launch(request: protocol.Launch) -> JobStarted:
    """Start the engine's program for the prepared job, and wait for the start of all agents.

    A repeated call only waits. Raises MxclusterError with the program's messages if the program
    ends, or if an agent has not started after STARTS seconds.
    """
    folder = JobFolder(request.job_dir)
    hosts = set(folder.whole_plan().nodes)
    state = engine_file.read(folder)
    if state is None:
        child = daemon.spawn(folder, "watch", engine_file.LOG)
        watcher = cast(processes.Identity, processes.identity(child.pid))
    else:
        child, watcher = None, processes.recorded(state.watcher)
    deadline = time.monotonic() + STARTS
    while True:
        missing = hosts - started(folder)
        if not missing:
            return JobStarted(job=folder.plan().job)
        ended = not processes.alive(watcher)
        if ended or time.monotonic() >= deadline:
            processes.end_groups([watcher], grace=STOPS, spare=_of_agent(folder))
            raise MxclusterError(_why(folder, sorted(missing), ended))
        if child:
            child.poll()  # a zombie counts as ended
        time.sleep(0.1)


def _holder_lines(folder: JobFolder) -> List[HolderLine]:
    """Return the lines that holders have printed into the engine's log.

    The engine may put the output of several nodes, and its own, into one line.
    """
    found, decoder = [], json.JSONDecoder()
    with open(folder.file(engine_file.LOG + ".log"), "rb") as stream:
        text = stream.read(MOST_LOG).decode(errors="replace")
    begin = text.find("{")
    while begin >= 0:
        try:
            line, end = decoder.raw_decode(text, begin)
            found.append(HolderLine.decode(line))
        except (ValueError, RecursionError):
            end = begin + 1
        begin = text.find("{", end)
    return found


def started(folder: JobFolder) -> Set[str]:
    """Return the hosts on which a holder has reported the start of an agent."""
    return {line.started for line in _holder_lines(folder) if line.started is not None}


def _why(folder: JobFolder, missing: List[str], ended: bool) -> str:
    """Return the error message for a failed start of the agents on the nodes `missing`.

    `ended`: True if the engine's program has ended.
    """
    errors = [line.error for line in _holder_lines(folder) if line.error is not None]
    text = "%s has not started the agent on %s%s" % (
        LAUNCHERS[folder.whole_plan().launcher].engine,
        ", ".join(missing),
        "" if ended else " within %d s, and was ended" % STARTS,
    )
    if errors:
        return "%s: %s" % (text, errors[0])
    lines = folder.log_lines(engine_file.LOG)
    last = [line for line in lines if not line.startswith("{")][-LINES:]
    state = engine_file.read(folder)
    code = state.exit_code if state else None
    if ended and code:
        text += ": it %s%s" % ("was " if code < 0 else "", exit_codes.describe(code))
        if code > 0 and not last:  # an engine names its own failures
            text += " without a message, as after SIGTERM to mpirun"
    return "\n".join(["%s; its last output:" % text] + (last or ["(nothing)"]))


def watch(folder: JobFolder) -> ProgramEnd:
    """Run the engine's program to its end.

    The program ends with this process. After a failure of the job on this node the program has
    LINGERS seconds to end. Then the watcher ends the program.
    """
    plan = folder.plan()
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    program, argv, variables = PROGRAMS[LAUNCHERS[folder.whole_plan().launcher].name](folder, env)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS | {signal.SIGCHLD})
    me = cast(processes.Identity, processes.identity(os.getpid()))
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        cwd="/",
        env=dict(env, **variables),
        start_new_session=True,
        preexec_fn=lambda: _in_child(me.pid),
    )
    who = cast(processes.Identity, processes.identity(child.pid))
    state = EngineState(pid=who.pid, start_time=who.start_time, program=program, watcher=me.record)
    engine_file.write(folder, state)
    failed_at = 0.0  # monotonic seconds; 0.0 before a failure on this node
    while child.poll() is None:
        got = signal.sigtimedwait(ENDS | {signal.SIGCHLD}, PERIOD)
        if got and got.si_signo in ENDS:
            child.send_signal(signal.SIGTERM)
        with contextlib.suppress(MxclusterError):  # a damaged status
            status = folder.status()
            if status and status.has_failed:
                failed_at = failed_at or time.monotonic()
        if failed_at and time.monotonic() - failed_at > LINGERS:
            processes.end_groups([who], each_pass=lambda: cast(None, child.poll()))
    # This node's agent waits for the exit code.
    engine_file.write(folder, state.replaced(exit_code=child.returncode))
    processes.end_groups([who], spare=_of_agent(folder))
    return ProgramEnd(job=plan.job, exit_code=child.returncode)


def _of_agent(folder: JobFolder) -> List[processes.Identity]:
    """Return this node's agent and its processes, which the agent ends in order."""
    status = folder.status()
    return processes.family([processes.recorded(status.agent)]) if status else []


def _mpirun(folder: JobFolder, env: Dict[str, str]) -> Tuple[str, List[str], Dict[str, str]]:
    """Return (path of mpirun, its command line, the engine's variables) for the job.

    The function writes the hosts file of mpirun. mpirun starts one holder on each node. This node
    is the first. Raises MxclusterError if this node lacks the engine. `env`: the environment of
    mpirun.
    """
    whole = folder.whole_plan()
    wanted = cast(MpiRequest, MpiRequest.of_training(whole.options))
    seen = mpi_installation.find(wanted.pre_execution, wanted.runtime, env)
    here = seen.installed
    if here is None:
        raise MxclusterError(mpi_installation.missing(wanted.runtime, wanted.pre_execution, seen))
    engine, nodes = mpi_engines.ENGINES[here.engine], list(whole.nodes.values())
    text = mpi_engines.hosts_file(engine, [(node.address, 1) for node in nodes])
    replace(folder.file(engine_file.HOSTS), text)
    line = mpi_engines.command_line(
        engine,
        here.mpirun,
        folder.file(engine_file.HOSTS),
        len(nodes),
        (),
        [sys.executable, "-u", "-m", "mxcluster.agent", "hold", "--job-dir", folder.path],
        nodes[0].address,
        nodes[0].interface,
    )
    variables = mpi_engines.environment(
        engine,
        agent=shutil.which("ssh", path=env.get("PATH")) or "ssh",
        as_root=os.geteuid() == 0,
        network=whole.subnet,
        interface=nodes[0].interface,
    )
    words = "exec " + " ".join(map(shlex.quote, line))
    return here.mpirun, mpi_installation.shell(wanted.pre_execution, words), variables


# {launcher: function that prepares the program of the engine}.
PROGRAMS = {MPI: _mpirun}


def _in_child(parent: int) -> None:
    processes.set_pdeathsig(parent, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def hold(folder: JobFolder) -> ProgramEnd:
    """Start the agent, and wait for the end of the agent.

    A signal, or the end of the parent, ends the agent. Raises MxclusterError after a failure of
    this node's part of the job. The engine then ends all other holders.
    """
    # This value is for the engine's own libraries. The plan sets the value of the job's processes.
    os.environ.pop("LD_LIBRARY_PATH", None)
    parent = os.getppid()
    engines = processes.identity(parent)
    commands.start(protocol.Start(job_dir=folder.path), signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    plan, agent = folder.plan(), processes.recorded(commands.look(folder).agent)
    json_cli.tell(HolderLine(started=plan.host).encode())
    got = None
    while processes.alive(agent):
        got = signal.sigtimedwait(ENDS, PERIOD)
        if got or os.getppid() != parent:
            processes.send(agent, signal.SIGUSR1)
            break
    # Do not wait for the agent first: Open MPI kills this process 1 s after SIGTERM.
    if engines and (processes.alive(agent) or commands.look(folder).reason != "done"):
        _end_lingering(engines)
    deadline = time.monotonic() + STOPS
    while processes.alive(agent) and time.monotonic() < deadline:
        time.sleep(0.05)
    reason = commands.look(folder).reason
    if reason != "done":
        if got and reason == "engine":
            reason = ENDED % signal.Signals(got.si_signo).name
        raise MxclusterError("the part of the job on %s has ended: %s" % (plan.host, reason))
    return ProgramEnd(job=plan.job, reason=reason)


def _end_lingering(who: processes.Identity) -> None:
    """Fork a process that kills the engine's daemon `who` after LINGERS seconds.

    After the loss of a node, Open MPI's daemon does not always end with mpirun. The process then
    removes the temporary folder that a killed daemon leaves.
    """
    if os.fork():
        return
    try:
        os.setsid()  # the engine kills the process group of the holder
        os.closerange(3, 256)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # the engine waits until no process has the holder's output open
            os.dup2(null, stream)
        deadline = time.monotonic() + LINGERS
        while processes.alive(who) and time.monotonic() < deadline:
            time.sleep(0.2)
        processes.send(who, signal.SIGKILL)
        deadline = time.monotonic() + STOPS
        while processes.alive(who) and time.monotonic() < deadline:
            time.sleep(0.05)
        session = mpi_engines.session_folders(os.environ)
        for path in session[:1]:
            shutil.rmtree(path, ignore_errors=True)  # the daemon may remove it, too
        for path in session[1:]:
            os.rmdir(path)  # fails if another job of the user has a folder there
    finally:
        os._exit(0)


def join(request: protocol.Join) -> AgentStarted:
    """Return the status of the agent that a holder has started.

    The command `start` returns the same for an agent without a holder.
    """
    status = commands.look(JobFolder(request.job_dir))
    return AgentStarted(job=status.job, status=status)
