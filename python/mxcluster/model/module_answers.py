"""Define the answers of our modules for Ansible, with one class for each module.

Root of a node can change each answer of this node. So an answer has facts only, and the controller
computes names, digests and requirements from its own tables. The answers to `mxcluster_node` are
those of `mxcluster.model.answers`.
"""

import json
from typing import Dict, Mapping, Optional, Sequence, Type

from mxcluster.errors import BadInput
from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import (
    Wrong,
    each,
    flag,
    json_of,
    matching,
    optional,
    or_empty,
    table,
    text,
    whole,
    words,
)

CURE = (
    "run the playbook again. If the answer is invalid again, find the program on this host that "
    "changes the output of Ansible's modules, or remove the host from the inventory"
)
# Ansible only shows these fields, and makes objects of some of them itself.
SHOWN = ("deprecations", "exception", "invocation", "warnings")


class Diff(Record):
    """A change of a file, which Ansible shows with --diff."""

    before: Optional[str] = field(optional(text), default=None)
    after: Optional[str] = field(optional(text), default=None)
    before_header: Optional[str] = field(optional(text), default=None)
    after_header: Optional[str] = field(optional(text), default=None)


def _diffs(value: object) -> Sequence[Diff]:
    return each(record(Diff))(value if isinstance(value, list) else [value])


class Answer(Record):
    """The fields that Ansible reads in the answer of any module, and all of a failed module."""

    changed: bool = field(flag, default=False)
    failed: Optional[bool] = field(optional(flag), default=None)
    unreachable: Optional[bool] = field(optional(flag), default=None)
    diff: Optional[Sequence[Diff]] = field(optional(_diffs), default=None)
    msg: Optional[str] = field(optional(text), default=None)
    rc: Optional[int] = field(optional(whole(-(2**31), 2**31)), default=None)
    module_stdout: Optional[str] = field(optional(text), default=None)
    module_stderr: Optional[str] = field(optional(text), default=None)


def _file_state(value: object) -> str:
    """Return the state of a file as one text: a text as it is, other JSON as its text."""
    found = json_of(2)(value)
    return found if isinstance(found, str) else json.dumps(found)


file_states = table(names.file_name, _file_state, 100000)


class AbsentAnswer(Answer):
    """The files of a role that a reset has removed, or has left."""

    removed: Sequence[str] = field(each(words, 100000))
    kept: Mapping[str, str] = field(table(words, words, 100000))
    """{path: the reason why it stays}."""


class DriftAnswer(Answer):
    """The state of the files that provisioning made, to be compared with the last state."""

    seen: Mapping[str, str] = field(file_states)
    """{path: the state of the file}."""


class EnvironmentAnswer(Answer):
    """The state of the environment with MXNet."""

    python: str = field(names.python_version)
    """The version that makes the environment."""
    built: bool = field(flag)
    """True if the module built the environment."""
    done: bool = field(flag)
    """True if the environment is complete."""


class FileAnswer(Answer):
    """The state of a file or folder."""

    path: str = field(names.path)
    lacking: Optional[Sequence[str]] = field(optional(each(names.file_name, 1000000)), default=None)
    """The files of a digest list that are missing or differ."""


class MachineAnswer(Answer):
    """Facts of a machine that `setup` of Ansible does not report."""

    gpus: Sequence[str] = field(
        each(matching(r"[0-9a-f]{4}", "the PCI device number of a GPU"), 1024)
    )
    """The PCI device numbers of NVIDIA's GPUs."""
    driver: Optional[str] = field(optional(names.version))
    """The version of the loaded NVIDIA driver."""
    driver_installed: Optional[str] = field(optional(names.version))
    nouveau: bool = field(flag)
    """True if the kernel has loaded nouveau."""
    kernel: str = field(names.kernel)
    """The release of the running kernel."""
    kernels: Sequence[str] = field(each(names.kernel))
    """The releases of the installed kernels."""
    modules: Mapping[str, str] = field(table(names.kernel, or_empty(names.version)))
    """{kernel: the version of its NVIDIA module, "" without a version}."""
    secure_boot: bool = field(flag)
    gpu_users: Sequence[str] = field(each(words))
    """The programs that use a GPU."""
    machine_id: str = field(matching(r"[0-9a-f]{0,64}|uninitialized", "the id of a machine"))
    python: Optional[str] = field(optional(names.python_version))
    """The version of the system's Python 3, None without Python 3."""
    missing_libraries: Sequence[str] = field(each(names.library))
    missing_programs: Sequence[str] = field(each(names.library))


class SshAnswer(Answer):
    """The ssh user of a node."""

    user: str = field(names.user_name)
    home: str = field(names.path)
    public_key: Optional[str] = field(optional(or_empty(names.public_key)), default=None)


ANSWERS: Dict[str, Type[Answer]] = {
    "mxcluster_absent": AbsentAnswer,
    "mxcluster_drift": DriftAnswer,
    "mxcluster_env": EnvironmentAnswer,
    "mxcluster_file": FileAnswer,
    "mxcluster_machine": MachineAnswer,
    "mxcluster_ssh": SshAnswer,
}


def check(module: str, host: str, answer: object) -> Answer:
    """Return the checked answer of `host` to our module `module`.

    The answer of a failed module keeps no facts. A field such as ansible_facts, on which Ansible
    would act, is dropped. Raises BadInput if a field is invalid or missing.
    """
    try:
        known = Answer.decode(answer)
        return known if known.failed or known.unreachable else ANSWERS[module].decode(answer)
    except Wrong as wrong:
        raise BadInput(
            "the answer of %s to the module %s is invalid: %s: %s" % (host, module, wrong, CURE)
        ) from None
