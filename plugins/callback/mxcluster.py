"""Show mxcluster's playbooks on the terminal: plan, warnings, one live line, roles and verdict.

What Ansible would show goes to a log (`mxcluster.ansible.terminal`). With -v, --check, --diff and
--step, and for a user's own playbooks, the callback shows Ansible's output in compact form.

- While a task polls a job with mxcluster_node, its results become one line about the whole job. On
  a terminal the callback rewrites the line in place. Elsewhere it prints a line every 30 seconds,
  in the compact form every five.
- The callback shows the lines `mxcluster_verdict_text` of a result last, after any recap, and
  ansible-playbook ends with the result's status `mxcluster_exit_status`. After mxcluster_restart
  there is no recap, because the last attempt has shown its own.
- If ansible-playbook ends before the recap while a job may run, such as at Ctrl-C, the callback
  says what happens to the job, and which commands attach to it and end it.
- Hosts with the same outcome share a line. Results lose escape sequences and control characters.
- If no task with another tag than `always` runs, the exit status is 1.
"""

DOCUMENTATION = r"""
name: mxcluster
type: stdout
short_description: Show the default output in compact form, with a live line for a training job
description: See the module's docstring.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

import atexit
import contextlib
import functools
import os
import shutil
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ansible import constants as C
from ansible import context
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.utils.display import get_text_width

try:
    from mxcluster.ansible import attempts, forks, interrupts, left_job, preflight_checks
    from mxcluster.ansible.terminal import selection, view
    from mxcluster.ansible.terminal.lines import Failed
    from mxcluster.ansible.terminal.log import Log, LogOnly
    from mxcluster.ansible.terminal.results import failure_lines, make_harmless
    from mxcluster.ansible.terminal.screen import back, rewritable
    from mxcluster.ansible.terminal.selection import is_selected, selecting, tasks_of
    from mxcluster.job import live_line
    from mxcluster.job.verdict_text import printable
    from mxcluster.model.answers import JobState
except ImportError:  # the preflight checks report the missing package before they contact a node
    attempts = forks = left_job = live_line = printable = JobState = selection = None
    make_harmless = lambda *_: None  # noqa: E731

# Ansible's classes. Ansible has no types, so each class is Any. Content is that of a TaskResult.
AggregateStats = Host = IncludedFile = Play = Playbook = Task = TaskResult = Any
CliArguments = Content = Any

PERIOD = 5  # seconds between two lines about the job in the compact form, without a terminal
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
NAMED = 8  # maximum number of hosts in a line
NOTHING = 1  # the exit status if no task has run
# These plugins run on the controller. Only their results may contain a verdict.
JUDGES = tuple(
    "mxcluster_" + name for name in ("report", "restart", "jobs", "verify", "sweep", "reset")
)


class CallbackModule(Default):
    """Callback that shows the results of tasks.

    Ansible calls the methods one at a time, under a lock.
    """

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "mxcluster"

    def __init__(self) -> None:
        super(CallbackModule, self).__init__()
        self._task = None  # the current task
        # (outcome, colour) -> hosts that are not shown yet
        self._hosts: Dict[Tuple[str, str], List[str]] = {}
        # host of the task -> its latest state of the job, None before a result
        self._answers: Dict[str, Optional[JobState]] = {}
        self._line = ""  # the latest line about the job, "" once it is final
        self._drawn = 0  # columns of the line at its last draw on the terminal
        self._shown = ("", 0.0)  # the last printed line about the job, and the time
        self._verdict: List[Tuple[str, Optional[str]]] = []
        self._restarted = False  # whether another attempt at the job has run
        self._status: Optional[int] = None  # the exit status of the verdict, None without one
        self._matched = False  # True once the command line has selected a task
        self._left = None  # the left_job.LeftJob of this ansible-playbook
        self._view: Optional["view.View"] = None  # None in the compact form
        self._log: Optional[Log] = None  # None if Ansible's output goes nowhere else
        self._headed = None  # the task whose heading the terminal shows beside the view

    def v2_playbook_on_start(self, playbook: Playbook) -> None:
        """Load all filter and test plugins, then show the start of the playbook.

        From here on, the end of this process names the job that it leaves on the nodes.
        """
        own = selection and preflight_checks.own_playbook(playbook._file_name, PROJECT)
        if own:
            with contextlib.suppress(OSError):  # without a log, the terminal shows everything
                self._log = Log(C.DEFAULT_LOCAL_TMP, own, os.path.join(PROJECT, ".state"))
                atexit.register(self._log.close)
        if self._log and selection.is_quiet(context.CLIARGS):
            self._view = view.View(self._display, own, shows_roles=own == "provision.yml")
            self._display = LogOnly(self._display)
        if left_job:
            interrupts.keep()
            self._left = left_job.LeftJob(C.DEFAULT_LOCAL_TMP)
            atexit.register(self._show_left_job)
        # Ansible does not flush the output of a task, such as that of the next attempt at a job.
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(line_buffering=True)
        if forks:
            forks.prepare()
        super(CallbackModule, self).v2_playbook_on_start(playbook)

    @contextlib.contextmanager
    def _loud(self, task: Optional[Task]) -> Iterator[None]:
        """Show what Ansible displays about `task`, or about the run, on the terminal, too."""
        if not self._view:
            yield
            return
        with self._view.display._lock:
            self._view.settle()
            log_only, self._display = self._display, self._view.display
            if task and self._headed != task._uuid:
                self._headed, self._last_task_banner = task._uuid, None
            try:
                yield
            finally:
                self._display = log_only

    def _show(self, text: str, color: Optional[str] = None) -> None:
        """Show a line on the terminal."""
        (self._view.screen.say if self._view else self._display.display)(text, color=color)

    def _end_host(self, result: TaskResult, outcome: str) -> None:
        """Count the outcome of a host for the line of its role."""
        if self._view:
            self._view.end_host(result._host.get_name(), selection.role_of(result._task), outcome)

    # Results of hosts.

    def v2_playbook_on_play_start(self, play: Play) -> None:
        """Show the play. A play without hosts may have selected tasks, but runs none of them."""
        if selection and not context.CLIARGS.get("start_at_task"):
            tasks = tasks_of(play.pre_tasks + play.tasks + play.post_tasks)
            self._matched = self._matched or any(
                is_selected(task, context.CLIARGS) for task in tasks
            )
        self._settle()
        if self._view:
            self._view.begin_play(play.tags)
        super(CallbackModule, self).v2_playbook_on_play_start(play)

    def v2_playbook_on_vars_prompt(self, *_: Any, **__: Any) -> None:
        """Show no live line beside a question of the play."""
        if self._view:
            self._view.pause()
            self._view.settle()

    def v2_runner_on_start(self, host: Host, task: Task) -> None:
        """Count `host` among the hosts of the live line.

        At the start of a new task, first drop the job results of the previous task.
        """
        if task._uuid != self._task:
            self._task, self._answers, self._shown = task._uuid, {}, ("", time.time())
            if self._view:
                self._settle()
                role, is_talking = selection.role_of(task), selection.is_talking(task)
                throttled = bool(task.throttle)
                self._view.begin_task(role, one_line(task.name), is_talking, throttled)
        if self._view:
            self._view.begin_host(host.get_name())
        self._answers.setdefault(host.get_name(), None)
        if self._left and not context.CLIARGS.get("check"):
            self._left.at_task(task.action, task.args.get("command"))
        if selection:
            self._matched = self._matched or is_selected(task, context.CLIARGS)
        super(CallbackModule, self).v2_runner_on_start(host, task)

    def v2_runner_retry(self, result: TaskResult) -> None:
        """Update the line about the job, or show the retry of any other silent task."""
        if not self._about_job(result) and not (selection and selection.is_talking(result._task)):
            self._settle()
            super(CallbackModule, self).v2_runner_retry(result)

    def v2_runner_on_ok(self, result: TaskResult) -> None:
        """Update the line about the job, or show the success. Keep a verdict for the end."""
        self._remember_verdict(result._task, result._result)
        outcome = "changed" if result._result.get("changed") else "ok"
        self._end_host(result, outcome)
        if self._left:
            self._left.learn(result._task.action, result._result)
        if self._log:
            self._log.learn(result._task.action, result._result)
        if self._about_job(result):
            return
        if self._view and result._task.action in selection.DEBUG:
            self._tell(result)
        elif (
            isinstance(result._task, TaskInclude)
            or self._run_is_verbose(result)
            or not self.get_option("display_ok_hosts")
        ):
            self._settle()
            super(CallbackModule, self).v2_runner_on_ok(result)
        else:
            self._gather(result, outcome, C.COLOR_OK if outcome == "ok" else C.COLOR_CHANGED)

    def v2_runner_on_skipped(self, result: TaskResult) -> None:
        """Show a skipped host, on a line with other skipped hosts."""
        self._end_host(result, "skipped")
        if self._display.verbosity or not self.get_option("display_skipped_hosts"):
            self._settle()
            super(CallbackModule, self).v2_runner_on_skipped(result)
        else:
            self._gather(result, "skipping", C.COLOR_SKIP)

    def v2_runner_item_on_skipped(self, result: TaskResult) -> None:
        """Show a skipped item with -v and in the log only."""
        if self._display.verbosity or self._view:  # the line of the host shows the skip already
            super(CallbackModule, self).v2_runner_item_on_skipped(result)

    def v2_playbook_on_include(self, included_file: IncludedFile) -> None:
        """Show an included file with -v and in the log only."""
        if self._display.verbosity or self._view:
            super(CallbackModule, self).v2_playbook_on_include(included_file)

    def v2_runner_on_failed(self, result: TaskResult, ignore_errors: bool = False) -> None:
        """Show a failure. Keep a verdict for the end."""
        self._remember_verdict(result._task, result._result)
        self._end_host(result, "ok" if ignore_errors else "failed")
        if self._log:
            self._log.learn(result._task.action, result._result)
        if result._task.loop and "results" in result._result:
            self._settle()
            super(CallbackModule, self).v2_runner_on_failed(result, ignore_errors)
        else:
            self._fail(result, "fatal: %s: FAILED!", C.COLOR_ERROR, ignore_errors)

    def v2_runner_item_on_failed(self, result: TaskResult) -> None:
        """Show the failure of an item."""
        item = self._get_item_label(result._result)
        form = "failed: %%s (item=%s)" % (item,)
        ignored = bool(self._view and result._task.ignore_errors)
        self._fail(result, form, C.COLOR_ERROR, ignored)

    def v2_runner_on_unreachable(self, result: TaskResult) -> None:
        """Show an unreachable host."""
        ignored = bool(result._task.ignore_unreachable)
        self._end_host(result, "ok" if ignored else "unreachable")
        self._fail(result, "fatal: %s: UNREACHABLE!", C.COLOR_UNREACHABLE, ignored)

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        """Show the recap and the verdict, and set the exit status."""
        self._settle()
        if self._left:
            self._left.forget()
        if self._view:
            self._view.end()
        shows_roles = self._view and self._view.shows_roles
        if not self._restarted:
            with self._loud(None) if shows_roles else contextlib.nullcontext():
                super(CallbackModule, self).v2_playbook_on_stats(stats)
        if not (attempts and attempts.is_child()):
            for line, color in self._verdict:
                self._show(line, color)
        options = selecting(context.CLIARGS) if selection else []
        if options and not self._matched:
            self._status = NOTHING  # a script must not take this run for a success
            self._show(selection.nothing_ran(options), C.COLOR_ERROR)
        elif self._view:
            log = self._log.path if self._log.placed else ""
            self._view.close(selection.failed_hosts(stats), log, (C.COLOR_OK, C.COLOR_ERROR))
        if self._log:
            self._log.close()
        if self._view:  # another playbook of the command line may follow
            self._display, self._view = self._view.display, None
        if self._status is not None:
            sys.stdout.flush()
            sys.exit(self._status)  # Ansible has only one exit status for all failed checks

    def _print_task_banner(self, task: Task) -> None:
        if (
            self._display.verbosity
            or C.DISPLAY_ARGS_TO_STDOUT
            or self.get_option("check_mode_markers")
        ):
            super(CallbackModule, self)._print_task_banner(task)
        else:
            prefix = self._task_type_cache.get(task._uuid, "TASK")
            self._display.display(
                "%s [%s]" % (prefix, self._last_task_name or task.get_name().strip())
            )
            self._last_task_banner = task._uuid
        sys.stdout.flush()  # a reader may follow the output through a pipe

    def _gather(self, result: TaskResult, outcome: str, color: str) -> None:
        """Keep a host's outcome for a common line with other hosts.

        Args: `outcome` a word such as "ok"; `color` of the line.
        """
        self._handle_warnings(result._result)
        if self._last_task_banner != result._task._uuid:
            self._settle()
            self._print_task_banner(result._task)
        self._hosts.setdefault((outcome, color), []).append(self.host_label(result))

    def _settle(self) -> None:
        """Show the pending outcomes of hosts and the pending line about the job."""
        for (outcome, color), hosts in self._hosts.items():
            named = ["%s: [%s]" % (outcome, hosts[0]), *("[%s]" % host for host in hosts[1:])]
            self._display.display(", ".join(named), color=color, log_only=True)
            more = " and %d more" % (len(hosts) - NAMED) if len(hosts) > NAMED else ""
            self._display.display(", ".join(named[:NAMED]) + more, color=color, screen_only=True)
        self._hosts = {}
        if self._line:
            if rewritable(sys.stdout):
                sys.stdout.write("\n")
                self._drawn = 0
            elif self._line != self._shown[0]:
                self._show(self._line)
            sys.stdout.flush()
            self._line = ""

    def _tell(self, result: TaskResult) -> None:
        """Show the message of a task `debug`: a message of mxcluster without Ansible's words."""
        task, message = result._task, result._result.get("msg")
        texts = message if isinstance(message, list) else [message]
        if (task.get_path() or "").startswith(PROJECT + os.sep) and all(
            isinstance(text, str) for text in texts
        ):
            super(CallbackModule, self).v2_runner_on_ok(result)  # for the log
            # A child of a sweep shows its plan in its log only.
            if not attempts.parent():
                self._view.tell(texts, "" if task.run_once else result._host.get_name())
        else:
            with self._loud(task):
                super(CallbackModule, self).v2_runner_on_ok(result)

    def _fail(self, result: TaskResult, form: str, color: str, ignored: bool) -> None:
        """Show a failure: a line of the host, then the lines of the result's message.

        Without the compact form, the terminal shows no ignored failure, and none with the words of
        the verdict, which comes last.

        Args: `form` of the line, with %s for the host; `ignored` True if the play goes on on this
        host.
        """
        self._settle()
        self._answers.pop(result._host.get_name(), None)
        self._clean_results(result._result, result._task.action)
        if self._last_task_banner != result._task._uuid:
            self._print_task_banner(result._task)
        stderr = self.get_option("display_failed_stderr")
        self._handle_exception(result._result, use_stderr=stderr)
        self._handle_warnings(result._result)
        lines = failure_lines(result._result) if printable else [str(result._result.get("msg"))]
        if self._display.verbosity or not lines:
            lines = lines + ["=> %s" % self._dump_results(result._result)]
        host = self.host_label(result)
        headline = one_line(form.replace("%s", "[%s]" % host, 1))
        self._display.display("\n  ".join([headline] + lines), color=color, stderr=stderr)
        if ignored:
            self._display.display("...ignoring", color=C.COLOR_SKIP)
        elif self._view and not set(lines) <= {line for line, _ in self._verdict}:
            heading = "TASK [%s]" % one_line(result._task.get_name().strip())
            self._view.fail(Failed(heading, form, tuple(lines), color), host)
        sys.stdout.flush()

    def _handle_exception(self, result: Content, use_stderr: bool = False) -> None:
        """Display the exception of a result. From ansible-core 2.19 on, do so with -v only.

        Since ansible-core 2.19 every failed result has an exception, which repeats the message and
        names the line of the playbook.
        """
        if getattr(self, "_current_task_result", None) is None or self._display.verbosity:
            super(CallbackModule, self)._handle_exception(result, use_stderr=use_stderr)
        else:
            result.pop("exception", None)

    # The job.

    def _about_job(self, result: TaskResult) -> bool:
        """Update the line about the job, and return True if the result has a job's progress."""
        answer = result._result
        if live_line is None or not all(
            isinstance(answer.get(key), dict) for key in ("status", "progress")
        ):
            return False
        try:
            state = JobState.decode(answer)
        except ValueError:  # the result of another module has these names, too
            return False
        if self._log:  # the job runs, so it may have a run folder
            self._log.move_to_job()
        if self._hosts:  # outcomes of hosts without a part of the job
            self._settle()
        self._answers[result._host.get_name()] = state
        if self._last_task_banner != result._task._uuid:
            self._print_task_banner(result._task)
        if self._view:
            self._view.pause()
        self._line = live_line.line(self._answers)
        due = time.time() - self._shown[1] >= (view.PERIOD if self._view else PERIOD)
        if due:
            self._shown = (self._line, time.time())
        if rewritable(sys.stdout):
            if due:
                self._display.display(self._line, log_only=True)
            columns = shutil.get_terminal_size().columns
            self._line = live_line.line(self._answers, columns - 1)
            sys.stdout.write("%s%s\033[K" % (back(self._drawn, columns), self._line))
            self._drawn = get_text_width(self._line)
        elif due:
            self._show(self._line)
        sys.stdout.flush()
        if self._log:
            forks.load_report_libraries(self._answers.values(), self._log.state_dir)
        return True

    def _show_left_job(self) -> None:
        """Show the job that this process leaves on the nodes. The recap has forgotten the job."""
        if self._view:
            self._view.end()
        given = [path for path in context.CLIARGS["inventory"] if path not in C.DEFAULT_HOST_LIST]
        for line in self._left.lines(" -i ".join(given)):
            self._show(one_line(line), C.COLOR_ERROR)

    def _remember_verdict(self, task: Task, result: Content) -> None:
        """Keep the verdict of a result for the end, if the result is from a plugin in JUDGES."""
        if task.action in JUDGES and result.get("mxcluster_verdict_text"):
            color = C.COLOR_OK if (result.get("verdict") or {}).get("ok") else C.COLOR_ERROR
            lines = [one_line(line) for line in result["mxcluster_verdict_text"]]
            self._verdict = [(lines[0], color)] + [(line, None) for line in lines[1:]]
            self._status = result.get("mxcluster_exit_status")
            self._restarted = task.action == "mxcluster_restart"


