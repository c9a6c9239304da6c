"""Show the command line of ansible-playbook without the values that may be secret."""

import json
import os
import shlex
from typing import Collection, Iterable, List, Tuple

import yaml
from ansible.errors import AnsibleError
from ansible.parsing.splitter import parse_kv

from mxcluster.ansible.knobs import PLAYBOOKS, SHORT

HIDDEN = "***"
EXTRA = "--extra-vars"
# Options of ansible-playbook whose values are shown. Other options may have a password or a command
# with one, such as --ssh-extra-args.
SHOWN = ("--inventory", "--limit", "--tags", "--skip-tags", "--forks")
LETTERS = {"-e": EXTRA, "-i": "--inventory", "-l": "--limit", "-t": "--tags", "-f": "--forks"}
FLAGS = frozenset("vkKbCDJ")  # letters of options without a value
SECRET = ("secret_env", "train_job_secret_env", "notify_command", "train_job_notify_command")
KNOBS = frozenset(
    [name for names in PLAYBOOKS.values() for name in names]
    + ["%s_%s" % (role, name) for role, names in SHORT.items() for name in names]
) - frozenset(SECRET)


def shown(argv: Iterable[str], playbooks: Collection[str]) -> List[str]:
    """Return the words of the command line `argv`, with HIDDEN in place of possible secrets.

    Only playbooks, knobs and the options SHOWN keep their values. `playbooks`: the paths of the
    playbooks in `argv`.
    """
    words = list(argv)
    found, option = [os.path.basename(word) for word in words[:1]], ""
    for word in words[1:]:
        if option:
            found.append(_value(option, word))
            option = ""
        elif word in playbooks:
            found.append(word)
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            full = _full(name)
            found.append(name + (equals and "=" + _value(full, value)))
            option = "" if equals or full not in (EXTRA, *SHOWN) else full
        elif word[:2] in LETTERS:
            full = LETTERS[word[:2]]
            found += [word[:2]] + ([_value(full, word[2:])] if word[2:] else [])
            option = "" if word[2:] else full
        elif word.startswith("-") and FLAGS.issuperset(word[1:]):
            found.append(word)
        else:
            found.append(word if len(word) == 2 and word[0] == "-" else HIDDEN)
    return found


def _full(name: str) -> str:
    """Return the option that `name` stands for: argparse also takes the beginning of a name."""
    return next((one for one in (EXTRA, *SHOWN) if len(name) > 3 and one.startswith(name)), name)


def _value(option: str, value: str) -> str:
    if option == EXTRA:
        return _extra(value)
    return value if option in SHOWN else HIDDEN


def _extra(text: str) -> str:
    """Return the value of -e with the values of knobs only."""
    if text.startswith("@"):
        return text
    try:
        if text.lstrip()[:1] in ("{", "["):
            given = yaml.safe_load(text)
            return json.dumps({name: _of_knob(name, value) for name, value in given.items()})
        pairs: List[Tuple[str, str]] = list(parse_kv(text).items())
    except (AnsibleError, yaml.YAMLError, AttributeError, TypeError, ValueError):
        return HIDDEN
    return " ".join(
        HIDDEN
        if name == "_raw_params"
        else "%s=%s" % (name, value if value == HIDDEN else shlex.quote(str(value)))
        for name, known in pairs
        for value in [_of_knob(name, known)]
    )


def _of_knob(name: object, value: object) -> object:
    return value if name in KNOBS else HIDDEN
