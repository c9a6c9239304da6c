#!/usr/bin/env bash
# Make the container image of molecule's nodes, unless it exists, and print its name.
#
# The image is a minimal system of this machine's distribution, with systemd and sshd. It comes from
# the distribution's packages, not from an image registry. It has the MPI engines of mpi.yml.
# MXCLUSTER_NODE_IMAGE names another image: it needs systemd, sshd, sudo for a user admin, python3,
# iproute2 and the MPI engines. `node-image.sh el7` turns the image into a stand-in for CentOS 7
# (molecule/el7/stand_in); MXCLUSTER_EL7_IMAGE names a real CentOS 7. `node-image.sh slurm` and
# `node-image.sh sge` add a batch system to the image, `node-image.sh container` a docker engine.
# `node-image.sh bare-trixie` makes another image: Debian 13 with apt and nothing else, a fresh
# machine for tests/fresh. `node-image.sh node-bullseye` makes a node of Debian 11, without MPI; for
# this machine's own release the plain image serves. Debian makes both kinds also of other releases.
set -euo pipefail

packages=(
    systemd systemd-sysv dbus                 # a node runs processes as units
    openssh-server rsync sudo                 # access of the controller and the other nodes
    python3 iproute2 procps                   # requirements of Ansible
    nftables netbase                          # a firewall
    libgomp1 libquadmath0                     # system libraries of MXNet's wheel
)
engines=(openmpi-bin) # of MPI programs
declare -A added=( # packages of the other images
    [el7]='rpm dnf python3-dnf dnf-plugins-core gnupg'
    [slurm]='slurmctld slurmd slurm-client munge'
    [sge]='gridengine-master gridengine-exec gridengine-client dma'
    [container]='docker.io iptables'
)

cd "$(dirname "$0")/.."
kind=${1:-plain}
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[[ $kind != "node-$release" ]] || kind=plain
sources=(tools/node-image.sh molecule/shared/mpi.sh tests/startup/module_bytecode.py)
given=${MXCLUSTER_NODE_IMAGE:-}
if [[ $kind == el7 ]]; then
    sources+=(molecule/el7/stand_in/image.sh $(find molecule/el7/stand_in/root -type f | sort))
    given=${MXCLUSTER_EL7_IMAGE:-}
elif [[ $kind != plain ]]; then
    given= # MXCLUSTER_NODE_IMAGE has neither a batch system nor a docker engine
fi
if [[ -n $given ]]; then
    echo "$given"
    exit
fi

refuse() {
    printf 'mxcluster: %s\n' "$@" >&2
    exit 1
}

[[ $kind == plain || $kind == bare-* || $kind == node-* ]] ||
    plain=$(MXCLUSTER_NODE_IMAGE='' tools/node-image.sh)

# A change of this file or of another source makes another image.
name=mxcluster-node:${kind/plain/}$(cat "${sources[@]}" | sha256sum | cut -c 1-12)
. tools/lock.sh
open_lock images
flock "$lock" # another run, perhaps of another clone, may be making the image
if docker image inspect "$name" >/dev/null 2>&1; then
    echo "$name"
    exit
fi

[[ $(id -u) == 0 ]] && command -v apt-get >/dev/null ||
    refuse "only root on Debian or Ubuntu can make the image $name, with mmdebstrap." \
        "Run this command once as root, or name another image: MXCLUSTER_NODE_IMAGE=..." \
        "(it needs systemd, sshd, sudo for a user admin, python3, iproute2, Open MPI, MPICH)."
if ! command -v mmdebstrap >/dev/null; then
    tools/apt-install.sh mmdebstrap >/dev/null
fi

[[ $kind != bare-* && $kind != node-* ]] || grep -q '^ID=debian$' /etc/os-release ||
    refuse "the image $name needs Debian's packages, and this system is not Debian."
