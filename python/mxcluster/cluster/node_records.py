"""Read the files of the node records, `.state/<inventory>/nodes/HOST.json`."""

import os
from typing import Optional

from mxcluster.errors import BadInput
from mxcluster.file_io import read_json
from mxcluster.model.node_record import CURE, DamagedRecord, NodeRecord, Records, from_file


def of_file(path: str) -> Optional[NodeRecord]:
    """Return the node record in the file HOST.json at `path`, or None without this file.

    The record of a damaged file is a DamagedRecord. Then only a job that uses the host, and the ssh
    files of the host, are refused.
    """
    host = os.path.basename(path)[: -len(".json")]
    try:
        return read_json(path, lambda value: from_file(host, value), CURE)
    except BadInput as refusal:
        return DamagedRecord(host=host, job_dir="", data_dir="", fault=str(refusal))


def read(folder: str) -> Records:
    """Return {host: node record} from the files HOST.json in `folder`, {} without this folder.

    Raises OSError for a folder that this process cannot read.
    """
    try:
        names = [name for name in sorted(os.listdir(folder)) if name.endswith(".json")]
    except FileNotFoundError:
        return {}
    # A hidden file is a draft of an editor.
    found = [of_file(os.path.join(folder, name)) for name in names if name[0] != "."]
    return {record.host: record for record in found if record}
