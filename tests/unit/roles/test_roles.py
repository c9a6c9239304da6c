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
    ),
    "/x",
)
JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined)


def render(text, **variables):
    return JINJA.from_string(text).render(VARS, **variables)


def test_each_rpm_key_has_a_fingerprint():
    """Without a fingerprint, rpm_key trusts any file."""
    keys = version_table.table()["keys"]
    tasks = [
        task
        for path in ROLES.glob("*/tasks/*.yml")
        for task in yaml.safe_load(path.read_text()) or []
    ]
    told = [task["ansible.builtin.rpm_key"] for task in tasks if "ansible.builtin.rpm_key" in task]
    assert told and [(key["name"], len(key["fingerprint"])) for key in keys] == [
        ("7fa2af80", 40),
        ("D42D0685", 40),
    ]
    for arguments in told:
        for key in keys:
            shown = {name: render(value, item=key) for name, value in arguments.items()}
            assert shown == {"key": "/x/cuda/" + key["name"], "fingerprint": key["fingerprint"]}
            assert key["fingerprint"].lower().endswith(key["name"].lower())


@pytest.mark.parametrize("name", ["mxcluster-agent@.service", "mxcluster-firewall@.service"])
def test_a_unit_ends_all_its_processes(name):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(render((ROLES / "agent_unit" / "templates" / (name + ".j2")).read_text()))
    service = unit["Service"]
    assert service["ExecStart"].startswith("/x/bin/python ")
    assert service.get("KillMode", "control-group") == "control-group"  # systemd's default
    assert service.get("SendSIGKILL", "yes") == "yes"
