"""Ansible's default output, more compact, with one live line for a running job and its verdict at the very end."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
name: mxcluster
type: stdout
short_description: The default output, compact, with one live line for a training job
description:
  - While a task polls a job with C(mxcluster_node), its results become one line about the whole job; on a terminal the
    line is rewritten in place, elsewhere it comes every five seconds.
  - The lines that a result holds in C(mxcluster_verdict_text) are shown after the recap, as the last ones, and
    C(mxcluster_exit_status) beside them becomes the exit status of ansible-playbook.
  - When M(mxcluster_report) says that the job is to be tried again, the process becomes the same ansible-playbook anew, so
    that the terminal, Ctrl-C and the exit status are those of the last attempt.
  - Hosts with the same outcome share a line, and a failure shows its message as it was written.
  - A text of a node cannot command the terminal; escape sequences and control characters are dropped from every result.
  - With C(-v) the lines of hosts and tasks are those of the default callback.
author:
  - The mxcluster authors (@mxcluster)
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - C(stdout_callback = mxcluster) in ansible.cfg
  - the Python package mxcluster beside Ansible; without it jobs have no live line
"""

import functools
import json
import os
import shutil
import sys
import time

from ansible import constants as C
from ansible import context
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.plugins.loader import filter_loader, test_loader
from ansible.utils.display import get_text_width

try:
    from mxcluster import progress, verdict
except ImportError:  # the playbooks say so themselves, in their own words, before a node is asked
    progress = verdict = None

PERIOD = 5  # seconds between two lines about the job where none can be rewritten
NAMED = 8  # hosts that a line names
TAIL = 20  # lines of a failed command's output


JUDGES = ("mxcluster_report", "mxcluster_jobs", "mxcluster_verify")  # they run on the controller


