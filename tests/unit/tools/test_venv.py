"""The messages of tools/venv.sh when it cannot create .venv.

The causes are the path of the project and the existing interpreters.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[3] / "tools" / "venv.sh"
TOOLS = ("bash", "dirname", "uname", "printf", "tr", "wc", "cat", "sha256sum", "basename")

# An interpreter of that version; it lacks its modules if the version ends with a minus sign.
FAKE = r"""#!/bin/bash
version={version}
case "$1 $2" in
    *ensurepip*)
        [[ $2 =~ \(3,\ ([0-9]+)\).*\(3,\ ([0-9]+)\) && $version == 3.* && $version != *- ]] &&
            ((BASH_REMATCH[1] <= ${{version#3.}} && ${{version#3.}} <= BASH_REMATCH[2])) ;;
    *version_info*) echo ${{version%-}} ;;
    "--version ") echo "Python $version.0" ;;
    "-m venv") rm -rf "$4" && mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    "-m pip") echo "$@" >>{installs} ;;
esac
"""


def make_interpreter(path, version, installs="/dev/null"):
    """Write a simulated Python of this version, which records pip's arguments in a file."""
    path.write_text(FAKE.format(version=version, installs=installs))
    path.chmod(0o755)


def bare(folder):
    """Make a project of the script and the requirements of three lines of ansible-core."""
    stems = (
        "shared",
        "execution",
        "cloud",
        "cloud-2.16",
        "cloud-2.21",
        "dev",
        "dev-2.16",
        "dev-2.21",
    )
    names = ["requirements/%s.txt" % stem for stem in stems]
    for name in (*names, "python/pyproject.toml", "tests/startup/module_bytecode.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "tools").mkdir()
    for line, oldest, newest in (("2.16", 10, 12), ("2.19", 11, 13), ("2.21", 12, 13)):
        (folder / "requirements" / ("core-%s.txt" % line)).write_text(
            "# It manages nodes of %s.\n# Controller: Python 3.%d to 3.%d\n-r shared.txt\n\n"
            "ansible-core==%s.7 \\\n    --hash=x\n" % (line, oldest, newest, line)
        )
    shutil.copy(str(SCRIPT), str(folder / "tools"))


@pytest.fixture
def project(tmp_path):
    """Return a function that runs the script in a project of its own, with a minimal PATH."""

    def make(name="project", **pythons):
        folder, programs = tmp_path / name, tmp_path / "bin"
        bare(folder)
        programs.mkdir()
        for tool in TOOLS:
            (programs / tool).symlink_to(shutil.which(tool))
        for python, version in pythons.items():
            make_interpreter(programs / python.replace("_", "."), version)
        return folder

    def run(folder, **environment):
        result = subprocess.run(
            ["bash", str(folder / "tools" / "venv.sh")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment, PATH=str(tmp_path / "bin")),
        )
        assert result.returncode == 1 and not (folder / ".venv").exists(), result.stdout
        return result.stdout.decode()

    return lambda environment, name="project", **pythons: run(make(name, **pythons), **environment)


@pytest.mark.parametrize("name", ["my project", "it's", "100%", "a$HOME", "a\nb"])
def test_a_path_with_special_characters_is_refused_at_once(project, name):
    output = project({}, name=name)
    assert "the path of this project contains a space or another character" in output, output
    assert "Nothing was installed" in output, output
    assert output.count("\n") == 2, output


@pytest.fixture
def made(tmp_path):
    """Return a function `make(extra, version, name=value)` that runs the script.

    The function returns pip's command lines and the output of the script. PYTHON is a simulated
    Python of this version, which records pip's arguments and installs nothing.
    """
    folder = tmp_path / "project"
    bare(folder)

    def make(extra="controller", version="3.11", **environment):
        installs, python = tmp_path / "installs", tmp_path / "python"
        installs.write_text("")
        make_interpreter(python, version, installs)
        done = subprocess.run(
            ["bash", str(folder / "tools" / "venv.sh"), extra],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment, PATH=os.environ["PATH"], PYTHON=str(python)),
        )
        return installs.read_text().splitlines(), done.stdout.decode()

    return make


def test_the_folder_of_collections_is_there_before_two_programs_make_it(made, tmp_path):
    """Two scenarios began together, and the ansible-galaxy of one failed: the folder was there."""
    made("dev")
    assert (tmp_path / "project" / ".state/ansible/collections/ansible_collections").is_dir()


def test_only_wheels_with_a_known_hash_are_installed(made):
    """Each install of requirements needs hashes."""
    installs, _ = made("dev")
    listed = [line for line in installs if " -r " in line]
    assert len(listed) == 2 and all("--require-hashes" in line for line in listed), installs
    others = [line for line in installs if line not in listed]
    assert len(others) == 1 and "--no-deps" in others[0] and " -e " in others[0], others
    assert "--no-build-isolation" in others[0], others


