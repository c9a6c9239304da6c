"""The table of versions is consistent, and every combination gives a decision."""

import itertools
import re

import pytest

from mxcluster.cluster import version_table, versions
from mxcluster.errors import BadInput
from mxcluster.model.node_record import Cuda
from mxcluster.model.software import Choice, File, LibraryFile, Machine, NeededDriver

TABLE = version_table.table()
CHOICE = {
    "cuda_version": "9.2",
    "mxnet_version": "1.2.1",
    "mxnet_build": "openblas",
    "gpu_required": False,
    "cuda_source": "",
    "cudnn_version": "",
    "nvidia_mirror": "https://mirror.example/nvidia/",
    "driver_install": "auto",
    "nvidia_sha256": {},
    "nvidia_keys": [],
}
VOLTA, KEPLER, FERMI, TURING, AMPERE = "1db4", "102d", "06d1", "1e04", "20b0"
NODE = {
    "system": "CentOS",
    "system_version": "7.9",
    "architecture": "x86_64",
    "python": None,
    "gpus": [VOLTA, VOLTA],
    "driver": None,
    "driver_installed": None,
    "own_system": True,
    "family": "RedHat",
    "missing": [],
}


def decide(node=None, **choice):
    return versions.decide(
        Choice.decode(dict(CHOICE, **choice)), Machine.decode(dict(NODE, **(node or {})))
    )


def refusal(node=None, **choice):
    with pytest.raises(BadInput) as refused:
        decide(node, **choice)
    return str(refused.value)


@pytest.mark.parametrize(
    "told, family", [("Debian", "Debian"), ("RedHat", "RedHat"), ("../../x", ""), ("", "")]
)
def test_the_family_is_a_name_of_the_table(told, family):
    """The role mxnet includes tasks by this name, and the fact comes from the node."""
    assert decide({"family": told}).family == family


def urls():
    for row in TABLE.cuda.values():
        yield from row.rpm
        yield from (one.url for one in row.runfile)
    yield from (one.url for rows in TABLE.cudnn.values() for one in rows.values())
    yield from (one.url for one in TABLE.nccl.values())
    yield from (one.url for one in TABLE.keys)


def digests():
    yield from (one.sha256 for row in TABLE.cuda.values() for one in row.runfile)
    yield from (one.sha256 for rows in TABLE.cudnn.values() for one in rows.values())
    yield from (one.sha256 for one in TABLE.nccl.values())
    yield from itertools.chain(*TABLE.wheel_sha256.values())


def test_every_url_is_valid():
    found = list(urls())
    assert len(found) > 40
    for url in found:
        assert (
            re.match(r"https://developer\.(download\.)?nvidia\.com/compute/[\w./+-]+[\w]$", url)
            and "//" not in url[8:]
        ), url


def test_no_digest_occurs_twice():
    found = list(digests())
    assert len(found) > 100
    assert len(found) == len(set(found))


def test_devices_do_not_overlap_and_have_an_architecture():
    chips = [spans for of_one in TABLE.devices.values() for spans in of_one.values()]
    numbers = sorted(span.split("-") for spans in chips for span in spans)
    assert all(first <= last for first, last in numbers)
    assert all(one[1] < two[0] for one, two in zip(numbers, numbers[1:]))
    assert all(version_table.architecture(capability) for capability in TABLE.devices)


def test_versions_in_a_row_match():
    for cuda, row in TABLE.cuda.items():
        assert row.release.startswith(cuda + ".") and row.cudnn in TABLE.cudnn[cuda]
        assert all(cuda.replace(".", "-") in url.replace("_", "-") for url in row.rpm)
        assert row.release in row.rpm[0] and row.release in row.runfile[0].url
        assert all(version.startswith(row.release + ".") for version in row.patched.values())


@pytest.mark.parametrize("kind", ["toolkit", "libraries"])
def test_a_package_without_the_cuda_version_in_its_name_is_pinned(kind):
    """libcublas10 is the cuBLAS of 10.1 and of 10.2; the repository offers the newest."""
    for cuda in TABLE.cuda:
        for name, version in getattr(versions.packages(cuda), kind).items():
            assert name.endswith("-" + cuda.replace(".", "-")) or version, (cuda, name)
    cublas = {
        cuda: getattr(versions.packages(cuda), kind).get("libcublas10") for cuda in ("10.1", "10.2")
    }
    assert cublas == {"10.1": "10.2.1.243", "10.2": "10.2.2.89"}


def test_the_reference_cluster():
    decided = decide()
    assert decided.target == "cu92" and decided.cuda.source == "local_rpm"
    assert decided.environment.builds[0].wheels[0] == "mxnet-cu92==1.2.1.post1"
    assert decided.cuda.packages.libraries["cuda-cublas-9-2"] == "9.2.148.1"
    assert decided.cudnn.version == "7.6.5.32"
    assert decided.driver == NeededDriver(branch=470, cuda="9.2", least="396.37", installable=True)
    assert decided.installed == Cuda(
        folder="/usr/local/cuda-9.2",
        version="9.2",
        release="9.2.148",
        driver="396.37",
        cudnn="7.6.5.32",
        sass=["3.0", "3.5", "5.0", "5.2", "6.0", "6.1", "7.0"],
        gpus=2,
    )


