"""Query a node's user, uid and Python over Ansible's connection, and explain failures.

The functions make the commands and evaluate their output. The callers open the connection.
"""

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from mxcluster.errors import BadInput, MxclusterError
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import flag, text, whole

PYTHONS = (
    "python3",
    "python3.13",
    "python3.12",
    "python3.11",
    "python3.10",
    "python3.9",
    "python3.8",
    "python3.7",
    "python3.6",
    "/usr/bin/python3",
    "/usr/libexec/platform-python",
    "python2.7",
    "/usr/bin/python",
    "python",
)
# The command marks each line of its output, because ssh -tt also brings the output of shells, sudo
# and .bashrc. The command itself contains no complete mark, so a shell's echo of the command
# (set -x) does not match. `marked` ignores output after the last mark.
QUESTION = (
    "for p in %s; do p=$(command -v $p) && break; p=; done; echo; "
    'for a in "user=$(id -un)" "uid=$(id -u)" "python=$p" end=; do echo "mxcluster-$a"; done'
)
END = "mxcluster-end="
# Prints the path and version of the Python that Ansible's modules get on the node.
MODULES = (
    "for m in %s; do m=$(command -v $m) && break; m=; done; "
    'echo; a=modules; echo "mxcluster-$a=$m $("${m:-false}" -V 2>&1)"; '
)

COMPARE = (
    "Compare `ssh-keyscan -p {port} {address} | ssh-keygen -lf -` with `ssh-keygen -lf "
    "/etc/ssh/ssh_host_ed25519_key.pub` on the node's console. If both keys agree, "
)
CHANGED = (
    "{where}: the node's ssh host key differs from the known key ({known}). Either the node was "
    "reinstalled, or another host answers at this address. "
    + COMPARE
    + "remove the old key with `ssh-keygen -R {name}`, or correct node_host_key in the inventory."
)
UNKNOWN = (
    "{where}: ssh host key unknown. " + COMPARE + "add the key to the "
    'inventory (node_host_key: "ssh-ed25519 AAAA..."), or run `ssh-keyscan -p {port} {address} >> '
    "~/.ssh/known_hosts`."
)
NOT_LET_IN = (
    "{where}: the node rejects the login of {user} ({last}). Set ansible_user. Give a key that the "
    "node accepts, with ansible_ssh_private_key_file or an ssh-agent (ssh-copy-id installs a key "
    "on the node). If you log in with a password, add --ask-pass."
)
NOT_THERE = (
    "{where}: cannot reach the node ({last}). Check that the node and its sshd run, and that "
    "ansible_host and ansible_port are right."
)
# The words of sudo (1.8 to 1.9) when it refuses Ansible's way, and the cure. Ansible's modules run
# without a terminal.
SUDO_REFUSES = (
    (
        re.compile("must have a tty|no tty present|a terminal is required"),
        "sudo on the node needs a terminal, and Ansible's modules have none. Run `visudo` on the "
        "node, and remove requiretty, or add the line `Defaults:{user} !requiretty`. If sudo asks "
        "for a password, add --ask-become-pass.",
    ),
    (
        re.compile("a password is required|Missing sudo password"),
        "sudo on the node asks for a password. Add --ask-become-pass, set ansible_become_password "
        "in a vault (docs/ways-in.md), or let {user} use sudo without a password (NOPASSWD in "
        "sudoers).",
    ),
    (
        re.compile("not in the sudoers file|is not allowed to (execute|run)|may not run sudo"),
        "sudo on the node does not let {user} become another user. Add {user} to sudoers, or set "
        "another ansible_user.",
    ),
)
OLD_PYTHON = (
    "{host}: {found}, and the modules of this ansible-core {core} need Python {oldest} or newer on "
    "a node. Run `make venv CORE=2.16 PYTHON=/path/to/python3.12` on the controller: ansible-core "
    "2.16 manages Python 2.7 and 3.6 too, and runs on Python 3.10 to 3.12. Or install a newer "
    "Python on the node, and set ansible_python_interpreter to its path."
)


