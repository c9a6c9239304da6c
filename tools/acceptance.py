#!/usr/bin/env python3
"""Accept mxcluster on a real CentOS 7 node, step by step, and write one report to send back.

The node is a cluster of its own: scheduler, server and workers. Its inventory, the logs of the
steps and the runs are in one folder outside of the project. Without --yes, the tool asks before the
first step that changes the node. It restarts the node with --restart only, and removes mxcluster
from the node with --reset only.

The exit status is 0 if all steps passed that this node can run, 1 if a step failed or was refused,
2 for a wrong command line, and 130 after Ctrl-C.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PROJECT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "python"))  # --help runs without the environment of the project
from mxcluster import schemes  # noqa: E402
from mxcluster.cluster.verify import acceptance  # noqa: E402
from mxcluster.model.acceptance import PASSED, Outcome  # noqa: E402
from mxcluster.model.cluster_verdict import FAILED, NOT_RUN  # noqa: E402

NODE = "node1"  # the name of the node in the inventory and in the report
TESTS = "molecule/el7/test_on_any_centos7.py"
SHORT = ("-e", "num_epochs=3")
NO_GPU = "the node shows no GPU"

# A step: its name, its command line, the names of the steps that must have passed before, and
# `check`, a function of the output that returns the reason of a failure, or "".
Step = collections.namedtuple("Step", "name argv needs check")


class Refused(Exception):
    """A wrong request. The message has the cure."""


def play(playbook, *arguments):
    """Return the command line of a playbook. The inventory is that of `environment`."""
    return ["ansible-playbook", playbook, *arguments]


def tests(*names):
    """Return the command line of some tests of the scenario el7."""
    named = ["%s::%s" % (TESTS, name) for name in names]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named]


def nothing(output):
    """Return "": the exit status alone decides."""
    return ""


def no_change(output):
    """Return a reason if the recap of `output` has a change or is missing."""
    found = re.findall(r"^\S+\s*: ok=\d+\s+changed=(\d+)\s", output, re.MULTILINE)
    if not found:
        return "the output has no recap"
    number = sum(map(int, found))
    return "a second run made changes: %d" % number if number else ""


def steps(restart=False, reset=False):
    """Return the steps in their order.

    Args:
        restart: True if provision.yml may restart the node for its driver.
        reset: True if the last step removes mxcluster from the node.
    """
    allowed = ["-e", "nvidia_driver_reboot=true"] if restart else []
    return [
        Step("dry run", play("provision.yml", "--check"), (), nothing),
        Step("system", tests("test_the_nodes_are_centos_7"), ("dry run",), nothing),
        Step("provision", play("provision.yml", *allowed), ("system",), nothing),
        Step("provision again", play("provision.yml"), ("provision",), no_change),
        Step(
            "tests",
            tests(
                "test_its_repositories_are_archives_with_signatures",
                "test_mxnet_runs_on_its_python",
            ),
            ("provision",),
            nothing,
        ),
        Step("verify", play("verify.yml", "-e", "report=true"), ("provision",), nothing),
        *(
            Step(
                "train " + one.name,
                play("train.yml", "-e", "kv=" + one.name, "-e", "gpus=", *SHORT),
                ("provision",),
                nothing,
            )
            for one in schemes.distributed()
        ),
        Step(
            "train on GPUs",
            play("train.yml", "-e", "kv=dist_sync", "-e", "workers_per_host=1", *SHORT),
            ("provision", "GPU"),
            nothing,
        ),
        Step("reset dry run", play("reset.yml", "--check"), ("provision",), nothing),
        Step("reset", play("reset.yml"), ("reset dry run", "--reset"), nothing),
    ][: None if reset else -1]


def split(destination):
    """Return (user, host) of [USER@]HOST; without a user it is root. Raises Refused."""
    user, _, host = destination.rpartition("@")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*", host):
        raise Refused("%r is no host: write molecule/el7/real.sh [USER@]HOST" % destination)
    if "@" in destination and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", user):
        raise Refused("%r is no user: write molecule/el7/real.sh [USER@]HOST" % user)
    return user or "root", host


def inventory(user, host, port):
    """Return the inventory of the node: the content of hosts.yml, as JSON, which is YAML."""
    place = {"ansible_host": host, "ansible_port": port, "workers_per_host": 2}
    groups = {"scheduler": {NODE: None}, "servers": {NODE: None}, "workers": {NODE: place}}
    return {"all": {"children": {name: {"hosts": hosts} for name, hosts in groups.items()}}}


def state(folder):
    """Return the folder of the controller's state. Its name marks the host key in known_hosts."""
    return folder / folder.name


