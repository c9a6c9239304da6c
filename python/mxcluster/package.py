"""This package as one zip file, which is how it gets to the nodes; the module mxcluster_env unpacks it beside the zip.  So does
a user's script with the files beside it, to be unpacked there.

The same source gives the same bytes, and the name of the zip and of the folder holds their digest: a node that has a file of that
name has this package, and a new package never takes the place of one that a running job still imports from.
"""
import hashlib
import io
import os
import zipfile
from typing import List, Optional, Tuple

# The earliest time that a zip file can hold; that of the files differs from clone to clone.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)
READABLE, EXECUTABLE, FOLDER = 0o100644 << 16, 0o100755 << 16, 0o40755 << 16 | 0x10
# Of a job folder: the script's folder as it was sent, that folder unpacked for servers, and a copy for each worker.
SCRIPT_ZIP, SCRIPT_FOLDER, OWN_FOLDERS = "script.zip", "script", "files"


def archive(folder: Optional[str] = None, inside: bool = False, paths: Optional[List[str]] = None) -> Tuple[str, bytes]:
    """(file name, content) of the zip with `folder`, by default this package; with its `paths`, by default all `sources`.

    A path that ends with / is a folder. The names in the zip begin with that of the folder, unless only what is `inside` is
    wanted. Of permissions, the zip tells which of the `paths` can be executed.
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
    """The files under `folder` that belong to the package, relative to it, sorted; nothing hidden, nothing compiled."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = filter(is_source, folders)
        found += [os.path.relpath(os.path.join(parent, name), folder).replace(os.sep, "/") for name in filter(is_source, files)]
    return sorted(found)


def is_source(name: str) -> bool:
    """Whether a file or folder of that name is sent: nothing hidden, nothing compiled."""
    return not name.startswith(".") and not is_compiled(name)


def is_compiled(name: str) -> bool:
    """Whether a file or folder is Python's own, made of a source."""
    return name == "__pycache__" or name.endswith((".pyc", ".pyo"))
