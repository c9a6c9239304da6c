"""The snippet of a login's .bashrc, in a real bash on a real terminal."""

import os
import pathlib
import pty
import re
import signal
import subprocess

import jinja2
import pytest

from mxcluster.node import processes
from tests.machine import Stopwatch
from tests.waiting import until

TEMPLATE = pathlib.Path(__file__).parents[3] / "roles" / "ssh_mesh" / "templates" / "bashrc.j2"
# The process that watches this shell. `pgrep` must not find that of a shell with a longer pid.
WATCH = "pgrep -s 0 -f -- '--pid='$$' '"


@pytest.fixture
def home(tmp_path):
    """Return a home with the snippet, a line before it, and the key of the mesh."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    subprocess.check_call(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / ".ssh" / "mesh")]
    )
    snippet = jinja2.Template(TEMPLATE.read_text()).render(__ssh_mesh_key_name="mesh")
    (tmp_path / ".bashrc").write_text("trap 'touch ~/my-own-trap' EXIT\n" + snippet)
    (tmp_path / ".bash_profile").write_text(". ~/.bashrc\n")
    return tmp_path


def environment(home):
    return {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "TMPDIR": str(home)}


class Login:
    """A login shell on its own terminal."""

    def __init__(self, home):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve("/bin/bash", ["-bash"], environment(home))

    def ask(self, command):
        """Return the output of a command."""
        os.write(self.terminal, b"echo BEG''IN; %s; echo EN''D\n" % command.encode())
        output = b""
        while b"\nEND" not in output.replace(b"\r", b""):
            output += os.read(self.terminal, 4096)
        return re.search(
            r"\nBEGIN\n(.*?)\n?END", output.decode().replace("\r", ""), re.DOTALL
        ).group(1)

    def wait(self):
        os.waitpid(
            self.pid, 0
        )  # first, since a shell without its terminal does not run its exit trap
        os.close(self.terminal)


def running(*known):
    return [who for who in known if processes.alive(who)]


@pytest.mark.slow
def test_the_ssh_agent_ends_with_its_shell_and_after_its_kill(home):
    killed, left = Login(home), Login(home)
    agents = []
    for login in (killed, left):
        assert "ED25519" in login.ask("ssh-add -l"), "the ssh-agent must have the key"
        agent = int(login.ask("echo $SSH_AGENT_PID"))
        watch = int(login.ask(WATCH))
        assert (
            pathlib.Path("/proc/%d/cmdline" % agent)
            .read_bytes()
            .startswith(b"ssh-agent\0-t\x0012h\0")
        ), "keys must have a lifetime"
        known = [processes.identity(pid) for pid in (agent, watch)]
        agents.append((*known, login.ask("echo $SSH_AUTH_SOCK")))
    assert len({socket for _, _, socket in agents}) == 2
    assert len(running(*agents[0][:2], *agents[1][:2])) == 4

    with Stopwatch() as watch:
        os.write(left.terminal, b"exit\n")
        left.wait()
        until(lambda: not running(*agents[1][:2]))
    assert watch.within(2), "the end of a shell must end both at once"
    assert (home / "my-own-trap").exists()
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    # An ssh-agent looks for its parent every 10 s.
    until(lambda: not running(*agents[0][:2]))
    assert not [socket for _, _, socket in agents if os.path.exists(socket)]


def test_the_end_of_a_shell_ends_no_process_of_the_user(home):
    """In bash 4.2, $! is not the process substitution, but the user's last job."""
    users = subprocess.Popen(["sleep", "600"])
    try:
        text = (home / ".bashrc").read_text()
        (home / ".bashrc").write_text(text.replace("$!", str(users.pid)))
        login = Login(home)
        known = [processes.identity(int(login.ask(pid))) for pid in ("echo $SSH_AGENT_PID", WATCH)]
        os.write(login.terminal, b"exit\n")
        login.wait()
        until(lambda: not running(*known))
        assert users.poll() is None
    finally:
        users.kill()
        users.wait()


@pytest.mark.parametrize(
    "options", [["-c"], ["-lc"], ["-ic"]], ids=["plain", "login", "interactive"]
)
def test_other_shells_get_no_agent_and_no_output(home, options):
    output = subprocess.run(
        ["bash", *options, ". ~/.bashrc; echo ${SSH_AUTH_SOCK-none}"],
        env=environment(home),
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ).stdout
    assert output == b"none\n"


def test_an_existing_agent_is_kept(home):
    output = subprocess.run(
        ["bash", "-lic", "echo $SSH_AUTH_SOCK; " + WATCH],
        stdout=subprocess.PIPE,
        env=dict(environment(home), SSH_AUTH_SOCK="/mine"),
        stdin=subprocess.DEVNULL,
    ).stdout
    assert output == b"/mine\n"
