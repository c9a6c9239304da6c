"""The decisions of the roles cuda and nvidia_driver, by the answers of rpm and by the plan."""

import json
import pathlib
import shutil
import subprocess

import pytest
import yaml
from ansible.plugins.loader import init_plugin_loader

from tests.templates import templated

init_plugin_loader()  # lookups and tests of ansible.builtin
ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
LISTED = [
    "/etc/yum.repos.d/cuda.repo",
    "/var/cuda-repo-9-2-local/x/b.rpm",
    "/var/cuda-repo-9-2-local/a.rpm",
]


def decided(role, expression, **variables):
    """Return Ansible's value of an expression without braces, with the variables of a role."""
    known = yaml.safe_load((ROLES / role / "vars" / "main.yml").read_text())
    return templated("{{ %s }}" % expression, dict(known, **variables))


def test_a_renewed_record_keeps_the_ssh_key_of_the_last_record(tmp_path):
    """The last play writes the record of a node again, without the facts of the role ssh_mesh."""
    (tmp_path / "nodes").mkdir()
    known = {"mxcluster_state_dir": str(tmp_path), "inventory_hostname": "gpu2"}
    key = ["__node_record_places.ssh." + name for name in ("public_key", "user")]
    places = dict.fromkeys(("mxcluster_env_dir", "mxcluster_job_dir", "mxcluster_data_dir"), "")
    known.update(places, versions_chosen={"target": "cpu", "gpus": 0, "installed": {}})

    def key_and_user(**more):
        return [decided("node_record", one, **dict(known, **more)) for one in key]

    assert key_and_user() == ["", ""], "the first record of a node without the role"
    record = {"ssh": {"public_key": "ssh-ed25519 A", "user": "mx", "port": 22}}
    (tmp_path / "nodes" / "gpu2.json").write_text(json.dumps(record))
    assert key_and_user() == ["ssh-ed25519 A", "mx"]
    assert key_and_user(ssh_mesh_key={"public_key": "ssh-ed25519 B", "user": "my"}) == [
        *("ssh-ed25519 B", "my")
    ]
    assert key_and_user(ssh_mesh_mode="none") == ["", ""]


def asserted():
    """Return the conditions under which the role accepts an RPM."""
    tasks = yaml.safe_load((ROLES / "cuda" / "tasks" / "local_rpm.yml").read_text())
    names = [task["name"] for task in tasks]
    found = [task for task in tasks if "ansible.builtin.assert" in task]
    installing = [task["name"] for task in tasks if "ansible.builtin.yum" in task]
    assert len(found) == 1 and all(
        names.index(found[0]["name"]) < names.index(name) for name in installing
    )
    return " and ".join("(%s)" % text for text in found[0]["ansible.builtin.assert"]["that"])


def accepted(says, code=0, trusted=False, listed=LISTED):
    checked = {"item": {"path": "/tmp/a.rpm", "trusted": trusted}, "rc": code}
    checked.update(stdout="/tmp/a.rpm: " + says, stderr="")
    files = {"stdout": "\n".join(listed)}
    return decided("cuda", asserted(), item=[checked, files])


@pytest.mark.parametrize("says", ["rsa sha1 (md5) pgp md5 OK", "digests signatures OK"])
def test_a_signed_rpm_is_accepted(says):
    assert accepted(says) is True


@pytest.mark.parametrize(
    "says, code",
    [
        ("sha1 md5 OK", 0),
        ("digests OK", 0),  # not signed at all
        ("RSA sha1 ((MD5) PGP) md5 NOT OK (MISSING KEYS: (MD5) PGP#7fa2af80)", 0),
        ("digests SIGNATURES NOT OK", 0),
        ("rsa sha1 (md5) pgp md5 OK", 1),
    ],
)
def test_an_rpm_without_a_good_signature_is_accepted_by_its_sha256_alone(says, code):
    assert accepted(says, code) is False
    assert accepted(says, code, trusted=True) is True


def test_a_repository_lies_where_its_uppermost_packages_do():
    listed = {"results": [{"stdout_lines": LISTED}, {"stdout_lines": ["/var/b/a.rpm"]}]}
    assert decided("cuda", "__cuda_folders", __cuda_listed=listed) == [
        "/var/cuda-repo-9-2-local",
        "/var/b",
    ]


