"""Detect an MPI engine by the output of `mpirun --version`, and make mpirun's command line.

All functions are pure. An engine is an implementation of MPI with an mpirun. ENGINES holds the
names of the arguments and variables, which differ between engines.

Sources: mpirun(1) of Open MPI 4.1 and 5.0, the guide of Hydra (MPICH), Intel's Developer Reference.
Each entry was tried with the real mpirun.
"""

import hashlib
import hmac
import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple


class Engine(NamedTuple):
    """The properties of an MPI engine that mxcluster uses. Words in {braces} are placeholders.

    - `name`: the value of the knob `mpi_runtime` for this engine;
    - `title`: the name of the engine in messages;
    - `version`: a regular expression for the output of `mpirun --version`. Group 1 is the version;
    - `install`: the advice for the installation of the engine;
    - `programs`: the names of mpirun, the usual name first;
    - `slots`: the format of a line of the hosts file, for (host, number of processes);
    - `arguments`: the arguments of mpirun, with {hosts_file}, {processes} and {names};
    - `passed`: the arguments that pass variables to the processes. {names} stands for all names
      with commas. mpirun gets an argument with {name} once for each name;
    - `agent`: the variables that make mpirun start daemons through the program {agent}. mpirun
      calls the program as AGENT [OPTION...] HOST COMMAND...;
    - `session`: the variables that name the {folder} for the temporary folders of mpirun and its
      daemons. They leave these when they are killed;
    - `root`: the variables that allow mpirun to run as root;
    - `address`: the arguments that name the {address} or {interface} of mpirun's node. The daemons
      connect to this address;
    - `network`: the variables that bind the engine to the network {network} (address/prefix), or to
      the network interface {interface} of the node;
    - `no_infiniband`: the variables that forbid InfiniBand;
    - `infiniband`: the variables that forbid all other networks between nodes;
    - `contained`: the variables that the engine needs in a container.
    """

    name: str
    title: str
    version: str
    install: str
    programs: Tuple[str, ...]
    slots: str
    arguments: str
    passed: str
    agent: Dict[str, str]
    session: Dict[str, str]
    root: Dict[str, str]
    address: str
    network: Dict[str, str]
    no_infiniband: Dict[str, str]
    infiniband: Dict[str, str]
    contained: Dict[str, str]


