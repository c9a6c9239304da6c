"""Run a command of `mxcluster.entry` on a node, and end the node's part of a failed job.

ps-lite's heartbeats detect a lost node only after all processes have connected. If a script fails
on one node before the creation of the kv-store, the other nodes would wait for ever. So this plugin
ends the job's parts on the other nodes.
"""

import base64
import os
import secrets
import shlex
import signal
import time
from typing import Optional

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.utils.display import Display

from mxcluster.ansible import contact, node_arguments
from mxcluster.ansible.board import Board
from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.ansible.fetching import files_of_at_most, free_bytes, reserve
from mxcluster.ansible.lasting import Lasting
from mxcluster.ansible.node_arguments import Options
from mxcluster.ansible.node_task import NodeTask
from mxcluster.ansible.queue_board import agreed
from mxcluster.errors import MxclusterError
from mxcluster.job import job_messages, kept_runs
from mxcluster.job.report import checkpoint_arrivals, exports
from mxcluster.job.verdict_text import printable
from mxcluster.model.answers import Collected, Offer, Progress
from mxcluster.model.answers import Logs as LogsAnswer
from mxcluster.model.protocol import (
    Collect,
    Logs,
    Look,
    Piece,
    Prepare,
    Request,
    Start,
    Stop,
    Wait,
)
from mxcluster.node import processes

PAUSES = (4.0, 6.0)  # seconds before the first retry of a lost node, and before each later retry
# Seconds between two reads of the board during a pause. With frequent reads, a failure on another
# node soon ends the retries.
LOOK = 0.2
# Maximum seconds of retries for a lost node after another node's part has failed. The lost node may
# be the cause of this failure and stay silent.
LITTLE_PATIENCE = 5.0
# The connect timeout is HURRIED seconds during the first HURRY seconds of an outage, then USUAL
# seconds. During the first HURRY seconds the other nodes may be detecting the loss.
HURRIED = 3
USUAL = 10
HURRY = 15.0
# Minimum limit of a fetched file, in bytes. This process also appends to Ansible's log (log_path).
FETCHED = 1 << 28
MOST_PATIENCE = 30.0  # maximum seconds of retries to fetch the files of a node's part
# Share of the lease that one poll may spend on checkpoints. Every fetched piece renews the lease.
BRINGING = 0.2
DRAWN = "worker-0"  # the process whose curves TensorBoard has while the job runs

display = Display()


def warn(text: str) -> None:
    """Show `text` as a warning on the terminal, without control sequences."""
    display.warning(printable(text))


