"""Work that ansible-playbook does once for all of its forks."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import gc, json, sys
from mxcluster.ansible import forks
from mxcluster.model.answers import JobState
from mxcluster.model.events import Batch, Latest, Start

batch = Batch(epoch=1, step=1, time=1.0)
waits = JobState(progress={"worker-0": Latest()})
trains = JobState(progress={"worker-1": Latest(batch=batch)})
found = []
for answers, folder in [
    ([], sys.argv[1]),
    ([waits, waits], sys.argv[1]),
    ([waits, None, trains], sys.argv[1]),
    ([waits, trains], ""),
    ([waits, trains], sys.argv[1]),
]:
    forks.load_report_libraries(dict(enumerate(answers)).values(), folder)
    found.append("matplotlib.figure" in sys.modules)
forks.prepare()
print(json.dumps([found, gc.get_freeze_count() > 0]))
"""


@pytest.mark.slow
def test_the_libraries_of_the_report_load_when_all_hosts_answer_and_a_worker_trains(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, check=True
    )
    found, frozen = json.loads(done.stdout)
    assert found == [False, False, False, False, True]
    assert frozen
    assert list((tmp_path / "matplotlib").iterdir()), "matplotlib keeps its list of fonts there"
