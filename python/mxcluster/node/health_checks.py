"""Collect facts about the present state of one node for verify.yml.

The checks change nothing on the node. Each check is a function that takes the request and returns
facts. On the controller, `mxcluster.cluster.verify` judges the facts and compares the nodes.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

from mxcluster import exit_codes
from mxcluster.cluster import files as cluster_files
from mxcluster.errors import BadInput
from mxcluster.file_io import sha256
from mxcluster.node import gpu_check

Json = Dict[str, Any]

SHM = "/dev/shm"
SSH_AT_ONCE, SSH_SECONDS = 8, 10
IMPORT_SECONDS, KVSTORE_SECONDS = 60.0, 1.0
MARK = b"MXNET "
# MXNet runs in a child process, since a broken library can kill the process. If MXNet has
# the distributed kv-store, `create` waits for a scheduler. Otherwise `create` fails at once.
TRY_MXNET = """
import json, sys
from mxcluster.node import mxnet_compat
mx = mxnet_compat.import_mxnet()
sys.stdout.write("\\nMXNET " + json.dumps({"mxnet": mx.__version__}) + "\\n")
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


def check(request: Json) -> Json:
    """Run all CHECKS with `request`, and return {name of a check: facts of the check}.

    `request` (dict) holds the keys that the checks read. A failed check gives {"error": text}
    instead of facts.
    """
    answers = {}
    for name, ask in CHECKS.items():
        try:
            answers[name] = ask(request)
        except (OSError, BadInput, subprocess.SubprocessError) as error:
            answers[name] = {"error": str(error)}
    return answers


def mxnet(_: Json) -> Json:
    """Import MXNet in a child process, and return the facts about MXNet (dict).

    "mxnet": the version. "libmxnet": the digest of MXNet's library. "compiled_in": True if MXNet
    has the distributed kv-store. "says": MXNet's error if the distributed kv-store is missing, else
    "".

    If the import fails, "error" (text) replaces the facts that need the import.
    """
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
            facts: Json = {"libmxnet": _digest_of_library()}
            told = next(
                (line for line in iter(child.stdout.readline, b"") if line.startswith(MARK)), None
            )
            code = child.wait(None if told is None else KVSTORE_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            timer.cancel()
            child.kill()
            child.communicate()
        errors.seek(0)
        last = (errors.read().decode(errors="replace").strip() or "no output")[-300:]
    if told is None:
        assert code is not None  # without MARK, wait() has no timeout
        why = (
            "the import took longer than %g s, so look for a slow disk or a busy node"
            % IMPORT_SECONDS
            if late.is_set()
            else exit_codes.describe(code)
        )
        return dict(facts, error="cannot import MXNet (%s): %s" % (why, last))
    facts.update(json.loads(told[len(MARK) :].decode("utf-8")))
    return dict(facts, compiled_in=code is None, says="" if code is None else last)


def files(request: Json) -> Json:
    """Check the cluster files, and return {file name: {"sha256": digest}}.

    The files are hosts, groups and data_sharding in the folder request["etc_dir"]. An unusable file
    gives {"error": text} with the reason.
    """
    hosts: Optional[List[str]] = None
    answer = {}
    for name in ("hosts", "groups", "data_sharding"):
        try:
            with open(os.path.join(request["etc_dir"], name), encoding="utf-8") as stream:
                text = stream.read()
            if name == "hosts":
                hosts = cluster_files.parse_hosts(text, name)
            elif hosts and name == "groups":
                cluster_files.parse_groups(text, hosts, name)
            elif hosts:
                cluster_files.parse_data_sharding(text, len(hosts), name)
            answer[name] = {"sha256": hashlib.sha256(text.encode("utf-8")).hexdigest()}
        except (OSError, BadInput, UnicodeDecodeError) as error:
            answer[name] = {"error": str(error)}
    return answer


def room(request: Json) -> Json:
    """Return {folder: free bytes} for /dev/shm and the existing folders in request["folders"]."""
    free = {
        path: shutil.disk_usage(path).free for path in request["folders"] if os.path.isdir(path)
    }
    return dict(free, **{SHM: shutil.disk_usage(SHM).free if os.path.isdir(SHM) else 0})


def ssh(request: Json) -> Json:
    """Run `ssh peer` for each of request["peers"], and return {"peers": {peer: None or the error}}.

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

    peers = list(request.get("peers") or [])
    with ThreadPoolExecutor(SSH_AT_ONCE) as pool:
        return {"peers": dict(zip(peers, pool.map(one, peers)))}


def gpu(request: Json) -> Optional[Json]:
    """Return the GPU facts of this node (see `gpu_check.check`), or None without request["cuda"].

    A request for a node without GPUs has no "cuda".
    """
    return gpu_check.check(request["cuda"]) if request.get("cuda") else None


# Dict[str, Callable[[Json], Json]]: each function gets the request and returns facts.
CHECKS = {"mxnet": mxnet, "files": files, "room": room, "ssh": ssh, "gpus": gpu}


def _digest_of_library() -> Optional[str]:
    """Return the sha256 of libmxnet.so, or None without MXNet.

    The function finds the library without an import of MXNet.
    """
    spec = importlib.util.find_spec("mxnet")
    path = os.path.join(os.path.dirname(spec.origin), "libmxnet.so") if spec and spec.origin else ""
    return sha256(path) if os.path.isfile(path) else None
