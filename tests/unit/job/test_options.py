import json

import pytest

from mxcluster import schemes
from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.model.job_knobs import Options, of_plan
from mxcluster.model.knob import read


def refused(**given):
    with pytest.raises(BadInput) as refusal:
        options.cast(given)
    return str(refusal.value)


def inherited(given, old, anew=()):
    """Return the options of a job that resumes a job with the options `old`."""
    return options.checked(options.inherit(read(Options, given), of_plan(old), anew))


def test_defaults_have_their_types():
    found = options.cast({})
    assert found.kv == "dist_sync" and found.lr == 0.05 and found.gpus == "auto"
    assert found.staleness is None and found.script_args == [] and found.env == {}
    assert Options.decode(json.loads(json.dumps(found.encode()))) == found


@pytest.mark.parametrize(
    "name, given, value",
    [
        ("batch_size", 64, 64),
        ("wait_for_room", "2h", 7200.0),
        ("wait_for_room", "1h30m", 5400.0),
        ("wait_for_room", 90, 90.0),
        ("after", "20261127-job", "20261127-job"),
        ("lr", "1e-3", 0.001),
        ("lr", 1, 1.0),
        ("savemodel", "true", True),
        ("gpus", "auto", "auto"),
        ("gpus", "", []),
        ("gpus", "0,1", [0, 1]),
        ("gpus", [0, "1"], [0, 1]),
        ("gpus", 2, [2]),
        ("cpus", "Auto", "auto"),
        ("cpus", "", []),
        ("cpus", "0-2,8", [0, 1, 2, 8]),
        ("cpus", [1, "4-5"], [1, 4, 5]),
        ("cpus", 3, [3]),
        ("batch_size", None, 32),
        ("env", {"OMP_NUM_THREADS": 1, "A": "b c"}, {"OMP_NUM_THREADS": "1", "A": "b c"}),
        ("max_time", "8h", 28800.0),
        ("max_time", " 1d2h3m4s ", 93784.0),
        ("max_time", "90", 90.0),
        ("max_time", 1.5, 1.5),
        ("max_time", 0, 0.0),
        ("expect_accuracy", "0.9", 0.9),
    ],
)
def test_a_value_is_cast_to_its_type(name, given, value):
    found = vars(options.cast({name: given}))[name]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "name, given, words",
    [
        ("batch_size", "5.5", "from 1 to"),
        ("wait_for_room", "soon", "such as 90s, 30m, 8h"),
        ("wait_for_room", "-5", "such as 90s, 30m, 8h"),
        ("wait_for_room", "999999d", "from 1 to 10000000 seconds"),
        ("wait_for_room", "0.5", "from 1 to 10000000 seconds"),
        ("after", "../other", "the id of a job"),
        ("after", "a b", "the id of a job"),
        ("elastic", "perhaps", "true or false"),
        ("batch_size", "0", "from 1 to"),
        ("num_examples", "-1", "0: all"),
        ("lr", "nan", "above 0"),
        ("lr", float("nan"), "above 0"),
        ("lr", "1e999", "above 0"),
        ("lr", True, "above 0"),
        ("savemodel", "maybe", "true or false"),
        ("gpus", "0,0", "auto"),
        ("gpus", "0-1", "auto"),
        ("cpus", "0-2,1", "auto"),
        ("cpus", "2-0", "auto"),
        ("cpus", "1-2-3", "auto"),
        ("cpus", True, "auto"),
        ("gpus", "[0", "auto"),
        ("root_port", "80", "1024"),
        ("job_id", "a/b", "letters"),
        ("data_dir", "~/data", "begins with '/'"),
        ("staleness", "2.5", "from 0 to"),
        ("script_args", '["--lr", 0.1]', "write numbers in quotes"),
        ("script_args", ["a\0b"], "list of strings"),
        ("env", {"A-B": "1"}, "dict"),
        ("kv", "dist", "dist_gsync"),
        ("max_time", "8 h", "such as 90s, 30m, 8h or 1d12h"),
        ("max_time", "3h1d", "such as 90s, 30m, 8h or 1d12h"),
        ("max_time", "", "0: no limit"),
        ("max_time", "-5m", "from 1 to 10000000 seconds"),
        ("max_time", "116d", "from 1 to 10000000 seconds"),
        ("max_time", 0.5, "from 1 to 10000000 seconds"),
        ("max_time", True, "such as 90s"),
        ("expect_accuracy", "90", "from 0 to 1"),
        ("expect_accuracy", "90%", "from 0 to 1"),
    ],
)
def test_a_refusal_names_the_value_and_the_allowed_values(name, given, words):
    message = refused(**{name: given})
    shown = repr(given)
    assert "%s=%s is refused: it must be " % (name, shown) in message and words in message, message
    assert "\n" not in message


