# -*- coding: utf-8 -*-
"""Modules act for the training user: what they make is that user's, and nothing runs with more rights than it needs."""
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


def act_as(module, user, work):
    """Run `work()`, which ends the module, as `user`; '' is the user that Ansible runs the module as.

    Root runs `work` in a child process that drops root's rights. The module's own process stays root
    and ends as the child has ended, so that Ansible's wrapper can remove its temporary folder.

    Fails the module, with the cure, if it may not act as `user`. In check mode a user who does not
    exist yet cannot be acted for, and `work` runs with the rights that are there.
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
        if not os.read(ready, 1):  # the parent was ended before it could pass a signal on
            os._exit(1)
        os.close(ready)
        end_with(lambda: (drop_rights(entry), work()))
    status = wait_for(child, go)
    os.close(ready)  # not before: a child that has just been killed would make writing to the pipe an error
    if os.WIFSIGNALED(status):
        module.fail_json(msg="the process that acted as %s was killed by signal %d: try again"
                             % (user, os.WTERMSIG(status)))
    sys.exit(os.WEXITSTATUS(status))


def ask_as(module, entry, work, limit=300.0):
    """What `work()` returns, which must fit JSON, with the rights of the user with this passwd entry; with those at hand if None.

    A child process runs it. Fails the module if that raises, or tells nothing for `limit` seconds, after which it is killed.
    """
    if entry is None:
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        with os.fdopen(tell, "w") as stream:
            end_with(lambda: (stream.write(json.dumps(outcome(lambda: (drop_rights(entry), work())[1]))), stream.flush()))
    os.close(tell)
    text, silent = hear(told, time.time() + limit)
    os.close(told)
    if silent:
        os.kill(child, signal.SIGKILL)  # not of that user's making: that user may have stopped it
    status = os.waitpid(child, 0)[1]
    try:
        error, found = json.loads(text.decode("utf-8"))
    except (ValueError, RuntimeError):
        why = ("told nothing for %d s, and was killed" % limit if silent else
               "was killed by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else
               "ended with status %d and without an answer" % os.WEXITSTATUS(status))
        module.fail_json(msg="the process that acted as %s %s: see what other processes of that user do there, and try again"
                             % (entry.pw_name, why))
    if error:
        module.fail_json(msg="acting as %s has failed: %s" % (entry.pw_name, error))
    return found


def outcome(work):
    """[None, what `work()` returns], or [its error, None]."""
    try:
        return [None, work()]
    except Exception as error:
        traceback.print_exc()
        return ["%s: %s" % (type(error).__name__, error), None]


def hear(descriptor, deadline):
    """(all that comes until the other end is closed, whether that did not happen before the deadline (unix seconds))."""
    heard = b""
    while True:
        rest = deadline - time.time()
        if rest <= 0 or not select.select([descriptor], [], [], rest)[0]:
            return heard, True
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return heard, False
        heard += piece


def other(module, user):
    """The passwd entry of `user` if the module has to change to that user, None if it need not."""
    if not user:
        return None
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        if module.check_mode:
            return None
        module.fail_json(msg="there is no user %s on this node: run provision.yml, which makes it, or set mxcluster_user" % user)
    if entry.pw_uid == 0:
        module.fail_json(msg="mxcluster_user %s has uid 0, and what trains runs code that comes over the network: name a user "
                             "without rights" % user)
    if os.geteuid() == entry.pw_uid:
        return None
    if os.geteuid() != 0:
        module.fail_json(msg=refusal(pwd.getpwuid(os.geteuid()).pw_name, user))
    return entry


def drop_rights(entry):
    """Turn this process into one of the user with this passwd entry."""
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)
    os.chdir("/")


def end_with(work):
    """Run `work()` in a forked child and end the child; the code above it on the stack is the parent's."""
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait_for(child, go):
    """Let a child process go on that reads the pipe `go`, and wait for it: its wait status.

    The signals that would end this process are passed on to the child. Every signal writes a byte into a
    pipe, also the one that tells of the child's end. So a signal that comes just before the wait ends it.
    """
    def pass_on(number, frame):
        try:
            os.kill(child, number)
        except OSError:  # it has just ended
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
        except (OSError, select.error):  # Python 2.7: the signal has interrupted it
            pass


def refusal(connected, user):
    """What to say when Ansible is neither root nor the training user."""
    return ("Ansible is connected as %s, and this takes root or the training user %s: set ansible_user to one of these, set "
            "ansible_become: true if %s may use sudo, or set mxcluster_user: '' to train as whoever connects"
            % (connected, user, connected))
