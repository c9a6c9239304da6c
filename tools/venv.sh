#!/usr/bin/env bash
# Makes .venv, or brings it up to date: `tools/venv.sh controller` or `tools/venv.sh dev`.
# A stamp holds the digest of what was asked for, so that the second time nothing is done.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/.venv
extra=${1:-controller}

refuse() {
    printf 'mxcluster: %s\n' "$@" >&2
    exit 1
}

# An interpreter that cannot make our environment is no candidate: a pyenv shim without a version, a Debian
# python3 without its venv package, or a Python that the pinned packages have no wheels for.
suits() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

find_python() {
    if [[ -n ${PYTHON:-} ]]; then
        suits "$PYTHON" || refuse "PYTHON=$PYTHON is not a Python 3.10, 3.11 or 3.12 with venv and ensurepip." \
            "Name another one, or unset PYTHON to let this script look for one."
        echo "$PYTHON"
        return
    fi
    local name
    for name in python3.11 python3.12 python3.10 python3; do
        if suits "$name"; then
            echo "$name"
            return
        fi
    done
    refuse "no Python 3.10, 3.11 or 3.12 with venv and ensurepip was found ($(describe_python3))." \
        "Debian, Ubuntu: apt install python3-venv. Elsewhere install Python 3.11, or name one: make PYTHON=/path/to/python3.11"
}

describe_python3() {
    python3 --version 2>/dev/null || echo "there is no python3 at all"
}

[[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] ||
    refuse "MXNet's wheels are for Linux on x86_64; this machine is $(uname -s) on $(uname -m)." \
        "Run the controller on an x86_64 Linux machine."

# The environment's own programs must not be taken for the system's when it is being remade.
PATH=${PATH//"$venv/bin:"/}

# The folder is part of the wish: an environment that was moved or copied has dead paths inside.
wish() {
    (echo "$root" && cd "$root" && cat "$@") | sha256sum
}

# What a bundle has brought (make venv BUNDLE=...) is all there is: then no index is asked.
from_bundle=()
if [[ -n ${BUNDLE:-} ]]; then
    "$(find_python)" "$root/tools/bundle.py" unpack "$BUNDLE"
    from_bundle=(--no-index --find-links "$root/.state/cache/controller")
fi

pip_install() {
    # To bash before 4.4 (CentOS 7 has 4.2) an array without members is an unset variable: `+` asks first.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check ${from_bundle[@]+"${from_bundle[@]}"} "$@"
}

wish_base=$(wish requirements.txt node/pyproject.toml)
if [[ $(cat "$venv/.controller" 2>/dev/null) != "$wish_base" ]] || ! "$venv/bin/python" -c ''; then
    python=$(find_python)
    echo "mxcluster: making .venv with $("$python" --version) (about a minute, the first time only)"
    "$python" -m venv --clear "$venv"
    pip_install --only-binary :all: -r "$root/requirements.txt"
    pip_install --no-build-isolation --no-deps -e "$root/node"
    echo "$wish_base" >"$venv/.controller"
fi

if [[ $extra == dev ]]; then
    wish_dev=$(wish requirements-dev.txt)
    if [[ $(cat "$venv/.dev" 2>/dev/null) != "$wish_dev" ]]; then
        echo "mxcluster: adding the tools for tests and linting to .venv"
        pip_install --only-binary :all: -r "$root/requirements-dev.txt"
        echo "$wish_dev" >"$venv/.dev"
    fi
fi
