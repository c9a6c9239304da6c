"""What verify.yml asks of one node: not what was done to it, but how it is. Nothing is changed.

Each check is a function of the request that gives facts; `verify` on the controller judges them, and compares the nodes.
"""
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Optional

from . import clusterfiles, exitcodes, gpus
from .errors import BadInput

Json = Dict[str, Any]

SHM = "/dev/shm"
SSH_AT_ONCE, SSH_SECONDS = 8, 10
IMPORT_SECONDS, KVSTORE_SECONDS = 60.0, 1.0
MARK = b"MXNET "
# A child of its own, since a library that is broken may take its process with it. Where the distributed kv-store is compiled in,
# making one waits for a scheduler; where it is not, it fails at once.
TRY_MXNET = """
import json, sys
from mxcluster import compat
mx = compat.import_mxnet()
import numpy
found = {"numpy": numpy.__version__, "mxnet": mx.__version__}
sys.stdout.write("\\nMXNET " + json.dumps(found) + "\\n")
sys.stdout.flush()
mx.kvstore.create("dist_sync")
"""
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


def mxnet(_: Json) -> Json:
    """The versions of Python, numpy and MXNet, which is imported; the digest of its library; whether it has the distributed
    kv-store ("compiled_in", and what it "says" if not).

    Of an MXNet that cannot be imported, "error", and what is known without it.
    """
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([sys.executable, "-c", TRY_MXNET], env=dict(os.environ, **NOBODY), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=errors)
        timer = threading.Timer(IMPORT_SECONDS, child.kill)
        timer.start()
        try:
            facts = {"python": platform.python_version(), "libmxnet": _digest_of_library()}
            told = next((line for line in iter(child.stdout.readline, b"") if line.startswith(MARK)), None)  # type: ignore
            code = child.wait(None if told is None else KVSTORE_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            timer.cancel()
            child.kill()
            child.communicate()
        errors.seek(0)
        last = (errors.read().decode(errors="replace").strip() or "no word")[-300:]
    if told is None:
        return dict(facts, error="MXNet cannot be imported: %s: %s" % (exitcodes.describe(code), last))
    facts.update(json.loads(told[len(MARK):].decode("utf-8")))
    return dict(facts, compiled_in=code is None, says="" if code is None else last)


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
    free = {path: shutil.disk_usage(path).free for path in request["folders"] if os.path.isdir(path)}
    return dict(free, **{SHM: shutil.disk_usage(SHM).free if os.path.isdir(SHM) else 0})


def ssh(request: Json) -> Json:
    """{"peers": {peer: None, or why `ssh peer` does not work without a person}} for each of the request's peers."""
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
        return {"peers": dict(zip(peers, pool.map(one, peers)))}


def gpu(request: Json) -> Optional[Json]:
    """See `gpus.check`; None for a node without a GPU."""
    return gpus.check(request["cuda"]) if request.get("cuda") else None


CHECKS = {"mxnet": mxnet, "files": files, "room": room, "ssh": ssh, "gpus": gpu}  # type: Dict[str, Callable[[Json], Json]]


def _digest_of_library() -> Optional[str]:
    """The sha256 of libmxnet.so, found without importing it; None if there is no MXNet."""
    spec = importlib.util.find_spec("mxnet")
    path = os.path.join(os.path.dirname(spec.origin), "libmxnet.so") if spec and spec.origin else ""
    return _sha256(path) if os.path.isfile(path) else None


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
