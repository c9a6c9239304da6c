"""Make text from the results of tasks, which may contain anything that a node has written."""

import dataclasses
import types
from typing import List

from mxcluster.ansible.edge import Callback, TaskResult
from mxcluster.job.verdict_text import printable

TAIL = 20  # maximum number of lines of a failed command's output


def harmless(value: TaskResult) -> TaskResult:
    """Return `value`, a result or a part of a result, without terminal control sequences.

    Line breaks stay.
    """
    if isinstance(value, str):
        return value if value.isprintable() else "\n".join(map(printable, value.split("\n")))
    if isinstance(value, dict):
        return {harmless(key): harmless(entry) for key, entry in value.items()}
    return [harmless(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def harmless_record(record: TaskResult) -> TaskResult:
    """Return the warning or error `record` without terminal control sequences.

    From ansible-core 2.19 on, a record is a dataclass that may contain other records. The function
    indents all lines after the first, so that no output of a node looks like a line of Ansible.
    """
    if isinstance(record, str):
        return harmless(record).replace("\n", "\n  ")
    if isinstance(record, tuple):
        return tuple(map(harmless_record, record))
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        return record
    parts = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return dataclasses.replace(
        record, **{name: harmless_record(part) for name, part in parts.items()}
    )


def make_harmless(result: TaskResult, callback: Callback) -> None:
    """Remove terminal control sequences from a result, and from what Ansible displays of it.

    Args: `result` the content of the result; `callback` that shows the result, or None.
    """
    shown = dict(harmless(result))
    result.clear()  # in place: from ansible-core 2.19 on a TaskResult keeps its content
    result.update(shown)
    # From 2.19 on, Ansible displays warnings and errors from this attribute, not from the result.
    current = getattr(callback, "_current_task_result", None)
    if current is not None:
        callback._current_task_result = types.SimpleNamespace(
            warnings=[harmless_record(warning) for warning in current.warnings],
            deprecations=[harmless_record(warning) for warning in current.deprecations],
            exception=harmless_record(current.exception),
        )


def failure_lines(result: TaskResult) -> List[str]:
    """Return the message, command and output of a failed result as lines.

    The lines contain the exit status and only the end of the output. The result is [] without a
    message, command and output.
    """
    lines = []
    message = result.get("censored") or result.get("msg") or result.get("reason")
    if message:
        lines += (message if isinstance(message, str) else repr(message)).rstrip().split("\n")
    if result.get("cmd"):
        command = result["cmd"]
        lines += ("cmd: %s" % (command if isinstance(command, str) else " ".join(command))).split(
            "\n"
        )
    if result.get("rc") is not None and "msg" in result:
        lines.append("rc: %s" % result["rc"])
    for name in ("module_stdout", "module_stderr", "stdout", "stderr"):
        output = str(result.get(name) or "").strip()
        if output:
            kept = output.split("\n")[-TAIL:]
            lines += ["%s: %s" % (name, kept[0])] + ["  " + line for line in kept[1:]]
    return [line.rstrip("\r") for line in lines]
