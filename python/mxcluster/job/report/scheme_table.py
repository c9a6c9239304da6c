"""Make the table of profile.yml that compares the schemes, with the command for the best one."""

import shlex
from typing import List, Mapping

from mxcluster.cluster import predictions
from mxcluster.cluster.predictions import Prediction
from mxcluster.job.verdict_text import figure, printable
from mxcluster.lists import aligned
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import read
from mxcluster.model.plan import Plan
from mxcluster.model.profile import Profile

HEADINGS = ("", "scheme", "samples/s", "of the limit", "stale gradients", "knobs of train.yml")
MOST_SHOWN = 40  # characters of a value in the table
# The knobs of the job that measured the profile that its command keeps: those of the model, and
# those that choose the machines.
KEPT = ("network", "data", "batch_size", "without", "num_servers", "hosts_file", "gpus")


def lines(profile: Profile, plan: Plan, inventory: str = "") -> List[str]:
    """Return the predictions for the schemes as a table, its meaning, and the command to run.

    The list is empty for a cluster with one worker.

    Args: `plan` of the job that measured the profile; `inventory` the argument of -i in the
    command, "" for no -i.
    """
    found, limit = predictions.predict(profile), predictions.limit(profile)
    if not found:
        return []
    chosen = predictions.best(found, profile)
    rows = [HEADINGS] + [
        (
            "use" if one is chosen else "",
            one.title,
            figure(one.samples_per_s),
            "%.0f %%" % (100 * one.samples_per_s / limit),
            one.stale,
            " ".join("%s=%s" % (name, _short(value)) for name, value in one.knobs.items()),
        )
        for one in found
    ]
    return [
        printable(line)
        for line in [
            "predicted speed of each scheme while all its workers train, not measured:",
            *aligned(rows),
            "the limit is %s samples/s, the sum of the speeds alone" % figure(limit),
            "samples/s are not accuracy: with stale gradients a training needs more samples",
            *_about_script(chosen),
            *_about_labels(profile, plan),
            "use       %s" % command(chosen, plan, inventory),
        ]
    ]


def command(chosen: Prediction, plan: Plan, inventory: str = "") -> str:
    """Return the command that trains with the scheme `chosen`.

    The command also has the knobs KEPT of the job that measured, unless they are the defaults of
    train.yml. Args: `plan` and `inventory` as for `lines`.
    """
    words = [
        "ansible-playbook",
        *(["-i", shlex.quote(inventory)] if inventory else []),
        "train.yml",
    ]
    for name, value in {**_kept(chosen, plan.options), **chosen.knobs}.items():
        # Ansible divides the word at its spaces, as a shell does.
        words += ["-e", shlex.quote("%s=%s" % (name, shlex.quote(value) if value else ""))]
    return " ".join(words)


def _short(value: str) -> str:
    """Return the beginning of a long list of hosts. The command has all of them."""
    return value if len(value) <= MOST_SHOWN else value[: MOST_SHOWN - 3] + "..."


def _kept(chosen: Prediction, options: Options) -> Mapping[str, str]:
    """Return {knob: value} of the knobs KEPT in `options`, without defaults.

    The number of workers is that of the scheme `chosen`, which may leave out some of them.
    """
    given, usual = vars(options), vars(read(Options, {}))
    found = {
        name: ",".join(map(str, given[name])) if isinstance(given[name], list) else str(given[name])
        for name in KEPT
        if given[name] != usual[name]
    }
    return dict(found, **({"num_workers": str(chosen.workers)} if options.num_workers else {}))


def _about_script(chosen: Prediction) -> List[str]:
    if "balance" not in chosen.knobs:
        return []
    return ["balance is for the program of mxcluster: for a script, take a row without balance"]


def _about_labels(profile: Profile, plan: Plan) -> List[str]:
    """Return [a note] if the inventory has groups other than those of the profile, else []."""
    given, found = (sorted(map(sorted, groups)) for groups in (plan.groups, profile.groups))
    if len(given) < 2 or given == found:
        return []
    return [
        "the inventory has other groups (worker_group), which dist_gsync prefers to those of the "
        "profile: remove worker_group to train with the groups of the profile"
    ]
