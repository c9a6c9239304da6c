"""Every pair of MXNet and CUDA works on a node, or is refused with the nearest pair that works."""

import itertools
import pathlib
import re

import pytest
import yaml

from mxcluster.cluster import pairs, version_table, versions
from mxcluster.errors import BadInput

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
TABLE = version_table.table()
WHEELS = version_table.gpu_wheels()
TARGETS = [
    (mxnet, wanted)
    for mxnet, row in TABLE.mxnet.items()
    for wanted in row.wheels
    if wanted.startswith("cu")
]
FERMI, KEPLER, PASCAL, VOLTA, TURING = "06d1", "102d", "1b06", "1db4", "1e04"
A100, A10, ADA, HOPPER = "20b0", "2236", "2684", "2330"
NODE = pairs.Node(python=None, gpus=[VOLTA], driver=None, libcuda=True)
CURE = re.compile(r"[Ss]et |install a newer driver|too old for mxcluster")
ANSWER = re.compile(r'set mxnet_version: "([\d.]+)"(?: and cuda_version: "([\d.]+)")?')


def test_every_gpu_wheel_is_measured():
    assert {pairs.wheel(*pair) for pair in TARGETS} == set(WHEELS)
    assert all(row.sass for row in WHEELS.values())


def test_no_node_gets_an_old_package_for_downloads():
    """MXNet 1.2.1 names requests below 2.19 with urllib3 1.22, but works with newer ones."""
    oldest = {"requests": (2, 27), "urllib3": (1, 26), "idna": (3, 7)}
    used = set()
    for mxnet, row in TABLE.mxnet.items():
        for wanted in row.wheels:
            for build in pairs.environment(mxnet, wanted).builds:
                found = dict(wheel.split("==") for wheel in build.wheels)
                for name, version in oldest.items():
                    has = tuple(map(int, found[name].split(".")[:2]))
                    assert has >= version, (mxnet, build.python, name, found[name])
                used.update([*build.wheels, build.pip])
    assert used == set(TABLE.wheel_sha256)  # no digest of an old package stays


def brought(mxnet, wanted, kind):
    """Return names of libraries, with or without their version, that the roles bring."""
    cuda = pairs.cuda_of(wanted)
    packages = getattr(versions.packages(cuda), kind)
    variables = yaml.safe_load((ROLES / "versions/vars/main.yml").read_text())
    found = set(variables["__versions_libraries"])
    for package in packages:
        part = re.sub(r"^cuda-|-\d+-\d+$", "", package)
        if part == "toolkit":
            found |= {"libnvrtc", "libnvToolsExt"}
        if part in ("libraries", "toolkit"):
            found |= {"libcudart", "libcufft", "libcurand", "libcusolver", "libcusparse"}
            # CUDA 10.1 and 10.2 have cuBLAS in a package of its own, which others do not require.
            found |= set() if cuda in ("10.1", "10.2") else {"libcublas"}
        else:
            found.add({"nvtx": "libnvToolsExt", "libcublas10": "libcublas"}.get(part, "lib" + part))
    cudnn, nccl = pairs.cudnn(mxnet, wanted), pairs.nccl(mxnet, wanted)
    if cudnn:
        found.add("libcudnn.so." + cudnn.version.split(".")[0])
    if nccl:
        found.add("libnccl.so." + nccl.version.split(".")[0])
    return found


@pytest.mark.parametrize("kind", ["toolkit", "libraries"])
@pytest.mark.parametrize("pair", TARGETS, ids="-".join)
def test_the_roles_bring_every_library_that_a_wheel_needs(pair, kind):
    """Only the driver's library may be missing. Nothing brought NCCL for MXNet 1.8.0 once."""
    found = brought(*pair, kind)
    missing = {
        needed
        for needed in WHEELS[pairs.wheel(*pair)].needed
        if needed not in found and needed.split(".so.")[0] not in found
    }
    assert missing <= {"libcuda.so.1"}


def test_wheels_for_one_cuda_need_the_same_versions_of_its_libraries():
    by_cuda = {}
    for pair in TARGETS:
        for needed in WHEELS[pairs.wheel(*pair)].needed:
            stem, _, version = needed.partition(".so.")
            known = by_cuda.setdefault((pairs.cuda_of(pair[1]), stem), version)
            assert known == version, (pair, needed)
    for (cuda, stem), version in by_cuda.items():
        if version_table.number(cuda) <= (10, 0) and stem[3:] in ("cudart", "cublas", "nvrtc"):
            assert version == cuda


