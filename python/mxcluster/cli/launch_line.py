"""Turn the command line of MXNet's tools/launch.py into knobs of train.yml.

The options come from MXNet 1.2.1 to 1.9.1, the DMLC tracker and MXNet-G. The first word without a
dash begins the command. So an option of the script never counts as an option of the launcher. The
module only reads files.
"""

import argparse
import os
import re
import shlex
from typing import Dict, Iterable, List, NamedTuple, NoReturn, Optional, Tuple

from mxcluster import schemes
from mxcluster.errors import BadInput, refuse
from mxcluster.job.plan import round_robin
from mxcluster.launchers import LAUNCHERS, SSH
from mxcluster.model.job_knobs import MOST_PROCESSES
from mxcluster.model.sweep import Knobs

PYTHON = re.compile(r"(.*/)?(python|pypy)[0-9.]*$")
PLAIN_OPTIONS = ("-u", "-O", "-B", "-s")  # options of Python that do not select the script
KV = ("--kv-store", "--kvstore", "--kv_store")
# The variables that launch.py always passes.
PASSED = ("OMP_NUM_THREADS", "KMP_AFFINITY", "LD_LIBRARY_PATH")
PASSED_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
SECRET = re.compile(r"(?i)key|token|secret|passw")
ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
# Signs of a shell, and quoted text, in which only some of these signs have a meaning.
NEEDS_SHELL = re.compile(r"[;&|<>()$`*?\n]|(?:^|\s)[~#]")
QUOTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"")
EXPANDED = re.compile(r'".*[$`]', re.DOTALL)  # in double quotes
_SSH = LAUNCHERS[SSH]
MOST_HOSTS = 1 << 20  # bytes of a file of hosts
UNSUPPORTED = {
    "yarn": "YARN starts no agent of mxcluster",
    "mesos": "Mesos starts no agent of mxcluster",
    "kubernetes": "Kubernetes starts no agent of mxcluster",
}