class Output(Record):
    """Ansible's result of a command on a node."""

    rc: int = field(whole(-(2**31), 2**31))
    """The exit status."""
    stdout: str = field(text)
    stderr: str = field(text, default="")


class Node(NamedTuple):
    """A node in the inventory: its name, its address, the port of ssh, and the login user."""

    host: str
    address: str
    port: int
    user: str

    @property
    def where(self) -> str:
        """The name and the address for a message."""
        return "%s (%s)" % (self.host, self.address)


class Login(Record):
    """The user on a node after become, and the first Python on the node."""

    user: str = field(text)
    uid: str = field(text)
    python: str = field(text)
    """The path."""
    over_ssh: bool = field(flag)
    """True if the connection uses ssh."""


class NoLogin(MxclusterError):
    """Error for a node that lets Ansible run no command as an allowed user."""


def question(pythons: List[str], of_modules: Sequence[str] = ()) -> str:
    """Return a shell command line that prints the user, uid and Python of a node.

    Args:
        pythons: names of Pythons. The shell prints the path of the first Python that exists.
        of_modules: the names of Pythons that Ansible tries for its modules. If the list has names,
            the shell also prints the path and version of the first Python that exists.
    """
    return (MODULES % " ".join(of_modules) if of_modules else "") + QUESTION % " ".join(pythons)


def pythons_of(interpreter: str) -> List[str]:
    """Return the names or paths of the Pythons that the shell tries.

    Args:
        interpreter: the value of ansible_python_interpreter without templates. It is a path, the
            name of a program such as "python3.8", or a word such as "auto".
    """
    return list(PYTHONS) if interpreter.startswith("auto") else [interpreter]


def login_of(
    node: Node, pythons: List[str], users: Sequence[str], output: Output, over_ssh: bool
) -> Login:
    """Return the login from the output of `question`.

    Raises NoLogin if the output has no user or no Python, or if the user is not allowed.

    Args:
        node: the node.
        pythons: the names given to `question`.
        users: the allowed user names, [] for all users.
        output: of the command.
        over_ssh: True if the connection uses ssh.
    """
    found = marked(output.stdout)
    if not found["user"]:
        raise NoLogin(no_shell(node, output))
    if users and found["user"] not in users:
        raise NoLogin(wrong_user(node.host, found["user"], users))
    if not found["python"]:
        raise NoLogin(no_python(node, pythons))
    return Login(over_ssh=over_ssh, **found)


def marked(stdout: str) -> Dict[str, str]:
    """Return {"user", "uid", "python"} from the output of `question`. A missing value is ""."""
    answer = stdout.partition(END)[0] if END in stdout else ""
    return {
        name: (re.findall(r"^mxcluster-%s=(.*)" % name, answer, re.MULTILINE) or [""])[-1].strip()
        for name in ("user", "uid", "python")
    }


def refuse_old_python(host: str, output: Output, core: str, oldest: Tuple[int, ...]) -> None:
    """Raise BadInput if the node's Python is too old for Ansible's modules.

    Args:
        host: the node's name in the inventory.
        output: of the command `question` with `of_modules`.
        core: the version of ansible-core.
        oldest: the oldest Python that the modules of this ansible-core support.
    """
    answer = output.stdout.partition(END)[0]
    found = re.findall(r"^mxcluster-modules=(\S*) *(?:Python (\d+)\.(\d+))?", answer, re.MULTILINE)
    if not found:
        return
    path, major, minor = found[-1]
    if path and (not major or (int(major), int(minor)) >= oldest):
        return
    raise BadInput(
        OLD_PYTHON.format(
            host=host,
            found="%s is Python %s.%s" % (path, major, minor)
            if path
            else "the node has none of the Pythons that Ansible looks for",
            core=core,
            oldest=".".join(map(str, oldest)),
        )
    )


