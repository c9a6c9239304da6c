"""Ansible's modules, run as Ansible runs them on a node: under the node's Python, with Ansible's module_utils and ours."""
import atexit
import functools
import importlib.util
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

PROJECT = pathlib.Path(__file__).resolve().parents[1]
MODULES = PROJECT / "plugins" / "modules"
# A Python that has imported what all modules import. For each line it forks a child, which runs one as Ansible would.
WARM = """
import json, os, runpy, sys
import ansible.module_utils.basic, ansible.module_utils
ansible.module_utils.__path__.append(sys.argv[1])
for line in iter(sys.stdin.readline, ''):
    asked = json.loads(line)
    child = os.fork()
    if not child:
        for number, path in enumerate((os.devnull, asked['stdout'], asked['stderr'])):
            os.dup2(os.open(str(path), (os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if number else os.O_RDONLY, 0o600), number)
        os.umask(asked['umask'])
        os.chdir(asked['folder'])
        os.environ.clear()
        os.environ.update((str(name), str(value)) for name, value in asked['environment'].items())
        sys.argv = [str(word) for word in asked['argv']]
        exec(asked['before'], {})
        runpy.run_path(sys.argv[0], run_name='__main__')
        sys.exit()
    status = os.waitpid(child, 0)[1]
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    sys.stdout.flush()
"""


def run(module, folder, under=sys.executable, check=False, before="", **params):
    """The answer of the module, with its exit status as "rc".

    `folder` is for its arguments and its output, `under` the interpreter, `before` a program that its process runs first.
    """
    arguments, stdout, stderr = (folder / name for name in ("arguments.json", "stdout", "stderr"))
    arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": dict(params, _ansible_check_mode=check)}))
    umask = os.umask(0)
    os.umask(umask)
    warm = warm_python(str(under))
    asked = {"argv": [str(MODULES / (module + ".py")), str(arguments)], "stdout": str(stdout), "stderr": str(stderr),
             "before": before, "umask": umask, "folder": os.getcwd(), "environment": environment(str(under))}
    warm.stdin.write(json.dumps(asked) + "\n")
    warm.stdin.flush()
    assert select.select([warm.stdout], [], [], 300)[0], "%s is not done after 300 s" % module
    rc = int(warm.stdout.readline())
    told = stdout.read_text().strip()
    assert told.startswith("{"), (rc, told, stderr.read_text())
    return dict(json.loads(told), rc=rc)


def environment(python):
    """Return the environment of a module: Python finds Ansible and the package, and leaves no bytecode in this project."""
    path = os.pathsep.join([ansible_for(python), str(PROJECT / "node")])
    return dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")


@functools.lru_cache(maxsize=None)
def warm_python(python):
    """The process that runs modules under an interpreter; it ends with the tests."""
    return subprocess.Popen([python, "-c", WARM, str(PROJECT / "plugins" / "module_utils")], universal_newlines=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(python))


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


@functools.lru_cache(maxsize=None)
def ansible_for(python):
    """A folder in which `python` finds Ansible as far as modules see it; the node's Python has none of its own."""
    if python == sys.executable:
        return ""
    source = pathlib.Path(importlib.util.find_spec("ansible").submodule_search_locations[0])
    target = pathlib.Path(tempfile.mkdtemp(prefix="mxcluster-tests-"))
    atexit.register(shutil.rmtree, str(target), ignore_errors=True)
    target.chmod(0o755)  # modules act as other users, too
    shutil.copytree(str(source / "module_utils"), str(target / "ansible" / "module_utils"))
    (target / "ansible" / "__init__.py").write_text("__version__ = 'of the node'\n")
    shutil.copy2(str(source / "release.py"), str(target / "ansible" / "release.py"))
    # Compiled once, and not in each run.
    subprocess.run([python, "-c", "import ansible.module_utils.basic"], check=True, env={"PYTHONPATH": str(target)})
    return str(target)