@pytest.mark.parametrize(
    "wanted, mxnet, runs",
    [
        ("cu80", "1.2.1", [KEPLER, PASCAL]),
        ("cu102", "1.7.0", [KEPLER, PASCAL, VOLTA, TURING]),
        ("cu110", "1.8.0", [PASCAL, VOLTA, TURING, A100, A10, ADA]),
    ],
)
def test_a_gpu_is_served_if_the_wheel_has_machine_code_for_it(wanted, mxnet, runs):
    """No wheel serves Fermi, or Hopper; from CUDA 11 on, none serves Kepler."""
    every = (FERMI, KEPLER, PASCAL, VOLTA, TURING, A100, A10, ADA, HOPPER)
    served = [
        device for device in every if pairs.runs_on(mxnet, wanted, version_table.chip(device)[1])
    ]
    assert served == runs


@pytest.mark.parametrize(
    "mxnet, cuda, cudnn, nccl",
    [
        ("1.2.1", "9.2", "7.6.5.32", None),
        ("1.8.0", "10.0", "7.6.5.32", "2.6.4"),
        ("1.9.1", "10.2", "8.2.4.15", "2.11.4"),
    ],
)
def test_a_pair_gets_the_cudnn_and_nccl_that_it_was_built_with(mxnet, cuda, cudnn, nccl):
    wanted = pairs.target(cuda)
    assert pairs.cudnn(mxnet, wanted).version == cudnn
    found = pairs.nccl(mxnet, wanted)
    assert (found and found.version) == nccl


def test_cudnn_may_be_left_out_if_mxnet_has_its_own():
    assert pairs.cudnn("1.7.0", "cu102", "none") is None
    assert pairs.cudnn("1.7.0", "cu102", "7").version == "7.6.5.32"
    assert pairs.cudnn("1.2.1", "cu92", "7.3.1").version == "7.3.1.20"


@pytest.mark.parametrize("asked", ["none", "7.6.5"])
def test_a_cudnn_that_mxnet_was_not_built_for_is_refused(asked):
    with pytest.raises(BadInput) as refused:
        pairs.cudnn("1.9.1", "cu102", asked)
    assert str(refused.value) == (
        "MXNet 1.9.1 for CUDA 10.2 needs cuDNN 8, but cudnn_version is %s: set cudnn_version to "
        "8.0.5.39 or 8.2.4.15, or remove the setting" % asked
    )


PYTHONS = (None, "2.7", "3.8", "3.14")
DRIVERS = (None, "390.87")
GPUS = (VOLTA, KEPLER, FERMI, A100)
COMBINATIONS = list(
    itertools.product(TABLE.cuda, TABLE.mxnet, (False, True), PYTHONS, GPUS, DRIVERS)
)


@pytest.mark.slow
def test_every_combination_works_or_is_refused_with_one_that_works():
    """What a refusal proposes is not refused in turn."""
    works = proposed = 0
    for cuda, mxnet, mkl, python, gpu, driver in COMBINATIONS:
        node = NODE._replace(python=python, gpus=[gpu], driver=driver)
        try:
            pairs.check(mxnet, pairs.target(cuda, mkl), node)
        except BadInput as refused:
            said = str(refused)
            assert CURE.search(said), said
            for first, second in ANSWER.findall(said):
                pairs.check(first, pairs.target(second or cuda, mkl), node)
                proposed += 1
            for other in re.findall(r'(?:; or|:) set cuda_version: "([\d.]+)"', said):
                pairs.check(mxnet, pairs.target(other, mkl), node)
                proposed += 1
        else:
            works += 1
            assert pairs.environment(mxnet, pairs.target(cuda, mkl)).builds
    assert 200 < works < len(COMBINATIONS) / 2 and proposed > 500


def test_the_nearest_pair_works_with_all_gpus_of_the_node():
    """A K80 and an A100 in one node leave no pair."""
    with pytest.raises(BadInput) as refused:
        pairs.check("1.9.1", "cu112", NODE._replace(gpus=[KEPLER, A100]))
    assert "set mxnet_version" not in str(refused.value)
    assert 'remove the GPU from the node; or set cuda_version: ""' in str(refused.value)


@pytest.mark.parametrize(
    "part, name, ask, words",
    [
        ("pythons", "3.6", lambda: pairs.environment("1.2.1", "cu92"), "mxnet.yml: pythons has no"),
        (
            "cudnn",
            "9.2",
            lambda: pairs.cudnn("1.2.1", "cu92"),
            "versions.yml: cudnn has no row 9.2",
        ),
    ],
)
def test_a_missing_row_is_named(monkeypatch, part, name, ask, words):
    rows = {key: value for key, value in getattr(TABLE, part).items() if key != name}
    monkeypatch.setattr(pairs, "table", lambda: TABLE.replaced(**{part: rows}))
    with pytest.raises(BadInput, match=words):
        ask()


def test_a_missing_row_of_a_gpu_wheel_is_named(monkeypatch):
    monkeypatch.setattr(version_table, "gpu_wheels", dict)
    for ask in (pairs.needs, pairs.compiled_for):
        with pytest.raises(BadInput, match="gpu_wheels.yml has no row mxnet-cu92==.*gpu_wheels.py"):
            ask("1.2.1", "cu92")
