"""A cluster on this machine whose workers train on its GPUs, without root, ssh and docker.

The inventory `each` has a node for each GPU, with one worker. A machine with one GPU has a second
worker, which trains on the CPU: the workers are then as unequal as they get. The inventory `box` is
one node with all GPUs.
"""

import json
import os
import pathlib
import shutil
import signal

import yaml

from mxcluster.cluster import pairs
from mxcluster.cluster.version_table import table
from mxcluster.model.check_answer import CudaProbe, CudaRuntime
from mxcluster.model.node_record import Cuda, from_file
from mxcluster.node import gpu_check
from tests.gpu import figures, libraries, machine
from tests.playbooks.conftest import NET, Project, Result

PATIENCE = 1800  # seconds; a driver may compile MXNet's code for minutes at the first use
MOST_NODES = 4
EACH, BOX = "each", "box"
# Prefixes of this process's variables that the jobs get: settings of a prepared MXNet, and the
# folder in which the driver keeps the code that it compiles.
PASSED_ON = ("MXNET_", "CUDA_CACHE_")


def hosts(gpus):
    """Return {inventory: its hosts.yml} of a machine with `gpus` GPUs. Two workers at least."""
    each = {
        "gpu%d" % number: {
            "node_address": "%s.%d" % (NET, 11 + number),
            "worker_group": ("first", "second")[number % 2],
            "gpus": [number] if number < gpus else [],
        }
        for number in range(min(MOST_NODES, max(2, gpus)))
    }
    box = {BOX: {"node_address": NET + ".31"}}
    return {EACH: _inventory(each), BOX: _inventory(box)}


def _inventory(workers):
    first = {next(iter(workers)): None}
    children = {"scheduler": first, "servers": first, "workers": workers}
    return {"all": {"children": {name: {"hosts": found} for name, found in children.items()}}}


def settings(local, mxnet, state, environment):
    """Return the variables of all nodes: those of inventory/local with MXNet's and CUDA's versions.

    Args: `local` the variables of inventory/local; `mxnet` the Mxnet; `state` the folder of the
    nodes; `environment` more variables of the jobs' processes.
    """
    own = {
        "mxnet_version": mxnet.version,
        "cuda_version": mxnet.cuda,
        "gpu_required": bool(mxnet.cuda),  # else a node without a GPU on its bus gets another wheel
        "mxcluster_state_dir": str(state),
        "mxnet_store_dir": str(machine.PROJECT / ".state" / "cache" / "wheels"),  # for the next run
        "train_job_env": dict(local["train_job_env"], **environment),
    }
    return dict(local, **own)


