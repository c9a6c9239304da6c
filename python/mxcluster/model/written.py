"""Convert the values that people write in inventories and on command lines, and check them.

A value of `-e name=value` arrives as a string. A value of an inventory arrives with the type that
YAML or INI gives it. A conversion raises ValueError for a value of another kind. A Written is the
shape of such a value; its limits also give the words of messages and pages.
"""

import json
import re
from typing import Callable, Dict, Generic, List, Sequence, TypeVar, Union

from mxcluster.model.names import MOST_CPU, MOST_GPU
from mxcluster.model.shapes import Wrong
from mxcluster.numbers import to_float, to_int, to_span

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Bounds of counts and weights. No real job needs more, and no value below ends a program in an
# overflow.
LEAST, MOST = 1e-6, 1000000
MOST_TEXT = 32 << 10  # bytes; Linux gives a program at most 128 KiB for one argument or variable
MOST_ALL_TEXTS = 256 << 10  # bytes; Linux gives a program at most 2 MiB for all its texts
MOST_METRICS, MOST_PATTERN = 20, 300  # metrics of a script, and characters of a pattern
UNITS = (604800, 86400, 3600, 60, 1)  # seconds of the units in DURATION
DURATION = re.compile("".join("(?:([0-9]{1,9})%s)?" % unit for unit in "wdhms"))
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


class Written(Generic[T_co]):
    """The shape of a value that a person writes.

    - `what`: the allowed values in words, such as "a number from 1 to 9";
    - `type`: the type of the value in argument specs of Ansible;
    - `limits`: a sentence of pages about the limits, or "";
    - `choices`: the allowed values, or () if they are no short list.
    """

    def __init__(
        self,
        convert: Callable[[object], T_co],
        check: Callable[[T_co], object],
        what: str,
        type: str = "raw",
        limits: str = "",
        choices: Sequence[object] = (),
    ) -> None:
        self.convert, self.check, self.what = convert, check, what
        self.type, self.limits, self.choices = type, limits, tuple(choices)

    def __call__(self, value: object) -> T_co:
        """Return the converted `value`. Raises Wrong if the value is not allowed."""
        try:
            found = self.convert(value)
            good = self.check(found)
        except (ValueError, RecursionError):  # JSON with thousands of levels
            good = False
        if not good:
            raise Wrong(self.what, value)
        return found


def converted(
    convert: Callable[[object], T], what: str, type: str = "raw", limits: str = ""
) -> Written[T]:
    """Return a shape for every value that `convert` accepts. The other arguments: see Written."""
    return Written(convert, lambda _: True, what, type, limits)


def whole_number(low: int, high: int, what: str = "", zero: str = "") -> Written[int]:
    """Return a shape for a whole number from `low` to `high`, or the text of such a number.

    Args: `zero` the meaning of 0 in a message, such as "all".
    """
    return Written(
        to_int,
        lambda number: low <= number <= high,
        what or "a whole number from %d to %d" % (low, high) + _of_zero(zero),
        "int",
        "From %d to %d." % (low, high),
    )


def _of_zero(meaning: str) -> str:
    return " (0: %s)" % meaning if meaning else ""


def real_number(low: float, high: float, what: str = "", zero: str = "") -> Written[float]:
    """Return a shape for a number from `low` to `high`, or the text of such a number.

    Args: `zero` as for `whole_number`.
    """
    return Written(
        to_float,
        lambda number: low <= number <= high,
        what or "a number from %.15g to %.15g" % (low, high) + _of_zero(zero),
        "float",
        "From %.15g to %.15g." % (low, high),
    )


def above_0(high: float, what: str = "") -> Written[float]:
    """Return a shape for a number above 0 and at most `high`, or the text of such a number."""
    return Written(
        to_float,
        lambda number: 0 < number <= high,
        what or "a number above 0 and at most %.15g" % high,
        "float",
        "Above 0, at most %.15g." % high,
    )


def duration(low: float, high: float, zero: str = "", bare: bool = True) -> Written[float]:
    """Return a shape for a time from `low` to `high` seconds.

    A number is in seconds. A text may have units, such as "90s", "30m", "8h", "2d" or "1h30m".

    Args: `zero` the meaning of 0 in a message, such as "no limit"; "" if 0 is refused; `bare` False
    to refuse a number without a unit, because a person could mean days.
    """
    what = (
        "a time from %.15g to %.15g seconds, such as 90s, 30m, 8h or 1d12h" % (low, high)
        if bare
        else "a time with a unit, of at most %.15g weeks, such as 30d, 12h or 2w"
        % (high / UNITS[0])
    )
    return Written(
        to_seconds if bare else of_units,
        lambda number: bool(zero) and number == 0 or low <= number <= high,
        what + _of_zero(zero),
        "raw",
        "From %.15g s to %.15g s%s." % (low, high, "; 0 is " + zero if zero else ""),
    )


