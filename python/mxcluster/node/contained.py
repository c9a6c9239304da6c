"""The first process in a container: it starts one program, and ends the container in time.

``python -m mxcluster.node.contained`` reads a JSON object from stdin:

- "command": [word, ...] of the program;
- "env": {variable: value}, added to the variables of the image. They may be secrets: so they are on
  no command line and in no file of the engine;
- "lock": the path of agent.lock in the job folder. The agent holds this lock for as long as it
  lives. A thread waits for the lock, so it learns of the agent's death at once, by whatever cause
  and under each engine;
- "seconds": the time after which the container ends anyway.

"lock" and "seconds" may be missing. When the first process of a container ends, the kernel kills
all others in it.

The kernel gives the first process of a container no signal that it does not handle. So a stop
reaches the job's process only once, from the agent.
"""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time

AGENT_ENDED = 1
TOO_LONG = 124  # as the program timeout
NOT_STARTED = 127  # as in shells
OF_SIGNAL = 128  # as in shells: status 128 + n for a process that died of signal n
PATHS = ("LD_LIBRARY_PATH",)  # the folders of the image stay behind those of the job


def end_with_agent(path):
    """End this process, and so its container, when the agent has released the lock at `path`."""
    try:
        lock = os.open(path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
    except OSError as error:
        sys.stderr.write("mxcluster: cannot watch the agent's lock %s: %s\n" % (path, error))
    os._exit(AGENT_ENDED)


def end_after(seconds):
    """End this process, and so its container, after this time."""
    time.sleep(seconds)
    sys.stderr.write("mxcluster: the program has not ended within %d s\n" % seconds)
    sys.stderr.flush()
    os._exit(TOO_LONG)


def joined(image, job):
    """Return the variables of a program, from those of the image and those of the job."""
    env = dict(image, **job)
    for name in PATHS:
        folders = [one[name] for one in (job, image) if one.get(name)]
        if folders:
            env[name] = ":".join(folders)
    return env


def run(command, environment):
    """Run `command` (list of str) with more variables `environment` and return the status to exit.

    Also reap the orphans in the container.
    """
    try:
        child = subprocess.Popen(
            command,
            env=joined(os.environ, environment),
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


def main():
    """Run the program that stdin describes and return the status to exit."""
    asked = json.load(sys.stdin)
    for watch, limit in ((end_with_agent, asked.get("lock")), (end_after, asked.get("seconds"))):
        if limit:
            threading.Thread(target=watch, args=(limit,), daemon=True).start()
    return run(asked["command"], asked["env"])


if __name__ == "__main__":
    exit_status = main()
    sys.stderr.flush()
    os._exit(exit_status)
