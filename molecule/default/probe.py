"""Print a job's leftovers on this node and the size of its events, without mxcluster's code."""

import glob
import json
import os
import subprocess
import sys


def read(path):
    """Return the content of a file, b"" if it is missing."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def output_of(*argv):
    """Return the output of a program."""
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout.decode()


def main(folder):
    """Search processes, listening ports, units and firewall rules of the job in `folder`."""
    job, found = os.path.basename(folder), []
    for process in glob.glob("/proc/[0-9]*"):
        words = read(process + "/cmdline").split(b"\0")
        if b"mxcluster.agent" in words and folder.encode() in words and b"wait" not in words:
            found.append("agent %s" % os.path.basename(process))
        if b"MXCLUSTER_JOB_DIR=" + folder.encode() in read(process + "/environ").split(b"\0"):
            found.append(
                "process %s: %s"
                % (os.path.basename(process), b" ".join(words).decode(errors="replace"))
            )
    try:
        plan = json.loads(read(folder + "/plan.json"))
    except ValueError:  # there is no plan, or a program is just writing it
        plan = {"processes": []}
    listened = {line.split()[3] for line in output_of("ss", "-Hltn").splitlines()}
    found += [
        "port %d" % part["port"]
        for part in plan["processes"]
        if "%s:%s" % (part["address"], part["port"]) in listened
    ]
    for unit in ("mxcluster-agent@%s.service" % job, "mxcluster-firewall@%s.service" % job):
        state = output_of("systemctl", "is-active", unit).strip()
        found += ["%s is %s" % (unit, state)] if state not in ("inactive", "unknown") else []
    found += [
        "rule " + line.strip()
        for line in output_of("nft", "list", "ruleset").splitlines()
        if '"mxcluster %s"' % job in line
    ]
    found += ["wish"] if os.path.exists("/run/mxcluster/%s.json" % job) else []
    print(
        json.dumps(
            {
                "left": found,
                "events": len(read(folder + "/events.jsonl")),
            }
        )
    )


main(sys.argv[1])
