"""What a role tells rpm and systemd, as its files say it; no machine is needed to see that it means what it should."""
import configparser
import pathlib

import jinja2
import pytest
import yaml

from mxcluster import versions

ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"
VARS = dict.fromkeys(("ansible_managed", "mxcluster_user", "mxcluster_env_dir", "mxcluster_job_dir", "mxcluster_cache_dir"), "/x")
JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined)


def render(text, **variables):
    return JINJA.from_string(text).render(VARS, **variables)


def test_rpm_is_told_what_the_fingerprint_of_each_key_must_be():
    """Without one, rpm_key trusts whatever file is there."""
    keys = versions.table()["keys"]
    tasks = [task for path in ROLES.glob("*/tasks/*.yml") for task in yaml.safe_load(path.read_text()) or []]
    told = [task["ansible.builtin.rpm_key"] for task in tasks if "ansible.builtin.rpm_key" in task]
    assert told and [(key["name"], len(key["fingerprint"])) for key in keys] == [("7fa2af80", 40), ("D42D0685", 40)]
    for arguments in told:
        for key in keys:
            shown = {name: render(value, item=key) for name, value in arguments.items()}
            assert shown == {"key": "/x/cuda/" + key["name"], "fingerprint": key["fingerprint"]}
            assert key["fingerprint"].lower().endswith(key["name"].lower())


@pytest.mark.parametrize("name", ["mxcluster-agent@.service", "mxcluster-firewall@.service"])
def test_a_unit_ends_all_that_it_has_started(name):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(render((ROLES / "agent_unit" / "templates" / (name + ".j2")).read_text()))
    service = unit["Service"]
    assert service["ExecStart"].startswith("/x/bin/python ")
    assert service.get("KillMode", "control-group") == "control-group"  # which is what systemd does without a word
    assert service.get("SendSIGKILL", "yes") == "yes"
