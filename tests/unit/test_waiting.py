"""The helpers of tests: waits with evidence, measured slowness, and addresses of one process."""

import re
import socket
import subprocess
import sys
import time

import pytest

from tests import machine, networks, waiting


def test_a_wait_without_its_condition_shows_the_evidence_and_the_machine():
    looks = []
    with pytest.raises(AssertionError) as failed:
        waiting.until(
            lambda: looks.append(1), seconds=0.1, evidence=lambda: "%d looks" % len(looks)
        )
    message = str(failed.value)
    assert re.search(r"test_a_wait_without.*is not true after 0\.\d s", message), message
    assert "\n%d looks\n" % len(looks) in message and "load " in message and "PID" in message, (
        message
    )


@pytest.mark.parametrize(
    "seconds, slowness, fits", [(1.9, 1.0, True), (2.1, 1.0, False), (5.9, 3.0, True)]
)
def test_a_bound_grows_with_the_slowness_of_the_machine(seconds, slowness, fits):
    watch = machine.Stopwatch()
    watch.seconds, watch.slowness = seconds, slowness
    if fits:
        assert watch.within(2.0)
    else:
        with pytest.raises(AssertionError, match="2.10 s, and 2.00 s are allowed"):
            watch.within(2.0)


def test_a_stopwatch_measures_the_time_and_the_slowness():
    with machine.Stopwatch() as watch:
        time.sleep(0.5)
    assert watch.seconds >= 0.5 and 1.0 <= watch.slowness < 1000.0


OTHER = "from tests import networks; print(networks.own_network(), flush=True); input()"


def test_no_other_process_has_the_same_network():
    own = networks.own_network()
    assert networks.own_network() == own and re.fullmatch(r"127\.\d+\.\d+", own)
    with socket.create_server((own + ".1", 0)):
        pass
    others = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    found = [other.stdout.readline().decode().strip() for other in others]
    for other in others:
        other.communicate(b"\n")
    assert len({own, *found}) == 3 and "" not in found, found
