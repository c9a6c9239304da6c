"""The first process in a container: it starts a process of the job, and ends with the agent.

``python -m mxcluster.agent.contained LOCK`` reads {"command": [word, ...], "env": {variable:
value}} as JSON from stdin. So no variable of the job, which may be a secret, is on a command line
or in the engine's files. LOCK is the path of agent.lock in the job folder.

The agent holds this lock for as long as it lives. A thread waits for the lock, so it learns of the
agent's death at once, by whatever cause and under each engine. When the first process of a
container ends, the kernel kills all others in it.

The kernel gives the first process of a container no signal that it does not handle. So a stop
reaches the job's process only once, from the agent.
"""

import fcntl
import json
import os
import subprocess
import sys
import threading

AGENT_ENDED = 1
NOT_STARTED = 127  # as in shells
OF_SIGNAL = 128  # as in shells: status 128 + n for a process that died of signal n


def end_with_agent(path):
    """End this process, and so its container, when the agent has released the lock at `path`."""
    try:
        lock = os.open(path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
    except OSError as error:
        sys.stderr.write("mxcluster: cannot watch the agent's lock %s: %s\n" % (path, error))
    os._exit(AGENT_ENDED)


def run(command, environment):
    """Run `command` (list of str) with more variables `environment` and return the status to exit.

    Also reap the orphans in the container.
    """
    try:
        child = subprocess.Popen(
            command,
            env=dict(os.environ, **environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        sys.stderr.write("mxcluster: %s could not be started: %s\n" % (command[0], error))
        return NOT_STARTED
    while True:
        pid, wait_status = os.wait()
        if pid == child.pid:
            child.returncode = 0  # reaped here, not by Popen
            if os.WIFSIGNALED(wait_status):
                return OF_SIGNAL + os.WTERMSIG(wait_status)
            return os.WEXITSTATUS(wait_status)


def main(argv):
    """Run the process that stdin describes; `argv` is [path of the agent's lock]."""
    asked = json.load(sys.stdin)
    threading.Thread(target=end_with_agent, args=argv, daemon=True).start()
    return run(asked["command"], asked["env"])


if __name__ == "__main__":
    exit_status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(exit_status)
