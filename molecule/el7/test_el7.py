"""Bare CentOS 7 GPU machines become MXNet nodes; damaged, forged and unsuitable files are refused.

The tests run on the stand-in of stand_in/. They show the actions of the roles on such machines, not
that CUDA works there.
"""

import json
import pathlib
import re
import shutil

import pytest

from mxcluster.cluster import version_table
from tests.often import seldom
from tools import gpu_wheels

INSTALLER = "cuda-repo-rhel7-9-2-local-9.2.148-1.x86_64"
# The RPM of CUDA 9.0, which no node has; its URL ends in -rpm, its file in .rpm.
OTHER = "cuda-repo-rhel7-9-0-local-9.0.176-1.x86_64"


def test_cuda_and_its_patch_are_installed(nodes, cluster, name):
    found = nodes.packages(name)
    assert found["cuda-toolkit-9-2"] == "9.2.148" and found["cuda-cublas-9-2"] == "9.2.148.1", found
    assert "release 9.2, V9.2.148" in cluster.shell(name, "/usr/local/cuda/bin/nvcc --version")
    assert cluster.shell(name, "readlink -f /usr/local/cuda") == "/usr/local/cuda-9.2"
    known = cluster.shell(name, "ldconfig -p")
    assert all(
        library in known
        for library in ("libcudart.so.9.2", "libcublas.so.9.2", "libcudnn.so.7", "libgomp.so.1")
    ), known
    assert "/usr/local/cuda/bin" in cluster.shell(name, "bash -lc 'echo $PATH'", "mxcluster")


def test_cudnn_is_installed_with_its_links(cluster, name):
    assert (
        cluster.shell(name, "readlink /usr/local/cuda-9.2/lib64/libcudnn.so.7")
        == "libcudnn.so.7.6.5"
    )
    assert (
        cluster.shell(name, "readlink /usr/local/cuda-9.2/lib64") == "targets/x86_64-linux/lib"
    )  # NVIDIA's own link
    assert "CUDNN_PATCHLEVEL 5" in cluster.shell(
        name, "cat /usr/local/cuda-9.2/include/cudnn.h", "mxcluster"
    )


def test_mxnet_is_the_gpu_build_where_a_gpu_is(nodes, cluster):
    ask = (
        "cd /opt/mxcluster/env/bin; ./pip freeze 2>/dev/null | grep ^mxnet; "
        "./python -c 'import mxnet; print(mxnet.__version__)'"
    )
    assert {name: cluster.shell(name, ask, "mxcluster").split() for name in cluster.names} == {
        "head": ["mxnet==1.2.1.post1", "1.2.1"],
        "gpu1": ["mxnet-cu92==1.2.1.post1", "1.2.1"],
        "gpu2": ["mxnet-cu92==1.2.1.post1", "1.2.1"],
    }
    library = "$(find /opt/mxcluster/env/ -name libmxnet.so)"
    for name in nodes.gpus:
        assert "not found" not in cluster.shell(name, "ldd " + library)
        assert (
            cluster.shell(
                name, "/opt/mxcluster/env/bin/python -c 'import sys; print(sys.version_info[:2])'"
            )
            == "(3, 6)"
        )
    assert not any("cuda" in package or "nvidia" in package for package in nodes.packages("head"))


def test_the_real_wheel_needs_what_the_table_says():
    """The table lists the needs of each pair. The test has the wheel of the default pair only."""
    store = pathlib.Path(__file__).parents[2] / ".state" / "cache" / "wheels"
    (path,) = store.glob("mxnet_cu92-1.2.1.post1-*.whl")
    measured = gpu_wheels.measure(str(path))
    assert measured == version_table.gpu_wheels()["mxnet-cu92==1.2.1.post1"].encode()


