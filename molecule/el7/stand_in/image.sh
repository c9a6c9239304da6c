#!/usr/bin/env bash
# Makes a Debian root into what passes for a bare CentOS 7.9: image.sh ROOT, called by tools/node-image.sh el7.
# Not real in it: everything but the release files, the repository file and the versions of Python. The C library, systemd, sshd
# and rpm are Debian's, newer than CentOS's; yum is dnf 4; dracut, grubby and modinfo are scripts that write down or make up.
set -euo pipefail
root=$1
here=$(dirname "$0")
python27=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7.* 2>/dev/null | tail -n 1)
[[ -n $python27 ]] || {
    echo "mxcluster: the stand-in for CentOS 7 needs a Python 2.7 of pyenv's to copy: pyenv install 2.7.18" >&2
    exit 1
}

cp -a --no-preserve=ownership --remove-destination "$here/root/." "$root"
mkdir -p "$root/etc/modprobe.d" "$root/usr/libexec/stand-in" "$root/etc/pki/rpm-gpg" "$root/usr/lib64"

# dnf gets the interpreter that Ansible's module looks for where a system's own is another: /usr/libexec/platform-python. The
# system's own is Python 2.7, and there is no python3 until it is installed.
mv "$root"/usr/bin/python3.[0-9]* "$root/usr/libexec/stand-in/python3"
mv "$root/usr/bin/dnf-3" "$root/usr/libexec/stand-in/dnf"
rm -f "$root"/usr/bin/{dnf,python3,apt,apt-*,dpkg,dpkg-*} "$root"/etc/debian_version
cp -a "$python27/bin/python2.7" "$root/usr/bin/"
ln -s python2.7 "$root/usr/bin/python2"
ln -s python2 "$root/usr/bin/python"
cp -a "$python27"/lib/libpython2.7.so* "$root/usr/lib64/"
(cd "$python27/lib" && tar -c --exclude=test --exclude=tests --exclude=site-packages --exclude=config --exclude='*.py[co]' \
    --exclude=lib-tk --exclude=idlelib --exclude=lib2to3 --exclude=_tkinter.so python2.7) | tar -x -C "$root/usr/lib" --no-same-owner

# What a bare CentOS 7 need not have is hidden, so that what installs it is seen to: the RPMs libgomp and libquadmath bring them.
# Debian's rpm itself is linked to libgomp.
mv "$root"/usr/lib/x86_64-linux-gnu/libgomp.so.1* "$root/usr/libexec/stand-in/"
rm -f "$root"/usr/lib/x86_64-linux-gnu/libquadmath.so.0*
chroot "$root" systemctl --quiet enable stand-in-hardware.service
chroot "$root" rpm --initdb
chroot "$root" ldconfig