@pytest.mark.parametrize(
    "status, lacking, install",
    [(0, False, False), (100, False, True), (None, True, False)],
)
def test_a_complete_cuda_without_its_whole_patch_is_repaired(status, lacking, install):
    """The status decides, whatever the role can read of the list. A skipped task has no status."""
    variables = {
        "__cuda_lacking": ["cuda-toolkit-9-2"] if lacking else [],
        "__cuda_updates": {"stdout_lines": []} if status is None else {"rc": status},
    }
    assert decided("cuda", "__cuda_unpatched | bool", **variables) is install
    tasks = yaml.safe_load((ROLES / "cuda" / "tasks" / "main.yml").read_text())[0]["block"]
    (task,) = [one for one in tasks if one.get("ansible.builtin.include_tasks") == "install.yml"]
    known = dict(variables, ansible_check_mode=False)
    assert decided("cuda", task["when"], **known) is (install or lacking)


@pytest.mark.parametrize("status, good", [(0, True), (100, False)])
def test_updates_that_remain_are_refused_even_if_yum_names_none(status, good):
    tasks = yaml.safe_load((ROLES / "cuda" / "tasks" / "patch.yml").read_text())
    task = [one["ansible.builtin.assert"] for one in tasks if "ansible.builtin.assert" in one][-1]
    left = {"rc": status, "stdout": "", "stdout_lines": []}
    assert decided("cuda", task["that"], __cuda_updates=left) is good


@pytest.mark.parametrize(
    "planned, wanted, own",
    [
        ({"action": "install", "own": None}, True, True),
        ({"action": "keep", "own": "470.82.01"}, False, True),
        ({"action": "keep", "own": None}, False, False),
        ({}, False, False),  # a system on which no driver is planned
    ],
)
def test_a_driver_of_another_source_is_left_alone(planned, wanted, own):
    variables = {"nvidia_driver_planned": planned}
    assert decided("nvidia_driver", "__nvidia_driver_wanted | bool", **variables) is wanted
    assert decided("nvidia_driver", "__nvidia_driver_own | bool", **variables) is own


@pytest.mark.parametrize(
    "answer, told",
    [
        ({"skipped": True}, False),  # a dry run
        ({"rc": 0, "stdout": "3:nvidia-driver-latest-dkms-470.82.01-1.el7.*"}, False),
        ({"rc": 1, "stdout": "", "stderr": "No such command: versionlock."}, True),
        ({"rc": 0, "stdout": "", "stderr": ""}, True),  # versionlock.conf names another list
    ],
)
def test_a_version_lock_that_yum_does_not_read_is_reported(answer, told):
    """Without plugins=1 in /etc/yum.conf, yum 3 loads no plugin. Each run looks."""
    tasks = yaml.safe_load((ROLES / "nvidia_driver" / "tasks" / "hold.yml").read_text())
    (ask,) = [one for one in tasks if one.get("register") == "__nvidia_driver_held"]
    assert "when" not in ask and ask["changed_when"] is False
    (task,) = [one for one in tasks if "ansible.builtin.debug" in one]
    assert decided("nvidia_driver", task["when"], __nvidia_driver_held=answer) is told


@pytest.mark.parametrize("index, option", [(0, "--toolkit"), (1, "--accept-eula")])
@pytest.mark.parametrize("status", [0, 1])
def test_an_installer_gets_its_options_and_a_patch_its_own(tmp_path, index, option, status):
    (tmp_path / "cuda").mkdir()
    script = 'echo "$@" >%s/arguments; exit %d' % (tmp_path, status)
    (tmp_path / "cuda" / "a.run").write_text(script)
    shutil.copy(str(ROLES / "cuda" / "files" / "run_installer.sh"), str(tmp_path / "cuda"))
    tasks = yaml.safe_load((ROLES / "cuda" / "tasks" / "runfile_one.yml").read_text())
    (task,) = [one for one in tasks if one["name"].startswith("Run ")]
    argv = decided(
        "cuda",
        task["ansible.builtin.command"]["argv"].strip("{} "),
        __cuda_file={"name": "a.run", "sha256": "0123456789abcdef"},
        mxcluster_cache_dir=str(tmp_path),
        __cuda_index=index,
        __cuda_dir=str(tmp_path),
        versions_chosen={"cuda": {"version": "9.2"}},
    )
    assert subprocess.call(argv) == status
    assert (tmp_path / "arguments").read_text().startswith("--silent " + option)