def test_the_repositories_are_the_archives_and_signatures_are_asked_for(cluster, server):
    for name in cluster.names:
        files = cluster.shell(name, "cat /etc/yum.repos.d/*.repo")
        assert not re.search(r"^(mirrorlist|metalink)=", files, re.MULTILINE), files
        assert cluster.here("baseurl=http://172.29.40.1:8407/vault/updates/$basearch/") in files
        assert "gpgcheck=0" not in files and not re.search(
            r"gpgcheck *= *(0|[Ff]alse|no)", files
        ), files


def test_a_large_file_was_fetched_once_for_the_cluster(cluster, server):
    for name in (
        INSTALLER,
        "cuda-repo-rhel7-9-2-148-local-patch-1-1.0-1.x86_64",
        "cudnn-9.2-linux-x64-v7.6.5.32.tgz",
    ):
        assert [(line["status"], line["from"]) for line in server.requests(name)] == [
            (200, cluster.here("172.29.40.1"))
        ], name


def test_yum_has_installed_nothing_that_no_role_names(nodes, cluster, server):
    """Ansible's module installs yum-utils from all repositories, unless a play tells it not to."""
    assert not [name for name in cluster.names if "yum-utils" in nodes.packages(name)]


PATCHED = {
    *("cuda-cublas-9-2", "cuda-cublas-dev-9-2", "cuda-nvcc-9-2"),
    *("cuda-cudart-9-2", "cuda-cudart-dev-9-2"),
}


def without_patch(cluster, names):
    """Replace packages of gpu2 by those of CUDA without its patch. yum 3 has no --repofrompath."""
    dnf = "/usr/libexec/platform-python -s /usr/libexec/stand-in/dnf -y -q --nogpgcheck "
    old = "--disablerepo='*' --repofrompath=old,/var/cuda-repo-9-2-local downgrade "
    cluster.shell("gpu2", dnf + old + " ".join(name + "-9.2.148" for name in sorted(names)))


@pytest.mark.soak  # the next test is much like this one
def test_the_patch_comes_where_cuda_was_installed_without_it(nodes, cluster, server):
    """The patch has packages that no table lists, and yum needs no other repository for them."""
    cluster.shell(
        "gpu2",
        "rpm -e cuda-repo-rhel7-9-2-148-local-patch-1 && "
        "grep -rl patch-1 /etc/yum.repos.d | xargs -r rm",
    )
    without_patch(cluster, PATCHED)
    before = nodes.packages("gpu2")
    assert {before[name] for name in PATCHED} == {"9.2.148"}
    cluster.shell("gpu2", "yum -q clean all")
    server.disturb_system()
    nodes.provision("--limit", "gpu2", "--tags", "cuda")
    after = nodes.packages("gpu2")
    assert {after[name] for name in PATCHED} == {"9.2.148.1"}
    assert {name for name in after if after[name] != before.get(name)} == PATCHED | {
        "cuda-repo-rhel7-9-2-148-local-patch-1"
    }


def test_half_a_patch_is_completed(nodes, cluster, server):
    """No table lists these packages, so only CUDA's repositories show that they are old."""
    left = {name for name in PATCHED if "cublas" not in name}
    without_patch(cluster, left)
    before = nodes.packages("gpu2")
    cluster.shell("gpu2", "yum -q clean all")
    server.disturb_system()
    planned = cluster.play("provision.yml", "--limit", "gpu2", "--tags", "cuda", "--check")
    assert "cuda-cudart-9-2.x86_64" in planned.output, planned.output
    assert nodes.packages("gpu2") == before
    nodes.provision("--limit", "gpu2", "--tags", "cuda")
    after = nodes.packages("gpu2")
    assert {after[name] for name in PATCHED} == {"9.2.148.1"}
    assert {name for name in after if after[name] != before.get(name)} == left
    again = nodes.provision("--limit", "gpu2", "--tags", "cuda", drift_anyway=True)
    assert nodes.changes(again)["gpu2"] == 0, again.output


