"""Download the installation files of the nodes to the controller.

Ansible's own modules lack two features. ansible.builtin.get_url cannot continue an interrupted
download, here of up to 1.6 GB. ansible.builtin.pip downloads wheels only for the Python that runs
pip, and not for the Python of a node. Only one run at a time uses a store. In check mode the plugin
leaves the store and the tar files unchanged.
"""

import hashlib
import json
import os
from typing import Callable, Dict, Mapping, Optional, Sequence, Type

from ansible import constants as C

from mxcluster.ansible import arguments, controller_task
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.ansible.terminal import transfers
from mxcluster.cluster import archives, extra_packages, own_wheel, wheels
from mxcluster.errors import MxclusterError
from mxcluster.file_io import read_intact, replace, sha256
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import anything, each, optional
from mxcluster.model.software import Build, Environment, Layer, OwnWheel


class Arguments(Record, strict=True, kind_key="command"):
    """The arguments of each command."""

    store: str = field(arguments.path)
    """The folder of the downloaded files."""


class Archives(Arguments, kind="archives"):
    """Download large files, and continue an interrupted download."""

    files: Sequence[archives.File] = field(each(record(archives.File)))


class Packages(Arguments, kind="packages"):
    """Choose a wheel for each package and for each of its dependencies, for the Python of a node.

    The store keeps the choice, so a later run works without a package index. The task fails for a
    package without a wheel, and for a package that needs another MXNet or numpy.
    """

    packages: object = field(anything)
    """The knob mxnet_packages as the user gave it."""
    environment: Environment = field(record(Environment))
    """The wheels for mxcluster_env."""
    python: str = field(arguments.text)
    """The version of the node's Python, such as 3.11."""
    cwd: str = field(arguments.path)
    """The folder at which a relative path begins."""


class Own(Arguments, kind="own"):
    """Read the user's own build of MXNet, and keep a copy of the wheel in the store."""

    wheel: str = field(arguments.text)
    """The knob mxnet_wheel as the user gave it."""
    cwd: str = field(arguments.path)
    """The folder at which a relative path begins."""


class Wheels(Arguments, kind="wheels"):
    """Download the wheels for mxcluster_env, and pack a tar file for each different set."""

    needs: Sequence[wheels.Need] = field(each(record(wheels.Need), arguments.MOST))
    """The result of mxcluster_env on each node."""
    folder: str = field(arguments.path)
    """The folder of the tar files."""


class Fetched(controller_task.Result):
    """The result of the command archives."""

    fetched: Sequence[str] = field(arguments.texts)
    """The names of the files without a copy."""


class Chosen(controller_task.Result):
    """The builds and hashes for mxcluster_env, with the wheels of the packages.

    In check mode without an earlier choice, these are the values of the argument `environment`.
    """

    builds: Sequence[Build] = field(each(record(Build)))
    hashes: Mapping[str, Sequence[str]] = field(anything)
    layer: Optional[Layer] = field(optional(record(Layer)), default=None)
    """The wheels of the packages alone; None in check mode without an earlier choice."""


class Read(controller_task.Result):
    """The result of the command own."""

    wheel: OwnWheel = field(record(OwnWheel))


class Packed(controller_task.Result):
    """The result of the command wheels."""

    archives: Mapping[str, str] = field(anything)
    """{digest of a need: path of the tar file}."""


def fetch_archives(given: Archives, store: str, check: bool) -> Fetched:
    """Download the files that the folder `store` lacks, but not in check mode (`check`)."""
    files = {one.name: one for one in given.files}
    missing = [name for name in files if not os.path.exists(os.path.join(store, name))]
    if files and not check:
        with wheels.locked(store), transfers.noted(store):
            for one in files.values():
                archives.provide(store, one, sha256_once, transfers.note)
    return Fetched(changed=bool(missing), fetched=missing)


