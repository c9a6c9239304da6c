"""The ports of a job, seen by a peer, a stranger and other users of the node: real rules and packets, in network namespaces."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from mxcluster import firewall
from mxcluster.firewall import nft

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("nft") or not shutil.which("iptables-legacy"),
    reason="it takes root, nft and iptables-legacy")]

NODE, PEER, STRANGER = "10.99.7.2", "10.99.7.1", "10.99.7.9"
PORT, OTHER_PORT = 9091, 9300
NOBODY = 65534
LISTEN = """
import os, socket, sys
os.setuid(%d)
for port in (%d, %d):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((%r, port)); listener.listen(50); globals()["_%%d" %% port] = listener
print("ready", flush=True)
sys.stdin.read()
""" % (NOBODY, PORT, OTHER_PORT, NODE)
CONNECT = "import os, socket, sys; os.setuid(int(sys.argv[1])); s = socket.socket(); s.bind((sys.argv[3], 0)); " \
          "s.settimeout(1); s.connect((%r, int(sys.argv[2])))" % NODE
HOLD = "import sys; from mxcluster import firewall; firewall.LOOK = 0.1; firewall.FOLDER = sys.argv[2]; " \
       "sys.exit(firewall.main(sys.argv[1:2] + [sys.argv[2] + '/job-1.json']))"
CHAIN = "nft add table inet filter;" \
        "nft 'add chain inet filter input { type filter hook input priority 0; policy %s; }';"
POLICIES = {
    "no ruleset": "",
    "accept": CHAIN % "accept",
    "drop": CHAIN % "drop" +
            "nft add rule inet filter input ct state established,related accept; nft add rule inet filter input iif lo accept",
    "legacy drop": "iptables-legacy -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT;"
                   "iptables-legacy -A INPUT -i lo -j ACCEPT; iptables-legacy -P INPUT DROP",
    "iptables-nft drop": "iptables-nft -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT;"
                         "iptables-nft -A INPUT -i lo -j ACCEPT; iptables-nft -P INPUT DROP",
}


def sh(command):
    return subprocess.run(["sh", "-ec", command], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


class Place:
    """The namespace of a node, and one with its network, whose addresses are a peer and a stranger."""

    def __init__(self, folder):
        self.folder, self.path = folder, os.environ["PATH"]
        self.node, self.network = "mxn%d" % os.getpid(), "mxs%d" % os.getpid()
        sh("ip netns add {n}; ip netns add {s}; ip link add mxv0 netns {n} type veth peer name mxv1 netns {s};"
           "ip -n {n} addr add {a}/24 dev mxv0; ip -n {s} addr add {p}/24 dev mxv1; ip -n {s} addr add {q}/24 dev mxv1;"
           "ip -n {n} link set lo up; ip -n {n} link set mxv0 up; ip -n {s} link set mxv1 up"
           .format(n=self.node, s=self.network, a=NODE, p=PEER, q=STRANGER))
        self.children = [self.spawn(self.node, LISTEN, stdin=subprocess.PIPE, stdout=subprocess.PIPE)]
        assert self.children[0].stdout.readline() == "ready\n"
        (folder / "job-1.json").write_text(json.dumps({
            "job": "job-1", "address": NODE, "interface": "mxv0", "ports": [PORT, PORT + 1, 9200], "peers": [PEER, NODE],
            "uid": NOBODY}))

    def spawn(self, place, code, *argv, **more):
        inside = ["ip", "netns", "exec", place, "env", "PATH=" + self.path]
        return subprocess.Popen(inside + [sys.executable, "-c", code] + list(argv),
                                universal_newlines=True, **more)

    def sh(self, command):
        return sh("ip netns exec %s sh -ec '%s'" % (self.node, command.replace("'", "'\\''")))

    def reach(self, *probes):
        """For each (address of a peer, a stranger or the node itself, port, uid), whether it gets a connection."""
        tried = [self.spawn(self.node if address == NODE else self.network, CONNECT, str(uid), str(port), address,
                            stderr=subprocess.PIPE) for address, port, uid in probes]
        said = [(probe.communicate()[1], probe.returncode) for probe in tried]
        assert all(code == 0 or "imed out" in text or "not permitted" in text for text, code in said), said
        return [code == 0 for _, code in said]

    def hold(self):
        """The process that holds the rules, which are there when this returns."""
        place = str(self.folder / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(place)
            holder = self.spawn(self.node, HOLD, "hold", str(self.folder), env=dict(os.environ, NOTIFY_SOCKET=place),
                                stderr=subprocess.PIPE)
            self.children.append(holder)
            listener.settimeout(30)
            assert listener.recv(100) == b"READY=1"
        os.unlink(place)
        return holder

    def close(self):
        done = self.spawn(self.node, HOLD, "close", str(self.folder), stdout=subprocess.PIPE)
        said = done.communicate()[0]
        assert done.returncode == 0
        return said

    def rules(self):
        """Everything that any program knows of rules, without the counts of packets, and chains that iptables-nft left empty."""
        listed = re.sub(r"packets \d+ bytes \d+", "", sh("ip netns exec %s nft list ruleset" % self.node))
        listed = re.sub(r"\n?\tchain OUTPUT \{\n[^\n]*policy accept;\n\t\}\n", "", listed)
        return listed + sh("ip netns exec %s iptables-legacy -S" % self.node)

    def end(self):
        for child in self.children:
            child.kill()
            child.communicate()
        sh("ip netns del %s; ip netns del %s" % (self.node, self.network))


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.end()


def without_nft(place, iptables):
    """A node that has iptables alone, as `iptables`."""
    (place.folder / "bin").mkdir()
    (place.folder / "bin" / "iptables").symlink_to(os.path.realpath(shutil.which(iptables)))
    place.path = str(place.folder / "bin")


def is_guarded(place):
    """Whether peers, the job's own processes and root get to the ports, and strangers and other users of the node do not."""
    return place.reach((PEER, PORT, 0), (NODE, PORT, NOBODY), (NODE, PORT, 0), (STRANGER, PORT, 0), (NODE, PORT, 1)) == [
        True, True, True, False, False]


