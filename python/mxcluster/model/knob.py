"""Define the knobs of playbooks: the field of one knob, and the reading of the user's values.

A knob is a field of a Record. Its shape converts and checks what the user writes, and gives the
words of messages, pages and argument specs. `job_knobs` and `sweep_knobs` define all knobs.
"""

from typing import Dict, List, Mapping, Sequence, Tuple, Type, TypeVar, cast

from mxcluster.errors import BadInput, did_you_mean, refuse, shown
from mxcluster.model.record import Field, Record
from mxcluster.model.shapes import Wrong
from mxcluster.model.written import Written

T = TypeVar("T")
R = TypeVar("R", bound=Record)

PROVISION, VERIFY, PROFILE = "provision.yml", "verify.yml", "profile.yml"
TRAIN, MPI, BENCHMARK, COMPARE = "train.yml", "mpi.yml", "benchmark.yml", "compare.yml"
SWEPT = (TRAIN, BENCHMARK, COMPARE)  # the playbooks that read most knobs of a training
# A value of `Knob.inherited`: only if the schemes of both jobs read the knob. Other schemes refuse
# a value other than the default.
WITH_SCHEME = "with the scheme"


class Knob(Field):
    """One knob. A string below its field describes the knob, in sentences of Markdown.

    The attributes besides those of a Field:

    - `written`: the shape, with the words of messages and pages;
    - `inherited`: True if a resumed job takes the value from the job before, or WITH_SCHEME;
    - `playbooks`: the playbooks that read the knob, with its short name after -e;
    - `no_log`: True if Ansible hides the value.
    """

    __slots__ = ("inherited", "no_log", "playbooks", "written")

    def __init__(
        self,
        written: Written[object],
        default: object,
        inherited: object,
        playbooks: Sequence[str],
        no_log: bool,
    ) -> None:
        super(Knob, self).__init__(written, default, None, "", ())
        self.written, self.inherited = written, inherited
        self.playbooks, self.no_log = tuple(playbooks), no_log


def knob(
    shape: Written[T],
    default: T,
    inherited: object = False,
    playbooks: Sequence[str] = SWEPT,
    no_log: bool = False,
) -> T:
    """Return the definition of a knob. See Knob for the arguments."""
    return cast(T, Knob(shape, default, inherited, playbooks, no_log))


def knobs_of(cls: Type[Record]) -> Mapping[str, Knob]:
    """Return {name: knob} of a class of knobs, in the order of the pages."""
    return cast(Mapping[str, Knob], cls.FIELDS)


def names_read(cls: Type[Record], playbook: str) -> Tuple[str, ...]:
    """Return the names of the knobs of `cls` that `playbook` reads."""
    return tuple(name for name, one in knobs_of(cls).items() if playbook in one.playbooks)


def value_of(one: Knob, value: object) -> object:
    """Return the value of a knob from what the user wrote. None stands for the default.

    Raises BadInput with the wrong value and the allowed values.
    """
    if value is None:
        return one.value_of_new()
    try:
        return one.written(value)
    except Wrong as wrong:
        close = did_you_mean(str(value), map(str, one.written.choices))
        raise BadInput(
            "%s=%s is refused: it must be %s%s" % (one.name, shown(value), wrong.what, close)
        ) from None


def read(cls: Type[R], given: Mapping[str, object]) -> R:
    """Return the knobs of `cls` from what the user wrote, with defaults for the other knobs.

    Raises BadInput with every unknown name and every wrong value.

    Args: `given` {name: value}, where a value is a string of `-e` or a value of YAML.
    """
    known = knobs_of(cls)
    problems: List[str] = [
        "%s is not an option of train.yml%s: correct or remove the name"
        % (shown(name), did_you_mean(name, known))
        for name in given
        if name not in known
    ]
    values: Dict[str, object] = {}
    for name, one in known.items():
        try:
            values[name] = value_of(one, given.get(name))
        except BadInput as refusal:
            problems.append(str(refusal))
    refuse(problems)
    return cls(**values)
