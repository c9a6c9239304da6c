"""List the classes whose objects a worker may send to the servers.

A worker and a server make the list in the same way, so both decide alike.
"""

import importlib
import os
import re
import sys
from typing import Dict, Iterable, List, Set

from mxcluster.errors import BadInput
from mxcluster.package import SCRIPT_FOLDER, SCRIPT_PLACE

# The modules of MXNet's own optimizers and schedules, with all modules in them. `import mxnet`
# loads all of them, so a worker and a server of one MXNet allow the same classes. MXNet defines
# further optimizers elsewhere, which only the process of the script has imported.
_OF_MXNET = re.compile(r"mxnet\.(optimizer|lr_scheduler)(\.|$)")


def allowed() -> Dict[str, type]:
    """Return {"module:Class": class} of MXNet's optimizers and schedules, and of declared classes.

    The knob `server_classes` declares classes as strings "module:Class". If there are some, the
    function puts the folder of the job's script first into sys.path.

    The result does not depend on what a script has imported. Raises BadInput if a string has
    another form, or if the import of a class fails.
    """
    from mxnet.lr_scheduler import LRScheduler
    from mxnet.optimizer import Optimizer

    classes = [
        cls
        for base in (Optimizer, LRScheduler)
        for cls in _family(base)
        if _OF_MXNET.match(cls.__module__)
    ]
    declared = [text for text in os.environ.get("MXCLUSTER_SERVER_CLASSES", "").split(",") if text]
    folder = os.path.join(os.environ.get("MXCLUSTER_JOB_DIR", "."), SCRIPT_FOLDER)
    if declared and os.path.isdir(folder):
        place = os.environ.get(SCRIPT_PLACE, "")
        folders = [os.path.join(folder, place), folder] if place else [folder]
        sys.path[:0] = [one for one in folders if one not in sys.path]
    return by_name(classes + [declared_class(text) for text in declared])


def by_name(classes: Iterable[type]) -> Dict[str, type]:
    """Return {"module:Class": class} of `classes`."""
    return {name_of(cls): cls for cls in classes}


def name_of(cls: type) -> str:
    """Return the name of a class as "module:Class"."""
    return "%s:%s" % (cls.__module__, cls.__name__)


def declared_class(text: str) -> type:
    """Return the class that `text` ("module:Class") names.

    Raises BadInput if `text` has another form, or if the module defines no such class.
    """
    module, _, name = text.partition(":")
    if not re.match(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", module) or not re.match(
        r"[A-Za-z_]\w*$", name
    ):
        raise BadInput(
            "%r in server_classes must be module:Class, with a class at the top level of the "
            "module: correct this entry, for example to my_module:MyOptimizer" % (text,)
        )
    try:
        found = vars(importlib.import_module(module)).get(name)
    except Exception as error:
        raise BadInput(
            "the module of %r in server_classes cannot be imported (%s: %s): put the module beside "
            "the script, or install the module on the nodes" % (text, type(error).__name__, error)
        ) from error
    if not isinstance(found, type) or name_of(found) != text:
        raise BadInput(
            "the module %s in server_classes defines no class %r%s"
            % (
                module,
                name,
                ": use %s, the defining module and class" % name_of(found)
                if isinstance(found, type)
                else ": correct the name, or define the class at the top level of the module",
            )
        )
    return found


def _family(base: type) -> Set[type]:
    """Return the set of the class `base` and all its subclasses."""
    derived: List[type] = type.__subclasses__(base)
    return {base}.union(*map(_family, derived))
