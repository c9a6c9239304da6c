"""The arguments of roles for rpm and systemd, checked in the files without a machine."""

import configparser
import pathlib

import jinja2
import pytest
import yaml

from mxcluster.cluster import version_table

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
VARS = dict.fromkeys(
    (
        "ansible_managed",
        "mxcluster_user",
        "mxcluster_env_dir",
        "mxcluster_job_dir",
        "mxcluster_cache_dir",
        "__agent_unit_home",
    ),
    "/x",
)
VARS["__agent_unit_access"] = {"stat": {"executable": True}}
JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined)


def render(text, **variables):
    return JINJA.from_string(text).render(VARS, **variables)


def test_each_rpm_key_has_a_fingerprint():
    """Without a fingerprint, rpm_key trusts any file."""
    keys = version_table.table().keys
    tasks = [
        task
        for path in ROLES.glob("*/tasks/*.yml")
        for task in yaml.safe_load(path.read_text()) or []
    ]
    found = [task["ansible.builtin.rpm_key"] for task in tasks if "ansible.builtin.rpm_key" in task]
    assert found and [(key.name, len(key.fingerprint)) for key in keys] == [
        ("7fa2af80", 40),
        ("D42D0685", 40),
    ]
    for arguments in found:
        for key in keys:
            shown = {name: render(value, item=key.encode()) for name, value in arguments.items()}
            assert shown == {"key": "/x/cuda/" + key.name, "fingerprint": key.fingerprint}
            assert key.fingerprint.lower().endswith(key.name.lower())


def service_of(name, **variables):
    """Return the section [Service] of the template unit `name`."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    text = (ROLES / "agent_unit" / "templates" / (name + ".j2")).read_text()
    unit.read_string(render(text, **variables))
    return unit["Service"]


def test_a_job_sees_no_key_of_the_ssh_mesh():
    """systemd 219 of CentOS 7 has this setting; newer versions accept it beside a newer name.

    molecule/cluster has a real unit.
    """
    name = "InaccessibleDirectories"
    assert service_of("mxcluster-agent@.service")[name] == '"-/x/.ssh"'
    spaced = service_of("mxcluster-agent@.service", __agent_unit_home="/home/a b")
    assert spaced[name] == '"-/home/a b/.ssh"'  # systemd splits the value at blanks
    denied = {"stat": {"executable": False}}  # a home on NFS to which root has no access
    assert name not in service_of("mxcluster-agent@.service", __agent_unit_access=denied)


@pytest.mark.parametrize("name", ["mxcluster-agent@.service", "mxcluster-firewall@.service"])
def test_a_unit_ends_all_its_processes(name):
    service = service_of(name)
    assert service["ExecStart"].startswith("/x/bin/python ")
    assert service.get("KillMode", "control-group") == "control-group"  # systemd's default
    assert service.get("SendSIGKILL", "yes") == "yes"