class ActionModule(NodeTask):
    """The action plugin of `mxcluster_node`, which runs the command on the node.

    - The command `wait` retries a lost node for O(patience) seconds.
    - With the option `board`, `wait` ends the node's part when another node's part has failed.
    - With the option `checkpoints`, `wait` fetches the checkpoints of the running job.
    - With the option `into`, `wait` fetches the files of the node's part after the part's end.
    - The command `logs` with `seconds` shows the lines since the last attempt of the task.
    - The commands `start` and `prepare` send the token of the job and the identity of the
      controller process, which renews the lease. A node on the controller's host can check whether
      this process runs.
    - The command `look` with `problems` fails if the node or the controller reports a problem. With
      `runs_dir`, it finds the old jobs whose folders the start may remove.
    """

    _arrivals: Optional[checkpoint_arrivals.Arrivals] = None
    _options: Options
    _host: str
    _task_vars: TaskVars

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        self._task_vars, self._host = task_vars, task_vars["inventory_hostname"]
        arguments = node_arguments.host_arguments(
            self.validate_argument_spec(node_arguments.SPEC)[1], self._host
        )
        try:
            self._options, request = node_arguments.read(arguments)
            collect = None
            if self._options.into:
                collect = node_arguments.request_of(Collect, arguments)
        except MxclusterError as refusal:
            return dict(result, failed=True, msg=str(refusal))
        # verify.yml omits `problems` and judges the result itself.
        if isinstance(request, Look) and self._options.problems is not None:
            return dict(result, **self._look(request))
        if isinstance(request, (Start, Prepare)) and request.plan:
            request = request.replaced(
                plan=request.plan.replaced(controller=processes.witness(os.getppid())),
                token=token_of(request.job_id),
            )
        if isinstance(request, Wait):
            return dict(result, **self._follow(request, collect))
        if isinstance(request, Logs) and request.seconds:
            return dict(result, **self._follow_logs(request))
        return dict(result, **self._command(request))

    def _command(self, request: Request) -> TaskResult:
        return self.ask(self._options.python, request, self._task_vars, self._options.connection)

    def _follow(self, request: Wait, collect: Optional[Collect]) -> TaskResult:
        """Run the command `wait`, and do what the node's answer requires.

        Args: `collect` the request for the files of the node's ended part, None to leave the files.
        """
        # This process is a fork of ansible-playbook. A signal may end ansible-playbook alone.
        # Without this call the fork would then continue to poll and to renew the lease.
        processes.set_pdeathsig(os.getppid(), signal.SIGTERM)
        options = self._options
        if options.checkpoints and not self._task.check_mode:
            made = self._arrivals_of(options.checkpoints, request)
            self._arrivals = Lasting.of(self._task).arrivals(made)
            request = request.replaced(took=self._arrivals.taken())
        if collect:
            request = self._at_once(request, collect)
        # ansible-playbook removes the local temporary folder at its end.
        board = Board(
            os.path.join(C.DEFAULT_LOCAL_TMP, options.board) if options.board else "", self._host
        )
        result = self._wait(request, board)
        self._compare(request, board, result)
        self._draw(result)
        offered, collected = result.pop("checkpoints", None), result.pop("collected", None)
        if self._arrivals and offered and not result.get("ended"):
            try:
                self._arrivals.bring(Offer.decode(offered), BRINGING * (options.patience or 10))
            except (OSError, AnsibleError) as error:
                # The job continues, and a later poll fetches the missing pieces.
                if isinstance(error, AnsibleError) and not is_of_connection(error):
                    raise
                warn(
                    "%s: cannot fetch the checkpoint (%s). A later poll tries again"
                    % (self._host, error)
                )
        ended = result.get("ended") and result.get("status")
        if collect and ended and not self._task.check_mode:
            collect = collect.replaced(reason=result["status"]["reason"])
            result.update(self._bring_what_is_left(collect, collected))
        return result

    def _follow_logs(self, request: Logs) -> TaskResult:
        """Run the command `logs`, and show the lines since the last call of this method."""
        processes.set_pdeathsig(os.getppid(), signal.SIGTERM)  # see `_follow`
        lasting = Lasting.of(self._task)
        result = self._command(request.replaced(offsets=lasting.offsets))
        if not result.get("failed"):
            answer = LogsAnswer.decode(result)
            lasting.offsets = dict(answer.offsets)
            for line in job_messages.of_host_logs(self._host, answer.logs):
                display.display(line)
        return result

    def _compare(self, request: Wait, board: Board, result: TaskResult) -> None:
        """Write a failure of this node to the board, or end the part of a job that failed there.

        Args: `result` of `wait`, which the method completes.
        """
        if result.get("lost") or result.get("failed"):
            if self._options.keeper:
                board.post_failure()
            board.unmark_silent()  # the retries have ended, so the others need no short polls
        elif result.get("status") and self._options.board:
            state = Progress.decode(result)
            ended = state.status.has_ended
            blamed = None
            if not ended:
                blamed = board.blocking_worker(state.pulses, self._options.together)
            if blamed:
                result["uneven"] = {"name": blamed, "time": time.time()}
            if blamed or state.status.has_failed:
                board.post_failure()
            if blamed or not ended and board.has_other_failure():
                self._stop(request, result)

    def _draw(self, result: TaskResult) -> None:
        """Write the curves of worker 0 for TensorBoard. A full disk ends this, not the job.

        Only the fork of this worker's node loads the library, whatever the number of nodes.
        """
        folder, lasting = self._options.tensorboard, Lasting.of(self._task)
        if not folder or not lasting.may_draw or self._task.check_mode or not result.get("status"):
            return
        latest = Progress.decode(result).progress.get(DRAWN)
        if latest is None or not latest.trains:
            return
        try:
            lasting.curves = lasting.curves or exports.LiveCurves(os.path.join(folder, DRAWN))
            lasting.curves.add(latest)
        except (ImportError, OSError) as error:
            warn("%s has no curves while the job runs: %s" % (folder, error))
            lasting.may_draw = False

    def _look(self, request: Look) -> TaskResult:
        """Run the command `look` on the node and return the result of the task.

        The result is a failure if the node reports a problem, or if the controller has found one.
        The message then has one line for each problem.
        """
        found = self._command(request)
        if found.get("failed"):
            return found
        # Without a training user, the planner has already reported the open ports.
        if request.user and found.get("ports_open"):
            display.display("%s: %s" % (self._host, printable(found["ports_open"])))
        if self._options.runs_dir:
            runs_dir = os.path.abspath(os.path.expanduser(self._options.runs_dir))
            found["removable"] = kept_runs.removable(runs_dir, found.get("old_jobs") or [])
        problems = list(found.get("problems") or []) + list(self._options.problems or [])
        if not problems:
            return found
        return dict(found, failed=True, msg="\n".join(map(printable, problems)))

    def _bring_what_is_left(self, request: Collect, packed: Optional[TaskResult]) -> TaskResult:
        """Fetch the files of the node's ended part of a job to the file O(into).

        After a lost connection the method tries again for O(patience) seconds, at most
        MOST_PATIENCE seconds.

        Args: `packed` the files that the last poll has collected, None if it has not.

        Returns:
            {"packed": the result of `collect`}. After a failed fetch the dict also has "msg" and
            "failed" or "unreachable".
        """
        began, patience = time.monotonic(), min(self._options.patience, MOST_PATIENCE)
        self.limit_connecting(USUAL)
        while True:
            brought = self._bring_once(request, packed)
            if not brought.get("unreachable") or time.monotonic() - began >= patience:
                return brought
            packed = None
            time.sleep(PAUSES[0])

    def _bring_once(self, request: Collect, packed: Optional[TaskResult]) -> TaskResult:
        """Try once to fetch the files of the node's part of a job to the file O(into).

        Args: `packed` as for `_bring_what_is_left`.

        Returns:
            {"packed": the result of `collect`, or {} if `collect` failed}. If `collect` or the
            fetch failed, the dict also has "msg" and "failed" or "unreachable".
        """
        into = str(self._options.into)
        try:
            packed = packed or self._command(self._with_reader(request))
            if packed.get("failed"):
                return dict(packed, packed={})
            collected = Collected.decode(packed)
            if not collected.problem:
                self._fetch(collected, into)
        except AnsibleError as error:
            return {
                "unreachable" if is_of_connection(error) else "failed": True,
                "msg": str(error),
                "packed": packed or {},
            }
        except OSError as error:
            return {
                "failed": True,
                "packed": packed or {},
                "msg": "cannot write the job's files on the controller (%s: %s). Correct the "
                "cause, then fetch the files with train.yml -e attach=<job>"
                % (error.filename or into, error.strerror or error),
            }
        return {"packed": packed}

    def _fetch(self, packed: Collected, into: str) -> None:
        """Fetch the tar file of `collect` from the node to the file `into` on the controller.

        The method removes the fetched tar file from the node if the file is in the folder O(spool).
        The connection plugin fetches files that the login user can read. For files of other users
        the method uses Ansible's `fetch`, which holds the file in memory.

        Args: `packed` the answer to `collect`. Raises AnsibleError if the fetch is incomplete, or
        if the node cannot remove the tar file.
        """
        folder, draft = os.path.dirname(into), "%s.%d.part" % (into, os.getpid())
        os.makedirs(folder, 0o700, exist_ok=True)
        free = reserve(self._host, packed.bytes, free_bytes(folder))
        if 2 * packed.bytes > free:
            raise AnsibleError(
                "%s has %d bytes, and the controller needs twice as much space for its files in "
                "%s, where only %d bytes are free beside the files of other nodes: free space, or "
                "copy the files by hand. Then fetch the files with train.yml -e attach=<job>"
                % (packed.output, packed.bytes, folder, free)
            )
        try:
            with files_of_at_most(max(packed.bytes, FETCHED)):
                if packed.spooled or not self._connection.become:
                    self._connection.fetch_file(packed.output, draft)
                else:
                    self._fetch_as_another(packed.output, draft)
            if os.path.getsize(draft) != packed.bytes:
                raise AnsibleError(
                    "%s: received only %d of %d bytes from the node. If the controller's disk is "
                    "full, free space. Then fetch the files with train.yml -e attach=<job>"
                    % (packed.output, os.path.getsize(draft), packed.bytes)
                )
            os.replace(draft, into)
        finally:
            if os.path.exists(draft):
                os.remove(draft)
        if packed.spooled:
            removed = self._low_level_execute_command("rm -f -- " + shlex.quote(packed.output))
            if removed["rc"] != 0:
                raise AnsibleError(
                    "cannot remove the file %s on the node: %s. Remove this file on the node"
                    % (packed.output, removed.get("stderr", "").strip())
                )

    def _fetch_as_another(self, path: str, into: str) -> None:
        """Fetch the node's file `path` to the controller's file `into` as the become user."""
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
        ).run(task_vars=self._task_vars)
        if fetched.get("failed"):
            raise AnsibleError(str(fetched.get("msg")))

    def _arrivals_of(
        self, wanted: node_arguments.Checkpoints, request: Wait
    ) -> checkpoint_arrivals.Arrivals:
        """Return the `checkpoint_arrivals.Arrivals` object that fetches this node's checkpoints.

        The object fetches a checkpoint in pieces, and each piece renews the lease.
        """

        def ask(name: str, offset: int, most: int) -> Optional[bytes]:
            piece = request.turned_into(Piece, file=name, offset=offset, most=most)
            answer = self._command(piece)
            return None if answer.get("failed") else base64.b64decode(answer["data"])

        return checkpoint_arrivals.Arrivals(
            wanted.folder, self._host, wanted.keep, ask, wanted.plan, wanted.keep_best
        )

    def _at_once(self, request: Wait, collect: Collect) -> Wait:
        """Return `request` with `collect`, so that the last poll also collects the files.

        Without a connection the method returns `request`, and the poll retries the lost node.
        """
        try:
            return request.replaced(collect=self._with_reader(collect))
        except AnsibleError as error:
            if not is_of_connection(error):
                raise
            return request

    def _with_reader(self, request: Collect) -> Collect:
        """Return `request` with the uid of the login user, if Ansible becomes another user.

        Only the first poll of a job asks the node for the uid.
        """
        if not self._connection.become:
            return request
        lasting = Lasting.of(self._task)
        if not lasting.has_asked:
            lasting.reader, lasting.has_asked = self._who_logs_in(), True
        return request.replaced(reader=lasting.reader)

    def _who_logs_in(self) -> Optional[int]:
        """Return the uid of the login user before become, or None if `id` fails."""
        answer = self._low_level_execute_command("id -u", sudoable=False)
        lines = answer.get("stdout", "").split()
        return int(lines[-1]) if lines and lines[-1].isdigit() else None

    def _wait(self, request: Wait, board: Board) -> TaskResult:
        """Run `wait` on the node and return the result, with retries for O(patience) seconds.

        If all retries fail, the method returns the failure.
        """
        began, since = time.monotonic(), time.time()

        def patience() -> float:
            most = self._options.patience
            return min(most, LITTLE_PATIENCE) if board.has_other_failure() else most

        tries = 0
        if board.has_silent_node():  # with short polls a node reports a lost peer early
            request = request.replaced(seconds=0)
        while True:
            error, answer = None, {}
            self.limit_connecting(HURRIED if time.monotonic() - began < HURRY else USUAL)
            try:
                answer = self._command(request)
            except AnsibleError as failure:
                if not is_of_connection(failure):
                    raise
                error = str(failure)
            if not error and not answer.get("failed"):
                if tries:
                    board.unmark_silent()
                return answer
            if time.monotonic() - began < patience():
                if not tries:
                    warn(
                        "%s: no answer from the job's agent. Retrying for %g s. Cause: %s"
                        % (self._host, patience(), error or answer.get("msg"))
                    )
                    board.mark_silent()
                again = time.monotonic() + min(PAUSES[min(tries, 1)], patience() / 5)
                tries += 1
                while time.monotonic() < min(again, began + patience()):
                    time.sleep(LOOK)
            # patience() may now be shorter, because another node's part has failed.
            if time.monotonic() - began >= patience():
                return gone(self._host, since, error) if error else answer

    def _stop(self, request: Wait, result: TaskResult) -> None:
        """End this node's part of the job, and set "ended" and "status" in `result`.

        If the connection is lost, `result` stays unchanged, and the next `wait` tries again.
        """
        try:
            stopped = self._command(request.turned_into(Stop, peer=True))
        except AnsibleError as error:
            if not is_of_connection(error):
                raise
            return
        if not stopped.get("failed"):
            result.update(ended=True, status=stopped["status"])