DAMAGE = {
    "truncated": ({"truncate": 1500000}, {}, "no valid signature"),
    "swapped": ({"swap": True}, {}, "no valid signature"),
    "signed with another key": ({"instead": "stranger/installer.rpm"}, {}, "no valid signature"),
    "another digest than the user's own": (
        {},
        {"nvidia_sha256": {OTHER + ".rpm": "0" * 64}},
        "sha256",
    ),
    "not there": ({"status": 404}, {}, "could not fetch"),
}


@pytest.mark.parametrize(
    "damage",
    [
        damage if damage == "swapped" else seldom(damage)  # a unit test has each refusal
        for damage in DAMAGE
    ],
)
def test_what_is_damaged_is_refused_and_nothing_is_installed_from_it(
    nodes, cluster, server, tmp_path, damage
):
    how, options, message = DAMAGE[damage]
    if "instead" in how:
        how = {"instead": str(server.www.parent / how["instead"])}
    server.disturb({OTHER + "-rpm": how} if how else {})
    before = nodes.packages("gpu2")
    result = cluster.play(
        "provision.yml",
        *("--limit", "gpu2", "--tags", "cuda"),
        cuda_version="9.0",
        cuda_store_dir=str(tmp_path),
        **options,
    )
    assert result.code != 0 and message in result.output and OTHER + ".rpm" in result.output, (
        result.output
    )
    if damage == "not there":  # the message names the file and the folder for it
        assert str(tmp_path) in result.output
    assert nodes.packages("gpu2") == before
    assert cluster.shell("gpu2", "readlink -f /usr/local/cuda; ls /usr/local").count("9.0") == 0


@pytest.mark.soak
def test_a_download_goes_on_where_it_was_cut_and_another_cuda_stands_beside_the_first(
    nodes, cluster, server
):
    """A download resumes where it was cut, and a second CUDA version is installed beside the first.

    The server cuts one file until the run gives up, and lacks another file, which the user
    provides. An upgrade leads back to the newer CUDA.
    """
    cut, lacking = 300000, "cuda-repo-rhel7-9-0-176-local-patch-4-1.0-1.x86_64"
    begun = len(server.requests(OTHER + "-rpm"))
    server.disturb({OTHER + "-rpm": {"cut": cut, "times": 4}, lacking + "-rpm": {"status": 404}})
    failed = cluster.play("provision.yml", "--limit", "gpu2", cuda_version="9.0")
    assert failed.code != 0 and OTHER in failed.output, failed.output
    shutil.copy(
        str(next(server.www.rglob(lacking + "-rpm"))),
        str(cluster.shared / "archives" / (lacking + ".rpm")),
    )
    nodes.provision("--limit", "gpu2", cuda_version="9.0")
    ranges = [line["range"] for line in server.requests(OTHER + "-rpm")[begun:]]
    assert ranges == [None] + ["bytes=%d-" % (cut * number) for number in (1, 2, 3, 4)]
    found = nodes.packages("gpu2")
    assert found["cuda-cublas-9-0"] == "9.0.176.4" and found["cuda-cublas-9-2"] == "9.2.148.1"
    assert found["cuda-core-9-0"] == "9.0.176.3"  # of the third patch, which has a compiler, too
    assert cluster.shell("gpu2", "readlink -f /usr/local/cuda") == "/usr/local/cuda-9.0"
    assert "mxnet-cu90==1.2.1.post1" in cluster.shell(
        "gpu2", "/opt/mxcluster/env/bin/pip freeze 2>/dev/null"
    )

    nodes.provision("--limit", "gpu2")
    assert cluster.shell("gpu2", "readlink -f /usr/local/cuda") == "/usr/local/cuda-9.2"
    for version in ("9.0", "9.2"):
        assert "release %s" % version in cluster.shell(
            "gpu2", "/usr/local/cuda-%s/bin/nvcc --version" % version
        )
    known = cluster.shell("gpu2", "ldconfig -p")
    assert "libcudart.so.9.0" in known and "libcudart.so.9.2" in known
    assert set(nodes.changes(nodes.provision()).values()) == {0}