class Line(NamedTuple):
    """A command line: inventories, knobs of train.yml, and notes for the user."""

    inventories: List[str]
    knobs: Knobs
    notes: List[str]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput("%s; mxcluster launch --help shows the options" % message)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line after the word launch."""
    made = _Parser(
        prog="mxcluster launch",
        allow_abbrev=False,
        description="Start a script with MXNet's parameter servers, with the options of MXNet's "
        "tools/launch.py. train.yml plans, starts and watches the job.",
        epilog="The nodes come from an inventory that provision.yml has prepared. Each worker "
        "runs the script in its own copy of the script's folder, with the Python of the node's "
        "environment.",
    )
    add = made.add_argument
    add("-n", "--num-workers", type=int, required=True, help="the number of workers")
    add("-s", "--num-servers", type=int, help="the number of servers (default: that of workers)")
    add("-H", "--hostfile", "--host-file", help="the nodes, one on each line: name or address")
    add(
        "--launcher",
        "--cluster",
        default=SSH,
        help="one of %s (default: %%(default)s)" % ", ".join(LAUNCHERS),
    )
    add("-i", "--dmlc-interface", default="", help="the network interface of the training traffic")
    add("--sync-dst-dir", help="accepted: the script's folder is copied to each node anyway")
    add("--env", action="append", default=[], help="NAME, or NAME=VALUE, for servers and workers")
    add("--env-server", action="append", default=[], help="NAME:VALUE for the servers")
    add("--env-worker", action="append", default=[], help="NAME:VALUE for the workers")
    add("-p", "--parameter-partition-num", type=int, default=-2, help="MXNet-G's; only -2 (off)")
    add("--p3", action="store_true", help="refused")
    add(
        "--inventory",
        action="append",
        default=[],
        help="the inventory (default: that of ansible.cfg); may come several times",
    )
    add("--knob", action="append", default=[], help="NAME=VALUE, a further knob of train.yml")
    add("command", nargs=argparse.REMAINDER, help="python script.py [argument ...]")
    return made


def parse(
    argv: List[str], cwd: Optional[str] = None, environ: Optional[Dict[str, str]] = None
) -> Line:
    """Return the Line of a command line.

    Args: `argv` the words after `launch`; `cwd` the folder of relative paths; `environ` the
    environment. The folder and the environment of this process are the defaults. Raises BadInput
    with all problems.
    """
    cwd, environ = cwd or os.getcwd(), dict(os.environ if environ is None else environ)
    given = parser().parse_args(argv)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    # launch.py joins its words to one command of a shell. The first word may be `python train.py`,
    # unless it assigns a variable or is a file with blanks in its name.
    first = command[0] if command else ""
    if len(command) == 1 or not (
        "=" in first.split(" ")[0] or os.path.isfile(os.path.join(cwd, first))
    ):
        command = _words(first) + command[1:]
    servers = given.num_workers if given.num_servers is None else given.num_servers
    refuse(_refusals(given, command, servers))
    assigned, command = _assignments(command)
    script, arguments, notes = _script(command, cwd)
    kv, more = _kv(arguments)
    notes += more
    # As a person writes them after -e: train.yml reads and checks the values.
    knobs: Dict[str, object] = {
        "launcher": given.launcher,
        "num_workers": given.num_workers,
        "num_servers": servers,
        "script": script,
        "script_args": arguments,
        "kv": kv,
        "round_robin": _hosts(given.hostfile, cwd) if given.hostfile else [round_robin.ALL],
    }
    optional = {
        # --knob num_nodes=N requests another number
        "num_nodes": given.num_workers if LAUNCHERS[given.launcher].is_batch else None,
        "dmlc_interface": given.dmlc_interface or environ.get("DMLC_INTERFACE"),
        "ps_verbose": environ.get("PS_VERBOSE"),
        "staleness": _value(arguments, ("--staleness",)) if kv == "dist_ssync" else None,
    }
    knobs.update((name, value) for name, value in optional.items() if value)
    if given.sync_dst_dir:
        notes.append(
            "--sync-dst-dir %s has no effect: each worker has its own copy of %s in the job's "
            "folder of the node, not in %s"
            % (given.sync_dst_dir, os.path.dirname(script), given.sync_dst_dir)
        )
    knobs.update(_environment(given, environ, assigned))
    knobs.update(_pairs(given.knob, "--knob", "="))
    inventories = [os.path.abspath(os.path.join(cwd, path)) for path in given.inventory]
    return Line(inventories, knobs, notes)


def _refusals(given: argparse.Namespace, command: List[str], servers: int) -> Iterable[str]:
    if not command:
        yield "the command is missing: end the line with python script.py [argument ...]"
    if given.num_workers < 1:
        yield "-n %d: a job has at least one worker" % given.num_workers
    if servers < 1:
        yield "-s %d: a job has at least one server" % servers
    if given.launcher not in LAUNCHERS:
        yield "--launcher %s: %s; use one of %s" % (
            given.launcher,
            UNSUPPORTED.get(given.launcher, "there is no such launcher"),
            ", ".join(LAUNCHERS),
        )
    if given.hostfile and not LAUNCHERS.get(given.launcher, _SSH).takes_hosts:
        yield (
            "--launcher %s chooses the nodes itself: leave -H %s out"
            % (given.launcher, given.hostfile)
        )
    if given.p3:
        yield "--p3: mxcluster does not support MXNet's P3 transport: leave --p3 out"
    if given.parameter_partition_num != -2:
        yield (
            "-p %d: mxcluster places parameters by the measured speeds of the servers, see "
            "profile.yml: leave -p out" % given.parameter_partition_num
        )


def _words(text: str) -> List[str]:
    """Return the words of a command in one word, such as "python train.py --lr '0.1'".

    launch.py gives its command to a shell. mxcluster starts the script itself, so the function
    refuses what only a shell can carry out.
    """
    bare = QUOTED.sub(lambda found: "$" if EXPANDED.match(found.group()) else "x", text)
    found = NEEDS_SHELL.search(bare)
    if found:
        raise BadInput(
            "the command `%s` needs a shell for %s, and mxcluster starts the script without one: "
            "leave this out, or put it in quotes if it belongs to an argument"
            % (text, found.group().strip() or "its lines")
        )
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(
            "the command `%s` cannot be read (%s): correct the quotes" % (text, error)
        ) from error


def _assignments(command: List[str]) -> Tuple[Dict[str, str], List[str]]:
    """Return ({variable: value}, the rest) of `command`: A=1 python x.py, env A=1 python x.py."""
    rest, found = list(command), {}  # type: List[str], Dict[str, str]
    has_env = os.path.basename(rest[0]) == "env"
    if has_env:
        rest.pop(0)
    while rest and ASSIGNED.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        found[name] = value
    if not rest or has_env and rest[0].startswith("-"):
        raise BadInput(
            "the command `%s` %s: write [NAME=VALUE ...] python script.py [argument ...]"
            % (
                " ".join(command[:4]),
                "has an option of env, which mxcluster does not carry out" if rest else "is empty",
            )
        )
    return found, rest


def _script(command: List[str], cwd: str) -> Tuple[str, List[str], List[str]]:
    """Return (absolute path of the script, its arguments, notes) of `command`.

    `cwd`: the folder of relative paths.
    """
    rest, notes = list(command), []  # type: List[str], List[str]
    if PYTHON.match(rest[0]):
        python = rest.pop(0)
        while rest and rest[0] in PLAIN_OPTIONS:
            rest.pop(0)
        if not rest or rest[0].startswith("-"):
            raise BadInput(
                "the command `%s` has no script, which mxcluster copies to the nodes: write python "
                "script.py [argument ...]" % " ".join(command[:4])
            )
        notes.append(
            "the nodes run %s with the Python of their own environments, not with %s"
            % (rest[0], python)
        )
    elif not rest[0].endswith(".py"):
        raise BadInput(
            "the command `%s` is no Python script: write python script.py [argument ...]. The "
            "script may start other programs" % " ".join(command[:4])
        )
    script = os.path.abspath(os.path.join(cwd, os.path.expanduser(rest[0])))
    if not os.path.isfile(script):
        raise BadInput("the script %s does not exist: correct the path" % script)
    return script, rest[1:], notes


def _value(arguments: List[str], names: Iterable[str]) -> Optional[str]:
    """Return the value of the last of the options `names` in `arguments`, None without any."""
    found = None
    for number, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else "".join(arguments[number + 1 : number + 2])
    return found


def _kv(arguments: List[str]) -> Tuple[str, List[str]]:
    """Return (scheme, notes): the scheme in the script's arguments, which the servers must know."""
    name = _value(arguments, KV)
    kv = schemes.known_as(str(name))
    if name is None:
        return "dist_sync", [
            "the script has no argument --kv-store, so the servers use dist_sync. For another "
            "scheme add --knob kv=NAME"
        ]
    if kv not in schemes.NAMES or not schemes.of(kv).is_distributed:
        raise BadInput(
            "--kv-store %s is unknown or needs no servers: use one of %s, or run the script "
            "without mxcluster launch"
            % (name, ", ".join(one.name for one in schemes.SCHEMES if one.is_distributed))
        )
    return kv, []


