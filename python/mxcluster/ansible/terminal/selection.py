"""Sort the options, tasks and hosts of a run of ansible-playbook."""

from typing import Iterable, Iterator, List, Union

from ansible.playbook.block import Block
from ansible.playbook.task import Task

from mxcluster.ansible.edge import AggregateStats, CliArguments

# The options with which Ansible shows more than the results of a run, or asks the user.
ASKING = ("check", "diff", "step", "listtasks", "listtags", "listhosts", "syntax")

DEBUG = ("debug", "ansible.builtin.debug", "ansible.legacy.debug")
# These plugins show the output of a child or lines of their own, or ask the user, so they have no
# live line.
PAUSE = ("pause", "ansible.builtin.pause", "ansible.legacy.pause")
TALKING = ("mxcluster_restart", "mxcluster_sweep", "mxcluster_plan", "mxcluster_queue", *PAUSE)


def is_talking(task: Task) -> bool:
    """Return True if `task` writes to the terminal itself.

    The command `logs` of mxcluster_node does so while logs.yml follows a job.
    """
    return bool(task.action in TALKING or task.args and task.args.get("command") == "logs")


def is_quiet(arguments: CliArguments) -> bool:
    """Return True if no option of the command line needs Ansible's own output.

    Args: `arguments` the parsed command line, `ansible.context.CLIARGS`.
    """
    return not arguments.get("verbosity") and not any(map(arguments.get, ASKING))


def tasks_of(listed: Iterable[Union[Block, Task]]) -> Iterator[Task]:
    """Yield all tasks of `listed`, tasks and blocks of Ansible, also those in blocks."""
    for one in listed:
        if isinstance(one, Block):
            yield from tasks_of(one.block + one.rescue + one.always)
        else:
            yield one


def is_selected(task: Task, arguments: CliArguments) -> bool:
    """Return True if `task` runs because of the command line, and not because of its tag always.

    Args: `arguments` the parsed command line, `ansible.context.CLIARGS`.
    """
    wanted, of_task = set(arguments.get("tags") or ("all",)), set(task.tags)
    if of_task & set(arguments.get("skip_tags") or ()):
        return False
    return bool(wanted & {"all", "tagged", "untagged"} or wanted & of_task)


def selecting(arguments: CliArguments) -> List[str]:
    """Return the options of the command line that select tasks, such as ["--tags cuda"].

    Args: `arguments` the parsed command line, `ansible.context.CLIARGS`.
    """
    given = [
        ("--tags", ",".join(tag for tag in arguments.get("tags") or () if tag != "all")),
        ("--skip-tags", ",".join(arguments.get("skip_tags") or ())),
        ("--start-at-task", arguments.get("start_at_task")),
    ]
    return ["%s %r" % (option, str(value)) for option, value in given if value]


def nothing_ran(options: List[str]) -> str:
    """Return the error message for a run without a selected task. Args: of `selecting`."""
    return (
        "nothing ran: no task matches %s. Correct or remove the option; --list-tags and "
        "--list-tasks show the names" % " ".join(options)
    )


def role_of(task: Task) -> str:
    """Return the name of the role of a task, "" without one."""
    return task._role.get_name() if task._role else ""


def failed_hosts(stats: AggregateStats) -> List[str]:
    """Return the hosts on which a task has failed, and those that Ansible has lost."""
    figures = {host: stats.summarize(host) for host in stats.processed}
    return [host for host, one in figures.items() if one["failures"] or one["unreachable"]]
