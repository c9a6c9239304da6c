"""Declare settings, convert given values to their types, and check these values.

A value of `-e name=value` arrives as a string. A value of an inventory arrives with the type that
YAML or INI gives it. An Option declares one setting, and `cast_value` converts a given value or
refuses it.
"""

import json
import re
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Union

from mxcluster.errors import BadInput, did_you_mean, shown
from mxcluster.model.names import MOST_GPU as MOST_GPU
from mxcluster.model.written import LEAST as LEAST
from mxcluster.model.written import MOST as MOST
from mxcluster.model.written import MOST_TEXT as MOST_TEXT
from mxcluster.model.written import passable
from mxcluster.model.written import to_gpus as to_gpus
from mxcluster.model.written import to_numbers as to_numbers
from mxcluster.model.written import to_text as to_text
from mxcluster.numbers import to_int

MOST_ALL_TEXTS = 256 << 10  # bytes; Linux gives a program at most 2 MiB for all its texts

WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class Option(NamedTuple):
    """One declared setting: its name, default, conversion and check."""

    name: str
    default: Any
    cast: Any  # function value -> typed value
    check: Any  # a tuple of the allowed values, or a function value -> bool, or None
    message: str  # a description of the allowed values, which follows the words "it must be"


class Knob(NamedTuple):
    """One knob of train.yml (see `knob_table`). The first fields are the fields of an Option."""

    name: str
    default: Any
    cast: Any  # None for some knobs that only the role reads
    check: Any
    message: str
    type: str  # of the variable train_job_<name> in Ansible's argument specs
    description: str  # one or more sentences in Markdown, for all pages and comments
    choices: Any  # the allowed values in the argument specs, or None
    # True if a resumed job inherits the value from the job before. The name of a scheme if the
    # resumed job inherits the value only when both jobs use this scheme.
    inherited: Any
    # The argument of the training program that passes the value, or "". For a bool, the program
    # gets the argument alone, and only if the knob is true.
    flag: str
    own: bool  # True for a knob that only the role reads; a plan has no option for this knob
    no_log: bool  # whether Ansible hides the value


def cast_value(option: Union[Option, Knob], value: Any, where: str = "") -> Any:
    """Return `value` with the type of `option`, or the option's default if `value` is None.

    Raises BadInput with the wrong value and the allowed values.

    Args: `where` the host name at the start of the error message, or "" without a host.
    """
    if value is None:
        return option.default
    try:
        result = option.cast(value)
        good = (
            result in option.check
            if isinstance(option.check, tuple)
            else not option.check or option.check(result)
        )
    except ValueError:
        good = False
    if good:
        return result
    close = did_you_mean(value, map(str, option.check)) if isinstance(option.check, tuple) else ""
    raise BadInput(
        "%s%s=%s is refused: it must be %s%s"
        % (where + ": " if where else "", option.name, shown(value), option.message, close)
    )


def to_bool(value: Any) -> bool:
    """Return a bool from a bool, 0, 1, or a word of WORDS in upper or lower case.

    Raises ValueError for other values.
    """
    if isinstance(value, (bool, int, str)) and str(value).strip().lower() in WORDS:
        return WORDS[str(value).strip().lower()]
    raise ValueError("the value must be true or false")


def to_list(value: Any) -> List[str]:
    """Return a list of strings from a list of strings or its JSON text; [] from "".

    Raises ValueError for other values. Also raises ValueError for a list with a number, because
    YAML and JSON lose the spelling of numbers such as 0.10, 1e-3 and 007.
    """
    value = _from_json(value, [])
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ValueError("the value must be a list of strings")
    return _all_passable([str(item) for item in value])


def to_names(value: Any) -> List[str]:
    """Return a list of distinct names from a list, its JSON text, or a string such as 'a,b'.

    Raises ValueError for other values.
    """
    return list(dict.fromkeys(to_words(value)))


def to_words(value: Any) -> List[str]:
    """Return a list of words from a list, its JSON text, or a string such as 'a,b'.

    Raises ValueError for other values.
    """
    if isinstance(value, str) and not value.strip().startswith("["):
        value = [word for word in re.split(r"[,\s]+", value) if word]
    return [word.strip() for word in to_list(value)]


def to_environment(value: Any) -> Dict[str, str]:
    """Return {variable: string} from a dict of environment variables, or from the JSON of a dict.

    Numbers become strings. Raises ValueError for a wrong name or value.
    """
    value = _from_json(value, {})
    if not isinstance(value, dict):
        raise ValueError("the value must be a dict")
    for name, content in value.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                "each name must consist of letters, digits and '_', and begin with a letter or '_'"
            )
        if (
            isinstance(content, bool)
            or not isinstance(content, (str, int, float))
            or re.search("[\0\r\n]", str(content))
        ):
            raise ValueError("each value must be a string of one line")
    _all_passable(["%s=%s" % item for item in value.items()])
    return {str(name): str(content) for name, content in value.items()}


def to_port(value: Any) -> Union[str, int]:
    """Return 'auto' for the word auto, or else the port number that `to_int` returns."""
    return "auto" if _is_word(value, "auto") else to_int(value)


def to_gpus_or_all(value: Any) -> Union[str, List[int]]:
    """Return 'auto' for the word all, or else the result of `to_gpus`."""
    return "auto" if _is_word(value, "all") else to_gpus(value)


def to_int_or_all(value: Any) -> Union[str, int]:
    """Return 'all' for the word all, or else the int that `to_int` returns."""
    return "all" if _is_word(value, "all") else to_int(value)


def to_bool_or_auto(value: Any) -> Union[str, bool]:
    """Return 'auto' for the word auto, or else the bool that `to_bool` returns."""
    return "auto" if _is_word(value, "auto") else to_bool(value)


def to_processes(value: Any) -> Union[str, int]:
    """Return the int that `to_int` returns, or 'gpus' for one process on each GPU.

    The word gpus gives 'gpus'. The text `nvidia-smi -L | wc -l` also gives 'gpus', because this
    command prints the number of GPUs.
    """
    if isinstance(value, str) and "".join(value.split()) in ("gpus", "nvidia-smi-L|wc-l"):
        return "gpus"
    return to_int(value)


def _is_word(value: Any, word: str) -> bool:
    return isinstance(value, str) and value.strip().lower() == word


def is_job_id(text: str) -> bool:
    """Return True if `text` is a valid job id, which is also a folder name.

    An id has at most 100 letters, digits, '.', '_' and '-', and begins with a letter or a digit.
    """
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text))


def between(low: float, high: float) -> Callable[[float], bool]:
    """Return a function that returns True for a value from `low` to `high`, both included."""
    return lambda value: low <= value <= high


def above_0(high: float) -> Callable[[float], bool]:
    """Return a function that returns True for a value above 0 and at most `high`."""
    return lambda value: 0 < value <= high


def are_between(low: float, high: float) -> Callable[[Sequence[float]], bool]:
    """Return a function that returns True for a list of values from `low` to `high`."""
    return lambda values: all(low <= value <= high for value in values)


def _all_passable(texts: List[str]) -> List[str]:
    """Return `texts`. Raises ValueError if no program can get all of them."""
    if sum(len(passable(text).encode("utf-8", "surrogatepass")) for text in texts) > (
        MOST_ALL_TEXTS
    ):
        raise ValueError("the texts must have at most %d bytes" % MOST_ALL_TEXTS)
    return texts


def _from_json(value: Any, empty: Any) -> Any:
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.strip() else empty
