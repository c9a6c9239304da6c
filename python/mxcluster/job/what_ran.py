"""Record what a job ran: write run.json, knobs.yml, script.zip and requirements.txt.

`train.yml -e @runs/<job>/knobs.yml` repeats the job, with the kept copies of the script and of its
requirements file.
"""

import base64
import hashlib
import json
import os
from typing import Dict, Iterable, Mapping, Optional

from mxcluster import calls, file_io, package
from mxcluster.cluster import node_records
from mxcluster.job import read_knobs, user_script
from mxcluster.job.report import files
from mxcluster.model.answers import Looked
from mxcluster.model.job_knobs import MEASURING, Options
from mxcluster.model.knob import MPI, PROFILE, TRAIN, knobs_of
from mxcluster.model.plan import Plan
from mxcluster.model.run_record import Clone, Code, Hardware, NodeOfRun, RunRecord
from mxcluster.model.sweep import Knobs

KNOBS = "knobs.yml"
GIT_SECONDS = 10.0  # timeout of each command of git
# Knobs with paths of the controller, which later runs may read from another folder.
PATHS = (
    "script",
    "script_root",
    "requirements",
    "hosts_file",
    "groups_file",
    "data_sharding_file",
    "data_src",
)
HIDDEN = "***"  # in place of a value of a vault


def given_knobs(plan: Plan, written: Knobs, anew: Iterable[str]) -> Dict[str, str]:
    """Return {name: text} of the knobs that the user gave and that the job could read.

    A value that is no text becomes JSON, which the knobs accept, too.

    A value of the inventory counts if it is not the default.

    Args: `written` {name: value} as the user wrote them, with all defaults; `anew` the names of -e.
    """
    known, resolved = read_knobs.readable(plan), vars(plan.options)
    defaults = {name: one.default for name, one in knobs_of(type(plan.options)).items()}
    names = set(anew) | {name for name in known if resolved[name] != defaults[name]}
    chosen = {name: written[name] for name in sorted(names & known & set(written))}
    return {name: _text(value) for name, value in chosen.items() if value is not None}


def _text(value: object) -> str:
    # A vault is no JSON, so its value stays out.
    return str(value) if isinstance(value, str) else json.dumps(value, default=lambda _: HIDDEN)


def _parsed(text: str) -> object:
    """Return the list or dict that `text` is in JSON, else `text`, for people who read YAML."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, (list, dict)) else text


def nodes(plan: Plan, looks: Mapping[str, Looked], records_dir: str) -> Mapping[str, NodeOfRun]:
    """Return {host: its hardware and versions} of the nodes of `plan`.

    Args: `looks` {host: its answer before the start}; `records_dir` the folder of the node records.
    """
    records = node_records.read(records_dir)

    def node(host: str) -> NodeOfRun:
        seen = looks[host].machine if host in looks else None
        known = records.get(host)
        return NodeOfRun(
            python=known and known.python_version or "",
            mxnet=known and known.mxnet or "",
            numpy=known and known.numpy or "",
            wheel=known and known.wheel or "",
            **vars(seen or Hardware()),
        )

    return {host: node(host) for host in plan.nodes}


def code(options: Options, packed: str) -> Optional[Code]:
    """Return the facts about the script of a job, None without a script.

    Args: `packed` the folder of the script as a zip file in base64.
    """
    if not options.script:
        return None
    folder = options.script_root or os.path.dirname(options.script)
    return Code(
        path=user_script.name_of(options.script, options.script_root),
        folder=folder,
        sha256=hashlib.sha256(base64.b64decode(packed)).hexdigest(),
        clone=clone(folder) if os.path.isdir(folder) else None,
    )


def clone(folder: str) -> Optional[Clone]:
    """Return the state of the git clone with `folder`; None without a clone, a commit or git."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    git = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks", "-C", folder]

    def ask(*words: str) -> Optional[str]:
        ended = calls.run([*git, *words], GIT_SECONDS, environment)
        return ended.out.strip() if ended.status == 0 else None

    commit = ask("rev-parse", "--verify", "HEAD")
    changes = ask("status", "--porcelain", "--", ".") if commit else None
    return Clone(commit=commit, clean=not changes) if commit and changes is not None else None


def write(
    run_dir: str,
    record: RunRecord,
    options: Options,
    packed: str,
    anew: Iterable[str] = (),
    requirements: str = "",
) -> None:
    """Write run.json, knobs.yml and the copies of the user's files into the folder `run_dir`.

    Args: `options` of the job; `packed` the folder of the script as a zip file in base64, or "";
    `anew` the names of the knobs that the user gave with -e; `requirements` the content of the
    script's requirements file, or "".
    """
    import yaml

    os.makedirs(run_dir, exist_ok=True)
    texts = {name: text for name, text in record.given.items() if name != "job_id"}
    texts.update({name: vars(options)[name] for name in PATHS if texts.get(name)})
    if options.script and packed:
        kept = os.path.join(os.path.abspath(run_dir), package.SCRIPT_ZIP)
        name = user_script.name_of(options.script, options.script_root)
        texts.update(script=os.path.join(kept, name), script_root=kept)
        file_io.replace(kept, base64.b64decode(packed))
    if requirements:
        kept = os.path.join(os.path.abspath(run_dir), package.REQUIREMENTS)
        file_io.replace(kept, requirements)
        texts.update({"requirements": kept} if texts.get("requirements") else {})
    playbook = MPI if "mpi_command" in vars(options) else TRAIN
    playbook = PROFILE if options.program == MEASURING else playbook
    head = "# ansible-playbook %s -e @%s repeats the job %s on the same inventory.\n" % (
        playbook,
        os.path.join(run_dir, KNOBS),
        record.job,
    )
    if "secret_env" in anew:
        head += "# Give secret_env again, because no file of a run has these values.\n"
    # PyYAML represents no subclass of str, such as Ansible's texts.
    values = json.loads(json.dumps({name: _parsed(text) for name, text in texts.items()}))
    text = yaml.safe_dump(values, default_flow_style=False, allow_unicode=True)
    file_io.replace(os.path.join(run_dir, KNOBS), head + text)
    files.write_json(os.path.join(run_dir, files.RECORD), record)
