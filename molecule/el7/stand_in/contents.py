"""Contents of the stand-in's RPMs: CUDA, the driver, and packages of CentOS and EPEL."""

import base64
import pathlib
import platform
import subprocess

from rpms import Link, Package

HERE = pathlib.Path(__file__).parent
NVCC = """#!/bin/sh
# A stand-in: it compiles nothing.
echo "nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2018 NVIDIA Corporation
Built on Tue_Jun_12_23:07:04_CDT_2018
Cuda compilation tools, release {version}, V{release}"
"""
DEVICE_QUERY = """#!/bin/sh
# A stand-in: it queries nothing but the list of GPUs.
nvidia-smi -L && echo "Result = PASS" || { echo "Result = FAIL"; exit 1; }
"""
RUNFILE = """#!/bin/sh
# A stand-in for NVIDIA's installer: it accepts the options of the real one, and installs a compiler
# that compiles nothing and the stub libraries.
set -e
for word; do
    case $word in
    --silent | --toolkit | --override | --accept-eula | --tmpdir=*) ;;
    --toolkitpath=* | --installdir=*) root=${{word#*=}} ;;
    *) echo "$0: unknown option $word" >&2; exit 1 ;;
    esac
done
mkdir -p "$root/bin" "$root/lib64" "$root/include"
cat >"$root/bin/nvcc" <<'END'
{nvcc}
END
chmod 755 "$root/bin/nvcc"
base64 -d <<'END' | tar -xzC "$root/lib64"
{libraries}
END
echo "CUDA Version {release}" >"$root/version.txt"
"""
PATCH = """#!/bin/sh
# A stand-in for a patch of NVIDIA's installer.
set -e
for word; do
    case $word in
    --silent | --accept-eula) ;;
    --installdir=*) root=${{word#*=}} ;;
    *) echo "$0: unknown option $word" >&2; exit 1 ;;
    esac
done
echo "CUDA Patch Version {release}" >>"$root/version.txt"
"""
LIBRARIES = ("cublas", "cufft", "curand", "cusolver", "cusparse", "nvrtc")


def cuda(version, release, stubs):
    """Return the RPMs of a CUDA's local repository; `stubs` is the folder of its libraries."""
    tag, root = version.replace(".", "-"), "/usr/local/cuda-" + version
    bulk = subprocess.run(
        ["openssl", "enc", "-aes-128-ctr", "-nosalt", "-pass", "pass:stand-in"],
        input=bytes(2 << 20),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    ).stdout

    def package(name, *requires, **options):
        return Package(
            "cuda-%s-%s" % (name, tag),
            release,
            requires=[word.format(tag) for word in requires],
            **options,
        )

    def library(name):
        return {
            "%s/targets/x86_64-linux/lib/%s" % (root, path.name): path
            for path in stubs.glob("lib%s.so*" % name)
        }

    # As in NVIDIA's packages, lib64 is a link, and the last installed version sets /usr/local/cuda.
    layout = {
        root + "/version.txt": "CUDA Version %s\n" % release,
        root + "/lib64": Link("targets/x86_64-linux/lib"),
        root + "/include": Link("targets/x86_64-linux/include"),
        root + "/targets/x86_64-linux/include/cuda.h": "/* A stand-in. */\n",
    }
    made = [
        package("license", files=layout, post="ln -sfn cuda-%s /usr/local/cuda" % version),
        package("cudart", "cuda-license-{}", files=library("cudart")),
        package("cudart-dev", "cuda-cudart-{}"),
        package("nvtx", "cuda-license-{}", files=library("nvToolsExt")),
        package(
            "nvcc",
            "cuda-license-{}",
            files={root + "/bin/nvcc": NVCC.format(version=version, release=release)},
        ),
        package("documentation", files={root + "/doc/bulk": bulk}),
    ]
    for name in LIBRARIES:
        made += [
            package(name, "cuda-license-{}", files=library(name)),
            package(name + "-dev", "cuda-%s-{}" % name),
        ]
    made += [
        package(
            "libraries",
            "cuda-cudart-{}",
            *("cuda-%s-{}" % name for name in LIBRARIES if name != "nvrtc"),
        ),
        package("libraries-dev", "cuda-libraries-{}", "cuda-cudart-dev-{}", "cuda-cublas-dev-{}"),
        package("compiler", "cuda-nvcc-{}"),
        package("command-line-tools", "cuda-nvtx-{}"),
        package("samples", "cuda-cudart-dev-{}"),
        package(
            "toolkit",
            "cuda-compiler-{}",
            "cuda-libraries-dev-{}",
            "cuda-command-line-tools-{}",
            "cuda-nvrtc-{}",
            "cuda-documentation-{}",
            "cuda-samples-{}",
        ),
        # The roles must not install these packages, which all require a driver.
        package(
            "demo-suite",
            "cuda-runtime-{}",
            files={root + "/extras/demo_suite/deviceQuery": DEVICE_QUERY},
        ),
        package("runtime", "cuda-libraries-{}", "cuda-drivers"),
        Package(
            "cuda-" + tag,
            release,
            requires=["cuda-%s-%s" % (part, tag) for part in ("toolkit", "runtime", "demo-suite")],
        ),
        Package("cuda", release, requires=["cuda-" + tag]),
        Package("cuda-drivers", "396.37", requires=["nvidia-kmod"]),
        Package("nvidia-kmod", "396.37"),
    ]
    return made


