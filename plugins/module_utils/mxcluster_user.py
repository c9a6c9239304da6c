# -*- coding: utf-8 -*-
"""Modules act for the training user: what they make is that user's, and nothing runs with more rights than it needs."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os
import pwd


def become(module, user):
    """Turn the module's own process into one of `user`, for good; '' is whoever runs it.

    Root can become anybody; everybody else is only who he is. Fails the module, with the cure, when it cannot be. In check
    mode, a user that was only talked of so far is nobody that one could become, and the module goes on as who it is.
    """
    if not user:
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        if module.check_mode:
            return
        module.fail_json(msg="there is no user %s on this node: run provision.yml, which makes it, or set mxcluster_user" % user)
    if entry.pw_uid == 0:
        module.fail_json(msg="mxcluster_user %s has uid 0, and what trains runs code that comes over the network: name a user "
                             "without rights" % user)
    if os.geteuid() == entry.pw_uid:
        return
    if os.geteuid() != 0:
        module.fail_json(msg=refusal(pwd.getpwuid(os.geteuid()).pw_name, user))
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)
    os.chdir("/")


def refusal(connected, user):
    """What to say when Ansible is neither root nor the training user."""
    return ("Ansible is connected as %s, and this takes root or the training user %s: set ansible_user to one of these, set "
            "ansible_become: true if %s may use sudo, or set mxcluster_user: '' to train as whoever connects"
            % (connected, user, connected))
