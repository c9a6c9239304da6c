"""Answers of programs on nodes."""

import socket
import subprocess
import sys


def test_an_answer_is_one_system_call():
    """mpirun mixes the pieces of several nodes' output. Here each call arrives as one message."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        program = "from mxcluster.node import json_cli; json_cli.give(lambda: {'a': 1})"
        subprocess.run([sys.executable, "-u", "-c", program], stdout=theirs, check=True)
        assert ours.recv(100) == b'{"a": 1}\n'
