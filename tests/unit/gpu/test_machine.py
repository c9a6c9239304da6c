"""The look at a machine for `make gpu`: is its GPU real, and where is its CUDA."""

import os
from unittest import mock

import pytest

from mxcluster.model.check_answer import CudaDriver, CudaGpu, CudaProbe, CudaRuntime
from tests.gpu import cluster, conftest, libraries, machine, test_2_mxnet, test_3_jobs


def test_without_nvidias_device_and_module_a_gpu_is_a_stand_in(tmp_path):
    module = tmp_path / "version"
    module.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May\n")
    file = tmp_path / "nvidiactl"
    assert not machine.is_real(str(file), str(module))
    file.touch()
    assert not machine.is_real(str(file), str(module)), "a file is no device"
    assert not machine.is_real("/dev/null", str(module)), "another driver's device"
    assert machine.MAJOR == 195


def test_cuda_is_found_by_its_libcudart(tmp_path):
    for name in ("cuda-11.2", "cuda-10.2", "cuda-9.2", "mine"):
        (tmp_path / name / "lib64").mkdir(parents=True)
        if name != "cuda-9.2":
            (tmp_path / name / "lib64" / "libcudart.so.1").touch()
    (tmp_path / "cuda").symlink_to("cuda-11.2")
    found = machine.cuda_folders({machine.CUDA: str(tmp_path / "mine")}, str(tmp_path))
    names = [path.rpartition("/")[2] for path in found]
    assert names == ["mine", "cuda-10.2", "cuda-11.2", "cuda"]
    assert machine.cuda_folders({}, str(tmp_path / "nowhere")) == []


def test_a_later_cuda_11_serves_a_wheel_for_cuda_11_2():
    versions = {"/a": 10020, "/b": 11080, "/c": 11000, "/d": 12040, "/e": None}
    assert machine.by_version(versions, versions.get) == {"10.2": "/a", "11.2": "/b", "11.0": "/c"}
    exact = {"/b": 11080, "/f": 11020}
    assert machine.by_version(exact, exact.get) == {"11.2": "/b"}, "the named folder comes first"


def test_the_version_of_a_package_is_read_without_an_import(tmp_path):
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "mxnet" / "libinfo.py").write_text('__version__ = "1.6.0"\n')
    assert machine.version_of_package(str(tmp_path / "mxnet")) == "1.6.0"
    assert machine.version_of_package(str(tmp_path / "absent" / "mxnet")) == ""


def test_packages_of_nvidia_become_a_cuda(tmp_path):
    files = ("cublas/lib/libcublas.so.11", "cudnn/lib/libcudnn.so.8", "cudnn/include/cudnn.h")
    for name in (*files, "cublas/include/cublas.h", "cublas/lib/__init__.py"):
        path = tmp_path / "packages" / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    folder = libraries.lay_out(tmp_path / "packages", tmp_path / "cuda")
    laid = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
    assert laid == ["include/cudnn.h", "lib64/libcublas.so.11", "lib64/libcudnn.so.8"]
    assert (folder / "lib64/libcudnn.so.8").read_text() == "cudnn/lib/libcudnn.so.8"


def test_the_home_has_no_copy_of_the_libraries(tmp_path, monkeypatch):
    """pip would keep 1.9 GB in its cache, too."""
    monkeypatch.setattr(libraries, "subprocess", mock.Mock())
    libraries.fetch(tmp_path)
    assert "--no-cache-dir" in libraries.subprocess.run.call_args[0][0]


def test_the_driver_keeps_its_code_in_the_project(monkeypatch):
    """The rows and the jobs get the folder."""
    monkeypatch.setattr(conftest, "any_gpu", lambda: True)
    name, session = "CUDA_CACHE_PATH", mock.Mock()
    monkeypatch.setenv(name, "")  # so that the end of the test restores it
    monkeypatch.delenv(name)
    session.config.option.collectonly = False
    conftest.pytest_sessionstart(session)
    assert name.startswith(cluster.PASSED_ON) and "/.state/gpu/" in os.environ[name]


