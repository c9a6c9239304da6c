"""The parameters of the optimizer that the program gives to MXNet's Module."""

import mxnet as mx

from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.node.mxnet_types import Parameters
from mxcluster.training.programs.image_classification import shard


def parameters(args: ProgramArguments, updates: float, workers: int) -> Parameters:
    """Return the parameters of SGD.

    A learning rate schedule counts updates as shard.updates() does.

    Args: `updates` the planned updates of an epoch; `workers` the number of workers of the job.
    """
    params = {"learning_rate": args.lr, "momentum": args.momentum, "wd": 1e-4}
    if args.balance != "none":
        # Module would divide by this worker's batch size times the number of workers.
        params["rescale_grad"] = 1.0 / (args.batch_size * workers)
    if args.lr_factor < 1:
        before, drops = shard.lr_drops(
            updates, args.lr_factor_epoch, args.model_load_epoch, args.num_epochs
        )
        params["learning_rate"] *= args.lr_factor**before
        if drops:
            params["lr_scheduler"] = mx.lr_scheduler.MultiFactorScheduler(drops, args.lr_factor)
    return params
