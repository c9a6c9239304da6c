"""What reset.yml finds on a node, and what it says about packages and images."""

import base64
import pathlib

import pytest
import yaml
from ansible.plugins.loader import init_plugin_loader

from tests.templates import templated

init_plugin_loader()  # filters and tests of ansible.builtin
ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
# yum 3 breaks a long line, and adds the release of the installation if it was another one.
LISTED = """\
Installed Packages
cuda-cudart-9-2.x86_64            9.2.148-1             @mxcluster-cuda-9-2-0
cuda-command-line-tools-9-2-of-a-long-name.x86_64
                                  9.2.148-1             @mxcluster-cuda-9-2-1
nvidia-persistenced-latest-dkms.x86_64
                                  3:470.82.01-1.el7     @mxcluster-nvidia-driver
kmod-nvidia-latest-dkms.x86_64    3:470.82.01-1.el7
                                                        @mxcluster-nvidia-driver/7Server
cuda-nvcc-8-0.x86_64              8.0.61-1              @cuda
glibc.x86_64                      2.17-326.el7_9        installed
"""
CUDA = r"mxcluster-cuda-\S+|mxcluster-nvidia-cuda"
OF_9_2 = "/usr/local/cuda-9.2"


def decided(role, expression, **variables):
    """Return Ansible's value of an expression without braces, with the variables of a role."""
    known = yaml.safe_load((ROLES / role / "vars" / "main.yml").read_text())
    return templated("{{ %s }}" % expression, dict(known, **variables))


def written(path, name):
    """Return the template of a fact that a file of tasks writes."""
    tasks = yaml.safe_load((ROLES / path).read_text())
    (found,) = [task["ansible.builtin.set_fact"] for task in tasks if "set_fact" in str(task)]
    return found[name]


@pytest.mark.parametrize(
    "ids, found",
    [
        (CUDA, ["cuda-cudart-9-2", "cuda-command-line-tools-9-2-of-a-long-name"]),
        ("mxcluster-nvidia-driver", ["nvidia-persistenced-latest-dkms", "kmod-nvidia-latest-dkms"]),
        ("mxcluster-cuda", []),
    ],
)
def test_packages_are_found_by_the_repository_of_their_origin(ids, found):
    given = {"el7_repos_ids": ids, "__el7_repos_installed": {"stdout": LISTED}}
    assert templated(written("el7_repos/tasks/packages.yml", "el7_repos_found"), given) == found


@pytest.mark.parametrize(
    "answer, fails",
    [
        ({"rc": 0, "stderr": ""}, False),
        ({"rc": 1, "stderr": "Error: No matching Packages to list"}, False),  # a node without RPMs
        ({"rc": 1, "stderr": "Config error: Error accessing file for config"}, True),
        ({"rc": 124, "stderr": "Another app is currently holding the yum lock"}, True),
        ({"skipped": True}, False),  # a node without yum
    ],
)
def test_packages_that_yum_cannot_list_do_not_count_as_removed(answer, fails):
    (task,) = yaml.safe_load((ROLES / "el7_repos/tasks/packages.yml").read_text())[:1]
    assert decided("el7_repos", task["failed_when"], __el7_repos_installed=answer) is fails


def test_packages_that_rpm_refuses_stay_with_its_reason():
    fact = written("el7_repos/tasks/uninstall.yml", "el7_repos_uninstalled")
    given = {"el7_repos_packages": ["a", "b"]}
    refusal = {"rc": 1, "stderr": "error: a is needed by c\n"}
    assert templated(fact, dict(given, __el7_repos_gone=refusal)) == {
        "removed": [],
        "kept": {"the packages a, b": "error: a is needed by c"},
    }
    gone = templated(fact, dict(given, __el7_repos_gone={"rc": 0}))
    assert gone == {"removed": ["the package a", "the package b"], "kept": {}}