@pytest.mark.parametrize("path", ["/nonexistent", None])
def test_without_git_or_a_clone_there_is_no_mxnet(tmp_path, monkeypatch, path):
    """The rows run in a copy of the files that git lists. The other rows need no copy."""
    with monkeypatch.context() as changed:
        if path:
            changed.setenv("PATH", path)
        else:
            changed.setattr(machine, "PROJECT", tmp_path)
        with pytest.raises(machine.wheels.Lacking, match="git lists no files here: install git"):
            machine._mxnet(mock.Mock(real=True), {}, [])


def test_without_a_cuda_the_row_about_verify_is_not_run():
    """A prepared MXNet needs no folder of CUDA; verify.yml then judges none."""
    here = mock.Mock(folder="")
    with pytest.raises(pytest.skip.Exception, match="no CUDA in /usr/local, and MXCLUSTER_GPU_CU"):
        test_2_mxnet.test_verify_checks_the_gpus(mock.Mock(cuda="", here=here), mock.Mock())


@pytest.mark.parametrize("during, real", [(500, True), (10, True), (10, False)])
def test_the_memory_of_a_worker_is_seen_before_its_death(monkeypatch, during, real):
    """Else a GPU whose memory nvidia-smi does not tell would pass as free again."""
    figures = iter([10, during, 10, 10])
    monkeypatch.setattr(test_3_jobs, "memory", lambda: next(figures))
    monkeypatch.setattr(test_3_jobs.os, "kill", lambda pid, number: None)
    monkeypatch.setattr(test_3_jobs.gpus, "busy", dict)
    made = mock.MagicMock()
    made.here.real, made.finish.return_value = real, mock.Mock(code=1, output="worker-0")
    if real and during == 10:
        with pytest.raises(AssertionError, match="shows no memory"):
            test_3_jobs.test_a_killed_worker_frees_its_gpu(made, mock.Mock())
    else:
        test_3_jobs.test_a_killed_worker_frees_its_gpu(made, mock.Mock())


def test_each_gpu_has_a_worker_and_one_gpu_has_a_second_worker_on_the_cpu():
    def workers(gpus):
        found = cluster.hosts(gpus)["each"]["all"]["children"]["workers"]["hosts"]
        return [(one["gpus"], one["worker_group"]) for one in found.values()]

    assert workers(1) == [([0], "first"), ([], "second")]
    assert workers(3) == [([0], "first"), ([1], "second"), ([2], "first")]
    assert len(workers(8)) == cluster.MOST_NODES


def test_the_jobs_get_the_settings_of_inventory_local():
    local = {
        "mxnet_version": "1.9.1",
        "cuda_version": "",
        "train_job_env": {"OMP_NUM_THREADS": "1"},
    }
    mxnet = machine.wheels.Mxnet("1.7.0", "10.2", "", "/cuda")
    given = cluster.settings(dict(local, kept=1), mxnet, "/state", {"MXNET_USE_FUSION": "0"})
    assert given.pop("mxnet_store_dir").endswith("/.state/cache/wheels")
    assert given == {
        "kept": 1,
        "mxnet_version": "1.7.0",
        "cuda_version": "10.2",
        "gpu_required": True,
        "mxcluster_state_dir": "/state",
        "train_job_env": {"OMP_NUM_THREADS": "1", "MXNET_USE_FUSION": "0"},
    }


def test_a_record_has_the_code_of_its_wheel_and_the_oldest_driver(monkeypatch, tmp_path):
    shown = [CudaGpu(uuid=None, bus="0000:3b:00.0", name="Tesla T4", capability="7.5")]
    probe = CudaProbe(
        driver=CudaDriver(version=12020, gpus=shown, peers=[]),
        runtime=CudaRuntime(version=11080, count=1),
        cudnn="8.6.0",
        nccl="2.16.5",
    )
    monkeypatch.setattr(machine, "probe", lambda folder: probe)
    wheel = machine.wheels.Mxnet("1.9.1", "11.2", "", "")
    here = machine.Machine([], 1, {}, True, probe, "", wheel)
    found = cluster.wanted(here, str(tmp_path))
    assert (found.version, found.driver, found.nccl) == ("11.8", "460.32.03", "2.16.5")
    assert list(found.sass) == ["5.0", "6.0", "7.0", "8.0", "8.6"] and found.cudnn is None
    prepared = here._replace(mxnet=wheel._replace(cuda="", package="/p/mxnet"))
    assert list(cluster.wanted(prepared, str(tmp_path)).sass) == ["7.5"]
