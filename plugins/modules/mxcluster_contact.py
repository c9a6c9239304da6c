#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Documentation of the action plugin of the same name, which does it all on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_contact
short_description: Say hello to a node, or say why one cannot
description:
  - Opens Ansible's connection to the node, and asks who one is there and which Python it has. What is wrong is told with
    what to do; an unknown or changed host key, a user who is not let in or has not got the rights, a machine that cannot be
    reached, a node without a Python.
  - Changes nothing, also in check mode.
author:
  - The mxcluster authors
options:
  users:
    description: Who one may be there, after becoming; anybody if empty.
    type: list
    elements: str
    default: []
  required:
    description: Whether a node that cannot be asked is a failure. If not, a line names it, and RV(lost) holds the reason.
    type: bool
    default: true
  trainer:
    description: Who is to train there; empty for whoever connects. Root is refused, and so is root who connects over ssh.
    type: str
"""

EXAMPLES = r"""
- name: Say hello
  mxcluster_contact:
    users: [root]
"""

RETURN = r"""
lost:
  description: Of a node that could not be asked; C(since), the time of the attempt (unix seconds), and C(why).
  returned: O(required) is false and the node could not be asked
  type: dict
user:
  description: Who one is on the node.
  returned: success
  type: str
uid:
  description: The number of that user, as text.
  returned: success
  type: str
over_ssh:
  description: Whether the node was reached over ssh.
  returned: success
  type: bool
python:
  description: A Python that is there.
  returned: success
  type: str
"""