def without_cuda(cluster, name):
    """Remove CUDA 9.2 from a node, for every kind of installation."""
    cluster.shell(
        name,
        "rpm -qa 'cuda-*9-2*' | xargs -r rpm -e; rm -rf /usr/local/cuda-9.2 "
        "/etc/yum.repos.d/*cuda-9-2*",
    )


@pytest.mark.soak
@pytest.mark.parametrize(
    "folder, full",
    [
        ("/opt/mxcluster/cache", "No space left on device"),  # the copy from the controller
        ("/var/cuda-repo-9-2-local", "needs "),  # yum unpacks the local repository
    ],
)
def test_a_disk_that_is_full_is_named_and_the_next_run_repairs_it(nodes, cluster, folder, full):
    without_cuda(cluster, "gpu2")
    cluster.shell("gpu2", "rpm -qa 'cuda-repo-rhel7-9-2*' | xargs -r rpm -e; mkdir -p " + folder)
    cluster.shell("gpu2", "mount -t tmpfs -o size=1m,mode=755 tmpfs " + folder)
    message = nodes.refused("--limit", "gpu2")
    assert "gpu2: the disk is full (" + full in message, message
    assert "/opt/mxcluster/cache needs " in message and "free" in message, message
    assert not any(
        name.startswith("cuda") and name.endswith("9-2") for name in nodes.packages("gpu2")
    )
    cluster.shell("gpu2", "find /opt/mxcluster/cache -type f | xargs -r false; umount " + folder)
    nodes.provision("--limit", "gpu2")
    assert nodes.packages("gpu2")["cuda-cublas-9-2"] == "9.2.148.1"


@pytest.mark.soak
def test_other_ways_to_install_cuda(nodes, cluster):
    """Install from the network repository without compiler, then with the runfile and patch.

    The last step returns to the local repository.
    """
    without_cuda(cluster, "gpu2")
    nodes.provision("--limit", "gpu2", cuda_source="network_repo", cuda_install="libraries")
    found = nodes.packages("gpu2")
    assert found["cuda-libraries-9-2"] == "9.2.148" and found["cuda-cublas-9-2"] == "9.2.148.1"
    assert "cuda-toolkit-9-2" not in found and "cuda-nvcc-9-2" not in found
    assert "CUDNN_PATCHLEVEL 5" in cluster.shell("gpu2", "cat /usr/local/cuda-9.2/include/cudnn.h")

    without_cuda(cluster, "gpu2")
    cluster.shell("gpu2", "touch /etc/stand-in/runfile-fails")
    message = nodes.refused("--limit", "gpu2", cuda_source="runfile")
    cluster.shell("gpu2", "rm /etc/stand-in/runfile-fails")
    assert "ended with status 0, but /usr/local/cuda-9.2 lacks bin/nvcc of release 9.2" in message
    nodes.provision("--limit", "gpu2", cuda_source="runfile")  # it empties the folder first
    assert cluster.shell("gpu2", "cat /usr/local/cuda-9.2/version.txt").splitlines() == [
        "CUDA Version 9.2.148",
        "CUDA Patch Version 9.2.148.1",
    ]
    assert "V9.2.148" in cluster.shell("gpu2", "/usr/local/cuda/bin/nvcc --version")
    again = nodes.provision("--limit", "gpu2", cuda_source="runfile")
    assert nodes.changes(again)["gpu2"] == 0, again.output

    without_cuda(cluster, "gpu2")
    nodes.provision("--limit", "gpu2")
    assert nodes.packages("gpu2")["cuda-toolkit-9-2"] == "9.2.148"


