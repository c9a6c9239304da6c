"""A look at one node, from the node itself.

`python -m mxcluster.node look --request JSON`: can this node do what a job wants of it? Nothing is changed.
`python -m mxcluster.node record`: what provisioning wants to remember of it; imports MXNet.
`python -m mxcluster.node machine`: the part of that which is the machine's; root asks for it where there is a root.
`python -m mxcluster.node check --request JSON`: what verify.yml wants to know of it, see `checks`.
"""
import glob
import ipaddress
import json
import os
import platform
import re
import resource
import shutil
import socket
import sys
from typing import Any, Dict, List, Optional

from mxcluster import answer, checks, compat, gpus, network, software
from mxcluster.agent import claims
from mxcluster.errors import BadInput

Json = Dict[str, Any]
Interfaces = Dict[str, List[str]]

ANEW = "run provision.yml, which asks the node anew"


def look(request: Json) -> Json:
    """{"problems": [text, ...], "facts": {...}, "held", "fits"}: what of `request` this node cannot give, each with its cure.

    "held" is what others have, see `held`, and "fits" whether that leaves the job its ports and GPUs; if not, the plan is made
    anew.

    `request`, every key optional: "address" (literal IPv4 that processes bind), "interface" that has to hold it,
    "ports" they listen on there, "gpus" (numbers), "all_gpus" (see `gpus.unlike`), "jobs_dir" with the folders of all jobs,
    "job" that must not be one of them, "files" that must exist and be readable, "python" that runs them, "package" (the file name
    of mxcluster as the controller has it), "versions" (what was there when provision.yml asked), "free" ({folder: bytes}),
    "open_files".
    """
    known = network.interfaces()
    address, ports = request.get("address"), request.get("ports") or []
    problems = address_problems(address, known) if address else []
    taken = held(address if not problems else None, [int(port) for port in ports], request.get("jobs_dir"))
    problems += job_problems(request.get("jobs_dir"), request.get("job"))
    problems += interface_problems(request.get("interface"), address, known)
    unlike = gpus.unlike(request.get("all_gpus"))  # says all that there is to say
    problems += [unlike] if unlike else gpus.problems([int(number) for number in request.get("gpus") or []])
    problems += software.problems(request.get("versions") or {})
    problems += file_problems(request.get("files") or [], request.get("python"))
    problems += package_problems(request.get("package"), os.path.dirname(os.path.dirname(os.path.abspath(answer.__file__))))
    problems += room_problems(request.get("free") or {}, request.get("open_files") or 0)
    facts = {"interfaces": known, "address_of_default_route": network.default_route_address(), "gpus": gpus.count(),
             "python_version": platform.python_version()}
    fits = not (set(map(str, ports)) & set(taken["ports"]) or set(map(str, request.get("gpus") or [])) & set(taken["gpus"]))
    return {"problems": problems, "facts": facts, "held": taken, "fits": fits}


def held(address: Optional[str], ports: List[int], jobs_dir: Optional[str]) -> Json:
    """{"ports": {"9091": who}, "gpus": {"0": who}}: what others have of this node, jobs of ours and other programs.

    Of the ports of `address`, those that anybody listens on; of those that are wanted, `ports`, whatever else keeps them.
    """
    of_jobs = claims.held(jobs_dir) if jobs_dir else {"ports": {}, "gpus": {}}
    found = {str(port): "another program" for port in (network.listeners(address) if address else ())}
    for port in ports if address else ():
        if network.can_bind(address, port) is not None:
            found[str(port)] = network.who_listens(address, port) or "a program that `ss -ltnp` shows to root"
    for place, job in of_jobs["ports"].items():
        if place.rpartition(":")[0] == address:
            found[place.rpartition(":")[2]] = "the job %s" % job
    graphics = {str(number): who for number, who in gpus.busy().items()}
    graphics.update({number: "the job %s" % job for number, job in of_jobs["gpus"].items()})
    return {"ports": found, "gpus": graphics}


def job_problems(jobs_dir: Optional[str], job: Optional[str]) -> List[str]:
    """Whether the id of a new job is still free. Nothing may be brought into the folder of another job."""
    if not jobs_dir or not job or not os.path.exists(os.path.join(jobs_dir, job, "plan.json")):
        return []
    return ["the job_id %s is taken on this node (%s): choose another job_id, or bring the results of that job with train.yml "
            "-e attach=%s" % (job, os.path.join(jobs_dir, job), job)]


def address_problems(address: str, known: Interfaces) -> List[str]:
    """Whether `address` is one that a process of this node can listen on."""
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return ["address %r is not a literal IPv4 address, which ps-lite needs: set node_address" % address]
    refusal = network.can_bind(address, 0)
    if refusal is None:
        return []
    return ["address %s is not on this node (%s); it has %s: %s" % (address, refusal, _addresses(known), ANEW)]


def interface_problems(interface: Optional[str], address: Optional[str], known: Interfaces) -> List[str]:
    """Whether `interface` is there and holds `address`: both were there when provision.yml asked the node."""
    if not interface:
        return []
    if interface not in known:
        return ["interface %s is not on this node any more; it has %s: %s" % (interface, ", ".join(sorted(known)), ANEW)]
    if not known[interface]:
        return ["interface %s has no IPv4 address any more; the node has %s: give it one, or %s"
                % (interface, _addresses(known), ANEW)]
    if address and network.interface_of(address, {interface: known[interface]}) is None:
        return ["interface %s does not hold the address %s any more, it holds %s: %s"
                % (interface, address, ", ".join(known[interface]), ANEW)]
    return []


