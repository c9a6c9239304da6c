"""Pack this package, or the folder of a user's script, into one zip file.

The zip file brings the code to the nodes. On a node, the module mxcluster_env unpacks the package
beside the zip file, and the agent unpacks the script.

The same source gives the same bytes. The names of the zip file and of its folder hold the digest of
these bytes. So a node with a file of that name already has this package. A new package has a new
name, and leaves the package of a running job unchanged.
"""

import base64
import hashlib
import io
import os
from typing import List, Optional, Tuple

# The earliest time that a zip file can hold. The times of the files differ between git clones.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)
READABLE, EXECUTABLE, FOLDER = 0o100644 << 16, 0o100755 << 16, 0o40755 << 16 | 0x10
# Names in a job folder: the zip file of the script's folder, the unpacked copy for servers, and the
# folder with an unpacked copy for each worker.
SCRIPT_ZIP, SCRIPT_FOLDER, OWN_FOLDERS = "script.zip", "script", "files"
REQUIREMENTS = "requirements.txt"  # the copy of the knob's file in the run folder
# The variable with the path of the script's own folder in the folder of all its code. It is missing
# if both are the same folder.
SCRIPT_PLACE = "MXCLUSTER_SCRIPT_PLACE"
# The variable with the folder of the script's packages. Without requirements it is missing.
LAYER = "MXCLUSTER_LAYER"


def layer_folder(python: str, digest: str) -> str:
    """Return the folder of a layer of packages on a node. The role mxnet has the same rule.

    Args: `python` the path <environment>/bin/python; `digest` of the layer.
    """
    return "%s-packages/%s" % (os.path.dirname(os.path.dirname(python)), digest)


def archive(
    folder: Optional[str] = None, inside: bool = False, paths: Optional[List[str]] = None
) -> Tuple[str, bytes]:
    """Return (file name, content) of a zip file of the files in `folder`, by default this package.

    `paths`: the members, relative to `folder`, by default all `sources`. A path that ends with / is
    a folder. With `paths`, the zip file also stores which members are executable.

    `inside`: if False, each name in the zip file begins with the name of `folder`.
    """
    import zipfile  # not at the top: each process of a job would import it

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
    """Return the paths of the source files in `folder` (see `is_source`), relative and sorted."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = filter(is_source, folders)
        found += [
            os.path.relpath(os.path.join(parent, name), folder).replace(os.sep, "/")
            for name in filter(is_source, files)
        ]
    return sorted(found)


def is_source(name: str) -> bool:
    """Return True if `name` is the name of a source file or folder: neither hidden nor compiled."""
    return not name.startswith(".") and not is_compiled(name)


def is_compiled(name: str) -> bool:
    """Return True if `name` is the name of a compiled Python file, or `__pycache__`."""
    return name == "__pycache__" or name.endswith((".pyc", ".pyo"))


def main() -> None:
    """Print the name of this package's zip file, and on the next line its content in base64.

    ``python -m mxcluster.package`` calls this function on the controller. `main` writes no file.
    """
    name, content = archive()
    print(name, base64.b64encode(content).decode("ascii"), sep="\n")


if __name__ == "__main__":
    main()
