"""Contents of the stand-in's RPMs: CUDA, the driver, and packages of CentOS and EPEL."""

import base64
import pathlib
import subprocess

import yaml
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
    --silent | --toolkit | --override | --accept-eula | --no-man-page) ;;
    --tmpdir=* | --installpath=*) ;;
    --toolkitpath=* | --installdir=*) root=${{word#*=}} ;;
    *) echo "$0: unknown option $word" >&2; exit 1 ;;
    esac
done
mkdir -p "$root/bin" "$root/lib64" "$root/include"
# A trap: the real installers may fail like this, with status 0.
if [ -e /etc/stand-in/runfile-fails ]; then
    touch "$root/bin/uninstall_cuda_9.2.pl"
    echo "Toolkit: Installation Failed. Using unsupported Compiler."
    exit 0
fi
for name in bin/ptxas bin/nvlink bin/fatbinary include/cuda.h; do
    echo "A stand-in." >"$root/$name"
done
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
cd "$root/lib64"
cp libcublas.so.9.2.148 libcublas.so.{cublas}
ln -sf libcublas.so.{cublas} libcublas.so.9.2
echo "CUDA Patch Version {release}" >>"$root/version.txt"
"""
# The packages of a patch beside cuBLAS, by its release. No page of NVIDIA lists them for 9.2, so
# the roles must ask yum.
PATCHED = {"9.2.148.1": ("cudart", "cudart-dev", "nvcc"), "9.0.176.3": ("core",)}
LIBRARIES = ("cublas", "cufft", "curand", "cusolver", "cusparse", "nvrtc")


def noise(size):
    """Return the same bytes each time, which cannot be compressed."""
    return subprocess.run(
        ["openssl", "enc", "-aes-128-ctr", "-nosalt", "-pass", "pass:stand-in"],
        input=bytes(size),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    ).stdout


def cuda(version, release, stubs):
    """Return the RPMs of a CUDA's local repository; `stubs` is the folder of its libraries."""
    tag, root = version.replace(".", "-"), "/usr/local/cuda-" + version

    def package(name, *requires, **options):
        return Package(
            "cuda-%s-%s" % (name, tag),
            release,
            requires=[word.format(tag) for word in requires],
            **options,
        )

    def library(name):
        # NVRTC loads libnvrtc-builtins at run time, from the same package.
        names = (name, "nvrtc-builtins") if name == "nvrtc" else (name,)
        paths = [path for one in names for path in stubs.glob("lib%s.so*" % one)]
        return {"%s/targets/x86_64-linux/lib/%s" % (root, path.name): path for path in paths}

    nvcc = NVCC.format(version=version, release=release)
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
        package("nvcc", "cuda-license-{}", files={root + "/bin/nvcc": nvcc}),
        package("documentation", files={root + "/doc/bulk": noise(2 << 20)}),
    ]
    for name in LIBRARIES:
        made += [
            package(name, "cuda-license-{}", files=library(name)),
            package(name + "-dev", "cuda-%s-{}" % name),
        ]
    suite = {root + "/extras/demo_suite/deviceQuery": DEVICE_QUERY}
    made.append(package("demo-suite", "cuda-runtime-{}", files=suite))
    return made + without_files(package) + with_driver(tag, release)


def without_files(package):
    """Return the RPMs of a CUDA that only require others."""
    libraries = ["cuda-%s-{}" % name for name in LIBRARIES if name != "nvrtc"]
    return [
        package("libraries", "cuda-cudart-{}", *libraries),
        package("libraries-dev", "cuda-libraries-{}", "cuda-cudart-dev-{}", "cuda-cublas-dev-{}"),
        package("core", "cuda-license-{}"),
        package("compiler", "cuda-nvcc-{}", "cuda-core-{}"),
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
        package("runtime", "cuda-libraries-{}", "cuda-drivers"),
    ]


def with_driver(tag, release):
    """Return the RPMs of a CUDA that the roles must not install: with others they need a driver."""
    parts = ("toolkit", "runtime", "demo-suite")
    return [
        Package("cuda-" + tag, release, requires=["cuda-%s-%s" % (part, tag) for part in parts]),
        Package("cuda", release, requires=["cuda-" + tag]),
        Package("cuda-drivers", "396.37", requires=["nvidia-kmod"]),
        Package("nvidia-kmod", "396.37"),
    ]


