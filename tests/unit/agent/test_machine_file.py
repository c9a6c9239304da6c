"""The file machine.json of a job folder: what the node of a run is."""

import json
import platform

from mxcluster.agent import machine_file
from mxcluster.agent.folder import JobFolder
from mxcluster.model.run_record import MACHINE, NodeOfRun
from mxcluster.node import hardware
from tests.plans import part_of


def test_the_agent_tells_hardware_and_versions(tmp_path):
    folder, plan = JobFolder(str(tmp_path)), part_of()
    machine_file.write(folder, plan)
    found = NodeOfRun.decode(json.loads((tmp_path / MACHINE).read_text()))
    assert found.cores == hardware.cpu()[1] and found.kernel == platform.release()
    assert found.python == platform.python_version()
    in_image = plan.replaced(options=plan.options.replaced(runtime="docker"))
    machine_file.write(folder, in_image)
    assert NodeOfRun.decode(json.loads((tmp_path / MACHINE).read_text())).python == ""


def test_a_missing_folder_ends_no_job(tmp_path):
    machine_file.write(JobFolder(str(tmp_path / "gone")), part_of())
    assert list(tmp_path.iterdir()) == []
