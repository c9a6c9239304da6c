"""Answers of programs on nodes."""

import json
import socket
import subprocess
import sys

from mxcluster.node import json_cli


def test_an_answer_is_one_system_call():
    """mpirun mixes the pieces of several nodes' output. Here each call arrives as one message."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader, writer:
        program = "from mxcluster.node import json_cli; json_cli.give(lambda: {'a': 1})"
        subprocess.run([sys.executable, "-u", "-c", program], stdout=writer, check=True)
        assert reader.recv(100) == b'{"a": 1}\n'


def test_an_internal_error_is_marked_as_such(capsys):
    assert json_cli.give(lambda: {}["nothing"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "error": "KeyError: 'nothing' (an error in mxcluster itself: please report this error)"
    }
    assert "Traceback" in err
