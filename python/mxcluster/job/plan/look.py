"""Make the request for the look at a node: the requirements of a job on this node."""

import os

from mxcluster.datasets import DATASETS
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.job_knobs import MpiOptions
from mxcluster.model.node_record import NodeRecord
from mxcluster.model.node_requests import AllGpus, LookRequest, MpiRequest, Versions
from mxcluster.model.plan import WORKER, Plan

# Least resources of a job on a node: bytes of disk for logs, bytes of shared memory for MXNet's
# data loaders, and open files for connections.
LEAST_DISK, LEAST_SHM, LEAST_OPEN_FILES = 100 << 20, 16 << 20, 256


def look(
    plan: Plan, host: str, record: NodeRecord, variables: HostVariables, packed: str
) -> LookRequest:
    """Return the request for ``mxcluster.node.probe.look``: the job's requirements on `host`.

    Args: `record` and `variables` of the host; `packed` the name of the zip file of mxcluster, from
    `package.archive`.
    """
    options, node, processes = plan.options, plan.nodes[host], plan.of_host(host)
    files, trains = [], any(process.role == WORKER for process in processes)
    gpus = variables.gpus if options.gpus == "auto" else options.gpus
    cuda, mpi = record.cuda, MpiRequest.of_training(options)
    if plan.mpi and isinstance(options, MpiOptions):
        # An image has the CUDA of the program.
        cuda, files = node.cuda, [options.data_dir] if options.data_dir else []
        mpi = MpiRequest(
            runtime=plan.mpi.runtime,
            pre_execution=plan.mpi.pre_execution,
            infiniband=plan.mpi.infiniband is True,
            env=options.mpi_env,
        )
    # A measurement computes with random numbers. The playbook copies data_src to the nodes before
    # the job starts.
    elif trains and not (options.script or options.measures_cluster or options.data_src):
        if DATASETS[options.data].from_data_dir:
            files = [options.data_dir]
        elif DATASETS[options.data].file:
            folder = options.data_dir or record.data_dir
            files = [os.path.join(folder, DATASETS[options.data].file)]
    return LookRequest(
        address=node.address if plan.talks else None,
        interface=node.interface if plan.talks else None,
        ports=[process.port for process in processes if process.port is not None],
        gpus=sorted({gpu for process in processes for gpu in process.gpus}),
        cpus=sorted({cpu for process in processes for cpu in process.cpus}) or None,
        all_gpus=AllGpus(record=record.gpus, bus=record.bus) if trains and gpus == "auto" else None,
        versions=Versions(python_version=record.python_version, fingerprints=record.fingerprints),
        jobs_dir=record.job_dir,
        keep_jobs=options.keep_jobs,
        job=plan.job,
        files=files,
        data_dir=options.data_dir,
        python=record.python,
        package=packed,
        free={record.job_dir: LEAST_DISK, "/dev/shm": LEAST_SHM},
        open_files=LEAST_OPEN_FILES,
        engine=LAUNCHERS[options.launcher].engine,
        mpi=mpi,
        container=plan.container,
        cuda=cuda.folder if cuda else None,
        batch=plan.batch.resources if plan.batch else None,
    )
