"""Check the names of the variables in inventory files, group_vars and host_vars.

Ansible ignores a misspelt name in silence, and the job would then train with a default.
"""

from typing import Collection, Iterable, List, NamedTuple, Optional

from mxcluster.ansible import knobs

MOST_EDITS = 2  # letters of a misspelt name that differ from the known name
SHORT_NAME = 6  # a known name with fewer letters allows one different letter only
# A name with one of these prefixes belongs to mxcluster alone, so an unknown name is an error.
OWN_PREFIXES = ("mxcluster_", "train_job_")
CURE = "correct the name, or remove the variable"
SITE = "mxcluster_site_variables"  # the variable with the names of a site's own variables


class Found(NamedTuple):
    """The refusals and the notes about names, one line each."""

    problems: List[str]
    notes: List[str]


def check(
    names: Iterable[str],
    documented: Collection[str],
    roles: Collection[str],
    site: Collection[str] = (),
) -> Found:
    """Return the refusals and the notes about the variables `names` of an inventory.

    Args:
        names: the names that the files of the inventory define.
        documented: the variables of all roles.
        roles: the names of all roles.
        site: the names of the site's own variables, which are no misspelt names.
    """
    known = sorted({*documented, *knobs.OF_A_HOST})
    prefixes = tuple(role + "_" for role in roles)
    # Ansible's own variables and the short names of -e, which the plan reports, are no mistakes.
    ignored = {*known, *site, *(name for read in knobs.PLAYBOOKS.values() for name in read)}
    found = Found([], [])
    for name in sorted(set(names) - ignored):
        if name.startswith(("ansible_", "_")):
            continue
        close = nearest(name, known)
        if close:
            found.problems.append(
                "the inventory's variable %s is unknown (did you mean %s?): %s. If your site uses "
                "this name for a purpose of its own, add the name to the list %s"
                % (name, close, CURE, SITE)
            )
        elif name.startswith(OWN_PREFIXES):
            found.problems.append(
                "the inventory's variable %s is unknown, because mxcluster has no variable of this "
                "name: %s" % (name, CURE)
            )
        elif name.startswith(prefixes):
            found.notes.append(
                "the inventory's variable %s begins with the name of a role, and no role reads "
                "this variable: %s. If your site uses the variable, add its name to the list %s"
                % (name, CURE, SITE)
            )
    return found


def nearest(name: str, known: Iterable[str]) -> Optional[str]:
    """Return the name of `known` that differs from `name` in the fewest letters.

    The result is None if each name differs in more than MOST_EDITS letters, or in more than one
    letter from a name with fewer than SHORT_NAME letters.
    """
    best = None
    least = MOST_EDITS + 1
    for one in known:
        most = min(least - 1, MOST_EDITS if len(one) >= SHORT_NAME else 1)
        if abs(len(one) - len(name)) <= most:
            edits = distance(name, one)
            if edits <= most:
                best, least = one, edits
    return best


def distance(one: str, other: str) -> int:
    """Return the least number of edits that turn the text `one` into `other`.

    An edit inserts, removes or replaces a letter, or swaps two neighbours (optimal string
    alignment).
    """
    earlier: List[int] = []
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, wanted in enumerate(other, 1):
            edits = min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != wanted))
            if min(row, column) > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                edits = min(edits, earlier[column - 2] + 1)
            now.append(edits)
        earlier, before = before, now
    return before[-1]
