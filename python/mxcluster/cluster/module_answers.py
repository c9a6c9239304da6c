"""Check the answers of our modules for Ansible, before a task on the controller can use an answer.

Root of a node can change each answer of this node. So an answer has facts only, and each fact must
match a shape. The controller computes names, digests and requirements from its own tables.
`mxcluster.job.replies` has the answers to `mxcluster_node`.
"""

from typing import Any, Dict

from mxcluster import shapes
from mxcluster.cluster import node_records
from mxcluster.errors import BadInput

Json = Dict[str, Any]

CURE = (
    "run the playbook again. If the answer is invalid again, find the program on this host that "
    "changes the output of Ansible's modules, or remove the host from the inventory"
)

_file_name = shapes.matching(r"[^\x00]+", "the name of a file", 4096)
_name = shapes.matching(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}", "the name of a library or program")
_python = shapes.matching(r"[0-9]\.[0-9]{1,2}", "a version of Python, such as 3.11")
_kernel = shapes.matching(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}", "the release of a kernel")
_driver = shapes.either(None, node_records.version)

# The fields of each module's answer.
ANSWERS = {
    "mxcluster_drift": {"seen": shapes.dict_of(_file_name, shapes.json_of(2), 100000)},
    "mxcluster_env": {"python": _python, "built": shapes.flag, "done": shapes.flag},
    "mxcluster_file": {"path": node_records.path},
    "mxcluster_machine": {
        "gpus": shapes.list_of(
            shapes.matching(r"[0-9a-f]{4}", "the PCI device number of a GPU"), 1024
        ),
        "driver": _driver,
        "driver_installed": _driver,
        "nouveau": shapes.flag,
        "kernel": _kernel,
        "kernels": shapes.list_of(_kernel),
        "modules": shapes.dict_of(_kernel, shapes.either("", node_records.version)),
        "secure_boot": shapes.flag,
        "gpu_users": shapes.list_of(shapes.words),
        "machine_id": shapes.matching(r"[0-9a-f]{0,64}|uninitialized", "the id of a machine"),
        "python": shapes.either(None, _python),
        "missing_libraries": shapes.list_of(_name),
        "missing_programs": shapes.list_of(_name),
    },
    "mxcluster_ssh": {"user": node_records.user_name, "home": node_records.path},
}  # type: Dict[str, Dict[str, shapes.Shape]]
# The fields that only some answers of a module have.
ALSO = {
    "mxcluster_file": {"lacking": shapes.list_of(_file_name, 1000000)},
    "mxcluster_ssh": {"public_key": shapes.either("", node_records.public_key)},
}  # type: Dict[str, Dict[str, shapes.Shape]]
_diff = shapes.fields(
    {}, dict.fromkeys(("before", "after", "before_header", "after_header"), shapes.text)
)
# The fields that Ansible reads in the answer of any module.
COMMON = {
    "changed": shapes.flag,
    "diff": lambda value: (shapes.list_of(_diff) if isinstance(value, list) else _diff)(value),
    "failed": shapes.flag,
    "module_stderr": shapes.text,
    "module_stdout": shapes.text,
    "msg": shapes.text,
    "rc": shapes.whole(-(2**31), 2**31),
    "unreachable": shapes.flag,
}  # type: Dict[str, shapes.Shape]
# The fields that Ansible only shows. Ansible itself makes objects of some of them.
SHOWN = ("deprecations", "exception", "invocation", "warnings")


def check(module: str, host: str, answer: Json) -> Json:
    """Return the checked answer of `host` to our module `module`.

    The result has only known fields. A field such as ansible_facts is dropped, because Ansible acts
    on it. The answer of a failed module keeps no facts.

    Raises BadInput if a field is invalid or missing.
    """
    failed = answer.get("failed") or answer.get("unreachable")
    needed, also = ({}, {}) if failed else (ANSWERS[module], ALSO.get(module, {}))
    try:
        told: Json = shapes.fields(needed, dict(COMMON, **also))(answer)
    except shapes.Wrong as wrong:
        raise BadInput(
            "the answer of %s to the module %s is invalid: %s: %s" % (host, module, wrong, CURE)
        ) from None
    return dict({name: answer[name] for name in SHOWN if name in answer}, **told)