@pytest.mark.parametrize(
    "pythons, chosen, words, never",
    [
        ({"python3": "3.14"}, "", ["python3 is Python 3.14", "uv python install 3.12"], "venv."),
        (
            {"python3": "3.14", "python3_11": "3.11"},
            "python3",
            ["PYTHON=python3 is Python 3.14", "Unset PYTHON: python3.11 is"],
            "uv python",
        ),
        ({}, "", ["python3 is not a working Python", "dnf install python3.12"], "apt install"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_the_advice_fits_the_existing_interpreters(project, pythons, chosen, words, never):
    output = project({"PYTHON": chosen} if chosen else {}, **pythons)
    assert all(word in output for word in words) and never not in output, output


@pytest.mark.parametrize("version, chosen", [("3.11", "bin"), ("3.11-", ".pyenv/shims")])
def test_a_python_of_pyenv_comes_after_one_of_the_system(tmp_path, version, chosen):
    """The PATH has pyenv first. A system's Python without venv is not suitable."""
    folder, used = tmp_path / "project", {}
    bare(folder)
    (tmp_path / "tools").mkdir()
    for tool in (*TOOLS, "rm", "mkdir", "cp"):
        (tmp_path / "tools" / tool).symlink_to(shutil.which(tool))
    for place, has in ((".pyenv/shims", "3.11"), ("bin", version)):
        (tmp_path / place).mkdir(parents=True)
        used[place] = tmp_path / ("installs-%d" % len(used))
        make_interpreter(tmp_path / place / "python3.11", has, used[place])
    places = [str(tmp_path / place) for place in used]
    subprocess.run(
        ["bash", str(folder / "tools" / "venv.sh"), "controller"],
        check=True,
        env={"PATH": os.pathsep.join([*places, str(tmp_path / "tools")])},
    )
    assert [place for place, installs in used.items() if installs.exists()] == [chosen]


def test_an_environment_keeps_its_line_of_ansible_core(made):
    """A new environment gets 2.16. Only another CORE changes the line, and makes it again."""
    for environment, line in (
        ({}, "2.16"),
        ({"CORE": "2.16"}, None),
        ({"CORE": "2.19"}, "2.19"),
        ({}, None),
        ({"CORE": "2.19"}, None),
        ({"CORE": "2.16"}, "2.16"),
    ):
        installs, output = made(**environment)
        assert bool(installs) == bool(line), (environment, installs, output)
        if line:
            assert installs[0].endswith("/requirements/core-%s.txt" % line), installs
            assert "and ansible-core %s" % line in output, output


def test_a_python_that_cannot_run_the_default_line_gets_the_newest(made):
    """The line of output says so, and how older nodes are managed."""
    installs, output = made(version="3.13")
    assert installs[0].endswith("/requirements/core-2.21.txt"), installs
    assert output.count("\n") == 1 and "with Python 3.13.0 and ansible-core 2.21 " in output, output
    assert "It manages nodes of 2.21. For older nodes: make venv CORE=2.16 PYTHON=" in output
    assert not made(version="3.13")[0]
    installs, output = made(version="3.12", CORE="2.16")
    assert installs[0].endswith("/requirements/core-2.16.txt") and "For older" not in output, output


@pytest.mark.parametrize(
    "environment, words",
    [
        ({"CORE": "2.18"}, ["CORE=2.18: there is no such line", "one of: 2.16 2.19 2.21."]),
        (
            {"CORE": "2.21"},
            [
                "found no Python 3.12 or 3.13 with venv and ensurepip",
                "python3 is Python 3.11, and ansible-core 2.21 needs 3.12 or 3.13 on the",
                "dnf install python3.12",
            ],
        ),
    ],
    ids=str,
)
def test_a_line_that_cannot_be_made_is_refused(project, environment, words):
    output = project(environment, python3="3.11-")
    assert all(word in output for word in words), output


def test_a_bundle_without_the_line_is_refused(made, tmp_path):
    tools, wheels = (tmp_path / "project" / part for part in ("tools", ".state/cache/controller"))
    (tools / "bundle.py").write_text("")
    wheels.mkdir(parents=True)
    (wheels / "ansible_core-2.16.7-py3-none-any.whl").write_text("")
    installs, output = made(CORE="2.19", BUNDLE="b.tar")
    assert not installs and "b.tar has no ansible-core 2.19 (2.19.7)." in output, output
    assert "needs Python 3.11, 3.12 or 3.13. Make the bundle with such a Python" in " ".join(
        output.replace("mxcluster: ", "").split()
    )
    assert "--no-index" in made(BUNDLE="b.tar")[0][0]
