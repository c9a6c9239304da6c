"""Find the checkpoint from which a job resumes, and the knobs that the job takes over."""

import os
from typing import Iterable, List, NamedTuple, Optional, Tuple

from mxcluster import checkpoints, package
from mxcluster.errors import BadInput
from mxcluster.file_io import read_json
from mxcluster.job import options as knobs
from mxcluster.lists import several, unique
from mxcluster.model.job_knobs import Options
from mxcluster.model.names import is_job_id
from mxcluster.model.plan import EarlierPlan


class Found(NamedTuple):
    """The result of the search for a checkpoint.

    Attributes:
        checkpoint: the last complete checkpoint, None if no checkpoint is complete.
        problems: a line about each skipped checkpoint.
        jobs: the ids of the searched jobs.
    """

    checkpoint: Optional[checkpoints.Checkpoint]
    problems: List[str]
    jobs: List[str]


def resumed(
    given: Options, runs_dir: str, anew: Iterable[str] = ()
) -> Tuple[Options, checkpoints.Checkpoint, List[str]]:
    """Return (options, Checkpoint, notes) of a job that resumes the earlier job `given.resume`.

    `find_checkpoint` chooses the Checkpoint. The notes are lines for the user. Raises BadInput if
    the earlier job cannot be resumed.

    Args: as for `inputs.plan_job`.
    """
    job = given.resume
    old = _inherited(job, given, runs_dir)
    merged = knobs.inherit(given, old, list(anew))
    kept = os.path.join(os.path.abspath(runs_dir), job, package.REQUIREMENTS)
    if merged.requirements and not given.requirements and os.path.isfile(kept):
        merged = merged.replaced(requirements=kept)
    found = find_checkpoint(job, runs_dir, merged)
    checkpoint = found.checkpoint
    if not checkpoint:
        raise BadInput("\n".join([_no_checkpoint(job, runs_dir, merged, found)] + found.problems))
    where = os.path.join(runs_dir, found.jobs[-1], checkpoints.FOLDER, checkpoint.name)
    skipped = ["skipped: " + problem for problem in found.problems]
    if merged.script:
        note = "resumes from %s, with %s" % (where, several(len(checkpoint.files) - 1, "file"))
        return merged, checkpoint, [note] + skipped
    if merged.num_epochs <= checkpoint.epoch:
        raise BadInput(
            "resume=%s: the job has already trained %s, and num_epochs is %s: give a larger "
            "num_epochs, such as -e num_epochs=%d"
            % (job, several(checkpoint.epoch, "epoch"), merged.num_epochs, 2 * checkpoint.epoch)
        )
    note = "resumes from %s, after epoch %d" % (where, checkpoint.epoch)
    merged = merged.replaced(model_load_epoch=checkpoint.epoch, model_load_job=found.jobs[-1])
    return merged, checkpoint, [note] + skipped


def _inherited(job: str, given: Options, runs_dir: str) -> Options:
    """Return the options of the earlier job `job`.

    Raises BadInput if its plan is missing or damaged, if it ran the program of mxcluster and
    `given` names a script, or if `given` names another model.
    """
    folder = os.path.join(runs_dir, job)
    try:
        old = _options_of_run(folder)
    except BadInput as refusal:
        raise BadInput("resume=%s: %s" % (job, refusal)) from refusal
    if old is None:
        raise BadInput("resume=%s: %s has no plan.json: name a job in %s" % (job, folder, runs_dir))
    for name in ("model_load_epoch", "model_load_job"):
        if vars(given)[name]:
            raise BadInput(
                "%s=%s is refused with resume=%s, because a resumed job loads the last checkpoint: "
                "leave %s out" % (name, vars(given)[name], job, name)
            )
    if given.script and not old.script:
        raise BadInput(
            "resume=%s: this job ran the training program, whose checkpoint the script %s cannot "
            "read: leave the script out, or name a job that ran the script" % (job, given.script)
        )
    return old


def _no_checkpoint(job: str, runs_dir: str, options: Options, found: Found) -> str:
    """Return the message that no checkpoint of the job with `options` is complete."""
    if options.script:
        return (
            "resume=%s: no complete checkpoint of the script in %s. The script saves its "
            "checkpoints in the folder $MXCLUSTER_CHECKPOINTS; start a new job without resume"
            % (job, os.path.join(runs_dir, job, checkpoints.FOLDER))
        )
    network = options.network
    others = [
        other
        for one in found.jobs
        for other in checkpoints.networks(os.path.join(runs_dir, one, checkpoints.FOLDER))
        if other != network
    ]
    earlier = found.jobs[1:]
    also = ", or in the jobs before a resume (%s)" % ", ".join(earlier) if earlier else ""
    return "resume=%s: no complete checkpoint of %s in %s%s. %s" % (
        job,
        network,
        os.path.join(runs_dir, job, checkpoints.FOLDER),
        also,
        "There are checkpoints of %s: leave network out" % ", ".join(unique(others))
        if others
        else "Start a new job with -e savemodel=true, which saves checkpoints",
    )


def find_checkpoint(job: str, runs_dir: str, options: Options, digests: bool = True) -> Found:
    """Return the last complete checkpoint of `job`, of the network or the script in `options`.

    Of a script whose workers have all saved, the first worker counts. If `digests` is False, the
    function checks only the sizes of the files.

    If `job` has no complete checkpoint and resumed an earlier job, the function searches the folder
    of the earlier job, and so on.
    """
    problems: List[str] = []
    jobs: List[str] = []
    while is_job_id(job) and job not in jobs:
        jobs.append(job)
        folder = os.path.join(runs_dir, job, checkpoints.FOLDER)
        for network in checkpoints.workers(folder) if options.script else [options.network]:
            checkpoint, wrong = checkpoints.last_complete(folder, network, digests)
            problems += wrong
            if checkpoint:
                return Found(checkpoint, problems, jobs)
        try:
            earlier = _options_of_run(os.path.join(runs_dir, job))
        except BadInput as refusal:
            problems.append(str(refusal))
            break
        job = earlier.resume if earlier else ""
    return Found(None, problems, jobs)


def _options_of_run(folder: str) -> Optional[Options]:
    """Return the options in plan.json of the run folder `folder`, or None without this file.

    Raises BadInput if the file is damaged.
    """
    found: Optional[EarlierPlan] = read_json(os.path.join(folder, "plan.json"), EarlierPlan.decode)
    return found.options if found else None
