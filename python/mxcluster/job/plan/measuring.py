"""Choose the knobs of a job of profile.yml, which measures the cluster and trains nothing."""

from typing import Dict, Mapping

from mxcluster.model.job_knobs import MEASURING, Options
from mxcluster.model.knob import PROFILE, names_read

PROGRAM = MEASURING  # the program of a job that measures


def knobs_of(given: Mapping[str, object]) -> Dict[str, object]:
    """Return {knob: value} for a job of profile.yml: kv=dist_async, and its knobs in `given`.

    Under dist_async no push waits for another worker, so one worker can measure alone. A
    measurement takes some knobs from the user. All other knobs keep their defaults, so that no knob
    of a training can make a measurement fail.

    Args: `given` {knob: value} from the user.
    """
    names = names_read(Options, PROFILE)
    return dict({name: given[name] for name in names if name in given}, kv="dist_async")


def is_profile(options: Options) -> bool:
    """Return True if a job with these `options` measures the cluster for a profile."""
    return options.program == PROGRAM and not options.script
