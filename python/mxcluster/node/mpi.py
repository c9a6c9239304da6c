"""The MPI engines: find the program of one on this node, and build its command line.

An engine starts one agent on each node. The agents use no MPI library. The options hold for Open
MPI 4 and 5, MPICH 3 and 4, and Intel MPI from 2019 on.
"""

import os
import re
import subprocess
from typing import Dict, List, Optional, Sequence

from mxcluster.errors import BadInput

OPENMPI, MPICH, INTELMPI = "openmpi", "mpich", "intelmpi"
# The names of an engine's program. Debian has several engines beside each other under such names.
PROGRAMS = {
    OPENMPI: ("mpirun", "mpirun.openmpi"),
    MPICH: ("mpirun", "mpirun.mpich", "mpiexec.hydra"),
    INTELMPI: ("mpirun", "mpiexec.hydra"),
}
# Folders that a login without a start file lacks in its PATH.
FOLDERS = (
    "/usr/lib64/openmpi/bin",
    "/usr/lib64/mpich/bin",
    "/opt/intel/oneapi/mpi/latest/bin",
    "/opt/intel/mpi/bin",
)
VERSIONS = (
    (OPENMPI, re.compile(r"\(Open MPI\) (\S+)")),
    (INTELMPI, re.compile(r"Intel\(R\) MPI Library.*? Version (\S+)")),
    (MPICH, re.compile(r"HYDRA build details:\s+Version:\s+(\S+)")),
)
INSTALL = {
    OPENMPI: "Open MPI (Debian, Ubuntu: apt install openmpi-bin; Fedora, EL: dnf install openmpi)",
    MPICH: "MPICH (Debian, Ubuntu: apt install mpich; Fedora, EL: dnf install mpich)",
    INTELMPI: "Intel MPI (its oneAPI package, or the wheel impi-rt)",
}
PATIENCE = 20  # seconds for `mpirun --version`
# Open MPI kills a process 1 s after SIGTERM. An agent needs longer to end its processes in order.
GRACE = 10
# A login node or a script may have set these. The names are those of Open MPI 4 and 5.
OPENMPI_SETTINGS = {
    "OMPI_MCA_plm": "rsh",
    "OMPI_MCA_odls_base_sigkill_timeout": str(GRACE),
    "PRTE_MCA_plm": "ssh",
    "PRTE_MCA_odls_base_sigkill_timeout": str(GRACE),
}


def find(wanted: Dict[str, str], path: Optional[str] = None) -> Dict[str, str]:
    """Return {"path", "runtime", "version"} of the first program on this node that fits `wanted`.

    `wanted`: {"runtime": "auto" or an engine, "program": an absolute path, "" for any}. `path`: the
    folders to search, separated by ":", by default PATH and FOLDERS. Raises BadInput, with what to
    install, if no program fits.
    """
    seen = []  # type: List[str]
    for program in [wanted["program"]] if wanted["program"] else _programs(wanted["runtime"], path):
        if not os.access(program, os.X_OK) or os.path.isdir(program):
            seen.append("%s is missing, or cannot be run" % program)
            continue
        said = version_text(program)
        known = runtime_of(said)
        if known and wanted["runtime"] in ("auto", known["runtime"]):
            return dict(known, path=program)
        seen.append(
            "%s is %s"
            % (
                program,
                " ".join([known["runtime"], known["version"]])
                if known
                else "no known engine (%s)" % (said.strip().splitlines() or ["no output"])[0][:100],
            )
        )
    advice = INSTALL.get(wanted["runtime"]) or ", ".join(INSTALL[name] for name in INSTALL)
    raise BadInput(
        "launcher=mpi: there is no %s on this node%s: install %s on all nodes, or give the path of "
        "its program with -e mpirun=/path/to/mpirun"
        % (
            "mpirun" if wanted["runtime"] == "auto" else "mpirun of %s" % wanted["runtime"],
            " (%s)" % "; ".join(seen) if seen else " in PATH or %s" % ", ".join(FOLDERS),
            advice,
        )
    )


def _programs(runtime: str, path: Optional[str]) -> List[str]:
    """Return the paths of the existing programs of an engine, "auto" for all engines."""
    folders = os.get_exec_path() + list(FOLDERS) if path is None else path.split(os.pathsep)  # type: List[str]
    names = [
        name for engine in PROGRAMS if runtime in ("auto", engine) for name in PROGRAMS[engine]
    ]
    paths = [os.path.join(folder, name) for name in dict.fromkeys(names) for folder in folders]
    return [found for found in dict.fromkeys(paths) if os.path.isfile(found)]


def version_text(program: str) -> str:
    """Return the output of `program --version`, "" if it cannot be run."""
    try:
        return subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def runtime_of(said: str) -> Optional[Dict[str, str]]:
    """Return {"runtime", "version"} from `said`, the output of --version; None if unknown."""
    for runtime, pattern in VERSIONS:
        found = pattern.search(said)
        if found:
            return {"runtime": runtime, "version": found.group(1)}
    return None


def command(
    engine: Dict[str, str], hosts: Sequence[str], argv: Sequence[str], interface: Optional[str]
) -> List[str]:
    """Return the command line that runs `argv` once on each of `hosts`, this node first.

    `engine`: the result of `find`. `hosts`: addresses that ssh reaches from this node. `interface`:
    the one of this node that has the first of them, None if unknown.
    """
    count = ["-np", str(len(hosts))]
    if engine["runtime"] == OPENMPI:
        slots = ",".join("%s:1" % host for host in hosts)
        return [engine["path"], "--host", slots, *count, "--bind-to", "none", *argv]
    # The other nodes connect to this one by its address: its name may not resolve there. Intel MPI
    # ignores -localhost, and MPICH knows -iface as the network of the processes only.
    if engine["runtime"] == INTELMPI:
        own = ["-iface", interface] if interface else []
    else:
        own = ["-localhost", hosts[0]]
    own = ["-launcher", "ssh", *own, "-hosts", ",".join(hosts), "-ppn", "1"]
    return [engine["path"], *own, *count, *argv]


def environment(engine: Dict[str, str], inherited: Dict[str, str]) -> Dict[str, str]:
    """Return the environment of an engine's program, made from `inherited`."""
    names = ("HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "SSH_AUTH_SOCK")
    own = {name: inherited[name] for name in names if name in inherited}
    folders = [os.path.dirname(engine["path"]), inherited.get("PATH") or os.defpath]
    own["PATH"] = os.pathsep.join(folders)
    return dict(own, **(OPENMPI_SETTINGS if engine["runtime"] == OPENMPI else {}))
