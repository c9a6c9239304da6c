#!/usr/bin/env bash
# Run the scenario on an image of a real CentOS 7: `molecule/el7/real_image.sh [IMAGE]`, without IMAGE
# centos:7. For a machine with CentOS 7 see real.sh.
#
# The image of a container has no systemd as its first process, no sshd and no sudo. This script
# makes an image that has them, from CentOS's archive, and runs test_on_any_centos7.py alone. Without
# an NVIDIA card every node gets MXNet for CPUs: CentOS's real repositories and keys and the real yum
# run, but neither EPEL nor NVIDIA's repositories, keys and packages. It needs docker, a network, and a machine whose kernel
# still has cgroup v1 (systemd 219 of CentOS 7 does not boot on cgroup v2 alone).
set -euo pipefail
cd "$(dirname "$0")/../.."
base=${1:-centos:7}
vault=${MXCLUSTER_EL7_VAULT:-https://vault.centos.org/7.9.2009}
name=mxcluster-el7-real:$(printf '%s %s' "$base" "$vault" | cat - "$0" | sha256sum | cut -c 1-12)

tools/docker-engine.sh
if ! docker image inspect "$name" >/dev/null 2>&1; then
    docker image inspect "$base" >/dev/null 2>&1 || docker pull "$base"
    docker build --tag "$name" --build-arg "BASE=$base" --build-arg "VAULT=$vault" - <<'DOCKERFILE'
ARG BASE
FROM ${BASE}
ARG VAULT
# For this image only: the role el7_repos finds the repository files of the release untouched.
RUN cp -a /etc/yum.repos.d /root/yum.repos.d && \
    sed -i -e 's/^mirrorlist=/#mirrorlist=/' \
        -e "s|^#\? *baseurl=http://mirror.centos.org/centos/\$releasever/|baseurl=${VAULT}/|" /etc/yum.repos.d/CentOS-Base.repo && \
    yum install -y systemd openssh-server openssh-clients sudo iproute rsync && yum clean all && \
    rm -rf /etc/yum.repos.d && mv /root/yum.repos.d /etc/yum.repos.d && \
    useradd --create-home --shell /bin/bash admin && \
    echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin && \
    systemctl enable sshd && systemctl mask systemd-logind.service systemd-udevd.service
CMD ["/sbin/init"]
DOCKERFILE
fi
MXCLUSTER_EL7_IMAGE=$name exec tools/molecule.sh el7
