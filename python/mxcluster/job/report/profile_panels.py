"""Draw the panels of a profile: the workers' speeds and step times, and the servers' speeds."""

from typing import TYPE_CHECKING, Iterator, List, Sequence, Union

from mxcluster.job.report.style import COLOURS, FAINT
from mxcluster.model.profile import Profile, Server, Worker

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBER = 3  # panels
_COLUMNS = 3  # of a legend
_ROW = 0.11  # the height of a row of a legend, as a part of the axis
_MOST_NAMES = 24  # with more workers the axis has numbers in place of names


def draw(profile: Profile, axes: Iterator["Axes"]) -> None:
    """Draw the panels of `profile` on the next NUMBER of `axes`."""
    _speeds(next(axes), profile)
    _steps(next(axes), profile)
    _servers(next(axes), profile.servers)


def _speeds(axis: "Axes", profile: Profile) -> None:
    """Draw each worker's speed alone (pale) and together with all workers, coloured by group."""
    alone = [worker.alone.samples_per_s for worker in profile.workers]
    together = [worker.together.samples_per_s for worker in profile.workers]
    for group, (label, members) in enumerate(zip(profile.labels, profile.groups)):
        colour = COLOURS[group % len(COLOURS)]
        for speeds, width, shade, text in (
            (alone, 0.8, 0.35, None),
            (together, 0.5, 1.0, "group %s" % label),
        ):
            places = sorted(members)
            axis.bar(
                places,
                [speeds[place] for place in places],
                width,
                color=colour,
                alpha=shade,
                label=text,
            )
    axis.set_title("Speed of the workers: alone (pale), and all at once")
    axis.set_ylabel("samples/s")
    _name(axis, profile.workers)
    _legend(axis)


def _steps(axis: "Axes", profile: Profile) -> None:
    """Draw each worker's step time, and on top the time of the exchange with the servers."""
    places = list(range(len(profile.workers)))
    steps = [1e3 * profile.batch_size / worker.together.samples_per_s for worker in profile.workers]
    exchanges = [1e3 * worker.exchange_s for worker in profile.workers]
    axis.bar(places, steps, 0.6, color=COLOURS[0], label="forward and backward")
    axis.bar(places, exchanges, 0.6, bottom=steps, color=COLOURS[1], label="push and pull")
    axis.set_title("A step, and the exchange with the servers")
    axis.set_ylabel("milliseconds")
    _name(axis, profile.workers)
    _legend(axis)


def _servers(axis: "Axes", servers: Sequence[Server]) -> None:
    """Draw the number of updates of the whole model per second for each server."""
    axis.bar(
        list(range(len(servers))),
        [server.updates_per_s for server in servers],
        0.6,
        color=COLOURS[2],
    )
    axis.set_title("Speed of the servers")
    axis.set_ylabel("updates of the model per second")
    _name(axis, servers)


def _legend(axis: "Axes") -> None:
    """Draw the legend above the bars: the y axis gets room for its lines."""
    names = axis.get_legend_handles_labels()[1]
    rows = -(-len(names) // _COLUMNS)
    axis.set_ylim(0, axis.get_ylim()[1] * (1 + _ROW * rows))
    axis.legend(fontsize=9, loc="upper left", ncols=_COLUMNS)


def names_of(nodes: Sequence[Union[Worker, Server]]) -> List[str]:
    """Return the host of each process, with the process's number if the host has several."""
    hosts = [node.host for node in nodes]
    return [
        node.host if hosts.count(node.host) == 1 else "%s/%d" % (node.host, node.number)
        for node in nodes
    ]


def _name(axis: "Axes", nodes: Sequence[Union[Worker, Server]]) -> None:
    """Label the x axis with hosts, and with process numbers on hosts with several processes."""
    axis.grid(axis="x", visible=False)
    axis.set_ylim(bottom=0)
    axis.set_xlim(-0.6, max(len(nodes), 4) - 0.4)  # a few bars stay slim
    if len(nodes) > _MOST_NAMES:
        axis.set_xlabel("number of the process", color=FAINT)
        return
    axis.set_xticks(
        range(len(nodes)),
        names_of(nodes),
        rotation=45 if len(nodes) > 8 else 0,
        ha="right" if len(nodes) > 8 else "center",
    )
