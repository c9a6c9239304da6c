"""What is said of a node that cannot be talked to, from the words of ssh (OpenSSH 7.4 to 9.2)."""
import pytest

from plugins.action import mxcluster_contact as contact

VIA = "Failed to connect to the host via ssh: "


@pytest.mark.parametrize("port, said, told", [
    (22, "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nOffending ED25519 key in /home/me/.ssh/known_hosts:7\n"
     "Host key verification failed.", ["/home/me/.ssh/known_hosts:7", "`ssh-keygen -R 10.0.0.2`", "installed anew"]),
    (2222, "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed.", ["-R '[10.0.0.2]:2222'"]),
    (22, "No ED25519 host key is known for 10.0.0.2 and you have requested strict checking.\nHost key verification failed.",
     ["not known here", "ssh-keyscan -p 22 10.0.0.2", "node_host_key"]),
    (22, "joe@10.0.0.2: Permission denied (publickey,password).", ["does not let joe in", "ansible_user", "--ask-pass"]),
    (22, "ssh: connect to host 10.0.0.2 port 22: Connection refused", ["cannot be reached", "Connection refused"]),
    (22, "ssh: Could not resolve hostname nod2: Name or service not known", ["cannot be reached", "ansible_host"]),
    (22, "", ["no answer"])])
def test_a_cause_and_a_cure(port, said, told):
    message = contact.explain(VIA + said, "node2", "10.0.0.2", port, "joe")
    assert message.startswith("node2 (10.0.0.2, port %d): " % port)
    assert not [part for part in told if part not in message], message
