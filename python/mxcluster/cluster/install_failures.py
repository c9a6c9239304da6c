"""Read the failures of yum, tar and Ansible's modules on a node, and say what to do about them."""

import os
import re
from typing import Any, Dict, List, Sequence

from mxcluster.errors import some

Json = Dict[str, Any]

# yum 3: "Requires: gcc-c++"; dnf 4: "nothing provides gcc-c++ needed by ...".
_DEPENDENCIES = re.compile(r"^\s*Requires: |nothing provides |No package matching '", re.M)
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|Insufficient space in download directory"
    r"|needs (?:at least )?\d+ ?[KMG]i?B (?:more space )?(?:needed )?on the \S+ filesystem"
    r"|At least \d+ ?[KMG]B more space needed on the \S+ filesystem"
)


def said(result: Json) -> str:
    """Return all texts of a failed task: of yum's two backends, and of a loop's items."""
    texts: List[str] = []
    for one in [result] + list(result.get("results") or []):
        if isinstance(one, dict):
            told = [one.get(name) for name in ("msg", "stderr", "stdout", "rc_message")]
            told += list(one.get("failures") or [])
            texts += [str(text).strip() for text in told if text]
        else:
            texts.append(str(one).strip())
    return "\n".join(dict.fromkeys(text for text in texts if text))


def lacks_dependencies(result: Json) -> bool:
    """Return True if a failed task of yum lacked packages, which other repositories may have."""
    return bool(_DEPENDENCIES.search(said(result))) and not is_full(result)


def is_full(result: Json) -> bool:
    """Return True if a failed task found a full disk."""
    return bool(_FULL.search(said(result)))


def explained(result: Json, host: str, df: Sequence[str], needs: Dict[str, float]) -> str:
    """Return the message of a failed installation. A full disk adds the space needed.

    Args:
        result: what Ansible reports of the failed task.
        host: the name of the node.
        df: the lines of `df -Pm` for the folders of `needs`.
        needs: {folder: the bytes that the whole installation writes there, 0 if unknown}.
    """
    if not is_full(result):
        return "%s: %s" % (host, said(result))
    cause = _FULL.search(said(result))
    free = dict(zip(needs, (_free(line) for line in df[1:])))
    places = [
        "%s %shas %s free"
        % (
            folder,
            "needs %d MiB and " % -(-needs[folder] // (1 << 20)) if needs[folder] else "",
            free[folder],
        )
        for folder in needs
        if folder in free
    ]
    return (
        "%s: the disk is full (%s). The whole installation: %s. Make room there, and run "
        "provision.yml again: it removes half-made files, and repeats the installation"
        % (host, cause.group(0) if cause else "", "; ".join(places) or "see df -h")
    )


def _free(line: str) -> str:
    """Return the free space of a line of `df -Pm` with its file system: "12 MiB (of /var)"."""
    words = line.split(None, 5)
    return (
        "%s MiB (file system %s)" % (words[3], words[5]) if len(words) == 6 else "an unknown size"
    )


def needs(store: str, names: Sequence[str], folders: Dict[str, float]) -> Dict[str, float]:
    """Return {folder: bytes} that an installation from files needs.

    Args: `store` the controller's folder of the files; `names` of the files; `folders` {folder: its
    space as a multiple of the size of all files}.
    """
    paths = [os.path.join(store, name) for name in names]
    size = sum(os.path.getsize(path) for path in paths if os.path.exists(path))
    return {folder: size * times for folder, times in folders.items()}


def left_over(lines: Sequence[str]) -> str:
    """Return the packages that `yum check-update` lists, as text; "" if it lists none."""
    names = [line.split()[0] for line in lines if re.match(r"\S+\.(x86_64|noarch)\s+\S", line)]
    return some(names) if names else ""
