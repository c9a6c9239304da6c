"""Collect facts about the present state of one node for verify.yml.

The checks change nothing on the node. On the controller, `mxcluster.cluster.verify` judges the
facts and compares the nodes.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List, Optional, Sequence, TypeVar, Union, cast

from mxcluster import cluster_files, exit_codes
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
    Peers,
)
from mxcluster.model.node_requests import CheckRequest
from mxcluster.node import gpu_check

T = TypeVar("T")

SHM = "/dev/shm"
SSH_AT_ONCE, SSH_SECONDS = 8, 10
IMPORT_SECONDS, KVSTORE_SECONDS = 60.0, 1.0
MARK = b"MXNET "
# MXNet runs in a child process, since a broken library can kill the process. If MXNet has
# the distributed kv-store, `create` waits for a scheduler. Otherwise `create` fails at once.
TRY_MXNET = """
import sys
from mxcluster.node import mxnet_compat
mx = mxnet_compat.import_mxnet()
sys.stdout.write("\\nMXNET " + mx.__version__ + "\\n")
sys.stdout.flush()
mx.kvstore.create("dist_sync")
"""
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
    imported = _tried(mxnet)
    cuda = request.cuda
    return Checked(
        mxnet=ImportFailure(error=imported.error)
        if type(imported) is CheckError
        else cast(Union[ImportFailure, MxnetFacts], imported),
        files=_tried(lambda: files(request.etc_dir)),
        room=_tried(lambda: room(request.folders)),
        ssh=_tried(lambda: ssh(request.peers)),
        gpus=_tried(lambda: gpu_check.check(cuda.folder)) if cuda else None,
    )


def _tried(function: Callable[[], T]) -> Union[CheckError, T]:
    """Return the result of `function`, or the error of a failed check."""
    try:
        return function()
    except (OSError, BadInput, subprocess.SubprocessError) as error:
        return CheckError(error=str(error))


def mxnet() -> Union[ImportFailure, MxnetFacts]:
    """Import MXNet in a child process, and return the facts about MXNet."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", TRY_MXNET],
            env=dict(os.environ, **NOBODY),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert child.stdout is not None  # stdout is a pipe
        late = threading.Event()

        def kill() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(IMPORT_SECONDS, kill)
        timer.start()
        try:
            library = _digest_of_library()
            version = next(
                (line for line in iter(child.stdout.readline, b"") if line.startswith(MARK)), None
            )
            code = child.wait(None if version is None else KVSTORE_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            timer.cancel()
            child.kill()
            child.communicate()
        errors.seek(0)
        last = (errors.read().decode(errors="replace").strip() or "no output")[-300:]
    if version is None:
        assert code is not None  # without MARK, wait() has no timeout
        why = (
            "the import took longer than %g s, so look for a slow disk or a busy node"
            % IMPORT_SECONDS
            if late.is_set()
            else exit_codes.describe(code)
        )
        error = "cannot import MXNet (%s): %s" % (why, last)
        return ImportFailure(error=error, libmxnet=library)
    return MxnetFacts(
        mxnet=version[len(MARK) :].decode("utf-8").strip(),
        libmxnet=library,
        compiled_in=code is None,
        says="" if code is None else last,
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
            found[name] = CheckError(error=str(error))
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
        command = [
            "ssh",
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=%d" % SSH_SECONDS,
            peer,
            "true",
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=2 * SSH_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return None if done.returncode == 0 else "".join(last) or "exit status %d" % done.returncode

    with ThreadPoolExecutor(SSH_AT_ONCE) as pool:
        return Peers(peers=dict(zip(peers, pool.map(one, peers))))


def _digest_of_library() -> Optional[str]:
    """Return the sha256 of libmxnet.so, or None without MXNet.

    The function finds the library without an import of MXNet.
    """
    spec = importlib.util.find_spec("mxnet")
    path = os.path.join(os.path.dirname(spec.origin), "libmxnet.so") if spec and spec.origin else ""
    return sha256(path) if os.path.isfile(path) else None
