#!/usr/bin/env bash
# Print the lines of a log that name a failure, or the end of the log where it has none:
# `tools/evidence.sh LOG`. The log has the output of pytest, of Ansible or of tools/molecule.sh.
set -euo pipefail
plain=$(sed 's/\x1b\[[0-9;]*m//g' "$1")
# In a scenario, pytest names its files from the scenario's folder. A loop of Ansible says "failed".
grep -aoE '(FAILED|ERROR) [^ ]+\.py.*|(fatal|failed): \[.*|mxcluster: failed: .*' <<<"$plain" |
    cut -c1-400 | tail -n 30 || tail -n 25 <<<"$plain"
