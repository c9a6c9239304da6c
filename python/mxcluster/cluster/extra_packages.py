"""Choose wheels for the packages that scripts need besides MXNet (mxnet_packages, requirements).

The controller chooses the wheels once for each version of Python. It saves the choice in a file
beside the wheels. The name of the file has a digest of all inputs. So the same packages give the
same wheels without another query to a package index, and a bundle can contain the choice.

pip resolves the dependencies. `uv pip compile` would be as short, but reads neither pip.conf nor
pip's variables, in which a site names its index, proxy and certificates.
"""

import hashlib
import json
import os
import re
import tempfile
import zipfile
from typing import (
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from mxcluster.cluster import wheels
from mxcluster.errors import BadInput, MxclusterError, refuse
from mxcluster.file_io import read_intact, replace, sha256
from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, table, text
from mxcluster.model.software import Build, Environment, Layer

Fetch = Callable[[str, List[str], List[str], str, str], None]


class ExtraPackage(NamedTuple):
    """A package that the user wants."""

    text: str  # such as "tqdm==4.66.1"
    digests: List[str]  # the allowed sha256 values, [] for all
    name: str  # the normalized name, see `wheels.plain`
    versions: str  # such as "==4.66.1", "" for all versions
    knob: str = "mxnet_packages"  # the knob that names the package, for messages


class Choice(Record):
    """The chosen wheels of some packages, as a file in the store keeps them."""

    packages: Sequence[str] = field(each(text), key="asked")
    """The packages of the user."""
    wheels: Mapping[str, Sequence[str]] = field(table(text, each(names.digest)))
    """{"name==version": [sha256]}."""


KNOB = "mxnet_packages"
# Modules of the environment that no wheel of a package may contain.
NEVER = ("mxcluster", "mxnet", "numpy")
HASH = re.compile(r"--hash[= ]sha256:[0-9a-f]{64}")


def of_knob(value: object, cwd: str) -> List[ExtraPackage]:
    """Return the packages of the knob mxnet_packages, sorted by name.

    Args: `value` a list of names with or without versions, such a list as a string, or the path of
    a requirements file; `cwd` the folder in which a relative path begins.

    Raises BadInput for a wrong value.
    """
    if isinstance(value, str):
        line = value.strip()
        if "/" in line or line.endswith(".txt"):
            return of_file(os.path.abspath(os.path.join(cwd, os.path.expanduser(line))))
        value = re.split(r"[\s,]+(?![=<>~!])", line) if line else []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadInput(
            "%s=%r is refused: give a list of names, such as [six, tqdm==4.66.1], or the "
            "path of a requirements file on the controller" % (KNOB, value)
        )
    return _parsed(((one.strip(), KNOB) for one in value if one.strip()), KNOB)


def of_file(path: str, knob: str = KNOB) -> List[ExtraPackage]:
    """Return the packages of the requirements file `path`, sorted by name.

    Args: `knob` that names the file, for messages. Raises BadInput for a wrong line, or if the file
    is not readable.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            content = stream.read()
    except (OSError, ValueError) as error:
        raise BadInput(
            "%s: the controller cannot read %s (%s): correct the path or the file"
            % (knob, path, getattr(error, "strerror", None) or "the file is not UTF-8 text")
        ) from error
    stripped = (
        (re.sub(r"(^|\s)#.*", "", line).strip(), "%s, line %d" % (path, number))
        for number, line in _joined(content)
    )
    return _parsed(((line, where) for line, where in stripped if line), knob)


def _joined(content: str) -> Iterator[Tuple[int, str]]:
    """Yield (number of its first line, line) of `content`, with continued lines joined.

    A line goes on after a backslash at its end, as in the files of pip-compile.
    """
    first, parts = 1, []  # type: int, List[str]
    for number, line in enumerate(content.split("\n"), 1):
        parts.append(line[:-1] if line.endswith("\\") else line)
        if not line.endswith("\\"):
            yield first, " ".join(parts)
            first, parts = number + 1, []
    if parts:
        yield first, " ".join(parts)


def _parsed(lines: Iterator[Tuple[str, str]], knob: str) -> List[ExtraPackage]:
    found, problems = {}, []  # type: Dict[str, ExtraPackage], List[str]
    for line, where in lines:
        text, *options = re.split(r"\s+(?=--)", line)
        requirement = _requirement(text)
        if requirement is None or not all(HASH.fullmatch(option) for option in options):
            problems.append("%s: %r is refused: %s" % (where, line[:200], _instead(line)))
            continue
        written, versions = requirement
        name = wheels.plain(written)
        if _is_own(name):
            problems.append(
                "%s: %s is refused, because mxcluster installs this package: remove the entry. "
                "mxnet_version and cuda_version select the version of MXNet" % (where, written)
            )
        elif name in found:
            problems.append("%s: %s occurs twice: remove one entry" % (where, written))
        found[name] = ExtraPackage(
            text=re.sub(r"\s", "", text),
            digests=sorted(option[-64:] for option in options),
            name=name,
            versions=versions,
            knob=knob,
        )
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


def _requirement(text: str) -> Optional[Tuple[str, str]]:
    """Return (name, versions) of a requirement, or None if mxcluster does not accept its form."""
    from packaging import requirements

    try:
        found = requirements.Requirement(text)
    except requirements.InvalidRequirement:
        return None
    has_more = found.url or found.marker or "===" in text
    return None if has_more else (found.name, str(found.specifier))


def extended(
    environment: Environment,
    wanted: Sequence[ExtraPackage],
    python: str,
    store: str,
    fetch: Optional[Fetch] = None,
    known_only: bool = False,
) -> Optional[Environment]:
    """Return an environment with the wanted packages for one Python.

    The result has one build, with the wanted wheels. If `wanted` is empty, the result is the
    environment itself. Without a saved choice, the function chooses the wheels and puts them into
    the store (see `choose`). Raises BadInput if a wanted version conflicts with the environment.

    Args:
        environment: the result of `pairs.environment`.
        wanted: the packages, from `of_knob`.
        python: the version of Python, such as "3.11".
        store: the folder of the wheels and of the saved choices.
        fetch: a function with the arguments of `download`, which is the default.
        known_only: True to return None if there is no saved choice.
    """
    build = environment.build_for(python)
    if build is None or not wanted:
        return environment
    choice = _choice(wanted, build, python, store, fetch, known_only)
    if choice is None:
        return None
    return environment.replaced(
        builds=[build.replaced(python=[python], wheels=[*build.wheels, *sorted(choice.wheels)])],
        hashes=dict(environment.hashes, **choice.wheels),
    )


def layer(
    environment: Environment,
    wanted: Sequence[ExtraPackage],
    python: str,
    store: str,
    fetch: Optional[Fetch] = None,
    known_only: bool = False,
) -> Optional[Layer]:
    """Return the wanted packages as a layer over the environment for one Python.

    The layer has no wheel of the environment, so the environment stays as it is. The result is None
    if `wanted` is empty, or if the environment has no build for this Python. The arguments and
    errors are those of `extended`.
    """
    build = environment.build_for(python)
    if build is None or not wanted:
        return None
    choice = _choice(wanted, build, python, store, fetch, known_only)
    if choice is None:
        return None
    found = Environment(
        builds=[Build(python=[python], pip=build.pip, wheels=sorted(choice.wheels))],
        hashes=dict(choice.wheels, **{build.pip: environment.hashes.get(build.pip, [])}),
        name="the layer of packages (%s)" % wanted[0].knob,
        note="Another Python has made the environment: run provision.yml again.",
    )
    return Layer(digest=wheels.needs(found, python).digest, **vars(found))


def _choice(
    wanted: Sequence[ExtraPackage],
    build: Build,
    python: str,
    store: str,
    fetch: Optional[Fetch],
    known_only: bool,
) -> Optional[Choice]:
    """Return the wheels of `wanted` for a build: those of an earlier run, or a new choice.

    See `extended` for the arguments and errors.
    """
    refuse(_against(wanted, build, python))
    path = _path(store, wanted, build, python)
    choice = read_intact(path, Choice.decode)
    if choice is None and not known_only:
        chosen = choose(store, wanted, build, python, fetch or download)
        choice = Choice(packages=[package.text for package in wanted], wheels=chosen)
        replace(path, json.dumps(choice.encode(), indent=1))
    return choice


def choose(
    store: str, wanted: Sequence[ExtraPackage], build: Build, python: str, fetch: Fetch
) -> Dict[str, List[str]]:
    """Choose wheels for `wanted` and all dependencies, and return {"name==version": [sha256]}.

    The result has no wheel of `build`. The function moves the chosen wheels into the store.

    Args: `build` an item of the builds of `pairs.environment`; the others are as in `extended`.

    Raises MxclusterError if pip fails. Raises BadInput if a dependency conflicts with `build`, if a
    wheel contains a module of NEVER, or if the requirements file lists other sha256 values.
    """
    packages, knob = [package.text for package in wanted], wanted[0].knob
    pinned = _pins([*build.wheels, build.pip])
    os.makedirs(store, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=wheels.DRAFT, dir=store) as draft:
        try:
            fetch(draft, packages, list(pinned.values()), python, store)
        except MxclusterError as error:
            raise MxclusterError("%s: %s" % (knob, error)) from None
        chosen, moved = {}, []
        for file in sorted(file for file in os.listdir(draft) if file.endswith(".whl")):
            name, pin = wheels.plain(file.split("-")[0]), "==".join(file.split("-")[:2])
            if name in pinned:
                continue
            if _is_own(name):
                raise BadInput(
                    "%s: one of the packages %s requires %s, which conflicts with %s: remove the "
                    "package with this requirement, or choose another version of that package"
                    % (knob, ", ".join(packages), pin, build.wheels[0])
                )
            hidden = sorted(modules_of(os.path.join(draft, file)).intersection(NEVER))
            if hidden:
                raise BadInput(
                    "%s: the wheel of %s contains the module %s, and would replace the package of "
                    "the environment: remove the package that requires %s"
                    % (knob, pin, hidden[0], pin)
                )
            chosen[pin] = [sha256(os.path.join(draft, file))]
            allowed = next((package.digests for package in wanted if package.name == name), [])
            if allowed and chosen[pin][0] not in allowed:
                raise BadInput(
                    "%s: %s for Python %s has the sha256 %s, which the requirements file does not "
                    "list: add this digest to the file if the wheel is right"
                    % (knob, pin, python, chosen[pin][0])
                )
            moved.append(file)
        for file in moved:
            os.replace(os.path.join(draft, file), os.path.join(store, file))
        return chosen


def download(folder: str, names: List[str], pinned: List[str], python: str, store: str) -> None:
    """Fetch the wheels of packages and of their dependencies with pip into `folder`.

    Args: `names` the packages, with or without versions; `pinned` the constraints, "name==version";
    `python` such as "3.11"; `store` a folder with wheels that pip may use.

    Raises MxclusterError if a package has no wheel, or if pip fails.
    """
    constraints = os.path.join(folder, "constraints.txt")
    with open(constraints, "w", encoding="utf-8") as stream:
        stream.write("\n".join(pinned) + "\n")
    output = wheels.pip_download(
        folder, python, ["--constraint", constraints, "--find-links", store] + list(names)
    )
    if output is not None:
        lacking = re.findall(r"No matching distribution found for (\S+)", output)
        if "conflicting dependencies" in output:
            reason = (
                "the packages %s conflict with each other, or with MXNet's packages on Python %s "
                "(%s): choose other versions, or remove a package"
                % (", ".join(names), python, ", ".join(pinned))
            )
        elif lacking:
            reason = (
                "pip found no wheel of %s for Python %s on Linux x86_64 with glibc 2.17. mxcluster "
                "installs only wheels, since nodes have no compiler. Choose a version that has a "
                "wheel. Without a network, use a bundle that contains the package"
                % (", ".join(lacking), python)
            )
        else:
            reason = (
                "pip could not fetch the packages for Python %s. Give the controller access to a "
                "package index, or correct the names of the packages" % python
            )
        raise MxclusterError("%s. pip says:\n%s" % (reason, output))


def modules_of(path: str) -> Set[str]:
    """Return the top modules and packages in the wheel `path`, {} for a damaged file.

    The folder <name>.data/purelib of a wheel has the same rank as the wheel itself.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            parts = [name.split("/") for name in wheel.namelist()]
    except (OSError, zipfile.BadZipFile):
        return set()
    tops = [
        part[2] if part[0].endswith(".data") and part[1] in ("purelib", "platlib") else part[0]
        for part in parts
        if not part[0].endswith(".data") or len(part) > 2
    ]
    return {top.split(".")[0] for top in tops if not top.endswith(".dist-info")}


def _is_own(name: str) -> bool:
    """Return True if mxcluster itself installs the package with the normalized name `name`."""
    return name in ("mxcluster", "pip") or name.startswith("mxnet")


def _pins(pins: Sequence[str]) -> Dict[str, str]:
    """Return {normalized name: pin} of `pins` such as "numpy==1.14.6"."""
    return {wheels.plain(pin.split("==")[0]): pin for pin in pins}


def _against(wanted: Sequence[ExtraPackage], build: Build, python: str) -> Iterator[str]:
    """Yield a message for each package in `wanted` that conflicts with a wheel of `build`."""
    from packaging.specifiers import SpecifierSet

    pinned = _pins(build.wheels)
    for package in wanted:
        pin = pinned.get(package.name)
        if pin and pin.split("==")[1] not in SpecifierSet(package.versions):
            yield (
                "%s: %s is refused: %s on Python %s needs %s. Remove %s, or give the needed version"
                % (package.knob, package.text, build.wheels[0], python, pin, package.name)
            )


def _path(store: str, wanted: Sequence[ExtraPackage], build: Build, python: str) -> str:
    texts = [[package.text, package.digests] for package in wanted]
    inputs = json.dumps([texts, python, build.wheels, build.pip])
    digest = hashlib.sha256(inputs.encode("utf-8")).hexdigest()
    return os.path.join(store, "packages-py%s-%s.json" % (python, digest[:16]))


def kept(store: str, wanted: Sequence[ExtraPackage], build: Build, python: str) -> List[str]:
    """Return the paths of the saved choice and of the chosen wheels, for a bundle.

    See `choose` for the arguments.
    """
    path = _path(store, wanted, build, python)
    choice = read_intact(path, Choice.decode)
    lines = [
        "%s --hash=sha256:%s" % (pin, digests[0])
        for pin, digests in (choice.wheels.items() if choice else ())
    ]
    return [path] + wheels.provide(store, lines, python)
