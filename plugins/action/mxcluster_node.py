"""Run a command of `mxcluster.entry` on a node, and end the job there if another node failed.

ps-lite's heartbeats show a lost node only after all processes have connected. A script that fails
on one node before it creates its kv-store would leave the other nodes waiting.
"""

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

from mxcluster.ansible import contact, node_task
from mxcluster.ansible.node_task import NodeTask
from mxcluster.entry import asking
from mxcluster.file_io import replace
from mxcluster.job import stall_cause, verdict
from mxcluster.job.plan.packed import completed
from mxcluster.job.report import checkpoint_arrivals
from mxcluster.node import processes

PAUSES = (4.0, 6.0)  # seconds before the first retry of a lost node, and before each later retry
# Seconds between two reads of the board during a pause: a retry must not delay the end of a job
# that has failed on another node.
LOOK = 0.2
# Seconds of retries for a lost node once another node's part has failed: the lost node may be the
# cause of that failure, and may never answer.
LITTLE_PATIENCE = 5.0
# Use a 3 s connect timeout during the first 15 s of an outage, then 10 s. During the first 15 s the
# other nodes may be detecting the loss.
HURRIED = 3
USUAL = 10
HURRY = 15.0
# Prefix of a host's file on the board while the host does not answer; the controller then polls the
# other nodes more often.
SILENT = ".silent-"
PULSE = ".pulse-"  # prefix of a host's file on the board that holds the pulses of its processes
SETTLED = 5.0  # seconds without a change before a pulse counts for a diagnosis
CONNECT = "-o ConnectTimeout=%d "
MOST_PATIENCE = 30.0  # seconds of retries to fetch the results of a node
# Share of the job's lease that one poll may spend on checkpoints; every piece renews the lease.
BRINGING = 0.2

display = Display()


def warn(text):
    """Show the warning `text`, without control sequences that a node may have put into it."""
    display.warning(verdict.printable(text))


