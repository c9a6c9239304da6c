"""Exit codes of mxcluster's processes, and the texts that describe these codes."""

import os
import signal

PEER_DIED = 91  # the watch thread saw that another process of the job had ended
KILLED_BY_AGENT = 92  # for reports only: a process that the agent ends dies of a signal
NO_KVSTORE = 93  # the user's script ended without making the distributed kv-store
UPDATER_FAILED = 94  # an exception in a server's update, or in a worker's message to a server
RENDEZVOUS_FAILED = 95  # rendezvous: a node could not reach another node before the start
PORT_TAKEN = 96  # another program has the port that the plan gave to a process
NOT_A_NUMBER = 97  # the loss of a training program became NaN
# Reasons for which an agent ends its node's part of a job. "peer": the part of another node has
# failed, and the controller ends all other parts. "stopped": stop.yml asked for the end. "engine":
# the engine that started the agent, such as mpirun, has ended the agent. "shutdown": the agent got
# SIGTERM without a request, as systemd sends it to all processes of a node that goes down.
SHUTDOWN = "shutdown"
REASONS = ("done", "failed", "peer", "stopped", "lease", "engine", SHUTDOWN)
# The signals that other programs send to a process, such as the OOM kill.
FROM_OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))

MEANINGS = {
    PEER_DIED: "another process of the job was gone",
    KILLED_BY_AGENT: "ended by the agent",
    NO_KVSTORE: "the script ended without making the distributed kv-store",
    UPDATER_FAILED: "the server failed in an update, or refused a worker's message",
    RENDEZVOUS_FAILED: "a node cannot reach another node",
    PORT_TAKEN: "another program holds the port of this process",
    NOT_A_NUMBER: "the loss became NaN",
}


def of_wait(status: int) -> int:
    """Return the exit code for the wait status `status` (see wait(2)), -n for the signal n."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def of_shell(status: int) -> int:
    """Return the exit code for `status` of a shell, a container or srun: -n for 128 + n.

    Such programs end with 128 + n if the signal n has ended the process that they ran.
    """
    return 128 - status if 128 < status <= 128 + 64 else status


def describe(exit_code: int) -> str:
    """Return a description of `exit_code`, such as "exited with status 1".

    A negative code is minus the number of the signal that killed the process. For example, the
    description of -9 is "killed by signal 9 (SIGKILL)".
    """
    if exit_code < 0:
        try:
            return "killed by signal %d (%s)" % (-exit_code, signal.Signals(-exit_code).name)
        except ValueError:  # real-time signals have no name
            return "killed by signal %d" % -exit_code
    meaning = MEANINGS.get(exit_code)
    return "exited with status %d%s" % (exit_code, " (%s)" % meaning if meaning else "")
