#!/usr/bin/env bash
# Run molecule's scenarios: `tools/molecule.sh` runs all in the order of their names, and
# `tools/molecule.sh NAME...` runs only the named ones. `tools/molecule.sh --images` makes the
# images and packages of the nodes, and runs no scenario: `make test` does this during its first
# tests.
#
# A scenario is a file molecule/<name>/molecule.yml. After a failure the script goes on with the
# next scenario, and names the failed ones at the end. The scenarios of one call run one at a time.
#
# Several runs of this script, also of several clones, may share the engine of a machine. Each run
# has a number that no other living run has. The names of its containers, networks, volumes, images
# and folders begin with mxcluster-<number>-<scenario>. The addresses of its nodes begin with 172.29
# in run 0, with 172.28 in run 1, and so on. Inventories and tests have the addresses of run 0.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lock.sh

# take_number: set MXCLUSTER_RUN to the lowest number whose lock is free, and hold this lock
take_number() {
    for MXCLUSTER_RUN in {0..7}; do
        open_lock "run-$MXCLUSTER_RUN"
        MXCLUSTER_RUN_NETWORK=172.$((29 - MXCLUSTER_RUN))
        if flock --nonblock "$lock" && clear_away; then
            # Another program of the machine may have the addresses.
            [[ -n $(ip -4 route show | grep "^${MXCLUSTER_RUN_NETWORK//./\\.}\.") ]] || return 0
        fi
        exec {lock}<&-
    done
    echo "mxcluster: 8 runs share this machine: wait for the end of one of them" >&2
    exit 1
}

# clear_away: remove what an interrupted run with the same number has left. The status is not 0 for
# a network that stays: Docker 20.10 may count an endpoint of a container that is gone.
clear_away() {
    local mine=(--quiet --filter "name=^mxcluster-$MXCLUSTER_RUN-")
    docker ps --all "${mine[@]}" | xargs --no-run-if-empty docker rm --force --volumes >/dev/null &&
        docker network ls "${mine[@]}" | xargs --no-run-if-empty docker network rm >/dev/null &&
        docker volume ls "${mine[@]}" | xargs --no-run-if-empty docker volume rm --force >/dev/null ||
        return
    ip link delete "mxcluster-$MXCLUSTER_RUN-2" 2>/dev/null || true # of the scenario container
}

# install_podman: install the second engine of the scenario container, as root on Debian and Ubuntu
install_podman() {
    command -v podman >/dev/null || [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null ||
        tools/apt-install.sh podman >/dev/null
}

tools/docker-engine.sh
MXCLUSTER_NODE_IMAGE=$(tools/node-image.sh)
export MXCLUSTER_NODE_IMAGE COLUMNS=${COLUMNS:-160}
if [[ ${1:-} == --images ]]; then
    kinds=(el7 slurm sge container)
    ! grep -q '^ID=debian$' /etc/os-release || kinds+=(bare-trixie) # tools/suite.py names it elsewhere
    for kind in "${kinds[@]}"; do
        tools/node-image.sh "$kind"
    done
    install_podman
    exec python3 molecule/el7/stand_in/build.py "$PWD/.state/el7"
fi

if (($#)); then
    scenarios=("$@")
else
    scenarios=(molecule/*/molecule.yml)
    scenarios=("${scenarios[@]%/molecule.yml}")
    scenarios=("${scenarios[@]#molecule/}")
fi

take_number
export MXCLUSTER_RUN MXCLUSTER_RUN_NETWORK
echo "mxcluster: run $MXCLUSTER_RUN of this machine, with addresses $MXCLUSTER_RUN_NETWORK.0.0/16"
failed=()
for scenario in "${scenarios[@]}"; do
    [[ -f molecule/$scenario/molecule.yml ]] || {
        known=$(cd molecule && echo */molecule.yml | sed 's#/molecule.yml##g')
        echo "mxcluster: unknown scenario $scenario; available: $known" >&2
        exit 1
    }
    echo "mxcluster: scenario $scenario"
    [[ $scenario != container ]] || install_podman
    began=$SECONDS
    # Molecule's own folder is the same for two clones with one name. The path is short, because it
    # leads to the sockets of ssh.
    export MOLECULE_EPHEMERAL_DIRECTORY=~/.ansible/tmp/mxcluster-$MXCLUSTER_RUN-$scenario
    rm -rf "$MOLECULE_EPHEMERAL_DIRECTORY"
    mkdir -p "$MOLECULE_EPHEMERAL_DIRECTORY"
    cp -r "molecule/$scenario/inventory" "$MOLECULE_EPHEMERAL_DIRECTORY/nodes"
    find "$MOLECULE_EPHEMERAL_DIRECTORY/nodes" -type f \
        -exec sed -i "s/172\.29\./$MXCLUSTER_RUN_NETWORK./g" {} +
    molecule test --scenario-name "$scenario" || failed+=("$scenario")
    echo "mxcluster: scenario $scenario took $((SECONDS - began)) s"
done

if ((${#failed[@]})); then
    echo "mxcluster: failed: ${failed[*]}" >&2
    exit 1
fi
echo "mxcluster: passed: ${scenarios[*]}"
