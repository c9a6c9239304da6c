"""The command line of image_classification: flags of the knobs, and flags that the plan adds."""

import argparse
from typing import Any, Dict, List, NoReturn

from mxcluster import schemes, work_load
from mxcluster.errors import BadInput
from mxcluster.job import option_types
from mxcluster.job.knob_table import OPTIONS
from mxcluster.model.host_variables import SLOWDOWN, slowdown_factor
from mxcluster.numbers import to_int

# {flag: knob of train.yml}. The table of knobs has the type, default and limits of each knob.
SHARED = {knob.flag: knob.name for knob in OPTIONS if knob.flag}
_WORK_LOAD = option_types.Option(
    "work_load",
    [],
    option_types.to_numbers,
    lambda numbers: all(number > 0 for number in numbers),
    "numbers above 0, one for each GPU, such as 3,1",
)


def _to_sizes(value: str) -> List[int]:
    """Return the batch sizes in a string such as "48,16", or [] for "".

    Raises ValueError for an invalid number.
    """
    return [to_int(size) for size in value.split(",")] if value else []


# Flags that the plan adds. The module `batch_sizes` checks the sizes against each other.
_SIZES = tuple(
    option_types.Option(
        "--batch-" + name,
        "",
        _to_sizes,
        lambda sizes: all(size >= 1 for size in sizes),
        "a batch size of at least 1 for each worker, such as 48,16",
    )
    for name in ("sizes", "least", "most")
)
_SLOWDOWN = option_types.Option("--slowdown", 1.0, slowdown_factor, None, SLOWDOWN)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput("%s; --help lists the arguments" % message)


def parse(argv: List[str]) -> argparse.Namespace:
    """Return the options in `argv` as a Namespace, with an attribute for each option.

    `gpus` is a list of int. `work_load` is a list of float, [] for equal parts. Raises BadInput for
    a wrong flag or value.
    """
    declared: Dict[str, Any] = {knob.name: knob for knob in OPTIONS}
    parser = _Parser(
        prog="image_classification",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Trains a network on images, as a worker of mxcluster or as one process alone.",
    )
    for flag, name in SHARED.items():
        knob = declared[name]
        parser.add_argument(
            flag,
            dest=name,
            default=knob.default,
            action="store_true" if knob.default is False else "store",
            help=knob.description.replace("%", "%%"),
        )
    # A process that a user starts by hand has no servers, and no plan names its GPUs.
    parser.set_defaults(kv="local")
    parser.add_argument(
        "--gpus", default="", help="GPU numbers, such as 0,1. An empty string means the CPU"
    )
    parser.add_argument(
        "--work-load",
        default="",
        help="relative speeds of the GPUs, such as 3,1. The GPUs share a batch in this "
        "proportion. An empty string means equal parts",
    )
    parser.add_argument(
        "--data-dir",
        default="",
        help="folder of the data set's files. An empty string means $MXCLUSTER_DATA_DIR",
    )
    parser.add_argument(
        "--model-load-file",
        default="",
        metavar="PATH",
        help=".params file of a checkpoint, saved after --model-load-epoch epochs",
    )
    parser.add_argument(
        "--batch-sizes",
        default="",
        help="the first batch size of each worker under --balance batch, such as 48,16. An empty "
        "string means equal sizes",
    )
    parser.add_argument(
        "--batch-least",
        default="",
        help="the least batch size of each worker under --balance batch. An empty string means 1",
    )
    parser.add_argument(
        "--batch-most",
        default="",
        help="the largest batch size of each worker under --balance batch. An empty string means "
        "no limit",
    )
    parser.add_argument(
        "--slowdown",
        default="1",
        help="factor for the time of each step, at least 1, to emulate a slower node",
    )
    args = parser.parse_args(argv)
    problems = []
    declared["work_load"] = _WORK_LOAD
    for flag, name in list(SHARED.items()) + [("--gpus", "gpus"), ("--work-load", "work_load")]:
        try:
            setattr(
                args,
                name,
                option_types.cast_value(declared[name]._replace(name=flag), getattr(args, name)),
            )
        except BadInput as refusal:
            problems.append(str(refusal))
    for option in (*_SIZES, _SLOWDOWN):
        name = option.name.lstrip("-").replace("-", "_")
        try:
            setattr(args, name, option_types.cast_value(option, getattr(args, name)))
        except BadInput as refusal:
            problems.append(str(refusal))
    if args.gpus == "auto":
        problems.append(
            "--gpus auto is for train.yml, which finds the GPUs of each node: name the GPUs, such "
            "as 0,1"
        )
    if problems:
        raise BadInput("; ".join(problems))
    _check_work_load(args)
    _check_balance(args)
    _check_load(args)
    return args


def _check_work_load(args: argparse.Namespace) -> None:
    speeds = args.work_load
    if speeds and len(speeds) != len(args.gpus):
        raise BadInput(
            "--work-load has %d numbers for %d GPUs: give one number for each GPU of --gpus"
            % (len(speeds), len(args.gpus))
        )
    samples = work_load.split(args.batch_size, speeds or [1] * len(args.gpus)) if args.gpus else []
    if 0 in samples:
        raise BadInput(
            "--batch-size %d cannot be divided among %d GPUs, because a GPU would get no sample "
            "(samples of each GPU: %s): use a larger batch or fewer GPUs"
            % (args.batch_size, len(args.gpus), ", ".join(map(str, samples)))
        )


def _check_balance(args: argparse.Namespace) -> None:
    fitting = [one.name for one in schemes.SCHEMES if schemes.sums_every_step(one)]
    if args.balance != "none" and args.kv not in fitting:
        raise BadInput(
            "--balance %s does not work with --kv-store %s: use --kv-store %s, or --balance none"
            % (args.balance, args.kv, " or ".join(fitting))
        )
    if args.balance == "none" and (args.batch_sizes or args.batch_least or args.batch_most):
        raise BadInput(
            "--batch-sizes, --batch-least and --batch-most have no effect without --balance batch: "
            "leave these options out, or add --balance batch"
        )


def _check_load(args: argparse.Namespace) -> None:
    if bool(args.model_load_epoch) != bool(args.model_load_file):
        raise BadInput(
            "--model-load-epoch (%d) or --model-load-file (%r) is missing: give both the number of "
            "epochs that the model has been trained for, and the model's .params file"
            % (args.model_load_epoch, args.model_load_file)
        )
    if args.model_load_epoch >= args.num_epochs:
        raise BadInput(
            "--model-load-epoch %d leaves nothing to train: --num-epochs %d counts all epochs of "
            "the model, also the epochs of the loaded checkpoint. Use a larger --num-epochs"
            % (args.model_load_epoch, args.num_epochs)
        )
