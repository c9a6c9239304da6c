#!/usr/bin/env bash
# Run everything that CI runs: `make test`.
#
# Two lanes use both cores: molecule's scenarios wait half of their time, for containers and for
# timeouts. So they run beside all other tests. This script prints their output at the end. After a
# failure the script goes on, and names the failed parts at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
logs=.state/test
mkdir -p "$logs"
set -m # a background part is a process group, which ends as a whole
declare -A parts=()
failed=()
trap 'for pid in "${parts[@]}"; do kill -- "-$pid" 2>/dev/null || true; done' EXIT

# begin NAME COMMAND...: start a part beside the others.
begin() {
    local name=$1
    shift
    "$@" >"$logs/$name.log" 2>&1 </dev/null &
    parts[$name]=$!
}

# finish NAME: wait for a part and print its output.
finish() {
    local name=$1
    echo "mxcluster: waiting for $name"
    wait "${parts[$name]}" || failed+=("$name")
    unset "parts[$name]"
    cat "$logs/$name.log"
}

# run NAME COMMAND...: run a part to its end.
run() {
    local name=$1 began=$SECONDS
    shift
    "$@" || failed+=("$name")
    echo "mxcluster: $name took $((SECONDS - began)) s"
}

begin images tools/molecule.sh --images # the scenarios make what is missing then, and report it
make venv-dev
begin molecule tools/molecule.sh
run lint make lint
run fast make fast
run playbooks pytest -q --durations=10 -n 2 --dist worksteal tests/playbooks
run trainings pytest -q --durations=10 -n 2 --dist worksteal tests/training
finish molecule

if ((${#failed[@]})); then
    echo "mxcluster: failed: ${failed[*]}" >&2
    exit 1
fi
echo "mxcluster: all tests passed in $((SECONDS / 60)) minutes"