def seconds(low: float, high: float) -> Written[float]:
    """Return a shape for a number of seconds from `low` to `high`."""
    return real_number(low, high, "a number of seconds from %.15g to %.15g" % (low, high))


def one_of(*names: str) -> Written[str]:
    """Return a shape for one of the words `names`."""
    return Written(
        to_text,
        lambda text: text in names,
        "one of " + ", ".join(name or "''" for name in names),
        "str",
        choices=names,
    )


def matching(pattern: str, what: str) -> Written[str]:
    """Return a shape for a text that `pattern` (regex) matches as a whole."""
    # `re` compiles the pattern at the first use and keeps it.
    return Written(to_text, lambda text: re.fullmatch(pattern, text), what, "str")


def free(what: str) -> Written[str]:
    """Return a shape for every text. Args: `what` the meaning of the text, such as "a path"."""
    return converted(to_text, what, "str")


def needed(what: str) -> Written[str]:
    """Return a shape for every text but "". Args: `what` as for `free`."""
    return Written(to_text, bool, what, "str")


def to_text(value: object) -> str:
    """Return `value` (str, int or float) as a string without spaces at its ends.

    Raises ValueError for a value of another type, and for a string that no program can get: with a
    null character, or with more than MOST_TEXT bytes.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("the value must be a string or a number")
    return passable(str(value).strip())


def to_texts(value: object) -> List[str]:
    """Return a list of strings, without empty ones, from a string or a list of strings.

    Raises ValueError for other values.
    """
    items = value if isinstance(value, (list, tuple)) else [value]
    return [text for text in map(to_text, items) if text]


def to_bool(value: object) -> bool:
    """Return a bool from a bool, 0, 1, or a word of WORDS in upper or lower case.

    Raises ValueError for other values.
    """
    if isinstance(value, (bool, int, str)) and str(value).strip().lower() in WORDS:
        return WORDS[str(value).strip().lower()]
    raise ValueError("the value must be true or false")


def to_seconds(value: object) -> float:
    """Return the seconds of a number of seconds, or of a text such as "1h30m" or "90s".

    Raises ValueError for other values.
    """
    try:
        return of_units(value)
    except ValueError:
        return to_float(value)


def of_units(value: object) -> float:
    """Return the seconds of a text with units, such as "1h30m". Raises ValueError for others."""
    parts = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if not parts or not any(parts.groups()):
        raise ValueError("the value must be numbers with the units w, d, h, m or s")
    return float(sum(int(part or 0) * unit for part, unit in zip(parts.groups(), UNITS)))


def to_gpus(value: object) -> Union[str, List[int]]:
    """Return 'auto', or a list of GPU numbers from a number, a list or a string such as '0,1'.

    The string '' gives [], which means no GPU. Raises ValueError for wrong or repeated numbers.
    """
    return _auto_or_numbers(value, lambda item: [to_int(item)], MOST_GPU)


def to_cpus(value: object) -> Union[str, List[int]]:
    """Return 'auto', or a list of CPU numbers from a number, a list or a string such as '0-3,8'.

    The string '' gives []. Raises ValueError for wrong or repeated numbers.
    """
    return _auto_or_numbers(value, to_span, MOST_CPU)


def _auto_or_numbers(
    value: object, convert: Callable[[object], List[int]], most: int
) -> Union[str, List[int]]:
    """Return 'auto', or the different numbers from 0 to `most` of the items of `value`."""
    if _is_word(value, "auto"):
        return "auto"
    numbers = [number for item in _items(value) for number in convert(item)]
    if len(set(numbers)) != len(numbers) or not all(0 <= one <= most for one in numbers):
        raise ValueError("the value must be a list of different numbers from 0 to %d" % most)
    return numbers


def to_numbers(value: object) -> List[float]:
    """Return a list of floats from a number, a list or a string such as '3,1'.

    The string '' gives []. Raises ValueError for a wrong number.
    """
    return [to_float(number) for number in _items(value)]


def _items(value: object) -> List[object]:
    """Return the items of a list, of its JSON text, or of a string such as 'a,b'."""
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("["):
            return [part for part in text.split(",") if part]
        value = json.loads(text)
    return list(value) if isinstance(value, (list, tuple)) else [value]


def to_list(value: object) -> List[str]:
    """Return a list of strings from a list of strings or its JSON text; [] from "".

    Raises ValueError for other values. Also raises ValueError for a list with a number, because
    YAML and JSON lose the spelling of numbers such as 0.10, 1e-3 and 007.
    """
    items = _from_json(value, [])
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ValueError("the value must be a list of strings")
    return _all_passable([str(item) for item in items])


def to_words(value: object) -> List[str]:
    """Return a list of words from a list, its JSON text, or a string such as 'a,b'.

    Raises ValueError for other values.
    """
    if isinstance(value, str) and not value.strip().startswith("["):
        value = [word for word in re.split(r"[,\s]+", value) if word]
    return [word.strip() for word in to_list(value)]


def to_names(value: object) -> List[str]:
    """Return a list of distinct names from a list, its JSON text, or a string such as 'a,b'.

    Raises ValueError for other values.
    """
    return list(dict.fromkeys(to_words(value)))


def to_environment(value: object) -> Dict[str, str]:
    """Return {variable: string} from a dict of environment variables, or from the JSON of a dict.

    Numbers become strings. Raises ValueError for a wrong name or value.
    """
    found = _from_json(value, {})
    if not isinstance(found, dict):
        raise ValueError("the value must be a dict")
    for name, content in found.items():
        if (
            not isinstance(name, str)
            or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
            or isinstance(content, bool)
            or not isinstance(content, (str, int, float))
            or re.search("[\0\r\n]", str(content))
        ):
            raise ValueError("the dict must have names of variables, and strings of one line")
    _all_passable(["%s=%s" % item for item in found.items()])
    return {str(name): str(content) for name, content in found.items()}


def to_metrics(value: object) -> Dict[str, str]:
    """Return {name: regular expression} from a dict of metrics, or from the JSON of a dict.

    Raises ValueError for a wrong name, and for an expression that Python refuses, that has no group
    for the number, or that is too long.
    """
    found = _from_json(value, {})
    if not isinstance(found, dict) or len(found) > MOST_METRICS:
        raise ValueError("the value must be a dict of at most %d metrics" % MOST_METRICS)
    for name, pattern in found.items():
        if not isinstance(name, str) or not re.fullmatch(
            r"[A-Za-z][\w ./@-]{0,39}", name, re.ASCII
        ):
            raise ValueError("a metric must have a name of at most 40 characters")
        if not isinstance(pattern, str) or len(pattern) > MOST_PATTERN:
            raise ValueError("the pattern must be a string of at most %d characters" % MOST_PATTERN)
        try:
            made = re.compile(passable(pattern))
        except (re.error, OverflowError) as error:
            raise ValueError("the pattern must be a regular expression") from error
        if not set(range(1, made.groups + 1)) - {made.groupindex.get("epoch")}:
            raise ValueError("the pattern must have a group")
    return {str(name): str(pattern) for name, pattern in found.items()}


def or_word(
    word: str, convert: Callable[[object], T], stands_for: str = ""
) -> Callable[[object], Union[str, T]]:
    """Return a conversion that gives `stands_for` or `word` for `word`, else `convert(value)`."""
    return lambda value: (stands_for or word) if _is_word(value, word) else convert(value)


def _is_word(value: object, word: str) -> bool:
    return isinstance(value, str) and value.strip().lower() == word


def passable(text: str) -> str:
    """Return `text`. Raises ValueError if no program can get it as an argument or variable."""
    if "\0" in text or len(text.encode("utf-8", "surrogatepass")) > MOST_TEXT:
        raise ValueError("the text must have at most %d bytes, none of them 0" % MOST_TEXT)
    return text


def _all_passable(texts: List[str]) -> List[str]:
    """Return `texts`. Raises ValueError if no program can get all of them."""
    if sum(len(passable(text).encode("utf-8", "surrogatepass")) for text in texts) > (
        MOST_ALL_TEXTS
    ):
        raise ValueError("the texts must have at most %d bytes" % MOST_ALL_TEXTS)
    return texts


def _from_json(value: object, empty: object) -> object:
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.strip() else empty


switch: Written[bool] = converted(to_bool, "true or false", "bool")
environment: Written[Dict[str, str]] = converted(
    to_environment,
    "a dict of environment variables with strings of one line and at most %d KiB, such as "
    '\'{"OMP_NUM_THREADS": "1"}\'' % (MOST_TEXT >> 10),
)
metrics: Written[Dict[str, str]] = converted(
    to_metrics,
    "a dict of at most %d names, each with a regular expression of at most %d characters that has "
    "a group for the number, such as "
    '\'{"metrics": {"bleu": "BLEU is ([0-9.]+)"}}\'' % (MOST_METRICS, MOST_PATTERN),
)
gpus: Written[Union[str, List[int]]] = converted(
    to_gpus, "auto, '' (none) or GPU numbers from 0 to %d such as 0,1" % MOST_GPU
)
cpus: Written[Union[str, List[int]]] = converted(
    to_cpus,
    "auto, '' (no CPUs of its own) or CPU numbers from 0 to %d such as 0-3,8" % MOST_CPU,
)
