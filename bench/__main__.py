"""Run the benchmarks named on the command line, or all of them."""

import argparse
import importlib
import pkgutil

import bench

NAMES = sorted(
    module.name
    for module in pkgutil.iter_modules(bench.__path__)
    if not module.name.startswith("_")
)
parser = argparse.ArgumentParser(
    prog="python -m bench",
    description="Print measured times, and ratios of the times of commands that run in turns.",
)
parser.add_argument(
    "names", nargs="*", metavar="name", help="one of %s; all by default" % ", ".join(NAMES)
)
parser.add_argument(
    "--tracker", help="for start: the folder that holds dmlc_tracker (dmlc-core's folder tracker)"
)
parser.add_argument(
    "--against", help="for kvstore: another checkout, whose stores take turns with this one's"
)
parser.add_argument("--task", help="for compare: the only task to run, digits or warped")
of_grounds = "for changing, quota and unequal: "
parser.add_argument("--turns", type=int, default=5, help=of_grounds + "the turns, 5 by default")
parser.add_argument(
    "--seconds", type=int, default=40, help=of_grounds + "the seconds of a measurement, 40"
)
parser.add_argument(
    "--start", type=int, help=of_grounds + "the seconds from the start of a job to its first step"
)
options = parser.parse_args()
for name in options.names:
    if name not in NAMES:
        parser.error("unknown benchmark %r: name one of %s" % (name, ", ".join(NAMES)))
for name in options.names or NAMES:
    print("== %s" % name, flush=True)
    importlib.import_module("bench." + name).main(options)
