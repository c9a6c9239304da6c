"""Measure GPU wheels of MXNet: the libraries that they need, and the GPUs that they have code for.

    python tools/gpu_wheels.py WHEEL...

prints a row of python/mxcluster/cluster/gpu_wheels.yml for each file WHEEL. Nothing of the wheel
runs. `make soak` compares all wheels with the table.
"""

import os
import sys
import textwrap

from mxcluster.cluster import wheel_library


def measure(path):
    """Return {"needed": [...], "sass": [...]} of the wheel `path`, see `wheel_library.Measured`."""
    found = wheel_library.measure(path)
    return {"needed": found.needed, "sass": found.sass}


def rows(measured):
    """Return a row of gpu_wheels.yml, as YAML, for each wheel.

    Args: `measured` {wheel such as "mxnet-cu92==1.7.0": result of `measure`}.
    """
    lines = []
    for wheel, told in measured.items():
        lines.append("- wheels: [%s]" % wheel)
        lines += textwrap.wrap(
            "needed: [%s]" % ", ".join(told["needed"]),
            width=130,
            initial_indent="  ",
            subsequent_indent=" " * len("  needed: ["),
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines.append("  sass: [%s]" % ", ".join('"%s"' % one for one in told["sass"]))
    return "\n".join(lines)


def main(paths):
    """Print the rows of the wheels `paths`."""
    for path in paths:
        name, version = os.path.basename(path).split("-")[:2]
        print(rows({"%s==%s" % (name.replace("_", "-"), version): measure(path)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
