#!/usr/bin/env bash
# Runs molecule's scenarios: `tools/molecule.sh` all of them, in the order of their names; `tools/molecule.sh NAME...` some.
# What a scenario is, is told by the folders: molecule/<name>/molecule.yml. Goes on after one that fails; names those at the end.
# One at a time: where docker shares an old hierarchy of control groups with the machine, the systemds of many containers remove
# each other's.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/docker-engine.sh
MXCLUSTER_NODE_IMAGE=$(tools/node-image.sh)
export MXCLUSTER_NODE_IMAGE COLUMNS=${COLUMNS:-160}

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
        echo "mxcluster: there is no scenario $scenario; there are: $(cd molecule && echo */molecule.yml | sed 's#/molecule.yml##g')" >&2
        exit 1
    }
    echo "mxcluster: scenario $scenario"
    began=$SECONDS
    # What a run that was cut off has left is no part of this one.
    molecule reset --scenario-name "$scenario" >/dev/null 2>&1 || true
    docker ps --all --quiet --filter name=^mxcluster- | xargs --no-run-if-empty docker rm --force >/dev/null
    molecule test --scenario-name "$scenario" || failed+=("$scenario")
    echo "mxcluster: scenario $scenario took $((SECONDS - began)) s"
done

if ((${#failed[@]})); then
    echo "mxcluster: failed: ${failed[*]}" >&2
    exit 1
fi
echo "mxcluster: passed: ${scenarios[*]}"