components=main
! grep -q '^ID=ubuntu' /etc/os-release || components=main,universe # where Ubuntu has Open MPI
mirror=$(apt-get indextargets --format '$(REPO_URI)' \
    "Created-By: Packages" "Codename: $release" "Component: main" | sort -u | head -n 1)
[[ -n $mirror ]] ||
    refuse "apt has no source for the packages of $release: run apt-get update, then this again."

echo "mxcluster: making the image $name ($release; about a minute, the first time only)" >&2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[[ $kind != bare-* && $kind != node-* ]] || release=${kind#*-}
root=$folder/root
options=(force-unsafe-io 'path-exclude=/usr/share/'{doc,man,locale}'/*') # of dpkg

# bootstrap PACKAGE...: make the root folder of a minimal system with these packages
bootstrap() {
    local names
    names=$(IFS=, && echo "$*")
    mmdebstrap --mode=root --variant=minbase --components=$components \
        ${names:+"--include=$names"} \
        "${options[@]/#/--dpkgopt=}" "$release" "$root" "$mirror" >"$folder/log" 2>&1 ||
        refuse "mmdebstrap failed; the end of its log:" "$(tail -n 15 "$folder/log")"
}

# make_node PACKAGE...: make the root folder of a node with these packages, too
make_node() {
    bootstrap "${packages[@]}" "$@"
    rm -f "$root"/etc/ssh/ssh_host_*
    # Each container makes its own host keys, as each machine does.
    cat >"$root/etc/systemd/system/ssh-host-keys.service" <<'UNIT'
[Unit]
Description=Create this machine's SSH host keys
Before=ssh.service
[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A
[Install]
RequiredBy=ssh.service
UNIT
    # Some scenarios log in as root, some as a user with sudo.
    chroot "$root" useradd --create-home --shell /bin/bash admin
    echo 'admin ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/admin"
    chroot "$root" systemctl --quiet enable ssh.service ssh-host-keys.service 2>/dev/null
    chroot "$root" systemctl --quiet mask \
        systemd-logind.service systemd-timesyncd.service systemd-udevd.service 2>/dev/null
    cp tests/startup/module_bytecode.py "$root/usr/lib/python3/dist-packages/"
    echo 'import module_bytecode' >"$root/usr/lib/python3/dist-packages/module_bytecode.pth"
}

# make_other: add the packages of the kind to a copy of the plain node's root folder
make_other() {
    local container
    container=$(docker create "$plain")
    mkdir "$root"
    docker export "$container" | tar -x -C "$root"
    docker rm "$container" >/dev/null
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts" # Grid Engine's package looks itself up
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no package starts its daemon here
    chmod 755 "$root/usr/sbin/policy-rc.d"
    {
        chroot "$root" apt-get update -qq &&
            DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y -qq \
                --no-install-recommends "${options[@]/#/-oDpkg::Options::=--}" ${added[$kind]}
    } >"$folder/log" 2>&1 ||
        refuse "apt-get failed; the end of its log:" "$(tail -n 15 "$folder/log")"
    rm -rf "$root"/var/{cache,lib/apt/lists}/* "$root/.dockerenv" "$root/usr/sbin/policy-rc.d"
    : >"$root/etc/resolv.conf" >"$root/etc/hosts"
    case $kind in
        el7) molecule/el7/stand_in/image.sh "$root" >&2 ;;
        # The scripts molecule/*/setup.sh configure and start the daemons.
        slurm) chroot "$root" systemctl --quiet disable munge slurmctld slurmd 2>/dev/null ;;
        sge) chroot "$root" systemctl --quiet disable gridengine-master gridengine-exec 2>/dev/null ;;
    esac
}

if [[ $kind == plain ]]; then
    make_node "${engines[@]}"
    molecule/shared/mpi.sh "$root" >&2
elif [[ $kind == node-* ]]; then
    make_node
elif [[ $kind == bare-* ]]; then
    bootstrap
else
    make_other
fi
tar -C "$root" -c . | docker import --change 'CMD ["/sbin/init"]' - "$name" >/dev/null
echo "$name"
