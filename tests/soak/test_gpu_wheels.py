"""Every GPU wheel needs what the table says. The wheels are fetched and removed one by one.

A wheel has 300 to 900 MB. MXCLUSTER_SOAK_WHEELS chooses wheels, such as `cu92|1.9.1`.
"""

import os
import re

import pytest

from mxcluster.cluster import version_table, wheels
from tools import gpu_wheels

CHOSEN = os.environ.get("MXCLUSTER_SOAK_WHEELS", "")


@pytest.mark.parametrize(
    "wheel", [one for one in version_table.gpu_wheels() if re.search(CHOSEN, one)]
)
def test_a_wheel_is_as_the_table_says(wheel, tmp_path):
    (digest,) = version_table.table().wheel_sha256[wheel]
    requirement = "%s --hash=sha256:%s" % (wheel, digest)
    wheels.download(str(tmp_path), [requirement], "3.6")
    path = wheels.find(str(tmp_path), requirement, "3.6")
    try:
        measured = gpu_wheels.measure(path)
    finally:
        os.unlink(path)
    assert measured == version_table.gpu_wheels()[wheel].encode(), gpu_wheels.rows(
        {wheel: measured}
    )
