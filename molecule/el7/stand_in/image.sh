#!/usr/bin/env bash
# Turn a Debian root into a stand-in for a bare CentOS 7.9: image.sh ROOT, called by
# tools/node-image.sh el7. Only the release files, the repository file and the versions of Python
# are real. The C library, systemd, sshd and rpm are Debian's and newer than CentOS's. yum is dnf 4
# with habits of yum 3 (root/usr/share/yum-cli/yummain.py), and root/usr/lib/python2.7/yum lets
# Ansible's real module yum run on it.
# dracut, grubby, modinfo, modprobe and uname are scripts that record calls or print invented values.
set -euo pipefail
root=$1
here=$(dirname "$0")
python27=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7.* 2>/dev/null | tail -n 1)
[[ -n $python27 ]] || {
    echo "mxcluster: the stand-in for CentOS 7 needs a Python 2.7 of pyenv's to copy: pyenv install 2.7.18" >&2
    exit 1
}

mkdir -p "$root/usr/libexec/stand-in"
mv "$root/usr/bin/uname" "$root/usr/libexec/stand-in/"
cp -a --no-preserve=ownership --remove-destination "$here/root/." "$root"
mkdir -p "$root/etc/modprobe.d" "$root/usr/libexec/stand-in" "$root/etc/pki/rpm-gpg" "$root/usr/lib64"

# yum's plugin versionlock is a package of its own, which is not there yet. Its list is where yum has it.
plugins=$root/usr/lib/python3/dist-packages/dnf-plugins
# yum 3 writes epoch:name-version-release, dnf name-epoch:version-release.
sed -e 's/^import os.*/&, re/' \
    -e 's/locklist.append(line.strip())/locklist.append(re.sub(r"^(\\d+):(.*)-([^-]+-[^-]+)$", r"\\2-\\1:\\3", line.strip()))/' \
    "$plugins/versionlock.py" >"$root/usr/libexec/stand-in/versionlock.py"
rm -rf "$plugins"/*.py "$root"/etc/dnf/plugins/*
mkdir -p "$root/etc/yum/pluginconf.d"
printf '[main]\nenabled = 1\nlocklist = /etc/yum/pluginconf.d/versionlock.list\n' >"$root/etc/dnf/plugins/versionlock.conf"

# yum 3 keeps versions of kernel-devel beside each other, dnf by default only those of kernel.
printf '%s\n' '[main]' gpgcheck=1 obsoletes=1 plugins=1 installonly_limit=5 'installonlypkgs=kernel kernel-devel' \
    >"$root/etc/yum.conf"
ln -sf ../yum.conf "$root/etc/dnf/dnf.conf"

# dnf runs on /usr/libexec/platform-python. The system's Python is 2.7, and python3 is missing until
# an installation.
mv "$root"/usr/bin/python3.[0-9]* "$root/usr/libexec/stand-in/python3"
mv "$root/usr/bin/dnf-3" "$root/usr/libexec/stand-in/dnf"
rm -f "$root"/usr/bin/{dnf,python3,apt,apt-*,dpkg,dpkg-*} "$root"/etc/debian_version
cp -a "$python27/bin/python2.7" "$root/usr/bin/"
ln -s python2.7 "$root/usr/bin/python2"
ln -s python2 "$root/usr/bin/python"
cp -a "$python27"/lib/libpython2.7.so* "$root/usr/lib64/"
(cd "$python27/lib" && tar -c --exclude=test --exclude=tests --exclude=site-packages --exclude=config --exclude='*.py[co]' \
    --exclude=lib-tk --exclude=idlelib --exclude=lib2to3 --exclude=_tkinter.so python2.7) | tar -x -C "$root/usr/lib" --no-same-owner

# Hide libraries that a bare CentOS 7 may lack, so that the tests check their installation: the RPMs
# libgomp and libquadmath contain them. Debian's rpm is linked to libgomp, so only move libgomp.
mv "$root"/usr/lib/x86_64-linux-gnu/libgomp.so.1* "$root/usr/libexec/stand-in/"
rm -f "$root"/usr/lib/x86_64-linux-gnu/libquadmath.so.0*
chroot "$root" systemctl --quiet enable stand-in-hardware.service
chroot "$root" rpm --initdb
chroot "$root" ldconfig
