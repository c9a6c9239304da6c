"""Ansible's modules, run as Ansible runs them on a node: under the node's Python, with Ansible's module_utils and ours."""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

PROJECT = pathlib.Path(__file__).resolve().parents[1]
MODULES = PROJECT / "plugins" / "modules"
START = ("import runpy, sys, ansible.module_utils as utils; utils.__path__.append(sys.argv.pop(1)); sys.argv.pop(0); "
         "runpy.run_path(sys.argv[0], run_name='__main__')")


def run(module, folder, under=sys.executable, check=False, **params):
    """The answer of the module, with its exit status as "rc"; `folder` is for its arguments, `under` the interpreter."""
    arguments = folder / "arguments.json"
    arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": dict(params, _ansible_check_mode=check)}))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["PYTHONPATH"] = os.pathsep.join([ansible_for(under, folder), str(PROJECT / "node")])
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run([str(under), "-c", START, str(PROJECT / "plugins" / "module_utils"),
                           str(MODULES / (module + ".py")), str(arguments)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, env=environment)
    assert done.stdout.strip().startswith(b"{"), done
    return dict(json.loads(done.stdout.decode()), rc=done.returncode)


def carry_out(plugin, check=False, **params):
    """The result of a task that runs on the controller (`mxcluster.controller_task`)."""
    task = mock.Mock(async_val=0, check_mode=check, args=params)
    action = plugin.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
    sys.modules[type(action).__module__] = plugin
    return action.run(task_vars={})


def let_everybody_through(folder):
    """Open what pytest has made above `folder` for its own user alone."""
    for above in folder.parents:
        if above == pathlib.Path(tempfile.gettempdir()):
            return
        above.chmod(0o755)


def ansible_for(python, folder):
    """A folder in which `python` finds Ansible as far as modules see it; the node's Python has none of its own."""
    if python == sys.executable:
        return ""
    source = pathlib.Path(importlib.util.find_spec("ansible").submodule_search_locations[0])
    target = folder / "ansible_for_nodes"
    if not target.exists():
        shutil.copytree(str(source / "module_utils"), str(target / "ansible" / "module_utils"))
        (target / "ansible" / "__init__.py").write_text("__version__ = 'of the node'\n")
        shutil.copy2(str(source / "release.py"), str(target / "ansible" / "release.py"))
    return str(target)
