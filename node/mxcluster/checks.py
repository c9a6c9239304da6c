"""What verify.yml asks of one node: not what was done to it, but how it is. Nothing is changed.

Each check is a function of the request that gives facts; `verify` on the controller judges them, and compares the nodes.
"""
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Optional

from . import clusterfiles, compat
from .errors import BadInput

Json = Dict[str, Any]

SSH_AT_ONCE, SSH_SECONDS = 8, 10
# Where the distributed kv-store is compiled in, making one waits for a scheduler; where it is not, it fails at once.
TRY_KVSTORE = ("from mxcluster import compat; mx = compat.import_mxnet(); print('imported', flush=True); "
               "mx.kvstore.create('dist_sync')")
NOBODY = {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9", "DMLC_NUM_SERVER": "1",
          "DMLC_NUM_WORKER": "1", "DMLC_NODE_HOST": "127.0.0.1"}


def check(request: Json) -> Json:
    """All facts by the name of their check; a check that fails in itself gives {"error": text}."""
    answers = {}
    for name, ask in CHECKS.items():
        try:
            answers[name] = ask(request)
        except (OSError, BadInput, subprocess.SubprocessError) as error:
            answers[name] = {"error": str(error)}
    return answers


def versions(_: Json) -> Json:
    """Of Python, numpy and MXNet, the latter imported for it, and the digest of MXNet's library."""
    try:
        mxnet = compat.import_mxnet()
        import numpy
    except Exception as error:  # libraries that are missing show up as OSError, wrong ones as nearly anything
        raise BadInput("MXNet cannot be imported: %s: %s" % (type(error).__name__, error)) from error
    return {"python": platform.python_version(), "numpy": numpy.__version__, "mxnet": mxnet.__version__,
            "libmxnet": _sha256(os.path.join(os.path.dirname(mxnet.__file__), "libmxnet.so"))}


def distributed(_: Json) -> Json:
    """Whether this MXNet has the distributed kv-store."""
    child = subprocess.Popen([sys.executable, "-c", TRY_KVSTORE], env=dict(os.environ, **NOBODY), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if not child.stdout.readline():  # type: ignore
            raise BadInput(child.stderr.read().decode(errors="replace").strip()[-300:])  # type: ignore
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            return {"compiled_in": True}
        return {"compiled_in": False, "says": child.stderr.read().decode(errors="replace").strip()[-300:]}  # type: ignore
    finally:
        child.kill()
        child.communicate()


def files(request: Json) -> Json:
    """For each of the three files its digest, or why it cannot be used."""
    hosts = None  # type: Optional[List[str]]
    answer = {}
    for name in ("hosts", "groups", "data_sharding"):
        try:
            with open(os.path.join(request["etc_dir"], name), encoding="utf-8") as stream:
                text = stream.read()
            if name == "hosts":
                hosts = clusterfiles.parse_hosts(text, name)
            elif hosts and name == "groups":
                clusterfiles.parse_groups(text, hosts, name)
            elif hosts:
                clusterfiles.parse_data_sharding(text, len(hosts), name)
            answer[name] = {"sha256": hashlib.sha256(text.encode("utf-8")).hexdigest()}
        except (OSError, BadInput, UnicodeDecodeError) as error:
            answer[name] = {"error": str(error)}
    return answer


def room(request: Json) -> Json:
    """Free bytes by folder, for each folder of the request and for shared memory."""
    return {path: shutil.disk_usage(path).free for path in list(request["folders"]) + ["/dev/shm"] if os.path.isdir(path)}


def ssh(request: Json) -> Json:
    """{peer: None, or why `ssh peer` does not work without a person} for each of the request's peers."""
    def one(peer: str) -> Optional[str]:
        command = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=%d" % SSH_SECONDS, peer, "true"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  timeout=2 * SSH_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return None if done.returncode == 0 else "".join(last) or "exit status %d" % done.returncode
    peers = list(request.get("peers") or [])
    with ThreadPoolExecutor(SSH_AT_ONCE) as pool:
        return dict(zip(peers, pool.map(one, peers)))


def clock(_: Json) -> Json:
    """What time it is here (unix seconds)."""
    return {"time": time.time()}


CHECKS = {"versions": versions, "distributed": distributed, "files": files, "room": room, "ssh": ssh,
          "clock": clock}  # type: Dict[str, Callable[[Json], Json]]


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
