"""Beside the module of the same name, on the controller: what one node has come to is told to those who wait for others.

ps-lite's heartbeats tell the nodes themselves, but only once all processes have met: a script that fails on one node before
it makes its kv-store would leave the others waiting for it.
"""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import base64
import fcntl
import json
import os
import re
import secrets
import shlex
import signal
import time

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.utils.display import Display

from mxcluster import contact, node_task, processes, stalls, verdict
from mxcluster.entry import asking
from mxcluster.node_task import NodeTask
from mxcluster.plan.packed import completed
from mxcluster.report import arrivals

PAUSES = (4.0, 6.0)  # seconds before a node that could not be asked is asked again, and before each later try
LOOK = 0.2  # seconds between two looks at the board meanwhile: if another node's part has failed, no try holds that up
LITTLE_PATIENCE = 5.0  # seconds that it gets when the job has failed elsewhere: it may be the cause, and gone for good
# Seconds that a connection may take to be made: little while the others may be noticing that the node is gone, later as usual.
HURRIED = 3
USUAL = 10
HURRY = 15.0  # seconds that are little while
SILENT = ".silent-"  # before the name of a host on the board that does not answer; the others are asked more often then
PULSE = ".pulse-"  # before the name of a host on the board whose processes' pulses are in the file
SETTLED = 5.0  # seconds that a pulse has to be as it is before anything is concluded
CONNECT = "-o ConnectTimeout=%d "
MOST_PATIENCE = 30.0  # seconds for which the results of a node are tried to be brought
BRINGING = 0.2  # of the job's lease is what one poll may take for checkpoints; every piece renews it

display = Display()


def warn(text):
    """Show a warning that may hold words of a node."""
    display.warning(verdict.printable(text))


