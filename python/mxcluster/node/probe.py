"""Inspect one node, on the node itself.

- `look`: check whether the node can run a job. The check changes nothing on the node.
- `facts`: collect the facts for the node record. The function imports MXNet.
- `machine`: collect the part of the record that needs no MXNet. `mxcluster.entry` calls this
  function as root if possible.
"""

import glob
import ipaddress
import os
import platform
import re
import resource
import shutil
import socket
import sys
from typing import Callable, Iterable, List, Mapping, Optional, Sequence

from mxcluster import batch_systems
from mxcluster.errors import BadInput
from mxcluster.model.answers import Held, Looked, LookFacts
from mxcluster.model.node_record import MachineFacts, NodeFacts
from mxcluster.model.node_requests import LookRequest
from mxcluster.node import (
    addresses,
    containers,
    cores,
    driver,
    gpu_check,
    gpus,
    hardware,
    mpi_installation,
    mxnet_compat,
    quota,
    software,
)
from mxcluster.node.mpi_installation import EngineLook

Interfaces = Mapping[str, Sequence[str]]
Holders = Mapping[str, Mapping[str, str]]  # {"ports": {address:port: job}, "gpus": {number: job}}

ANEW = "run provision.yml, which reads the node's facts again"


def look(request: LookRequest, jobs_hold: Callable[[str], Holders]) -> Looked:
    """Check whether this node can run the job of `request`. Each problem names a cure.

    `jobs_hold`: a function that returns the ports and GPUs of the jobs in a folder.
    """
    known = addresses.interfaces()
    address = request.address
    problems = address_problems(address, known) if address else []
    of_jobs = jobs_hold(request.jobs_dir) if request.jobs_dir else {"ports": {}, "gpus": {}}
    taken = held(None if problems else address, request.ports, of_jobs)
    problems += job_problems(request.jobs_dir, request.job)
    problems += interface_problems(request.interface, address, known)
    unlike = gpus.unlike(request.all_gpus)  # covers all GPUs in one message
    problems += [unlike] if unlike else gpus.problems(request.gpus)
    problems += cores.problems(request.cpus or [])
    problems += software.problems(request.versions)
    problems += file_problems(request.files, request.python)
    problems += package_problems(request.package, containers.package_folder())
    if request.batch:
        problem = batch_systems.problem(request.batch.launcher, request.batch.request)
        problems += [problem] if problem else []
    problems += room_problems(request.free, request.open_files)
    engine = EngineLook([])
    if request.container:
        engine = containers.look(request.container, request)
    elif request.mpi:
        engine = mpi_installation.look(request.mpi)
    return Looked(
        problems=problems + engine.problems,
        facts=LookFacts(mpi=engine.mpi),
        held=taken,
        fits=not (
            set(map(str, request.ports)) & set(taken.ports)
            or set(map(str, request.gpus)) & set(taken.gpus)
        ),
        image=engine.image,
        machine=hardware.look(),
    )


def held(address: Optional[str], ports: Iterable[int], of_jobs: Holders) -> Held:
    """Return the ports and GPUs that other jobs and other programs use.

    A port counts if a process listens at `address` on this port. A port of `ports` also counts if
    the kernel refuses a bind.
    """
    found = {
        str(port): "another program" for port in (addresses.listeners(address) if address else ())
    }
    for port in ports:
        if address and addresses.can_bind(address, port) is not None:
            found[str(port)] = (
                addresses.who_listens(address, port) or "a program that `ss -ltnp` shows to root"
            )
    for place, job in of_jobs["ports"].items():
        if place.rpartition(":")[0] == address:
            found[place.rpartition(":")[2]] = "the job %s" % job
    graphics = {str(number): programs for number, programs in gpus.busy().items()}
    graphics.update({number: "the job %s" % job for number, job in of_jobs["gpus"].items()})
    return Held(ports=found, gpus=graphics)


def job_problems(jobs_dir: Optional[str], job: Optional[str]) -> List[str]:
    """Return [message] if the new job id `job` already has a plan in `jobs_dir`, else [].

    This check keeps the files of a new job out of the folder of an earlier job.
    """
    if not jobs_dir or not job or not os.path.exists(os.path.join(jobs_dir, job, "plan.json")):
        return []
    return [
        "the job_id %s is taken on this node (%s): choose another job_id, or fetch the results of "
        "that job with train.yml -e attach=%s" % (job, os.path.join(jobs_dir, job), job)
    ]


def address_problems(address: str, known: Interfaces) -> List[str]:
    """Return [message] if a process of this node cannot listen on `address`, else [].

    `known`: the result of `addresses.interfaces`.
    """
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return [
            "address %r is not a literal IPv4 address, which ps-lite needs: set node_address"
            % address
        ]
    refusal = addresses.can_bind(address, 0)
    if refusal is None:
        return []
    return [
        "address %s is not on this node (%s); the node has %s: %s"
        % (address, refusal, _addresses(known), ANEW)
    ]


def interface_problems(
    interface: Optional[str], address: Optional[str], known: Interfaces
) -> List[str]:
    """Return [message] if `interface` is gone or has lost `address` since provision.yml, else [].

    `known`: the result of `addresses.interfaces`.
    """
    if not interface:
        return []
    if interface not in known:
        return [
            "interface %s is not on this node any more; the node has %s: %s"
            % (interface, ", ".join(sorted(known)), ANEW)
        ]
    if not known[interface]:
        return [
            "interface %s has no IPv4 address any more; the node has %s: give the interface an "
            "address, or %s" % (interface, _addresses(known), ANEW)
        ]
    if address and addresses.interface_of(address, {interface: known[interface]}) is None:
        return [
            "interface %s does not have the address %s any more, but has %s: %s"
            % (interface, address, ", ".join(known[interface]), ANEW)
        ]
    return []