def refuse_root(host: str, trainer: Optional[str], login: Login) -> None:
    """Raise BadInput if root would train on `host`.

    Args: `trainer` the value of mxcluster_user, "" if the login user trains, None for a node
    without training.
    """
    if trainer == "root":
        raise BadInput(
            "mxcluster_user is root, but training runs code that comes over the network: set "
            "mxcluster_user to an unprivileged user, or leave mxcluster_user at its default."
        )
    # Without ssh, the user who runs Ansible also trains; in a container this user is root.
    if trainer == "" and login.over_ssh and login.uid == "0":
        raise BadInput(
            "mxcluster_user is empty and Ansible runs as %s on %s, so root would train. But "
            "training runs code that comes over the network. Leave mxcluster_user at its default "
            "(root then creates that user), or connect as an unprivileged user: set another "
            "ansible_user, and no ansible_become." % (login.user, host)
        )


def explain(error: str, node: Node) -> str:
    """Return the message for a failed connection, with its cause and what to do.

    Args: `error` the text of Ansible's error, with the output of ssh.
    """
    output = output_of_ssh(error)
    known = re.search(r"Offending \S+ key in (\S+)", output)
    facts = dict(
        node._asdict(),
        where="%s (%s, port %d)" % (node.host, node.address, node.port),
        name=node.address if node.port == 22 else "'[%s]:%d'" % (node.address, node.port),
        known=known.group(1) if known else "known_hosts",
        last=([line for line in output.splitlines() if line.strip()] or ["no answer"])[-1],
    )
    if "HOST IDENTIFICATION HAS CHANGED" in output:
        return CHANGED.format(**facts)
    if "Host key verification failed" in output or "host key is known" in output:
        return UNKNOWN.format(**facts)
    if "Permission denied" in output or "Too many authentication failures" in output:
        return NOT_LET_IN.format(**facts)
    return NOT_THERE.format(**facts)


def output_of_ssh(error: str) -> str:
    """Return the output of ssh from the text of Ansible's error, without Ansible's prefix."""
    before = (
        r"^(Failed to connect to the host via ssh|"
        r"Data could not be sent to remote host .*over ssh): *"
    )
    return re.sub(before, "", error).strip()


def no_shell(node: Node, output: Output) -> str:
    """Return the message for a node whose shell gives no valid answer to `question`."""
    shown = output.stderr.strip() or output.stdout.strip() or "nothing"
    return sudo_refuses(node, shown) or (
        "%s: the shell on the node printed %s (status %s) instead of the user's name. If a "
        "start file such as .bashrc ends the shell, correct that file. If sudo asks for a "
        "password, set ansible_user and ansible_become so that sudo needs no password."
        % (node.where, shown, output.rc)
    )


def sudo_refuses(node: Node, output: str) -> Optional[str]:
    """Return the message for a refusal of sudo in `output`, None without a known refusal.

    Args: `output` of the command, or the text of Ansible's error.
    """
    for words, cure in SUDO_REFUSES:
        lines = [line.strip() for line in output.splitlines() if words.search(line)]
        if lines:
            return "%s: %s (%s)" % (node.where, cure.format(user=node.user), lines[-1])
    return None


def wrong_user(host: str, user: str, users: Sequence[str]) -> str:
    """Return the message for a login as the wrong `user`. `users`: the allowed login users."""
    return (
        "%s: Ansible runs as %s on this node, but this playbook needs %s. Set ansible_user, or, "
        "if %s may use sudo, ansible_become: true. With mxcluster_user: '' the playbook runs all "
        "tasks as %s" % (host, user, " or ".join(users), user, user)
    )


def no_python(node: Node, pythons: List[str]) -> str:
    """Return the message for a node without any of the `pythons` for Ansible's modules."""
    return (
        "%s: the node has no Python for Ansible's modules (looked for %s). Install Python: "
        "`yum install python3` on CentOS, `apt-get install python3` on Debian and Ubuntu. If the "
        "node has a Python elsewhere, set ansible_python_interpreter to its path."
        % (node.where, pythons[0] if len(pythons) == 1 else "python3 and older ones")
    )