def variables(user, folder, own):
    """Return the content of group_vars/all.yml.

    The folders of the run replace those of the site: `has_gpus` and `report` read their files.

    Args: `own` variables of the administrator.
    """
    return {
        "ansible_user": user,
        "ansible_become": user != "root",
        **own,
        "mxcluster_state_dir": str(state(folder)),
        "train_job_runs_dir": str(folder / "runs"),
    }


def read_own(path):
    """Return the variables of the administrator's YAML file, {} without a file. Raises Refused."""
    import yaml  # not at the top: --help runs without an environment

    if path is None:
        return {}
    try:
        found = yaml.safe_load(pathlib.Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Refused("cannot read %s (%s): correct --vars" % (path, error)) from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise Refused("%s holds no variables: write lines such as `name: value`" % path)
    return found


def prepare(folder, user, host, port, own):
    """Write the inventory of the node into `folder`, and make the folders of the run there."""
    (folder / "inventory" / "group_vars").mkdir(parents=True)
    (folder / "shared").mkdir()
    for path, content in (
        ("inventory/hosts.yml", inventory(user, host, port)),
        ("inventory/group_vars/all.yml", variables(user, folder, own)),
    ):
        (folder / path).write_text(json.dumps(content, indent=1) + "\n")


def environment(folder, given):
    """Return the variables of the steps' programs. Args: `given` those of this process."""
    kept = {name: text for name, text in given.items() if not name.startswith("ANSIBLE_")}
    return dict(
        kept,
        PATH="%s:%s" % (pathlib.Path(sys.executable).parent, given.get("PATH", "/usr/bin:/bin")),
        LC_ALL="C.UTF-8",
        ANSIBLE_CONFIG=str(PROJECT / "ansible.cfg"),
        ANSIBLE_INVENTORY=str(folder / "inventory"),
        # For molecule/conftest.py.
        MXCLUSTER_EL7_INVENTORY=str(folder / "inventory"),
        MXCLUSTER_RUN="real",
        MXCLUSTER_RUN_NETWORK="",
        MOLECULE_SCENARIO_DIRECTORY=str(PROJECT / "molecule" / "el7"),
        MOLECULE_EPHEMERAL_DIRECTORY=str(folder),
    )


def ended(step, result, why, seconds=0.0):
    """Return the Outcome of a step."""
    return Outcome(step=step.name, result=result, seconds=round(seconds, 1), why=why)


def execute(step, log, variables):
    """Run the program of a step, and return its Outcome. Its output goes to the file `log`."""
    began = time.monotonic()
    with open(str(log), "wb") as stream:
        status = subprocess.call(
            step.argv,
            cwd=str(PROJECT),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    seconds = time.monotonic() - began
    why = evidence(log) if status else step.check(log.read_text(errors="replace"))
    if status:
        why = "exit status %d: %s" % (status, why)
    return ended(step, FAILED if why else PASSED, why, seconds)


def evidence(log):
    """Return the first line of a log that names a failure, and the two lines after it.

    tools/evidence.sh finds these lines. Without such a line, return the last line.
    """
    found = subprocess.check_output([str(PROJECT / "tools" / "evidence.sh"), str(log)])
    lines = [line.strip() for line in found.decode(errors="replace").splitlines() if line.strip()]
    places = [
        place
        for place, line in enumerate(lines)
        if re.match(r"(FAILED|ERROR|fatal|failed|mxcluster)", line)
    ]
    named = lines[places[0] : places[0] + 3] if places else lines[-1:]
    return "; ".join(named) or "no output"


def has_gpus(folder):
    """Return True if the record of the node, which provision.yml writes, has GPUs."""
    try:
        record = json.loads((state(folder) / "nodes" / (NODE + ".json")).read_text())
    except (OSError, ValueError):
        return False
    return bool(record.get("gpus"))


def follow(wanted, run, allowed, there, show):
    """Run the steps one after another, and return their Outcomes.

    A step whose needs are not met is not run.

    Args:
        wanted: the steps.
        run: the function that runs a step and returns its Outcome.
        allowed: a function without arguments; False refuses all steps from `provision` on.
        there: a function without arguments that returns True if the node has GPUs.
        show: a function that gets each Outcome at its end.
    """
    results = {"--reset": PASSED}
    outcomes = []
    for step in wanted:
        if "GPU" in step.needs:
            results["GPU"] = PASSED if there() else "missing"
        unmet = [need for need in step.needs if results.get(need) != PASSED]
        if unmet == ["GPU"]:
            outcome = ended(step, NOT_RUN, NO_GPU)
        elif unmet:
            outcome = ended(step, NOT_RUN, "%s did not pass" % unmet[0])
        elif step.name == "provision" and not allowed():
            outcome = ended(step, NOT_RUN, "refused: answer yes, or give --yes")
        else:
            outcome = run(step)
        results[step.name] = outcome.result
        outcomes.append(outcome)
        show(outcome)
    return outcomes


def row(outcome):
    """Return the line of a step in the table: name, result, time as m:ss, and the reason."""
    clock = "%d:%02d" % divmod(round(outcome.seconds), 60)
    line = "%-17s %-8s %6s  %s" % (outcome.step, outcome.result, clock, outcome.why)
    return line.rstrip()


def status(outcomes):
    """Return the exit status: 0 if all steps passed, without the one of GPUs on other nodes."""
    excused = (NOT_RUN, NO_GPU)
    return int(any(one.result != PASSED and (one.result, one.why) != excused for one in outcomes))


def report(folder, host, outcomes):
    """Add the steps to the report of verify.yml, or write a report without it; return its path."""
    from mxcluster.ansible import controller_software

    told = [acceptance.outcome(host, outcome) for outcome in outcomes]
    written = sorted((folder / "runs").glob("acceptance-*.json"))
    if written:
        acceptance.add_steps(str(written[-1]), told)
        return str(written[-1])
    controller = controller_software.look(str(PROJECT), {})
    made = acceptance.of_steps(controller, told, time.time())
    return acceptance.write(str(folder / "runs"), made)


def confirmed(host, yes):
    """Return True if the user allows the changes of provision.yml."""
    if yes:
        return True
    if not sys.stdin.isatty():
        return False
    question = "provision.yml changes %s: repositories, driver, CUDA, MXNet, a user. Go on? [y/N] "
    return input(question % host).strip().lower() in ("y", "yes")


def arguments(argv):
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="molecule/el7/real.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("node", metavar="[USER@]HOST", help="the node; without a user, root")
    parser.add_argument("-p", "--port", type=int, default=22, help="the port of its sshd")
    parser.add_argument("--vars", metavar="FILE", help="a YAML file with variables of your site")
    parser.add_argument("--folder", help="a new folder for inventory, logs and runs")
    parser.add_argument("--yes", action="store_true", help="do not ask before provision.yml")
    parser.add_argument("--restart", action="store_true", help="restart the node for its driver")
    parser.add_argument("--reset", action="store_true", help="remove mxcluster at the end")
    return parser.parse_args(argv)


def new_folder(wanted):
    """Return the new folder of the run. Raises Refused if the wanted one exists already."""
    if wanted is None:
        return pathlib.Path(tempfile.mkdtemp(prefix="mxcluster-acceptance-"))
    folder = pathlib.Path(wanted).resolve()
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise Refused("cannot make %s (%s): name a new folder" % (folder, error.strerror)) from None
    return folder


def main(argv):
    """Run the steps, print the table and write the report. Return the exit status."""
    given = arguments(argv)
    try:
        user, host = split(given.node)
        own = read_own(given.vars)
        folder = new_folder(given.folder)
    except Refused as refusal:
        print("mxcluster: %s" % refusal, file=sys.stderr)
        return 2
    prepare(folder, user, host, given.port, own)
    print("mxcluster: inventory, logs and runs are in %s" % folder)
    variables_of_steps = environment(folder, os.environ)

    def run(step):
        return execute(step, folder / (step.name.replace(" ", "-") + ".log"), variables_of_steps)

    try:
        outcomes = follow(
            steps(given.restart, given.reset),
            run,
            lambda: confirmed(host, given.yes),
            lambda: has_gpus(folder),
            lambda outcome: print(row(outcome), flush=True),
        )
    except KeyboardInterrupt:  # the step's program has got it, too
        print("\nmxcluster: interrupted: the node stays as the last step has left it")
        return 130
    print("report    %s" % report(folder, host, outcomes))
    return status(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
