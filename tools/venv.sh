#!/usr/bin/env bash
# Make or update .venv: `tools/venv.sh controller` or `tools/venv.sh dev`.
#
# A second argument names another folder for the environment. The variable CORE is the line of
# ansible-core, such as 2.19. Without CORE an environment keeps its line, and a new environment gets
# 2.16.
#
# A file in the environment holds the digest of the requirements. A second run does nothing if the
# digest is unchanged.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
venv=${2:-$root/.venv}
extra=${1:-controller}
core=${CORE:-}

refuse() {
    printf 'mxcluster: %s\n' "$@" >&2
    exit 1
}

# Skip interpreters that cannot make the environment: a pyenv shim without a version, a Debian
# python3 without its venv package, or a Python version without wheels of the pinned packages.
suits() {
    "$1" -c 'import ensurepip, sys, venv
sys.exit(not (3, '"$low"') <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
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
            refuse "PYTHON=$PYTHON $(lacks "$PYTHON")." "Unset PYTHON: $found is suitable."
        refuse "PYTHON=$PYTHON $(lacks "$PYTHON")." "$(cure "$PYTHON")"
    fi
    first_that_suits "${known[@]}" && return
    refuse "found no Python $pythons with venv and ensurepip: python3 $(lacks python3)." \
        "$(cure python3)"
}

# Print the reason that an interpreter cannot make the environment.
lacks() {
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || version=
    case $version in
        '') echo "is not a working Python" ;;
        3.1[0-2])
            if ((${version#3.} < low)); then
                echo "is Python $version, and ansible-core $core needs $pythons on the controller"
            else
                echo "is Python $version, but without venv and ensurepip"
            fi
            ;;
        *)
            echo "is Python $version, but the pinned packages have wheels for 3.10, 3.11 and 3.12"
            ;;
    esac
}

# Print the cure for that reason. A venv package of another Python version would not help.
cure() {
    case $(lacks "$1") in
        *ensurepip)
            echo "Debian, Ubuntu: apt install $(basename "$1")-venv." \
                "Elsewhere install a Python with both modules."
            ;;
        *) echo "Install Python 3.12 beside it, then: make train PYTHON=/path/to/python3.12" \
               "(Fedora, RHEL: dnf install python3.12." \
               "Elsewhere, and without root: uv python install 3.12," \
               "or pyenv install 3.12, or conda create -n py312 python=3.12.)" ;;
    esac
}

[[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] ||
    refuse "MXNet's wheels are for Linux on x86_64; this machine is $(uname -s) on $(uname -m)." \
        "Run the controller on an x86_64 Linux machine."

# Interpreters, search paths and Ansible's settings break at some characters; the preflight checks
# test the path again after a move of the project.
awkward="the path of this project contains a space or another character that breaks programs"
[[ $(printf %s "$root" | LC_ALL=C tr -d 'A-Za-z0-9/._+@,=\200-\377-' | wc -c) -eq 0 ]] ||
    refuse "$awkward: $(printf %q "$root")" \
        "Move the project to a path of letters, digits and / . _ - + @ , =. Nothing was installed."

# Print the lines of ansible-core. Each has a file of requirements.
lines() {
    local file found=()
    for file in "$root"/requirements/core-*.txt; do
        file=${file##*/core-}
        found+=("${file%.txt}")
    done
    echo ${found[@]+"${found[@]}"}
}

if [[ $extra == dev ]]; then
    [[ ${core:-2.16} == 2.16 ]] ||
        refuse "CORE=$core: the tools for tests and linting are for ansible-core 2.16." \
            "Leave CORE out: the tests make environments of the other lines themselves."
    core=2.16
elif [[ -z $core ]]; then
    core=$(cat "$venv/.core" 2>/dev/null) || core=2.16
    [[ -f $root/requirements/core-$core.txt ]] || core=2.16 # the project no longer has that line
fi
line=requirements/core-$core.txt
[[ -f $root/$line ]] ||
    refuse "CORE=$core: there is no such line of ansible-core here." "CORE is one of: $(lines)."
# Read the controller's oldest Python, from a comment in that file, and the version of ansible-core.
while read -r word rest; do
    case "$word $rest" in
        '# Controller: Python 3.'*) low=${rest#*3.} low=${low%% *} ;; # 3.11 or newer
        'ansible-core=='*) version=${word#*==} ;;
    esac
done <"$root/$line"
case $low in
    10) pythons='3.10, 3.11 or 3.12' ;;
    11) pythons='3.11 or 3.12' ;;
    *) pythons=3.12 ;;
esac

# Remove the environment's programs from PATH: they must not count as the system's while the
# environment is rebuilt.
PATH=${PATH//"$venv/bin:"/}

# The digest includes the folder: an environment that was moved or copied contains dead paths.
wish() {
    (echo "$root" && cd "$root" && cat "$@") | sha256sum
}

# With BUNDLE=... pip uses the bundle only and contacts no index.
from_bundle=()
if [[ -n ${BUNDLE:-} ]]; then
    python=$(find_python)
    "$python" "$root/tools/bundle.py" unpack "$BUNDLE"
    from_bundle=(--no-index --find-links "$root/.state/cache/controller")
    [[ -f $root/.state/cache/controller/ansible_core-$version-py3-none-any.whl ]] ||
        refuse "$BUNDLE has no ansible-core $core ($version)." \
            "A bundle has only lines of ansible-core that run on the Python that made it." \
            "ansible-core $core needs Python $pythons. Make the bundle with such a Python," \
            "or give another CORE: $(lines)."
fi

# --no-compile saves time: Python compiles a module when a program first imports it.
pip_install() {
    # bash before 4.4 (CentOS 7 has 4.2) treats an empty array as an unset variable, hence `+`.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
        ${from_bundle[@]+"${from_bundle[@]}"} "$@"
}

wish_base=$(wish requirements/shared.txt "$line" python/pyproject.toml)
if [[ $(cat "$venv/.controller" 2>/dev/null) != "$wish_base" ]] || ! "$venv/bin/python" -c ''; then
    python=$(find_python)
    echo "mxcluster: making $(basename "$venv") with $("$python" --version) and" \
        "ansible-core $core (about a minute, the first time only)"
    "$python" -m venv --clear "$venv"
    pip_install --require-hashes --only-binary :all: -r "$root/$line"
    # The mode compat adds a path to sys.path. The default adds an import hook, which costs each start
    # of this Python 15 ms: on a local cluster Ansible starts it for each module.
    pip_install --no-build-isolation --no-deps --config-settings editable_mode=compat -e "$root/python"
    echo "$core" >"$venv/.core"
    echo "$wish_base" >"$venv/.controller"
fi

if [[ $extra == dev ]]; then
    wish_dev=$(wish requirements-dev.txt tests/startup/module_bytecode.py)
    if [[ $(cat "$venv/.dev" 2>/dev/null) != "$wish_dev" ]]; then
        echo "mxcluster: adding the tools for tests and linting to .venv"
        pip_install --require-hashes --only-binary :all: -r "$root/requirements-dev.txt"
        "$venv/bin/python" -c 'import sys, sysconfig
with open(sysconfig.get_path("purelib") + "/mxcluster-tests.pth", "w") as stream:
    stream.write(sys.argv[1] + "\nimport module_bytecode\n")' "$root/tests/startup"
        echo "$wish_dev" >"$venv/.dev"
    fi
fi