@pytest.mark.parametrize(
    "name, version, installable",
    [("CentOS", "7.6", True), ("RedHat", "7.9", True), ("Debian", "12", False)],
)
def test_mxcluster_installs_a_driver_on_el_7_only(name, version, installable):
    node = {"system": name, "system_version": version}
    assert decide(node, mxnet_version="1.3.1").driver.installable is installable
    rootless = dict(node, own_system=False, python="3.6")
    assert decide(rootless, mxnet_version="1.3.1").driver.installable is False


def test_a_node_without_a_gpu_gets_the_cpu_wheel():
    decided = decide({"gpus": []})
    assert decided.target == "cpu" and decided.cuda is decided.cudnn is decided.driver is None
    assert decided.environment.builds[0].wheels[0] == "mxnet==1.2.1.post1"
    assert decide(cuda_version="").target == "cpu"  # a node whose GPUs are not wanted
    assert decide(cuda_version="").gpus == 0
    assert decide({"gpus": []}, mxnet_build="mkl").target == "cpu-mkl"


@pytest.mark.parametrize(
    "node, choice, says",
    [
        (
            {},
            {"cuda_version": "9.3"},
            "mxcluster's table has no CUDA 9.3 (did you mean '9.2'",
        ),
        (
            {"python": "2.7"},
            {"mxnet_version": "1.7.0"},
            "Python 2.7 is too old for mxcluster's nodes: install Python 3.6",
        ),
        (
            {"gpus": [AMPERE]},
            {},
            '7.0: set mxnet_version: "1.8.0" and cuda_version: "11.0"; or remove the GPU',
        ),
        (
            {"system": "Debian", "system_version": "12.5"},
            {"mxnet_version": "1.5.1"},
            "the node has GPUs and no driver, but the import of MXNet 1.5.1 for CUDA 9.2 needs a "
            'driver: set mxnet_version: "1.3.1"; or install driver 396.37 or newer; or set',
        ),
        (
            {"gpus": []},
            {"gpu_required": True},
            "no NVIDIA GPU on its PCI bus, but gpu_required is set",
        ),
        (
            {"system": "Slackware", "system_version": "15.0"},
            {},
            "mxcluster cannot install system packages on Slackware 15.0, only on CentOS 7",
        ),
        (
            {"system": "Debian", "system_version": "12.5"},
            {"mxnet_version": "1.3.1", "cuda_source": "local_rpm"},
            "cuda_source=local_rpm is impossible on Debian 12: set cuda_source to runfile",
        ),
    ],
)
def test_an_impossible_combination_is_refused_with_a_possible_one(node, choice, says):
    assert says in refusal(node, **choice)


def test_a_driver_serves_every_gpu_of_a_node():
    assert versions.driver_branch("9.2", [VOLTA, KEPLER, TURING]) == 470
    assert versions.driver_branch("9.2", ["2684"]) == 550  # Ada, which 470 does not know
    for devices in ([FERMI], [KEPLER, "2684"]):
        with pytest.raises(BadInput, match="driver branch 470 does not support the node"):
            versions.driver_branch("9.2", devices)


def test_without_root_the_user_provides_the_system():
    own = {"own_system": False, "system": "Slackware", "system_version": "15.0", "python": "3.6"}
    assert decide(own).cuda.source == "none"
    assert (
        decide(own).installed is None and decide(own).gpus == 2
    )  # a driver that shows no GPU later is reported in any case
    assert decide(dict(own, gpus=[])).target == "cpu"


def test_new_versions_of_mxnet_get_nccl():
    assert decide().nccl is None
    decided = decide(mxnet_version="1.9.1", cuda_version="10.2")
    name = "nccl_2.11.4-1+cuda10.2_x86_64.txz"
    assert decided.nccl == LibraryFile(
        url="https://mirror.example/nvidia/redist/nccl/v2.11/" + name,
        name=name,
        sha256="d2f59b9385cb2026d9a8d4dee607f9aa93356761257fd57487f81de8563c8da1",
        version="2.11.4",
    )
    assert decided.installed.nccl == "2.11.4" and decided.cudnn.version == "8.2.4.15"


@pytest.mark.parametrize(
    "loaded, installed, refused",
    [
        ("390.87", "470.82.01", False),  # only a restart is missing
        ("470.82.01", "390.87", True),  # the next restart loads the old driver
        ("390.87", None, True),
    ],
)
def test_the_installed_driver_counts_before_the_loaded_driver(loaded, installed, refused):
    node = {"driver": loaded, "driver_installed": installed}
    if refused:
        assert "390.87 is too old for CUDA 9.2, which needs 396.37" in refusal(node)
        assert decide(node, driver_install="true").target == "cu92"
    else:
        assert decide(node, driver_install="false").target == "cu92"


