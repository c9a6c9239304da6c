"""Pytest plugin: record the time span of each test in the folder of the variable PROBES."""

import json
import os
import time

_began = {}


def pytest_runtest_logstart(nodeid, location):
    _began[nodeid] = time.time()


def pytest_runtest_logfinish(nodeid, location):
    path = os.path.join(
        os.environ["PROBES"], "spans-%s" % os.environ.get("PYTEST_XDIST_WORKER", "main")
    )
    with open(path, "a") as stream:
        stream.write(
            json.dumps({"test": nodeid, "start": _began[nodeid], "end": time.time()}) + "\n"
        )
