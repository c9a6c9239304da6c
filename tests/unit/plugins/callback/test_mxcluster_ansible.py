"""What people need of Ansible stays visible in mxcluster's own playbooks.

The tests run ansible-playbook with tasks of a site, whose role is outside of the project.
"""

import time

import pytest

from mxcluster.ansible.terminal import view
from tests.unit.plugins.callback import twelve_nodes
from tests.waiting import until

pytestmark = pytest.mark.slow

# A plugin of the site. It waits for a file, and then warns.
SITE_ACTION = """
import os, time
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        while not os.path.exists(self._task.args.get("gate", "/")):
            time.sleep(0.05)
        Display().warning("the rack is warm")
        deprecations = [dict(msg="old racks go", version="9", collection_name="site.racks")]
        return dict(changed=False, warnings=["the fan is loud"], deprecations=deprecations)
"""

PLAYBOOK = """
- name: Tasks of a site
  hosts: node01
  gather_facts: false
  roles: [site]
"""

SITE = """
- name: Tell of the rack
  ansible.builtin.debug: {msg: "rack 7 of the site"}
- name: Look at the rack
  site_action:
- name: Write the sign
  ansible.builtin.copy: {dest: "{{ playbook_dir }}/sign", content: "rack 7\\n", mode: "0644"}
  tags: sign
  when: writes | default(false) | bool
"""

PROMPTS = """
- name: Look
  hosts: node01
  gather_facts: false
  tasks:
    - name: Look at the rack
      site_action: {gate: "{{ playbook_dir }}/gate"}
- name: Ask
  hosts: node01
  gather_facts: false
  vars_prompt: [{name: rack, prompt: Which rack, private: false}]
  tasks:
    - name: Ask again
      ansible.builtin.pause: {prompt: Go on}
    - name: Report the rack
      ansible.builtin.debug: {msg: "rack {{ rack }}"}
"""

UNREACHABLE = """
- name: Reach
  hosts: node01
  gather_facts: false
  vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
  tasks:
    - name: Reach the node
      ansible.builtin.raw: "true"
"""


@pytest.fixture
def project(tmp_path):
    """Return a project with a playbook verify.yml, and a role of the site beside the project."""
    site = tmp_path / "site" / "roles" / "site" / "tasks"
    site.mkdir(parents=True)
    (site / "main.yml").write_text(SITE)
    return twelve_nodes.written(
        tmp_path / "project",
        nodes=1,
        **{
            "verify.yml": PLAYBOOK,
            "status.yml": PROMPTS,
            "stop.yml": UNREACHABLE,
            "plugins/action/site_action.py": SITE_ACTION,
        },
    )


def run(project, *arguments, playbook="verify.yml", **env):
    """Return (output, exit status) of a playbook into a pipe."""
    roles = str(project.parent / "site" / "roles")
    env = dict(env, ANSIBLE_ROLES_PATH=roles)
    return twelve_nodes.run(project, *arguments, playbook=playbook, env=env)


def test_debug_warnings_and_deprecations_of_a_site_are_shown(project):
    output, code = run(project)
    assert code == 0
    assert 'TASK [site : Tell of the rack]\nok: [node01] => {\n    "msg": "rack 7' in output, output
    for text in (
        "[WARNING]: the rack is warm",
        "[WARNING]: the fan is loud",
        "[DEPRECATION WARNING]: old racks go",
    ):
        assert output.count(text) == 1, output
    assert "PLAY RECAP" not in output, "this test is about the quiet form"


def test_an_unreachable_host_is_named_with_its_task(project):
    output, code = run(project, playbook="stop.yml")
    assert code == 4
    assert output.startswith("TASK [Reach the node]\nfatal: [node01]: UNREACHABLE!\n  "), output
    assert "Connection refused" in output, output


def test_prompts_stay_on_the_terminal(project):
    """The first play leaves a live line. The prompts stay whole for several of its ticks."""
    terminal = twelve_nodes.OnTerminal(project, 80, playbook="status.yml")
    until(lambda: "Look at the rack  0:0" in terminal.output, 600, lambda: terminal.output)
    (project / "gate").write_text("")
    for prompt, answer in (("Which rack: ", "r7\n"), ("Go on:", "\n")):
        until(lambda prompt=prompt: prompt in terminal.output, 600, lambda: terminal.output)
        asked = time.monotonic()
        until(lambda asked=asked: time.monotonic() > asked + 2.5 * view.TICK)
        terminal.answer(answer)
    lines, code = terminal.end()
    assert code == 0 and "Which rack: r7" in lines, lines
    assert [line for line in lines if "Look at the rack" in line] == [], lines
    assert "Go on:" in lines and lines[-2:] == ["node01: rack r7", ""], (lines, terminal.output)
    warned = lines.index("[WARNING]: the rack is warm")
    assert "DEPRECATION" in "".join(lines[warned:]), lines


@pytest.mark.parametrize(
    "options, texts",
    [
        (["--check"], ["TASK [site : Write the sign]\nchanged: [node01]"]),
        (["--diff"], ["+rack 7", "TASK [site : Write the sign]\n"]),
        (["-v"], ["TASK [site : Look at the rack] ***", 'ok: [node01] => {"changed": false']),
    ],
)
def test_options_that_ask_for_ansibles_output_get_it(project, options, texts):
    output, code = run(project, "-e", "writes=true", *options)
    assert code == 0 and all(text in output for text in ["PLAY RECAP", *texts]), output
    assert (project / "sign").exists() is (options != ["--check"])


@pytest.mark.parametrize(
    "option, texts",
    [
        ("--list-hosts", ["play #1 (node01): Tasks of a site", "hosts (1):\n      node01"]),
        ("--list-tasks", ["site : Tell of the rack", "site : Write the sign\tTAGS: [sign]"]),
        ("--list-tags", ["TASK TAGS: [sign]"]),
    ],
)
def test_lists_are_shown_and_nothing_runs(project, option, texts):
    output, code = run(project, option)
    assert code == 0 and all(text in output for text in texts), output
    assert "WARNING" not in output, "no task has run"


def test_step_asks_before_each_task(project):
    roles = str(project.parent / "site" / "roles")
    terminal = twelve_nodes.OnTerminal(
        project, 80, "--step", playbook="verify.yml", env={"ANSIBLE_ROLES_PATH": roles}
    )
    question = "Perform task: TASK: site : Tell of the rack (N)o/(y)es/(c)ontinue:"
    until(lambda: question in terminal.output, 600, lambda: terminal.output)
    terminal.answer("c\n")
    lines, code = terminal.end()
    assert code == 0 and "TASK [site : Look at the rack]" in lines, lines
    assert any(line.startswith("PLAY RECAP") for line in lines), lines


@pytest.mark.parametrize(
    "env, texts",
    [
        ({"ANSIBLE_STDOUT_CALLBACK": "minimal"}, ["node01 | SUCCESS => {", "rack 7 of the site"]),
        ({"ANSIBLE_STDOUT_CALLBACK": "oneline"}, ["node01 | SUCCESS => {"]),
        (
            {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"},
            ["TASK [site : Tell of the rack] ***", "  msg: rack 7 of the site\n", "PLAY RECAP"],
        ),
    ],
    ids=["minimal", "oneline", "yaml"],
)
def test_another_callback_shows_its_own_output(project, env, texts):
    output, code = run(project, **env)
    assert code == 0 and all(text in output for text in texts), output
