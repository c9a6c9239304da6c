"""The table of `make gpu`: outcomes, status, form, and the file that a person sends back."""

import pytest

from mxcluster.model.check_answer import CudaGpu
from tests.gpu import table
from tests.gpu.table import FAILED, NOT_RUN, PASSED, STAND_IN, Report, Row

WELL, LEFT_OUT, WRONG = ("passed", ""), ("skipped", "one GPU"), ("failed", "a sum is wrong")


@pytest.mark.parametrize(
    "phases, real, expected",
    [
        ([WELL, WELL, WELL], True, (PASSED, "")),
        ([WELL, WELL, WELL], False, (STAND_IN, "")),
        ([LEFT_OUT, WELL], True, (NOT_RUN, "one GPU")),
        ([LEFT_OUT, WELL], False, (NOT_RUN, "one GPU")),
        ([WELL, WRONG, WELL], True, (FAILED, "a sum is wrong")),
        ([WELL, WELL, WRONG], False, (FAILED, "a sum is wrong")),
        ([LEFT_OUT, WRONG], True, (FAILED, "a sum is wrong")),
    ],
)
def test_only_a_real_gpu_passes(phases, real, expected):
    assert table.outcome(phases, real) == expected


def rows(*outcomes):
    return [Row(name="row %s" % one, outcome=one, seen="", seconds=1) for one in outcomes]


@pytest.mark.parametrize(
    "outcomes, status",
    [
        ([PASSED, NOT_RUN], 0),
        ([PASSED, FAILED], 1),
        ([STAND_IN, FAILED], 1),
        ([STAND_IN, NOT_RUN], 77),
        ([NOT_RUN], 77),
        ([], 77),
    ],
)
def test_a_run_without_a_passed_row_has_not_succeeded(outcomes, status):
    assert table.status(rows(*outcomes)) == status


def report(**fields):
    given = {
        "commit": "0123456789ab",
        "date": "2026-11-27",
        "stand_in": False,
        "system": "Debian GNU/Linux 12, Linux 6.1",
        "python": "3.11.7",
        "driver": "470.256.02",
        "gpus": [
            CudaGpu(uuid="GPU-8f8f...", bus="0000:3b:00.0", name="Tesla T4", capability="7.5")
        ],
        "mxnet": "1.9.1 for CUDA 11.2",
        "rows": [
            Row(name="libcuda", outcome=PASSED, seen="one GPU", seconds=0.2),
            Row(name="a " + "long " * 12 + "name", outcome=NOT_RUN, seen="why " * 30, seconds=0),
        ],
    }
    return Report(**dict(given, **fields))


def test_the_table_has_a_line_for_each_row():
    lines = table.text(report()).splitlines()
    (line,) = [line for line in lines if line.startswith("libcuda ")]
    assert line.split(None, 2) == ["libcuda", "passed", "one GPU"]
    assert max(len(line) for line in lines if not line.startswith("{")) <= table.WIDTH
    assert "1 passed, 1 not run" in lines and "STAND-IN" not in table.text(report())
    assert "  GPU 0: Tesla T4, 7.5" in lines


def test_a_stand_in_says_so():
    text = table.text(report(stand_in=True, rows=rows(STAND_IN, NOT_RUN)))
    assert "STAND-IN: no kernel module of NVIDIA is loaded. No GPU has computed." in text
    assert "passed" not in text


def test_the_file_is_read_back():
    assert table.parsed(table.text(report())) == report()
    with pytest.raises(ValueError, match="has no line"):
        table.parsed("row  outcome")


def test_names_addresses_and_numbers_of_a_site_are_left_out():
    names = {"/home/eve": "HOME", "/home/eve/mxcluster": "PROJECT", "gpu7": "HOST", "eve": "USER"}
    text = (
        "gpu7: /home/eve/mxcluster/.state of eve at 10.20.0.11 and 127.60.0.31, never 470.256.02; "
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 of gpu7.site and gpu77, /tmp/pytest-of-eve/x"
    )
    assert table.private(text, names) == (
        "HOST: PROJECT/.state of USER at ADDRESS and 127.60.0.31, never 470.256.02; "
        "GPU-8932... of HOST.site and gpu77, /tmp/pytest-of-USER/x"
    )
