"""Decide on the controller what reset.yml removes, refuse running jobs, and write the report."""

from typing import Callable, Dict, Mapping, Optional, Sequence, Type

from mxcluster.ansible import arguments, controller_task
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.ansible.edge import TaskResult
from mxcluster.cluster import driver, reset
from mxcluster.model.module_answers import AbsentAnswer
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, table

REGISTERED = ("answers", "jobs")

OfHosts = Mapping[str, Optional[TaskResult]]  # {host: result of a task, empty without a result}


def _results(value: object) -> Sequence[TaskResult]:
    return each(arguments.json)(value or [])  # {} for a host without the variable


class Arguments(Record, strict=True, kind_key="command"):
    """The arguments of each command."""


class Plan(Arguments, kind="plan"):
    """Check the parts that the user asks for, and that no job runs."""

    also: Sequence[str] = field(arguments.texts)
    jobs: OfHosts = field(arguments.by_host)
    """The variable of each host with the result of mxcluster_node command=jobs."""


class Report(Arguments, kind="report"):
    """Write the lines about all nodes."""

    answers: Mapping[str, Sequence[TaskResult]] = field(
        table(arguments.text, _results, arguments.MOST)
    )
    """The variable of each host with the results of mxcluster_absent, which are empty for a skipped
    task."""


class Planned(controller_task.Result):
    """The parts to remove."""

    also: Sequence[str] = field(arguments.texts)


def plan(given: Plan, check: bool) -> Planned:
    """Return the parts that the user asks for. Raises BadInput for a wrong part or a job."""
    also = reset.parts(given.also)
    found = {host: driver.Jobs.decode(answer or {}) for host, answer in given.jobs.items()}
    reset.refuse_jobs({host: jobs.running() for host, jobs in found.items()})
    return Planned(also=also)


def report(given: Report, check: bool) -> controller_task.Result:
    """Return the lines about all nodes."""
    answers = {
        host: [AbsentAnswer.decode(answer) for answer in results if "removed" in answer]
        for host, results in given.answers.items()
        if results
    }
    return controller_task.Result(mxcluster_verdict_text=reset.lines(answers, check))


COMMANDS: Dict[Type[Arguments], Callable[..., controller_task.Result]] = {
    Plan: plan,
    Report: report,
}


def carry_out(given: Arguments, check: bool) -> controller_task.Result:
    """Run a command. Args: `given` the arguments of the task; `check` True in check mode."""
    return COMMANDS[type(given)](given, check)


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_reset`, which Ansible runs on the controller."""
