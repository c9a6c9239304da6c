"""The distribution of a node, and the versions that its programs print."""

import pytest

from mxcluster.model.check_answer import Checked, SystemFacts
from mxcluster.model.node_requests import CheckRequest
from mxcluster.node import health_checks, system_facts


def test_this_machine_tells_its_versions():
    found = system_facts.look()
    assert found.distribution and found.cores >= 1 and found.versions["glibc"][0].isdigit()
    assert set(system_facts.PROGRAMS) < set(found.versions)
    assert SystemFacts.decode(found.encode()) == found


@pytest.mark.parametrize(
    "release, version",
    [("CentOS Linux release 7.9.2009 (Core)\n", "7.9.2009"), ("", "7"), ("unknown", "7")],
)
def test_the_minor_release_of_centos_is_in_a_file_of_its_own(tmp_path, release, version):
    (tmp_path / "os-release").write_text('NAME="CentOS Linux"\nID="centos"\nVERSION_ID="7"\n')
    (tmp_path / "redhat-release").write_text(release)
    paths = (str(tmp_path / "os-release"), str(tmp_path / "redhat-release"))
    assert system_facts.system(*paths) == ("centos", version)
    assert system_facts.system("/no/such", "/no/such") == ("", "")


@pytest.mark.parametrize(
    "script, version",
    [
        ("echo 'systemd 219'; echo '+PAM +AUDIT'", "219"),
        ("echo 'Python 2.7.5' >&2", "2.7.5"),
        ("echo 'OpenSSH_7.4p1, OpenSSL 1.0.2k-fips  26 Jan 2017' >&2", "7.4"),
        ("echo 3.4.3; echo '  Installed: rpm-4.11.3-48.el7_9.x86_64 at 2021-11-24'", "3.4.3"),
        ("echo RPM version 4.11.3", "4.11.3"),
        ("echo 9.9.9; exit 1", ""),
        ("echo no number", ""),
    ],
)
def test_the_first_version_counts(script, version):
    assert system_facts.version_of(["sh", "-c", script]) == version


def test_a_missing_program_has_no_version():
    assert system_facts.version_of(["/no/such/program", "--version"]) == ""


def test_selinux_is_read_from_the_kernel(tmp_path):
    path = tmp_path / "enforce"
    assert system_facts.selinux(str(path)) == "off"
    for text, state in (("0", "permissive"), ("1", "enforcing")):
        path.write_text(text)
        assert system_facts.selinux(str(path)) == state


@pytest.mark.slow
def test_only_a_report_asks_for_the_system(tmp_path):
    request = CheckRequest(etc_dir=str(tmp_path), folders=[])
    for wish in (False, True):
        found = Checked.decode(health_checks.check(request.replaced(system=wish)).encode())
        assert bool(found.system) == wish and ("system" in found.seconds) == wish
        assert {"mxnet", "files", "room", "ssh"} <= set(found.seconds)
