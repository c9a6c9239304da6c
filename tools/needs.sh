#!/usr/bin/env bash
# Install what the tests need and a bare Debian or Ubuntu lacks, as root. Other users and systems get
# the names of the missing packages, before any test.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # Debian's users have nft and iptables there, and not in their PATH

# Each program of the first column comes with the package of the second.
missing=()
while read -r program package; do
    command -v "$program" >/dev/null || missing+=("$package")
done <<'END'
make make
git git
python3 python3
/usr/bin/python3 python3
ssh openssh-client
ip iproute2
nft nftables
iptables-legacy iptables
gcc gcc
END
# Ubuntu has Chromium as a snap only. `make test` names what it loses without Chromium.
[[ ! -r /etc/os-release || $(</etc/os-release) != *$'\n'ID=debian* ]] || command -v chromium >/dev/null ||
    missing+=(chromium)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
# Libraries of MXNet's wheel, and the headers of gcc.
for package in libgomp1 libquadmath0 libc6-dev; do
    ! command -v dpkg-query >/dev/null ||
        dpkg-query --show --showformat '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q ^ii ||
        missing+=("$package")
done

((${#missing[@]})) || exit 0
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "mxcluster: please install ${missing[*]} (Debian's names), then run this again" >&2
    exit 1
fi
echo "mxcluster: installing ${missing[*]}"
"$(dirname "$0")/apt-install.sh" ${missing[@]+"${missing[@]}"} >/dev/null
