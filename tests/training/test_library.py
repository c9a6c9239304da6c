"""The scheduler loads the same C library as `import mxnet`, in all versions of MXNet."""

import os
import subprocess

from tests.training.conftest import by_turns
from tests.training.environments import PROJECT

COMPARE = """
from mxcluster.training import mxnet_library
found = mxnet_library.load()._name
from mxcluster.node.mxnet_compat import import_mxnet
import_mxnet()
assert mxnet_library.load()._name == found, (mxnet_library.load()._name, found)
print(found)
"""


@by_turns(
    "given, found",
    ({}, "mxnet/libmxnet.so"),
    ({"LD_LIBRARY_PATH": "linked"}, "linked/libmxnet.so"),
    ({"MXNET_LIBRARY_PATH": "gone.so"}, "mxnet/libmxnet.so"),
    ({"LD_LIBRARY_PATH": "linked", "MXNET_LIBRARY_PATH": "linked/mine.so"}, "linked/mine.so"),
)
def test_the_scheduler_loads_what_mxnet_would(every_mxnet, tmp_path, given, found):
    (library,) = every_mxnet.python.parents[1].glob("lib/python3*/site-packages/mxnet/libmxnet.so")
    (tmp_path / "linked").mkdir()
    # including the libraries that 1.2.1 finds beside itself
    for path in library.parent.glob("*.so*"):
        (tmp_path / "linked" / path.name).symlink_to(path)
    (tmp_path / "linked" / "mine.so").symlink_to(library)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_LIBRARY_PATH", "MXNET_LIBRARY_PATH")
    }
    environment.update(
        {name: str(tmp_path / path) for name, path in given.items()},
        PYTHONPATH=str(PROJECT / "python"),
    )
    done = subprocess.run(
        [str(every_mxnet.python), "-c", COMPARE],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
    )
    assert done.stdout.decode().strip().endswith(found)
