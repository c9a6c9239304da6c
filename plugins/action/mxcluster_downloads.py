"""Download the files of the nodes to the controller, with `mxcluster.cluster`.

Ansible's own modules cannot replace this module. ansible.builtin.get_url does not continue a
partial download (1.6 GB here). ansible.builtin.pip cannot download wheels for the Python of another
machine.
"""

DOCUMENTATION = r"""
---
module: mxcluster_downloads
short_description: Download the files that nodes need, once for all nodes, and check their sha256
description:
  - With V(command=archives), downloads large files. A partial download continues where it stopped.
  - With V(command=packages), chooses wheels for the Python of one node, one for each package of
    O(packages) and for each of their dependencies. M(mxcluster_env) then installs these wheels too.
    The store keeps the choice, so the same packages need no package index again. The module refuses
    a package without a wheel, and a package that needs another MXNet or numpy.
  - With V(command=wheels), downloads with pip the wheels that M(mxcluster_env) needs. Then the
    module packs one tar file for each different set of wheels.
  - Checks each file that has a known sha256. The module runs on the controller. Concurrent runs
    with the same store wait for each other.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: full
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors
options:
  command:
    description: Whether to download large files, to choose packages, or to download wheels.
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
    description: For V(packages), the folder to which a relative path refers.
    type: path
  needs:
    description: For V(wheels), RV(mxcluster_env#module:needs) of each node.
    type: list
    elements: dict
  folder:
    description: For V(wheels), the folder of the tar files.
    type: path
notes:
  - In check mode the module downloads and packs nothing. If the store has no choice of the
    packages, the module reports a change and returns C(builds) and C(hashes) of O(environment).
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
  description: The names of the files that the store lacked and that this run downloaded.
  returned: command is archives
  type: list
  elements: str
builds:
  description: The C(builds) for M(mxcluster_env), with the wheels of the packages.
  returned: command is packages
  type: list
  elements: dict
hashes:
  description: The C(hashes) for M(mxcluster_env), with those of the packages.
  returned: command is packages
  type: dict
archives:
  description: The paths of the tar files, by the C(digest) of a need.
  returned: command is wheels
  type: dict
"""

import hashlib
import os

from ansible import constants as C

from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import archives, extra_packages, wheels
from mxcluster.errors import MxclusterError
from mxcluster.file_io import replace, sha256

REQUIRED_IF = [
    ("command", "archives", ["files"]),
    ("command", "packages", ["packages", "environment", "python", "cwd"]),
    ("command", "wheels", ["needs", "folder"]),
]
REDONE = "Correct the cause, and run the playbook again: it repeats this step from the beginning."


def fetch_archives(given, store, check):
    """Download the files of given["files"] that the folder `store` lacks.

    Returns {"changed", "fetched": names of the downloaded files}.
    """
    files = {one["name"]: one for one in given["files"]}
    missing = [one["name"] for one in archives.lacking(store, files.values())]
    if files and not check:
        with wheels.locked(store):
            for one in files.values():
                archives.provide(store, one, sha256_once)
    return {"changed": bool(missing), "fetched": missing}


def sha256_once(path):
    """Return the SHA-256 of the file `path`, computed once in a run of ansible-playbook.

    The task runs for each node, in a fork, and a file has up to 3 GB. The forks share the result in
    a folder that ansible-playbook removes at its end. The caller holds the lock of the store.
    """
    found = os.stat(path)
    state = repr((path, found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns))
    name = "sha256-" + hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()
    note = os.path.join(C.DEFAULT_LOCAL_TMP, name)
    if os.path.exists(note):
        with open(note) as stream:
            return stream.read()
    digest = sha256(path)
    replace(note, digest, 0o600)
    return digest


def choose_packages(given, store, check):
    """Choose the wheels of given["packages"], unless the folder `store` holds the choice.

    Returns {"changed", "builds", "hashes"}.
    """
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
    """Download the wheels of given["needs"] and pack them into tar files in given["folder"].

    Returns {"changed", "archives": {digest of a need: path of its tar file}}.
    """
    needs = [need for need in given["needs"] if need["requirements"]]
    if not needs or check:
        return {"changed": bool(needs), "archives": {}}
    with wheels.locked(store):
        found = wheels.archives(store, needs, os.path.abspath(given["folder"]))
    return {"changed": True, "archives": found}


COMMANDS = {
    "archives": (
        fetch_archives,
        "Correct the cause, and run the playbook again: it continues the downloads.",
    ),
    "packages": (choose_packages, REDONE),
    "wheels": (fetch_wheels, REDONE),
}


def carry_out(given, check):
    """Run the function of given["command"] and return its result, a dict for Ansible.

    The functions are fetch_archives, choose_packages and fetch_wheels.

    Args: `given` the arguments of the task; `check` True in check mode, which downloads nothing.
    Raises MxclusterError if a download fails, or if a file cannot be read or written.
    """
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
    """The action plugin of `mxcluster_downloads`, which Ansible runs on the controller."""
