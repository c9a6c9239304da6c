"""Runs the benchmarks named on the command line, or all."""

import importlib
import pkgutil
import sys

import bench

names = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_"))
for name in sys.argv[1:] or names:
    if name not in names:
        sys.exit("unknown benchmark %r; there are: %s" % (name, ", ".join(names)))
    print("== %s" % name, flush=True)
    importlib.import_module("bench." + name).main()