class CallbackModule(Default):
    """The methods are called one at a time, under a lock of Ansible's."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "mxcluster"

    def __init__(self):
        super(CallbackModule, self).__init__()
        self._task = None  # the task that hosts work on
        self._hosts = {}  # (outcome, colour) -> hosts, not shown yet
        self._answers = {}  # host -> its latest answer about the job
        self._line = ""  # the latest line about the job, "" when it is shown for good
        self._drawn = 0  # the columns that the line took on the terminal when it was last drawn
        self._shown = ("", 0.0)  # the last line about the job that was printed, and when
        self._verdict = []
        self._restart = None  # what is to be tried again, and how
        self._status = None  # the exit status that a verdict asks for

    def v2_playbook_on_start(self, playbook):
        # Every task forks for every host. What is loaded before, the forks have; else each of them loads all filters anew, which
        # was a quarter of the time that a job's ansible-playbook took.
        for loader in (filter_loader, test_loader):
            list(loader.all())
        super(CallbackModule, self).v2_playbook_on_start(playbook)

    # What hosts come to.

    def v2_runner_on_start(self, host, task):
        if task._uuid != self._task:
            self._task, self._answers, self._shown = task._uuid, {}, ("", time.time())
        self._answers.setdefault(host.get_name(), None)
        super(CallbackModule, self).v2_runner_on_start(host, task)

    def v2_runner_retry(self, result):
        if not self._about_job(result):
            self._settle()
            super(CallbackModule, self).v2_runner_retry(result)

    def v2_runner_on_ok(self, result):
        self._remember_verdict(result._task, result._result)
        if result._task.action == "mxcluster_report":  # what a node answers is not to start anything here
            self._restart = result._result.get("restart")
        if self._about_job(result):
            return
        if (isinstance(result._task, TaskInclude) or self._run_is_verbose(result)
                or not self.get_option("display_ok_hosts")):
            self._settle()
            super(CallbackModule, self).v2_runner_on_ok(result)
        else:
            changed = result._result.get("changed", False)
            self._gather(result, "changed" if changed else "ok", C.COLOR_CHANGED if changed else C.COLOR_OK)

    def v2_runner_on_skipped(self, result):
        if self._display.verbosity or not self.get_option("display_skipped_hosts"):
            self._settle()
            super(CallbackModule, self).v2_runner_on_skipped(result)
        else:
            self._gather(result, "skipping", C.COLOR_SKIP)

    def v2_runner_item_on_skipped(self, result):
        if self._display.verbosity:  # the host's own line tells it already
            super(CallbackModule, self).v2_runner_item_on_skipped(result)

    def v2_playbook_on_include(self, included_file):
        if self._display.verbosity:
            super(CallbackModule, self).v2_playbook_on_include(included_file)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._remember_verdict(result._task, result._result)
        if result._task.loop and "results" in result._result:
            self._settle()
            super(CallbackModule, self).v2_runner_on_failed(result, ignore_errors)
        else:
            self._fail(result, "fatal: [%s]: FAILED!" % self.host_label(result), C.COLOR_ERROR)
            if ignore_errors:
                self._display.display("...ignoring", color=C.COLOR_SKIP)

    def v2_runner_item_on_failed(self, result):
        item = self._get_item_label(result._result)
        self._fail(result, "failed: [%s] (item=%s)" % (self.host_label(result), item), C.COLOR_ERROR)

    def v2_runner_on_unreachable(self, result):
        self._fail(result, "fatal: [%s]: UNREACHABLE!" % self.host_label(result), C.COLOR_UNREACHABLE)
        if result._task.ignore_unreachable:
            self._display.display("...ignoring", color=C.COLOR_SKIP)

    def v2_playbook_on_stats(self, stats):
        self._settle()
        super(CallbackModule, self).v2_playbook_on_stats(stats)
        for line, color in self._verdict:
            self._display.display(line, color=color)
        if self._restart:
            self._start_again(self._restart)
        if self._status is not None:
            sys.stdout.flush()
            sys.exit(self._status)  # past Ansible's own codes, which know but one for all that can be wrong

    def _start_again(self, restart):
        """Become the next attempt at the job, after a while; return if that cannot be."""
        text = restart["text"]
        again = restart["extra"] is not None
        problem = cannot_start_again(sys.argv, context.CLIARGS) if again else None
        if problem:
            text, again = "RESTART   no: %s" % problem, False
        self._display.display(text, color=C.COLOR_CHANGED if again else None)
        if again:
            sys.stdout.flush()
            time.sleep(restart["delay"])
            sys.stdout.flush()
            shutil.rmtree(C.DEFAULT_LOCAL_TMP, ignore_errors=True)  # nobody who leaves this way tidies up
            os.execv(sys.executable, [sys.executable] + sys.argv + ["-e", json.dumps(restart["extra"], sort_keys=True)])

    # How it is shown.

    def _print_task_banner(self, task):
        if self._display.verbosity or C.DISPLAY_ARGS_TO_STDOUT or self.get_option("check_mode_markers"):
            super(CallbackModule, self)._print_task_banner(task)
        else:
            prefix = self._task_type_cache.get(task._uuid, "TASK")
            self._display.display("%s [%s]" % (prefix, self._last_task_name or task.get_name().strip()))
            self._last_task_banner = task._uuid
        sys.stdout.flush()  # somebody may be watching a pipe

    def _gather(self, result, outcome, color):
        """Keep a host's outcome for the line that it shares with others."""
        self._handle_warnings(result._result)
        if self._last_task_banner != result._task._uuid:
            self._settle()
            self._print_task_banner(result._task)
        self._hosts.setdefault((outcome, color), []).append(self.host_label(result))

    def _settle(self):
        """Show for good what was kept back, before anything else is shown."""
        for (outcome, color), hosts in self._hosts.items():
            named = ", ".join("[%s]" % host for host in hosts[:NAMED])
            more = " and %d more" % (len(hosts) - NAMED) if len(hosts) > NAMED else ""
            self._display.display("%s: %s%s" % (outcome, named, more), color=color)
        self._hosts = {}
        if self._line:
            if rewritable(sys.stdout):
                sys.stdout.write("\n")
                self._drawn = 0
            elif self._line != self._shown[0]:
                self._display.display(self._line)
            sys.stdout.flush()
            self._line = ""

    def _fail(self, result, headline, color):
        """Show a failure: its headline, and its message in lines of its own."""
        self._settle()
        self._answers.pop(result._host.get_name(), None)
        self._clean_results(result._result, result._task.action)
        if self._last_task_banner != result._task._uuid:
            self._print_task_banner(result._task)
        stderr = self.get_option("display_failed_stderr")
        self._handle_exception(result._result, use_stderr=stderr)
        self._handle_warnings(result._result)
        lines = failure_lines(result._result)
        if self._display.verbosity or not lines:
            lines = lines + ["=> %s" % self._dump_results(result._result)]
        self._display.display("\n  ".join([one_line(headline)] + lines), color=color, stderr=stderr)
        sys.stdout.flush()

    # The job.

    def _about_job(self, result):
        """Take a result as an answer about the job; False if it is none."""
        answer = result._result
        if progress is None or not all(isinstance(answer.get(key), dict) for key in ("status", "progress")):
            return False
        if self._hosts:  # those that had nothing to wait for
            self._settle()
        self._answers[result._host.get_name()] = {"status": answer["status"], "progress": answer["progress"]}
        if self._last_task_banner != result._task._uuid:
            self._print_task_banner(result._task)
        if rewritable(sys.stdout):
            columns = shutil.get_terminal_size().columns
            self._line = progress.line(self._answers, columns - 1)
            sys.stdout.write("%s%s\033[K" % (back(self._drawn, columns), self._line))
            self._drawn = get_text_width(self._line)
        else:
            self._line = progress.line(self._answers)
            if time.time() - self._shown[1] >= PERIOD:
                self._shown = (self._line, time.time())
                self._display.display(self._line)
        sys.stdout.flush()
        return True

    def _remember_verdict(self, task, result):
        """Keep the verdict of a result for the end. What a node answers is none."""
        if task.action in JUDGES and result.get("mxcluster_verdict_text"):
            color = C.COLOR_OK if (result.get("verdict") or {}).get("ok") else C.COLOR_ERROR
            lines = [one_line(line) for line in result["mxcluster_verdict_text"]]
            self._verdict = [(lines[0], color)] + [(line, None) for line in lines[1:]]
            self._status = result.get("mxcluster_exit_status")


