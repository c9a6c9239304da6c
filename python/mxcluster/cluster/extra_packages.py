"""Choose wheels for the packages that scripts need besides MXNet (mxnet_packages).

The controller chooses the wheels once for each version of Python. It saves the choice in a file
beside the wheels. The name of the file has a digest of all inputs. So the same packages give the
same wheels without another query to a package index, and a bundle can contain the choice.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import zipfile
from email.parser import Parser
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Match,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from mxcluster.cluster import wheels
from mxcluster.errors import DAMAGED, BadInput, MxclusterError, refuse
from mxcluster.file_io import replace, sha256

Json = Dict[str, Any]
Wish = NamedTuple(
    "Wish", [("text", str), ("digests", List[str])]
)  # "tqdm==4.66.1", and the allowed sha256 values
Fetch = Callable[[str, List[str], List[str], str, str], None]

KNOB = "mxnet_packages"
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
VERSION = r"(?:==|>=|<=|~=|!=|<|>)\s*[A-Za-z0-9.*+!_-]+\s*(?:,\s*(?=[=<>~!]))?"
REQUIREMENT = re.compile(r"(%s)(\[[A-Za-z0-9._, -]+\])?\s*((?:%s)*)$" % (NAME, VERSION))
OWN = ("mxcluster", "pip")
ROUNDS = 8  # maximum number of rounds that search for packages of the node's Python


def wishes(value: Any, cwd: str) -> List[Wish]:
    """Return the packages of the knob mxnet_packages, sorted by name.

    Args: `value` a list of names with or without versions, such a list as a string, or the path of
    a requirements file; `cwd` the folder in which a relative path begins.

    Raises BadInput for a wrong value.
    """
    if isinstance(value, str):
        text = value.strip()
        if "/" in text or text.endswith(".txt"):
            return _file(os.path.abspath(os.path.join(cwd, os.path.expanduser(text))))
        value = re.split(r"[\s,]+(?![=<>~!])", text) if text else []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadInput(
            "%s=%r is refused: give a list of names, such as [six, tqdm==4.66.1], or the "
            "path of a requirements file on the controller" % (KNOB, value)
        )
    return _parsed((one.strip(), KNOB) for one in value if one.strip())


def _file(path: str) -> List[Wish]:
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, ValueError) as error:
        raise BadInput(
            "%s: the controller cannot read %s (%s): correct the path or the file"
            % (KNOB, path, getattr(error, "strerror", None) or "the file is not UTF-8 text")
        ) from error
    stripped = (
        (re.sub(r"(^|\s)#.*", "", line).strip(), "%s, line %d" % (path, number))
        for number, line in _joined(text)
    )
    return _parsed((line, where) for line, where in stripped if line)


def _joined(text: str) -> Iterator[Tuple[int, str]]:
    """Yield (number of its first line, line) of `text`, with continued lines joined.

    A line goes on after a backslash at its end, as in the files of pip-compile.
    """
    first, parts = 1, []  # type: int, List[str]
    for number, line in enumerate(text.split("\n"), 1):
        parts.append(line[:-1] if line.endswith("\\") else line)
        if not line.endswith("\\"):
            yield first, " ".join(parts)
            first, parts = number + 1, []
    if parts:
        yield first, " ".join(parts)


def _parsed(lines: Iterator[Tuple[str, str]]) -> List[Wish]:
    found, problems = {}, []  # type: Dict[str, Wish], List[str]
    for line, where in lines:
        text, *options = re.split(r"\s+(?=--)", line)
        match = REQUIREMENT.match(text)
        if (
            not match
            or not _is_specifier(match.group(3))
            or not all(re.match(r"--hash[= ]sha256:[0-9a-f]{64}$", option) for option in options)
        ):
            problems.append("%s: %r is refused: %s" % (where, line[:200], _instead(line)))
            continue
        name = plain(match.group(1))
        if name in OWN or name.startswith("mxnet"):
            problems.append(
                "%s: %s is refused, because mxcluster installs this package: remove the entry%s"
                % (
                    where,
                    match.group(1),
                    ". mxnet_version and cuda_version select the version of MXNet"
                    if name.startswith("mxnet")
                    else "",
                )
            )
        elif name in found:
            problems.append("%s: %s occurs twice: remove one entry" % (where, match.group(1)))
        found[name] = Wish(re.sub(r"\s", "", text), sorted(option[-64:] for option in options))
    refuse(problems)
    return [found[name] for name in sorted(found)]


def _instead(line: str) -> str:
    """Return the cure for a refused requirement `line`, for the message."""
    nested = re.match(r"(-r|--requirement|-c|--constraint)\b", line)
    if nested and nested.group(1) in ("-r", "--requirement"):
        return "write the packages of that file into this file, which cannot name another file"
    if nested:
        return (
            "write the versions of that file beside the names, as NAME==VERSION, because this file "
            "cannot name another file"
        )
    if "===" in line:
        return "write NAME==VERSION with two signs =, and a version of PEP 440"
    return (
        "write NAME or NAME==VERSION with a version of PEP 440, without URLs, paths, conditions "
        "and options except --hash=sha256:..."
    )


def _is_specifier(text: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


def extended(
    environment: Json,
    wanted: Sequence[Wish],
    python: str,
    store: str,
    fetch: Optional[Fetch] = None,
    known_only: bool = False,
) -> Optional[Json]:
    """Return {"builds", "hashes"} of an environment with the wanted packages for one Python.

    "builds" has one build, with the wanted wheels. "hashes" is {"name==version": [sha256]}. If
    `wanted` is empty, the result has the environment's own values.
    Without a saved choice, the function chooses the wheels and puts them into the store (see
    `choose`). Raises BadInput if a wanted version conflicts with the environment.

    Args:
        environment: the result of `pairs.environment`.
        wanted: the packages, from `wishes`.
        python: the version of Python, such as "3.11".
        store: the folder of the wheels and of the saved choices.
        fetch: a function with the arguments of `download`, which is the default.
        known_only: True to return None if there is no saved choice.
    """
    builds = [build for build in environment["builds"] if python in build["python"]]
    if not builds or not wanted:
        return {name: environment[name] for name in ("builds", "hashes")}
    build = builds[0]
    refuse(_against(wanted, build, python))
    chosen = _known(store, wanted, build, python)
    if chosen is None:
        if known_only:
            return None
        chosen = choose(store, wanted, build, python, fetch or download)
        _keep(store, wanted, build, python, chosen)
    return {
        "builds": [dict(build, python=[python], wheels=build["wheels"] + sorted(chosen))],
        "hashes": dict(environment["hashes"], **chosen),
    }


def choose(
    store: str, wanted: Sequence[Wish], build: Json, python: str, fetch: Fetch
) -> Dict[str, List[str]]:
    """Choose wheels for `wanted` and all dependencies, and return {"name==version": [sha256]}.

    The result has no wheel of `build`. The function moves the chosen wheels into the store. pip
    evaluates conditions such as `python_version < "3.8"` for its own Python. So this function reads
    the requirements of each wheel for the node's Python, and adds the missing packages.

    Args: `build` an item of "builds" of `pairs.environment`; the others are as in `extended`.

    Raises MxclusterError if pip fails. Raises BadInput if a dependency conflicts with `build`, or
    if the requirements file lists other sha256 values.
    """
    names = [wish.text for wish in wanted]
    pinned = {plain(one.split("==")[0]): one for one in build["wheels"] + [build["pip"]]}
    os.makedirs(store, exist_ok=True)
    draft = tempfile.mkdtemp(prefix=wheels.DRAFT, dir=store)
    try:
        for number in range(ROUNDS):
            folder = os.path.join(draft, str(number))
            os.mkdir(folder)
            fetch(folder, names, list(pinned.values()), python, store)
            there = {
                plain(name.split("-")[0]): name
                for name in sorted(os.listdir(folder))
                if name.endswith(".whl")
            }
            more = sorted(
                {
                    need
                    for file in there.values()
                    for need in needs(os.path.join(folder, file), python, wanted)
                    if plain(_parts(need).group(1)) not in set(there) | set(pinned)
                }
            )
            if not more:
                break
            names += more
        else:
            raise MxclusterError(
                "%s: pip cannot resolve the dependencies of %s for Python %s: give the versions of "
                "these packages (NAME==VERSION)"
                % (KNOB, ", ".join(wish.text for wish in wanted), python)
            )
        chosen, moved = {}, []
        for name, file in there.items():
            pin = "==".join(file.split("-")[:2])
            if name in pinned:
                continue
            if name in OWN or name.startswith("mxnet"):
                raise BadInput(
                    "%s: one of the packages %s requires %s, which conflicts with %s: remove the "
                    "package with this requirement, or choose another version of that package"
                    % (KNOB, ", ".join(names), pin, build["wheels"][0])
                )
            chosen[pin] = [sha256(os.path.join(folder, file))]
            allowed = next((wish.digests for wish in wanted if name_of(wish) == name), [])
            if allowed and chosen[pin][0] not in allowed:
                raise BadInput(
                    "%s: %s for Python %s has the sha256 %s, which the requirements file does not "
                    "list: add this digest to the file if the wheel is right"
                    % (KNOB, pin, python, chosen[pin][0])
                )
            moved.append(file)
        for file in moved:
            os.replace(os.path.join(folder, file), os.path.join(store, file))
        return chosen
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def download(folder: str, names: List[str], pinned: List[str], python: str, store: str) -> None:
    """Fetch the wheels of packages and of their dependencies with pip into `folder`.

    Args: `names` the packages, with or without versions; `pinned` the constraints, "name==version";
    `python` such as "3.11"; `store` a folder with wheels that pip may use.

    Raises MxclusterError if a package has no wheel, or if pip fails.
    """
    constraints = os.path.join(folder, "constraints.txt")
    with open(constraints, "w", encoding="utf-8") as stream:
        stream.write("\n".join(pinned) + "\n")
    said = wheels.pip_download(
        folder, python, ["--constraint", constraints, "--find-links", store] + list(names)
    )
    if said is not None:
        lacking = re.findall(r"No matching distribution found for (\S+)", said)
        raise MxclusterError(
            "%s: %s. pip says:\n%s"
            % (
                KNOB,
                (
                    "pip found no wheel of %s for Python %s on Linux x86_64 with glibc 2.17. "
                    "mxcluster installs only wheels, since nodes have no compiler. Choose a "
                    "version that has a wheel. Without a network, use a bundle that contains the "
                    "package" % (", ".join(lacking), python)
                )
                if lacking
                else "pip could not fetch the packages for Python %s. Give the controller access "
                "to a package index, or correct the names of the packages" % python,
                said,
            )
        )


def needs(path: str, python: str, wanted: Sequence[Wish] = ()) -> List[str]:
    """Return the requirements of the wheel `path` for Python `python`, such as ["six>=1"].

    Args: `wanted` the user's packages, whose extras add requirements.
    """
    from packaging.requirements import Requirement  # Ansible installs it on the controller

    name = plain(os.path.basename(path).split("-")[0])
    extras = [extra for wish in wanted if name_of(wish) == name for extra in _extras(wish)]
    found = []
    with zipfile.ZipFile(path) as wheel:
        metadata = next(
            one for one in wheel.namelist() if re.match(r"[^/]+\.dist-info/METADATA$", one)
        )
        told = Parser().parsestr(wheel.read(metadata).decode("utf-8", "replace"), headersonly=True)
    for line in told.get_all("Requires-Dist") or []:
        need = Requirement(line)
        there = {
            "python_version": python,
            "python_full_version": python + ".0",
            "implementation_version": python + ".0",
        }
        if need.marker is None or any(
            need.marker.evaluate(dict(there, extra=extra)) for extra in extras + [""]
        ):
            found.append(
                "%s%s%s"
                % (
                    need.name,
                    "[%s]" % ",".join(sorted(need.extras)) if need.extras else "",
                    need.specifier,
                )
            )
    return found


def name_of(wish: Wish) -> str:
    """Return the normalized name of the package in `wish`, see `plain`."""
    return plain(_parts(wish.text).group(1))


def plain(name: str) -> str:
    """Return the normalized form of the package name `name`, see `wheels.plain`."""
    return wheels.plain(name)


def _parts(text: str) -> Match[str]:
    """Return the match of REQUIREMENT with `text`, with the groups name, extras and versions."""
    match = REQUIREMENT.match(text)
    assert match is not None
    return match


def _extras(wish: Wish) -> List[str]:
    extras = _parts(wish.text).group(2)
    return [plain(extra.strip()) for extra in extras.strip("[]").split(",")] if extras else []


def _against(wanted: Sequence[Wish], build: Json, python: str) -> Iterator[str]:
    """Yield a message for each package in `wanted` that conflicts with a wheel of `build`."""
    from packaging.specifiers import SpecifierSet

    pinned = {plain(one.split("==")[0]): one for one in build["wheels"]}
    for wish in wanted:
        pin = pinned.get(name_of(wish))
        if pin and pin.split("==")[1] not in SpecifierSet(_parts(wish.text).group(3)):
            yield (
                "%s: %s is refused: %s on Python %s needs %s. Remove %s, or give the needed version"
                % (KNOB, wish.text, build["wheels"][0], python, pin, name_of(wish))
            )


def _path(store: str, wanted: Sequence[Wish], build: Json, python: str) -> str:
    told = json.dumps([[list(wish) for wish in wanted], python, build["wheels"], build["pip"]])
    return os.path.join(
        store,
        "packages-py%s-%s.json" % (python, hashlib.sha256(told.encode("utf-8")).hexdigest()[:16]),
    )


def _known(
    store: str, wanted: Sequence[Wish], build: Json, python: str
) -> Optional[Dict[str, List[str]]]:
    try:
        with open(_path(store, wanted, build, python), encoding="utf-8") as stream:
            kept = json.load(stream)
        return {
            str(pin): [str(digest) for digest in digests] for pin, digests in kept["wheels"].items()
        }
    except (OSError,) + DAMAGED:
        return None


def _keep(
    store: str, wanted: Sequence[Wish], build: Json, python: str, chosen: Dict[str, List[str]]
) -> None:
    path = _path(store, wanted, build, python)
    kept = {"asked": [wish.text for wish in wanted], "wheels": chosen}
    replace(path, json.dumps(kept, indent=1))


def kept(store: str, wanted: Sequence[Wish], build: Json, python: str) -> List[str]:
    """Return the paths of the saved choice and of the chosen wheels, for a bundle.

    See `choose` for the arguments.
    """
    chosen = _known(store, wanted, build, python) or {}
    lines = ["%s --hash=sha256:%s" % (pin, digests[0]) for pin, digests in chosen.items()]
    return [_path(store, wanted, build, python)] + wheels.provide(store, lines, python)
