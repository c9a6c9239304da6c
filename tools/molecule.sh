#!/usr/bin/env bash
# Run molecule's scenarios: `tools/molecule.sh` runs all in the order of their names, and
# `tools/molecule.sh NAME...` runs only the named ones. `tools/molecule.sh --images` makes the
# images and packages of the nodes, and runs no scenario: `make test` does this during its first
# tests.
#
# A scenario is a file molecule/<name>/molecule.yml. After a failure the script goes on with the
# next scenario, and names the failed ones at the end. Scenarios run one at a time: where docker
# shares an old cgroup hierarchy with the machine, the systemds of many containers remove each
# other's cgroups.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/docker-engine.sh
MXCLUSTER_NODE_IMAGE=$(tools/node-image.sh)
export MXCLUSTER_NODE_IMAGE COLUMNS=${COLUMNS:-160}
if [[ ${1:-} == --images ]]; then
    for kind in el7 slurm sge container bare-bookworm bare-trixie; do
        tools/node-image.sh "$kind"
    done
    exec python3 molecule/el7/stand_in/build.py "$PWD/.state/el7"
fi

if (($#)); then
    scenarios=("$@")
else
    scenarios=(molecule/*/molecule.yml)
    scenarios=("${scenarios[@]%/molecule.yml}")
    scenarios=("${scenarios[@]#molecule/}")
fi

failed=()
for scenario in "${scenarios[@]}"; do
    [[ -f molecule/$scenario/molecule.yml ]] || {
        known=$(cd molecule && echo */molecule.yml | sed 's#/molecule.yml##g')
        echo "mxcluster: unknown scenario $scenario; available: $known" >&2
        exit 1
    }
    echo "mxcluster: scenario $scenario"
    began=$SECONDS
    # Remove the containers of an interrupted run; the scenario's own `destroy` removes the rest.
    docker ps --all --quiet --filter name=^mxcluster- |
        xargs --no-run-if-empty docker rm --force --volumes >/dev/null
    molecule test --scenario-name "$scenario" || failed+=("$scenario")
    echo "mxcluster: scenario $scenario took $((SECONDS - began)) s"
done

if ((${#failed[@]})); then
    echo "mxcluster: failed: ${failed[*]}" >&2
    exit 1
fi
echo "mxcluster: passed: ${scenarios[*]}"
