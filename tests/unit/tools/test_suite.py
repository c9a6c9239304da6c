"""The order, the times and the report of the parts of `make test`, with small real processes."""

import ast
import json
import os
import signal
import subprocess
import sys

import pytest

from tests import needs
from tests.waiting import until
from tools import suite
from tools.suite import ALONE, DOCKER, HOST, Part

TEST_FILE = "def test_fine(): pass\ndef test_wrong(): assert 1 == 2, 'a reason'\n"


def shell(name, lane, text, needs=()):
    return Part(name, lane, ["sh", "-c", text], needs)


@pytest.mark.slow
def test_the_parts_of_the_host_and_of_docker_run_beside_each_other(tmp_path, capsys):
    """Each of two parts waits for a file of the other; the part of the last lane sees both."""
    meet = "cd %s; touch %%s; until [ -e %%s ]; do sleep 0.02; done; touch %%s.ended" % tmp_path
    both = "cd %s; ls host.ended docker.ended" % tmp_path
    one = shell("one", HOST, meet % ("host", "docker", "host"))
    two = shell("two", DOCKER, meet % ("docker", "host", "docker"))
    ran = suite.Suite([one, two, shell("three", ALONE, both)], tmp_path / "logs")
    assert ran.run(), capsys.readouterr().out
    assert ran.failed == [] and ran.done[-1] == "three"
    assert "all tests passed in 0:" in capsys.readouterr().out


@pytest.mark.slow
def test_a_part_waits_for_the_part_that_it_needs(tmp_path):
    made = tmp_path / "made"
    venv = shell("venv", HOST, "sleep 0.3; touch %s" % made)
    scenario = shell("scenario", DOCKER, "ls %s" % made, ["venv"])
    ran = suite.Suite([venv, scenario], tmp_path / "logs")
    assert ran.run() and ran.done == ["venv", "scenario"]


@pytest.mark.slow
def test_a_failure_is_repeated_at_the_end_and_the_next_part_runs(tmp_path, capfd):
    (tmp_path / "test_it.py").write_text(TEST_FILE)
    units = Part("units", HOST, [sys.executable, "-m", "pytest", "-q", str(tmp_path)], [])
    ran = suite.Suite([units, shell("next", HOST, "echo next part")], tmp_path / "logs")
    assert not ran.run() and ran.failed == ["units"] and ran.done == ["next"]
    printed = capfd.readouterr().out
    assert "next part\n" in printed
    report = printed.split("part       result")[1]
    assert "test_wrong - AssertionError: a reason" in report and "failed: units in 0:" in report
    assert "test_it::test_fine" in report, "the slowest tests, from the JUnit file"


@pytest.mark.slow
def test_the_slowest_tests_have_their_processor_time(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import subprocess, sys, time\n"
        "def test_works():\n"
        "    works = 'import time\\nwhile time.process_time() < 0.6: pass'\n"
        "    subprocess.run([sys.executable, '-c', works])\n"
        "def test_waits(): time.sleep(0.3)\n"
    )
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "tests.costs"]
    subprocess.run(
        [*pytest_here, "--junitxml=%s" % (tmp_path / "units.xml"), str(tmp_path)],
        cwd=str(suite.PROJECT),
        check=True,
    )
    found = {test.split("::")[1]: row for *row, test in suite.slowest(tmp_path)}
    assert found["test_works"][1] > 0.5 > found["test_waits"][1]
    assert found["test_waits"][0] >= 0.3 and found["test_waits"][2] == "units"


@pytest.mark.slow
def test_the_next_run_says_how_long_each_part_took(tmp_path, capsys):
    phases = (
        "echo 'INFO     default ➜ create: Executing'; sleep 0.2; echo 'INFO x ➜ verify: Executing'"
    )
    parts = [shell("scenario", DOCKER, phases), shell("other", HOST, "true")]
    suite.Suite(parts[:1], tmp_path).run()
    times = json.loads((tmp_path / "times.json").read_text())["scenario"]
    assert times["passed"] and times["seconds"] >= 0.2 <= times["phases"]["create"]
    assert set(times["phases"]) == {"create", "verify"} and 0 <= times["idle"] <= 1
    capsys.readouterr()
    suite.Suite(parts, tmp_path).announce()
    printed = capsys.readouterr().out
    assert "scenario   docker  took 0:00" in printed and "other      host    has not run" in printed


