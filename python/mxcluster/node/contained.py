"""The first process in a container. It starts one program, and ends the container in time.

``python -m mxcluster.node.contained`` reads a JSON object from stdin:

- "command": the argument list of the program;
- "env": {variable: value}, in addition to the variables of the image. A value may be a secret. On
  stdin, no command line and no file of the engine shows the value;
- "lock": the path of agent.lock in the job folder. The agent holds this lock until the agent ends.
  A thread waits for the lock, and so notices each end of the agent at once, under each engine;
- "seconds": the maximum time of the container.

"lock" and "seconds" may be missing. When the first process of a container ends, the kernel kills
all other processes in the container.

The engine forwards signals to the first process of a container. The kernel drops them, because this
process handles none. So the job's process gets each signal only once, from the agent.
"""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time

AGENT_ENDED = 1
TOO_LONG = 124  # the exit status of the program timeout
NOT_STARTED = 127  # the exit status of shells for a program that cannot be run
OF_SIGNAL = 128  # the exit status of shells is 128 + n for a process that signal n has killed
PATHS = ("LD_LIBRARY_PATH",)  # the folders of the job come before the folders of the image


def end_with_agent(path):
    """Wait for the agent's lock at `path`. Then end this process and the container."""
    try:
        lock = os.open(path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
    except OSError as error:
        sys.stderr.write("mxcluster: cannot watch the agent's lock %s: %s\n" % (path, error))
    os._exit(AGENT_ENDED)


def end_after(seconds):
    """End this process and its container after `seconds`."""
    time.sleep(seconds)
    sys.stderr.write("mxcluster: the program did not end within %d s\n" % seconds)
    sys.stderr.flush()
    os._exit(TOO_LONG)


def joined(image, job):
    """Merge the variables (dicts) of the image and of the job. The variables of the job win."""
    env = dict(image, **job)
    for name in PATHS:
        folders = [one[name] for one in (job, image) if one.get(name)]
        if folders:
            env[name] = ":".join(folders)
    return env


def run(command, environment):
    """Run `command` with the additional variables `environment`, and return the exit status.

    `command` is an argument list. The function also reaps the orphans in the container.
    """
    try:
        child = subprocess.Popen(
            command,
            env=joined(os.environ, environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        sys.stderr.write("mxcluster: %s did not start: %s\n" % (command[0], error))
        return NOT_STARTED
    while True:
        pid, wait_status = os.wait()
        if pid == child.pid:
            child.returncode = 0  # reaped by this loop, not by Popen
            if os.WIFSIGNALED(wait_status):
                return OF_SIGNAL + os.WTERMSIG(wait_status)
            return os.WEXITSTATUS(wait_status)


def main():
    """Run the program that stdin describes, and return the exit status."""
    order = json.load(sys.stdin)
    for watch, limit in ((end_with_agent, order.get("lock")), (end_after, order.get("seconds"))):
        if limit:
            threading.Thread(target=watch, args=(limit,), daemon=True).start()
    return run(order["command"], order["env"])


if __name__ == "__main__":
    exit_status = main()
    sys.stderr.flush()
    os._exit(exit_status)