def _hosts(path: str, cwd: str) -> List[str]:
    """Return the hosts of a hosts file in the order of its lines, one entry for each slot.

    A line has a name or an address, and optionally `:port` of sshd or `slots=2`, as for mpirun. The
    function ignores the port, because the inventory has the port. It skips blank lines and comments
    after '#'.

    Args: `path` the path of the file; `cwd` the folder of a relative path.
    """
    path = os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))
    try:
        if os.path.getsize(path) > MOST_HOSTS:
            raise BadInput("-H %s is too large for a hosts file: correct the path" % path)
        with open(path, encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError as error:
        raise BadInput(
            "-H %s cannot be read (%s): correct the path" % (path, error.strerror)
        ) from error
    hosts, problems = [], []  # type: List[str], List[str]
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        found = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?::([0-9]+))?$", words[0])
        options = dict(word.partition("=")[::2] for word in words[1:])
        slots = options.pop("slots", "1")
        options.pop("max_slots", None)
        if not found or options or not slots.isdigit() or not 0 < int(slots) <= 256:
            problems.append(
                "%s line %d: '%s' is no host: write a name or an address, and optionally :port or "
                "slots=2" % (path, number, line.strip()[:80])
            )
        else:
            hosts += [found.group(1)] * int(slots)
        if len(hosts) > MOST_PROCESSES:
            raise BadInput(
                "-H %s has more than %d slots, and mxcluster plans at most that many processes: "
                "leave lines out, or use fewer slots" % (path, MOST_PROCESSES)
            )
    refuse(problems)
    if not hosts:
        raise BadInput("-H %s has no host: write a name or an address on each line" % path)
    return hosts


def _pairs(texts: Iterable[str], option: str, sign: str) -> Dict[str, str]:
    """Return {name: value} of texts such as NAME:VALUE or NAME:VALUE,NAME:VALUE.

    Args: `option` the option's name for messages; `sign` the sign between name and value.
    """
    found = {}
    for text in texts:
        # A value may contain a comma: a part without a name belongs to the value before it.
        pieces = re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*%s)" % sign, text)
        for name, there, value in (piece.partition(sign) for piece in pieces):
            if not there or not NAME.match(name):
                raise BadInput(
                    "%s %s: write NAME%sVALUE, such as %s OMP_NUM_THREADS%s3"
                    % (option, text, sign, option, sign)
                )
            found[name] = value
    return found


def _environment(
    given: argparse.Namespace, environ: Dict[str, str], assigned: Dict[str, str]
) -> Dict[str, Dict[str, str]]:
    """Return the knobs env_server, env_worker and secret_env of the command line.

    Args: `given` the options; `environ` the environment; `assigned` {variable: value} of the
    command, which launch.py runs on servers and workers.
    """
    both = {name: environ[name] for name in PASSED if environ.get(name)}
    secret = {name: environ[name] for name in PASSED_SECRETS if environ.get(name)}
    for text in given.env:
        name, equals, value = text.partition("=")
        if not NAME.match(name):
            raise BadInput("--env %s: write NAME, or NAME=VALUE" % text)
        if not equals and name not in environ:
            raise BadInput(
                "--env %s: the variable is not set here: set it, or write %s=VALUE" % (name, name)
            )
        (secret if SECRET.search(name) else both)[name] = value if equals else environ[name]
    for name, value in assigned.items():
        (secret if SECRET.search(name) else both)[name] = value
    found = {
        "env_server": dict(both, **_pairs(given.env_server, "--env-server", ":")),
        "env_worker": dict(both, **_pairs(given.env_worker, "--env-worker", ":")),
        "secret_env": secret,
    }
    return {name: values for name, values in found.items() if values}
