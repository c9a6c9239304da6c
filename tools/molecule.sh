#!/usr/bin/env bash
# Runs molecule's scenarios: `tools/molecule.sh` all of them, three at a time; `tools/molecule.sh NAME...` some, one after the other.
# What a scenario is, is told by the folders: molecule/<name>/molecule.yml. Goes on after one that fails; names those at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

# They measure how soon ansible-playbook is back, and have the machine for themselves.
ALONE=(refuse chaos)
LOGS=$PWD/.state/molecule

# Run one scenario. What a run that was cut off has left is no part of this one.
run() {
    local began=$SECONDS status=0
    echo "mxcluster: scenario $1"
    molecule reset --scenario-name "$1" >/dev/null 2>&1 || true
    docker ps --all --quiet --filter "name=^mxcluster-$1-" | xargs --no-run-if-empty docker rm --force >/dev/null
    molecule test --scenario-name "$1" || status=1
    echo "mxcluster: scenario $1 took $((SECONDS - began)) s"
    ((status == 0)) || echo "$1" >>"$LOGS/failed"
}

# Run one scenario beside others, in a copy of the project, since controllers in one folder share .state/known_hosts. What it
# prints comes in one piece.
run_beside() {
    mkdir -p "$LOGS/$1/.state"
    git ls-files -coz --exclude-standard | xargs -0 sh -c 'for file; do [ ! -e "$file" ] || printf "%s\0" "$file"; done' sh |
        xargs -0 cp --no-dereference --parents --target-directory "$LOGS/$1"
    mkdir -p .state/el7 && ln -s "$PWD/.state/el7" "$LOGS/$1/.state/el7" # the packages of the stand-in are made once
    (cd "$LOGS/$1" && run "$1") >"$LOGS/$1.log" 2>&1
    flock "$LOGS" cat "$LOGS/$1.log"
}

tools/docker-engine.sh
MXCLUSTER_NODE_IMAGE=$(tools/node-image.sh)
export MXCLUSTER_NODE_IMAGE COLUMNS=${COLUMNS:-160} LOGS
export -f run run_beside
mkdir -p "$LOGS"
rm -rf "${LOGS:?}"/*

for scenario in "$@"; do
    [[ -f molecule/$scenario/molecule.yml ]] || {
        echo "mxcluster: there is no scenario $scenario; there are: $(cd molecule && echo */molecule.yml | sed 's#/molecule.yml##g')" >&2
        exit 1
    }
done

scenarios=("$@")
if (($# == 0)); then
    # Those with the longest tests first, so that none of them is the last.
    beside=()
    for file in $(ls -S molecule/*/test_*.py); do
        scenario=$(basename "$(dirname "$file")")
        [[ " ${ALONE[*]} ${beside[*]-} " == *" $scenario "* ]] || beside+=("$scenario")
    done
    printf '%s\n' ${beside[@]+"${beside[@]}"} | xargs -P 3 -I '{}' bash -euo pipefail -c 'run_beside {}'
    scenarios=("${ALONE[@]}")
fi
for scenario in "${scenarios[@]}"; do
    run "$scenario"
done

if [[ -e $LOGS/failed ]]; then
    echo "mxcluster: failed: $(xargs <"$LOGS/failed")" >&2
    exit 1
fi
echo "mxcluster: passed: ${beside[*]-} ${scenarios[*]}"
