"""The cluster trains as an unprivileged user, and jobs leave nothing behind."""

import re
import subprocess

import pytest

from mxcluster import schemes
from tests.machine import LEASE, Stopwatch
from tests.often import seldom
from tests.recap import changes
from tests.waiting import until

# The scenario default and tests/training train with the other schemes.
OFTEN = ("dist_gsync",)
KVS = [scheme.name if scheme.name in OFTEN else seldom(scheme.name) for scheme in schemes.SCHEMES]


def address(cluster, name):
    """Return the node's address on the data network."""
    return cluster.variables[name]["ansible_host"].replace(".11.", ".20.")


def test_a_second_provision_changes_nothing(cluster):
    result = cluster.play("provision.yml")
    assert result.code == 0 and not any(changes(result.output).values()), result.output


def test_a_sudo_that_refuses_modules_is_named_at_the_first_contact(cluster):
    """The other settings of sudo have no effect on modules, so the check accepts them."""
    path = "/etc/sudoers.d/zz-site"
    setting = "echo 'Defaults %%s' > %s && chmod 440 %s && visudo -cqf %s" % (path, path, path)
    try:
        cluster.shell("node2", setting % "use_pty, lecture=always, !visiblepw")
        accepted = cluster.play("provision.yml", "--limit", "node2", "--tags", "cluster_files")
        assert accepted.code == 0, accepted.output
        cluster.shell("node2", setting % "requiretty")
        refused = cluster.play("provision.yml", "--limit", "node2")
        assert refused.code != 0 and "MODULE FAILURE" not in refused.output, refused.output
        text = " ".join(refused.output.split())
        address = cluster.here("172.29.11.12")
        assert "node2 (%s): sudo on the node needs a terminal" % address in text, refused.output
        assert "`Defaults:admin !requiretty`" in text, refused.output
    finally:
        cluster.shell("node2", "rm -f " + path)


def test_every_node_reaches_every_other_by_name_and_address(cluster):
    script = "for name in %s; do ssh -n -o BatchMode=yes $name hostname; done"
    for here in cluster.names:
        others = [there for there in cluster.names if there != here]
        names = " ".join("%s %s" % (there, address(cluster, there)) for there in others)
        text = cluster.shell(here, script % names, "mxcluster").splitlines()
        assert text == [name for name in others for _ in range(2)], here


def test_no_job_leaves_its_unit_by_ssh(cluster, tmp_path):
    """A node has no way to itself, and a job sees no key."""
    own = "ssh -n -o BatchMode=yes %s true" % address(cluster, "node1")
    answer = cluster.node("node1").run("runuser -u mxcluster -- " + own)
    assert answer.rc == 255 and "Permission denied" in answer.stderr, answer
    (tmp_path / "look.py").write_text(
        "import os, subprocess\n"
        "import mxnet as mx\n"
        "kv = mx.kv.create('dist_sync')\n"
        "try:\n"
        "    print('keys', os.listdir(os.path.expanduser('~/.ssh')))\n"
        "except OSError as error:\n"
        "    print('keys', error.strerror)\n"
        "there = 'node%d' % (kv.rank % 2 + 1)\n"
        "print('ssh', subprocess.call(['ssh', '-n', '-o', 'BatchMode=yes', there, 'true']))\n"
    )
    job = cluster.train(kv="dist_sync", script=str(tmp_path / "look.py"))
    assert job.result.code == 0, job.result.output
    logs = list(job.folder.glob("nodes/*/worker-*.log"))
    assert logs
    for path in logs:
        text = path.read_text(errors="replace")
        assert "keys Permission denied" in text and "ssh 255" in text, text


def test_a_process_outside_of_the_unit_is_named(cluster, start_long_job):
    train = start_long_job("outside", lease=LEASE)
    cluster.shell("node2", "setsid runuser -u mxcluster -- sleep 4321 >/dev/null 2>&1 &")
    cluster.shell("node4", "pkill -9 -u mxcluster -f mxcluster.training")
    output = train.end()
    cluster.shell("node2", "pkill -u mxcluster -f 'sleep 4321'")
    line = r"node2: pid \d+ \(sleep\) of mxcluster runs outside of the job's unit"
    assert re.search(line, output), output