class ActionModule(NodeTask):
    """Asks the node. A `wait` is asked again while it cannot be answered, for as long as the job may go on without it; one
    with a `board` ends its node's part when another node's has failed; one with `checkpoints` brings them; one with `into`
    brings what the node's part has left, as soon as that has ended. A `start` tells who will renew the lease, for nodes that
    can see that, and the token of the job. A `look` with `problems` fails when there are any.
    """

    _arrivals = None

    def run(self, tmp=None, task_vars=None):
        result = super(ActionModule, self).run(tmp, task_vars)
        arguments = {name: value for name, value in self.validate_argument_spec(node_task.SPEC)[1].items() if value is not None}
        arguments = completed(arguments, task_vars["inventory_hostname"])
        lacking = asking.missing(arguments)
        if lacking:
            return dict(result, failed=True, msg=lacking)
        if arguments.get("command") == "look" and "problems" in arguments:  # verify.yml judges for itself
            return dict(result, **self._look(arguments, task_vars))
        if arguments.get("command") == "start" and arguments.get("plan"):
            arguments["plan"] = dict(arguments["plan"], controller=processes.witness(os.getppid()))
            arguments["token"] = token_of(os.path.basename(arguments["job_dir"]))
        if arguments.get("command") != "wait":
            return dict(result, **self.ask(arguments, task_vars))
        # This is a fork of ansible-playbook. If a signal ends that process alone, its forks would
        # go on polling, and so renew the lease of a job that no controller reports on.
        processes.set_pdeathsig(os.getppid(), signal.SIGTERM)
        left = {name: arguments.pop(name) for name in ("output", "spool", "into") if name in arguments}
        wanted, together = arguments.pop("checkpoints", None), arguments.pop("together", [])
        if wanted and not self._task.check_mode:
            self._arrivals = self._arrivals or self._arrivals_of(wanted, arguments, task_vars)
            arguments["took"] = self._arrivals.taken()
        if arguments.get("board"):  # of this run of ansible-playbook alone, and gone with it
            arguments["board"] = os.path.join(C.DEFAULT_LOCAL_TMP, arguments["board"])
        result.update(self._wait(arguments, task_vars))
        if arguments.get("board") and (result.get("lost") or result.get("failed")) and arguments.get("keeper", True):
            post(arguments["board"], task_vars["inventory_hostname"])
        elif arguments.get("board") and result.get("status"):
            board, host = arguments["board"], task_vars["inventory_hostname"]
            blamed = None if result["ended"] else uneven(board, host, result.get("pulses") or {}, together)
            if failed(result["status"]):
                post(board, host)
            elif blamed:
                result["uneven"] = {"name": blamed, "time": time.time()}
                post(board, host)
                self._stop(arguments, result, task_vars)
            elif not result["ended"] and others(board, host):
                self._stop(arguments, result, task_vars)
        offered = result.pop("checkpoints", None)
        if self._arrivals and offered and not result.get("ended"):
            try:
                self._arrivals.bring(offered, BRINGING * float(arguments.get("patience") or 10))
            except (OSError, AnsibleError) as error:  # the job goes on, and what is missing comes later
                if isinstance(error, AnsibleError) and not is_of_connection(error):
                    raise
                warn("%s: no checkpoint could be brought: %s" % (task_vars["inventory_hostname"], error))
        if left.get("into") and result.get("ended") and result.get("status") and not self._task.check_mode:
            result.update(self._bring_what_is_left(dict(arguments, command="collect", **left), result["status"], task_vars))
        return result

    def _look(self, arguments, task_vars):
        """What the node can give; a failure that says what it cannot."""
        host, known = task_vars["inventory_hostname"], arguments.pop("problems", [])
        found = self.ask(arguments, task_vars)
        if found.get("failed") or found.get("unreachable"):
            return found
        if arguments.get("user") and found.get("ports_open"):  # or the plan has said so
            display.display("%s: %s" % (host, verdict.printable(found["ports_open"])))
        problems = list(found.get("problems") or []) + list(known)
        return dict(found, failed=True, msg="\n".join(map(verdict.printable, problems))) if problems else found

    def _bring_what_is_left(self, arguments, status, task_vars):
        """Bring to the controller what a node's part of a job has left: {"packed": the answer to `collect`}, or also why not.

        A connection that is lost is tried again for O(patience): what the node has left stays there.
        """
        into, began = arguments.pop("into"), time.monotonic()
        patience = min(float(arguments.get("patience") or 0), MOST_PATIENCE)
        self._limit_connecting(USUAL)
        while True:
            brought = self._bring_once(dict(arguments, told=status["reason"]), into, task_vars)
            if not brought.get("unreachable") or time.monotonic() - began >= patience:
                return brought
            time.sleep(PAUSES[0])

    def _bring_once(self, arguments, into, task_vars):
        """One try at it. What root has seen when it packed is told whatever becomes of the file."""
        packed = {}
        try:
            if self._connection.become:
                arguments["reader"] = self._who_logs_in()
            packed = self.ask(arguments, task_vars)
            if packed.get("failed") or packed.get("unreachable"):
                return dict({name: packed[name] for name in ("failed", "unreachable", "msg", "module_stdout", "module_stderr")
                             if name in packed}, packed={})
            if not packed.get("problem"):
                self._fetch(packed, into, task_vars)
        except AnsibleError as error:
            return {"unreachable" if is_of_connection(error) else "failed": True, "msg": str(error), "packed": packed}
        except (IOError, OSError) as error:
            return {"failed": True, "packed": packed,
                    "msg": "what the job has left could not be brought to the controller: %s" % error}
        return {"packed": packed}

    def _fetch(self, packed, into, task_vars):
        """Bring the file that `collect` has packed, and remove it on the node if root has given it to the one who logs in.

        The connection brings what that one can read. Ansible's own `fetch` would carry it through its memory, but also
        brings what only another user can read.
        """
        folder, draft = os.path.dirname(into), "%s.%d.part" % (into, os.getpid())
        if not os.path.isdir(folder):
            os.makedirs(folder, 0o700, exist_ok=True)
        try:
            if packed.get("spooled") or not self._connection.become:
                self._connection.fetch_file(packed["output"], draft)
            else:
                self._fetch_as_another(packed["output"], draft, task_vars)
            if os.path.getsize(draft) != packed["bytes"]:
                raise AnsibleError("of %s, %d of %d bytes have arrived: is the disk of the controller full?"
                                   % (packed["output"], os.path.getsize(draft), packed["bytes"]))
            os.replace(draft, into)
        finally:
            if os.path.exists(draft):
                os.remove(draft)
        if packed.get("spooled"):
            removed = self._low_level_execute_command("rm -f -- " + shlex.quote(packed["output"]))
            if removed["rc"] != 0:
                raise AnsibleError("%s could not be removed: %s" % (packed["output"], removed.get("stderr", "").strip()))

    def _fetch_as_another(self, path, into, task_vars):
        """Bring a file as the user whom Ansible becomes."""
        task = self._task.copy()
        task.args = {"src": path, "dest": into, "flat": True}
        fetched = self._shared_loader_obj.action_loader.get(
            "ansible.builtin.fetch", task=task, connection=self._connection, play_context=self._play_context,
            loader=self._loader, templar=self._templar, shared_loader_obj=self._shared_loader_obj).run(task_vars=task_vars)
        if fetched.get("failed"):
            raise AnsibleError(str(fetched.get("msg")))

    def _arrivals_of(self, wanted, arguments, task_vars):
        """Where this node's checkpoints go, and how it is asked for them: in pieces, each of which renews the lease."""
        def ask(name, offset, most):
            answer = self.ask(dict(arguments, command="piece", file=name, offset=offset, most=most), task_vars)
            return None if answer.get("failed") else base64.b64decode(answer["data"])
        return arrivals.Arrivals(wanted["folder"], task_vars["inventory_hostname"], int(wanted["keep"]), ask, wanted["plan"])

    def _who_logs_in(self):
        """The uid of the one whom Ansible connects as, before it becomes somebody else; None if no shell tells."""
        answer = self._low_level_execute_command("id -u", sudoable=False)
        lines = answer.get("stdout", "").split()
        return int(lines[-1]) if lines and lines[-1].isdigit() else None

    def _wait(self, arguments, task_vars):
        """The answer to a `wait`. What has been asked in vain for longer than O(patience) has failed, or is unreachable."""
        board, host, began, since = arguments.get("board"), task_vars["inventory_hostname"], time.monotonic(), time.time()

        def patience():
            wanted = float(arguments.get("patience") or 0)
            return min(wanted, LITTLE_PATIENCE) if board and others(board, host) else wanted

        tries = 0
        if board and any_is_silent(board):  # who misses it will tell so at once
            arguments = dict(arguments, seconds=0)
        while True:
            error, answer = None, {}
            self._limit_connecting(HURRIED if time.monotonic() - began < HURRY else USUAL)
            try:
                answer = self.ask(arguments, task_vars)
            except AnsibleError as failure:
                if not is_of_connection(failure):
                    raise
                error = str(failure)
            if not error and not answer.get("failed"):
                if tries and board:
                    os.remove(os.path.join(board, SILENT + host))
                return answer
            if time.monotonic() - began < patience():
                if not tries:
                    warn("%s: the job there could not be asked for, trying again for %g s: %s"
                         % (host, patience(), error or answer.get("msg")))
                    if board:
                        post(board, SILENT + host)
                again = time.monotonic() + min(PAUSES[min(tries, 1)], patience() / 5)
                tries += 1
                while time.monotonic() < min(again, began + patience()):
                    time.sleep(LOOK)
            if time.monotonic() - began >= patience():  # also if another node has failed meanwhile
                return gone(host, since, error) if error else answer

    def _limit_connecting(self, seconds):
        """Let ssh give up soon, and this loop alone try again: it knows for how long, and when it is no use."""
        connection = getattr(self, "_connection", None)
        if getattr(connection, "transport", None) == "ssh":
            connection.set_option("reconnection_retries", 0)
            options = re.sub(r"^(-o ConnectTimeout=\d+ )+", "", connection.get_option("ssh_args") or "")
            connection.set_option("ssh_args", CONNECT % seconds + options)  # of two such options the first counts

    def _stop(self, arguments, result, task_vars):
        """End this node's part, and tell so in the result; one that cannot be told to end is asked again by the next `wait`."""
        try:
            stopped = self.ask(dict(arguments, command="stop", peer=True), task_vars)
        except AnsibleError as error:
            if not is_of_connection(error):
                raise
            return
        if not stopped.get("failed"):
            result.update(ended=True, status=stopped["status"])