def port_problem(address: str, port: int) -> Optional[str]:
    """Return a message if a process of this user cannot listen on address:port, else None.

    The message names the cure. The message also names the process that holds the port, if this
    user can see that process.
    """
    refusal = addresses.can_bind(address, port)
    if refusal is None:
        return None
    holder = addresses.who_listens(address, port)
    if holder:
        return (
            "port %d on %s is in use by %s: choose another port with -e root_port=..., or stop "
            "that program" % (port, address, holder)
        )
    return (
        "port %d on %s is not available (%s): choose another port with -e root_port=..., or find "
        "the holder with `ss -ltnp` (as root)" % (port, address, refusal)
    )


def file_problems(files: Iterable[str], python: Optional[str]) -> List[str]:
    """Return a message for each of `files` (paths of a job) that is missing or unreadable.

    The function also returns a message if this user cannot run `python` (a path).
    """
    problems = []
    if python and not os.access(python, os.X_OK):
        problems.append("cannot run python %s on this node: run provision.yml" % python)
    for path in files:
        if not os.path.exists(path):
            problems.append(
                "%s does not exist on this node: correct the path, or copy the data there" % path
            )
        elif not os.access(path, os.R_OK):
            problems.append(
                "%s cannot be read by the user with id %d: change the mode of the file, or set "
                "mxcluster_user" % (path, os.geteuid())
            )
    return problems


def package_problems(name: Optional[str], folder: str) -> List[str]:
    """Return [message] if this node has another mxcluster than the controller, else [].

    `name`: the file name of the controller's mxcluster. `folder`: the folder from which this
    package runs. provision.yml unpacks `<digest>.zip` into `<digest>-<version of Python>`. For any
    other folder, such as a git clone, the result is [].
    """
    here = re.match(r"(mxcluster-[0-9a-f]{12})-\d+\.\d+$", os.path.basename(folder))
    if not name or not here or here.group(1) + ".zip" == name:
        return []
    return [
        "the node has another version of mxcluster (%s.zip) than the controller (%s): run "
        "provision.yml" % (here.group(1), name)
    ]


def room_problems(free: Mapping[str, int], open_files: int) -> List[str]:
    """Return a message for each folder of `free` ({folder: needed bytes}) with too little space.

    The function also returns a message if a process may open fewer than `open_files` files.
    """
    problems = []
    for path, least in sorted(free.items()):
        there = path
        while not os.path.isdir(there):  # the first job may make this folder
            there = os.path.dirname(there)
        has = shutil.disk_usage(there).free
        if has < least:
            problems.append(
                "%s has %d MiB free, and a job needs %d MiB: remove unneeded files there"
                % (path, has >> 20, least >> 20)
            )
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if allowed != resource.RLIM_INFINITY and allowed < open_files:
        problems.append(
            "a process may open %d files at most, and a job needs %d: raise nofile in "
            "/etc/security/limits.conf" % (allowed, open_files)
        )
    return problems


def machine() -> MachineFacts:
    """Return the part of the node record that needs neither MXNet nor numpy."""
    limit = quota.tightest()
    return MachineFacts(
        address_of_default_route=addresses.default_route_address(),
        interfaces=addresses.interfaces(),
        hostname=socket.gethostname(),
        host_keys=host_keys(),
        gpus=gpus.count(),
        driver=driver.state(),
        cores=cores.usable(),
        cpu_limit=limit.cpus if limit else None,
    )


def facts(known: NodeFacts) -> NodeFacts:
    """Return the node's part of the node record.

    `known`: the present record. If the files of MXNet and numpy have the fingerprints of that
    record, and the linker finds all libraries that MXNet needs, the function takes the versions
    from the record. This saves the import of MXNet, which takes seconds. Raises BadInput if the
    import of MXNet fails.
    """
    now = NodeFacts(
        python_version=platform.python_version(),
        fingerprints=software.fingerprints(),
        modules=software.modules(),
        **vars(machine()),
    )
    if (
        len(now.fingerprints) == 2
        and (known.python_version, known.fingerprints) == (now.python_version, now.fingerprints)
        and all((known.mxnet, known.numpy, known.model_zoo))
        and not gpu_check.unresolved(dict(os.environ))  # another CUDA may have come
    ):
        return now.replaced(mxnet=known.mxnet, numpy=known.numpy, model_zoo=known.model_zoo)
    try:
        mxnet = mxnet_compat.import_mxnet()
    except Exception as error:  # a missing library raises OSError, a wrong one nearly any exception
        raise BadInput(
            "%s cannot import MXNet (%s: %s). If the error names a library, install this library, "
            "and run provision.yml again. Otherwise %s"
            % (sys.executable, type(error).__name__, error, software.cure())
        ) from error
    import numpy

    return now.replaced(
        mxnet=mxnet.__version__, numpy=numpy.__version__, model_zoo=mxnet_compat.model_zoo()
    )


def host_keys(folder: str = "/etc/ssh") -> List[str]:
    """Return the public host keys of this node's sshd (lines without comments)."""
    keys = []
    for path in sorted(glob.glob(os.path.join(folder, "ssh_host_*_key.pub"))):
        with open(path) as stream:
            keys.append(" ".join(stream.read().split()[:2]))
    return keys


def _addresses(known: Interfaces) -> str:
    return ", ".join(
        "%s (%s)" % (listed.split("/")[0], name) for name in sorted(known) for listed in known[name]
    )
