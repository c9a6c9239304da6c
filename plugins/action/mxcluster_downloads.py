"""Doorway to mxcluster.cluster.archives, wheels and extra_packages on the controller.

Stays an own module: ansible.builtin.get_url does not continue a partial download (1.6 GB here), and
ansible.builtin.pip cannot download wheels for the Python of another machine.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_downloads
short_description: Download the files that nodes need, once for all nodes, and check their sha256
description:
  - With V(command=archives), downloads large files. A partial download continues where it stopped.
  - With V(command=packages), chooses a wheel for each package of O(packages) and for all its
    dependencies, for the Python of one node, and adds them to what M(mxcluster_env) installs. The
    choice is kept in the store, so the same packages ask no package index again. A package without
    a wheel is refused, and one that needs another MXNet or numpy.
  - With V(command=wheels), downloads the wheels that M(mxcluster_env) asks for with pip, and packs
    one tar file for each different need.
  - Checks the sha256 of each file, if it is known. Runs on the controller; runs at the same time
    wait for each other.
attributes:
  check_mode:
    description: Runs without a change, and reports the change that it would make.
    support: full
  diff_mode:
    description: Returns what a change would replace, for C(--diff).
    support: none
author:
  - The mxcluster authors
options:
  command:
    description: What to download.
    type: str
    required: true
    choices: [archives, packages, wheels]
  store:
    description: The folder of the downloaded files.
    type: path
    required: true
  files:
    description: For V(archives), the files, each with C(url), C(name) in the store, and C(sha256),
      which may be empty.
    type: list
    elements: dict
  packages:
    description: For V(packages), a list of names with or without versions, or the path of a
      requirements file on the controller.
    type: raw
  environment:
    description: For V(packages), the C(builds) and C(hashes) that M(mxcluster_env) takes.
    type: dict
  python:
    description: For V(packages), the version of the node's Python, such as V(3.11).
    type: str
  cwd:
    description: For V(packages), the folder at which a relative path begins.
    type: path
  needs:
    description: For V(wheels), the RV(mxcluster_env#module:needs) of M(mxcluster_env) of each node.
    type: list
    elements: dict
  folder:
    description: For V(wheels), the folder of the tar files.
    type: path
notes:
  - In check mode nothing is downloaded or packed. A new choice of packages is reported as changed,
    and RV(builds) are those of O(environment).
"""

EXAMPLES = r"""
- name: Fetch cuDNN to the controller
  mxcluster_downloads:
    command: archives
    files:
      - url: https://example.org/cudnn.tgz
        name: cudnn.tgz
        sha256: a2a2c7a8ba7b16d323b651766ee37dcfdbc2b50d920f73f8fde85005424960e4
    store: .state/cache/archives
  run_once: true

- name: Find the wheels of packages
  mxcluster_downloads:
    command: packages
    packages: [six, tqdm==4.66.1]
    environment: "{{ environment }}"
    python: "3.11"
    store: .state/cache/wheels
    cwd: "{{ lookup('ansible.builtin.env', 'PWD') }}"

- name: Fetch the missing wheels of all nodes
  mxcluster_downloads:
    command: wheels
    needs: "{{ ansible_play_hosts | map('extract', hostvars, ['asked', 'needs']) }}"
    store: .state/cache/wheels
    folder: .state/local/carry
  run_once: true
"""

RETURN = r"""
fetched:
  description: The names of the files that were downloaded now.
  returned: command is archives
  type: list
  elements: str
builds:
  description: The builds with the wheels of the packages.
  returned: command is packages
  type: list
  elements: dict
hashes:
  description: The hashes with those of the packages.
  returned: command is packages
  type: dict
archives:
  description: The paths of the tar files by the digest of the need.
  returned: command is wheels
  type: dict
"""

import os

from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import archives, extra_packages, wheels
from mxcluster.errors import MxclusterError

REQUIRED_IF = [
    ("command", "archives", ["files"]),
    ("command", "packages", ["packages", "environment", "python", "cwd"]),
    ("command", "wheels", ["needs", "folder"]),
]
REDONE = "Correct this, and run the playbook again: it repeats this step from the beginning."


def fetch_archives(given, store, check):
    """Download the files that the store lacks."""
    files = {one["name"]: one for one in given["files"]}
    missing = [one["name"] for one in archives.lacking(store, files.values())]
    if files and not check:
        with wheels.locked(store):
            for one in files.values():
                archives.provide(store, one)
    return {"changed": bool(missing), "fetched": missing}


def choose_packages(given, store, check):
    """Choose the wheels of the packages, unless the store remembers the choice."""
    environment, python = given["environment"], given["python"]
    wanted = extra_packages.wishes(given["packages"], given["cwd"])
    found = extra_packages.extended(environment, wanted, python, store, known_only=True)
    changed = found is None
    if changed and not check:
        with wheels.locked(store):
            found = extra_packages.extended(environment, wanted, python, store)
    found = found or environment
    return {"changed": changed, "builds": found["builds"], "hashes": found["hashes"]}


def fetch_wheels(given, store, check):
    """Download the wheels that nodes lack, and pack them."""
    needs = [need for need in given["needs"] if need["requirements"]]
    if not needs or check:
        return {"changed": bool(needs), "archives": {}}
    with wheels.locked(store):
        found = wheels.archives(store, needs, os.path.abspath(given["folder"]))
    return {"changed": True, "archives": found}


COMMANDS = {
    "archives": (
        fetch_archives,
        "Correct this, and run the playbook again: it continues the downloads.",
    ),
    "packages": (choose_packages, REDONE),
    "wheels": (fetch_wheels, REDONE),
}


def carry_out(given, check):
    """Return the result of one command."""
    store = os.path.abspath(given["store"])
    work, after = COMMANDS[given["command"]]
    try:
        return work(given, store, check)
    except OSError as error:
        raise MxclusterError(
            "cannot read or write %s on the controller: %s. %s"
            % (error.filename or store, error.strerror or error, after)
        )


class ActionModule(ControllerTask):
    """What Ansible looks for."""