def token_of(job):
    """What the processes of a job know each other by: made by the fork that comes first, the same for all nodes.

    It lies among the files that this run of Ansible has for itself, and in no variable, so that no output can hold it.
    """
    path = os.path.join(C.DEFAULT_LOCAL_TMP, "token-" + job)
    with open(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        token = stream.read()
        if not token:
            token = secrets.token_hex(32)
            stream.write(token)
            stream.flush()  # before the next fork gets the lock
    return token


def is_of_connection(error):
    """Whether Ansible has lost the node. A connection that dies while sudo is waited for has an error of its own."""
    return isinstance(error, AnsibleConnectionFailure) or "waiting for privilege escalation prompt" in str(error)


def gone(host, since, error):
    """The result for a node that has not answered since `since` (unix seconds): Ansible calls it unreachable."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or ["no answer"]
    said = contact.words_of_ssh(lines[-1])
    why = said if said and "Broken pipe" not in said else "it has hung up"
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    return {"unreachable": True, "changed": False, "ended": True, "lost": {"since": since, "why": why},
            "msg": "%s is gone: it has not answered over ssh since %s (%s)" % (host, clock, why)}


def failed(status):
    """Whether a node's part of a job has ended otherwise than well."""
    return status["state"] == "ended" and status["reason"] != "done"


def uneven(board, host, pulses, together):
    """The name of a worker of the host's for whom others wait (`stalls.uneven`), by what all hosts have told; None if none is.

    The board holds the pulses that each host has told last, and since when each is as it is (unix seconds of the controller's
    clock): its worker has called its kv-store no more.
    """
    if not together:
        return None
    path, now = os.path.join(board, PULSE + host), time.time()
    os.makedirs(board, exist_ok=True)
    with open(path + ".part", "w") as stream:
        json.dump({name: {"pulse": found, "since": now - found["idle"]} for name, found in pulses.items()}, stream)
    os.replace(path + ".part", path)
    settled = {}
    for name in os.listdir(board):
        if name.startswith(PULSE) and not name.endswith(".part"):
            settled.update((name, found["pulse"]) for name, found in json.loads(read(os.path.join(board, name)) or "{}").items()
                           if now - found["since"] >= SETTLED)
    found = stalls.uneven(settled, together)
    return found if found in pulses else None


def read(path):
    """The text of a file, "" of one that is not there."""
    try:
        with open(path) as stream:
            return stream.read()
    except (IOError, OSError):
        return ""


def post(board, host):
    """Puts the host's name on the board, a folder on the controller."""
    if not os.path.isdir(board):
        try:
            os.makedirs(board)
        except OSError:
            if not os.path.isdir(board):  # another fork may have made it
                raise
    open(os.path.join(board, host), "w").close()


def others(board, host):
    """The hosts on the board whose part has failed but this one, sorted."""
    return (sorted(name for name in os.listdir(board) if name != host and not name.startswith("."))
            if os.path.isdir(board) else [])


def any_is_silent(board):
    """Whether some host is asked in vain."""
    return os.path.isdir(board) and any(name.startswith(SILENT) for name in os.listdir(board))
