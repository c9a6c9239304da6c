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

first_that_suits() {
    local name
    for name in "$@"; do
        if suits "$name"; then
            echo "$name"
            return
        fi
    done
    return 1
}

find_python() {
    local known=(python3.11 python3.12 python3.10 python3) found
    if [[ -n ${PYTHON:-} ]]; then
        first_that_suits "$PYTHON" && return
        found=$(first_that_suits "${known[@]}") &&
            refuse "PYTHON=$PYTHON $(lacks "$PYTHON")." "Leave PYTHON out: $found is here and suits."
        refuse "PYTHON=$PYTHON $(lacks "$PYTHON")." "$(cure "$PYTHON")"
    fi
    first_that_suits "${known[@]}" && return
    refuse "no Python 3.10, 3.11 or 3.12 with venv and ensurepip was found: python3 $(lacks python3)." "$(cure python3)"
}

# What keeps an interpreter from making our environment.
lacks() {
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || version=
    case $version in
        '') echo "is no Python that runs" ;;
        3.1[0-2]) echo "is Python $version, but without venv and ensurepip" ;;
        *) echo "is Python $version, and the pinned packages have wheels for 3.10, 3.11 and 3.12 alone" ;;
    esac
}

# What brings an interpreter that suits. A package of another version's venv would not help.
cure() {
    case $(lacks "$1") in
        *ensurepip) echo "Debian, Ubuntu: apt install $(basename "$1")-venv. Elsewhere install one that has both." ;;
        *) echo "Install Python 3.12 beside it, then name it: make train PYTHON=/path/to/python3.12" \
               "(Fedora, RHEL: dnf install python3.12. Elsewhere, and without root: uv python install 3.12," \
               "or pyenv install 3.12, or conda create -n py312 python=3.12.)" ;;
    esac
}

[[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] ||
    refuse "MXNet's wheels are for Linux on x86_64; this machine is $(uname -s) on $(uname -m)." \
        "Run the controller on an x86_64 Linux machine."

# Interpreters, search paths and Ansible's settings stop at some signs; preflight says the same of a project that was moved.
[[ $(printf %s "$root" | LC_ALL=C tr -d 'A-Za-z0-9/._+@,=\200-\377-' | wc -c) -eq 0 ]] ||
    refuse "the path of this project holds a space or another sign that programs stop at: $(printf %q "$root")" \
        "Move it to a path of letters, digits and / . _ - + @ , = alone. Nothing was made."

# The environment's own programs must not be taken for the system's when it is being remade.
PATH=${PATH//"$venv/bin:"/}

# The folder is part of the wish: an environment that was moved or copied has dead paths inside.
wish() {
    (echo "$root" && cd "$root" && cat "$@") | sha256sum
}

# What a bundle has brought (make venv BUNDLE=...) is all there is: then no index is asked.
from_bundle=()
if [[ -n ${BUNDLE:-} ]]; then
    python=$(find_python)
    "$python" "$root/tools/bundle.py" unpack "$BUNDLE"
    from_bundle=(--no-index --find-links "$root/.state/cache/controller")
fi

pip_install() {
    # To bash before 4.4 (CentOS 7 has 4.2) an array without members is an unset variable: `+` asks first.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
        ${from_bundle[@]+"${from_bundle[@]}"} "$@"
}

# pip would compile one file after the other, and three quarters of them are collections of Ansible's, of which few are ever used.
compile() {
    "$venv/bin/python" -W ignore -m compileall -q -j 0 -x ansible_collections "$venv/lib" ||
        true # a file that is for another Python; without bytecode all goes on, slower
}

wish_base=$(wish requirements.txt node/pyproject.toml)
if [[ $(cat "$venv/.controller" 2>/dev/null) != "$wish_base" ]] || ! "$venv/bin/python" -c ''; then
    python=$(find_python)
    echo "mxcluster: making .venv with $("$python" --version) (about a minute, the first time only)"
    "$python" -m venv --clear "$venv"
    pip_install --require-hashes --only-binary :all: -r "$root/requirements.txt"
    pip_install --no-build-isolation --no-deps -e "$root/node"
    compile
    echo "$wish_base" >"$venv/.controller"
fi

if [[ $extra == dev ]]; then
    wish_dev=$(wish requirements-dev.txt)
    if [[ $(cat "$venv/.dev" 2>/dev/null) != "$wish_dev" ]]; then
        echo "mxcluster: adding the tools for tests and linting to .venv"
        pip_install --require-hashes --only-binary :all: -r "$root/requirements-dev.txt"
        compile
        echo "$wish_dev" >"$venv/.dev"
    fi
fi