def test_a_driver_of_the_node_may_be_missing_where_a_role_installs_it():
    newer = {"mxnet_version": "1.5.1"}
    assert decide(**newer).target == "cu92"
    assert "CUDA 9.2 needs a driver" in refusal(driver_install="false", **newer)
    rootless = {"own_system": False, "python": "3.6"}
    assert "CUDA 9.2 needs a driver" in refusal(rootless, **newer)
    assert decide(dict(rootless, driver_installed="470.256.02"), **newer).target == "cu92"


def test_a_system_without_a_way_to_install_cuda_is_refused(monkeypatch):
    """An empty list of ways ended with an IndexError."""
    monkeypatch.setitem(TABLE.systems, "Debian 12", version_table.System(cuda=[], python="3.6"))
    node = {"system": "Debian", "system_version": "12"}
    assert refusal(node).startswith("mxcluster cannot install CUDA on Debian 12: set cuda_version")
    assert decide(dict(node, gpus=[])).target == "cpu"


def test_mirror_urls_and_file_names():
    cuda = decide().cuda
    assert cuda.rpm[1] == File(
        url="https://mirror.example/nvidia/cuda/9.2/Prod2/patches/1/cuda-repo-rhel7-9-2-148-local-patch-1-1.0-1.x86_64",
        name="cuda-repo-rhel7-9-2-148-local-patch-1-1.0-1.x86_64.rpm",
        sha256="",
    )
    old = decide({"gpus": [KEPLER]}, cuda_version="8.0").cuda
    assert old.rpm[0].name == "cuda-repo-rhel7-8-0-local-ga2-8.0.61-1.x86_64.rpm"
    assert decide().cudnn.url.startswith("https://mirror.example/nvidia/redist/cudnn/v7.6.5/")
    assert [key.fingerprint[-8:].lower() for key in cuda.keys] == ["7fa2af80", "d42d0685"]


def test_a_digest_of_the_user_takes_precedence():
    name = decide().cudnn.name
    assert decide(nvidia_sha256={name: "A" * 64}).cudnn.sha256 == "a" * 64


BARE = {
    "own_system": False,
    "system": "Debian",
    "system_version": "12",
    "family": "Debian",
    "python": "3.11",
    "gpus": [],
    "missing": ["ip", "libgomp.so.1", "libquadmath.so.0"],
}


@pytest.mark.parametrize(
    "changes, words",
    [
        (
            {"python": None, "missing": []},
            "lacks python3. On the node, run 'apt-get install -y python3' as root",
        ),
        ({"family": "RedHat"}, "'yum install -y iproute libgomp libquadmath'"),
        (
            {"family": "Archlinux"},
            "lacks ip, libgomp.so.1, libquadmath.so.0. On the node, install the missing programs",
        ),
    ],
)
def test_all_missing_system_packages_are_named_at_once(changes, words):
    told = refusal(dict(BARE, **changes), mxnet_version="1.9.1", cuda_version="")
    assert words in told and told.endswith("has fetched and changed nothing"), told


def test_packages_that_mxcluster_installs_are_not_requested():
    assert decide(
        dict(BARE, own_system=True, missing=["libgomp.so.1"]),
        mxnet_version="1.9.1",
        cuda_version="",
    )


@pytest.mark.parametrize(
    "cuda, rpms, other",
    [
        ("10.1", ["libcublas10 10.2.2.89"], "10.2"),
        ("10.2", ["libcublas10 10.2.1.243", "libcublas-devel 10.2.1.243"], "10.1"),
        ("10.2", ["libcublas10 10.1.0.105"], "10.1"),  # of an earlier release of CUDA 10.1
        ("10.1", ["libcublas10 10.2.1.243"], ""),
        ("10.2", ["libcublas-11-2 11.4.1.1043"], ""),
        ("10.2", [], ""),
    ],
)
def test_cublas_of_another_cuda_is_refused(cuda, rpms, other):
    said = versions.other_cublas(cuda, rpms)
    assert ("yum remove 'cuda-*-%s' libcublas10" % other.replace(".", "-") in said) is bool(other)
    assert said or not other


@pytest.mark.parametrize(
    "wrong, words",
    [
        (
            {"nvidia_keys": [{"name": "x"}]},
            r"nvidia_keys\[0\]=.* is not an object with url, fingerprint",
        ),
        ({"nvidia_sha256": {"cuda.rpm": "zz"}}, "nvidia_sha256.cuda.rpm='zz' is not a sha256"),
        ({"nvidia_mirror": "not a url"}, "nvidia_mirror='not a url' is not a URL"),
    ],
)
def test_wrong_sources_are_refused_by_name(wrong, words):
    with pytest.raises(BadInput, match="n1: %s.*: correct this value in the inventory" % words):
        versions.read("n1", dict(CHOICE, **wrong), NODE)


def test_a_fact_of_the_wrong_form_is_refused_with_the_host():
    with pytest.raises(BadInput, match=r"n1: gpus\[0\]='x' is not the PCI device number"):
        versions.read("n1", CHOICE, dict(NODE, gpus=["x"]))
    # ansible-core 2.16 makes "" of None.
    assert versions.read("n1", CHOICE, dict(NODE, python="", driver="")).target == "cu92"