def test_unknown_options():
    message = refused(**{"batchsize": 3, "num-epochs": "2", "colour": "red"})
    assert "'batchsize' is not an option of train.yml (did you mean 'batch_size'?)" in message
    assert "'num-epochs' is not an option of train.yml (did you mean 'num_epochs'" in message
    assert "'colour' is not an option of train.yml: correct" in message


@pytest.mark.parametrize("pattern", ["BLEU ([0-9.]+)", r"(?P<epoch>\d+) (?P<value>.)", "(a)(b)"])
def test_a_metric_is_a_regular_expression_with_a_group(pattern):
    for given in ({"bleu 4": pattern}, json.dumps({"bleu 4": pattern})):
        assert options.cast({"script": "a.py", "metrics": given}).metrics == {"bleu 4": pattern}


@pytest.mark.parametrize(
    "given",
    [
        "BLEU ([0-9.]+)",
        {"bleu": "BLEU [0-9.]+"},
        {"bleu": r"(?P<epoch>\d+)"},
        {"bleu": "BLEU ([0-9.]+"},
        {"bleu": 3},
        {"bleu": "(.)" + "a" * 298},
        {"bleu": "(a\0)"},
        {"a\nb": "(.)"},
        {"a" * 41: "(.)"},
        {"m%d" % number: "(.)" for number in range(21)},
    ],
)
def test_another_metric_is_refused(given):
    message = refused(script="a.py", metrics=given)
    assert "it must be a dict of at most 20 names, each with a regular expression of at" in message


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "--name",
            "two words",
            "",
            'quote"s',
            "it's",
            "$HOME `date` \\n",
            "--lr=0.10",
            "ü",
            " padded ",
        ],
        [],
    ],
)
def test_script_args_keep_their_quoting(arguments):
    assert options.cast({"script": "my.py", "script_args": arguments}).script_args == arguments
    as_json = options.cast({"script": "my.py", "script_args": json.dumps(arguments)})
    assert as_json.script_args == arguments


@pytest.mark.parametrize(
    "given, words",
    [
        (
            {"staleness": "0"},
            ["staleness=0", "kv=dist_sync", "leave staleness out", "kv=dist_ssync"],
        ),
        (
            {"runtime": "docker", "launcher": "mpi"},
            ["runtime=docker", "mpirun does not control", "launcher=ssh, or runtime=host"],
        ),
        ({"program": "profile"}, ["program=profile", "run profile.yml"]),
        (
            {"script_args": ["--lr", "1"]},
            ["script_args=['--lr', '1']", "needs a script", "script=path"],
        ),
        ({"data": "mnist"}, ["data=mnist", "data_dir", "folder on the nodes"]),
        ({"data_src": "/mine"}, ["data_src='/mine'", "needs data_dir"]),
        ({"num_examples": "1438"}, ["num_examples=1438", "digits", "1437"]),
        ({"model_load_epoch": "3"}, ["model_load_epoch=3", "model_load_job"]),
        ({"model_load_job": "job-1"}, ["model_load_job=job-1", "model_load_epoch"]),
        (
            {"model_load_epoch": "20", "model_load_job": "job-1"},
            ["model_load_epoch=20", "num_epochs=20", "raise"],
        ),
        ({"elastic": True}, ["elastic=true needs max_restarts: add -e max_restarts=3"]),
        (
            {"after": "mine", "job_id": "mine"},
            ["after=mine is the job_id of this job: name the job before it"],
        ),
        (
            {"wait_for_room": "2h", "after": "a", "launcher": "slurm", "max_restarts": 1},
            [
                "wait_for_room=7200 is refused with launcher=slurm",
                "after=a is refused with launcher=slurm",
            ],
        ),
        (
            {"elastic": True, "max_restarts": 1, "savemodel": True, "hosts_file": "/h"},
            ["elastic=true is refused with hosts_file"],
        ),
        ({"keep_best": True}, ["keep_best=true needs savemodel=true", "add -e savemodel=true"]),
        (
            {"keep_best": True, "savemodel": True, "script": "x.py"},
            ["no script, whose checkpoints name no epoch", "best files in $MXCLUSTER_CHECKPOINTS"],
        ),
        ({"max_restarts": "1"}, ["max_restarts=1 needs savemodel=true", "add -e savemodel=true"]),
        (
            {"max_restarts": "1", "savemodel": True, "detach": True},
            ["max_restarts=1 is refused with detach=true", "only a controller can restart"],
        ),
        (
            {"compression": "2bit", "kv": "dist_ssync"},
            [
                "compression=2bit is refused with kv=dist_ssync: the workers also push iteration",
                "Use -e compression=none",
            ],
        ),
        (
            {"compression": "2bit", "script": "my.py", "compression_threshold": "1.5"},
            [
                "compression=2bit is refused with a script",
                "{'type': '2bit', 'threshold': 1.5}",
                "before the fi",
            ],
        ),
        (
            {"bigarray_bound": "2000", "env": {"MXNET_KVSTORE_BIGARRAY_BOUND": 5000}},
            [
                "bigarray_bound=2000",
                "MXNET_KVSTORE_BIGARRAY_BOUND='5000'",
                "leave bigarray_bound or",
            ],
        ),
        ({"metrics": {"bleu": "(.)"}}, ["metrics={'bleu': '(.)'} needs a script: add the script"]),
        ({"env": {"MXCLUSTER_SHARE": "0 1", "PORT": "1"}}, ["MXCLUSTER_SHARE='0 1'", "PORT='1'"]),
    ],
)
def test_contradicting_options_are_refused(given, words):
    message = refused(**given)
    assert all(word in message for word in words), message


