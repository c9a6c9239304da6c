"""Access to a job's ports, with real rules and packets in network namespaces.

The clients are a peer, a foreign host and other users of the node, who try the ports of this node
and of the peer.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from mxcluster.node import firewall
from mxcluster.node.firewall import nft
from tests import needs
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs.mounts]

NODE, PEER, STRANGER = "10.99.7.2", "10.99.7.1", "10.99.7.9"
PORT, OTHER_PORT = 9091, 9300
NOBODY = 65534
LISTEN = """
import os, socket, sys
os.setuid(%d)
for port in (%d, %d):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((sys.argv[1], port)); listener.listen(50); globals()["_%%d" %% port] = listener
print("ready", flush=True)
sys.stdin.read()
""" % (NOBODY, PORT, OTHER_PORT)
CONNECT = (
    "import os, socket, sys; os.setuid(int(sys.argv[1])); s = socket.socket(); "
    "s.bind((sys.argv[3], 0)); "
    "s.settimeout(1); s.connect((sys.argv[4], int(sys.argv[2])))"
)
HOLD = (
    "import sys; from mxcluster.node import firewall; firewall.LOOK = 0.1; firewall.FOLDER = "
    "sys.argv[2]; "
    "sys.exit(firewall.main(sys.argv[1:2] + [sys.argv[2] + '/job-1.json']))"
)
CHAIN = (
    "nft add table inet filter;"
    "nft 'add chain inet filter input { type filter hook input priority 0; policy %s; }';"
)
POLICIES = {
    "no ruleset": "",
    "accept": CHAIN % "accept",
    "drop": CHAIN
    % "drop"
    + "nft add rule inet filter input ct state established,related accept; nft add rule inet "
    "filter input iif lo accept",
    "legacy drop": "iptables-legacy -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT;"
    "iptables-legacy -A INPUT -i lo -j ACCEPT; iptables-legacy -P INPUT DROP",
    "iptables-nft drop": "iptables-nft -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT;"
    "iptables-nft -A INPUT -i lo -j ACCEPT; iptables-nft -P INPUT DROP",
}


def sh(command):
    return subprocess.run(
        ["sh", "-ec", command], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


class Place:
    """The namespace of a node, and the namespace of its network with a peer and a foreign host."""

    def __init__(self, folder):
        self.folder, self.path = folder, os.environ["PATH"]
        # Namespaces that a killed run has left have other names.
        self.node, self.network = "mxn-" + folder.name[-8:], "mxs-" + folder.name[-8:]
        sh(
            "ip netns add {n}; ip netns add {s}; ip link add mxv0 netns {n} type veth peer name "
            "mxv1 netns {s};"
            "ip -n {n} addr add {a}/24 dev mxv0; ip -n {s} addr add {p}/24 dev mxv1; ip -n {s} "
            "addr add {q}/24 dev mxv1;"
            "ip -n {n} link set lo up; ip -n {n} link set mxv0 up; ip -n {s} link set mxv1 "
            "up".format(n=self.node, s=self.network, a=NODE, p=PEER, q=STRANGER)
        )
        self.children = [
            self.spawn(space, LISTEN, address, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for space, address in ((self.node, NODE), (self.network, PEER))
        ]
        assert [child.stdout.readline() for child in self.children] == ["ready\n"] * 2
        request = {"job": "job-1", "address": NODE, "interface": "mxv0", "uid": NOBODY}
        request["ports"] = [PORT, PORT + 1, 9200]
        request["peers"] = {PEER: [PORT, 9200], NODE: request["ports"]}
        (folder / "job-1.json").write_text(json.dumps(request))

    def spawn(self, place, code, *argv, **more):
        inside = ["ip", "netns", "exec", place, "env", "PATH=" + self.path]
        return subprocess.Popen(
            inside + [sys.executable, "-c", code] + list(argv), universal_newlines=True, **more
        )

    def sh(self, command):
        return sh("ip netns exec %s sh -ec '%s'" % (self.node, command.replace("'", "'\\''")))

    def reach(self, *probes):
        """Return for each (client address, port, uid, address) whether a connection succeeds.

        The fourth value is the address of the listener. The default is NODE.
        """
        tried = [
            self.spawn(
                self.node if address == NODE else self.network,
                CONNECT,
                str(uid),
                str(port),
                address,
                *(to or [NODE]),
                stderr=subprocess.PIPE,
            )
            for address, port, uid, *to in probes
        ]
        said = [(probe.communicate()[1], probe.returncode) for probe in tried]
        assert all(
            code == 0 or "imed out" in text or "not permitted" in text for text, code in said
        ), said
        return [code == 0 for _, code in said]

    def hold(self):
        """Start the process that holds the rules, and wait until the rules exist."""
        place = str(self.folder / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(place)
            more = {"env": dict(os.environ, NOTIFY_SOCKET=place), "stderr": subprocess.PIPE}
            holder = self.spawn(self.node, HOLD, "hold", str(self.folder), **more)
            self.children.append(holder)
            listener.settimeout(60)
            assert listener.recv(100) == b"READY=1"
        os.unlink(place)
        return holder

    def close(self):
        done = self.spawn(self.node, HOLD, "close", str(self.folder), stdout=subprocess.PIPE)
        said = done.communicate()[0]
        assert done.returncode == 0
        return said

    def rules(self):
        """Return the rules of all programs, without packet counts and empty OUTPUT chains."""
        listed = re.sub(
            r"packets \d+ bytes \d+", "", sh("ip netns exec %s nft list ruleset" % self.node)
        )
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
    """Simulate a node that has only iptables, as `iptables`."""
    (place.folder / "bin").mkdir()
    (place.folder / "bin" / "iptables").symlink_to(os.path.realpath(shutil.which(iptables)))
    place.path = str(place.folder / "bin")


def is_guarded(place):
    """Return True if peers, the training user and root reach the ports, and no other does.

    On the node, another user than the training user reaches neither the ports of the node nor those
    of the peer, which sees only the address of the node.
    """
    to_node = [(PEER, PORT, 0), (NODE, PORT, NOBODY), (NODE, PORT, 0)]
    to_peer = [(NODE, PORT, NOBODY, PEER), (NODE, PORT, 0, PEER), (NODE, OTHER_PORT, 1, PEER)]
    refused = [(STRANGER, PORT, 0), (NODE, PORT, 1), (NODE, PORT, 1, PEER)]
    return place.reach(*to_node, *to_peer, *refused) == [True] * 6 + [False] * 3


@pytest.mark.parametrize(
    "policy, tool",
    [
        ("accept", "nft"),
        ("drop", "nft"),
        ("legacy drop", "nft"),
        ("iptables-nft drop", "nft"),
        ("no ruleset", "iptables-legacy"),
        ("iptables-nft drop", "iptables-nft"),
    ],
)
def test_only_peers_reach_the_ports(place, policy, tool):
    place.sh(POLICIES[policy] or "true")
    if tool != "nft":
        without_nft(place, tool)
    before, open_before = place.rules(), "drop" not in policy
    anybody = [(PEER, PORT, 0), (STRANGER, PORT, 0), (STRANGER, OTHER_PORT, 0)]
    assert place.reach(*anybody) == [open_before] * 3
    assert place.reach((NODE, PORT, 1, PEER)) == [True]
    holder = place.hold()
    assert is_guarded(place)
    assert place.reach(*anybody)[2] == open_before  # a port of another program is unchanged
    # Rules saved during the job admit peers only.
    for line in place.sh("iptables-legacy-save; iptables-nft-save 2>/dev/null").splitlines():
        if "-j ACCEPT" in line and "mxcluster" in line:
            assert "-s %s/32" % PEER in line or "-s %s/32" % NODE in line
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(60) == 0 and holder.stderr.read() == ""
    assert place.rules() == before
    assert place.close() == "" and place.close() == ""  # a second close is no error
    assert sorted(name for name in os.listdir(str(place.folder)) if name.startswith("job")) == []


@pytest.mark.parametrize(
    "policy, tool, reload",
    [
        ("no ruleset", "nft", "nft flush ruleset"),
        (
            "drop",
            "nft",
            "(echo flush ruleset; nft list table inet filter | grep -v mxcluster) > {saved}; nft "
            "-f {saved}",
        ),
        (
            "legacy drop",
            "nft",
            "iptables-legacy -F; iptables-legacy -A INPUT -i lo -j ACCEPT;"
            "iptables-legacy -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT",
        ),
        ("no ruleset", "iptables-legacy", "iptables-legacy -F; iptables-legacy -X"),
    ],
)
def test_a_reload_is_undone_and_noted(place, policy, tool, reload):
    place.sh(POLICIES[policy] or "true")
    if tool != "nft":
        without_nft(place, tool)
    holder = place.hold()
    place.sh(reload.format(saved=str(place.folder / "saved")))
    notes = place.folder / "job-1.notes"
    until(lambda: notes.exists() or holder.poll() is not None)
    assert is_guarded(place)
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(60) == 0
    assert (
        "mxcluster: the firewall was reloaded during the job: the job's rules were missing ("
        in holder.stderr.read()
    )
    assert notes.read_text().count("\n") == 1  # one note; then the rules stay
    assert place.close() == "" and not notes.exists()
    assert "mxcluster" not in place.rules()


def test_rules_of_a_killed_holder_are_removed(place):
    place.sh(POLICIES["drop"])
    before = place.rules()
    holder = place.hold()
    holder.kill()
    holder.wait()
    assert is_guarded(place)  # the rules outlive their holder
    (place.folder / "job-1.json").rename(place.folder / "away")
    assert "the firewall still has the table ip %s" % nft.name("job-1") in place.close()
    (place.folder / "away").rename(place.folder / "job-1.json")
    assert place.close() == "" and place.rules() == before


def test_a_node_without_a_firewall_is_noted(place):
    (place.folder / "bin").mkdir()
    place.path = str(place.folder / "bin")
    can = "from mxcluster.node import firewall; print(firewall.can())"
    without = place.spawn(place.node, can, stdout=subprocess.PIPE)
    assert without.communicate()[0] == firewall.CANNOT + "\n"
    holder = place.hold()  # the job runs nevertheless
    assert (place.folder / "job-1.notes").read_text() == firewall.CANNOT + "\n"
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(60) == 0
    place.path = os.environ["PATH"]
    assert place.spawn(place.node, can, stdout=subprocess.PIPE).communicate()[0] == "\n"