def one_line(text: str) -> str:
    """Return the `text` of a node as one line without terminal control sequences."""
    return printable(text) if printable else text


def of_harmless(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that removes control sequences from a result and then calls `method`."""

    @functools.wraps(method)
    def shows(self: CallbackModule, result: TaskResult, *args: Any, **kwargs: Any) -> Any:
        make_harmless(result._result, self)
        return method(self, result, *args, **kwargs)

    return shows


def settled(name: str) -> Callable[..., Any]:
    """Return a method that calls `_settle` and then the default callback's method `name`."""
    default = getattr(Default, name)

    def method(self: CallbackModule, *args: Any, **kwargs: Any) -> Any:
        self._settle()
        return default(self, *args, **kwargs)

    return method


for _name in (
    "_task_start",
    "v2_playbook_on_no_hosts_matched",
    "v2_on_file_diff",
    "v2_playbook_on_no_hosts_remaining",
    "v2_runner_item_on_ok",
    "v2_runner_on_async_poll",
    "v2_runner_on_async_ok",
    "v2_runner_on_async_failed",
):
    setattr(CallbackModule, _name, settled(_name))

# Every result passes through one of these methods.
for _name in dir(CallbackModule):
    if (
        _name == "v2_on_file_diff"
        or _name.startswith("v2_runner_")
        and _name != "v2_runner_on_start"
    ):
        setattr(CallbackModule, _name, of_harmless(getattr(CallbackModule, _name)))
