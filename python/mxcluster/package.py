"""Pack this package, or a user's script with the files beside it, into one zip file.

The zip file brings the code to the nodes. The module mxcluster_env unpacks the package beside the
zip file on the node, and the agent unpacks the script.

The same source gives the same bytes, and the names of the zip file and its folder hold the digest.
A node with a file of that name therefore has this package. A new package never replaces a package
that a running job imports from.
"""

import base64
import hashlib
import io
import os
import zipfile
from typing import List, Optional, Tuple

# The earliest time that a zip file can hold. File times differ from clone to clone.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)
READABLE, EXECUTABLE, FOLDER = 0o100644 << 16, 0o100755 << 16, 0o40755 << 16 | 0x10
# Names in a job folder: the script's folder as a zip file, that folder unpacked for servers, and
# the folder with a copy for each worker.
SCRIPT_ZIP, SCRIPT_FOLDER, OWN_FOLDERS = "script.zip", "script", "files"


def archive(
    folder: Optional[str] = None, inside: bool = False, paths: Optional[List[str]] = None
) -> Tuple[str, bytes]:
    """Return (file name, content) of a zip file that holds `folder`, by default this package.

    `paths`: members relative to `folder`, by default all `sources`; a path that ends with / is a
    folder. Names in the zip file begin with the name of `folder`, unless `inside` is true. If
    `paths` are given, the zip file stores which members are executable.
    """
    folder = os.path.abspath(folder or os.path.dirname(__file__))
    prefix = "" if inside else os.path.basename(folder) + "/"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for path in sources(folder) if paths is None else paths:
            member = zipfile.ZipInfo(prefix + path, TIMESTAMP)
            if path.endswith("/"):
                member.external_attr = FOLDER
                packed.writestr(member, b"")
                continue
            with open(os.path.join(folder, path), "rb") as source:
                runs = paths is not None and os.fstat(source.fileno()).st_mode & 0o111
                member.external_attr = EXECUTABLE if runs else READABLE
                packed.writestr(member, source.read(), zipfile.ZIP_DEFLATED)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    return "%s-%s.zip" % (os.path.basename(folder), digest[:12]), content.getvalue()


def sources(folder: str) -> List[str]:
    """Return the paths of the source files in `folder`, relative and sorted (see `is_source`)."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = filter(is_source, folders)
        found += [
            os.path.relpath(os.path.join(parent, name), folder).replace(os.sep, "/")
            for name in filter(is_source, files)
        ]
    return sorted(found)


def is_source(name: str) -> bool:
    """Return True if `name` belongs to a source file or folder, neither hidden nor compiled."""
    return not name.startswith(".") and not is_compiled(name)


def is_compiled(name: str) -> bool:
    """Return True if `name` is a name that Python gives to compiled files or their folder."""
    return name == "__pycache__" or name.endswith((".pyc", ".pyo"))


def main() -> None:
    """Print the name of this package's zip file, and on the next line the file in base64.

    Run on the controller as ``python -m mxcluster.package``. `main` writes no file.
    """
    name, content = archive()
    print(name, base64.b64encode(content).decode("ascii"), sep="\n")


if __name__ == "__main__":
    main()
