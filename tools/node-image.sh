#!/usr/bin/env bash
# Makes the image that molecule's nodes are containers of, unless there is one, and prints its name: a minimal system of the
# kind that this machine runs, with systemd and sshd. It comes from the distribution's own packages, from no image registry.
# MXCLUSTER_NODE_IMAGE names another image to use instead: one with systemd, sshd, sudo for a user admin, python3 and iproute2.
# `node-image.sh el7` makes the same into a stand-in for CentOS 7 (molecule/el7/stand_in); MXCLUSTER_EL7_IMAGE names a real one.
set -euo pipefail

packages=(
    systemd systemd-sysv dbus                 # a node's processes are units
    openssh-server rsync sudo                 # the controller and the other nodes come in
    python3 iproute2 procps                   # what Ansible asks of a node
    nftables netbase                          # a firewall
    libgomp1 libquadmath0                     # what MXNet's wheel needs of the system
)

cd "$(dirname "$0")/.."
kind=${1:-plain}
sources=(tools/node-image.sh)
given=${MXCLUSTER_NODE_IMAGE:-}
if [[ $kind == el7 ]]; then
    packages+=(rpm dnf python3-dnf gnupg)
    sources+=(molecule/el7/stand_in/image.sh $(find molecule/el7/stand_in/root -type f | sort))
    given=${MXCLUSTER_EL7_IMAGE:-}
fi
if [[ -n $given ]]; then
    echo "$given"
    exit
fi

refuse() {
    printf 'mxcluster: %s\n' "$@" >&2
    exit 1
}

# A change of this file, or of one that the kind is made of, makes another image.
name=mxcluster-node:${kind/plain/}$(cat "${sources[@]}" | sha256sum | cut -c 1-12)
if docker image inspect "$name" >/dev/null 2>&1; then
    echo "$name"
    exit
fi

[[ $(id -u) == 0 ]] && command -v apt-get >/dev/null ||
    refuse "the image $name is made with debootstrap, by root on Debian or Ubuntu." \
        "Run this there once, or name an image of yours: MXCLUSTER_NODE_IMAGE=... (it needs systemd, sshd, sudo for a user admin, python3, iproute2)."
if ! command -v debootstrap >/dev/null; then
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
fi

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Codename: $release" "Component: main" | sort -u | head -n 1)
[[ -n $mirror ]] || refuse "apt knows no source of the packages of $release: run apt-get update, then this again."

echo "mxcluster: making the image $name ($release; about a minute, the first time only)" >&2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase --include="$(IFS=, && echo "${packages[*]}")" "$release" "$folder/root" "$mirror" >"$folder/log" 2>&1 ||
    refuse "debootstrap failed; the end of its log:" "$(tail -n 15 "$folder/log")"

root=$folder/root
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale} "$root"/etc/ssh/ssh_host_*
# Every container makes host keys of its own, as every machine does.
cat >"$root/etc/systemd/system/ssh-host-keys.service" <<'UNIT'
[Unit]
Description=This machine's own ssh host keys
Before=ssh.service
[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A
[Install]
RequiredBy=ssh.service
UNIT
# Some scenarios come in as root, some as somebody who may use sudo.
chroot "$root" useradd --create-home --shell /bin/bash admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/admin"
chroot "$root" systemctl --quiet enable ssh.service ssh-host-keys.service 2>/dev/null
chroot "$root" systemctl --quiet mask systemd-logind.service systemd-timesyncd.service systemd-udevd.service 2>/dev/null
if [[ $kind == el7 ]]; then
    molecule/el7/stand_in/image.sh "$root" >&2
fi
tar -C "$root" -c . | docker import --change 'CMD ["/sbin/init"]' - "$name" >/dev/null
echo "$name"