class ActionModule(NodeTask):
    """Run the command on the node.

    - A `wait` retries a lost node for as long as the job may go on without the controller.
    - A `wait` with a `board` ends the node's part when another node's part has failed.
    - A `wait` with `checkpoints` fetches the checkpoints of the running job.
    - A `wait` with `into` fetches the files of the node's part as soon as the part has ended.
    - A `start` sends the identity of the controller process, which renews the lease, and the token
      of the job. A node on the controller's machine can check whether that process still runs.
    - A `look` with `problems` fails if the node or the controller reports a problem.
    """

    _arrivals = None

    def run(self, tmp=None, task_vars=None):
        """Run one task and return its result (dict) to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        arguments = {
            name: value
            for name, value in self.validate_argument_spec(node_task.SPEC)[1].items()
            if value is not None
        }
        arguments = completed(arguments, task_vars["inventory_hostname"])
        lacking = asking.missing(arguments)
        if lacking:
            return dict(result, failed=True, msg=lacking)
        # verify.yml omits `problems` and judges the result itself.
        if arguments.get("command") == "look" and "problems" in arguments:
            return dict(result, **self._look(arguments, task_vars))
        if arguments.get("command") == "start" and arguments.get("plan"):
            arguments["plan"] = dict(arguments["plan"], controller=processes.witness(os.getppid()))
            arguments["token"] = token_of(os.path.basename(arguments["job_dir"]))
        if arguments.get("command") != "wait":
            return dict(result, **self.ask(arguments, task_vars))
        # This process is a fork of ansible-playbook. If a signal ends ansible-playbook alone, the
        # forks would go on polling, and so renew the lease of a job without a controller.
        processes.set_pdeathsig(os.getppid(), signal.SIGTERM)
        left = {
            name: arguments.pop(name) for name in ("output", "spool", "into") if name in arguments
        }
        wanted, together = arguments.pop("checkpoints", None), arguments.pop("together", [])
        if wanted and not self._task.check_mode:
            self._arrivals = self._arrivals or self._arrivals_of(wanted, arguments, task_vars)
            arguments["took"] = self._arrivals.taken()
        if arguments.get("board"):  # ansible-playbook removes this folder when it ends
            arguments["board"] = os.path.join(C.DEFAULT_LOCAL_TMP, arguments["board"])
        result.update(self._wait(arguments, task_vars))
        if arguments.get("board") and (result.get("lost") or result.get("failed")):
            if arguments.get("keeper", True):
                post(arguments["board"], task_vars["inventory_hostname"])
            # The retries have ended, so the other hosts need no short polls any more.
            unmark(arguments["board"], task_vars["inventory_hostname"])
        elif arguments.get("board") and result.get("status"):
            board, host = arguments["board"], task_vars["inventory_hostname"]
            blamed = (
                None
                if result["ended"]
                else uneven(board, host, result.get("pulses") or {}, together)
            )
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
            except (OSError, AnsibleError) as error:
                # The job goes on, and a later poll fetches the other pieces.
                if isinstance(error, AnsibleError) and not is_of_connection(error):
                    raise
                warn(
                    "%s: cannot fetch the checkpoint; a later poll tries again: %s"
                    % (task_vars["inventory_hostname"], error)
                )
        if (
            left.get("into")
            and result.get("ended")
            and result.get("status")
            and not self._task.check_mode
        ):
            result.update(
                self._bring_what_is_left(
                    dict(arguments, command="collect", **left), result["status"], task_vars
                )
            )
        return result

    def _look(self, arguments, task_vars):
        """Return the result of `look`, a failure if the node or the controller has a problem."""
        host, known = task_vars["inventory_hostname"], arguments.pop("problems", [])
        found = self.ask(arguments, task_vars)
        if found.get("failed") or found.get("unreachable"):
            return found
        # Without a training user, the plan has reported the open ports already.
        if arguments.get("user") and found.get("ports_open"):
            display.display("%s: %s" % (host, verdict.printable(found["ports_open"])))
        problems = list(found.get("problems") or []) + list(known)
        return (
            dict(found, failed=True, msg="\n".join(map(verdict.printable, problems)))
            if problems
            else found
        )

    def _bring_what_is_left(self, arguments, status, task_vars):
        """Fetch the files of a node's part of a job after the part has ended.

        If the connection is lost, the method tries again for O(patience) seconds, at most
        MOST_PATIENCE, because the files stay on the node.

        Args: `arguments` of `collect`, with "into"; `status` of the ended part.

        Returns:
            {"packed": the result of `collect`}, with a failure if the fetch failed.
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
        """Try once to fetch the files of the node's part of a job to the file `into`.

        Returns:
            {"packed": the result of `collect`, {} if it failed}. If `collect` or the fetch failed,
            the dict also has the failure.
        """
        packed = {}
        try:
            if self._connection.become:
                arguments["reader"] = self._who_logs_in()
            packed = self.ask(arguments, task_vars)
            if packed.get("failed") or packed.get("unreachable"):
                return dict(
                    {
                        name: packed[name]
                        for name in (
                            "failed",
                            "unreachable",
                            "msg",
                            "module_stdout",
                            "module_stderr",
                        )
                        if name in packed
                    },
                    packed={},
                )
            if not packed.get("problem"):
                self._fetch(packed, into, task_vars)
        except AnsibleError as error:
            return {
                "unreachable" if is_of_connection(error) else "failed": True,
                "msg": str(error),
                "packed": packed,
            }
        except (IOError, OSError) as error:
            return {
                "failed": True,
                "packed": packed,
                "msg": "cannot write the job's files on the controller: %s: %s"
                % (error.filename or into, error.strerror or error),
            }
        return {"packed": packed}

    def _fetch(self, packed, into, task_vars):
        """Fetch the tar file of `collect` to the file `into`.

        If the tar file is in the folder O(spool), the method then removes it from the node. The
        connection plugin fetches only files that the login user can read. Ansible's own `fetch`
        also reads files of other users, but holds the file in memory.

        Args: `packed` the result of `collect`.
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
                raise AnsibleError(
                    "%s: received %d of %d bytes. If the controller's disk is full, free space on "
                    "it; then fetch the files with train.yml -e attach=<job>"
                    % (packed["output"], os.path.getsize(draft), packed["bytes"])
                )
            os.replace(draft, into)
        finally:
            if os.path.exists(draft):
                os.remove(draft)
        if packed.get("spooled"):
            removed = self._low_level_execute_command("rm -f -- " + shlex.quote(packed["output"]))
            if removed["rc"] != 0:
                raise AnsibleError(
                    "cannot remove %s on the node: %s: remove this file yourself"
                    % (packed["output"], removed.get("stderr", "").strip())
                )

    def _fetch_as_another(self, path, into, task_vars):
        """Fetch the node's file `path` to the file `into`, with the rights of the become user."""
        task = self._task.copy()
        task.args = {"src": path, "dest": into, "flat": True}
        fetched = self._shared_loader_obj.action_loader.get(
            "ansible.builtin.fetch",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        ).run(task_vars=task_vars)
        if fetched.get("failed"):
            raise AnsibleError(str(fetched.get("msg")))

    def _arrivals_of(self, wanted, arguments, task_vars):
        """Return the Arrivals that fetch this node's checkpoints.

        A checkpoint comes in pieces, and each piece renews the lease.

        Args: `wanted` the argument "checkpoints".
        """

        def ask(name, offset, most):
            answer = self.ask(
                dict(arguments, command="piece", file=name, offset=offset, most=most), task_vars
            )
            return None if answer.get("failed") else base64.b64decode(answer["data"])

        return checkpoint_arrivals.Arrivals(
            wanted["folder"],
            task_vars["inventory_hostname"],
            int(wanted["keep"]),
            ask,
            wanted["plan"],
        )

    def _who_logs_in(self):
        """Return the uid of the login user, before become, or None if `id` fails."""
        answer = self._low_level_execute_command("id -u", sudoable=False)
        lines = answer.get("stdout", "").split()
        return int(lines[-1]) if lines and lines[-1].isdigit() else None

    def _wait(self, arguments, task_vars):
        """Return the result of a `wait`, or a failure after O(patience) seconds without one."""
        board, host, began, since = (
            arguments.get("board"),
            task_vars["inventory_hostname"],
            time.monotonic(),
            time.time(),
        )

        def patience():
            wanted = float(arguments.get("patience") or 0)
            return min(wanted, LITTLE_PATIENCE) if board and others(board, host) else wanted

        tries = 0
        if board and any_is_silent(board):  # short polls: a node may now report a lost peer
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
                    unmark(board, host)
                return answer
            if time.monotonic() - began < patience():
                if not tries:
                    warn(
                        "%s: no answer from the agent of the job, retrying for %g s: %s"
                        % (host, patience(), error or answer.get("msg"))
                    )
                    if board:
                        post(board, SILENT + host)
                again = time.monotonic() + min(PAUSES[min(tries, 1)], patience() / 5)
                tries += 1
                while time.monotonic() < min(again, began + patience()):
                    time.sleep(LOOK)
            if time.monotonic() - began >= patience():  # shorter after a failure of another node
                return gone(host, since, error) if error else answer

    def _limit_connecting(self, seconds):
        """Set ssh's connect timeout to `seconds` and disable the retries of Ansible's connection.

        The caller retries by itself, because only the caller knows O(patience).
        """
        connection = getattr(self, "_connection", None)
        if getattr(connection, "transport", None) == "ssh":
            connection.set_option("reconnection_retries", 0)
            options = re.sub(
                r"^(-o ConnectTimeout=\d+ )+", "", connection.get_option("ssh_args") or ""
            )
            # If an option occurs twice, ssh uses the first.
            connection.set_option("ssh_args", CONNECT % seconds + options)

    def _stop(self, arguments, result, task_vars):
        """End this node's part of the job, and set "ended" and "status" in `result`.

        If the connection is lost, `result` stays as it is, and the next `wait` tries again.
        """
        try:
            stopped = self.ask(dict(arguments, command="stop", peer=True), task_vars)
        except AnsibleError as error:
            if not is_of_connection(error):
                raise
            return
        if not stopped.get("failed"):
            result.update(ended=True, status=stopped["status"])


