"""Make and check node records, the facts that the controller keeps about each node.

A process of the training user reports the node's facts. Each fact must match a shape. The
provisioning role adds paths from its own variables, because root runs programs and writes files at
these paths.
"""

import os
import re
from typing import Any, Dict, cast

from mxcluster.errors import BadInput
from mxcluster.file_io import read_json
from mxcluster.model import shapes

Json = Dict[str, Any]

SCHEMA = 2  # in schema 1 the node reported the paths
CURE = (
    "run provision.yml for this host. If mxcluster refuses the record again, find the process on "
    "the host that changes the output of the training user's programs, and use the training user "
    "for mxcluster only"
)

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_KEY = (
    r"(ssh-ed25519|ssh-rsa|ssh-dss|ecdsa-sha2-nistp(256|384|521)|sk-ssh-ed25519@openssh\.com"
    r"|sk-ecdsa-sha2-nistp256@openssh\.com) [A-Za-z0-9+/]+={0,2}"
)

public_key = shapes.matching(
    _KEY, "a public ssh key (type and base64, without options or a comment)", 20000
)
# Linux allows 15 bytes without a blank and a slash. A brace could begin a template of Ansible, and
# a minus sign an option of a program.
interface_name = shapes.passing(
    str,
    lambda value: (
        value.isprintable()
        and re.fullmatch(r"(?!-|\.{1,2}$)[^\s/{}]+", value)
        and len(value.encode("utf-8")) <= 15
    ),
    "the name of a network interface",
)
hostname = shapes.matching(r"%s(\.%s)*" % (_LABEL, _LABEL), "a host name", 253)
user_name = shapes.matching(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}\$?", "the name of a user")
version = shapes.matching(r"[0-9][0-9A-Za-z.+_-]{0,39}", "a version")
network = shapes.matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", "the name of a network")
path = shapes.matching(r"/[^\x00-\x1f\x7f-\x9f]*", "an absolute path", 4096)
digest = shapes.matching(r"[0-9a-f]{64}", "a sha256")

# The node's facts. Root collects MACHINE if possible, and the training user collects ENVIRONMENT.
MACHINE = {
    "address_of_default_route": shapes.optional(shapes.ipv4),
    "interfaces": shapes.table(interface_name, shapes.each(shapes.ipv4_interface)),
    "hostname": shapes.or_empty(hostname),
    "host_keys": shapes.each(public_key, 16),
    "gpus": shapes.whole(0, 1024),
    "driver": shapes.fields(
        {
            "installed": shapes.optional(version),
            "loaded": shapes.optional(version),
            "nouveau": shapes.flag,
        },
    ),
}
ENVIRONMENT = {
    "python_version": version,
    "mxnet": version,
    "numpy": version,
    "model_zoo": shapes.each(network),
}
FINGERPRINTS = shapes.table(shapes.one_of("libmxnet.so", "numpy"), digest)
# The values of the role's variables.
PLACES = {
    "python": path,
    "job_dir": path,
    "data_dir": path,
    "target": shapes.words,
    "bus": lambda value: shapes.whole(0, 1024)(_number(value)),
    "cuda": lambda value: (
        shapes.fields({"folder": path}, rest=shapes.json_of(1))(value) if value else None
    ),
    "ssh": shapes.fields(
        {},
        {
            "public_key": shapes.or_empty(public_key),
            "user": shapes.or_empty(user_name),
            "port": lambda value: shapes.whole(1, 65535)(_number(value)),
        },
    ),
}

# Only a batch job's programs tell it (`mxcluster.batch.node_part`).
GRANTED = shapes.optional(shapes.each(shapes.whole(0, 1023)))

of_node = shapes.fields(
    {}, dict(MACHINE, **dict(ENVIRONMENT, fingerprints=FINGERPRINTS, granted=GRANTED))
)
of_role = shapes.fields({}, PLACES)
_with_folders = shapes.fields({"job_dir": path, "data_dir": path}, rest=shapes.anything)


def make(host: str, told: Json, places: Json) -> Json:
    """Return the record of `host` from the node's facts `told` and the role's values `places`.

    The values of `places` have priority. Raises BadInput if a value does not match its shape.
    """
    return _checked(
        host, dict(_checked(host, told, of_node), host=host, schema=SCHEMA, **places), _whole
    )


def of_file(file: str) -> Json:
    """Return the node record in the file with the path `file`, HOST.json, after a check.

    Earlier versions saved unchecked records. If a value is wrong, or if the record belongs to
    another host, the result is {"damaged": message}. Then only a job that uses the host, and the
    ssh files of the host, are refused (`refuse_damaged`).

    In schema 1 the node reported the path of Python. The function drops this path from records of
    other schemas, and the planner then requires a run of provision.yml.
    """
    host = os.path.basename(file)[: -len(".json")]

    def shape(record: Any) -> Json:
        if not isinstance(record, dict) or record.get("host") != host:
            raise shapes.Wrong("the record of %s" % host, _name(record))
        found = _whole(_with_folders(record))
        if record.get("schema") != SCHEMA:
            found.pop("python", None)
        return found

    try:
        return dict(read_json(file, shape, CURE) or {})
    except BadInput as refusal:
        return {"damaged": str(refusal)}


def refuse_damaged(host: str, record: Json) -> None:
    """Raise BadInput if the file of the node record was damaged.

    Args: `record` the result of `of_file`.
    """
    if "damaged" in record:
        raise BadInput("%s: %s" % (host, record["damaged"]))


def _whole(value: object) -> Json:
    record = cast(Json, value)
    return dict(
        of_node(record), host=record["host"], schema=record.get("schema"), **of_role(record)
    )


def _checked(host: str, value: Any, shape: shapes.Shape[Json]) -> Json:
    try:
        found: Json = shape(value)
        return found
    except shapes.Wrong as wrong:
        raise BadInput("the node record of %s is invalid (%s): %s" % (host, wrong, CURE)) from None


def _name(record: Any) -> str:
    return (
        shapes.words(str(record.get("host")))[: shapes.SHOWN]
        if isinstance(record, dict)
        else "no host"
    )


def _number(value: Any) -> Any:
    """Return a string of up to five digits as an int, and any other value unchanged.

    Ansible's templates give numbers as strings.
    """
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value) else value