def cublas(version, release, stubs):
    """Return the RPMs of a patch: a newer cuBLAS."""
    tag, folder = version.replace(".", "-"), "/usr/local/cuda-%s/targets/x86_64-linux/lib" % version
    files = {"%s/%s" % (folder, path.name): path for path in stubs.glob("libcublas.so*")}
    return [
        Package("cuda-cublas-" + tag, release, requires=["cuda-license-" + tag], files=files),
        Package("cuda-cublas-dev-" + tag, release, requires=["cuda-cublas-" + tag]),
    ]


def runfiles(version, release, patch, stubs):
    """Return the texts of an installer for any Linux, and of its patch."""
    packed = subprocess.run(
        ["tar", "-czC", str(stubs), "--exclude=versions", "."], stdout=subprocess.PIPE, check=True
    ).stdout
    text = RUNFILE.format(
        nvcc=NVCC.format(version=version, release=release),
        release=release,
        libraries=base64.encodebytes(packed).decode().strip(),
    )
    return text, PATCH.format(release=patch)


def driver():
    """Return the RPMs of driver branch 470 as NVIDIA packs it for CentOS 7."""
    release = {"version": "470.256.02", "release": "1.el7"}
    folder = HERE / "driver"
    return [
        Package(
            "nvidia-driver-branch-470",
            requires=["nvidia-driver-branch-470-cuda", "kmod-nvidia-branch-470-dkms"],
            provides=["nvidia-driver = 3:470.256.02"],
            **release,
        ),
        Package(
            "nvidia-driver-branch-470-cuda",
            requires=["nvidia-persistenced-branch-470"],
            files={"/usr/bin/nvidia-smi": folder / "nvidia-smi"},
            **release,
        ),
        Package(
            "nvidia-persistenced-branch-470",
            **release,
            files={
                "/usr/bin/nvidia-persistenced": folder / "nvidia-persistenced",
                "/usr/lib/systemd/system/nvidia-persistenced.service": folder
                / "nvidia-persistenced.service",
            },
        ),
        # dkms would build this file.
        Package(
            "kmod-nvidia-branch-470-dkms",
            requires=["dkms", "kernel-devel-uname-r"],
            files={"/var/lib/dkms/nvidia/version": "470.256.02\n"},
            **release,
        ),
    ]


def system(repository, python, libraries):
    """Return CentOS's RPMs of a repository.

    Args:
        repository: "os", "updates" or "epel".
        python: the folder of the copy of Python 3.6.
        libraries: the copies of gcc's libraries by package.
    """
    kernel = platform.release()
    if repository == "epel":
        return [Package("dkms", "2.8.4", "1.el7", requires=["gcc", "make"])]
    if repository == "updates":
        library = "libpython3.6m.so.1.0"
        files = {
            "/usr/bin/python3.6": python / "bin/python3.6",
            "/usr/bin/python3": Link("python3.6"),
            "/usr/lib64/" + library: python / "lib" / library,
            "/usr/lib/python3.6": python / "lib/python3.6",
        }
        return [Package("python3", "3.6.8", "21.el7_9", files=files, post="/sbin/ldconfig")]
    made = [
        Package("gcc", "4.8.5", "44.el7", files={"/usr/bin/gcc": "#!/bin/sh\nexit 1\n"}),
        Package("make", "3.82", "24.el7"),
        # They provide the version of the running kernel, which need not be valid as the version of
        # an RPM.
        Package(
            "kernel-devel",
            "3.10.0",
            "1160.el7",
            provides=["kernel-devel-uname-r", "kernel-devel-" + kernel],
        ),
        Package("kernel-headers", "3.10.0", "1160.el7", provides=["kernel-headers-" + kernel]),
    ]
    for name, path in libraries.items():
        files = {"/usr/lib64/" + path.name: path} if path else {}
        made.append(Package(name, "4.8.5", "44.el7", files=files, post="/sbin/ldconfig"))
    return made


def epel_release(key):
    """Return the RPM of CentOS's extras with EPEL's repository and key."""
    repo = (
        "[epel]\nname=Extra Packages for Enterprise Linux 7 - $basearch\n"
        "#baseurl=http://download.fedoraproject.org/pub/epel/7/$basearch\n"
        "metalink=https://mirrors.fedoraproject.org/metalink?repo=epel-7&arch=$basearch"
        "&infra=$infra&content=$contentdir\n"
        "failovermethod=priority\nenabled=1\ngpgcheck=1\n"
        "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-EPEL-7\n"
    )
    files = {"/etc/yum.repos.d/epel.repo": repo, "/etc/pki/rpm-gpg/RPM-GPG-KEY-EPEL-7": key}
    return Package("epel-release", "7", "11", files=files)