def token_of(job):
    """Return the token by which the processes of a job recognize each other, the same on all nodes.

    The first fork creates the token in a private temporary file of this run of Ansible. No variable
    holds it, so no output can contain it.
    """
    path = os.path.join(C.DEFAULT_LOCAL_TMP, "token-" + job)
    with open(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        token = stream.read()
        if not token:
            token = secrets.token_hex(32)
            stream.write(token)
            stream.flush()  # before the lock is released
    return token


def is_of_connection(error):
    """Return True if the error says that Ansible has lost the connection to the node.

    If the connection is lost during the wait for sudo, Ansible raises another error class.
    """
    return isinstance(
        error, AnsibleConnectionFailure
    ) or "waiting for privilege escalation prompt" in str(error)


def gone(host, since, error):
    """Return the "unreachable" result of a node that has not answered since `since` (unix seconds).

    Args: `error` the text of Ansible's error.
    """
    lines = [line.strip() for line in error.splitlines() if line.strip()] or ["no answer"]
    said = contact.words_of_ssh(lines[-1])
    why = said if said and "Broken pipe" not in said else "connection lost"
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    return {
        "unreachable": True,
        "changed": False,
        "ended": True,
        "lost": {"since": since, "why": why},
        "msg": "%s is gone: it has not answered over ssh since %s (%s)" % (host, clock, why),
    }


def failed(status):
    """Return True if a node's part of a job has ended without success."""
    return status["state"] == "ended" and status["reason"] != "done"


def uneven(board, host, pulses, together):
    """Return the name of a worker of `host` that blocks other workers for ever, else None.

    The board holds the latest pulses of each host, and the time of the last change of each pulse
    (unix seconds of the controller's clock). A worker changes its pulse in each kv-store call.
    `stall_cause.uneven` judges the pulses that have not changed for SETTLED seconds.

    Args: `pulses` {name: latest pulse} of the host's workers; `together` as in the module's option.
    """
    if not together:
        return None
    now = time.time()
    told = {name: {"pulse": found, "since": now - found["idle"]} for name, found in pulses.items()}
    os.makedirs(board, exist_ok=True)
    replace(os.path.join(board, PULSE + host), json.dumps(told))
    settled = {}
    for name in os.listdir(board):
        if name.startswith(PULSE) and not name.endswith(".part"):
            settled.update(
                (name, found["pulse"])
                for name, found in json.loads(read(os.path.join(board, name)) or "{}").items()
                if now - found["since"] >= SETTLED
            )
    found = stall_cause.uneven(settled, together)
    return found if found in pulses else None


def read(path):
    """Return the text of the file `path`, "" if it cannot be read."""
    try:
        with open(path) as stream:
            return stream.read()
    except (IOError, OSError):
        return ""


def post(board, host):
    """Put the name of `host` on the board: create an empty file of this name in `board`."""
    if not os.path.isdir(board):
        try:
            os.makedirs(board)
        except OSError:
            if not os.path.isdir(board):  # another fork may have created the folder
                raise
    open(os.path.join(board, host), "w").close()


def others(board, host):
    """Return the hosts on the board except `host`, sorted; their parts of the job have failed."""
    return (
        sorted(name for name in os.listdir(board) if name != host and not name.startswith("."))
        if os.path.isdir(board)
        else []
    )


def unmark(board, host):
    """Remove the mark from the board that `host` is silent, if there is one."""
    path = os.path.join(board, SILENT + host)
    if os.path.exists(path):
        os.remove(path)


def any_is_silent(board):
    """Return True if the board marks any host as silent."""
    return os.path.isdir(board) and any(name.startswith(SILENT) for name in os.listdir(board))
