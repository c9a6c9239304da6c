#!/usr/bin/env bash
# Run everything that CI runs: `make test`. After a failure the script goes on with the next part,
# and names the failed parts at the end.
#
# The parts run one after the other, because some tests measure time.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=()

# run NAME COMMAND...
run() {
    local name=$1 began=$SECONDS
    shift
    "$@" || failed+=("$name")
    echo "mxcluster: $name took $((SECONDS - began)) s"
}

mkdir -p .state
tools/molecule.sh --images >.state/images.log 2>&1 & # the scenarios make what is missing, and report it
make venv-dev
run lint make lint
run fast make fast
run playbooks pytest -q --durations=10 -n 2 --dist worksteal tests/playbooks
run trainings pytest -q --durations=10 -n 3 --dist worksteal tests/training
run molecule tools/molecule.sh

if ((${#failed[@]})); then
    echo "mxcluster: failed: ${failed[*]}" >&2
    exit 1
fi
echo "mxcluster: all tests passed in $((SECONDS / 60)) minutes"
