"""Collect facts about the present state of one node for verify.yml.

The checks change nothing on the node. On the controller, `mxcluster.cluster.verify` judges the
facts and compares the nodes.
"""

import hashlib
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List, Optional, Sequence, TypeVar, Union

from mxcluster import calls, cluster_files, exit_codes
from mxcluster.errors import BadInput
from mxcluster.file_io import sha256
from mxcluster.model.check_answer import (
    Checked,
    CheckError,
    ClusterFiles,
    FileDigest,
    FileFact,
    ImportFailure,
    MxnetFacts,
    NodeSpeed,
    Peers,
)
from mxcluster.model.node_requests import CheckRequest, SpeedRequest
from mxcluster.node import gpu_check, node_speed, system_facts
from mxcluster.node.software import library_of_mxnet

T = TypeVar("T")

SHM = "/dev/shm"
SSH_AT_ONCE, SSH_SECONDS = 8, 10
IMPORT_SECONDS, KVSTORE_SECONDS = 60.0, 1.0
MARK = "MXNET "
STORE_WAITS = 200  # the exit status of TRY_MXNET if `create` waits
# MXNet runs in a child process, since a broken library can kill the process. If MXNet has
# the distributed kv-store, `create` waits for a scheduler. Otherwise `create` fails at once.
TRY_MXNET = """
import os, sys, threading
from mxcluster.node import mxnet_compat
mx = mxnet_compat.import_mxnet()
sys.stdout.write("\\n%s" + mx.__version__ + "\\n")
sys.stdout.flush()
timer = threading.Timer(%%g, os._exit, [%d])
timer.daemon = True
timer.start()
mx.kvstore.create("dist_sync")
""" % (MARK, STORE_WAITS)
NOBODY = {
    "DMLC_ROLE": "worker",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9",
    "DMLC_NUM_SERVER": "1",
    "DMLC_NUM_WORKER": "1",
    "DMLC_NODE_HOST": "127.0.0.1",
}


def check(request: CheckRequest) -> Checked:
    """Run all checks, and return their facts, or the error of a failed check."""
    cuda, seconds = request.cuda, {}

    def timed(name: str, function: Callable[[], T]) -> T:
        began = time.monotonic()
        result = function()
        seconds[name] = round(time.monotonic() - began, 3)
        return result

    return Checked(
        mxnet=timed("mxnet", mxnet),
        files=timed("files", lambda: _tried(lambda: files(request.etc_dir))),
        room=timed("room", lambda: _tried(lambda: room(request.folders))),
        ssh=timed("ssh", lambda: _tried(lambda: ssh(request.peers))),
        gpus=timed("gpus", lambda: _tried(lambda: gpu_check.check(cuda.folder))) if cuda else None,
        speed=timed("speed", lambda: speed(request.speed)) if request.speed.folder else None,
        system=timed("system", system_facts.look) if request.system else None,
        seconds=seconds,
    )


def speed(request: SpeedRequest) -> NodeSpeed:
    """Measure this node alone, and return its figures, or the error of a failed measurement."""
    return NodeSpeed(
        matmul=_tried(lambda: node_speed.matmul(request.variables)),
        disk=_tried(lambda: node_speed.disk(request.folder)),
    )


def _tried(function: Callable[[], T]) -> Union[CheckError, T]:
    """Return the result of `function`, or the error of a failed check."""
    try:
        return function()
    except (OSError, BadInput) as error:
        return CheckError(error=str(error))


def mxnet() -> Union[ImportFailure, MxnetFacts]:
    """Import MXNet in a child process, and return the facts about MXNet."""
    library = _digest_of_library()
    program = [sys.executable, "-c", TRY_MXNET % KVSTORE_SECONDS]
    ended = calls.run(program, IMPORT_SECONDS, dict(os.environ, **NOBODY))
    last = (ended.err.strip() or "no output")[-300:]
    version = next((line for line in ended.out.splitlines() if line.startswith(MARK)), None)
    if version is None:
        why = (
            "the import took longer than %g s, so look for a slow disk or a busy node"
            % IMPORT_SECONDS
            if ended.status == calls.LATE
            else exit_codes.describe(ended.status)
        )
        error = "cannot import MXNet (%s): %s" % (why, last)
        return ImportFailure(error=error, libmxnet=library)
    has_store = ended.status in (STORE_WAITS, calls.LATE)
    return MxnetFacts(
        mxnet=version[len(MARK) :].strip(),
        libmxnet=library,
        compiled_in=has_store,
        says="" if has_store else last,
    )


def files(folder: str) -> ClusterFiles:
    """Check the cluster files in a folder, and return their digests, or the error of each file."""
    hosts: Optional[List[str]] = None
    found: Dict[str, FileFact] = {}
    for name in ("hosts", "groups", "data_sharding"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                text = stream.read()
            if name == "hosts":
                hosts = cluster_files.parse_hosts(text, name)
            elif hosts and name == "groups":
                cluster_files.parse_groups(text, hosts, name)
            elif hosts:
                cluster_files.parse_data_sharding(text, len(hosts), name)
            digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
            found[name] = FileDigest(sha256=digest)
        except (OSError, BadInput, UnicodeDecodeError) as error:
            reason = "; ".join(str(error).splitlines())  # an answer has no line breaks
            found[name] = CheckError(error=reason)
    return ClusterFiles(**found)


def room(folders: Sequence[str]) -> Dict[str, int]:
    """Return {folder: free bytes} for /dev/shm and the existing folders of `folders`."""
    free = {path: shutil.disk_usage(path).free for path in folders if os.path.isdir(path)}
    return dict(free, **{SHM: shutil.disk_usage(SHM).free if os.path.isdir(SHM) else 0})


def ssh(peers: Sequence[str]) -> Peers:
    """Run `ssh peer` for each of `peers`, and return their errors.

    ssh runs with BatchMode, and so fails instead of asking a question.
    """

    def one(peer: str) -> Optional[str]:
        options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=%d" % SSH_SECONDS]
        ended = calls.run(["ssh", *options, peer, "true"], 2 * SSH_SECONDS)
        return (ended.last_line or "exit status %d" % ended.status) if ended.status else None

    with ThreadPoolExecutor(SSH_AT_ONCE) as pool:
        return Peers(peers=dict(zip(peers, pool.map(one, peers))))


def _digest_of_library() -> Optional[str]:
    """Return the sha256 of libmxnet.so, or None without a readable library.

    The function finds the library without an import of MXNet.
    """
    try:
        return sha256(library_of_mxnet())
    except OSError:
        return None
