"""Filters: collect the knobs of a role from `-e name=value` and the inventory.

A knob has a short name, such as kv, for `-e kv=dist_gsync`, and the name of its variable, such as
train_job_kv. An extra variable of the short name has priority. A variable of the inventory or of a
play with a short name, such as env, does not set a knob.
"""

from typing import Any, Callable, Dict, List

from ansible.errors import AnsibleFilterError, AnsibleUndefinedVariable
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars
from jinja2 import pass_context
from jinja2.exceptions import UndefinedError
from jinja2.runtime import Undefined, missing

from mxcluster.ansible.knobs import SHORT
from mxcluster.ansible.preflight_checks import undefined
from mxcluster.job.options import cast_secret_env
from mxcluster.model.job_knobs import MpiProgram, Options

Context = Any  # jinja2.runtime.Context
Value = Any  # of a variable, as the user gives it


@pass_context
def mxcluster_knobs(context: Context, role: str, *names: str) -> Dict[str, Value]:
    """Return {short name: value} of the role's knobs whose variables are defined.

    The result leaves out a knob whose variable has the value `omit`.

    Args: `context` of Jinja; `role` the name of the role; `names` the short names. Without `names`
    the result has all knobs of the role; for train_job it has the options of a plan.

    Raises AnsibleFilterError with all variables whose templates use an undefined variable. Such a
    knob is given, so the default would train something else in silence.
    """
    given = load_extra_vars(DataLoader())  # Ansible has cached these variables at its start
    omitted = context.resolve_or_missing("omit")
    values, problems = {}, {}
    for name in names or (Options.FIELDS if role == "train_job" else SHORT[role]):
        variable = name if name in given else "%s_%s" % (role, name)
        try:
            value = defined(context.resolve_or_missing(variable))
            # From ansible-core 2.19 on, the comparison evaluates the templates inside of a dict.
            is_given = value is not missing and (omitted is missing or value != omitted)
        except (AnsibleUndefinedVariable, UndefinedError) as error:
            problems[variable, str(error)] = []
            continue
        if is_given:
            values[name] = value
    if problems:
        raise AnsibleFilterError(undefined(problems))
    return values


def defined(value: Value) -> Value:
    """Return the value of a variable.

    Raises AnsibleUndefinedVariable for the value that ansible-core 2.16 gives to a template with an
    undefined variable. Newer versions raise the error themselves.
    """
    if isinstance(value, Undefined):
        raise AnsibleUndefinedVariable(value._undefined_message)
    return value


@pass_context
def mxcluster_mpi_knobs(context: Context, role: str) -> Dict[str, Value]:
    """Return {short name: value} of the knobs of `role` that only mpi.yml reads.

    Args: `context` of Jinja; `role` "train_job".
    """
    return mxcluster_knobs(context, role, *MpiProgram.FIELDS)


def mxcluster_given(role: str) -> List[str]:
    """Return the sorted short names of the role's knobs that the user gives with -e.

    The result includes a knob to which the user gives the default value.
    """
    given = load_extra_vars(DataLoader())
    return sorted(name for name in SHORT[role] if name in given or "%s_%s" % (role, name) in given)


def mxcluster_secret_env(given: Value) -> Dict[str, Value]:
    """Return {"env": {name: value}, "names": [...], "problems": [...]} of the knob secret_env.

    All entries are strings. "problems" has one error message for each invalid variable, without any
    value. A module cannot replace this filter, because Ansible masks the values of a module's
    secret argument wherever they occur in its result.

    Args: `given` the knob, a dict or a JSON string. The values of the dict may be vaults.
    """
    if isinstance(given, dict):  # Ansible decrypts a vault's value only on its conversion to str
        given = {
            name: str(value) if hasattr(value, "__ENCRYPTED__") else value
            for name, value in given.items()
        }
    env, problems = cast_secret_env(given)
    return {"env": env, "names": sorted(env), "problems": problems}


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {
            "mxcluster_knobs": mxcluster_knobs,
            "mxcluster_mpi_knobs": mxcluster_mpi_knobs,
            "mxcluster_given": mxcluster_given,
            "mxcluster_secret_env": mxcluster_secret_env,
        }
