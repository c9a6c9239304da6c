"""The processes of an MPI job on three nodes of this machine, with a small program as mpirun.

The program starts a daemon on each host as Open MPI does. tests/playbooks and molecule run the real
engines.
"""

import collections
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from mxcluster import exit_codes
from mxcluster.node import mpi_daemons, mpi_engines, processes
from mxcluster.node.mpi_channel import BEAT
from tests import waiting
from tests.networks import own_network
from tests.plans import part_json

pytestmark = pytest.mark.slow

MPIRUN = r"""#!/bin/sh
case "$1" in --version) echo "mpirun (Open MPI) 4.1.4"; exit;; esac
file=$2
while [ "$1" != /bin/bash ]; do shift; done
echo "$3" > "$file.program"
# A daemon as Hydra's: it starts the program, waits for it, and tells mpirun its exit status. The
# daemon's own status is 0 or 1.
echo 'bash "'"$file.program"'" & wait $! || { echo $? > "'"$file.code"'"; exit 1; }' \
  > "$file.daemon"
agent=$OMPI_MCA_plm_rsh_agent pids=
for host in $(cut -d" " -f1 "$file"); do
  "$agent" -x $host "EXTRA=1;" export "EXTRA;" hydra_pmi_proxy "$file.daemon" &
  pids="$pids $!"
done
code=0
for pid in $pids; do wait $pid || code=$?; done
[ ! -e "$file.code" ] || code=$(cat "$file.code")
exit $code
"""
Node = collections.namedtuple("Node", "folder process")


@pytest.fixture
def start(tmp_path):
    """Return a function that starts the three processes of a job: {host: Node}."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpirun").write_text(MPIRUN)
    (tmp_path / "bin" / "mpirun").chmod(0o755)
    (tmp_path / "bin" / "hydra_pmi_proxy").symlink_to("/bin/bash")
    started = []
    token = secrets.token_hex(20)  # all runs share /tmp

    def run(command, coordination="", heartbeat=20, load=""):
        with socket.socket() as free:
            free.bind((own_network() + ".1", 0))
            port = free.getsockname()[1]
        hosts = [
            dict(host=host, name=name, port=port, interface="lo", processes=1)
            for host, name in (("a", "mpirun"), ("b", "node-1"), ("c", "node-2"))
        ]
        for index, one in enumerate(hosts):
            one["address"] = "%s.%d" % (own_network(), 1 + index)
        nodes = {}
        for one in hosts:
            folder = tmp_path / one["host"]
            folder.mkdir()
            program = {"command": command, "coordination": coordination, "hosts": hosts}
            program["pre_execution"] = "export PATH=%s:$PATH LOADED=yes\n%s" % (
                tmp_path / "bin",
                load,
            )
            program.update(runtime="", infiniband=None, network="")
            plan = part_json(host=one["host"], heartbeat={"timeout": heartbeat}, mpi=program)
            (folder / "plan.json").write_text(json.dumps(plan))
            (folder / "token").write_text(token)
            (folder / "token").chmod(0o600)
            own = dict(MXCLUSTER_JOB_DIR=str(folder), MXCLUSTER_JOB="j", NODE=one["host"])
            what = "serve" if nodes else "run"
            with open(str(folder / (one["name"] + ".log")), "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-u", "-m", "mxcluster.node.mpi_job", what],
                    cwd=str(folder),
                    env=dict(os.environ, **own),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            nodes[one["host"]] = Node(folder, process)
            started.append(process)
        return nodes

    yield run
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    # The agent removes this folder. These jobs have no agent.
    shutil.rmtree(mpi_engines.session_folder(token.encode()), ignore_errors=True)


def until(condition, nodes):
    waiting.until(condition, evidence=lambda: logs(nodes))


def codes(nodes):
    until(lambda: all(node.process.poll() is not None for node in nodes.values()), nodes)
    return {host: node.process.returncode for host, node in nodes.items()}


def logs(nodes):
    return "\n".join(
        path.read_text() for node in nodes.values() for path in node.folder.glob("*.log")
    )


def test_program_runs_on_each_node_in_the_environment_of_the_node(start):
    nodes = start(
        'echo "$NODE $LOADED $EXTRA $(cat made)" > "out put"', coordination="echo here > made"
    )
    assert codes(nodes) == {"a": 0, "b": 0, "c": 0}, logs(nodes)
    for host, folder in (("a", "mpirun"), ("b", "node-1"), ("c", "node-2")):
        written = nodes[host].folder / "files" / folder / "out put"
        assert written.read_text() == host + " yes 1 here\n"


def test_failed_program_is_the_failure_of_mpirun_alone(start):
    nodes = start('[ "$NODE" != b ] || exit 3')
    expected = {"a": 3, "b": exit_codes.PEER_DIED, "c": exit_codes.PEER_DIED}
    assert codes(nodes) == expected, logs(nodes)


def test_program_that_a_signal_kills_fails_the_job(start):
    nodes = start('[ "$NODE" != c ] || kill -9 $$')
    assert codes(nodes)["a"] == 128 + signal.SIGKILL, logs(nodes)


def test_lost_node_is_not_blamed_on_mpirun(start):
    nodes = start("touch begun; sleep 300")
    until(lambda: (nodes["b"].folder / "files" / "node-1" / "begun").exists(), nodes)
    os.killpg(nodes["b"].process.pid, signal.SIGKILL)
    found = codes(nodes)
    assert found["a"] == found["c"] == exit_codes.PEER_DIED, logs(nodes)
    assert "b: the connection to the node's part of the job is lost" in logs(nodes)


def test_silent_node_is_lost_after_the_heartbeat_timeout(start):
    nodes = start("touch begun; sleep 300", heartbeat=3)
    until(lambda: (nodes["b"].folder / "files" / "node-1" / "begun").exists(), nodes)
    os.kill(nodes["b"].process.pid, signal.SIGSTOP)
    assert codes({"a": nodes["a"]}) == {"a": exit_codes.PEER_DIED}, logs(nodes)
    assert "timed out" in (nodes["a"].folder / "mpirun.log").read_text()


def test_mpirun_that_waits_after_a_failure_is_ended(start):
    """MPICH's mpirun waited for ever when a process failed while another node was starting."""
    failed = "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
    nodes = start('[ "$NODE" != a ] || echo "=   %s"; sleep 300' % failed)
    expected = {"a": 1, "b": exit_codes.PEER_DIED, "c": exit_codes.PEER_DIED}
    assert codes(nodes) == expected, logs(nodes)
    assert "has reported the failure of a process, and has not ended for 10 s" in logs(nodes)


