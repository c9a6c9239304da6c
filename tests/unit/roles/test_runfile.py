"""The scripts around NVIDIA's runfiles: the started program, and the check for missing parts."""

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

STAND_IN = pathlib.Path(__file__).resolve().parents[3] / "molecule" / "el7" / "stand_in"
FILES = pathlib.Path(__file__).resolve().parents[3] / "roles" / "cuda" / "files"
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release %s, V%s.148'\n"
LIBRARIES = ("cudart cublas cufft curand cusolver cusparse nvrtc nvrtc-builtins nvToolsExt").split()


def tree(folder, version="9.2"):
    """Return a CUDA folder with the files that a runfile installs."""
    for name in ("bin/ptxas", "bin/nvlink", "bin/fatbinary", "include/cuda.h"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "bin/nvcc").write_text(NVCC % (version, version))
    (folder / "bin/nvcc").chmod(0o755)
    (folder / "lib64").mkdir()
    for name in LIBRARIES:
        (folder / "lib64" / ("lib%s.so.%s" % (name, version))).write_text("x")
    return folder


def missing(folder, version="9.2", begun=""):
    argv = ["sh", str(FILES / "missing.sh"), str(folder), version, str(begun)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().splitlines()


def install(work, script, *options):
    """Run an installer, the text of a script, as the role does; return its output."""
    work.mkdir(exist_ok=True)
    (work / "a.run").write_text(script)
    argv = ["sh", str(FILES / "run_installer.sh"), str(work), str(work / "a.run"), *options]
    return subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout.decode()


def test_a_whole_toolkit_lacks_nothing(tmp_path):
    assert missing(tree(tmp_path / "cuda")) == []


@pytest.mark.parametrize(
    "damage, missing_parts",
    [
        (lambda folder: (folder / "bin/nvcc").unlink(), ["bin/nvcc of release 9.2"]),
        (lambda folder: (folder / "lib64/libcublas.so.9.2").write_text(""), ["lib64/libcublas.so"]),
        (
            lambda folder: (folder / "lib64/libnvrtc-builtins.so.9.2").unlink(),
            ["lib64/libnvrtc-builtins.so"],
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path, damage, missing_parts):
    damage(tree(tmp_path / "cuda"))
    assert missing(tmp_path / "cuda") == missing_parts


INSTALLER = """#!/bin/sh
case $1 in
--tar) echo 1 >InstallUtils.pm; exit ;;
esac
echo "$*|$LANG|${DISPLAY-none}|${SUDO_USER-none}|${PERL5LIB-none}"
"""


@pytest.mark.parametrize(
    "name, perl", [("cuda_8.0.61_375.26_linux-run", True), ("cuda_9.2", False)]
)
def test_an_installer_runs_in_a_clean_environment(tmp_path, name, perl):
    (tmp_path / name).write_text(INSTALLER)
    done = subprocess.run(
        ["sh", str(FILES / "run_installer.sh"), str(tmp_path), str(tmp_path / name), "--toolkit"],
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "DISPLAY": ":0", "SUDO_USER": "me", "LANG": "de_DE.UTF-8"},
        check=True,
    )
    work = str(tmp_path) if perl else "none"
    assert done.stdout.decode() == "--silent --toolkit|C|none|none|%s\n" % work
    assert (tmp_path / "InstallUtils.pm").exists() is perl


@pytest.mark.parametrize(
    "patch, missing_parts",
    [
        ("cat %s/lib64/libcublas.so.9.1 >%s/new; mv %s/new %s/lib64/libcublas.so.9.1", []),
        ("echo Installation Failed", ["the files of the patch"]),
        ("touch %s/.mxcluster-0123456789ab", ["the files of the patch"]),  # a mark is no patch
    ],
)
def test_a_patch_changes_files_of_the_toolkit(tmp_path, patch, missing_parts):
    """The exit status of NVIDIA's patches proves nothing, like that of the installers."""
    folder = tree(tmp_path / "cuda", "9.1")
    install(tmp_path / "work", patch.replace("%s", str(folder)))
    assert missing(folder, "9.1", begun=tmp_path / "work" / "begun") == missing_parts


@pytest.mark.parametrize(
    "patch, missing_parts",
    [
        ("echo x >lib64/libcublas.so.9.2.174; echo CUDA Patch Version 9.2.148.1 >version.txt", []),
        ("echo x >lib64/libcublas.so.9.2.174", ["version.txt of patch 9.2.148.1"]),
        ("echo CUDA Patch Version 9.2.148.1 >version.txt", ["lib64/libcublas.so.9.2.174"]),
    ],
)
def test_the_patch_of_cuda_9_2_is_known_by_its_files(tmp_path, patch, missing_parts):
    """The status counts for nothing: this patch ends with status 1."""
    folder = tree(tmp_path / "cuda")
    script = "cd %s; echo >bin/nvlink; %s; exit 1" % (folder, patch)
    with pytest.raises(subprocess.CalledProcessError):
        install(tmp_path / "work", script.replace("echo >", "echo x >", 1))
    assert missing(folder, begun=tmp_path / "work" / "begun") == missing_parts
    tasks = yaml.safe_load((FILES.parent / "tasks" / "runfile_one.yml").read_text())
    (task,) = [one for one in tasks if one["name"].startswith("Run ")]
    assert task["failed_when"] is False


@pytest.mark.slow
def test_the_stand_ins_installer_and_patch_leave_a_whole_toolkit(tmp_path, monkeypatch):
    """The scenario el7 runs both. The installer lacked a library for which the role looks."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import contents
    import stubs

    stubs.make(tmp_path / "stubs", "9.2", "9.2.148")
    installer, patch = contents.runfiles("9.2", "9.2.148", "9.2.148.1", tmp_path / "stubs")
    folder, work = tmp_path / "cuda-9.2", tmp_path / "work"
    options = ["--toolkit", "--toolkitpath=%s" % folder, "--override", "--tmpdir=%s" % work]
    install(work, installer, *options)
    assert missing(folder) == []
    install(work, patch, "--accept-eula", "--installdir=%s" % folder)
    assert missing(folder, begun=work / "begun") == []
    assert os.readlink(str(folder / "lib64/libcublas.so.9.2")) == "libcublas.so.9.2.174"
