"""Measure the times to the first step and to the end of a job that mxcluster or launch.py starts.

Both launchers run on the same containers, in turns. launch.py comes with MXNet's wheel and needs
`dmlc_tracker` of dmlc-core; --tracker names the folder that holds it. launch.py and its scheduler
run on the first node as the training user, over the ssh mesh of provision.yml. launch.py reaches
its own node by ssh, too. In the mesh no key is valid on its own node, so `carry` admits the key of
the first node there. Without --tracker the benchmark prints mxcluster's figures only.
"""

import contextlib
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

from bench._nodes import PROJECT, THREADS, address, enter, nodes, play, say
from mxcluster.node import processes

COUNT, ROUNDS, STEPS = 4, 5, ("4", "0.1")
SCRIPT = PROJECT / "bench" / "_first_step.py"
# the folder of launch.py, its tracker and the script, on every node
THERE = "/home/mxcluster/launch"
LAUNCH = (
    "import glob; "
    "print(glob.glob('/opt/mxcluster/env/lib/python*/site-packages/mxnet/tools/launch.py')[0])"
)


def main(options):
    """Print the seconds to the first step and of the whole command, for each launcher.

    Args: `options` of the command line; `options.tracker` is the folder with dmlc_tracker, or None.
    """
    if options.tracker:
        check_tracker(pathlib.Path(options.tracker))
    with nodes(COUNT) as folder:
        play(folder, "provision.yml")
        ways = {"mxcluster": lambda number: with_mxcluster(folder, number)}
        if options.tracker:
            carry(pathlib.Path(options.tracker))
            ways["launch.py"] = with_launcher
        found = {way: [] for way in ways}
        for number in range(ROUNDS):
            for way in list(ways)[::-1] if number % 2 else ways:
                found[way].append(ways[way](number))
        for place, what in enumerate(("from the command to the first step", "the whole command")):
            for way in ways:
                seconds = [times[place] for times in found[way]]
                print(
                    "%-36s %-10s %5.1f s (%.1f .. %.1f)"
                    % (what, way, statistics.median(seconds), min(seconds), max(seconds))
                )
            if options.tracker:
                ours, theirs = (
                    statistics.median(times[place] for times in found[way]) for way in ways
                )
                print("%-36s ratio of medians %.2f" % (what, ours / theirs), flush=True)
    local()


def local():
    """Print the seconds that train.yml takes besides the training, on the local inventory.

    The function also prints the CPU time of the controller and of all processes of the job. Other
    programs of the machine change this time little, unlike the wall time.
    """
    processes.set_subreaper()  # the agents become children of this process
    say("ansible-playbook", "provision.yml")
    extra, computed = [], []
    for number in range(ROUNDS):
        job = "start-%d-%d" % (time.time(), number)
        began, before = time.monotonic(), cpu_seconds()
        say(
            *"ansible-playbook train.yml -e kv=dist_gsync -e num_epochs=6 -e".split(),
            "job_id=" + job,
        )
        whole = time.monotonic() - began
        trained = json.loads((PROJECT / "runs" / job / "verdict.json").read_text())["seconds"]
        extra.append(whole - trained)
        computed.append(cpu_seconds() - before)
        print("  the training took %.1f s, the command %.1f s" % (trained, whole), flush=True)
    print(
        "local inventory: the command takes %.1f s (%.1f .. %.1f) more than the training"
        % (statistics.median(extra), min(extra), max(extra))
    )
    print(
        "local inventory: all processes of a job compute for %.1f s (%.1f .. %.1f)"
        % (statistics.median(computed), min(computed), max(computed))
    )


def cpu_seconds():
    """Wait for the end of all children, and return the CPU time of all children so far."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def with_mxcluster(folder, number):
    """Run SCRIPT with mxcluster; return (seconds to the first step, seconds of the command).

    Args: `folder` from `nodes`; `number` of the job, for its id.
    """
    job = "start-%d" % number
    began = time.time()
    play(
        folder,
        "train.yml",
        "-e",
        json.dumps({"kv": "dist_sync", "script": str(SCRIPT), "script_args": STEPS, "job_id": job}),
    )
    ended = time.time()
    logs = "".join(
        path.read_text() for path in (folder / "runs" / job).glob("nodes/*/worker-*.log")
    )
    return first_step(logs) - began, ended - began


def with_launcher(_):
    """Run SCRIPT with launch.py; return (seconds to the first step, seconds of the command)."""
    exports = ["%s:%s" % pair for pair in THREADS.items()]
    command = [
        *"/opt/mxcluster/env/bin/python launch.py --launcher ssh -H hosts".split(),
        *("-s 1 -n %d" % COUNT).split(),
        *(word for pair in exports for word in ("--env", pair)),
        "/opt/mxcluster/env/bin/python",
        THERE + "/step.py",
        *STEPS,
    ]
    began = time.time()
    done = subprocess.run(
        [
            *enter(1),
            *("runuser -u mxcluster -- env -C %s PYTHONPATH=%s" % (THERE, THERE)).split(),
            *command,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    ended = time.time()
    output = done.stdout.decode(errors="replace")
    if done.returncode or output.count("first step") != COUNT:
        sys.exit("launch.py ended with status %d\n%s" % (done.returncode, output))
    return first_step(output) - began, ended - began


def first_step(text):
    """Return the time when all workers had done their first step (unix seconds).

    Args: `text` the output of all workers.
    """
    return max(float(seconds) for seconds in re.findall(r"first step ([\d.]+)", text))


def check_tracker(tracker):
    """End the program if the folder `tracker` has no dmlc_tracker that runs on today's Python."""
    path = tracker / "dmlc_tracker" / "tracker.py"
    if not path.is_file():
        sys.exit("--tracker %s: there is no %s: name dmlc-core's folder tracker" % (tracker, path))
    if ".isAlive(" in path.read_text():
        sys.exit(
            "--tracker %s: %s calls Thread.isAlive, which Python 3.9 has removed: name the folder "
            "tracker of a current dmlc-core" % (tracker, path)
        )


def carry(tracker):
    """Copy launch.py, its tracker, the list of hosts and SCRIPT to the folder THERE of every node.

    The function also lets the first node's key reach the first node.

    Args: `tracker` the folder with dmlc_tracker on this machine.
    """
    hosts = "".join("%s\n" % address(number) for number in range(1, COUNT + 1)).encode()
    packed = subprocess.run(
        ["tar", "-c", "-C", tracker, "dmlc_tracker"], stdout=subprocess.PIPE, check=True
    ).stdout
    for number in range(1, COUNT + 1):
        say(*enter(number), "mkdir", "-p", THERE)
        say(*enter(number), "tar", "-x", "--no-same-owner", "-C", THERE, stdin=packed)
        say(*enter(number), "sh", "-c", "cat > %s/hosts" % THERE, stdin=hosts)
        say(*enter(number), "sh", "-c", "cat > %s/step.py" % THERE, stdin=SCRIPT.read_bytes())
        say(
            *enter(number),
            "sh",
            "-c",
            'cp $(python3 -c "%s") %s; chown -R mxcluster: %s' % (LAUNCH, THERE, THERE),
        )
    # The mesh has no way from a node to itself, because a job could leave its unit there.
    say(
        *enter(1),
        *"runuser -u mxcluster -- sh -c".split(),
        "cd ~mxcluster/.ssh && cat id_ed25519.pub >> authorized_keys",
    )
