"""tools/needs.sh names the missing packages to a user who cannot install them."""

import os
import pathlib
import shutil
import subprocess

SCRIPT = pathlib.Path(__file__).parents[3] / "tools" / "needs.sh"


def test_a_user_gets_the_names_of_the_missing_packages(tmp_path):
    """The PATH of a user of Debian lacks the folders of root's programs."""
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    done = subprocess.run(
        [shutil.which("bash"), str(SCRIPT)],
        env={"PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = done.stdout.decode()
    assert done.returncode == 1
    assert output.startswith("mxcluster: please install make git python3"), output
    assert "(Debian's names), then run this again" in output
    for program, package in (("nft", "nftables"), ("iptables-legacy", "iptables")):
        there = any(os.path.exists("/%s/%s" % (folder, program)) for folder in ("usr/sbin", "sbin"))
        assert (package in output.split()) != there, output
