"""Read the variables of all roles from their argument specs."""

import glob
import os
from typing import Any, Dict

import yaml


def documented(project: str) -> Dict[str, Dict[str, Any]]:
    """Return the documented variables of all roles in the folder `project`.

    The result is {variable: {"type", "elements", "choices"}}. "elements" and "choices" are present
    only if the argument spec has them.
    """
    found = {}
    for path in glob.glob(
        os.path.join(glob.escape(project), "roles", "*", "meta", "argument_specs.yml")
    ):
        with open(path) as stream:
            for entry in yaml.load(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))[
                "argument_specs"
            ].values():
                for name, option in (entry.get("options") or {}).items():
                    found[name] = {
                        key: option[key] for key in ("type", "elements", "choices") if key in option
                    }
    return found
