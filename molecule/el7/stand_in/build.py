"""Build the files of NVIDIA's, CentOS's and EPEL's servers as stand-ins: `python build.py FOLDER`.

The program builds them once and prints the folder. The only real files are Python 3.6 and gcc's
run-time libraries, which come from this machine. Names, versions, layout and relations follow the
real packages as far as known; the signatures are real, with keys made here. facts.json contains
fingerprints and digests for the scenario.
"""

import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import contents
import rpms
import stubs

HERE = pathlib.Path(__file__).parent
# version: (release, folder of its URL, suffix of its RPMs, patches: (name of the RPM, folder that
# it installs, release))
CUDA = {
    "9.2": (
        "9.2.148",
        "Prod2",
        "",
        [("cuda-repo-rhel7-9-2-148-local-patch-1", "cuda-repo-9-2-148-local-patch-1", "9.2.148.1")],
    ),
    "9.0": (
        "9.0.176",
        "Prod",
        "-rpm",
        [
            (
                "cuda-repo-rhel7-9-0-local-cublas-performance-update",
                "cuda-repo-9-0-local-cublas-performance-update",
                "9.0.176.1",
            ),
            (
                "cuda-repo-rhel7-9-0-local-cublas-performance-update-2",
                "cuda-repo-9-0-local-cublas-performance-update-2",
                "9.0.176.2",
            ),
            (
                "cuda-repo-rhel7-9-0-local-cublas-performance-update-3",
                "cuda-repo-9-0-local-cublas-performance-update-3",
                "9.0.176.3",
            ),
            (
                "cuda-repo-rhel7-9-0-176-local-patch-4",
                "cuda-repo-9-0-176-local-patch-4",
                "9.0.176.4",
            ),
        ],
    ),
}
REPO = (
    "[{id}]\nname={id}\nbaseurl=file:///var/{folder}\nenabled=1\ngpgcheck=1\n"
    "gpgkey=file:///var/{folder}/7fa2af80.pub\n"
)
CUDNN = (7, 6, 5, 32)


TOOLS = {
    "rpmbuild": "rpm",
    "createrepo_c": "createrepo-c",
    "gpg": "gnupg",
    "gcc": "gcc",
    "openssl": "openssl",
}  # program: Debian package


def tools():
    """Install the programs that the build needs."""
    missing = [package for program, package in TOOLS.items() if not shutil.which(program)]
    if missing and (os.getuid() != 0 or not shutil.which("apt-get")):
        raise SystemExit(
            "mxcluster: the stand-in for CentOS 7 needs Debian's packages %s: install them"
            % ", ".join(missing)
        )
    if missing:
        install = str(HERE.parents[2] / "tools" / "apt-install.sh")
        subprocess.run([install, *missing], stdout=subprocess.DEVNULL, check=True)


