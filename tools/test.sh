#!/usr/bin/env bash
# Run everything that CI runs: `make test`. After a failure the script goes on with the next part.
# At the end it names the failed parts and repeats the failures of each, since CI may show only the
# end of its output. .state/tests has the whole output of each part.
#
# The scenarios in docker wait a third of their time, so all but one of them run beside tests that
# measure no time. Tests that measure times run after them: those with the mark `alone`, two at a
# time, and the scenario default with its faults.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=()
logs=.state/tests
# pytest then gives the whole message of a failure in its summary.
export CI=true
[[ ! -t 1 ]] || export PY_COLORS=1

# run NAME COMMAND...
run() {
    local name=$1 began=$SECONDS
    shift
    "$@" 2>&1 | tee "$logs/$name.log" || failed+=("$name")
    echo "mxcluster: $name took $((SECONDS - began)) s"
}

mkdir -p "$logs"
tools/molecule.sh --images >$logs/images.log 2>&1 & # the scenarios make what is missing, and report it
images=$!
make venv-dev
beside=(el7 cluster slurm sge container)
# A session of its own, so that the exit of this script can end all its processes.
setsid bash -c "while kill -0 $images 2>/dev/null; do sleep 1; done; tools/molecule.sh ${beside[*]}" \
    >$logs/scenarios.log 2>&1 &
scenarios=$!
trap 'kill -- -$scenarios 2>/dev/null || true' EXIT
run lint make lint
run fast make fast
run trainings pytest -q --durations=10 -n 3 --dist worksteal tests/training
playbooks() { pytest -q --durations=10 -n 2 --dist worksteal -m "not soak and $1" tests/playbooks; }
run playbooks playbooks 'not alone'
wait $scenarios || failed+=(scenarios)
cat $logs/scenarios.log
run alone playbooks alone
run faults tools/molecule.sh default

if ((${#failed[@]})); then
    for name in ${failed[*]}; do
        echo "mxcluster: failures of $name, from $logs/$name.log:"
        tools/evidence.sh "$logs/$name.log"
    done
    echo "mxcluster: failed: ${failed[*]}" >&2
    exit 1
fi
echo "mxcluster: all tests passed in $((SECONDS / 60)) minutes"
