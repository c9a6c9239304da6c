#!/usr/bin/env python3
"""Run everything that CI runs: `make test`, or a part and all after it: `make test FROM=alone`.

One part of the host and two scenarios in docker run beside each other: one computes while another
waits. When the host has no part left, a third scenario takes its place. The parts of the lane
`alone` measure times, and begin when the other lanes are done.

After a failure the run goes on with the next part. At its end it names the failed parts and repeats
the failures of each, since CI may show only the end of its output. `.state/tests` keeps the output
of each part, its tests as JUnit XML, and the times of the parts.

What cannot run on this machine is left out, and named before the first part and after the last.
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

PROJECT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))
from tests import needs, pythons  # noqa: E402

LOGS = PROJECT / ".state" / "tests"
HOST, DOCKER, ALONE = LANES = "host", "docker", "alone"
# The rows run at the same time. A row runs the parts of its first lane, then those of the next.
BESIDE = ([HOST, DOCKER], [DOCKER], [DOCKER])
SLOWEST = 30
DEFAULT_CORE = "2.16"
OLD_PYTHONS = ("2.7", "3.6")
# The image that a part needs (tools/node-image.sh), unless the image has the name of the part.
IMAGES = {"default": "plain", "cluster": "plain", "fresh": "bare-trixie"}
# A line of molecule about the beginning of a phase, and the codes of its colours.
PHASE = re.compile(r"INFO +\S+ ➜ (\w+): Executing")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# `needs` are parts that end before; a run that goes on runs them again.
Part = collections.namedtuple("Part", "name lane command needs")


def tests(name, lane, folder, processes, marks):
    """Return the Part that runs the tests of a folder with these marks in several processes."""
    command = ["pytest", "-q", "-n", str(processes), "--dist", "worksteal", "-m", marks]
    return Part(name, lane, [*command, "tests/" + folder], [])


def scenario(name):
    """Return the Part that runs a scenario of molecule."""
    return Part(name, DOCKER, ["tools/molecule.sh", name], ["images"])


PARTS = [
    Part("images", DOCKER, ["tools/molecule.sh", "--images"], []),
    Part("lint", HOST, ["make", "lint"], []),
    Part("fast", HOST, ["make", "fast"], []),
    tests("trainings", HOST, "training", 3, "not soak"),
    tests("playbooks", HOST, "playbooks", 2, "not soak and not alone"),
    *map(scenario, ("el7", "default", "cluster", "container", "slurm", "sge")),  # longest first
    Part("fresh", DOCKER, ["pytest", "-q", "tests/fresh"], ["images"]),
    tests("alone", ALONE, "playbooks", 2, "not soak and alone"),
]


def chosen(parts, first=None):
    """Return the parts from the one with the name `first`, and those that they need."""
    names = [part.name for part in parts]
    if first not in [None, *names]:
        raise SystemExit("mxcluster: unknown part %s; known are %s" % (first, ", ".join(names)))
    kept = parts[names.index(first) if first else 0 :]
    needed = {name for part in kept for name in part.needs}
    return [part for part in parts if part in kept or part.name in needed]


def without_docker():
    """Return the reason that no docker engine can run here, None if one runs or can be started."""
    with contextlib.suppress(OSError):
        answer = subprocess.run(
            ["docker", "info"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if answer.returncode == 0:
            return None
    if not is_root_with_apt():
        return "no docker engine answers, and only root on Debian or Ubuntu can start one"
    if not needs.may_mount():
        return "a docker engine cannot start in a container without CAP_SYS_ADMIN"
    return None


def is_root_with_apt():
    """Return True if this process can install packages of Debian or Ubuntu, and make images."""
    return not os.geteuid() and bool(shutil.which("apt-get"))


def is_debian():
    """Return True on Debian itself, whose mirrors have the packages of other releases."""
    with contextlib.suppress(OSError), open("/etc/os-release") as stream:
        return "ID=debian\n" in stream.readlines()
    return False


def without_images(parts):
    """Return {name of a part: the reason that docker or the image of the part cannot be had}."""
    users = [part.name for part in parts if "images" in [part.name, *part.needs]]
    docker = without_docker()
    if docker:
        return dict.fromkeys(users, docker)
    found = {"fresh": "it needs Debian's packages"} if "fresh" in users and not is_debian() else {}
    if is_root_with_apt():
        return found
    for name in users:
        reason = "only root on Debian or Ubuntu can make images"
        if name != "images":  # an image may exist, or MXCLUSTER_NODE_IMAGE may name one
            image = subprocess.run(
                [str(PROJECT / "tools" / "node-image.sh"), IMAGES.get(name, name)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            if not image.returncode:
                continue
            reason = image.stderr.decode(errors="replace").partition("\n")[0]
        found.setdefault(name, reason.replace("mxcluster: ", ""))
    return found


def limits(parts, core, lacking, search=pythons.search):
    """Return ({name of a part: why it cannot run here}, {need: what the tests lose without it}).

    A need is the name of a program, or another need of `tests.needs`.

    Args:
        parts: the Parts.
        core: the line of ansible-core of the tests.
        lacking: the result of `without_images`.
        search: the function that finds a Python.
    """
    old = core != DEFAULT_CORE
    left_out = {}
    if old:
        left_out["el7"] = "ansible-core %s does not manage CentOS 7, only 2.16 does" % core
    for name, reason in lacking.items():
        left_out.setdefault(name, reason)
    # Modules of a newer ansible-core do not run on these Pythons.
    lost = {
        "python" + version: use
        for version, use in pythons.USES.items()
        if old and version in OLD_PYTHONS or not search(version)
    }
    return left_out, dict(lost, **without_programs(parts, left_out), **needs.lacking())


def without_programs(parts, left_out):
    """Return {program: what the tests of the scenario container lose without it}."""
    if "container" not in [part.name for part in parts if part.name not in left_out]:
        return {}
    # As root, tools/molecule.sh installs podman, and tools/docker-engine.sh the other.
    lost = {} if is_root_with_apt() else needs.OF_CONTAINER
    return {program: use for program, use in lost.items() if not shutil.which(program)}


def clock(seconds):
    """Return seconds as minutes:seconds."""
    return "%d:%02d" % divmod(round(seconds), 60)


def idle_and_all():
    """Return the idle time of all cores and their whole time since the boot, in ticks."""
    with open("/proc/stat") as stream:
        ticks = [int(word) for word in stream.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def idle_since(before):
    """Return the idle part of all cores, from 0 to 1, since `before` of idle_and_all()."""
    idle, total = (now - then for now, then in zip(idle_and_all(), before))
    return idle / max(1, total)


def speed():
    """Return how often this machine compiles this file in a second of processor time.

    Machines with two cores differ by a factor of two. With this number, the times of two machines
    can be compared.
    """
    source = pathlib.Path(__file__).read_text()
    began = time.process_time()
    for number in itertools.count(1):
        compile(source, __file__, "exec")
        seconds = time.process_time() - began
        if seconds >= 0.5:
            return number / seconds


def slowest(folder, number=SLOWEST):
    """Return (seconds, processor time, part, test) of the slowest tests in a folder's JUnit files.

    The processor time is the property of `tests/costs.py` in seconds, 0 without it.
    """
    found = [
        (
            float(case.get("time")),
            sum(
                float(told.get("value"))
                for told in case.iter("property")
                if told.get("name") == "processor"
            ),
            path.stem,
            "%s::%s" % (case.get("classname"), case.get("name")),
        )
        for path in folder.glob("*.xml")
        for case in xml.etree.ElementTree.parse(str(path)).iter("testcase")
    ]
    return sorted(found, reverse=True)[:number]


class Suite:
    """A run of parts, with the times of the run before in `times`.

    `times` is {part: {"seconds", "processor": seconds of its processes on the host, "idle": part of
    the cores' time, "passed", "phases": {phase of a scenario: seconds}}}.
    """

    def __init__(self, parts, logs=None, left_out=None, lost=None):
        self.left_out, self.lost = left_out or {}, lost or {}
        self.parts = [part for part in parts if part.name not in self.left_out]
        self.logs = logs or LOGS
        self.file = self.logs / "times.json"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.times = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.ended = {part.name: threading.Event() for part in self.parts}
        self.done, self.failed, self.running = [], [], {}
        self.stopped = False
        self.lock = threading.Lock()

    def say(self, text, *values):
        """Print a line of our own; lines of two lanes do not mix."""
        with self.lock:
            print("mxcluster: " + text % values, flush=True)

    def announce(self):
        """Print what will run, where, and how long each part took in the run before."""
        self.say("%d parts; their output is in %s", len(self.parts), self.logs)
        for part in self.parts:
            last = self.times.get(part.name)
            duration = "took %s" % clock(last["seconds"]) if last else "has not run here"
            self.say("  %-10s %-7s %s", part.name, part.lane, duration)
        self.name_limits()

    def name_limits(self):
        """Print what cannot run on this machine."""
        for name, reason in self.left_out.items():
            self.say("cannot run here: %s (%s)", name, reason)
        for need, use in self.lost.items():
            self.say("cannot run here: tests that need %s (%s)", need, use)

    def run(self):
        """Run all parts and print a report; return True if all passed."""
        self.say("speed: %d compilations of tools/suite.py in a second", speed())
        began, ticks = time.monotonic(), idle_and_all()
        self.run_lanes(*BESIDE)
        self.run_lanes([ALONE])
        self.report()
        self.name_limits()
        result = "failed: " + " ".join(self.failed) if self.failed else "all tests passed"
        if not self.failed and (self.left_out or self.lost):
            result = "all tests that can run here passed"
        took = clock(time.monotonic() - began)
        self.say("%s in %s minutes; cores idle %.0f %%", result, took, 100 * idle_since(ticks))
        return not self.failed

    def run_lanes(self, *rows):
        """Run the parts of each row's lanes, all rows beside each other, and wait for their end."""
        left = {lane: iter([part for part in self.parts if part.lane == lane]) for lane in LANES}
        threads = [
            threading.Thread(
                target=self.run_next,
                args=[itertools.chain(*(left[lane] for lane in row))],
                daemon=True,
            )
            for row in rows
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_next(self, left):
        """Run parts of the iterator `left` until none is left, each after those that it needs."""
        while True:
            with self.lock:
                part = next(left, None)
            if part is None:
                return
            for name in part.needs:
                if name in self.ended:
                    self.ended[name].wait()
            if not self.stopped:
                self.run_part(part)
            self.ended[part.name].set()

    def run_part(self, part):
        """Run a part, keep its output and its times, and print the output unless others print."""
        for suffix in (".log", ".xml"):
            with contextlib.suppress(FileNotFoundError):
                (self.logs / (part.name + suffix)).unlink()
        beside = " beside " + ", ".join(sorted(self.running)) if self.running else ""
        self.say("%s begins%s", part.name, beside)
        began, ticks = time.monotonic(), idle_and_all()
        process = subprocess.Popen(
            part.command,
            cwd=str(PROJECT),
            env=self.environment(part),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.running[part.name] = process
        phases = self.keep_output(part, process)
        status, usage = os.wait4(process.pid, 0)[1:]
        process.returncode = status  # the process has been waited for
        del self.running[part.name]
        seconds = time.monotonic() - began
        self.times[part.name] = {
            "seconds": round(seconds, 1),
            "processor": round(usage.ru_utime + usage.ru_stime, 1),
            "idle": round(idle_since(ticks), 3),
            "passed": status == 0,
            "phases": phases,
        }
        with self.lock:
            self.file.write_text(json.dumps(self.times, indent=1))
        (self.failed if status else self.done).append(part.name)
        self.say("%s %s in %s", part.name, "failed" if status else "passed", clock(seconds))

    def environment(self, part):
        """Return the environment of a part's process."""
        options = "--durations=10 --junitxml=%s" % (self.logs / (part.name + ".xml"))
        made = dict(os.environ, PYTEST_ADDOPTS="-m 'not soak' " + options)
        # With CI, pytest gives the whole message of a failure in its summary.
        made["CI"] = "true"
        # The Python of this program may have put its own folder first, as pyenv does.
        made["PATH"] = "%s:%s" % (PROJECT / ".venv" / "bin", os.environ["PATH"])
        made[pythons.WITHOUT] = " ".join(self.lost)
        if sys.stdout.isatty():
            made["PY_COLORS"] = "1"
        return made

    def keep_output(self, part, process):
        """Write the output of a part to its log; return {phase of a scenario: seconds}."""
        began, phases = [], {}
        with open(str(self.logs / (part.name + ".log")), "wb") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                text = line.decode(errors="replace")
                if part.lane != DOCKER:
                    with self.lock:
                        print(text, end="", flush=True)
                phase = PHASE.search(COLOUR.sub("", text))
                if phase:
                    began.append((phase.group(1), time.monotonic()))
        began.append(("", time.monotonic()))
        for (name, start), (_, end) in zip(began, began[1:]):
            phases[name] = round(phases.get(name, 0) + end - start, 1)
        return phases

    def stop(self):
        """End the processes of all running parts, and print how the run goes on."""
        self.stopped = True
        for process in list(self.running.values()):
            os.killpg(process.pid, signal.SIGTERM)
        left = next((part.name for part in self.parts if part.name not in self.done), None)
        self.say("stopped; `make test FROM=%s` goes on", left)

    def report(self):
        """Print the times of all parts, the slowest tests, and the failures of each part."""
        self.say("part       result  wall    processor  idle  phases")
        for part in self.parts:
            measured = self.times[part.name]
            self.say(
                "%-10s %-7s %-7s %-10s %3.0f%%  %s",
                part.name,
                "passed" if measured["passed"] else "failed",
                clock(measured["seconds"]),
                clock(measured["processor"]),
                100 * measured["idle"],
                ", ".join(
                    "%s %s" % (name, clock(part)) for name, part in measured["phases"].items()
                ),
            )
        self.say("slowest    processor")
        for duration, processor, part, test in slowest(self.logs):
            self.say("%6.1f s   %6.1f s  %s %s", duration, processor, part, test)
        for name in self.failed:
            log = self.logs / (name + ".log")
            self.say("failures of %s, from %s:", name, log)
            subprocess.call([str(PROJECT / "tools" / "evidence.sh"), str(log)])


def main():
    """Run the parts that the arguments choose; the exit status is 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="first", metavar="PART", help="skip the parts before PART")
    parser.add_argument("--plan", action="store_true", help="print what would run, and end")
    arguments = parser.parse_args()
    parts = chosen(PARTS, arguments.first)
    core = (PROJECT / ".venv" / ".core").read_text().strip()
    left_out, lost = limits(parts, core, without_images(parts))
    suite = Suite(parts, None, left_out, lost)
    suite.announce()
    if arguments.plan:
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(not suite.run())
    finally:
        if suite.running:
            suite.stop()


if __name__ == "__main__":
    main()
