"""A fault of a node, agent, controller or connection ends the job in time, or has no effect."""

import collections
import concurrent.futures
import json
import os
import re
import subprocess
import time

import pytest

from tests.machine import LEASE, Stopwatch
from tests.waiting import until

# seconds from the fault to the end of ansible-playbook, and of all processes on the nodes
BOUND = 15
# seconds that the controller tries to fetch the files of a node which has told its end
FETCHES = 30.0
# The workers mostly sleep: several nodes share two cores.
SLEEPY = {"step_ms": 20}
START = 30  # seconds that nodes wait for each other in the rendezvous
JOBS = "/opt/mxcluster/jobs"
PROBE = os.path.join(os.path.dirname(__file__), "probe.py")

Fault = collections.namedtuple(
    "Fault", "name strike mend cause kv node options", defaults=("dist_sync", "node3", SLEEPY)
)


def docker(*argv):
    subprocess.run(["docker", *argv], check=True, stdout=subprocess.PIPE)


def cut_off(cluster, node, job):
    docker("network", "disconnect", cluster.network, cluster.container(node))


def connect(cluster, node):
    docker(
        "network",
        "connect",
        "--ip",
        cluster.variables[node]["ansible_host"],
        cluster.network,
        cluster.container(node),
    )
    # Docker gives the interface the next number, unlike a real machine, and does not find it under
    # another name later. A restart restores the first name.
    power_off(cluster, node, None)
    power_on(cluster, node)


def power_off(cluster, node, job):
    docker("kill", cluster.container(node))


def power_on(cluster, node):
    cluster.power_on(node)


def freeze(cluster, node, job):
    """Freeze all processes of a node; its kernel still answers for its connections."""
    docker("pause", cluster.container(node))


def thaw(cluster, node):
    docker("unpause", cluster.container(node))

    def units():
        return cluster.shell(node, "systemctl list-units --plain --no-legend 'mxcluster-*@*'")

    with Stopwatch() as watch:  # its processes now detect the missing peers
        until(lambda: not units(), 300, units, pause=0.5)
    assert watch.within(20)


def kill_agent(cluster, node, job):
    cluster.shell(node, "systemctl kill --kill-who=main --signal=KILL mxcluster-agent@%s" % job)


def stop_unit(cluster, node, job):
    """End the unit as systemd does when the node goes down."""
    cluster.shell(node, "systemctl stop mxcluster-agent@%s" % job)


def shut_down(cluster, node, job):
    """Shut a node down in order: systemd ends its services, then the machine."""
    cluster.shell(node, "systemctl --no-block poweroff")
    until(lambda: not is_on(cluster, node), pause=0.5)


def feed(cluster, node, job):
    """Limit the memory of the job's unit, and let its worker allocate more."""
    cluster.shell(
        node,
        "systemctl set-property --runtime mxcluster-agent@%s.service MemoryMax=1G && touch "
        "/run/hungry" % job,
    )


def clear_away(cluster, node):
    cluster.shell(node, "rm /run/hungry")


def small_disk(cluster, node):
    cluster.shell(
        node,
        "mount -t tmpfs -o size=160m,uid=$(id -u mxcluster),gid=$(id -g mxcluster),mode=755 tmpfs "
        + JOBS,
    )


def fill_disk(cluster, node, job):
    # dd ends with an error, since no space is left.
    cluster.shell(node, "! dd if=/dev/zero of=%s/fill bs=1M 2>/dev/null" % JOBS)


def empty_disk(cluster, node):
    cluster.shell(node, "umount -l " + JOBS)


def nothing(cluster, node):
    pass


def gone(node, processes):
    """Return the pattern of the cause if `node` with these processes is gone."""
    return (
        r"agent on {0}: {0} is gone: it has not answered over ssh since \S+ \(.+\), "
        r"and the other nodes have received no heartbeat of its {1} for 5 s$"
    ).format(node, processes)


DOWN = "the node was shut down, or a program sent SIGTERM"
EAT = {"script": os.path.join(os.path.dirname(__file__), "eat.py")}
FAULTS = (
    Fault("a node is cut off from the network", cut_off, connect, gone("node3", "worker-2")),
    Fault(
        "the scheduler's node is powered off",
        power_off,
        power_on,
        gone("node1", "scheduler-0 and worker-0"),
        "dist_gsync",
        "node1",
    ),
    Fault("a node freezes", freeze, thaw, gone("node3", "worker-2")),
    Fault("an agent is killed", kill_agent, nothing, "agent on node3: the agent itself was killed"),
    Fault(
        "an agent's unit is stopped", stop_unit, nothing, "agent on node3: .*" + DOWN, "dist_gsync"
    ),
    Fault(
        "a node is shut down in order",
        shut_down,
        power_on,
        "agent on node3: (.*%s|node3 is gone)" % DOWN,
    ),
    Fault("a worker has an OOM kill", feed, clear_away, "worker 2 on node3: .*memory", options=EAT),
    Fault(
        "a node's disk is full",
        fill_disk,
        empty_disk,
        r"on node3: (.|\n)*No space left",
        "dist_gsync",
    ),
)