def test_the_last_restart_of_an_elastic_job_is_elastic():
    """It has no further restart, and the first attempt was checked."""
    last = {"elastic": True, "max_restarts": 0, "job_id": "mine-r3", "savemodel": True}
    assert options.cast(last).elastic


def test_a_script_needs_no_options_of_the_program():
    given = {
        "script": "my.py",
        "data": "mnist",
        "num_examples": "70000",
        "program": "image_classification",
    }
    assert options.cast(given).script == "my.py"


def test_valid_combinations_of_options_are_accepted():
    options.cast({"data": "mnist", "data_dir": "/data", "num_examples": "60000"})
    options.cast({"data": "synthetic", "num_examples": "10000000"})
    options.cast({"model_load_epoch": "3", "model_load_job": "job-1"})
    options.cast({"env": {"MXNET_KVSTORE_BIGARRAY_BOUND": "1000", "DMLC_PS_VAN_TYPE": "zmq"}})
    options.cast(
        {"env": {"HOME": "/x", "LD_LIBRARY_PATH": "/x", "PYTHONUNBUFFERED": "1", "TMPDIR": "/x"}}
    )
    options.cast({"stall_timeout": "0", "start_timeout": 5, "restart_delay": "0"})
    for kv in ("device", "dist_sync", "dist_device_sync", "dist_async", "dist_gsync"):
        options.cast({"compression": "2bit", "compression_threshold": "0.000001", "kv": kv})
    options.cast({"bigarray_bound": "1000", "kv": "local", "env": {"MXNET_KVSTORE": "1"}})


def test_a_resumed_job_compresses_as_before():
    old = {"kv": "dist_sync", "compression": "2bit", "compression_threshold": 0.5}
    merged = inherited({}, dict(old, bigarray_bound=2000))
    assert (merged.compression, merged.compression_threshold) == ("2bit", 0.5)
    assert merged.bigarray_bound == 0  # a matter of the machines
    assert inherited({"compression": "none"}, old, ["compression"]).compression == "none"


def test_a_given_option_counts_also_at_its_default():
    old = {"kv": "dist_async", "lr": 0.1, "lr_scale": "none", "num_epochs": 3}
    given = {"kv": "dist_sync", "lr": "0.05", "lr_scale": "auto"}
    assert inherited(given, old).lr == 0.1
    found = inherited(given, old, ["kv", "lr", "lr_scale"])
    assert found == options.cast(dict(given, num_epochs=3, gsync_y="gradient"))


@pytest.mark.parametrize(
    "old, given, scale",
    [
        ({"lr_scale": "none"}, {}, "none"),
        ({"lr_scale": "auto"}, {}, "auto"),
        ({"lr_scale": "auto"}, {"lr_scale": "none"}, "none"),
        (
            {},
            {},
            "none",
        ),  # a job planned before this option existed, which trained with lr unscaled
    ],
)
def test_a_resumed_job_keeps_the_step_size(old, given, scale):
    found = inherited(given, dict({"kv": "dist_async", "lr": 0.02}, **old))
    assert (found.lr, found.lr_scale) == (0.02, scale)
    assert options.step_size(found, 4) == (0.005 if scale == "auto" else 0.02)