def one_line(text):
    """Return a text of a node as one line that a terminal shows and never obeys."""
    return verdict.printable(text) if verdict else text


def harmless(value):
    """Return a result, or a part of one, with every text in it fit for a terminal; texts keep their lines."""
    if isinstance(value, str):
        return value if value.isprintable() else "\n".join(map(one_line, value.split("\n")))
    if isinstance(value, dict):
        return {harmless(key): harmless(entry) for key, entry in value.items()}
    return [harmless(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def of_harmless(method):
    """`method`, which shows a result, with the texts of the result made harmless first."""
    @functools.wraps(method)
    def shows(self, result, *args, **kwargs):
        shown = harmless(result._result)
        result._result.clear()  # in place: from ansible-core 2.19 on it cannot be replaced
        result._result.update(shown)
        return method(self, result, *args, **kwargs)
    return shows


def settled(name):
    """The default's method `name`, after what was kept back is shown."""
    default = getattr(Default, name)

    def method(self, *args, **kwargs):
        self._settle()
        return default(self, *args, **kwargs)
    return method


for _name in ("_task_start", "v2_playbook_on_play_start", "v2_playbook_on_no_hosts_matched", "v2_on_file_diff",
              "v2_playbook_on_no_hosts_remaining", "v2_runner_item_on_ok", "v2_runner_on_async_poll",
              "v2_runner_on_async_ok", "v2_runner_on_async_failed"):
    setattr(CallbackModule, _name, settled(_name))

# Every result comes in through one of these.
for _name in dir(CallbackModule):
    if _name == "v2_on_file_diff" or _name.startswith("v2_runner_") and _name != "v2_runner_on_start":
        setattr(CallbackModule, _name, of_harmless(getattr(CallbackModule, _name)))


def back(drawn, columns):
    """What brings the cursor to where a line of `drawn` columns began, on a terminal that may have become narrower.

    A terminal that is made narrower wraps the line. The rows that the line then takes are erased.
    """
    rows = (drawn - 1) // columns if drawn > columns > 0 else 0
    return "\r\033[%dA\033[J" % rows if rows else "\r"


def cannot_start_again(argv, options):
    """Why this command line cannot be given again by itself; None if it can."""
    if os.path.basename(argv[0]) != "ansible-playbook" or not os.path.isfile(argv[0]):
        return "it was not started as ansible-playbook"
    asked = [name for name in ("ask_pass", "become_ask_pass", "ask_vault_pass") if options.get(name)]
    if asked or any(str(vault).endswith("prompt") for vault in options.get("vault_ids") or []):
        return "a password would have to be typed again; give it in a file, or as a key"
    return None


def rewritable(stream):
    """Whether a line can be written over there."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def failure_lines(result):
    """What a failed result tells, in lines; none if it has no message."""
    lines = []
    message = result.get("censored") or result.get("msg") or result.get("reason")
    if message:
        lines += (message if isinstance(message, str) else repr(message)).rstrip().split("\n")
    if result.get("cmd"):
        command = result["cmd"]
        lines += ("cmd: %s" % (command if isinstance(command, str) else " ".join(command))).split("\n")
    if result.get("rc") is not None and "msg" in result:
        lines.append("rc: %s" % result["rc"])
    for name in ("module_stdout", "module_stderr", "stdout", "stderr"):
        output = str(result.get(name) or "").strip()
        if output:
            kept = output.split("\n")[-TAIL:]
            lines += ["%s: %s" % (name, kept[0])] + ["  " + line for line in kept[1:]]
    return [line.rstrip("\r") for line in lines]