def patch(version, release, stubs):
    """Return the RPMs of a patch: a newer cuBLAS, and further packages."""
    tag, folder = version.replace(".", "-"), "/usr/local/cuda-%s/targets/x86_64-linux/lib" % version
    files = {"%s/%s" % (folder, path.name): path for path in stubs.glob("libcublas.so*")}
    made = [
        Package("cuda-cublas-" + tag, release, requires=["cuda-license-" + tag], files=files),
        Package("cuda-cublas-dev-" + tag, release, requires=["cuda-cublas-" + tag]),
    ]
    same = {one.name: one for one in cuda(version, release, stubs)}
    return made + [same["cuda-%s-%s" % (name, tag)] for name in PATCHED.get(release, ())]


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
    return text, PATCH.format(release=patch, cublas="9.2.174")


def table():
    """Return the content of packages.yml."""
    return yaml.safe_load((HERE / "packages.yml").read_text())


def driver(version, flavour, kmod):
    """Return the RPMs of a driver set as NVIDIA packs it for EL 7, with or without its kmod."""

    def filled(value):
        return value.replace("{V}", version).replace("{F}", flavour)

    rows = table()["driver"]
    made = []
    for name, row in rows["packages"].items():
        row = dict(row, requires=list(row.get("requires", [])))
        if name == "nvidia-driver-{F}":
            row["requires"] += rows["flavours"][flavour]
        made.append(packed(dict(row, name=name, version="{V}"), filled, rows))
    if kmod:
        made.append(packed(dict(rows["kmod"], version="{V}"), filled, rows))
    return made


def packed(row, filled=str, defaults=None):
    """Return the RPM of a row of packages.yml.

    Args: `filled` a function for each text; `defaults` {"epoch", "release"} of a whole set.
    """
    row = dict({name: (defaults or {}).get(name) for name in ("epoch", "release")}, **row)
    files = {path: HERE / source for path, source in row.get("files", {}).items()}
    files.update({path: filled(text) for path, text in row.get("texts", {}).items()})
    files.update({path: Link(target) for path, target in row.get("links", {}).items()})
    if row["name"] == "kernel-devel":
        kernel = "%s-%s.x86_64" % (row["version"], row["release"])
        files["/usr/src/kernels/%s/Makefile" % kernel] = "# A stand-in.\n"
        row["provides"] = ["kernel-devel-uname-r = " + kernel]
    return Package(
        filled(row["name"]),
        filled(row["version"]),
        row["release"] or "1",
        files=files,
        epoch=row["epoch"],
        post="; ".join(map(filled, row.get("post", []))),
        preun="; ".join(map(filled, row.get("preun", []))),
        **{
            kind: [filled(one) for one in row.get(kind, [])]
            for kind in ("requires", "provides", "conflicts", "obsoletes")
        },
    )


def others(place):
    """Return the RPMs of a list of packages.yml: ("network", "others"), ("centos", "os"), ..."""
    rows = table()
    for name in place:
        rows = rows[name]
    return [packed(row) for row in rows]


def system(repository, python, libraries):
    """Return CentOS's RPMs of a repository, beside those of packages.yml.

    Args:
        repository: "os" or "updates".
        python: the folder of the copy of Python 3.6.
        libraries: the copies of gcc's libraries by package.
    """
    if repository == "updates":
        library = "libpython3.6m.so.1.0"
        files = {
            "/usr/bin/python3.6": python / "bin/python3.6",
            "/usr/bin/python3": Link("python3.6"),
            "/usr/lib64/" + library: python / "lib" / library,
            "/usr/lib/python3.6": python / "lib/python3.6",
        }
        return [Package("python3", "3.6.8", "21.el7_9", files=files, post="/sbin/ldconfig")]
    made = [Package("gcc", "4.8.5", "44.el7", files={"/usr/bin/gcc": "#!/bin/sh\nexit 1\n"})]
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
