# -*- coding: utf-8 -*-
"""Run a part of an Ansible module as the training user.

A child process drops root's rights and runs the part. So the training user owns the files that the
part makes.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import fcntl
import json
import os
import pwd
import select
import signal
import sys
import time
import traceback

# Seconds by a clock that a change of the system time does not move. Python 2.7 has only the system
# time.
clock = getattr(time, "monotonic", time.time)


def act_as(module, user, work):
    """Run `work()` with the rights of `user`. '' stands for the user that runs the module.

    `work` must end the module. Root runs `work` in a child process that drops root's rights. The
    module's own process stays root and ends with the child's status, so that Ansible's wrapper can
    remove the temporary folder of the module.

    If the module may not act as `user`, the function fails the module with a message that names the
    cure. If `user` does not exist in check mode, `work` runs with the present rights.
    """
    entry = other(module, user)
    if entry is None:
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        if not os.read(ready, 1):  # the parent ended before it could pass signals on
            os._exit(1)
        os.close(ready)
        end_with(lambda: (drop_rights(entry), work()))
    status = wait_for(child, go)
    os.close(ready)  # not earlier: after the death of the child, the write to the pipe would fail
    if os.WIFSIGNALED(status):
        module.fail_json(
            msg="a process with the rights of %s was killed by signal %d: run the playbook again"
            % (user, os.WTERMSIG(status))
        )
    sys.exit(os.WEXITSTATUS(status))


def ask_as(module, entry, work, limit=300.0):
    """Run `work()` with the rights of the passwd entry `entry`, and return the result.

    A child process runs `work`, and sends the result as JSON. If `entry` is None, this process
    itself runs `work`. Fails the module if `work` raises in the child. If the child sends no result
    within `limit` seconds, the function kills the child and fails the module.
    """
    if entry is None:
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        with os.fdopen(target, "w") as stream:
            end_with(
                lambda: (
                    stream.write(json.dumps(outcome(lambda: (drop_rights(entry), work())[1]))),
                    stream.flush(),
                )
            )
    os.close(target)
    text, silent = read_until(source, clock() + limit)
    os.close(source)
    if silent:
        os.kill(child, signal.SIGKILL)  # another process of that user may have stopped the child
    status = os.waitpid(child, 0)[1]
    try:
        error, found = json.loads(text.decode("utf-8"))
    except (ValueError, RuntimeError):
        why = (
            "sent no result within %d s, and was killed" % limit
            if silent
            else "was killed by signal %d" % os.WTERMSIG(status)
            if os.WIFSIGNALED(status)
            else "ended with status %d and without a result" % os.WEXITSTATUS(status)
        )
        module.fail_json(
            msg="a process with the rights of %s %s: check the other processes of that user on "
            "this node, and run the playbook again" % (entry.pw_name, why)
        )
    if error:
        module.fail_json(
            msg="a process with the rights of %s failed (%s): correct this error on the "
            "node, such as wrong rights of a file, and run the playbook again"
            % (entry.pw_name, error)
        )
    return found


def outcome(work):
    """Call `work()`, and return [None, result], or [error text, None] if the call raises.

    The traceback of the error goes to stderr.
    """
    try:
        return [None, work()]
    except Exception as error:
        show(error)
        return ["%s: %s" % (type(error).__name__, error), None]


def show(error):
    """Write the traceback of `error`, the present exception, to stderr.

    For a traceback Python 3.13 imports further modules. The training user cannot read a Python in a
    folder of root, such as pyenv's; then the function writes the error alone.
    """
    try:
        traceback.print_exc()
    except Exception:
        sys.stderr.write("%s: %s\n" % (type(error).__name__, error))


def read_until(descriptor, deadline):
    """Read from a pipe, and return (bytes, True if the deadline passed before the end of the data).

    `descriptor`: the end of the pipe to read. `deadline`: seconds of `clock`.
    """
    content = b""
    while True:
        rest = deadline - clock()
        if rest <= 0 or not select.select([descriptor], [], [], rest)[0]:
            return content, True
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return content, False
        content += piece


def other(module, user):
    """Return the passwd entry of `user` if the module has to change to that user, else None.

    Fails the module if the user is missing or is root, or if the module may not change users. In
    check mode the result for a missing user is None.
    """
    if not user:
        return None
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        if module.check_mode:
            return None
        module.fail_json(
            msg="the user %s does not exist on this node: run provision.yml, which creates this "
            "user, or set mxcluster_user to another user" % user
        )
    if entry.pw_uid == 0:
        module.fail_json(
            msg="mxcluster_user %s has uid 0, and training runs code that comes over the network: "
            "set mxcluster_user to a user without root's rights" % user
        )
    if os.geteuid() == entry.pw_uid:
        return None
    if os.geteuid() != 0:
        module.fail_json(msg=refusal(pwd.getpwuid(os.geteuid()).pw_name, user))
    return entry


def drop_rights(entry):
    """Turn this process into a process of the user with the passwd entry `entry`."""
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)
    os.chdir("/")


def end_with(work):
    """Run `work()` in this forked child process, and end the process.

    The child never returns to the code of the parent. The exit status is that of SystemExit, 1
    after another exception, else 0.
    """
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        show(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait_for(child, go):
    """Let `child` (a pid) continue, wait for the end of the child, and return the wait status.

    The child waits for a byte from the pipe `go` (a descriptor). If this process gets SIGTERM,
    SIGHUP or SIGINT, the function sends this signal to the child. Every signal, also SIGCHLD,
    writes a byte into a second pipe. So a signal just before the wait also ends the wait.
    """

    def pass_on(number, frame):
        try:
            os.kill(child, number)
        except OSError:  # the child has just ended
            pass

    woken, wake = os.pipe()
    for end in (woken, wake):
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    os.write(go, b"1")
    os.close(go)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        try:
            select.select([woken], [], [])
            os.read(woken, 512)
        except (OSError, select.error):  # Python 2.7: the signal has interrupted select
            pass


def refusal(connected, user):
    """Return the error text for a connection as a user that is neither root nor the training user.

    `connected`: the user of the connection. `user`: the training user.
    """
    return (
        "Ansible is connected as %s, but must connect as root or as the training user %s: set "
        "ansible_user to one of these, set ansible_become: true if %s may use sudo, or set "
        "mxcluster_user: '' to train as the connecting user" % (connected, user, connected)
    )
