"""Check the names of plays, blocks, tasks and handlers: a verb of a short list, an object, a place.

A terminal shows a name without the file. Hence a name has no pronoun and is unique in its play.
"""

import collections
import functools
import pathlib
import re

import pytest
import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[3]
VERBS = (
    "Add",
    "Attach",
    "Build",
    "Check",
    "Copy",
    "Create",
    "Disable",
    "Fail if",
    "Fetch",
    "Find",
    "Gather",
    "Install",
    "Plan",
    "Provision",
    "Reboot",
    "Reload",
    "Remove",
    "Rename",
    "Replace",
    "Report",
    "Run",
    "Start",
    "Stop",
    "Wait for",
    "Write",
)
PRONOUNS = frozenset(
    """
    i me my mine we us our ours you your yours he him his she her hers it its itself they
    them their theirs themselves this that these those who whom whose which what whatever
    whoever one ones other others another both either neither none nobody nothing somebody
    someone something anybody anyone anything everybody everyone everything there here
    """.split()
)
LEAST_WORDS = 3
ROLES = sorted(
    path for part in ("tasks", "handlers") for path in PROJECT.glob("roles/*/%s/*.yml" % part)
)
PLAYBOOKS = sorted(
    path
    for pattern in ("*.yml", "playbooks/*.yml", "molecule/*/*.yml")
    for path in PROJECT.glob(pattern)
    if isinstance(yaml.safe_load(path.read_text()), list)
)
FILES = ROLES + PLAYBOOKS


def names(entries):
    """Yield the name of each play, block, task and handler in `entries`, the content of a file.

    A missing name is "".
    """
    for entry in entries or []:
        yield entry.get("name", "")
        for part in ("pre_tasks", "tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            yield from names(entry.get(part))


@functools.lru_cache(maxsize=None)
def names_in(path):
    return list(names(yaml.safe_load(path.read_text())))


def problem(name):
    """Return the first fault of a name, "" for a good name."""
    words = re.findall(r"[\w.'/-]+", name)
    if not name.startswith(tuple(verb + " " for verb in VERBS)):
        return "no verb of the list"
    if len(words) < LEAST_WORDS:
        return "fewer than %d words" % LEAST_WORDS
    found = [word for word in words if word.lower() in PRONOUNS]
    return "pronoun " + found[0] if found else ""


def repeated(listed):
    return sorted(name for name, count in collections.Counter(listed).items() if count > 1)


def relative(path):
    return str(path.relative_to(PROJECT))


def test_the_list_of_verbs_stays_short():
    used = {
        verb
        for path in FILES
        for name in names_in(path)
        for verb in VERBS
        if name.startswith(verb + " ")
    }
    assert len(VERBS) <= 25 and used == set(VERBS), set(VERBS) - used


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_name_can_be_read_alone(path):
    assert {name: problem(name) for name in names_in(path) if problem(name)} == {}


def test_no_two_tasks_of_roles_have_the_same_name():
    """A play may combine any files of any roles, so this covers the names inside every play."""
    assert len(ROLES) > 50
    assert repeated(name for path in ROLES for name in names_in(path)) == []


@pytest.mark.parametrize("path", PLAYBOOKS, ids=relative)
def test_a_playbook_repeats_no_name(path):
    """The names in a playbook also differ from all names in roles."""
    inside = {name for role in ROLES for name in names_in(role)}
    assert repeated(names_in(path) + list(inside)) == []
