# -*- coding: utf-8 -*-
"""Modules act for the training user: what they make is that user's, and nothing runs with more rights than it needs."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os
import pwd
import signal
import sys
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
    child = os.fork()
    if child == 0:
        end_with(lambda: (drop_rights(entry), work()))
    status = wait_for(child)
    if os.WIFSIGNALED(status):
        module.fail_json(msg="the process that acted as %s was killed by signal %d: try again"
                             % (user, os.WTERMSIG(status)))
    sys.exit(os.WEXITSTATUS(status))


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


def wait_for(child):
    """Wait for a child process, and pass on to it the signals that would end this one: its wait status."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, frame: os.kill(child, number))
    while True:
        try:
            return os.waitpid(child, 0)[1]
        except OSError:  # Python 2.7: a signal has interrupted the wait
            if sys.version_info[0] > 2:
                raise


def refusal(connected, user):
    """What to say when Ansible is neither root nor the training user."""
    return ("Ansible is connected as %s, and this takes root or the training user %s: set ansible_user to one of these, set "
            "ansible_become: true if %s may use sudo, or set mxcluster_user: '' to train as whoever connects"
            % (connected, user, connected))