@pytest.mark.soak
def test_mxnet_in_the_systems_python_trains(nodes, cluster, trainable):
    """mxnet_scope=system installs MXNet for all users of /usr/bin/python3, and the job uses it."""
    ask = "python3 -c 'import mxnet; print(mxnet.__file__)'"
    for name in nodes.gpus:
        assert cluster.node(name).run("/usr/bin/" + ask).rc != 0
    nodes.provision(mxnet_scope="system")
    for name in nodes.gpus:
        found = cluster.shell(name, "cd /; /usr/bin/" + ask, "nobody")
        assert not found.startswith("/opt/mxcluster") and found == cluster.shell(
            name, "/opt/mxcluster/env/bin/" + ask, "mxcluster"
        )
    assert set(nodes.changes(nodes.provision(mxnet_scope="system")).values()) == {0}
    job = cluster.train(kv="dist_sync", num_epochs=8, gpus="")
    assert job.result.code == 0 and job.verdict["accuracy"] > 0.8, job.result.output
    nodes.provision()
    found = cluster.shell("gpu1", "/opt/mxcluster/env/bin/" + ask, "mxcluster")
    assert found.startswith("/opt/mxcluster/env/")


def test_what_cannot_work_is_refused_with_what_can(nodes, cluster):
    """tests/unit/cluster has the other refusals."""
    result = cluster.play("provision.yml", cuda_version="9.3")
    assert result.code != 0 and "9.2" in result.output, result.output
    assert set(nodes.changes(result).values()) == {0}


def on_the_bus(cluster, name, *lines):
    """Change the devices on a node's PCI bus; return the earlier ones."""
    before = cluster.shell(name, "cat /etc/stand-in/pci").splitlines()
    cluster.shell(
        name,
        "echo '%s' > /etc/stand-in/pci; systemctl restart stand-in-hardware" % "\n".join(lines),
    )
    return before


@pytest.mark.parametrize(
    "lines, message",
    [
        pytest.param([], "GPU", id="no GPU"),
        seldom(["0000:01:00.0 0x10de 0x030200 0x20b0"], "8.0", id="a GPU that CUDA 9.2 lacks"),
    ],
)
def test_a_node_without_the_right_gpu_is_refused_by_name(nodes, cluster, inventory, lines, message):
    def change(hosts):
        for name in nodes.gpus:
            hosts["children"]["workers"]["hosts"][name]["gpu_required"] = True

    before = on_the_bus(cluster, "gpu2", *lines)
    try:
        result = cluster.play("provision.yml", inventory=inventory(change))
    finally:
        on_the_bus(cluster, "gpu2", *before)
    assert result.code != 0 and "gpu2: " in result.output and message in result.output, (
        result.output
    )
    assert "gpu1: " not in result.output and set(nodes.changes(result).values()) == {0}


@pytest.mark.soak  # test_driver.py replaces one
def test_an_old_loaded_driver_is_replaced_by_the_installed_driver(cluster, nodes, trainable):
    """The loaded module is older than CUDA 9.2 needs, and no program uses it."""
    version = "/proc/driver/nvidia/version"
    cluster.shell("gpu2", "sed -i 's/470.82.01/390.46/' " + version)
    nodes.provision("--limit", "gpu2", "--tags", "nvidia_driver")
    assert "470.82.01" in cluster.shell("gpu2", "cat " + version)


def test_an_old_installed_driver_is_refused(cluster, nodes, trainable):
    """A restart would load this driver, whatever is loaded now."""
    module = "/lib/modules/$(uname -r)/extra/nvidia.ko"
    cluster.shell("gpu2", "cp %s /run/module; echo 390.46 >%s" % (module, module))
    try:
        message = nodes.refused()
    finally:
        cluster.shell("gpu2", "cat /run/module >" + module)
    assert "gpu2: the driver 390.46 is too old for CUDA 9.2, which needs 396.37" in message
    assert "gpu1: " not in message


