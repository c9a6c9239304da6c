"""Exit codes with a meaning of their own, and how an exit code is told to people."""
import signal
from typing import FrozenSet

PEER_DIED = 91  # the watch thread saw that another process of the job is gone
KILLED_BY_AGENT = 92  # a label for reports: what the agent ends dies of a signal
NO_KVSTORE = 93  # the user's script ended without having made the distributed kv-store
UPDATER_FAILED = 94  # an exception in the server's updater
MEETING_FAILED = 95  # a node could not reach another one before the start
PORT_TAKEN = 96  # another program has the port that the plan has given to a process
NOT_A_NUMBER = 97  # the loss of a training program became NaN
# Why an agent ended its node's part of a job; "peer": the controller ended it because another node's part had failed.
REASONS = ("done", "failed", "peer", "stopped", "lease")
AGENT_HELD = "the agent itself was held by a signal (SIGSTOP), and was killed for it"
AGENT_KILLED = "the agent itself was killed"  # what is told of an agent that has no exit code, since nobody has seen it end

MEANINGS = {PEER_DIED: "another process of the job was gone",
            KILLED_BY_AGENT: "ended by the agent",
            NO_KVSTORE: "the script ended without making the distributed kv-store",
            UPDATER_FAILED: "an exception in the server's updater",
            MEETING_FAILED: "the nodes cannot all reach each other",
            PORT_TAKEN: "another program holds its port",
            NOT_A_NUMBER: "the loss is not a number any more"}


def reserved() -> FrozenSet[int]:
    """The codes of processes that ended because another one did: never a first cause."""
    return frozenset((PEER_DIED, KILLED_BY_AGENT))


def describe(exit_code: int) -> str:
    """An exit code in words, negative ones being signals: -9 is "killed by signal 9 (SIGKILL)"."""
    if exit_code < 0:
        try:
            return "killed by signal %d (%s)" % (-exit_code, signal.Signals(-exit_code).name)
        except ValueError:  # real-time signals have no name
            return "killed by signal %d" % -exit_code
    meaning = MEANINGS.get(exit_code)
    return "exited with status %d%s" % (exit_code, " (%s)" % meaning if meaning else "")
