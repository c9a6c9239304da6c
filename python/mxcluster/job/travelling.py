"""Decide which files of a script's folder travel to the nodes.

The file .mxclusterignore in the folder has the syntax of .gitignore. Its patterns follow those of
NEVER, so a line that begins with ! sends a file that NEVER leaves out.
"""

import os
from typing import TYPE_CHECKING, Optional

from mxcluster import package
from mxcluster.errors import BadInput, shown

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILE = ".mxclusterignore"
MOST_IGNORE = 1 << 20  # bytes of the file
# Hidden and compiled files, results, environments, and files with secrets. The hidden ones include
# .git, .venv, .state and .env.
NEVER = (
    ".*",
    "__pycache__/",
    "*.py[co]",
    "runs/",
    "vault",
    "vault.*",
    "*.vault",
    "*vault_pass*",
    "vault*.yml",
    "vault*.yaml",
    "*_vault.yml",
    "*_vault.yaml",
)
NOT_SENT = "left out unless %s names it with !" % FILE
VAULT = b"$ANSIBLE_VAULT;"  # the first bytes of a file that ansible-vault has encrypted


class Rules:
    """The rules of one folder.

    Args: `folder` that may hold the file FILE. Raises BadInput if this file is unreadable, too
    large or wrong.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._spec = _spec(_lines(os.path.join(folder, FILE)))

    def reason(self, path: str) -> Optional[str]:
        """Return the reason why `path` stays on the controller, None for a path that travels.

        The reason is "" for hidden and compiled files, and for files of FILE.

        Args: `path` relative to the folder, with / at the end of the path of a folder.
        """
        found = self._spec.check_file(path)
        if not found.include:
            return None
        name = os.path.basename(path.rstrip("/"))
        is_plain = found.index is None or found.index >= len(NEVER) or name.startswith(".")
        return "" if is_plain or package.is_compiled(name) else NOT_SENT

    def vault_reason(self, path: str) -> Optional[str]:
        """Return the reason why the regular file `path` stays as a vault, None for other files.

        A line ! of FILE sends the vault. Args: `path` relative to the folder.
        """
        found = self._spec.check_file(path)
        if found.index is not None and found.index >= len(NEVER):
            return None
        try:
            with open(os.path.join(self._folder, path), "rb") as stream:
                is_vault = stream.read(len(VAULT)) == VAULT
        except OSError:  # the caller reports the file
            return None
        return "encrypted by ansible-vault" if is_vault else None


def _lines(path: str) -> "list[str]":
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(MOST_IGNORE + 1)
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            "%s cannot be read (%s): correct its mode, or write the file in UTF-8"
            % (path, getattr(error, "strerror", None) or error)
        ) from error
    if len(text) > MOST_IGNORE:
        raise BadInput("%s is larger than %d MB: remove lines" % (path, MOST_IGNORE >> 20))
    return text.splitlines()


def _spec(lines: "list[str]") -> "GitIgnoreSpec":
    # Only the controller has this library.
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore import GitIgnorePatternError

    for number, line in enumerate(lines, 1):
        try:
            GitIgnoreSpec.from_lines([line])
        except GitIgnorePatternError as error:
            raise BadInput(
                "%s has no pattern of .gitignore in line %d, %s: correct this line"
                % (FILE, number, shown(line))
            ) from error
    return GitIgnoreSpec.from_lines([*NEVER, *lines])