def token_of(job: str) -> str:
    """Return the token (64 hexadecimal digits) of a job, which authenticates the job's processes.

    All forks of this run of Ansible return the same token. The first fork writes the token to a
    private temporary file. Ansible's output contains values of variables, so the token stays
    outside the variables.

    Args: `job` the job's id.
    """
    path = os.path.join(C.DEFAULT_LOCAL_TMP, "token-" + job)
    return agreed(path, lambda: secrets.token_hex(32))


def is_of_connection(error: Exception) -> bool:
    """Return True if `error` means that Ansible has lost the connection to the node.

    After a loss during the wait for sudo, Ansible raises an error that is not an
    AnsibleConnectionFailure. The function detects this error by its text.
    """
    return isinstance(
        error, AnsibleConnectionFailure
    ) or "waiting for privilege escalation prompt" in str(error)


def gone(host: str, since: float, error: str) -> TaskResult:
    """Return the "unreachable" task result of a lost node.

    Args: `host` the node's name; `since` the time of the node's last answer (unix seconds);
    `error` the text of Ansible's error.
    """
    lines = [line.strip() for line in error.splitlines() if line.strip()] or ["no answer"]
    output = contact.output_of_ssh(lines[-1])
    why = output if output and "Broken pipe" not in output else "connection lost"
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    return {
        "unreachable": True,
        "changed": False,
        "ended": True,
        "lost": {"since": since, "why": why},
        "msg": "%s is gone: it has not answered over ssh since %s (%s). Check the power, "
        "network and sshd of this node" % (host, clock, why),
    }
