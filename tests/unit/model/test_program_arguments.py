import json

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.plan import processes
from mxcluster.model.program_arguments import ProgramArguments, of_command_line
from mxcluster.training import programs
from tests.plans import process_of


def test_the_program_gets_the_options_of_the_plan():
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
    chosen, worker = options.cast(given), process_of(gpus=[4, 6], work_load=[3.0, 0.125])
    arguments = processes.program_arguments(worker, chosen, "/data", "/job/squeeze.params")
    line = arguments.command_line()
    own = {"gpus", "work_load", "data_dir", "model_load_file"}
    names = set(given) - {"model_load_job"} | own
    assert set(json.loads(line[0])) == names, "a default is left out"
    found = of_command_line(line)
    assert found == arguments
    assert (found.lr, found.kv, found.gpus) == (1e-05, "dist_gsync", [0, 1])
    assert (found.data_dir, found.model_load_file) == ("/data", "/job/squeeze.params")


def test_a_process_without_arguments_trains_alone():
    assert of_command_line([]) == ProgramArguments() and ProgramArguments().kv == "local"


@pytest.mark.parametrize(
    "given, message",
    [
        ({"lr": -1}, "the argument lr=-1 is not a number above 0"),
        ({"kv": "dist_gsink"}, "kv='dist_gsink' is not one of local, device"),
        ({"slowdown": 0.5}, "slowdown=0.5 is not a number from 1 to"),
        ({"batch_sizes": [48, 0]}, r"batch_sizes\[1\]=0 is not a whole number from 1"),
        ({"batchsize": 1}, r"batchsize='batchsize' is not a known name \(did you mean 'batch_siz"),
        ([], "value=.* is not an object"),
    ],
)
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(BadInput, match=message):
        of_command_line([json.dumps(given)])


def test_a_bad_argument_ends_with_status_2_and_one_line(capsys):
    assert programs.main("image_classification", ["--lr 0.1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("image_classification: error: the arguments are no JSON object")
