"""Define the launchers, one entry for each: how the agents of a job's nodes start.

Launchers differ only in the start of the agents. The plan, the processes, the polls and the report
are the same. These files read the table:

- `model.job_knobs`: the values of the knob `launcher`, and the words about batch systems;
- `job.plan`: the inventories that fit, and the lines of the plan's table;
- `roles/train_job/tasks/main.yml`: the task file that starts the agents;
- `mxcluster.cli.launch_line`: the values of `--launcher`.

Each module of `mxcluster.batch_systems` is a launcher, too.
"""

from typing import NamedTuple, Sequence

from mxcluster import batch_systems


class Launcher(NamedTuple):
    """The properties of a launcher.

    - `name`: the value of the knob `launcher`;
    - `description`: how the agents start, for the pages;
    - `title`: the name of the batch system in messages, "" for other launchers. A batch system
      chooses the nodes when the job starts, and the first node makes the plan;
    - `tasks`: the file in roles/train_job/tasks that starts the agents;
    - `engine`: the program of the site that starts the agents, "" without such a program. The
      engine starts the agents as the training user. So there is no root, no systemd unit and no
      firewall rule of mxcluster;
    - `takes_hosts`: True if `mxcluster launch -H` may name the nodes;
    - `knobs`: the knobs of a training job that only this launcher reads.
    """

    name: str
    description: str
    title: str = ""
    tasks: str = "start.yml"
    engine: str = ""
    takes_hosts: bool = False
    knobs: Sequence[str] = ()

    @property
    def is_batch(self) -> bool:
        """True for a batch system."""
        return bool(self.title)


SSH, LOCAL, MPI = "ssh", "local", "mpi"
# The knobs that all batch systems read.
_OF_BATCH = ("submit_host", "num_nodes", "queue", "time_limit", "gres", "engine_options")


def _of_batch_system(name: str) -> Launcher:
    facts = batch_systems.facts(name)
    return Launcher(
        name=name,
        title=facts.title,
        description="`%s` requests the nodes, and `%s` starts the agents on the nodes"
        % (facts.submit, facts.start),
        engine=facts.start,
        knobs=_OF_BATCH + tuple(facts.needs),
    )


LAUNCHERS = {
    launcher.name: launcher
    for launcher in (
        Launcher(SSH, "over Ansible's connection", takes_hosts=True),
        Launcher(LOCAL, "on the controller's machine, without SSH. Other machines are refused"),
        Launcher(
            name=MPI,
            description="one `mpirun` on the first node starts the agents of all nodes as the "
            "training user, without root",
            tasks="start_mpi.yml",
            engine="mpirun",
            takes_hosts=True,
            knobs=("mpi_runtime", "mpi_pre_execution_command"),
        ),
        *map(_of_batch_system, batch_systems.names()),
    )
}