def gpus_of(job):
    """Return the GPUs of a job: {(role, index): GPUs} of the plan, and the workers' output.

    The output is a sorted list of (host, CUDA_VISIBLE_DEVICES).
    """
    plan = json.loads((job.folder / "plan.json").read_text())
    planned = {
        (process["role"], process["index"]): process["gpus"] for process in plan["processes"]
    }
    logs = "".join(path.read_text() for path in job.folder.glob("nodes/*/worker-*.log"))
    return planned, sorted(re.findall(r"GPUS (\w+) '([\d,]*)' 1\.2\.1", logs))


@pytest.mark.parametrize(
    "workers, seen",
    [
        (2, [("gpu1", "0"), ("gpu1", "1"), ("gpu2", "0")]),
        seldom(1, [("gpu1", "0,1"), ("gpu2", "0")]),
    ],
)
def test_every_worker_sees_its_gpus_and_nobody_else_any(
    cluster, trainable, inventory, workers, seen
):
    """The workers of a node share its GPUs."""

    def change(hosts):
        hosts["children"]["workers"]["hosts"]["gpu1"].update(workers_per_host=workers)

    script = str(cluster.scenario / "environment.py")
    job = cluster.train(script=script, kv="dist_sync", inventory=inventory(change))
    assert job.result.code == 0, job.result.output
    planned, saw = gpus_of(job)
    assert saw == seen
    assert {key: ",".join(map(str, numbers)) for key, numbers in planned.items()} == {
        ("scheduler", 0): "",
        ("server", 0): "",
        **{("worker", index): gpus for index, (_, gpus) in enumerate(seen)},
    }
    for role in ("scheduler", "server"):
        environment = next(job.folder.glob("nodes/head/%s-0.env" % role)).read_text()
        assert re.search(r"^export CUDA_VISIBLE_DEVICES=(''|\"\"|)$", environment, re.MULTILINE), (
            environment
        )


def test_a_gpu_that_is_missing_or_busy_is_refused_by_name(cluster):
    missing = cluster.train(gpus="1")
    assert missing.result.code != 0
    assert "gpu2: gpus=1, but the node has one GPU, number 0" in missing.result.output
    cluster.shell(
        "gpu1", "mkdir -p /run/stand-in; echo '4711, 0, python' > /run/stand-in/compute-apps"
    )
    busy = cluster.train(gpus="0")  # with gpus=auto the job would take the other GPU
    cluster.shell("gpu1", "rm /run/stand-in/compute-apps")
    assert busy.result.code != 0 and not busy.folder.exists(), busy.result.output
    assert re.search(
        r"gpu1: GPU 0 is held by python \(pid 4711\): leave gpus at auto", busy.result.output
    ), busy.result.output


def test_verify_judges_all_but_what_takes_a_gpu(cluster):
    """The checks that ask the libraries of driver and CUDA, or compute on a GPU, fail here.

    nvidia-smi shows GPUs, but there is no libcuda.so.1, and libcudart is a stub.
    """
    result = cluster.play("verify.yml")
    for line in (
        "a driver that CUDA works with",
        "no nouveau",
        "CUDA's compiler",
        "the libraries that MXNet needs",
        "cuDNN",
    ):
        assert re.search("^ok +" + line, result.output, re.MULTILINE), result.output
    for line in (
        "not run +NCCL: gpu1, gpu2: this MXNet contains NCCL",
        "failed +CUDA shows the GPUs of nvidia-smi",
        "failed +CUDA's runtime",
        "failed +MXNet computes on every GPU",
    ):
        assert re.search("^" + line, result.output, re.MULTILINE), result.output


def test_no_driver_has_come_with_cuda(nodes, name):
    """cuda-9-2, cuda-runtime and cuda-demo-suite require NVIDIA's driver of that time, 396."""
    found = nodes.packages(name)
    assert not [
        one for one in found if re.match("cuda-(drivers|9-2|runtime|demo)|xorg-x11-drv", one)
    ]
    assert "nvidia-kmod" not in found and "libcublas10" not in found
