#!/usr/bin/env bash
# Make or update .venv: `tools/venv.sh controller` or `tools/venv.sh dev`.
#
# A second argument names another folder for the environment. The variable CORE is the line of
# ansible-core, such as 2.19. Without CORE an environment keeps its line. A new environment gets
# 2.16, because this line manages every node, or the newest line if no Python here runs 2.16.
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
sys.exit(not (3, '"$low"') <= sys.version_info[:2] <= (3, '"$high"'))' 2>/dev/null
}

# Print the first suitable program of these names. Of programs with one name, that of pyenv comes
# last: pyenv builds Python without profile-guided optimization, and playbooks take longer with it.
first_that_suits() {
    local name turn path origin
    for name in "$@"; do
        for turn in system pyenv; do
            while read -r path; do
                origin=system
                [[ $path != */.pyenv/* && $path != "${PYENV_ROOT:-/none}"/* ]] || origin=pyenv
                if [[ $origin == "$turn" ]] && suits "$path" </dev/null; then
                    echo "$path"
                    return
                fi
            done < <(type -ap "$name")
        done
    done
    return 1
}

known=(python3.11 python3.12 python3.10 python3.13 python3)
tried=("${known[@]}")
[[ -z ${PYTHON:-} ]] || tried=("$PYTHON")

find_python() {
    local found
    first_that_suits "${tried[@]}" && return
    if [[ -n ${PYTHON:-} ]]; then
        found=$(first_that_suits "${known[@]}") &&
            refuse "PYTHON=$PYTHON $(lacks "$PYTHON")." \
                "Unset PYTHON: $(basename "$found") is suitable."
        refuse "PYTHON=$PYTHON $(lacks "$PYTHON")." "$(cure "$PYTHON")"
    fi
    refuse "found no Python $pythons with venv and ensurepip: python3 $(lacks python3)." \
        "$(cure python3)"
}

# Print the reason that an interpreter cannot make the environment.
lacks() {
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || version=
    if [[ -z $version ]]; then
        echo "is not a working Python"
    elif [[ $version == 3.* ]] && ((low <= ${version#3.} && ${version#3.} <= high)); then
        echo "is Python $version, but without venv and ensurepip"
    elif [[ -n $core ]]; then
        echo "is Python $version, and ansible-core $core needs $pythons on the controller"
    else
        echo "is Python $version, but the pinned packages have wheels for $pythons"
    fi
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

# Remove the environment's programs from PATH: they must not count as the system's while the
# environment is rebuilt.
PATH=${PATH//"$venv/bin:"/}

# lines PREFIX: print the lines of ansible-core that have a file requirements/PREFIX-LINE.txt.
lines() {
    local file found=()
    for file in "$root/requirements/$1"-*.txt; do
        file=${file##*/"$1"-}
        found+=("${file%.txt}")
    done
    echo ${found[@]+"${found[@]}"}
}

# needs_python LOW HIGH: set the minor versions of the oldest and newest Python, and their names.
needs_python() {
    local minor
    low=$1 high=$2 pythons=3.$1
    for ((minor = low + 1; minor < high; minor++)); do pythons+=", 3.$minor"; done
    ((low == high)) || pythons+=" or 3.$high"
}

# read_line LINE: set `core`, and from the file of that line the controller's Pythons, the version
# of ansible-core, and `manages`, the sentence about its nodes.
read_line() {
    local word rest
    core=$1 line=requirements/core-$1.txt manages=
    while read -r word rest; do
        case "$word $rest" in
            '# Controller: Python 3.'*)
                rest=${rest#*3.} # 10 to 3.12
                needs_python "${rest%% *}" "${rest##*3.}"
                ;;
            '# '*) manages=${manages:-$rest} ;;
            'ansible-core=='*) version=${word#*==} ;;
        esac
    done <"$root/$line"
}

# Read the default line, or the newest if no Python here runs the default.
choose_line() {
    local one oldest=99 newest=0
    for one in $default ${known_lines##* }; do
        read_line "$one"
        ! first_that_suits "${tried[@]}" >/dev/null || return 0
        ((low >= oldest)) || oldest=$low
        ((high <= newest)) || newest=$high
    done
    core=
    needs_python "$oldest" "$newest"
    find_python # refuses
}

default=2.16
known_lines=$(lines core)
what="there is no such line of ansible-core here"
if [[ $extra == dev ]]; then
    known_lines=$(lines dev)
    what="the tools for tests and linting are not for this line of ansible-core"
fi
if [[ -n $core ]]; then
    [[ " $known_lines " == *" $core "* ]] ||
        refuse "CORE=$core: $what." "CORE is one of: $known_lines."
else
    core=$(cat "$venv/.core" 2>/dev/null) || core=
    [[ " $known_lines " == *" $core "* ]] || core= # the project no longer has that line
    [[ $extra != dev || $core == "$default" ]] || core= # tests run under the default if possible
fi
if [[ -n $core ]]; then
    read_line "$core"
else
    choose_line
fi

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
            "or give another CORE: $known_lines."
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
    [[ $core == "$default" ]] ||
        manages+=" For older nodes: make venv CORE=$default PYTHON=/path/to/python3.12."
    echo "mxcluster: making $(basename "$venv") with $("$python" --version) and" \
        "ansible-core $core (about a minute, the first time only). $manages"
    "$python" -m venv --clear "$venv"
    pip_install --require-hashes --only-binary :all: -r "$root/$line"
    # The mode compat adds a path to sys.path. The default adds an import hook, which costs each start
    # of this Python 15 ms: on a local cluster Ansible starts it for each module.
    pip_install --no-build-isolation --no-deps --config-settings editable_mode=compat -e "$root/python"
    echo "$core" >"$venv/.core"
    echo "$wish_base" >"$venv/.controller"
fi

if [[ $extra == dev ]]; then
    # ansible-lint and each run of molecule call ansible-galaxy, which makes this folder. Two that begin
    # together would both find no folder, and one would fail to make it.
    mkdir -p "$root/.state/ansible/collections/ansible_collections"
    wish_dev=$(wish requirements/{cloud,dev}{,"-$core"}.txt requirements/execution.txt \
        tests/startup/module_bytecode.py)
    if [[ $(cat "$venv/.dev" 2>/dev/null) != "$wish_dev" ]]; then
        echo "mxcluster: adding the tools for tests and linting to .venv"
        pip_install --require-hashes --only-binary :all: -r "$root/requirements/dev-$core.txt"
        "$venv/bin/python" -c 'import sys, sysconfig
with open(sysconfig.get_path("purelib") + "/mxcluster-tests.pth", "w") as stream:
    stream.write(sys.argv[1] + "\nimport module_bytecode\n")' "$root/tests/startup"
        echo "$wish_dev" >"$venv/.dev"
    fi
fi