@pytest.mark.slow
def test_an_interrupted_run_ends_its_processes_and_says_how_it_goes_on(tmp_path):
    program = (
        "import pathlib, sys; from tools import suite;"
        "suite.PARTS[:] = [suite.Part('first', suite.HOST, ['true'], []),"
        "suite.Part('long', suite.HOST, ['sh', '-c', 'echo $$; exec sleep 600'], [])];"
        "suite.LOGS = pathlib.Path(sys.argv.pop()); suite.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=str(suite.PROJECT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        log = tmp_path / "long.log"

        def runs():
            assert process.poll() is None, process.stdout.read().decode()
            return log.exists() and log.read_text().endswith("\n")

        until(runs, evidence=tmp_path)
        process.send_signal(signal.SIGTERM)
        printed = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 128 + signal.SIGTERM
    assert "`make test FROM=long` goes on" in printed
    pid = int(log.read_text())
    until(lambda: not os.path.exists("/proc/%d" % pid), evidence="process %d stays" % pid)


PARTS = [
    shell("lint", HOST, ""),
    shell("images", DOCKER, ""),
    shell("el7", DOCKER, "", ["images"]),
    shell("default", DOCKER, "", ["images"]),
    shell("fresh", ALONE, "", ["images"]),
]
ALL = ["2.7", "3.6", "3.11", "3.13"]
NEW_CORE = {"el7": "ansible-core 2.21 does not manage CentOS 7, only 2.16 does"}
NO_ENGINE = dict.fromkeys(["images", "el7", "default", "fresh"], "no engine")


@pytest.mark.parametrize(
    "core, lacking, here, left_out, lost",
    [
        ("2.16", {}, ALL, {}, []),
        ("2.16", {}, ["3.11"], {}, ["2.7", "3.6", "3.13"]),
        ("2.21", {}, ["3.13"], NEW_CORE, ["2.7", "3.6", "3.11"]),
        ("2.21", NO_ENGINE, ALL, dict(NO_ENGINE, **NEW_CORE), ["2.7", "3.6"]),
    ],
)
def test_what_cannot_run_here_is_left_out(monkeypatch, core, lacking, here, left_out, lost):
    monkeypatch.setattr(needs, "lacking", lambda: {})
    found = suite.limits(PARTS, core, lacking, lambda version: version in here or None)
    assert found[0] == left_out
    assert sorted(found[1]) == sorted("python" + version for version in lost)


# The modules that `limits` knows, and a test of the soak that needs the history of the clone. `make
# gpu`, which is no part of `make test`, names the rows that it leaves out in its table.
MAY_SKIP = {
    *("tests/needs.py", "tests/pythons.py", "tests/playbooks/test_upgrade.py"),
    *("tests/gpu/conftest.py", "tests/gpu/test_2_mxnet.py"),
}
# They only name the functions that skip.
NAME_SKIPS = {
    *("tests/unit/test_pythons.py", "tests/unit/tools/test_suite.py"),
    "tests/unit/gpu/test_machine.py",
}
SKIPS = ("skip", "skipif", "importorskip", "xfail", "SkipTest", "skipUnless")


@pytest.mark.slow
def test_no_other_file_skips_a_test():
    """`make test` names the lacking needs of tests at its start and at its end."""
    found = set()
    for path in [*suite.PROJECT.glob("tests/**/*.py"), *suite.PROJECT.glob("molecule/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in SKIPS:
                # pytest.skip.Exception is the error of a skipped test.
                found.add(str(path.relative_to(suite.PROJECT)))
    assert found - NAME_SKIPS == MAY_SKIP


MAKES = "only root on Debian or Ubuntu can make "
NO_IMAGES = {"images": "images", "el7": "the image el7", "fresh": "the image bare-trixie"}
NO_IMAGES = {name: MAKES + image for name, image in NO_IMAGES.items()}


@pytest.mark.parametrize(
    "engine, makes, debian, images, lacking",
    [
        (None, True, True, [], {}),
        (None, True, False, [], {"fresh": "it needs Debian's packages"}),
        (None, False, True, ["plain"], NO_IMAGES),  # plain exists, or MXCLUSTER_NODE_IMAGE names it
    ],
)
def test_a_part_without_its_image_cannot_run(
    tmp_path, monkeypatch, engine, makes, debian, images, lacking
):
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "node-image.sh"
    script.write_text(
        "#!/bin/sh\ncase ' %s ' in *\" $1 \"*) echo its-name ;;\n"
        '*) printf "mxcluster: %sthe image %%s\\nmore\\n" "$1" >&2; exit 1 ;; esac\n'
        % (" ".join(images), MAKES)
    )
    script.chmod(0o755)
    monkeypatch.setattr(suite, "PROJECT", tmp_path)
    monkeypatch.setattr(suite, "without_docker", lambda: engine)
    monkeypatch.setattr(suite, "is_root_with_apt", lambda: makes)
    monkeypatch.setattr(suite, "is_debian", lambda: debian)
    assert suite.without_images(PARTS) == lacking


@pytest.mark.slow
def test_a_part_does_not_wait_for_one_that_is_left_out(tmp_path):
    parts = [shell("images", DOCKER, "false"), shell("default", DOCKER, "true", ["images"])]
    ran = suite.Suite(parts, tmp_path / "logs", {"images": "no root"})
    assert ran.run() and ran.done == ["default"]


@pytest.mark.slow
def test_what_cannot_run_here_is_named_before_and_after(tmp_path, capsys):
    """The tests learn from a variable which programs are missing."""
    host = shell("host", HOST, "echo without $MXCLUSTER_TESTS_WITHOUT.")
    lacking = {"el7": "no engine"}, {"python2.7": "old", "podman": "pods"}
    ran = suite.Suite([host, shell("el7", DOCKER, "")], tmp_path / "logs", *lacking)
    ran.announce()
    before = capsys.readouterr().out
    assert ran.run() and ran.done == ["host"]
    after = capsys.readouterr().out
    for words in ("cannot run here: el7 (no engine)", "tests that need podman (pods)"):
        assert words in before and words in after, (before, after)
    assert "without python2.7 podman." in after and "all tests that can run here passed in" in after