_OPENMPI = Engine(
    name="openmpi",
    title="Open MPI",
    version=r"\(Open ?MPI\) (\d+(?:\.\w+)*)",
    install="install the package openmpi-bin (Debian, Ubuntu) or openmpi (RHEL)",
    programs=("mpirun", "mpirun.openmpi"),
    slots="%s slots=%d",
    # By default Open MPI binds each process to one core, which slows processes with threads.
    arguments="--hostfile {hosts_file} -n {processes} --map-by slot --bind-to none",
    passed="-x {name}",
    # Open MPI 5 starts its daemons through PRRTE, which reads the PRTE variables. The last two
    # variables of each kind keep daemons in the foreground, and do not shorten host names.
    agent={
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": "{agent}",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": "{agent}",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
    },
    session={"OMPI_MCA_orte_tmpdir_base": "{folder}", "PRTE_MCA_prte_tmpdir_base": "{folder}"},
    root={
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    },
    address="",
    # Without these variables Open MPI may choose a bridge such as docker0, which has the same
    # address on all nodes.
    network={
        "OMPI_MCA_oob_tcp_if_include": "{network}",
        "OMPI_MCA_btl_tcp_if_include": "{network}",
        "PRTE_MCA_prte_if_include": "{network}",
    },
    no_infiniband={"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "^openib"},
    infiniband={"OMPI_MCA_pml": "ucx", "OMPI_MCA_btl": "^tcp"},
    # A container engine may forbid process_vm_readv, as docker 20.10 does. Open MPI 4 notices this
    # only after the start, and fails (github.com/open-mpi/ompi/issues/4948).
    contained={"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_smsc": "^cma"},
)
_MPICH = Engine(
    name="mpich",
    title="MPICH",
    version=r"HYDRA build details:\s+Version:\s+(\d\S*)",
    install="install the package mpich",
    programs=("mpirun", "mpirun.mpich", "mpiexec.hydra"),
    slots="%s:%d",
    arguments="-f {hosts_file} -n {processes}",
    passed="-genvlist {names}",
    agent={"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": "{agent}"},
    session={},
    root={},
    address="-localhost {address}",
    network={
        "FI_TCP_IFACE": "{interface}",
        "FI_SOCKETS_IFACE": "{interface}",
        "MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE": "{interface}",
    },
    no_infiniband={"FI_PROVIDER": "tcp", "UCX_TLS": "tcp,self,sm"},
    infiniband={"FI_PROVIDER": "verbs", "UCX_TLS": "rc,self,sm"},
    contained={"MPIR_CVAR_CH4_CMA_ENABLE": "0"},  # without process_vm_readv
)
_INTELMPI = Engine(
    name="intelmpi",
    title="Intel MPI",
    version=r"Intel\(R\) MPI Library for Linux\* OS, Version (\d+(?:\.\d+)*(?: Update \d+)?)",
    install="install Intel MPI and load it with its vars.sh or mpivars.sh",
    programs=("mpirun", "mpiexec.hydra"),
    slots="%s:%d",
    arguments="-machinefile {hosts_file} -n {processes}",
    passed="-genvlist {names}",
    agent={"I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": "{agent}"},
    session={},
    root={},
    address="-iface {interface}",  # Intel MPI has no argument for an address
    network={"I_MPI_TCP_NETMASK": "{network}", "FI_TCP_IFACE": "{interface}"},
    no_infiniband={"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "tcp"},
    infiniband={"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "verbs"},
    contained={},
)
ENGINES = {engine.name: engine for engine in (_OPENMPI, _MPICH, _INTELMPI)}

# Open MPI 4 and 5 name the folder of a daemon in this variable of the daemon's processes, such as
# /tmp/ompi.HOST.UID/pid.PID, /tmp/ompi.HOST.UID/jf.NUMBER or /tmp/ompi.PID.
# A killed daemon leaves it.
SESSION = "PMIX_SERVER_TMPDIR"
SESSION_NAMES = ("ompi.", "prte.")  # the beginnings of the name of the folder or its parent
TEMPORARY = "/tmp"  # on each node a local folder in which no other user can replace a folder


def session_folder(token: bytes) -> str:
    """Return the path of the folder for the engine's temporary folders in the job of `token`.

    Only a program that has the token can compute the path, so no other user can take it before the
    job. The path is short, because it becomes a part of paths of sockets.
    """
    name = hmac.new(token, b"session of mpirun", hashlib.sha256).hexdigest()[:32]
    return os.path.join(TEMPORARY, "mxcluster-" + name)


def session_folders(environ: Mapping[str, str]) -> List[str]:
    """Return the paths of the engine's temporary folder on this node and of its parent, or [].

    The parent counts only if it belongs to the engine, too.

    `environ`: the variables of a process that the engine's daemon has started.
    """
    path = environ.get(SESSION, "")
    both = [path, os.path.dirname(path)]
    are_own = [os.path.basename(one).startswith(SESSION_NAMES) for one in both]
    if not os.path.isabs(path) or not any(are_own):
        return []
    return both if are_own[1] else both[:1]


def detect(text: str) -> Optional[Tuple[str, str]]:
    """Return (name of the engine, version) from `text`, the output of `mpirun --version`.

    Returns None for the text of an unknown engine.
    """
    for engine in ENGINES.values():
        found = re.search(engine.version, text)
        if found:
            return engine.name, found.group(1)
    return None


def hosts_file(engine: Engine, hosts: Sequence[Tuple[str, int]]) -> str:
    """Return the text of the hosts file, one line for each (host, number of processes) of `hosts`.

    The ranks of MPI follow the order of the lines.
    """
    return "".join(engine.slots % host + "\n" for host in hosts)


def command_line(
    engine: Engine,
    mpirun: str,
    hosts_file: str,
    processes: int,
    names: Sequence[str],
    program: Sequence[str],
    address: str = "",
    interface: str = "",
) -> List[str]:
    """Return mpirun's argument list, which runs `program` in `processes` processes.

    Args:
        engine: an entry of ENGINES.
        mpirun: the path of mpirun.
        hosts_file: the path of the hosts file.
        processes: the number of processes on all nodes.
        names: the variables that mpirun passes to all processes. Each process also inherits the
            variables of the daemon on the same node.
        program: the argument list of the program.
        address: the address of mpirun's node, "" if mpirun may choose.
        interface: the network interface of mpirun's node, "" if mpirun may choose.
    """
    values = {"hosts_file": hosts_file, "processes": str(processes), "names": ",".join(names)}
    line = [mpirun] + _filled(engine.arguments, values)
    place = _filled(engine.address, {"address": address, "interface": interface})
    line += place if all(place) else []
    if "{name}" in engine.passed:
        for name in names:
            line += _filled(engine.passed, {"name": name})
    elif names:
        line += _filled(engine.passed, values)
    return line + list(program)


def _filled(arguments: str, values: Mapping[str, str]) -> List[str]:
    """Return the words of `arguments`, with the values of their placeholders."""
    return [word.format(**values) for word in arguments.split()]


def environment(
    engine: Engine,
    agent: str = "",
    as_root: bool = False,
    network: str = "",
    interface: str = "",
    infiniband: Optional[bool] = None,
    session: str = "",
    contained: bool = False,
) -> Dict[str, str]:
    """Return the environment variables of mpirun and of mpirun's daemons.

    Args:
        engine: an entry of ENGINES.
        agent: the program that starts a daemon on another node, "" for the engine's default (ssh).
        as_root: True if mpirun runs as root.
        network: address/prefix of the network of the nodes, "" if the engine may choose.
        interface: the node's interface in this network, "" if the engine may choose.
        infiniband: True for InfiniBand alone, False without InfiniBand, None for either.
        session: the folder for temporary folders of the engine, "" if the engine may choose.
        contained: True if the processes run in containers.
    """
    env: Dict[str, str] = dict(engine.contained) if contained else {}
    if agent:
        env.update({name: value.format(agent=agent) for name, value in engine.agent.items()})
    if session:
        env.update({name: value.format(folder=session) for name, value in engine.session.items()})
    if as_root:
        env.update(engine.root)
    place = {"network": network, "interface": interface}
    bound = {name: value.format(**place) for name, value in engine.network.items()}
    env.update({name: value for name, value in bound.items() if value})
    if infiniband is not None:
        env.update(engine.infiniband if infiniband else engine.no_infiniband)
    return env
