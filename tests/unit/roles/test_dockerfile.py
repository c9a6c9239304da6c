"""The Dockerfile of the role container_image, whose commands run in a shell without docker."""

import hashlib
import pathlib
import re
import subprocess
import zipfile

import pytest

DOCKERFILE = (
    pathlib.Path(__file__).resolve().parents[3] / "roles/container_image/files/Dockerfile"
).read_text()


class Build:
    """The stage that installs the wheels, with its folders below `folder`."""

    def __init__(self, folder):
        self.wheels, self.marker = folder / "wheels", folder / "marker"
        stage = re.search(r"AS build\n(.*?)\nFROM", DOCKERFILE, re.DOTALL).group(1)
        joined = re.sub(r"^#.*\n", "", stage, flags=re.MULTILINE).replace("\\\n", " ")
        self.commands = [
            line[len("RUN ") :]
            .replace("/wheels", str(self.wheels))
            .replace("/opt/mxcluster-python", str(folder / "python"))
            for line in joined.splitlines()
            if line.startswith("RUN ")
        ]
        self.wheels.mkdir()
        self.digests = [self.make_wheel("mxnet-1.9.1-py3-none-any.whl", "")]
        # pip runs from its wheel: `python WHEEL/pip`.
        self.digests.append(self.make_wheel("pip-25.0.1-py3-none-any.whl", "open(%r, 'w').close()"))
        self.lines = ["x==1 --hash=sha256:%s" % digest for digest in self.digests]

    def make_wheel(self, name, program):
        path = self.wheels / name
        with zipfile.ZipFile(str(path), "w") as wheel:
            wheel.writestr("pip/__main__.py", program and program % str(self.marker))
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def run(self):
        """Run the commands as docker does, and return the errors; '' for a complete build."""
        (self.wheels / "requirements.txt").write_text("\n".join(self.lines) + "\n")
        for command in self.commands:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            if done.returncode:
                return done.stderr or "exit status %d" % done.returncode
        return ""


@pytest.mark.parametrize("found, status", [("python3", 0), ("nothing", 1)])
def test_a_base_lacks_its_libraries_although_yum_succeeds(tmp_path, found, status):
    """yum 3 installs the packages that it finds, and ends with 0. The image would lack the rest."""
    system = re.search(r"AS system\n(.*?)\nFROM", DOCKERFILE, re.DOTALL).group(1)
    (command,) = re.findall(r"^RUN (.*(?:\n .*)*)", system, re.MULTILINE)
    programs = {
        "apt-get": "exit 127",
        "yum": "touch %s/%s" % (tmp_path, found),
        "python3": "test -e %s/python3" % tmp_path,
    }
    (tmp_path / "bin").mkdir()
    for name, script in programs.items():
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n" + script)
        (tmp_path / "bin" / name).chmod(0o755)
    path = "%s/bin:/usr/bin:/bin" % tmp_path
    done = subprocess.run(["/bin/sh", "-c", command], env={"PATH": path})
    assert done.returncode == status


@pytest.fixture
def build(tmp_path):
    return Build(tmp_path)


@pytest.mark.slow  # makes an environment
def test_pip_runs_from_a_known_wheel(build):
    assert build.run() == "" and build.marker.exists()


@pytest.mark.parametrize("name", ["mxnet-1.9.1-py3-none-any.whl", "pip-25.0.1-py3-none-any.whl"])
def test_nothing_of_an_archive_with_an_unknown_file_runs(build, name):
    """Before, root of the build ran any pip of the archive, which then checked the others."""
    build.make_wheel(name, "open(%r, 'w').close()  # of another node")
    errors = build.run()
    assert errors.startswith(name + " is no wheel of requirements.txt"), errors
    assert not build.marker.exists()


def test_a_file_beside_the_wheels_is_refused(build):
    (build.wheels / "venv.py").write_text("open(%r, 'w').close()" % str(build.marker))
    assert build.run().startswith("venv.py is no wheel") and not build.marker.exists()


def test_a_folder_is_refused(build):
    (build.wheels / "pip").mkdir()
    assert "pip is no wheel" in build.run() and not build.marker.exists()