def port_problem(address: str, port: int) -> Optional[str]:
    """Why a process of this user cannot listen on address:port, None if it can."""
    refusal = network.can_bind(address, port)
    if refusal is None:
        return None
    holder = network.who_listens(address, port)
    if holder:
        return ("port %d on %s is in use by %s: choose another with -e root_port=..., or stop it"
                % (port, address, holder))
    return ("port %d on %s cannot be had (%s): choose another with -e root_port=..., or see with `ss -ltnp` (as root) "
            "who has it" % (port, address, refusal))


def file_problems(files: List[str], python: Optional[str]) -> List[str]:
    """Which of the files and folders that a job needs are not there, or not for this user."""
    problems = []
    if python and not os.access(python, os.X_OK):
        problems.append("python %s cannot be run on this node: run provision.yml" % python)
    for path in files:
        if not os.path.exists(path):
            problems.append("%s does not exist on this node: correct the path, or bring it there" % path)
        elif not os.access(path, os.R_OK):
            problems.append("%s cannot be read by %s: change its mode, or the user of the job" % (path, _user()))
    return problems


def package_problems(wanted: Optional[str], ours: str) -> List[str]:
    """Whether this node runs another mxcluster than the controller; `ours` is the folder that it runs from.

    provision.yml unpacks `<name>.zip` into `<name>-<version of Python>`; a folder of another form is the source itself.
    """
    here = re.match(r"(mxcluster-[0-9a-f]{12})-\d+\.\d+$", os.path.basename(ours))
    if not wanted or not here or here.group(1) + ".zip" == wanted:
        return []
    return ["the node has another version of mxcluster (%s.zip) than the controller (%s): run provision.yml"
            % (here.group(1), wanted)]


def room_problems(free: Dict[str, int], open_files: int) -> List[str]:
    """Which folders have too little room, and whether too few files may be opened."""
    problems = []
    for path, least in sorted(free.items()):
        there = path
        while not os.path.isdir(there):  # the folder of the jobs may be made by the first
            there = os.path.dirname(there)
        has = shutil.disk_usage(there).free
        if has < least:
            problems.append("%s has %d MiB free, and a job needs %d: make room there" % (path, has >> 20, least >> 20))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if allowed != resource.RLIM_INFINITY and allowed < open_files:
        problems.append("a process may open %d files at most, and a job needs %d: raise nofile in /etc/security/limits.conf"
                        % (allowed, open_files))
    return problems


def machine(_: Json) -> Json:
    """The machine's part of the node record: addresses, names, keys and GPUs. Nothing that is not Python's own is imported."""
    return {"address_of_default_route": network.default_route_address(), "interfaces": network.interfaces(),
            "hostname": socket.gethostname(), "host_keys": host_keys(), "gpus": gpus.count()}


def record(request: Json) -> Json:
    """The node record, as far as the node tells it: the machine, and what this interpreter has to train with.

    MXNet takes seconds to import. Where its files are those of the record that the request holds as "known", that one counts.
    """
    return dict(machine(request), **environment(request.get("known") or {}))


def environment(known: Json) -> Json:
    """"python_version", "mxnet", "numpy", "model_zoo", "fingerprints" of this interpreter's packages."""
    now = {"python_version": platform.python_version(), "fingerprints": software.fingerprints()}
    told = ("mxnet", "numpy", "model_zoo")
    if len(now["fingerprints"]) == 2 and all(known.get(name) == now[name] for name in now) and all(map(known.get, told)):
        return dict(now, **{name: known[name] for name in told})
    try:
        mxnet = compat.import_mxnet()
    except Exception as error:  # libraries that are missing show up as OSError, wrong ones as nearly anything
        raise BadInput("MXNet cannot be imported by %s (%s: %s): run provision.yml"
                       % (sys.executable, type(error).__name__, error)) from error
    import numpy
    return dict(now, mxnet=mxnet.__version__, numpy=numpy.__version__, model_zoo=model_zoo())


def host_keys(folder: str = "/etc/ssh") -> List[str]:
    """The public host keys of this machine's sshd, without their comments."""
    keys = []
    for path in sorted(glob.glob(os.path.join(folder, "ssh_host_*_key.pub"))):
        with open(path) as stream:
            keys.append(" ".join(stream.read().split()[:2]))
    return keys


def model_zoo() -> List[str]:
    """The names of the networks in MXNet's model zoo, sorted.

    MXNet has no list of them that can be asked for, but its get_model() names them all when it refuses a name: one
    a line, in 1.2.1, 1.5.1 and 1.9.1 alike.
    """
    from mxnet.gluon.model_zoo import vision
    try:
        vision.get_model("no such network")
    except ValueError as refusal:
        return sorted(line.strip() for line in str(refusal).splitlines()[1:] if line.strip())
    raise BadInput("the model zoo of this MXNet takes any name: it is not one of those that mxcluster knows")


def _addresses(known: Interfaces) -> str:
    return ", ".join("%s (%s)" % (listed.split("/")[0], name) for name in sorted(known) for listed in known[name])


def _user() -> str:
    return "the user with id %d" % os.geteuid()


def run(argv: List[str]) -> Json:
    """Carry out one command line and return its answer."""
    parser = answer.Parser(prog="mxcluster.node", description="A look at this node.")
    parser.add_argument("command", choices=("look", "record", "machine", "check"))
    parser.add_argument("--request", default="{}", help="a JSON object, see the functions look and record")
    given = parser.parse_args(argv)
    try:
        request = json.loads(given.request)
    except ValueError as error:
        parser.error("--request is not JSON (%s)" % error)
    if not isinstance(request, dict):
        parser.error("--request is not a JSON object but %s" % given.request)
    return {"look": look, "record": record, "machine": machine, "check": checks.check}[given.command](request)


if __name__ == "__main__":
    sys.exit(answer.give(run, sys.argv[1:]))
