"""The words of yum, dnf, tar and Ansible after a failed installation."""

import pytest

from mxcluster.cluster import install_failures

YUM_LACKS = {
    "msg": "Error: Package: cuda-samples-9-2-9.2.148-1.x86_64 (mxcluster-cuda-9-2-0)\n"
    "           Requires: gcc-c++\n",
    "results": ["Loaded plugins: versionlock\n"],
}
DNF_LACKS = {
    "msg": "Depsolve Error occurred:\n Problem: conflicting requests\n"
    "  - nothing provides gcc-c++ needed by cuda-samples-9-2-9.2.148-1.x86_64"
}
YUM_FULL = {
    "msg": "Transaction check error:\n  installing package cuda-cufft-9-2-9.2.148-1.x86_64 needs "
    "212MB on the / filesystem\n",
    "results": ["Error Summary\nDisk Requirements:\n  At least 212MB more space needed on the / "
                "filesystem.\n"],
}  # fmt: skip
COPY_FULL = {"results": [{"msg": "[Errno 28] No space left on device: '/opt/x'"}, {"msg": ""}]}
DF = [
    "Filesystem 1048576-blocks Used Available Capacity Mounted on",
    "overlay 1000 900 100 90% /",
    "tmpfs 1 1 0 100% /opt/mxcluster/cache",
]


@pytest.mark.parametrize(
    "result, lacks, full",
    [
        (YUM_LACKS, True, False),
        (DNF_LACKS, True, False),
        (YUM_FULL, False, True),
        ({"msg": "Public key for cuda-cublas-9-2.rpm is not installed"}, False, False),
    ],
)  # fmt: skip
def test_what_a_failed_installation_lacked(result, lacks, full):
    assert install_failures.lacks_dependencies(result) is lacks
    assert install_failures.is_full(result) is full


def test_a_full_disk_is_named_with_the_space_that_is_needed():
    needs = {"/usr/local": 3 << 30, "/opt/mxcluster/cache": 1600 << 20}
    told = install_failures.explained(YUM_FULL, "gpu2", DF, needs)
    assert told.startswith("gpu2: the disk is full (")
    assert "/usr/local needs 3072 MiB and has 100 MiB (file system /) free" in told
    assert "/opt/mxcluster/cache needs 1600 MiB and has 0 MiB" in told
    unknown = install_failures.explained(COPY_FULL, "gpu2", DF, {"/var": 0})
    assert "/var has 100 MiB (file system /) free" in unknown
    assert "see df -h" in install_failures.explained(COPY_FULL, "gpu2", [], needs)


def test_the_space_is_that_of_the_files(tmp_path):
    (tmp_path / "a.rpm").write_bytes(b"x" * 1000)
    needs = install_failures.needs(str(tmp_path), ["a.rpm", "none.rpm"], {"/var": 1, "/usr": 2.5})
    assert needs == {"/var": 1000, "/usr": 2500}


def test_updates_are_read_from_check_update():
    lines = [
        "Loaded plugins: fastestmirror, versionlock",
        'Excluding 11 updates due to versionlock (use "yum versionlock status" to show them)',
        "",
        "cuda-nvcc-9-2.x86_64    9.2.148.1-1    mxcluster-cuda-9-2-1",
        "cuda-visual-profiler-and-more-9-2.x86_64",
        "                        9.2.148.1-1",
        "                                       mxcluster-cuda-9-2-1",
        "Obsoleting Packages",
        "cuda-nvcc-10-0.x86_64   10.0.130-1     mxcluster-cuda-9-2-1",
        "    cuda-nvcc-9-2.x86_64  9.2.148-1    @System",
    ]
    assert install_failures.updates(lines) == [
        "cuda-nvcc-9-2.x86_64",
        "cuda-visual-profiler-and-more-9-2.x86_64",
    ]
    assert install_failures.updates(["", "Loaded plugins: fastestmirror"]) == []