def changing(tasks, *conditions):
    """Yield (name, all conditions) of each task that changes the node, also of those in blocks."""
    for task in tasks:
        own = (*conditions, *([task["when"]] if "when" in task else []))
        yield from changing(task.get("block", []), *own)
        if {"mxcluster_absent", "ansible.builtin.blockinfile"} & set(task) or (
            "ansible.builtin.command" in task and task.get("check_mode") is not False
        ):
            yield task["name"], own


@pytest.mark.parametrize("path", ["nvidia_driver/tasks/uninstall.yml", "cuda/tasks/absent.yml"])
@pytest.mark.parametrize("kept", [{}, {"the packages a": "error: a is needed by c"}])
def test_what_rpm_refuses_to_remove_keeps_its_settings(path, kept):
    """Without its blacklist, nouveau would take the GPUs of a driver that stays."""
    given = {
        "el7_repos_uninstalled": {"kept": kept},
        "reset_planned": {"also": ["cuda", "driver"]},
        "mxcluster_user": "mx",
        "ansible_check_mode": False,
        "__nvidia_driver_list": {"stat": {"exists": True}},
        "__nvidia_driver_marks": {"files": [{"path": "/lib/modules/a/mxcluster-no-nouveau"}]},
    }
    tasks = yaml.safe_load((ROLES / path).read_text())
    found = {
        name: all(templated("{{ %s }}" % one, given) for one in conditions)
        for name, conditions in changing(tasks)
    }
    assert len(found) > 1 and set(found.values()) == {not kept}, found
    stays = "cuda_stays" if path.startswith("cuda") else "nvidia_driver_stays"
    fact = tasks[-1] if "block" not in tasks[-1] else tasks[-1]["block"][-1]
    template = fact["ansible.builtin.set_fact"][stays]
    assert templated(template, dict(given, cuda_stays=False)) is bool(kept)


def test_a_foreign_cuda_is_none_of_the_folders():
    """A folder without a mark, such as that of a person or of NVIDIA's repository, stays."""
    owned = {"stdout_lines": ["/usr/local/cuda-10.0", "file /x is not owned by any package"]}
    owned["stdout_lines"].append("package cuda-repo-rhel7-9-2-local")
    given = {"el7_repos_found": ["cuda-nvcc-9-2", "cuda-license"], "__cuda_owned": owned}
    dirs = decided("cuda", "__cuda_own_dirs", **given)
    assert dirs == ["/usr/local/cuda-10.0", OF_9_2]
    packages = decided("cuda", "__cuda_own_packages", **given)
    assert packages == ["cuda-nvcc-9-2", "cuda-license", "cuda-repo-rhel7-9-2-local"]

    given["cuda_installed"] = {"dirs": dirs}
    linked = {"stat": {"lnk_source": "/usr/local/cuda-8.0"}}
    items = {
        one["path"]: one for one in decided("cuda", "__cuda_paths", __cuda_linked=linked, **given)
    }
    assert items["/usr/local/cuda-10.0"]["kind"] == "folder"
    assert OF_9_2 not in items and "/usr/local/cuda" not in items
    conf = items["/etc/ld.so.conf.d/cuda-9-2.conf"]["contents"]
    assert (OF_9_2 + "/lib64\n").encode() in [base64.b64decode(one) for one in conf]
    linked = {"stat": {"lnk_source": OF_9_2}}
    items = decided("cuda", "__cuda_paths", __cuda_linked=linked, **given)
    assert {"path": "/usr/local/cuda"} in items


@pytest.mark.parametrize(
    "cuda, driver, keys, epel",
    [
        (False, False, True, True),
        (True, False, False, True),
        (False, True, False, False),
    ],
)
def test_repositories_and_keys_stay_with_what_came_from_them(cuda, driver, keys, epel):
    listed = decided("el7_repos", "__el7_repos_paths", cuda_stays=cuda, nvidia_driver_stays=driver)
    paths = " ".join(one["path"] for one in listed)
    assert ("RPM-GPG-KEY" in paths, "mxcluster-epel" in paths) == (keys, epel)


