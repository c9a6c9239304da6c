"""Read the variables of all roles from their argument specs."""

import glob
import os
from typing import Dict, Mapping, Optional, Sequence

import yaml

from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import anything, each, optional, table, text


class Option(Record):
    """A variable of a role, as Ansible's ArgumentSpecValidator knows it."""

    type: Optional[str] = field(optional(text), default=None)
    elements: Optional[str] = field(optional(text), default=None)
    choices: Optional[Sequence[object]] = field(optional(each(anything)), default=None)


Options = Mapping[str, Option]  # {variable: its argument spec}


class EntryPoint(Record):
    """The variables of an entry point of a role."""

    options: Options = field(table(text, record(Option)), default={})


class Specs(Record):
    """The content of argument_specs.yml."""

    argument_specs: Mapping[str, EntryPoint] = field(table(text, record(EntryPoint)))


def documented(project: str) -> Options:
    """Return the documented variables of all roles in the folder `project`."""
    found: Dict[str, Option] = {}
    for path in glob.glob(
        os.path.join(glob.escape(project), "roles", "*", "meta", "argument_specs.yml")
    ):
        with open(path) as stream:
            specs = yaml.load(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for entry in Specs.decode(specs).argument_specs.values():
            found.update(entry.options)
    return found
