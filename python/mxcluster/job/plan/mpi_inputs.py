"""Read the inputs of an MPI job on the controller, and make the plan of the job."""

import base64
import io
import os
import zipfile
from typing import List, Mapping, Optional, Tuple

from mxcluster import package
from mxcluster.cluster import node_records
from mxcluster.errors import BadInput, refuse
from mxcluster.job.options import refuse_secret_env
from mxcluster.job.plan import Inputs, inputs, mpi
from mxcluster.job.plan.ports import Held
from mxcluster.lists import grouped
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import NO_SECRETS, Secrets
from mxcluster.model.plan import MPI_KIND
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import optional, words

MOST = 64 << 20  # limit for the sum of all resource files, in bytes


class Engine(Record):
    """The MPI engine of a node."""

    engine: str = field(words)
    version: Optional[str] = field(optional(words), default=None)


def plan_job(
    given: Mapping[str, object],
    inventory: Inventory,
    folders: inputs.Folders,
    secrets: Secrets = NO_SECRETS,
    held: Optional[Held] = None,
) -> inputs.Planned:
    """Return the plan of an MPI job and the data for the start of the job.

    Arguments and result are as for `inputs.plan_job`. The function reads only the
    knobs of mpi.yml.
    """
    # An MPI job uses only the group workers. With kv=local, `inputs.without` checks only workers.
    options = mpi.cast(given)
    refuse_secret_env(secrets, options.mpi_env)
    job = inputs.new_job(options.job_id, MPI_KIND, folders.runs)
    paths = [
        inputs.existing("mpi_resource_files", path, folders.cwd, folder=None)
        for path in options.mpi_resource_files
    ]
    notes: List[str] = []
    needs = Inputs(
        options=options.replaced(mpi_resource_files=paths),
        inventory=inventory,
        records=node_records.read(folders.records),
        job=job,
        held=held,
    )
    if options.without:
        needs, notes = inputs.without(needs)
    plan = mpi.make_plan(needs)
    return inputs.planned(needs, plan, notes + [mpi.table(plan)], pack(paths))


def pack(paths: List[str]) -> str:
    """Return a zip file in base64 with the files and folders `paths`; "" without paths.

    The names in the zip file leave out the parent folders of `paths`. Raises BadInput if two of
    `paths` have the same name, if a file cannot be read, or if all files together exceed MOST
    bytes.
    """
    if not paths:
        return ""
    same = grouped((os.path.basename(path), path) for path in paths)
    refuse(
        "mpi_resource_files: %s have the same name, and mxcluster copies all files to one folder: "
        "rename one of these files" % " and ".join(found)
        for found in same.values()
        if len(found) > 1
    )
    content, size = io.BytesIO(), 0
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in _files(paths):
            try:
                size += os.path.getsize(path)
                if size > MOST:
                    raise BadInput(
                        "mpi_resource_files hold more than %d MB, and each node gets a copy: put "
                        "large data on the nodes yourself" % (MOST >> 20)
                    )
                member = zipfile.ZipInfo(name, package.TIMESTAMP)
                runs = os.stat(path).st_mode & 0o111
                member.external_attr = package.EXECUTABLE if runs else package.READABLE
                with open(path, "rb") as stream:
                    packed.writestr(member, stream.read(), zipfile.ZIP_DEFLATED)
            except OSError as error:
                raise BadInput(
                    "mpi_resource_files: %s cannot be read (%s): let your user read the "
                    "file on the controller, or leave the file out" % (path, error.strerror)
                ) from error
    return base64.b64encode(content.getvalue()).decode("ascii")


def _files(paths: List[str]) -> List[Tuple[str, str]]:
    """Return [(name in the zip file, path)] of all files in `paths`, sorted by name."""
    found = []
    for top in paths:
        if not os.path.isdir(top):
            found.append((os.path.basename(top), top))
        for parent, _, names in os.walk(top):
            for name in names:
                path = os.path.join(parent, name)
                if os.path.isfile(path):
                    found.append((os.path.relpath(path, os.path.dirname(top)), path))
    return sorted(found)


def different_engines(engines: Mapping[str, Optional[Engine]]) -> str:
    """Return a message if nodes have different MPI engines or versions, else "".

    Daemons of different versions cannot work together.

    Args: `engines` {host: its engine, None without one}. Hosts without an engine do not count.
    """
    versions = grouped(
        ("%s %s" % (known.engine, known.version), host)
        for host, known in sorted(engines.items())
        if known
    )
    if len(versions) < 2:
        return ""
    return (
        "the nodes have different MPI engines (%s), and a job needs one version: install the same "
        "engine on all nodes; on nodes with several engines, choose one engine with -e "
        "mpi_runtime= or in mpi_pre_execution_command"
        % "; ".join("%s: %s" % (name, ", ".join(versions[name])) for name in sorted(versions))
    )