@pytest.mark.parametrize("host,folder", [("a", "mpirun"), ("c", "node-2")])
def test_killed_daemon_of_mpirun_ends_the_job(start, host, folder):
    """Hydra's mpirun waits for ever: the processes of the daemon hold its connection open."""
    nodes = start("echo $PPID > daemon; sleep 300")
    written = nodes[host].folder / "files" / folder / "daemon"
    until(lambda: written.exists() and written.read_text().strip(), nodes)
    # The daemon is older than the time between two looks, so a look has seen its process.
    until(lambda: time.time() - written.stat().st_mtime > 2 * BEAT, nodes)
    os.kill(int(written.read_text()), signal.SIGKILL)
    expected = dict(dict.fromkeys(nodes, exit_codes.PEER_DIED), **{host: 1})
    assert codes(nodes) == expected, logs(nodes)
    log = (nodes[host].folder / (folder + ".log")).read_text()
    assert "hydra_pmi_proxy, a daemon of mpirun (pid " in log and "was killed, and" in log


def test_a_daemon_that_takes_its_processes_with_it_ends_the_job(start):
    """No orphan shows the fault then. mpirun waits for ever in this case, too."""
    nodes = start("echo $PPID $$ > daemon; sleep 300")
    written = nodes["c"].folder / "files" / "node-2" / "daemon"
    until(lambda: written.exists() and written.read_text().strip(), nodes)
    for pid in written.read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    expected = {"a": exit_codes.PEER_DIED, "b": exit_codes.PEER_DIED, "c": 1}
    assert codes(nodes) == expected, logs(nodes)
    assert "was killed, and mpirun does not notice it" in logs(nodes)


def test_a_daemon_that_is_killed_at_once_ends_the_job(start):
    """No look for daemons has seen it: the first one sees the shell that loads the engine."""
    nodes = start('[ "$NODE" != c ] || kill -KILL $PPID $$; sleep 300', load="sleep 0.1")
    expected = {"a": exit_codes.PEER_DIED, "b": exit_codes.PEER_DIED, "c": 1}
    assert codes(nodes) == expected, logs(nodes)
    assert "was killed, and mpirun does not notice it" in logs(nodes)


@pytest.mark.parametrize(
    "command, is_one",
    [
        ('"/usr/bin/hydra_pmi_proxy" --control-port a:1', True),
        ("A=1; export A; exec hydra_pmi_proxy x", True),
        (
            "/opt/hydra_2/bin/hydra_bstrap_proxy --proxy-id 0 /opt/bin/hydra_pmi_proxy --usize",
            False,
        ),
        ("orted -mca ess env", False),
    ],
)
def test_the_daemon_that_starts_ranks_shows_in_its_command(command, is_one):
    assert mpi_daemons.starts_ranks(command) == is_one


@pytest.mark.parametrize("name, is_named", [("hydra_pmi_proxy", 1), ("hydra_bstrap_proxy", 0)])
def test_only_the_daemon_that_starts_ranks_counts(tmp_path, name, is_named):
    """Intel MPI's other daemon only starts the first, and may end before it."""
    (tmp_path / name).symlink_to("/bin/bash")
    with subprocess.Popen(
        [str(tmp_path / name), "-c", "sleep 300 & echo $!; wait"], stdout=subprocess.PIPE
    ) as daemon:
        rank = processes.identity(int(daemon.stdout.readline()))
        try:
            daemons = mpi_daemons.Daemons(processes.identity(os.getpid()))
            assert daemons.killed() is None
            daemon.kill()
            daemon.wait()
            began = time.monotonic()
            assert daemons.killed() is None, "an aborted job may end within a moment"
            while time.monotonic() - began <= 2 * BEAT and not daemons.killed():
                time.sleep(0.1)
            assert bool(daemons.killed()) == bool(is_named)
        finally:
            processes.send(rank, signal.SIGKILL)


def test_failed_coordination_command_ends_the_job_before_mpirun(start):
    nodes = start("touch begun", coordination='[ "$NODE" != c ] || exit 7')
    found = codes({host: nodes[host] for host in ("a", "c")})
    assert found == {"a": exit_codes.PEER_DIED, "c": 7}, logs(nodes)
    assert "mpi_coordination_command exited with status 7" in logs(nodes)
    assert not (nodes["a"].folder / "files" / "mpirun" / "begun").exists()
