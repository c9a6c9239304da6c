"""The program's command line: options of train.yml with their defaults and checks, and what the nodes add to them."""
import argparse

from mxcluster import casts, options
from mxcluster.errors import BadInput

# Argument -> its option in train.yml, where type, default and limits stand.
SHARED = {
    "--network": "network", "--data": "data", "--batch-size": "batch_size", "--lr": "lr", "--lr-factor": "lr_factor",
    "--lr-factor-epoch": "lr_factor_epoch", "--num-epochs": "num_epochs", "--num-examples": "num_examples",
    "--kv-store": "kv", "--data-allocator": "data_allocator", "--seed": "seed",
    "--model-load-epoch": "model_load_epoch", "--keep-checkpoints": "keep_checkpoints", "--on-nan": "on_nan",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise BadInput("%s; --help lists the arguments" % message)


def parse(argv):
    """Parse and check argv (list of str): a Namespace with an attribute per option, such as `kv` and `batch_size`.

    Raises BadInput for what cannot be; `gpus` becomes a list of int.
    """
    declared = {option.name: option for option in options.OPTIONS}
    parser = _Parser(prog="image_classification", allow_abbrev=False,
                     formatter_class=argparse.ArgumentDefaultsHelpFormatter,
                     description="Trains a network on images, as a worker of mxcluster or as one process alone.")
    for flag, name in SHARED.items():
        parser.add_argument(flag, dest=name, default=declared[name].default, help=declared[name].message)
    # Alone there is nobody to wait for, and no node whose GPUs were looked up.
    parser.set_defaults(kv="local")
    parser.add_argument("--gpus", default="", help="GPU numbers such as 0,1; empty: CPU")
    parser.add_argument("--data-dir", default="", help="folder with the data set's files; empty: $MXCLUSTER_DATA_DIR")
    parser.add_argument("--savemodel", action="store_true", help="worker 0 writes checkpoints into $MXCLUSTER_JOB_DIR")
    parser.add_argument("--model-load-file", default="", metavar="PATH",
                        help=".params file of a checkpoint, saved after epoch --model-load-epoch")
    args = parser.parse_args(argv)
    problems = []
    for flag, name in list(SHARED.items()) + [("--gpus", "gpus")]:
        try:
            setattr(args, name, casts.cast_value(declared[name]._replace(name=flag), getattr(args, name)))
        except BadInput as refusal:
            problems.append(str(refusal))
    if args.gpus == "auto":
        problems.append("--gpus auto is for train.yml, which looks at the nodes: name the GPUs, as 0,1")
    if problems:
        raise BadInput("; ".join(problems))
    if args.batch_size < len(args.gpus):
        raise BadInput("--batch-size %d cannot be divided among %d GPUs" % (args.batch_size, len(args.gpus)))
    _check_load(args)
    return args


def _check_load(args):
    if bool(args.model_load_epoch) != bool(args.model_load_file):
        raise BadInput("--model-load-epoch (%d) and --model-load-file (%r) belong together: the number of epochs that "
                       "a model has been trained for, and its .params file"
                       % (args.model_load_epoch, args.model_load_file))
    if args.model_load_epoch >= args.num_epochs:
        raise BadInput("--model-load-epoch %d leaves nothing to train: --num-epochs %d counts all epochs of the model, "
                       "those before it was saved too" % (args.model_load_epoch, args.num_epochs))
