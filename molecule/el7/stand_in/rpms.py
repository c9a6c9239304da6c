"""Build and sign small RPMs, and make repositories of them, with Debian's tools.

The tools are rpmbuild, rpmsign and createrepo_c.
"""

import os
import pathlib
import shlex
import shutil
import subprocess

GPG_BATCH = """%no-protection
Key-Type: RSA
Key-Length: 2048
Name-Real: {name}
Name-Email: stand-in@mxcluster.invalid
Expire-Date: 0
%commit
"""
HEAD = """%global __os_install_post %{{nil}}
%global debug_package %{{nil}}
%global _build_id_links none
%global _binary_payload w1.gzdio
Name: stand-in
Version: 1
Release: 1
Summary: None of it is real
License: none
AutoReqProv: no
%description
Built by mxcluster's tests with the names and the layout of the real package, and other contents.
%install
cp -a {stage}/. %{{buildroot}}
"""
PACKAGE = """%package -n {name}
Version: {version}
Release: {release}
Summary: A stand-in for {name}
AutoReqProv: no
{epoch}{relations}
%description -n {name}
Built by mxcluster's tests with the names and the layout of the real package, and other contents.
{scripts}%files -n {name} -f {files}
"""


class Package:
    """One RPM with files of the form {path: content}.

    The content is a text (executable if it begins with #!), bytes, a Path of a file or folder to
    copy, or a Link.
    """

    def __init__(
        self, name, version, release="1", files=None, post="", preun="", epoch=None, **relations
    ):
        """Args: `relations` requires, provides, conflicts and obsoletes, as lists."""
        self.name, self.version, self.release, self.epoch = name, version, release, epoch
        self.relations, self.files = relations, dict(files or {})
        self.scripts = {"post": post, "preun": preun}
        self.files.setdefault(
            "/usr/share/stand-in/%s-%s" % (name, version), "This is not %s.\n" % name
        )

    def spec(self, files):
        """Return its part of the spec file."""
        relations = [
            "%s: %s" % (kind.capitalize(), what)
            for kind, others in sorted(self.relations.items())
            for what in others
        ]
        # The scriptlets run in rpm's own Lua: no RPM here provides a /bin/sh.
        scripts = "".join(
            "%%%s -n %s -p <lua>\nos.execute('%s')\n" % (when, self.name, script)
            for when, script in self.scripts.items()
            if script
        )
        return PACKAGE.format(
            name=self.name,
            version=self.version,
            release=self.release,
            files=files,
            relations="\n".join(relations),
            scripts=scripts,
            epoch="" if self.epoch is None else "Epoch: %d\n" % self.epoch,
        )

    def lay(self, stage):
        """Put its files into the stage; return the lines of its file list."""
        lines = []
        for path, content in self.files.items():
            target = stage / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Link):
                target.symlink_to(content)
            elif isinstance(content, pathlib.Path):
                copy(content, target)
            else:
                target.write_bytes(content.encode() if isinstance(content, str) else content)
                target.chmod(0o755 if target.read_bytes().startswith(b"#!") else 0o644)
            lines.append(path)
        return "".join('"%s"\n' % line for line in lines)


class Link(str):
    """The target of a symbolic link."""


def copy(source, target):
    """Copy a file, a link or a folder unchanged."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(str(source), str(target), symlinks=True)
    else:
        shutil.copy2(str(source), str(target), follow_symlinks=False)


class Keys:
    """Keys for signatures, created in their own folder."""

    def __init__(self, home):
        self.home = home
        home.mkdir(mode=0o700, parents=True)

    def gpg(self, *words, **options):
        """Return the output of gpg."""
        return subprocess.run(
            ["gpg", "--homedir", self.home, "--batch", "--quiet", *words],
            stdout=subprocess.PIPE,
            check=True,
            **options,
        ).stdout.decode()

    def make(self, name):
        """Create a key; return its fingerprint and its public part."""
        self.gpg("--generate-key", input=GPG_BATCH.format(name=name).encode())
        listed = self.gpg("--with-colons", "--list-keys", "=%s <stand-in@mxcluster.invalid>" % name)
        fingerprint = next(
            line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr")
        )
        return fingerprint, self.gpg("--armor", "--export", fingerprint)

    def sign(self, fingerprint, paths):
        """Sign RPMs in place."""
        subprocess.run(
            [
                "rpmsign",
                "--define",
                "__gpg /usr/bin/gpg",
                "--define",
                "_gpg_name " + fingerprint,
                "--addsign",
                *paths,
            ],
            check=True,
            env=dict(os.environ, GNUPGHOME=str(self.home), GPG_TTY=""),
            stdout=subprocess.DEVNULL,
        )


def build(packages, work, target, keys=None, key=None):
    """Build packages with different names into the folder `target`; return their paths.

    With a key the packages are signed.
    """
    stage, top = work / "stage", work / "top"
    for folder in (stage, top, target):
        folder.mkdir(parents=True, exist_ok=True)
    spec = [HEAD.format(stage=shlex.quote(str(stage)))]
    for package in packages:
        files = work / (package.name + ".files")
        files.write_text(package.lay(stage))
        spec.append(package.spec(files))
    (work / "stand-in.spec").write_text("\n".join(spec))
    done = subprocess.run(
        ["rpmbuild", "-bb", "--quiet", "--define", "_topdir %s" % top, str(work / "stand-in.spec")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SystemExit("rpmbuild: %s" % done.stdout.decode())
    built = []
    for path in sorted(top.glob("RPMS/*/*.rpm")):
        built.append(target / path.name)
        shutil.move(str(path), str(built[-1]))
    shutil.rmtree(str(work))
    if key:
        keys.sign(key, built)
    return built


def repository(folder):
    """Make repodata for a folder with RPMs."""
    subprocess.run(["createrepo_c", "--quiet", "--compatibility", folder], check=True)