def test_a_key_is_good_only_from_its_own_node(cluster):
    """The option from= restricts a key to its node: node1's key fails on node2."""
    key = cluster.shell("node1", "cat /home/mxcluster/.ssh/id_ed25519")
    cluster.shell(
        "node2",
        "cat > /tmp/stolen <<'END'\n%s\nEND\nchown mxcluster /tmp/stolen; chmod 600 /tmp/stolen"
        % key,
    )
    answer = cluster.node("node2").run(
        "runuser -u mxcluster -- ssh -o BatchMode=yes -o IdentitiesOnly=yes -F none "
        "-i /tmp/stolen %s true" % address(cluster, "node3")
    )
    cluster.shell("node2", "rm /tmp/stolen")
    assert answer.rc == 255 and "Permission denied" in answer.stderr, answer


@pytest.mark.parametrize("kv", KVS)
def test_the_schemes_train(cluster, kv):
    # Under dist_ssync the order of the pushes decides: a machine with a load of 40 reached 0.925
    # after 20 epochs.
    job = cluster.train(kv=kv, num_epochs=40)
    assert job.result.code == 0 and job.verdict["ok"], job.result.output
    assert job.verdict["accuracy"] >= 0.95, job.verdict


def test_a_script_runs_as_the_training_user_in_its_unit(cluster, tmp_path):
    """The files beside the script and the data for it are copied to the nodes."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "sample").write_text("seven")
    where = "/home/mxcluster/data"
    job = cluster.train(
        script=str(cluster.scenario / "who.py"),
        script_args=[where],
        data_src=str(tmp_path),
        data_dir=where,
    )
    assert job.result.code == 0, job.result.output
    uid = cluster.shell("node3", "id -u mxcluster")
    for number, name in enumerate(cluster.names):
        log = (job.folder / "nodes" / name / ("worker-%d.log" % number)).read_text()
        who = log.split("WHO ")[1].split()
        assert who[:4] == ["from-beside", uid, "/home/mxcluster", "True"] and int(who[4]) > 1024, (
            log
        )
        assert "SUM [4.0, 4.0]" in log and "DATA seven" in log
        assert "RIGHTS True []" in log, "a job gains rights, or sees files of other users in /tmp"
        jobs = cluster.shell(
            name, "stat -c '%a %U' /opt/mxcluster/jobs /opt/mxcluster/jobs/*"
        ).splitlines()
        assert len(jobs) > 1 and set(jobs) == {"700 mxcluster"}
        assert (
            cluster.node(name)
            .run("runuser -u daemon -- cat /opt/mxcluster/jobs/%s/plan.json", job.folder.name)
            .rc
            != 0
        )
    hidden = cluster.train("--check", data="mnist", data_dir="/tmp/mnist", data_src=str(tmp_path))
    assert "data_dir=/tmp/mnist is hidden from jobs on this node" in hidden.result.output, (
        hidden.result.output
    )


def test_nothing_is_left(cluster):
    """After all jobs of this file no process, unit or firewall rule of the user is left."""
    for name in cluster.names:
        assert cluster.node(name).run("pgrep -u mxcluster -a").stdout == ""
        assert (
            cluster.shell(
                name,
                "systemctl list-units --state=active,activating,deactivating,failed "
                "--no-legend 'mxcluster-*@*'",
            )
            == ""
        )
        assert cluster.shell(name, "if [ -e /run/mxcluster ]; then ls -A /run/mxcluster; fi") == ""


def test_logins_get_an_agent_and_nothing_else_notices(cluster):
    """A login at a terminal starts an ssh-agent that ends with the shell.

    scp, rsync and plain commands get no additional output.
    """
    login = "script -qec 'bash -lic \"ssh-add -l; echo PID=\\$SSH_AGENT_PID\"' /dev/null"
    answer = cluster.shell("node1", login, "mxcluster")
    assert "ED25519" in answer, answer
    pid = re.search(r"PID=(\d+)", answer).group(1)
    until(
        lambda: cluster.node("node1").run("kill -0 %s", pid).rc != 0,
        evidence="the ssh-agent still runs after the end of its shell",
    )
    kept = cluster.shell(
        "node1",
        "SSH_AUTH_SOCK=/mine " + login.replace("ssh-add -l", "echo SOCK=\\$SSH_AUTH_SOCK"),
        "mxcluster",
    )
    assert "SOCK=/mine" in kept
    assert cluster.shell("node1", "ssh node2 true | wc -c", "mxcluster") == "0"
    cluster.shell(
        "node1",
        "echo text > ~/sent; scp -q ~/sent node2:copied; rsync ~/sent node2:synced; rm ~/sent",
        "mxcluster",
    )
    assert (
        cluster.shell("node2", "cat ~/copied ~/synced; rm ~/copied ~/synced", "mxcluster")
        == "text\ntext"
    )
    until(lambda: cluster.node("node1").run("pgrep ssh-agent").stdout == "")


WALL = """flush ruleset inet
table inet filter {
  chain input {
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iifname lo accept
    tcp dport 22 accept
  }
}
"""


@pytest.fixture
def walls(cluster):
    """Block every port but ssh with a firewall on every node."""
    for name in cluster.names:
        cluster.shell(name, "nft -f - <<'END'\n%s\nEND" % WALL)
    yield
    for name in cluster.names:
        cluster.shell(name, "nft delete table inet filter")


def our_rules(cluster, name):
    return [
        line
        for line in cluster.shell(name, "nft list table inet filter").splitlines()
        if "mxcluster" in line
    ]


@pytest.fixture
def start_long_job(cluster):
    """Return a function that starts train.yml in the background, and waits until the job trains."""
    started = []

    def start(job_id, **options):
        train = cluster.start("train.yml", job_id=job_id, num_epochs=5000, step_ms=20, **options)
        started.append(train)
        cluster.until_it_trains(job_id, train)
        return train

    yield start
    for train in started:
        train.kill()


def wait_until_closed(cluster, seconds):
    def rules():
        return sum((our_rules(cluster, name) for name in cluster.names), [])

    with Stopwatch() as watch:
        until(lambda: not rules(), 300, rules, pause=0.2)
    assert watch.within(seconds)


def test_the_firewall_is_open_for_the_job_alone(cluster, walls, start_long_job):
    job = cluster.train(kv="dist_gsync", num_epochs=2)
    assert job.result.code == 0, job.result.output
    assert not any(our_rules(cluster, name) for name in cluster.names)

    train = start_long_job("walled", lease=LEASE)
    for name, ports in zip(cluster.names, ("9091-9093", "9091-9092", "9091", "9091")):
        addresses = [address(cluster, other) for other in cluster.names]
        assert sorted(rule.split(" accept")[0].strip() for rule in our_rules(cluster, name)) == [
            "ip saddr %s ip daddr %s tcp dport %s" % (peer, address(cluster, name), ports)
            for peer in addresses
        ]
    # The gateway of the network, which is this machine, is no host of the cluster.
    probe = cluster.here("import socket; socket.create_connection(('172.29.20.11', %d), 2)")
    assert subprocess.run(["python3", "-c", probe % 22]).returncode == 0
    stranger = subprocess.run(["python3", "-c", probe % 9091], stderr=subprocess.PIPE)
    assert stranger.returncode != 0 and b"imed out" in stranger.stderr

    # A reload of a node's firewall with an open policy keeps the job's ports closed to other hosts.
    accepting = WALL.replace("ruleset inet", "ruleset").replace("drop", "accept")
    cluster.shell("node1", "nft -f - <<'END'\n%s\nEND" % accepting)
    until(lambda: our_rules(cluster, "node1"), 120, train.output, pause=0.2)
    stranger = subprocess.run(["python3", "-c", probe % 9091], stderr=subprocess.PIPE)
    assert stranger.returncode != 0 and b"imed out" in stranger.stderr
    # On the node and on another node of the job, root reaches the port, and another user does not.
    own = 'python3 -c "%s"' % (probe % 9091)
    for name in ("node1", "node2"):
        assert "imed out" in cluster.node(name).run("runuser -u daemon -- " + own).stderr
        cluster.shell(name, own)

    # The failure of a worker closes the ports.
    cluster.shell("node4", "pkill -9 -u mxcluster -f mxcluster.training")
    output = train.end()
    assert train.returncode != 0 and "worker-3" in output, output
    text = (cluster.runs / "walled" / "nodes" / "node1" / "events.jsonl").read_text()
    assert "node1: the firewall was reloaded during the job" in text
    wait_until_closed(cluster, 5)


@pytest.mark.soak  # the test before closes it with living agents
def test_it_closes_when_the_agents_and_the_controller_are_gone(cluster, walls, start_long_job):
    train = start_long_job("gone", lease=LEASE)
    train.kill()
    cluster.shell("node3", "pkill -9 -u mxcluster -f mxcluster.agent")
    wait_until_closed(cluster, 100)  # after one to two leases
    until(lambda: not cluster.processes(), evidence=cluster.processes)
    for name in cluster.names:
        cluster.shell(name, "systemctl reset-failed")


@pytest.mark.soak  # tests/unit/cluster/verify has these faults, too
def test_what_breaks_is_named_by_verify(cluster):
    """verify.yml names an edited file and a missing key.

    tests/unit/cluster/verify covers the faults that a container cannot have.
    """
    hosts = "/etc/mxcluster/hosts"
    cluster.shell("node2", "cp -a %s /root && echo 172.29.20.99 >>%s" % (hosts, hosts))
    cluster.shell("node3", "mv /home/mxcluster/.ssh/id_ed25519 /root/")
    try:
        result = cluster.play("verify.yml")
    finally:
        cluster.shell("node2", "mv /root/hosts " + hosts)
        cluster.shell("node3", "mv /root/id_ed25519 /home/mxcluster/.ssh/")
    assert result.code == 1, result.output
    assert "node2: hosts differs from the inventory" in result.output
    assert "node3 to node1: " in result.output and "Permission denied" in result.output


def test_no_secret_is_told(cluster):
    """Private keys, a shared key and a vault's key appear in no output and no run folder."""
    vault = cluster.shared / "vault_key"
    if not vault.exists():
        subprocess.check_call(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(vault)])
    secret = vault.read_text()
    from_vault = "{{ lookup('file', '%s', rstrip=false) }}" % vault
    options = {"ssh_mesh_mode": "shared_key", "ssh_mesh_shared_key": from_vault}
    some = ("--limit", "node1,node4")
    result = cluster.play("provision.yml", *some, "-vvv", **options)
    assert result.code == 0, result.output[-3000:]
    assert cluster.shell("node1", "ssh -o BatchMode=yes node4 hostname", "mxcluster") == "node4"
    assert (
        cluster.shell(
            "node1", "cat ~/.ssh/mxcluster.pem; stat -c %a ~/.ssh/mxcluster.pem", "mxcluster"
        )
        == secret + "600"
    )
    bodies = [line for line in secret.splitlines() if not line.startswith("-")]
    for name in cluster.names:
        own = cluster.shell(name, "cat /home/mxcluster/.ssh/id_ed25519")
        bodies += [line for line in own.splitlines() if not line.startswith("-")]
    bodies = [body for body in bodies if len(body) > 60]
    assert len(bodies) > 20
    runs = [path for path in cluster.runs.glob("**/*") if path.is_file()]
    text = result.output + "".join(path.read_text(errors="replace") for path in runs)
    assert not [body for body in bodies if body in text]
    assert cluster.play("provision.yml", *some).code == 0  # restore the nodes' own keys
