#!/usr/bin/env bash
# Start a docker engine. As root on Debian or Ubuntu, first install a missing engine. Otherwise
# print instructions.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

answers() {
    docker info >/dev/null 2>&1
}

refuse() {
    printf 'mxcluster: %s\n' "$@" >&2
    exit 1
}

answers && exit

command -v apt-get >/dev/null ||
    refuse "no docker engine is reachable; this script installs one on Debian and Ubuntu only." \
        "Install and start docker (or another engine that \`docker info\` reaches)," \
        "then run this command again."
[[ $(id -u) == 0 ]] ||
    refuse "$(id -un) cannot reach a docker engine, and only root can install or start one." \
        "As root: apt-get install docker.io && systemctl start docker;" \
        "adduser $(id -un) docker. Then log in again."

mkdir -p "$root/.state/docker"
exec 9>"$root/.state/docker/engine.lock"
flock 9 # another run may be installing or starting the engine
answers && exit

if ! command -v dockerd >/dev/null; then
    echo "mxcluster: installing docker.io"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        docker.io iptables >/dev/null
fi

if [[ -d /run/systemd/system ]]; then
    systemctl start docker
else
    log=$root/.state/docker/dockerd.log
    echo "mxcluster: starting dockerd; its log is $log"
    setsid dockerd >"$log" 2>&1 </dev/null 9>&- &
fi

for _ in {1..60}; do
    answers && exit
    sleep 0.5
done
refuse "the docker engine is not reachable 30 s after its start. The end of its log:" \
    "$(tail -n 15 "$root/.state/docker/dockerd.log" 2>/dev/null ||
        journalctl -u docker -n 15 --no-pager)"