def wanted(here, folder):
    """Return the CUDA of a node record: that of `folder`, as its libraries and headers say.

    A prepared MXNet is taken to have code for the GPUs of the Machine `here`.
    """
    mxnet, probe = here.mxnet, machine.probe(folder)
    runtime = probe.runtime if isinstance(probe, CudaProbe) else None
    number = runtime.version if isinstance(runtime, CudaRuntime) else 0
    version = "%d.%d" % (number // 1000, number % 1000 // 10)
    code = sorted({gpu.capability for gpu in here.cuda_gpus})
    if mxnet.cuda:
        code = pairs.compiled_for(mxnet.version, pairs.target(mxnet.cuda))
    return Cuda(
        folder=folder,
        version=version,
        release=version,
        driver=table().cuda[mxnet.cuda].driver if mxnet.cuda else "0",
        cudnn=gpu_check.cudnn(folder),
        nccl=probe.nccl if isinstance(probe, CudaProbe) else None,
        sass=list(code),
        gpus=len(here.gpus),
    )


class Cluster:
    """The cluster. `problem` is "" once `provision` has succeeded, else its reason.

    `cuda` is the folder of CUDA, `job_environment` the variables of the jobs' processes.

    Args: `here` the Machine, with an MXNet; `folder` a new folder for the copy of the project.
    """

    def __init__(self, here, folder):
        self.here, self.problem, self.output, self.cuda = here, "not provisioned", "", ""
        self.job_environment = {}
        self.project = Project(folder)
        self.state = self.project.path / ".state" / "gpu"
        self.folders = {
            name: self.project.path / "inventory" / name for name in hosts(len(here.gpus))
        }

    def provision(self):
        """Fetch CUDA's libraries if needed, and run provision.yml on both inventories."""
        try:
            self._provision()
            self.problem = ""
        except Exception as error:  # the row about provision.yml shows it
            self.problem = figures.last_words(str(error)) or type(error).__name__

    def _provision(self):
        mxnet = self.here.mxnet
        self.cuda = mxnet.libraries
        if not self.cuda and not mxnet.package:
            home = machine.PROJECT / ".state" / "gpu"
            home.mkdir(parents=True, exist_ok=True)
            self.cuda = str(libraries.fetch(home))
        self._prepare_environment()
        self._write_inventories()
        if mxnet.package:
            self._provision_one(EACH)
            self._put_in(pathlib.Path(mxnet.package))
            shutil.rmtree(str(self.state / "nodes"))  # the records have another MXNet
        for name in self.folders:
            self._provision_one(name)
        self._record_cuda()

    def _prepare_environment(self):
        """Give the playbooks this process's PATH and settings, and the libraries of CUDA."""
        # nvidia-smi may be anywhere in the user's PATH, and pip's settings are in the home.
        kept = ("HOME", "LD_LIBRARY_PATH", "FAKE_", *PASSED_ON)
        self.project.environment.update(
            {name: value for name, value in os.environ.items() if name.startswith(kept)},
            PATH="%s:%s" % (self.project.programs, os.environ["PATH"]),
        )
        if self.cuda:
            paths = [self.cuda + "/lib64", os.environ.get("LD_LIBRARY_PATH", "")]
            self.project.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))

    def _write_inventories(self):
        local = self.project.path / "inventory" / "local" / "group_vars" / "all.yml"
        passed = {name: os.environ[name] for name in os.environ if name.startswith(PASSED_ON)}
        if "LD_LIBRARY_PATH" in self.project.environment:
            passed["LD_LIBRARY_PATH"] = self.project.environment["LD_LIBRARY_PATH"]
        given = settings(yaml.safe_load(local.read_text()), self.here.mxnet, self.state, passed)
        self.job_environment = given["train_job_env"]
        for name, content in hosts(len(self.here.gpus)).items():
            (self.folders[name] / "group_vars").mkdir(parents=True)
            (self.folders[name] / "hosts.yml").write_text(yaml.safe_dump(content))
            (self.folders[name] / "group_vars" / "all.yml").write_text(yaml.safe_dump(given))

    def _provision_one(self, inventory):
        result = self.run("provision.yml", inventory)
        self.output += result.output
        assert result.code == 0, result.output

    def _put_in(self, package):
        """Put the prepared package mxnet into the environment of the nodes."""
        (packages,) = (self.state / "env").glob("lib/python*/site-packages")
        shutil.rmtree(str(packages / "mxnet"))
        (packages / "mxnet").symlink_to(package.resolve())

    def _record_cuda(self):
        """Write the CUDA of this machine into the node records, as a provision.yml by root does.

        With it the jobs find its libraries, and verify.yml checks the GPUs.
        """
        if not self.cuda:
            return
        found = wanted(self.here, self.cuda)
        for path in (self.state / "nodes").glob("*.json"):
            record = from_file(path.stem, json.loads(path.read_text()))
            path.write_text(json.dumps(record.replaced(cuda=found).encode()))

    def start(self, playbook, inventory, *arguments, **options):
        """Start a playbook on an inventory with the options as extra variables."""
        given = ["-e", json.dumps(options)] if options else []
        return self.project.start(playbook, "-i", self.folders[inventory], *given, *arguments)

    def run(self, playbook, inventory, *arguments, **options):
        """Run a playbook to its end. Return its exit status and output."""
        return self.finish(self.start(playbook, inventory, *arguments, **options))

    def finish(self, process):
        """Wait for the end of a started playbook. Return its exit status and output."""
        output = self.project.finish(process, PATIENCE)
        return Result(process.returncode, output)

    def train(self, inventory, job, **options):
        """Run train.yml to its end. Return (Result, the run folder)."""
        result = self.run("train.yml", inventory, job_id=job, **options)
        return result, self.project.path / "runs" / job

    def jobs_of(self, host):
        """Return the folder of the jobs of a node."""
        return self.state / "jobs" / host

    def pid(self, host, job, role):
        """Return the pid of the first running process of a role on a node, None without one."""
        path = self.jobs_of(host) / job / "status.json"
        if not path.exists():
            return None
        parts = json.loads(path.read_text())["processes"]
        pids = [one["pid"] for one in parts if one["role"] == role and one["state"] == "running"]
        return pids[0] if pids else None

    def end(self):
        """Kill the processes of jobs that a failed row has left."""
        for pid in self.project.processes():
            os.kill(pid, signal.SIGKILL)
