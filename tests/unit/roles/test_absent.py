"""Each role of provision.yml undoes its work in reset.yml, or has a reason not to."""

import fnmatch
import pathlib
import re

import pytest
import yaml
from ansible.plugins.loader import init_plugin_loader

from mxcluster.cluster.reset import PARTS
from tests.templates import templated

init_plugin_loader()  # filters of ansible.builtin

PROJECT = pathlib.Path(__file__).resolve().parents[3]
RESET = yaml.safe_load((PROJECT / "roles" / "reset" / "vars" / "main.yml").read_text())
ON_NODES = RESET["__reset_roles"]
ON_CONTROLLER = ["node_record", "drift"]
STAYS = {
    "preflight": "it changes no node",
    "versions": "it changes no node",
}
# What the roles make on nodes and no item of `absent.yml` names, with the reason.
UNNAMED = {
    "*": "only a run knows the path: molecule/cluster/test_reset.py compares the files of a node",
    "/etc/dkms": "the package dkms needs the folder",
    "/etc/yum/pluginconf.d/versionlock.list": "of a package; the block goes with blockinfile",
    "/home/mxcluster/.ssh": "a part of the home",
    "/lib/modules/*/mxcluster-no-nouveau": "goes after each kernel's initramfs was built again",
}
KNOWN = {
    **yaml.safe_load((PROJECT / "roles" / "mxcluster" / "defaults" / "main.yml").read_text()),
    "reset_planned": {"also": list(PARTS)},
    "el7_repos_found": ["cuda-libraries-9-2"],
    "cuda_installed": {"dirs": ["/usr/local/cuda-9.2"]},
    "cuda_stays": False,
    "nvidia_driver_stays": False,
    "__cuda_owned": {"stdout_lines": ["/usr/local/cuda-9.2"]},
    "__cuda_linked": {"stat": {"lnk_source": "/usr/local/cuda-9.2"}},
    "__agent_unit_home": "/home/mxcluster",
    "__training_user_entry": ["", "", "", "trains for mxcluster", "/home/mxcluster"],
    "__cuda_dir": "/usr/local/cuda-9.2",
    "__cuda_dashed": "9-2",
}
# The argument with the path that a module makes.
MAKERS = {
    "ansible.builtin.file": ("path", "dest"),
    "ansible.builtin.copy": ("dest",),
    "ansible.builtin.template": ("dest",),
    "ansible.builtin.blockinfile": ("path",),
    "ansible.builtin.lineinfile": ("path",),
    "ansible.builtin.yum_repository": ("file", "name"),
    "ansible.builtin.command": ("creates",),
    "mxcluster_file": ("path",),
    "mxcluster_env": ("path",),
}


def variables_of(role):
    """Return the variables of a role with their templates."""
    known = {}
    for folder in ("defaults", "vars"):
        path = PROJECT / "roles" / role / folder / "main.yml"
        known.update((yaml.safe_load(path.read_text()) if path.exists() else None) or {})
    return {**known, **KNOWN}


def tasks_of(listed):
    """Yield all tasks of a list, also those in blocks."""
    for task in listed or []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part))


def evaluated(text, known):
    """Return the text with the values of its variables, and * for those that only a run knows."""

    def value(found):
        try:
            return evaluated(str(templated(found.group(), known)), known)
        except Exception:  # each class of ansible-core's for a variable without a value
            return "*"

    return re.sub(r"{{.*?}}", value, text)


def made(role):
    """Return the paths on nodes that the tasks of a role make."""
    known, found = variables_of(role), set()
    for file in sorted((PROJECT / "roles" / role / "tasks").glob("*.yml")):
        for task in tasks_of(yaml.safe_load(file.read_text())):
            for module, names in MAKERS.items():
                arguments = task.get(module)
                if arguments is None or task.get("delegate_to") == "localhost":
                    continue
                if isinstance(arguments, str):  # a variable with all arguments
                    arguments = known.get(arguments.strip("{} ").split(" ")[0], {})
                if arguments.get("state") == "absent":
                    continue
                for name in names:
                    path = arguments.get(name) if isinstance(arguments, dict) else None
                    if path and module.endswith("yum_repository"):
                        path = "/etc/yum.repos.d/%s.repo" % path
                    if path:
                        found.add(evaluated(path, known).rstrip("/"))
                        break
    return found


def items_of(role):
    """Return [(path, kind)] of what reset.yml removes with all parts, by a role's variable."""
    known = variables_of(role)
    listed = known.get("__%s_paths" % role, [])
    if isinstance(listed, str):
        listed = templated(listed, known)
    return [(evaluated(one["path"], known), one.get("kind", "file")) for one in listed]


def is_named(path, items):
    """Return True if an item has the path, or a folder around it."""
    return any(
        fnmatch.fnmatchcase(path, item)
        or fnmatch.fnmatchcase(item, path)
        or (kind == "folder" and path.startswith(item + "/"))
        for item, kind in items
    )


def roles_of(playbook):
    """Return the roles that a playbook imports or includes."""
    return {
        task[action]["name"]
        for play in yaml.safe_load((PROJECT / "playbooks" / playbook).read_text())
        for task in play["tasks"]
        for action in ("ansible.builtin.import_role", "ansible.builtin.include_role")
        if action in task
    }


def test_each_role_of_the_provisioning_is_undone_or_stays_for_a_reason():
    undone = {*ON_NODES, *ON_CONTROLLER}
    assert roles_of("provision.yml") == undone | set(STAYS) and not undone & set(STAYS)


@pytest.mark.parametrize("role", ON_NODES)
def test_a_role_tells_the_report_what_it_has_removed(role):
    text = (PROJECT / "roles" / role / "tasks" / "absent.yml").read_text()
    told = ("%s_%s:" % (role, end) for end in ("absent", "others"))
    assert "register: %s_absent" % role in text or any(one in text for one in told)


def test_each_path_that_a_role_makes_is_named_by_the_tasks_that_remove_it():
    items = [item for role in ON_NODES for item in items_of(role)]
    lacking = {
        (role, path)
        for role in sorted({*ON_NODES, *STAYS, *ON_CONTROLLER})
        for path in made(role)
        if not is_named(path, items) and path not in UNNAMED
    }
    assert lacking == set()


def test_a_path_of_nobody_is_found():
    items = [("/opt/mxcluster/cache", "folder"), ("/etc/mxcluster", "empty")]
    assert is_named("/opt/mxcluster/cache/cuda", items) and is_named("/etc/mxcluster", items)
    assert not is_named("/etc/mxcluster/new", items) and not is_named("/opt/mxcluster/x", items)


def test_the_controller_forgets_the_node_last():
    main = yaml.safe_load((PROJECT / "roles" / "reset" / "tasks" / "main.yml").read_text())
    assert [task.get("loop") for task in main] == ["{{ __reset_roles }}", None, ON_CONTROLLER]
    for role in ON_CONTROLLER:
        assert (PROJECT / "roles" / role / "tasks" / "absent.yml").exists()