def main(target):
    """Build into a folder of `target` named by a digest of these sources, unless it exists."""
    tools()
    sources = sorted(path for path in [*HERE.glob("*.*"), *HERE.glob("driver/*")] if path.is_file())
    name = hashlib.sha256(
        b"".join(path.read_bytes() for path in sources) + os.uname().release.encode()
    ).hexdigest()[:12]
    final = pathlib.Path(target).resolve() / name
    final.parent.mkdir(parents=True, exist_ok=True)
    with open(str(final) + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make test` builds them beside its first tests
        if not final.exists():
            print("mxcluster: building the stand-in's packages (%s)" % final, file=sys.stderr)
            work = pathlib.Path(tempfile.mkdtemp(dir=str(final.parent)))
            try:
                try:
                    build(work)
                finally:  # gpg has started an agent
                    subprocess.run(["gpgconf", "--homedir", str(work / "gnupg"), "--kill", "all"])
                work.rename(final)
            finally:
                shutil.rmtree(str(work), ignore_errors=True)
    print(final)


def build(folder):
    """Build everything into a folder."""
    compute, work = folder / "www/compute", folder / "work"
    network = compute / "cuda/repos/rhel7/x86_64"
    network.mkdir(parents=True)
    keys = rpms.Keys(folder / "gnupg")
    made = {
        name: keys.make(name) for name in ("centos", "epel", "nvidia-old", "nvidia-new", "stranger")
    }
    for name, short in (("nvidia-old", "7fa2af80"), ("nvidia-new", "D42D0685")):
        (network / (short + ".pub")).write_text(made[name][1])
    (folder / "RPM-GPG-KEY-CentOS-7").write_text(made["centos"][1])

    for version in CUDA:
        local(folder, version, keys, made["nvidia-old"])
    for packages in (
        *(contents.driver(**one) for one in contents.table()["network"]["drivers"]),
        contents.others(("network", "others")),
        contents.cuda("9.2", "9.2.148", folder / "stubs-9.2"),
        contents.patch("9.2", "9.2.148.1", folder / "stubs-9.2"),
    ):
        rpms.build(packages, work, network, keys, made["nvidia-new"][0])
    centos, epel = folder / "www/vault", folder / "www/epel"
    for release in contents.table()["centos"]:
        target = centos / release / ("os/x86_64" if release[0].isdigit() else "x86_64")
        rpms.build(contents.others(("centos", release)), work, target, keys, made["centos"][0])
    system = contents.system("os", None, run_time(folder / "gcc"))
    rpms.build(system, work, centos / "os/x86_64", keys, made["centos"][0])
    python = python36(folder / "python")
    for packages, name in (
        (contents.system("updates", python, None), "updates"),
        ([contents.epel_release(made["epel"][1])], "extras"),
    ):
        rpms.build(packages, work, centos / name / "x86_64", keys, made["centos"][0])
    rpms.build(contents.others(("epel",)), work, epel / "7/x86_64", keys, made["epel"][0])
    (epel / "RPM-GPG-KEY-EPEL-7").write_text(made["epel"][1])
    (centos / "7.6.1810/updates/x86_64").mkdir(parents=True)
    for repository in (network, epel / "7/x86_64", *centos.glob("**/x86_64")):
        rpms.repository(repository)

    archives = {cudnn(compute, version) for version in CUDA}
    archives.update(runfiles(compute, folder / "stubs-9.2"))
    facts = {
        "fingerprints": {name: fingerprint for name, (fingerprint, _) in made.items()},
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in archives},
    }
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))
    stranger = folder / "stranger"  # the installer of CUDA 9.2, signed with another key
    stranger.mkdir()
    installer = next(compute.glob("cuda/9.2/*/local_installers/cuda-repo-*"))
    shutil.copy(str(installer), str(stranger / "installer.rpm"))
    keys.sign(made["stranger"][0], [stranger / "installer.rpm"])


def local(folder, version, keys, key):
    """Build NVIDIA's local repository of a CUDA as one RPM, and its patches."""
    release, part, suffix, patches = CUDA[version]
    tag, compute, work = (
        version.replace(".", "-"),
        folder / "www/compute" / "cuda" / version / part,
        folder / "work",
    )
    libraries = folder / ("stubs-" + version)
    stubs.make(libraries, version, release)
    everything = [
        (
            "cuda-repo-rhel7-%s-local" % tag,
            release,
            "cuda-repo-%s-local" % tag,
            compute / "local_installers",
            contents.cuda(version, release, libraries),
        )
    ]
    for number, (name, dropped, patch) in enumerate(patches, 1):
        everything.append(
            (
                name,
                "1.0",
                dropped,
                compute / "patches" / str(number),
                contents.patch(version, patch, libraries),
            )
        )
    for name, number, dropped, target, packages in everything:
        inner = folder / "inner" / dropped
        rpms.build(packages, work, inner, keys, key[0])
        rpms.repository(inner)
        if "local_installers" in target.parts:  # a trap: the folders of patches have no key
            (inner / "7fa2af80.pub").write_text(key[1])
        identity = dropped.replace("cuda-repo-", "cuda-")
        outer = rpms.Package(
            name,
            number,
            files={
                "/var/" + dropped: inner,
                "/etc/yum.repos.d/%s.repo" % identity: REPO.format(id=identity, folder=dropped),
            },
        )
        (path,) = rpms.build([outer], work, target, keys, key[0])
        path.rename(target / (path.name[: -len(".rpm")] + suffix))


def runfiles(compute, stubs):
    """Write the installer of CUDA 9.2 for any Linux, and its patch; yield the paths."""
    for text, name in zip(
        contents.runfiles("9.2", "9.2.148", "9.2.148.1", stubs),
        ("local_installers/cuda_9.2.148_396.37_linux", "patches/1/cuda_9.2.148.1_linux"),
        strict=True,
    ):
        path = compute / "cuda/9.2/Prod2" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        yield path


def cudnn(compute, version):
    """Build cuDNN's archive for a CUDA, with the members of the real one, but no folders."""
    major, minor, patch, build = CUDNN
    release = "%d.%d.%d" % (major, minor, patch)
    folder = compute / "redist/cudnn" / ("v" + release)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("cudnn-%s-linux-x64-v%s.%d.tgz" % (version, release, build))
    header = "#define CUDNN_MAJOR %d\n#define CUDNN_MINOR %d\n#define CUDNN_PATCHLEVEL %d\n" % (
        major,
        minor,
        patch,
    )
    with tempfile.TemporaryDirectory() as top:
        library = pathlib.Path(top) / ("libcudnn.so." + release)
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcudnn.so.7", "-o", library, "-x", "c", "-"],
            check=True,
            input=(
                "unsigned long cudnnGetVersion() { return %d; }\n"
                % (major * 1000 + minor * 100 + patch)
            ).encode(),
        )
        parts = {
            "cuda/include/cudnn.h": header,
            "cuda/NVIDIA_SLA_cuDNN_Support.txt": "A stand-in.\n",
            "cuda/lib64/libcudnn.so": rpms.Link("libcudnn.so.7"),
            "cuda/lib64/libcudnn.so.7": rpms.Link(library.name),
            "cuda/lib64/" + library.name: library,
            "cuda/lib64/libcudnn_static.a": "!<arch>\n",
        }
        package = rpms.Package("cudnn", release, files=parts)
        package.files.popitem()  # the note that every RPM contains
        package.lay(pathlib.Path(top) / "stage")
        with tarfile.open(str(path), "w:gz") as archive:
            for name in parts:
                archive.add(str(pathlib.Path(top) / "stage" / name), name)
    return path


def run_time(folder):
    """Copy gcc's libraries that MXNet's wheel needs to `folder`; return {package: path or None}.

    libgfortran has no file here, since the wheel contains it.
    """

    def found(name):
        path = (
            subprocess.run(["gcc", "-print-file-name=" + name], stdout=subprocess.PIPE, check=True)
            .stdout.decode()
            .strip()
        )
        return pathlib.Path(path)

    folder.mkdir()
    libraries = {}
    for package, name in (("libgomp", "libgomp.so.1"), ("libquadmath", "libquadmath.so.0")):
        shutil.copy(str(found(name).resolve()), str(folder / name))
        libraries[package] = folder / name
    return dict(libraries, libgfortran=None)


def python36(folder):
    """Copy a Python 3.6 of pyenv without large parts that the tests do not need."""
    versions = pathlib.Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = sorted(versions.glob("3.6.*/bin/python3.6"))
    if not found:
        raise SystemExit(
            "mxcluster: the stand-in for CentOS 7 needs a Python 3.6 of pyenv: pyenv install 3.6.15"
        )
    root = found[-1].parents[1]
    skip = shutil.ignore_patterns(
        "test",
        "tests",
        "idlelib",
        "*tkinter*",
        "lib2to3",
        "site-packages",
        "config-*",
        "__pycache__",
    )
    (folder / "bin").mkdir(parents=True)
    shutil.copy2(str(found[-1]), str(folder / "bin/python3.6"))
    shutil.copytree(str(root / "lib/python3.6"), str(folder / "lib/python3.6"), ignore=skip)
    shutil.copy2(str(root / "lib/libpython3.6m.so.1.0"), str(folder / "lib"))
    return folder


if __name__ == "__main__":
    main(sys.argv[1])
