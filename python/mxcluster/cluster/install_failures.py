"""Explain failures of yum, tar and Ansible's modules on a node, and name the cure."""

import os
import re
from typing import Dict, List, Mapping, Sequence

# yum 3: "Requires: gcc-c++"; dnf 4: "nothing provides gcc-c++ needed by ...".
_DEPENDENCIES = re.compile(r"^\s*Requires: |nothing provides |No package matching '", re.M)
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|Insufficient space in download directory"
    r"|needs (?:at least )?\d+ ?[KMG]i?B (?:more space )?(?:needed )?on the \S+ filesystem"
    r"|At least \d+ ?[KMG]B more space needed on the \S+ filesystem"
)


def messages(result: object) -> str:
    """Return all messages of a failed task as one string.

    The messages come from yum's two backends and from the items of a loop.

    Args: `result` the task's result.
    """
    texts: List[str] = []
    items = list(result.get("results") or []) if isinstance(result, dict) else []
    for one in [result, *items]:
        parts = [one]
        if isinstance(one, dict):
            parts = [one.get(name) for name in ("msg", "stderr", "stdout", "rc_message")]
            parts += list(one.get("failures") or [])
        texts += [str(text).strip() for text in parts if text]
    return "\n".join(dict.fromkeys(text for text in texts if text))


def lacks_dependencies(result: object) -> bool:
    """Return True if yum failed because packages are missing, which other repositories may have."""
    return bool(_DEPENDENCIES.search(messages(result))) and not is_full(result)


def is_full(result: object) -> bool:
    """Return True if a task failed because a disk is full."""
    return bool(_FULL.search(messages(result)))


def explained(result: object, host: str, df: Sequence[str], needs: Mapping[str, float]) -> str:
    """Return the message for a failed installation, for a full disk with the needed space.

    Args:
        result: the failed task's result.
        host: the name of the node.
        df: the lines of `df -Pm` for the folders of `needs`.
        needs: {folder: bytes that the whole installation writes to the folder, 0 if unknown}.
    """
    if not is_full(result):
        return "%s: %s" % (host, messages(result))
    cause = _FULL.search(messages(result))
    free = dict(zip(needs, (_free(line) for line in df[1:])))
    need = {
        folder: "needs %d MiB and " % -(-size // (1 << 20)) if size else ""
        for folder, size in needs.items()
    }
    places = ["%s %shas %s free" % (folder, need[folder], free[folder]) for folder in free]
    return (
        "%s: the disk is full (%s). Needed and free space: %s. Free the needed space, and run "
        "provision.yml again. The new run removes incomplete files and repeats the installation"
        % (host, cause.group(0) if cause else "", "; ".join(places) or "see df -h")
    )


def _free(line: str) -> str:
    """Return the free space in a line of `df -Pm`, such as "12 MiB (file system /var)"."""
    words = line.split(None, 5)
    return (
        "%s MiB (file system %s)" % (words[3], words[5]) if len(words) == 6 else "an unknown size"
    )


def needs(store: str, names: Sequence[str], folders: Dict[str, float]) -> Dict[str, float]:
    """Return {folder: bytes} that an installation from files needs on a node.

    Args: `store` the controller's folder with the files; `names` the names of the files; `folders`
    {folder: the needed space as a multiple of the size of all files}.
    """
    paths = [os.path.join(store, name) for name in names]
    size = sum(os.path.getsize(path) for path in paths if os.path.exists(path))
    return {folder: size * times for folder, times in folders.items()}


def updates(lines: Sequence[str]) -> List[str]:
    """Return the packages with a newer version, such as "cuda-nvcc-9-2.x86_64".

    yum 3 breaks the line of a long name. dnf lists obsoleting packages once more at the end.

    Args: `lines` the output of `yum check-update`.
    """
    text = "\n".join(lines).split("Obsoleting Packages")[0]
    return re.findall(r"^(\S+\.(?:x86_64|noarch))\s+(?:\d+:)?\d\S*-\S+\s+\S", text, re.M)