def sha256_once(path: str) -> str:
    """Return the SHA-256 of the file `path`. One run of ansible-playbook computes it once.

    The task runs for each node, in a fork, and a file has up to 3 GB. The forks share the result in
    a folder that ansible-playbook removes at its end. The caller holds the lock of the store.
    """
    note = _note_of(path, "sha256")
    if os.path.exists(note):
        with open(note) as stream:
            return stream.read()
    digest = sha256(path)
    replace(note, digest, 0o600)
    return digest


def _note_of(path: str, fact: str) -> str:
    """Return the path of the file that keeps a fact about the present content of `path`."""
    found = os.stat(path)
    state = repr((path, found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns))
    name = hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(C.DEFAULT_LOCAL_TMP, "%s-%s" % (fact, name))


def choose_packages(given: Packages, store: str, check: bool) -> Chosen:
    """Choose the wheels of the packages, or read an earlier choice from the folder `store`.

    In check mode (`check`) the function makes no new choice.
    """
    environment = given.environment
    wanted = extra_packages.of_knob(given.packages, given.cwd)
    found = extra_packages.extended(environment, wanted, given.python, store, known_only=True)
    changed = found is None
    if changed and not check:
        with wheels.locked(store), transfers.noted(store):
            found = extra_packages.extended(environment, wanted, given.python, store)
    # The choice is saved by now.
    layer = extra_packages.layer(environment, wanted, given.python, store, known_only=True)
    found = found or environment
    return Chosen(changed=changed, builds=found.builds, hashes=found.hashes, layer=layer)


def read_own(given: Own, store: str, check: bool) -> Read:
    """Read the wheel of the user, and copy it into the store, but not in check mode (`check`).

    The task runs for each node, in a fork, and a wheel has up to 900 MB. The forks share the facts
    as those of `sha256_once`.
    """
    path = os.path.abspath(os.path.join(given.cwd, os.path.expanduser(given.wheel)))
    with wheels.locked(C.DEFAULT_LOCAL_TMP):
        note = _note_of(path, "wheel") if os.path.exists(path) else ""
        found = read_intact(note, OwnWheel.decode) if note else None
        if found is None:
            # Up to 3 GB: the user's home, with the folder of the note, may be too small.
            found = own_wheel.read(path, _existing(store))
            replace(note or _note_of(path, "wheel"), json.dumps(found.encode()), 0o600)
    if not check:
        with wheels.locked(store):
            own_wheel.keep(path, found, store, sha256_once)
    return Read(wheel=found)


def _existing(folder: str) -> str:
    """Return the absolute path `folder`, or the nearest existing folder above it in check mode."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def fetch_wheels(given: Wheels, store: str, check: bool) -> Packed:
    """Download the wheels and pack the tar files, but not in check mode (`check`)."""
    needs = [need for need in given.needs if need.requirements]
    if not needs or check:
        return Packed(changed=bool(needs), archives={})
    with wheels.locked(store), transfers.noted(store):
        found = wheels.archives(store, needs, os.path.abspath(given.folder))
    return Packed(changed=True, archives=found)


COMMANDS: Dict[Type[Arguments], Callable[..., controller_task.Result]] = {
    Archives: fetch_archives,
    Packages: choose_packages,
    Own: read_own,
    Wheels: fetch_wheels,
}


def carry_out(given: Arguments, check: bool) -> controller_task.Result:
    """Run a command.

    Args: `given` the arguments of the task; `check` True in check mode.
    Raises MxclusterError if a download fails, or if the function cannot read or write a file.
    """
    store = os.path.abspath(given.store)
    try:
        return COMMANDS[type(given)](given, store, check)
    except OSError as error:
        raise MxclusterError(
            "cannot read or write %s on the controller: %s. Correct the cause, and run the "
            "playbook again, which then repeats this step and continues its downloads"
            % (error.filename or store, error.strerror or error)
        )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_downloads`, which Ansible runs on the controller."""
