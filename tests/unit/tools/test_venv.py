"""What tools/venv.sh says when it cannot make .venv: in the path of the project, and of the interpreters that there are."""
import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[3] / "tools" / "venv.sh"
TOOLS = ("bash", "dirname", "uname", "printf", "tr", "wc", "cat", "sha256sum", "basename")

# An interpreter of that version; its modules are there or not.
FAKE = """#!/bin/bash
case $2 in
    *ensurepip*) {suits} ;;
    *version_info*) echo {version} ;;
esac
"""


@pytest.fixture
def project(tmp_path):
    """A project with nothing but the script, and a PATH with nothing but what the script needs."""
    def make(name="project", **pythons):
        folder, programs = tmp_path / name, tmp_path / "bin"
        for made in ("tools", "node"):
            (folder / made).mkdir(parents=True)
        for asked in ("requirements.txt", "node/pyproject.toml"):
            (folder / asked).write_text("")
        shutil.copy(str(SCRIPT), str(folder / "tools"))
        programs.mkdir()
        for tool in TOOLS:
            (programs / tool).symlink_to(shutil.which(tool))
        for python, version in pythons.items():
            path = programs / python.replace("_", ".")
            suits = "-" not in version and version <= "3.12"
            path.write_text(FAKE.format(version=version.strip("-"), suits="true" if suits else "false"))
            path.chmod(0o755)
        return folder

    def run(folder, **environment):
        result = subprocess.run(["bash", str(folder / "tools" / "venv.sh")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=dict(environment, PATH=str(tmp_path / "bin")))
        assert result.returncode == 1 and not (folder / ".venv").exists(), result.stdout
        return result.stdout.decode()
    return lambda environment, name="project", **pythons: run(make(name, **pythons), **environment)


@pytest.mark.parametrize("name", ["my project", "a:b", "it's", 'a"b', "100%", "a$HOME", "a\nb", "a;b", "#1", "a(b)"])
def test_a_path_that_programs_stop_at_is_refused_at_once(project, name):
    output = project({}, name=name)
    assert "the path of this project holds a space or another sign" in output and "Nothing was made" in output, output
    assert output.count("\n") == 2, output


@pytest.mark.parametrize("name", ["plain", "jürgen", "a+b@c,d=e-f_g.h"])
def test_other_paths_are_not(project, name):
    assert "no Python 3.10, 3.11 or 3.12" in project({}, name=name)


def test_only_wheels_with_a_known_hash_are_installed(tmp_path):
    """A python that writes down what pip is asked for; what comes of requirements is asked for with their hashes."""
    folder = tmp_path / "project"
    (folder / "tools").mkdir(parents=True)
    (folder / "node").mkdir()
    shutil.copy(str(SCRIPT), str(folder / "tools"))
    for asked in ("requirements.txt", "requirements-dev.txt", "node/pyproject.toml"):
        (folder / asked).write_text("")
    python = tmp_path / "python3.11"
    python.write_text("""#!/bin/bash
        case "$1 $2" in
            "-m venv") mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
            "-m pip") echo "$@" >>%s ;;
        esac""" % (tmp_path / "asked"))
    python.chmod(0o755)
    subprocess.run(["bash", str(folder / "tools" / "venv.sh"), "dev"], check=True, stdout=subprocess.PIPE,
                   env={"PATH": os.environ["PATH"], "PYTHON": str(python)})
    asked = (tmp_path / "asked").read_text().splitlines()
    listed = [line for line in asked if " -r " in line]
    assert len(listed) == 2 and all("--require-hashes" in line for line in listed), asked
    others = [line for line in asked if line not in listed]
    assert len(others) == 1 and "--no-deps -e" in others[0] and "--no-build-isolation" in others[0], others


@pytest.mark.parametrize("pythons, asked, words, never", [
    ({"python3": "3.13"}, "", ["python3 is Python 3.13", "uv python install 3.12", "make train PYTHON="], "venv."),
    ({"python3": "3.13"}, "python3", ["PYTHON=python3 is Python 3.13", "uv python install 3.12"], "Leave PYTHON out"),
    ({"python3": "3.13", "python3_11": "3.11"}, "python3", ["PYTHON=python3 is Python 3.13", "Leave PYTHON out: python3.11 is"],
     "uv python"),
    ({"python3": "3.11-"}, "", ["python3 is Python 3.11, but without venv", "apt install python3-venv"], "uv python"),
    ({"python3_12": "3.12-"}, "python3.12", ["but without venv", "apt install python3.12-venv"], "uv python"),
    ({}, "", ["python3 is no Python that runs", "dnf install python3.12"], "apt install"),
    ({}, "/no/python", ["PYTHON=/no/python is no Python that runs", "uv python install 3.12"], "apt install"),
], ids=lambda value: str(value) if isinstance(value, dict) else None)
def test_the_advice_is_what_can_help(project, pythons, asked, words, never):
    output = project({"PYTHON": asked} if asked else {}, **pythons)
    assert all(word in output for word in words) and never not in output, output
