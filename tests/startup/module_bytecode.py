"""Make a Python that runs tests faster: keep bytecode, and collect garbage less often.

Ansible sends a module and its libraries to a node as a zip archive of sources. Python compiles them
in each run, which takes 0.16 of the 0.27 s of CPU time of a module. The tests run some thousands of
modules.

The garbage collector takes a twentieth of the time of an ansible-playbook. In a benchmark it runs
as for users.

A file `*.pth` of the Python imports this module at its start: `tools/venv.sh dev` writes one for
.venv, and `tools/node-image.sh` one for the containers of molecule.
"""

import _imp
import gc
import marshal
import os
import sys
import zipimport

FOLDER = os.path.join(sys.prefix, "lib", "module-bytecode")
_VERSION = sys.hexversion >> 16  # another Python has other bytecode

_compile = zipimport._compile_source


def _compile_once(path, source):
    """Return the code object of `source`, from FOLDER if an earlier run has compiled the source.

    A user who may not read or write in FOLDER compiles each time.
    """
    kept = os.path.join(FOLDER, _imp.source_hash(_VERSION, source).hex())
    try:
        with open(kept, "rb") as stream:
            return marshal.loads(stream.read())
    except (OSError, EOFError, ValueError):
        code = _compile(path, source)
    try:
        os.makedirs(FOLDER, exist_ok=True)
        with open("%s.%d" % (kept, os.getpid()), "wb") as stream:
            stream.write(marshal.dumps(code))
        os.replace(stream.name, kept)
    except OSError:
        pass
    return code


zipimport._compile_source = _compile_once
if "PYTEST_CURRENT_TEST" in os.environ:
    gc.set_threshold(50000, 20, 50)
