#!/usr/bin/env bash
# Start a docker engine. As root on Debian or Ubuntu, first install a missing engine. Otherwise
# print instructions.
set -euo pipefail
cd "$(dirname "$0")"
. ./lock.sh
log=/var/log/mxcluster-dockerd.log # where no systemd starts the engine

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

open_lock engine
flock "$lock" # another run, perhaps of another clone, may be installing or starting the engine
answers && exit

if ! command -v dockerd >/dev/null; then
    echo "mxcluster: installing docker.io"
    ./apt-install.sh docker.io iptables >/dev/null
fi

if [[ -d /run/systemd/system ]]; then
    systemctl start docker
    runs() { systemctl is-active --quiet docker; }
else
    echo "mxcluster: starting dockerd; its log is $log"
    setsid dockerd >"$log" 2>&1 </dev/null {lock}>&- &
    engine=$!
    runs() { kill -0 "$engine" 2>/dev/null; }
fi

for _ in {1..600}; do
    answers && exit
    runs || break
    sleep 0.5
done
refuse "the docker engine has ended, or does not answer 300 s after its start. The end of its log:" \
    "$(tail -n 15 "$log" 2>/dev/null || journalctl -u docker -n 15 --no-pager)"
