"""The first word to a node, over Ansible's own connection: who one is there, and what to say if that does not do. Pure."""
import re
from typing import Any, Dict, List, Optional

Json = Dict[str, Any]

PYTHONS = ("python3", "python3.12", "python3.11", "python3.10", "python3.9", "python3.8", "python3.7", "python3.6",
           "/usr/bin/python3", "/usr/libexec/platform-python", "python2.7", "/usr/bin/python", "python")
# The answers are marked: over ssh -tt, what shells, sudo and .bashrc have to say arrives among them. The marks do not stand in
# the command as they are printed, so that a shell that repeats the command (set -x) is not taken for the answer. After the last
# one, a program may say what it likes.
HELLO = ("for p in %s; do p=$(command -v $p) && break; p=; done; echo; "
         "for a in \"user=$(id -un)\" \"uid=$(id -u)\" \"python=$p\" end=; do echo \"mxcluster-$a\"; done")
END = "mxcluster-end="

COMPARE = ("Compare `ssh-keyscan -p {port} {address} | ssh-keygen -lf -` with `ssh-keygen -lf "
           "/etc/ssh/ssh_host_ed25519_key.pub` on the machine's console; if they agree, ")
CHANGED = ("{where}: its ssh host key is not the one that is known ({known}). Either the machine was installed anew, or another "
           "one answers in its place. " + COMPARE + "forget the old key with `ssh-keygen -R {name}`, or correct "
           "node_host_key in the inventory.")
UNKNOWN = ("{where}: its ssh host key is not known here, and nobody is trusted unseen. " + COMPARE + "give the key in the "
           "inventory (node_host_key: \"ssh-ed25519 AAAA...\"), or `ssh-keyscan -p {port} {address} >> ~/.ssh/known_hosts`.")
NOT_LET_IN = ("{where}: it does not let {user} in ({last}). Set ansible_user, and ansible_ssh_private_key_file or an ssh-agent "
              "with a key that it knows (ssh-copy-id brings one); with a password, add --ask-pass.")
NOT_THERE = ("{where}: it cannot be reached ({last}). Is it up, is sshd running, and are ansible_host and ansible_port right?")


def hello(pythons: List[str]) -> str:
    """The command line of the question to a shell on the node."""
    return HELLO % " ".join(pythons)


def pythons_of(interpreter: str) -> List[str]:
    """The names of the Pythons that the shell looks for; `interpreter` is what the inventory names, or "auto"."""
    return [interpreter] if interpreter.startswith("/") else list(PYTHONS)


def judged(host: str, address: str, pythons: List[str], wanted: Json, answer: Json) -> Json:
    """{"user", "uid", "python"}, or a failure with what to do, of the answer of a shell to `hello`.

    `wanted`: "users", who one may be there (anybody if empty).
    """
    told = heard(answer.get("stdout") or "")
    if not told["user"]:
        return {"failed": True, "msg": no_shell(host, address, answer)}
    if wanted.get("users") and told["user"] not in wanted["users"]:
        return {"failed": True, "msg": wrong_user(host, told["user"], wanted["users"])}
    if not told["python"]:
        return {"failed": True, "msg": no_python(host, address, pythons)}
    return told


def heard(stdout: str) -> Dict[str, str]:
    """{"user", "uid", "python"} of the answer to HELLO, whatever stands around it; '' for what it does not tell."""
    said = stdout.partition(END)[0] if END in stdout else ""
    return {name: (re.findall(r"^mxcluster-%s=(.*)" % name, said, re.MULTILINE) or [""])[-1].strip()
            for name in ("user", "uid", "python")}


def root_trains(host: str, trainer: Optional[str], told: Json) -> Optional[str]:
    """The refusal of root as the one who trains, None for anybody else: the user `trainer`, or if that is empty, who connects."""
    if trainer == "root":
        return ("mxcluster_user is root: what trains runs code that comes over the network, so it shall be somebody without "
                "rights. Name another user, or leave it at its default.")
    # With the local inventory it is the person's own choice who he is on his own machine; in a container that is root.
    if trainer == "" and told.get("over_ssh") and told["uid"] == "0":
        return ("mxcluster_user is empty and Ansible is %s on %s, so root would train; but what trains runs code that comes over "
                "the network. Leave mxcluster_user at its default (root then makes that user), or connect as somebody without "
                "rights: another ansible_user, and no ansible_become." % (told["user"], host))
    return None


def explain(error: str, host: str, address: str, port: int, user: str) -> str:
    """The message about a connection that fails, with its cure, from the words of ssh."""
    said = words_of_ssh(error)
    known = re.search(r"Offending \S+ key in (\S+)", said)
    facts = dict(where="%s (%s, port %d)" % (host, address, port), port=port, address=address, user=user,
                 name=address if port == 22 else "'[%s]:%d'" % (address, port), known=known.group(1) if known else "known_hosts",
                 last=([line for line in said.splitlines() if line.strip()] or ["no answer"])[-1])
    if "HOST IDENTIFICATION HAS CHANGED" in said:
        return CHANGED.format(**facts)
    if "Host key verification failed" in said or "host key is known" in said:
        return UNKNOWN.format(**facts)
    if "Permission denied" in said or "Too many authentication failures" in said:
        return NOT_LET_IN.format(**facts)
    return NOT_THERE.format(**facts)


def words_of_ssh(error: str) -> str:
    """The words of ssh in an error of Ansible's connection, without those that Ansible puts before them."""
    before = r"^(Failed to connect to the host via ssh|Data could not be sent to remote host .*over ssh): *"
    return re.sub(before, "", error).strip()


def no_shell(host: str, address: str, answer: Json) -> str:
    """The message about a node whose shell gives no answer."""
    said = (answer.get("stderr") or "").strip() or (answer.get("stdout") or "").strip() or "nothing"
    return ("%s (%s): a shell there should say who one is, and says: %s (status %s). Set that right there, or set ansible_user "
            "and ansible_become so that commands run without a question." % (host, address, said, answer.get("rc")))


def wrong_user(host: str, user: str, users: List[str]) -> str:
    """The message about a user who has not got the rights."""
    return ("%s: Ansible is %s there, and this takes %s: set ansible_user, or set ansible_become: true if %s may use sudo; or "
            "set mxcluster_user: '' to do it all as %s" % (host, user, " or ".join(users), user, user))


def no_python(host: str, address: str, pythons: List[str]) -> str:
    """The message about a node on which Ansible's modules cannot run."""
    return ("%s (%s): there is no Python for Ansible's modules (looked for %s). Install one: `yum install python3` on CentOS, "
            "`apt-get install python3` on Debian and Ubuntu; or name one with ansible_python_interpreter."
            % (host, address, pythons[0] if len(pythons) == 1 else "python3 and older ones"))