def test_only_gsync_inherits_its_knobs():
    old = {"kv": "dist_gsync", "gsync_compensation": 0.04, "gsync_max_y": 8}
    names = ("gsync_compensation", "gsync_max_y")

    def found(given, old):
        return tuple(vars(inherited(given, old, list(given)))[name] for name in names)

    assert found({}, old) == (0.04, 8)
    assert found({"gsync_max_y": "0"}, old) == (0.04, 0)
    assert found({"kv": "dist_sync"}, old) == (0, 0)
    # A job that an earlier version planned, without these knobs.
    assert found({}, {"kv": "dist_gsync", "gsync_y": "rate"}) == (0, 0)


def test_another_scheme_with_servers_of_a_group_has_no_knobs_of_gsync(monkeypatch):
    row = schemes.of("dist_gsync")._replace(name="dist_other", knobs=())
    monkeypatch.setattr(schemes, "SCHEMES", schemes.SCHEMES + (row,))
    for knob in ({"gsync_max_y": 8}, {"gsync_compensation": 0.5}):
        with pytest.raises(BadInput, match="no meaning with kv=dist_other: .* use kv=dist_gsync"):
            options.checked(Options(kv="dist_other", **knob))


@pytest.mark.parametrize(
    "given, old, staleness",
    [
        ({"kv": "dist_ssync"}, {"kv": "dist_ssync", "staleness": 7}, 7),
        ({"kv": "dist_ssync", "staleness": "5"}, {"kv": "dist_ssync", "staleness": 7}, 5),
        ({"kv": "dist_async"}, {"kv": "dist_ssync", "staleness": 7}, None),
    ],
)
def test_only_ssync_inherits_the_staleness(given, old, staleness):
    assert inherited(given, old, list(given)).staleness == staleness


@pytest.mark.parametrize(
    "given, words",
    [
        ({"kv": "dist_async"}, "balance=batch is refused with kv=dist_async. Each update must sum"),
        (
            {"kv": "dist_async"},
            "Use kv=dist_sync or dist_device_sync or dist_gsync, or -e balance=none",
        ),
        (
            {"script": "train.py"},
            "balance=batch is refused with a script, because only the program",
        ),
        ({"data_allocator": 1}, "data_allocator=1 and kv=dist_sync, because the batch sizes"),
        ({"compression": "2bit"}, "balance=batch is refused with compression=2bit, because the"),
        ({"balance": "none", "step_ms": 5, "script": "x.py"}, "step_ms=5 is refused with a script"),
    ],
)
def test_what_does_not_suit_balanced_batches_is_refused(given, words):
    assert words in refused(**dict({"balance": "batch"}, **given))


@pytest.mark.parametrize(
    "given, words",
    [
        ({"kv": "dist_async"}, "balance=deadline is refused with kv=dist_async. Each update must"),
        ({"script": "train.py"}, "balance=deadline is refused with a script"),
        ({"data_allocator": 1}, "balance=deadline is refused with data_allocator=1"),
        ({"compression": "2bit"}, "balance=deadline is refused with compression=2bit, because the"),
        ({"least_batch": 33}, "least_batch=33 is more than batch_size=32"),
        ({"least_batch": "0"}, "least_batch='0' is refused"),
    ],
)
def test_what_does_not_suit_a_deadline_is_refused(given, words):
    assert words in refused(**dict({"balance": "deadline"}, **given))


@pytest.mark.parametrize(
    "given,words",
    [
        ({"env": {"MXNET_KVSTORE_BIGARRAY_BOUND": "1e6"}}, "must be a whole number from 1 to"),
        ({"measured": "50", "resume": "one"}, "measured=50 is refused with resume=one"),
        (
            {"measure_waits": "true", "script": "a.py"},
            "measure_waits=true is refused with a script",
        ),
        ({"measured": "-1"}, "measured='-1' is refused"),
        ({"evaluations": "9", "measured": "50"}, "evaluations=9 is refused with measured=50"),
        ({"evaluations": "9", "script": "a.py"}, "evaluations=9 is refused with a script"),
        (
            {"evaluations": "9", "savemodel": "true", "keep_best": "true"},
            "evaluations=9 is refused with keep_best=true",
        ),
        ({"momentum": "1"}, "momentum='1' is refused"),
    ],
)
def test_an_impossible_measurement_is_refused(given, words):
    with pytest.raises(BadInput) as refusal:
        options.cast(given)
    assert words in str(refusal.value)
