#!/usr/bin/env bash
# Install packages of Debian or Ubuntu on this machine, as root: `tools/apt-install.sh PACKAGE...`.
#
# apt-get refuses to run beside another one, so the scripts of several runs wait for each other.
set -euo pipefail
. "$(dirname "$0")/lock.sh"
open_lock apt
flock "$lock"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=600 "$@"
