"""Run Ansible modules as on a node: with the node's Python, Ansible's module_utils and ours."""

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

from mxcluster.model import module_answers

PROJECT = pathlib.Path(__file__).resolve().parents[1]
MODULES = PROJECT / "plugins" / "modules"
# This Python process has imported Ansible's common modules. For each line on stdin it forks a
# child, which runs one module.
WARM = """
import json, os, runpy, sys
import ansible.module_utils.basic, ansible.module_utils
ansible.module_utils.__path__.append(sys.argv[1])
for line in iter(sys.stdin.readline, ''):
    request = json.loads(line)
    child = os.fork()
    if not child:
        for number, path in enumerate((os.devnull, request['stdout'], request['stderr'])):
            flags = (os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if number else os.O_RDONLY
            os.dup2(os.open(str(path), flags, 0o600), number)
        os.umask(request['umask'])
        os.chdir(request['folder'])
        os.environ.clear()
        os.environ.update((str(name), str(value)) for name, value in request['environment'].items())
        sys.argv = [str(word) for word in request['argv']]
        exec(request['before'], {})
        runpy.run_path(sys.argv[0], run_name='__main__')
        sys.exit()
    status = os.waitpid(child, 0)[1]
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    sys.stdout.flush()
"""


def run(module, folder, under=sys.executable, check=False, before="", **params):
    """Run a module; return its answer with its exit status as "rc".

    Args:
        module: the module's name.
        folder: the folder for its arguments and its output.
        under: the interpreter.
        check: whether to run in check mode.
        before: a program that the module's process runs first.
        params: the module's arguments.
    """
    arguments, stdout, stderr = (folder / name for name in ("arguments.json", "stdout", "stderr"))
    arguments.write_text(
        json.dumps({"ANSIBLE_MODULE_ARGS": dict(params, _ansible_check_mode=check)})
    )
    umask = os.umask(0)
    os.umask(umask)
    warm = warm_python(str(under))
    request = {
        "argv": [str(MODULES / (module + ".py")), str(arguments)],
        "stdout": str(stdout),
        "stderr": str(stderr),
        "before": before,
        "umask": umask,
        "folder": os.getcwd(),
        "environment": environment(str(under)),
    }
    warm.stdin.write(json.dumps(request) + "\n")
    warm.stdin.flush()
    assert select.select([warm.stdout], [], [], 300)[0], "%s is not done after 300 s" % module
    rc = int(warm.stdout.readline())
    text = stdout.read_text().strip()
    assert text.startswith("{"), (rc, text, stderr.read_text())
    answer = json.loads(text)
    module_answers.check(module, "node1", answer)  # the controller accepts each answer of a module
    return dict(answer, rc=rc)


def environment(python):
    """Return the environment of a module, with Ansible and the package on Python's path.

    Python writes no bytecode into this project.
    """
    path = os.pathsep.join([ansible_for(python), str(PROJECT / "python")])
    return dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")


@functools.lru_cache(maxsize=None)
def warm_python(python):
    """Return the process that runs modules under an interpreter; it ends with the tests."""
    return subprocess.Popen(
        [python, "-c", WARM, str(PROJECT / "plugins" / "module_utils")],
        universal_newlines=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(python),
    )


def carry_out(plugin, check=False, **params):
    """Return the result of a controller task (`mxcluster.ansible.controller_task`)."""
    task = mock.Mock(async_val=0, check_mode=check, args=params)
    action = plugin.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
    sys.modules[type(action).__module__] = plugin
    return action.run(task_vars={})


@functools.lru_cache(maxsize=None)
def ansible_for(python):
    """Return a folder in which `python` finds Ansible's modules, which a node's Python lacks."""
    if python == sys.executable:
        return ""
    source = pathlib.Path(importlib.util.find_spec("ansible").submodule_search_locations[0])
    target = pathlib.Path(tempfile.mkdtemp(prefix="mxcluster-tests-"))
    atexit.register(shutil.rmtree, str(target), ignore_errors=True)
    target.chmod(0o755)  # modules also run as other users
    shutil.copytree(str(source / "module_utils"), str(target / "ansible" / "module_utils"))
    (target / "ansible" / "__init__.py").write_text("__version__ = 'of the node'\n")
    shutil.copy2(str(source / "release.py"), str(target / "ansible" / "release.py"))
    # Compile the modules once, not in each run.
    subprocess.run(
        [python, "-c", "import ansible.module_utils.basic"],
        check=True,
        env={"PYTHONPATH": str(target)},
    )
    return str(target)
