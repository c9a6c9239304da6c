"""Read the distribution of this node and the versions of its programs, for a report of verify.yml.

The report goes to other people. So each fact is a version, a name of a table, or a fact of
`mxcluster.node.hardware`.
"""

import os
import platform
import re
from typing import Dict, Sequence, Tuple

from mxcluster import calls
from mxcluster.model.check_answer import SystemFacts
from mxcluster.node import hardware

SECONDS = 20  # timeout of each program
# CentOS names its minor release here only, as in "CentOS Linux release 7.9.2009 (Core)".
RELEASE = "/etc/redhat-release"
ENFORCE = "/sys/fs/selinux/enforce"
# {name in the report: the command line that prints a version}.
PROGRAMS: Dict[str, Sequence[str]] = {
    "systemd": ("systemctl", "--version"),
    "python": ("/usr/bin/python", "--version"),
    "python3": ("/usr/bin/python3", "--version"),
    "yum": ("yum", "--version"),
    "rpm": ("rpm", "--version"),
    "openssh": ("ssh", "-V"),
    "gcc": ("gcc", "--version"),
    "dkms": ("dkms", "--version"),
}


def look() -> SystemFacts:
    """Return the facts of this node's system. Programs run for at most SECONDS each."""
    distribution, release = system()
    versions = {name: version_of(argv) for name, argv in PROGRAMS.items()}
    versions["glibc"] = first_version((os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1:])
    versions["mxnet_python"] = platform.python_version()
    return SystemFacts(
        distribution=distribution,
        release=release,
        selinux=selinux(),
        versions=versions,
        **vars(hardware.look()),
    )


def system(os_release: str = hardware.SYSTEM, release: str = RELEASE) -> Tuple[str, str]:
    """Return (ID of os-release, version), "" for an unknown value.

    Args: `os_release` the file of all systems; `release` the file of the Red Hat family, whose
    version has the minor release.
    """
    facts = hardware.text(os_release)
    name = hardware.found(r'^ID="?([a-z][a-z0-9._-]{0,30})"?$', facts)
    minor = first_version([hardware.text(release)])
    return name, minor or first_version([hardware.found(r"^VERSION_ID=(.*)$", facts)])


def selinux(enforce: str = ENFORCE) -> str:
    """Return "enforcing" or "permissive" from the kernel's file, "off" without the file."""
    return {"": "off", "0": "permissive"}.get(hardware.text(enforce).strip(), "enforcing")


def version_of(argv: Sequence[str]) -> str:
    """Return the first version that a program prints, "" if the program is missing or fails.

    Python 2.7 and ssh print their version to stderr.
    """
    ended = calls.run(argv, SECONDS)
    return "" if ended.status else first_version([ended.out, ended.err])


def first_version(texts: Sequence[str]) -> str:
    """Return the first version in `texts`, such as 2.17 or 219, or "" without one."""
    for text in texts:
        found = re.search(r"\d{1,6}(\.\d{1,6}){0,3}", text)
        if found:
            return found.group()
    return ""