@pytest.mark.parametrize(
    "change, differs",
    [
        ({}, False),
        ({"gpu_users": ["python (pid 7)"]}, False),  # not in the record
        ({"driver": "470.82.01"}, True),
        ({"nouveau": False}, True),
    ],
)
def test_a_driver_that_was_loaded_at_the_end_renews_the_record(change, differs):
    first = {"driver_installed": None, "driver": None, "nouveau": True, "gpu_users": []}
    now = dict(first, **change)
    variables = {"__nvidia_driver_now": now, "__nvidia_driver_first": first}
    assert decided("nvidia_driver", "__nvidia_driver_differs", **variables) is differs
    playbook = pathlib.Path(str(ROLES)).parent / "playbooks" / "provision.yml"
    tasks = yaml.safe_load(playbook.read_text())[-1]["tasks"]
    files = [(one.get("ansible.builtin.include_role") or {}).get("tasks_from") for one in tasks]
    assert files.index("state.yml") < files.index("renew.yml") < files.index("restart.yml")
    # Also with this tag, which loads the driver of a node, but does not write its record.
    assert tasks[files.index("renew.yml")]["tags"] == ["nvidia_driver"]


@pytest.mark.parametrize(
    "lines, good",
    [
        (["GPU 0: A100 (UUID: GPU-a)", "GPU 1: A100 (UUID: GPU-b)"], True),
        (
            # With MIG, each instance has a line of its own.
            ["GPU 0: A100 (UUID: GPU-a)", "  MIG 3g.20gb     Device  0: (UUID: MIG-c)"]
            + ["  MIG 3g.20gb     Device  1: (UUID: MIG-d)", "GPU 1: A100 (UUID: GPU-b)"],
            True,
        ),
        (["GPU 0: A100 (UUID: GPU-a)"], False),  # a GPU that has fallen off the bus
        ([], False),
    ],
)
def test_nvidia_smi_must_list_each_gpu_of_the_bus(lines, good):
    tasks = yaml.safe_load((ROLES / "nvidia_driver" / "tasks" / "state.yml").read_text())
    (block,) = [one["block"] for one in tasks if "block" in one]
    (task,) = [one["ansible.builtin.assert"] for one in block if "ansible.builtin.assert" in one]
    variables = {
        "__nvidia_driver_smi": {"rc": 0, "stdout_lines": lines},
        "versions_chosen": {"machine": {"gpus": ["20b0", "20b0"]}},
    }
    assert decided("nvidia_driver", task["that"], **variables) is good


@pytest.mark.parametrize("system", ["CentOS 7", "RedHat 7"])
def test_both_systems_get_epel_and_only_centos_its_older_releases(system):
    """dkms comes from EPEL. RHEL has the headers of all its kernels in its own repositories."""
    tasks = yaml.safe_load((ROLES / "el7_repos" / "tasks" / "epel.yml").read_text())
    known = {"el7_repos_manage": True, "versions_chosen": {"system": system}}
    epel = dict(known, el7_repos_epel="http://epel", ansible_check_mode=False)
    assert decided("el7_repos", tasks[0]["when"], **epel) is True
    assert decided("el7_repos", tasks[0]["when"], **dict(epel, el7_repos_manage=False)) is False
    releases = decided("el7_repos", "__el7_repos_vaults", el7_repos_releases=["7.6.1810"], **known)
    both = [["7.6.1810", "os"], ["7.6.1810", "updates"]]
    assert [list(one) for one in releases] == (both if system == "CentOS 7" else [])


@pytest.mark.parametrize(
    "jobs, busy, reboots",
    [
        ({"skipped": True}, "", False),  # no restart is needed or requested
        ({"jobs": []}, "", True),
        ({"failed": True}, "", True),  # a node without MXNet has no jobs
        ({"jobs": []}, "end python (pid 7)", False),
    ],
)
def test_only_an_idle_node_is_restarted(jobs, busy, reboots):
    tasks = yaml.safe_load((ROLES / "nvidia_driver" / "tasks" / "state.yml").read_text())
    (task,) = [one for one in tasks if one.get("ansible.builtin.include_tasks", "") == "reboot.yml"]
    variables = {"__nvidia_driver_jobs": jobs, "__nvidia_driver_busy": busy}
    assert decided("nvidia_driver", task["when"], **variables) is reboots


@pytest.mark.parametrize("role, name", [("cuda", "bring.yml"), ("mxnet", "build.yml")])
def test_large_files_do_not_pass_through_the_home_of_the_ssh_user(role, name):
    tasks = yaml.safe_load((ROLES / role / "tasks" / name).read_text())
    tasks += [one for task in tasks for one in task.get("block", [])]
    (copy,) = [one for one in tasks if "throttle" in one]
    folder = copy["vars"]["ansible_remote_tmp"]
    made = [one["ansible.builtin.file"] for one in tasks if "ansible.builtin.file" in one]
    assert {"path": folder, "state": "directory", "mode": "1733"} in made
