#!/usr/bin/env bash
# Accept mxcluster on a real CentOS 7 node: `molecule/el7/real.sh [USER@]HOST`. --help lists the
# options; docs/acceptance.md describes the steps. This machine becomes the controller of a cluster
# of one node. tools/acceptance.py does the work.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
case " $* " in
*" --help "* | *" -h "*) python=python3 ;; # the help needs no environment
*)
    make --no-print-directory -C "$root" venv-dev
    python=$root/.venv/bin/python
    ;;
esac
exec "$python" "$root/tools/acceptance.py" "$@"
