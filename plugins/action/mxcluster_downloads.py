"""Download the installation files of the nodes to the controller.

Ansible's own modules lack two features. ansible.builtin.get_url cannot continue an interrupted
download, here of up to 1.6 GB. ansible.builtin.pip downloads wheels only for the Python that runs
pip, and not for the Python of a node.
"""

DOCUMENTATION = r"""
---
module: mxcluster_downloads
short_description: Download the nodes' installation files to the controller and check the sha256
description:
  - With V(command=archives), downloads large files. The module continues an interrupted download.
  - With V(command=packages), chooses one wheel for each package of O(packages) and for each of
    their dependencies. The wheels fit the Python of one node. M(mxcluster_env) then installs these
    wheels too. The store keeps the choice, so a later run works without a package index. The module
    fails for a package without a wheel, and for a package that needs another MXNet or numpy.
  - With V(command=wheels), downloads with pip the wheels that M(mxcluster_env) needs. Then the
    module packs one tar file for each different set of wheels.
  - The module runs on the controller and checks each file with a known sha256. Only one run at a
    time uses a store.
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
    description: Whether to download large files, to choose wheels, or to download wheels.
    type: str
    required: true
    choices: [archives, packages, wheels]
  store:
    description: The folder of the downloaded files.
    type: path
    required: true
  files:
    description: For V(archives), the files to download. Each file has a C(url), a C(name) in the
      store, and a C(sha256), which may be empty.
    type: list
    elements: dict
  packages:
    description: For V(packages), a list of names with or without versions, or the path of a
      requirements file on the controller.
    type: raw
  environment:
    description: For V(packages), the C(builds) and C(hashes) for M(mxcluster_env).
    type: dict
  python:
    description: For V(packages), the version of the node's Python, such as V(3.11).
    type: str
  cwd:
    description: For V(packages), the base folder of a relative path in O(packages).
    type: path
  needs:
    description: For V(wheels), the result RV(mxcluster_env#module:needs) for each node.
    type: list
    elements: dict
  folder:
    description: For V(wheels), the folder of the tar files.
    type: path
notes:
  - In check mode the module leaves the store and the tar files unchanged. If the store lacks the
    choice of the packages, the module reports a change, and returns C(builds) and C(hashes) of
    O(environment).
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

- name: Find the wheels of six and tqdm for Python 3.11
  mxcluster_downloads:
    command: packages
    packages: [six, tqdm==4.66.1]
    environment: "{{ environment }}"
    python: "3.11"
    store: .state/cache/wheels
    cwd: "{{ lookup('ansible.builtin.env', 'PWD') }}"

- name: Fetch the missing wheels from the package index to the controller
  mxcluster_downloads:
    command: wheels
    needs: "{{ ansible_play_hosts | map('extract', hostvars, ['asked', 'needs']) }}"
    store: .state/cache/wheels
    folder: .state/local/carry
  run_once: true
"""

RETURN = r"""
fetched:
  description: The names of the files that O(store) lacked before the download.
  returned: command is archives
  type: list
  elements: str
builds:
  description: The C(builds) for M(mxcluster_env), with the wheels of the packages.
  returned: command is packages
  type: list
  elements: dict
hashes:
  description: The C(hashes) for M(mxcluster_env), with the hashes of the packages' wheels.
  returned: command is packages
  type: dict
archives:
  description: The paths of the tar files, by the C(digest) of an entry of O(needs).
  returned: command is wheels
  type: dict
"""

import hashlib
import os
from typing import Any, Dict

from ansible import constants as C

from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import archives, extra_packages, wheels
from mxcluster.errors import MxclusterError
from mxcluster.file_io import replace, sha256

Json = Dict[str, Any]

REQUIRED_IF = [
    ("command", "archives", ["files"]),
    ("command", "packages", ["packages", "environment", "python", "cwd"]),
    ("command", "wheels", ["needs", "folder"]),
]
REDONE = "Correct the cause, and run the playbook again. The playbook then repeats this step."


def fetch_archives(given: Json, store: str, check: bool) -> Json:
    """Download the files of given["files"] that the folder `store` lacks.

    In check mode (`check`) the function downloads no file.

    Returns {"changed": bool, "fetched": names of the files that `store` lacked (list of str)}.
    """
    files = {one["name"]: one for one in given["files"]}
    missing = [one["name"] for one in archives.lacking(store, files.values())]
    if files and not check:
        with wheels.locked(store):
            for one in files.values():
                archives.provide(store, one, sha256_once)
    return {"changed": bool(missing), "fetched": missing}


def sha256_once(path: str) -> str:
    """Return the SHA-256 of the file `path`. One run of ansible-playbook computes it once.

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


def choose_packages(given: Json, store: str, check: bool) -> Json:
    """Choose the wheels of given["packages"], or read an earlier choice from the folder `store`.

    In check mode (`check`) the function makes no new choice.

    Returns {"changed": bool, "builds": list of dict, "hashes": {wheel: [sha256, ...]}}. In check
    mode without an earlier choice, "builds" and "hashes" are those of given["environment"].
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


def fetch_wheels(given: Json, store: str, check: bool) -> Json:
    """Download the wheels of given["needs"] and pack tar files of wheels in given["folder"].

    In check mode (`check`) the function writes no file.

    Args: `given` the arguments of the task, with "needs" a list of {"python", "requirements",
    "digest"}, one for each node; `store` the folder of the wheels.

    Returns {"changed": bool, "archives": {digest: path of the tar file}}.
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
        "Correct the cause, and run the playbook again. The playbook then continues the downloads.",
    ),
    "packages": (choose_packages, REDONE),
    "wheels": (fetch_wheels, REDONE),
}


def carry_out(given: Json, check: bool) -> Json:
    """Run the function for given["command"]: fetch_archives, choose_packages or fetch_wheels.

    Args: `given` the arguments of the task; `check` True in check mode.
    Raises MxclusterError if a download fails, or if the function cannot read or write a file.

    Returns:
        The result of the function, for Ansible.
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