# `make soak` runs these cases. The first two end like other nodes that are gone. The next two have
# a test on the local inventory, too. A unit's end is that of a killed agent with another signal.
# test_out_of_memory.py has the words about an OOM kill.
RARE = (
    "a node is shut down in order",
    "a node freezes",
    "an agent is killed",
    "a node's disk is full",
    "an agent's unit is stopped",
    "a worker has an OOM kill",
)


def probe(cluster, node, job):
    """Return the output of probe.py on a node."""
    with open(PROBE) as program:
        done = subprocess.run(
            ["docker", "exec", "-i", cluster.container(node), "python3", "-", JOBS + "/" + job],
            stdin=program,
            capture_output=True,
        )
    assert done.returncode == 0, "%s: %s" % (node, done.stderr.decode())
    return json.loads(done.stdout.decode())


def is_on(cluster, node):
    state = subprocess.check_output(
        ["docker", "inspect", "--format", "{{.State.Status}}", cluster.container(node)]
    )
    return state.decode().strip() == "running"


def left(cluster, job, nodes=None):
    """Return {node: leftovers of the job} of all running nodes, also of those without a network."""
    found = {
        node: probe(cluster, node, job)["left"]
        for node in nodes or cluster.names
        if is_on(cluster, node)
    }
    return {node: lines for node, lines in found.items() if lines}


@pytest.fixture
def report(capsys):
    """Print a line on the terminal at once."""

    def tell(line):
        with capsys.disabled():
            print("\nfault: " + line, flush=True)

    return tell


@pytest.fixture(scope="module", autouse=True)
def walls(cluster, provisioned):
    """Block every port but ssh with a firewall on every node, also after a boot.

    The job then needs firewall rules, which may be left over.
    """
    rules = (
        "table inet filter { chain input { type filter hook input priority 0; policy drop; "
        "ct state established,related accept; iifname lo accept; tcp dport 22 accept; }; }"
    )
    for name in cluster.names:
        cluster.shell(
            name, "echo '%s' > /etc/nftables.conf && systemctl -q enable --now nftables" % rules
        )


def end_of(train):
    """Wait for the end of a playbook, and return its time."""
    train.end()
    return time.time()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, id=fault.name.replace(" ", "-"), marks=[pytest.mark.soak] * (fault.name in RARE)
        )
        for fault in FAULTS
    ],
)
def test_a_fault_ends_the_whole_job(cluster, fault, report):
    job = "fault-%d" % time.time_ns()
    if fault.strike is fill_disk:
        small_disk(cluster, fault.node)
    train = cluster.start("train.yml", job_id=job, kv=fault.kv, num_epochs=100000, **fault.options)
    struck = None
    try:
        cluster.until_it_trains(job, train)
        with Stopwatch() as watch, concurrent.futures.ThreadPoolExecutor(1) as pool:
            struck = time.time()
            ending = pool.submit(end_of, train)
            fault.strike(cluster, fault.node, job)
            until(lambda: not left(cluster, job), 200, lambda: left(cluster, job), pause=0.2)
            clean, ended = time.time() - struck, ending.result() - struck
    finally:
        train.kill()
        output = train.output()
        print(output)
        if struck:
            fault.mend(cluster, fault.node)
    report(
        "%s: ansible-playbook ended after %.1f s, everything on the nodes after %.1f s"
        % (fault.name, ended, clean)
    )
    report("    " + "\n    ".join(output[-2000:].splitlines()))
    verdict = json.loads((cluster.runs / job / "verdict.json").read_text())
    cause = verdict["first_failure"]
    who = cause["role"] + ("" if cause["index"] is None else " %d" % cause["index"])
    assert re.search(
        fault.cause,
        "\n".join(["%s on %s: %s" % (who, cause["host"], cause["reason"])] + cause["log"]),
    ), output
    assert train.returncode != 0 and not verdict["ok"]
    bound, is_off = BOUND * watch.slowness, fault.strike is shut_down
    patience = FETCHES if is_off else 0.0
    assert ended < bound + patience and clean < bound, (ended, clean, bound)
    gone = [fault.node] if is_off or "is gone" in cause["reason"] else []
    assert verdict["left"] == {name: [] for name in cluster.names if name not in gone}, output
    searched = len(cluster.names) - len(gone)
    assert (
        "left      nothing: no process, port, unit or firewall rule on %d node" % searched in output
    ), output
    assert ("not searched: %s" % fault.node in output) == bool(gone)
    for name in set(cluster.names) - set(gone):
        assert (
            cluster.runs / job / "nodes" / name / "agent.log"
        ).exists() or fault.strike is fill_disk
    assert left(cluster, job) == {}, "also on a node that is connected again"


