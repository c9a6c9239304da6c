"""Query a node's user, uid and Python over Ansible's connection, and explain failures.

The functions make the commands and evaluate their output. The callers open the connection.
"""

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

Json = Dict[str, Any]

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
# (set -x) does not match. `heard` ignores output after the last mark.
HELLO = (
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
        "sudo on the node asks for a password. Add --ask-become-pass, or let {user} use sudo "
        "without a password (NOPASSWD in sudoers).",
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


def hello(pythons: List[str], of_modules: Sequence[str] = ()) -> str:
    """Return a shell command line that prints the user, uid and Python of a node.

    Args:
        pythons: names of Pythons. The shell prints the path of the first Python that exists.
        of_modules: the names of Pythons that Ansible tries for its modules. If the list has names,
            the shell also prints the path and version of the first Python that exists.
    """
    return (MODULES % " ".join(of_modules) if of_modules else "") + HELLO % " ".join(pythons)


def pythons_of(interpreter: str) -> List[str]:
    """Return the names or paths of the Pythons that the shell tries.

    Args:
        interpreter: the value of ansible_python_interpreter without templates. It is a path, the
            name of a program such as "python3.8", or a word such as "auto".
    """
    return list(PYTHONS) if interpreter.startswith("auto") else [interpreter]


def judged(
    host: str, address: str, pythons: List[str], wanted: Json, answer: Json, login: str
) -> Json:
    """Return {"user", "uid", "python"} from the output of `hello`, or a failed result.

    Args:
        host: the node's name in the inventory.
        address: the node's address.
        pythons: the names given to `hello`.
        wanted: {"users": the allowed user names, [] for all users}.
        answer: Ansible's result of the command, with "stdout", "stderr" and "rc".
        login: the login user.
    """
    told = heard(answer.get("stdout") or "")
    if not told["user"]:
        return {"failed": True, "msg": no_shell(host, address, answer, login)}
    if wanted.get("users") and told["user"] not in wanted["users"]:
        return {"failed": True, "msg": wrong_user(host, told["user"], wanted["users"])}
    if not told["python"]:
        return {"failed": True, "msg": no_python(host, address, pythons)}
    return told


def heard(stdout: str) -> Dict[str, str]:
    """Return {"user", "uid", "python"} from the output of `hello`. A missing value is ""."""
    said = stdout.partition(END)[0] if END in stdout else ""
    return {
        name: (re.findall(r"^mxcluster-%s=(.*)" % name, said, re.MULTILINE) or [""])[-1].strip()
        for name in ("user", "uid", "python")
    }


def old_python(host: str, answer: Json, core: str, oldest: Tuple[int, ...]) -> Optional[str]:
    """Return a message if the node's Python is too old for Ansible's modules, else None.

    Args:
        host: the node's name in the inventory.
        answer: Ansible's result of the command `hello` with `of_modules`.
        core: the version of ansible-core.
        oldest: the oldest Python that the modules of this ansible-core support.
    """
    said = (answer.get("stdout") or "").partition(END)[0]
    found = re.findall(r"^mxcluster-modules=(\S*) *(?:Python (\d+)\.(\d+))?", said, re.MULTILINE)
    if not found:
        return None
    path, major, minor = found[-1]
    if path and (not major or (int(major), int(minor)) >= oldest):
        return None
    return OLD_PYTHON.format(
        host=host,
        found="%s is Python %s.%s" % (path, major, minor)
        if path
        else "the node has none of the Pythons that Ansible looks for",
        core=core,
        oldest=".".join(map(str, oldest)),
    )


def root_trains(host: str, trainer: Optional[str], told: Json) -> Optional[str]:
    """Return a message if root would train on `host`, else None.

    Args:
        host: the node's name in the inventory.
        trainer: the value of mxcluster_user, "" if the connecting user trains.
        told: {"user", "uid", "over_ssh"} of the node.
    """
    if trainer == "root":
        return (
            "mxcluster_user is root, but training runs code that comes over the network: set "
            "mxcluster_user to an unprivileged user, or leave mxcluster_user at its default."
        )
    # Without ssh, the user who runs Ansible also trains; in a container this user is root.
    if trainer == "" and told.get("over_ssh") and told["uid"] == "0":
        return (
            "mxcluster_user is empty and Ansible runs as %s on %s, so root would train. But "
            "training runs code that comes over the network. Leave mxcluster_user at its default "
            "(root then creates that user), or connect as an unprivileged user: set another "
            "ansible_user, and no ansible_become." % (told["user"], host)
        )
    return None


def explain(error: str, host: str, address: str, port: int, user: str) -> str:
    """Return the message for a failed connection, with its cause and what to do.

    Args:
        error: the text of Ansible's error, with the output of ssh.
        host: the node's name in the inventory.
        address: the node's address.
        port: the port of ssh.
        user: the login user.
    """
    said = words_of_ssh(error)
    known = re.search(r"Offending \S+ key in (\S+)", said)
    facts = dict(
        where="%s (%s, port %d)" % (host, address, port),
        port=port,
        address=address,
        user=user,
        name=address if port == 22 else "'[%s]:%d'" % (address, port),
        known=known.group(1) if known else "known_hosts",
        last=([line for line in said.splitlines() if line.strip()] or ["no answer"])[-1],
    )
    if "HOST IDENTIFICATION HAS CHANGED" in said:
        return CHANGED.format(**facts)
    if "Host key verification failed" in said or "host key is known" in said:
        return UNKNOWN.format(**facts)
    if "Permission denied" in said or "Too many authentication failures" in said:
        return NOT_LET_IN.format(**facts)
    return NOT_THERE.format(**facts)


def words_of_ssh(error: str) -> str:
    """Return the output of ssh from the text of Ansible's error, without Ansible's prefix."""
    before = (
        r"^(Failed to connect to the host via ssh|"
        r"Data could not be sent to remote host .*over ssh): *"
    )
    return re.sub(before, "", error).strip()


def no_shell(host: str, address: str, answer: Json, login: str) -> str:
    """Return the message for a node whose shell gives no valid answer to the command `hello`.

    Args: `answer` Ansible's result of the command; `login` the login user.
    """
    said = (answer.get("stderr") or "").strip() or (answer.get("stdout") or "").strip() or "nothing"
    refused = sudo_refuses(host, address, login, said)
    if refused:
        return refused
    return (
        "%s (%s): the shell on the node printed %s (status %s) instead of the user's name. If a "
        "start file such as .bashrc ends the shell, correct that file. If sudo asks for a "
        "password, set ansible_user and ansible_become so that sudo needs no password."
        % (host, address, said, answer.get("rc"))
    )


def sudo_refuses(host: str, address: str, login: str, said: str) -> Optional[str]:
    """Return the message for a refusal of sudo in `said`, None without a known refusal.

    Args: `login` the login user; `said` the output of the command, or the text of Ansible's error.
    """
    for words, cure in SUDO_REFUSES:
        lines = [line.strip() for line in said.splitlines() if words.search(line)]
        if lines:
            return "%s (%s): %s (%s)" % (host, address, cure.format(user=login), lines[-1])
    return None


def wrong_user(host: str, user: str, users: List[str]) -> str:
    """Return the message for a login as the wrong `user`. `users`: the allowed login users."""
    return (
        "%s: Ansible runs as %s on this node, but this playbook needs %s. Set ansible_user, or, "
        "if %s may use sudo, ansible_become: true. With mxcluster_user: '' the playbook runs all "
        "tasks as %s" % (host, user, " or ".join(users), user, user)
    )


def no_python(host: str, address: str, pythons: List[str]) -> str:
    """Return the message for a node without any of the `pythons` for Ansible's modules."""
    return (
        "%s (%s): the node has no Python for Ansible's modules (looked for %s). Install Python: "
        "`yum install python3` on CentOS, `apt-get install python3` on Debian and Ubuntu. If the "
        "node has a Python elsewhere, set ansible_python_interpreter to its path."
        % (host, address, pythons[0] if len(pythons) == 1 else "python3 and older ones")
    )
