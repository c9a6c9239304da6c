import pytest

from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.plan import processes
from mxcluster.training.programs import image_classification
from mxcluster.training.programs.image_classification import args


def test_defaults_are_those_of_train_yml():
    parsed = vars(args.parse([]))
    declared = options.cast({})
    for name in args.SHARED.values():
        assert parsed[name] == ("local" if name == "kv" else declared[name]), name
    assert parsed["gpus"] == [] and parsed["savemodel"] is False


def test_the_plans_arguments_are_accepted():
    given = {
        "kv": "dist_gsync",
        "network": "squeezenet1.0",
        "lr": "1e-05",
        "lr_factor": 0.5,
        "num_epochs": 7,
        "data_allocator": 1,
        "seed": 3,
        "savemodel": True,
        "model_load_epoch": 2,
        "model_load_job": "earlier",
    }
    chosen = options.cast(given)
    parsed = vars(
        args.parse(
            processes.program_arguments({"gpus": [4, 6]}, chosen, "/data", "/job/squeeze.params")
        )
    )
    for name in args.SHARED.values():
        assert parsed[name] == chosen[name], name
    assert parsed["gpus"] == [0, 1] and parsed["savemodel"] is True
    assert (parsed["data_dir"], parsed["model_load_file"]) == ("/data", "/job/squeeze.params")


def test_gpus_of_unequal_speed_share_a_batch():
    worker = {"gpus": [4, 6], "work_load": [3.0, 0.125]}
    parsed = args.parse(processes.program_arguments(worker, options.cast({}), "/data", None))
    assert parsed.work_load == [3.0, 0.125] and parsed.gpus == [0, 1]
    assert args.parse(["--gpus", "0,1"]).work_load == []


@pytest.mark.parametrize(
    "argv,message",
    [
        (["--lr", "nan"], "--lr='nan' is refused: it must be a number above 0"),
        (
            ["--batch-size", "0"],
            "--batch-size='0' is refused: it must be a whole number from 1 to",
        ),
        (["--kv-store", "dist_gsink"], r"--kv-store='dist_gsink' .* \(did you mean 'dist_gsync'"),
        (["--data", "minst"], r"--data='minst' .* \(did you mean 'mnist'"),
        (["--gpus", "0,0"], "--gpus='0,0' is refused"),
        (["--gpus", "auto"], "--gpus auto is for train.yml"),
        (["--gpus", "0,1", "--batch-size", "1"], "--batch-size 1 cannot be divided among 2 GPUs"),
        (["--gpus", "0,1,2,3", "--batch-size", "6"], "samples of each GPU: 2, 2, 2, 0"),
        (["--gpus", "0,1", "--work-load", "100,1"], "samples of each GPU: 32, 0"),
        (["--gpus", "0,1", "--work-load", "3"], "--work-load has 1 numbers for 2 GPUs"),
        (["--work-load", "3,1"], "--work-load has 2 numbers for 0 GPUs"),
        (["--gpus", "0,1", "--work-load", "3,0"], "--work-load='3,0' is refused: it must be num"),
        (["--compression", "1bit"], "--compression='1bit' is refused"),
        (["--slowdown", "0.5"], "--slowdown='0.5' is refused: it must be a factor from 1"),
        (["--step-ms", "-1"], "--step-ms='-1' is refused"),
        (
            ["--balance", "batch"],
            "--balance batch does not work with --kv-store local: use --kv-store dist_sync",
        ),
        (["--batch-sizes", "48,16"], "have no effect without --balance batch"),
        (["--batch-most", "48,x"], "--batch-most='48,x' is refused: it must be a batch size"),
        (["--batch-sizes", "48,0"], "--batch-sizes='48,0' is refused"),
        (["--learning-rate", "1"], "unrecognized arguments: --learning-rate 1; --help"),
        (["--model-load-epoch", "3"], "--model-load-file"),
        (["--model-load-file", "x.params"], "--model-load-epoch"),
        (
            ["--model-load-epoch", "20", "--model-load-file", "x"],
            "leaves nothing to train: --num-epochs 20",
        ),
    ],
)
def test_bad_arguments_are_refused(argv, message):
    with pytest.raises(BadInput, match=message):
        args.parse(argv)


def test_the_plans_batch_sizes_are_accepted():
    parsed = args.parse(
        ["--kv-store", "dist_sync", "--balance", "batch", "--batch-sizes", "48,16"]
        + ["--batch-most", "48,64", "--slowdown", "2"]
    )
    assert (parsed.batch_sizes, parsed.batch_least, parsed.batch_most) == ([48, 16], [], [48, 64])
    assert parsed.slowdown == 2.0 and args.parse([]).slowdown == 1.0


def test_a_bad_argument_ends_with_status_2_and_one_line(capsys):
    assert image_classification.main(["--lr", "-1", "--num-epochs", "x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "--lr='-1'" in lines[0] and "--num-epochs='x'" in lines[0], lines