@pytest.mark.parametrize("policy, tool", [
    ("accept", "nft"), ("drop", "nft"), ("legacy drop", "nft"), ("iptables-nft drop", "nft"),
    ("no ruleset", "iptables-legacy"), ("iptables-nft drop", "iptables-nft")])
def test_peers_alone_reach_the_ports(place, policy, tool):
    place.sh(POLICIES[policy] or "true")
    if tool != "nft":
        without_nft(place, tool)
    before, open_before = place.rules(), "drop" not in policy
    anybody = [(PEER, PORT, 0), (STRANGER, PORT, 0), (STRANGER, OTHER_PORT, 0)]
    assert place.reach(*anybody) == [open_before] * 3
    holder = place.hold()
    assert is_guarded(place)
    assert place.reach(*anybody)[2] == open_before  # a port that is not the job's is as it was
    # What is saved during the job lets nobody in but the peers.
    for line in place.sh("iptables-legacy-save; iptables-nft-save 2>/dev/null").splitlines():
        assert "-j ACCEPT" not in line or "mxcluster" not in line or "-s %s/32" % PEER in line or "-s %s/32" % NODE in line
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(30) == 0 and holder.stderr.read() == ""
    assert place.rules() == before
    assert place.close() == "" and place.close() == ""  # twice is no error
    assert sorted(name for name in os.listdir(str(place.folder)) if name.startswith("job")) == []


@pytest.mark.parametrize("policy, tool, reload", [
    ("no ruleset", "nft", "nft flush ruleset"),
    ("drop", "nft", "(echo flush ruleset; nft list table inet filter | grep -v mxcluster) > {saved}; nft -f {saved}"),
    ("legacy drop", "nft", "iptables-legacy -F; iptables-legacy -A INPUT -i lo -j ACCEPT;"
                           "iptables-legacy -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT"),
    ("no ruleset", "iptables-legacy", "iptables-legacy -F; iptables-legacy -X"),
])
def test_a_reload_is_undone_and_named(place, policy, tool, reload):
    place.sh(POLICIES[policy] or "true")
    if tool != "nft":
        without_nft(place, tool)
    holder = place.hold()
    place.sh(reload.format(saved=str(place.folder / "saved")))
    notes, deadline = place.folder / "job-1.notes", time.monotonic() + 30
    while not notes.exists():
        assert time.monotonic() < deadline and holder.poll() is None
        time.sleep(0.05)
    assert is_guarded(place)
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(30) == 0
    assert "mxcluster: the firewall was reloaded during the job: its rules were gone (" in holder.stderr.read()
    assert notes.read_text().count("\n") == 1  # once, and then they stay
    assert place.close() == "" and not notes.exists()
    assert "mxcluster" not in place.rules()


def test_what_a_killed_holder_has_left_is_closed(place):
    place.sh(POLICIES["drop"])
    before = place.rules()
    holder = place.hold()
    holder.kill()
    holder.wait()
    assert is_guarded(place)  # a job whose holder was killed is not open either
    (place.folder / "job-1.json").rename(place.folder / "away")
    assert "table ip %s is still there" % nft.name("job-1") in place.close()
    (place.folder / "away").rename(place.folder / "job-1.json")
    assert place.close() == "" and place.rules() == before


def test_a_node_where_nothing_closes_ports_says_so(place):
    (place.folder / "bin").mkdir()
    place.path = str(place.folder / "bin")
    can = subprocess.run([sys.executable, "-m", "mxcluster.firewall", "can"], stdout=subprocess.PIPE,
                         env=dict(os.environ, PATH=place.path), universal_newlines=True)
    assert can.returncode == 0 and can.stdout == firewall.CANNOT + "\n"
    holder = place.hold()  # the job runs all the same
    assert (place.folder / "job-1.notes").read_text() == firewall.CANNOT + "\n"
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(30) == 0
    place.path = os.environ["PATH"]
    can = place.spawn(place.node, "import sys; from mxcluster import firewall; sys.exit(firewall.main(['can']))",
                      stdout=subprocess.PIPE)
    assert can.communicate()[0] == "\n"