@pytest.mark.soak
def test_a_node_that_is_cut_off_while_the_job_starts_is_named(cluster, report):
    """The node is lost after its start, before its report or during the rendezvous."""
    job = "start-%d" % time.time_ns()
    train = cluster.start("train.yml", job_id=job, kv="dist_gsync", num_epochs=100000, **SLEEPY)

    def starts():
        assert train.poll() is None, train.output()
        return left(cluster, job, ["node3"])

    try:
        until(starts, 180, train.output)
        with Stopwatch() as watch:
            cut_off(cluster, "node3", job)
            output = train.end()
        ended = watch.seconds
    finally:
        train.kill()
        connect(cluster, "node3")
    print(output)
    report("a node is cut off while the job starts: ansible-playbook ended after %.1f s" % ended)
    report("    " + "\n    ".join(output[-2000:].splitlines()))
    assert train.returncode != 0 and watch.within(START + BOUND), output
    if (cluster.runs / job / "verdict.json").exists():
        verdict = json.loads((cluster.runs / job / "verdict.json").read_text())
        assert "node3 is gone" in verdict["first_failure"]["reason"], output
    else:
        assert "TASK [train_job : Fail if the node has not started the job]" in output, output
        assert "fatal: [node3]: FAILED!" in output.split("Fail if the node has not started")[1], (
            output
        )
    assert left(cluster, job) == {}


def wait_for_nothing(cluster, job, seconds):
    """Wait until the job has left nothing on the nodes, and return the seconds of the wait."""
    with Stopwatch() as watch:
        until(lambda: not left(cluster, job), 300, lambda: left(cluster, job), pause=0.2)
    assert watch.within(seconds)
    return watch.seconds


def renewed(cluster, node, job):
    """Return the time of the last renewal of the lease on a node, 0 without a lease."""
    file = "%s/%s/lease" % (JOBS, job)
    return float(cluster.node(node).run("stat -c %%.3Y %s", file).stdout or 0)


def test_lost_connections_and_controllers(cluster, report):
    """A detached job goes on without a controller until stop.yml ends it.

    A second job survives the loss of its connections, but ends with its controller.
    """
    detached, waited_for = "detached-%d" % time.time_ns(), "waited-for-%d" % time.time_ns()
    started = cluster.play(
        "train.yml", job_id=detached, kv="dist_async", num_epochs=100000, **SLEEPY, detach=True
    )
    assert started.code == 0, started.output
    cluster.until_it_trains(detached)
    train = cluster.start(
        "train.yml", job_id=waited_for, kv="dist_sync", num_epochs=100000, **SLEEPY, lease=LEASE
    )
    try:
        cluster.until_it_trains(waited_for, train)
        for name in cluster.names:  # the processes that serve the open connection at both ends
            cluster.shell(name, "pkill -KILL -f '^sshd: root' || pkill -KILL sshd-session")
        killed = time.time()
        before = {name: probe(cluster, name, waited_for)["events"] for name in cluster.names}

        # A renewal after this time has come over a new connection: the lease of the old ones has
        # run out. Then the agents would have ended the job.
        def go_on():
            assert train.poll() is None, train.output()
            after = {name: probe(cluster, name, waited_for)["events"] for name in cluster.names}
            return all(
                after[name] > before[name]
                and renewed(cluster, name, waited_for) > killed + LEASE + 2
                for name in cluster.names
            )

        until(go_on, 300, train.output, pause=1)
    finally:
        train.kill()
        print(train.output())
    report(
        "ansible-playbook was killed: the job ended %.1f s later, with a lease of %d s"
        % (wait_for_nothing(cluster, waited_for, 3 * LEASE), LEASE)
    )

    assert set(left(cluster, detached)) == set(cluster.names), "the detached job must go on"
    stopped = cluster.play("stop.yml", all=True)
    assert (
        stopped.code == 0
        and "the job %s has been ended on node1 node2 node3" % detached in stopped.output
    ), stopped.output
    assert (
        "left      nothing: no process, port, unit or firewall rule on 3 nodes" in stopped.output
    ), stopped.output
    assert left(cluster, detached) == {}
