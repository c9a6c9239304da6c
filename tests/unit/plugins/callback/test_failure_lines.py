import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def failure_lines():
    path = Path(__file__).parents[4] / "plugins" / "callback" / "mxcluster.py"
    spec = importlib.util.spec_from_file_location("callback_mxcluster", str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.failure_lines


@pytest.mark.parametrize("result, expected", [
    ({"msg": "one\n  two\n", "invocation": {"module_args": {"x": 1}}, "changed": False}, ["one", "  two"]),
    ({"msg": ["a", "b"]}, ["['a', 'b']"]),
    ({"censored": "hidden by no_log", "changed": False}, ["hidden by no_log"]),
    ({"msg": "non-zero return code", "cmd": ["ls", "/x"], "rc": 2, "stdout": "", "stderr": "a\r\nb", "stderr_lines": ["a", "b"]},
     ["non-zero return code", "cmd: ls /x", "rc: 2", "stderr: a", "  b"]),
    ({"msg": "MODULE FAILURE", "module_stdout": "", "module_stderr": "Traceback\nValueError: x", "rc": 1},
     ["MODULE FAILURE", "rc: 1", "module_stderr: Traceback", "  ValueError: x"]),
    ({"changed": False}, []),
])
def test_the_message_in_lines_of_its_own(failure_lines, result, expected):
    assert failure_lines(result) == expected


def test_of_long_output_the_end_is_kept(failure_lines):
    lines = failure_lines({"msg": "m", "stderr": "\n".join(map(str, range(100)))})
    assert lines[1:3] == ["stderr: 80", "  81"] and lines[-1] == "  99"