@pytest.mark.parametrize(
    "base, seen, gone, removed, kept",
    [
        ("debian", {"rc": 1, "stderr": "no such image: x: No such image: x"}, {}, False, None),
        ("debian", {"rc": 125, "stderr": "Error: x: image not known"}, {}, False, None),  # podman
        ("debian", {"rc": 2, "stderr": ""}, {}, False, None),  # without the engine
        (
            "debian",
            {"rc": 1, "stderr": "Cannot connect to the daemon"},
            {},
            False,
            "Cannot connect",
        ),
        ("", {"rc": 1, "stderr": "Cannot connect to the daemon"}, {}, False, None),
        ("debian", {"rc": 0}, {"rc": 0}, True, None),
        ("debian", {"rc": 0}, {}, True, None),  # check mode
        ("debian", {"rc": 0}, {"rc": 1, "stderr": "is used by a container\n"}, False, "is used"),
        ("", {"rc": 0}, {}, False, "did not make"),
    ],
)
def test_an_image_goes_if_the_role_has_made_it(base, seen, gone, removed, kept):
    told = decided(
        "container_image",
        "__container_image_result",
        container_image_engine="docker",
        container_image_name="localhost/mxcluster",
        container_image_base=base,
        container_image_archive="",
        __container_image_seen=seen,
        __container_image_gone=gone,
    )
    assert bool(told["removed"]) is removed
    assert (kept in str(told["kept"])) if kept else told["kept"] == {}


@pytest.mark.parametrize(
    "comment, uid, also, removed, kept",
    [
        ("trains for mxcluster", 1001, ["homes"], True, None),
        ("trains for mxcluster", 1001, [], False, None),
        ("trains for mxcluster", 0, ["homes"], False, "/srv/all"),  # a person's usermod --home
        ("Ann", 1001, ["homes"], False, "the account mx"),
    ],
)
def test_a_home_goes_if_the_account_of_the_role_owns_it(comment, uid, also, removed, kept):
    given = {
        "mxcluster_user": "mx",
        "mxcluster_home": "/opt/mxcluster",
        "reset_planned": {"also": also},
        "ansible_facts": {
            "getent_passwd": {"mx": ["x", "1001", "1001", comment, "/srv/all", "/bin/bash"]}
        },
        "__training_user_home": {"stat": {"exists": True, "uid": uid}},
    }
    paths = [one["path"] for one in decided("training_user", "__training_user_paths", **given)]
    assert ("/srv/all" in paths) is removed
    result = decided("training_user", "__training_user_result", **given)
    assert list(result["kept"]) == ([kept] if kept else [])


def test_an_account_that_userdel_refuses_to_remove_stays_with_its_home():
    """A person is logged in. The rest goes, and a second run removes the account."""
    given = {
        "mxcluster_user": "mx",
        "mxcluster_home": "/opt/mxcluster",
        "reset_planned": {"also": ["homes"]},
        "ansible_facts": {
            "getent_passwd": {"mx": ["x", "1001", "1001", "trains for mxcluster", "/home/mx", ""]}
        },
        "__training_user_home": {"stat": {"exists": True, "uid": 1001}},
        "__training_user_removed": {"rc": 8, "msg": "userdel: user mx is used by process 7\n"},
    }
    paths = [one["path"] for one in decided("training_user", "__training_user_paths", **given)]
    assert paths == ["/opt/mxcluster"]
    result = decided("training_user", "__training_user_result", **given)
    assert result["removed"] == [] and list(result["kept"]) == ["the account mx"]
    assert result["kept"]["the account mx"].startswith("userdel: user mx is used by process 7. ")
    tasks = yaml.safe_load((ROLES / "training_user" / "tasks" / "absent.yml").read_text())
    (removal,) = [one for one in tasks[0]["block"] if "ansible.builtin.user" in one]
    assert removal["failed_when"] is False and removal["register"] == "__training_user_removed"
