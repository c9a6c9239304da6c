import json

import pytest

from mxcluster import schemes
from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.model.job_knobs import Options, of_plan
from mxcluster.model.knob import knobs_of, read


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


def test_every_default_may_be_a_string():
    def text(value):
        return (
            ""
            if value is None
            else json.dumps(value)
            if isinstance(value, (list, dict))
            else str(value)
        )

    assert options.cast(
        {name: text(knob.default) for name, knob in knobs_of(Options).items()}
    ) == options.cast({})


@pytest.mark.parametrize(
    "name, given, value",
    [
        ("batch_size", "64", 64),
        ("batch_size", 64, 64),
        ("lr", "0.1", 0.1),
        ("lr", "1e-3", 0.001),
        ("lr", 1, 1.0),
        ("lr", 0.1, 0.1),
        ("lr_factor", "1", 1.0),
        ("heartbeat_timeout", "5", 5),
        ("savemodel", "true", True),
        ("savemodel", "0", False),
        ("plan_only", "ON", True),
        ("gpus", "auto", "auto"),
        ("gpus", "", []),
        ("gpus", "0,1", [0, 1]),
        ("gpus", [0, "1"], [0, 1]),
        ("gpus", "[0, 1]", [0, 1]),
        ("gpus", 2, [2]),
        ("kv", "dist_async", "dist_async"),
        ("data_allocator", "1", 1),
        ("job_id", "2026.my_job-1", "2026.my_job-1"),
        ("batch_size", None, 32),
        ("root_port", "65000", 65000),
        ("env", {"OMP_NUM_THREADS": 1, "A": "b c"}, {"OMP_NUM_THREADS": "1", "A": "b c"}),
        ("env", '{"A": "x=\\"1\\""}', {"A": 'x="1"'}),
    ],
)
def test_a_value_is_cast_to_its_type(name, given, value):
    found = vars(options.cast({name: given}))[name]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "name, given, words",
    [
        ("batch_size", "5.5", "from 1 to"),
        ("batch_size", "0", "from 1 to"),
        ("batch_size", "", "whole number"),
        ("batch_size", "1_000", "whole number"),
        ("num_examples", "-1", "0: all"),
        ("seed", "-1", "from 0"),
        ("lr", "nan", "above 0"),
        ("lr", float("nan"), "above 0"),
        ("lr", "1e999", "above 0"),
        ("lr", "0", "above 0"),
        ("lr", True, "above 0"),
        ("lr_factor", "0", "at most 1"),
        ("lease", "0", "seconds"),
        ("savemodel", "maybe", "true or false"),
        ("plan_only", "", "true or false"),
        ("gpus", "0,0", "auto"),
        ("gpus", "-1", "auto"),
        ("gpus", True, "auto"),
        ("gpus", "[0", "auto"),
        ("ps_verbose", "3", "0, 1 or 2"),
        ("root_port", "80", "1024"),
        ("job_id", "a/b", "letters"),
        ("job_id", "..", "letters"),
        ("job_id", "-x", "letters"),
        ("data_dir", "~/data", "begins with '/'"),
        ("network", "", "the name of a network"),
        ("model_load_job", "../x", "runs/"),
        ("staleness", "-1", "from 0 to"),
        ("staleness", "2.5", "from 0 to"),
        ("script_args", "--lr 0.1", "list of strings"),
        ("script_args", '["--lr", 0.1]', "write numbers in quotes"),
        ("script_args", {"a": "b"}, "list of strings"),
        ("script_args", ["a\0b"], "list of strings"),
        ("env", "A=1", "dict of environment variables"),
        ("env", ["A"], "dict"),
        ("env", {"A-B": "1"}, "dict"),
        ("env", {"A": True}, "dict"),
        ("env", {"A": "1\n2"}, "one line"),
        ("kv", "dist", "dist_gsync"),
        ("kv", ["local"], "one of local"),
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


def test_all_bad_options_are_reported_one_line_each():
    lines = refused(kv="bsp", batch_size="x", lr="-1", nonsense=1).splitlines()
    assert len(lines) == 4 and sorted(line.split("=")[0].split(" ")[0] for line in lines) == [
        "'nonsense'",
        "batch_size",
        "kv",
        "lr",
    ]


def test_messages_cut_long_values():
    for message in (refused(batch_size="9" * 10000 + "x"), refused(lr=10**400)):
        assert "999..." in message or "000..." in message
        assert len(message) < 400


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
        ["1", "true"],
        [],
    ],
)
def test_script_args_keep_their_quoting(arguments):
    assert options.cast({"script": "my.py", "script_args": arguments}).script_args == arguments
    as_json = options.cast({"script": "my.py", "script_args": json.dumps(arguments)})
    assert as_json.script_args == arguments


@pytest.mark.parametrize(
    "given, value",
    [
        ({"kv": "dist_ssync"}, 3),
        ({"kv": "dist_ssync", "staleness": "0"}, 0),
        ({"kv": "dist_ssync", "staleness": 7}, 7),
    ],
)
def test_the_value_of_staleness(given, value):
    assert options.cast(given).staleness == value


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
        (
            {"runtime": "podman", "launcher": "slurm"},
            ["runtime=podman", "launcher=slurm", "srun does not control", "runtime=host"],
        ),
        (
            {"runtime": "docker", "launcher": "sge", "parallel_environment": "mpi"},
            ["runtime=docker", "launcher=sge", "qrsh does not control", "runtime=host"],
        ),
        (
            {"gsync_compensation": "0.04"},
            [
                "gsync_compensation=0.04 has no meaning with kv=dist_sync",
                "leave gsync_compensation out, or use kv=dist_gsync",
            ],
        ),
        ({"program": "profile"}, ["program=profile", "run profile.yml"]),
        (
            {"gsync_max_y": 4, "kv": "dist_ssync"},
            ["gsync_max_y=4 has no meaning with kv=dist_ssync", "leave gsync_max_y out"],
        ),
        (
            {"script_args": ["--lr", "1"]},
            ["script_args=['--lr', '1']", "needs a script", "script=path"],
        ),
        ({"data": "mnist"}, ["data=mnist", "data_dir", "folder on the nodes"]),
        ({"data": "cifar10"}, ["data=cifar10", "data_dir"]),
        ({"data_src": "/mine"}, ["data_src='/mine'", "needs data_dir"]),
        ({"data": "imagenet"}, ["data=imagenet", "data_dir"]),
        ({"num_examples": "1438"}, ["num_examples=1438", "digits", "1437"]),
        (
            {"data": "mnist", "data_dir": "/d", "num_examples": "60001"},
            ["num_examples=60001", "mnist", "60000"],
        ),
        ({"model_load_epoch": "3"}, ["model_load_epoch=3", "model_load_job"]),
        ({"model_load_job": "job-1"}, ["model_load_job=job-1", "model_load_epoch"]),
        (
            {"model_load_epoch": "20", "model_load_job": "job-1"},
            ["model_load_epoch=20", "num_epochs=20", "raise"],
        ),
        ({"max_restarts": "1"}, ["max_restarts=1 needs savemodel=true", "add -e savemodel=true"]),
        (
            {"max_restarts": "1", "savemodel": True, "detach": True},
            ["max_restarts=1 is refused with detach=true", "only a controller can restart"],
        ),
        (
            {"max_restarts": 2, "script": "my.py"},
            ["max_restarts=2 is refused with a script", "only its own training program"],
        ),
        ({"env": {"DMLC_ROLE": "server"}}, ["DMLC_ROLE='server'", "remove the variable"]),
        (
            {"compression": "2bit", "kv": "dist_ssync"},
            [
                "compression=2bit is refused with kv=dist_ssync: the workers also push iteration",
                "Use -e compression=none",
            ],
        ),
        (
            {"compression": "2bit", "kv": "local"},
            ["compression=2bit is refused with kv=local: one process"],
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
        ({"env": {"MXCLUSTER_SHARE": "0 1", "PORT": "1"}}, ["MXCLUSTER_SHARE='0 1'", "PORT='1'"]),
    ],
)
def test_contradicting_options_are_refused(given, words):
    message = refused(**given)
    assert all(word in message for word in words), message


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


@pytest.mark.parametrize(
    "name, value",
    [
        ("compression", "1bit"),
        ("compression_threshold", "0"),
        ("bigarray_bound", "999"),
        ("bigarray_bound", "1e6"),
    ],
)
def test_values_that_mxnets_servers_cannot_use_are_refused(name, value):
    assert "%s='%s' is refused" % (name, value) in refused(**{name: value})


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
        ({}, {"kv": "dist_ssync", "staleness": 7}, 7),
        ({"kv": "dist_ssync"}, {"kv": "dist_ssync", "staleness": 7}, 7),
        ({"kv": "dist_ssync", "staleness": "5"}, {"kv": "dist_ssync", "staleness": 7}, 5),
        ({"kv": "dist_ssync"}, {"kv": "dist_gsync", "staleness": None}, 3),
        ({"kv": "dist_async"}, {"kv": "dist_ssync", "staleness": 7}, None),
    ],
)
def test_only_ssync_inherits_the_staleness(given, old, staleness):
    assert inherited(given, old, list(given)).staleness == staleness


@pytest.mark.parametrize("kv", ["dist_sync", "dist_device_sync", "dist_gsync"])
def test_balanced_batches_need_updates_that_sum_up_the_workers_that_wait(kv):
    assert options.cast({"kv": kv, "balance": "batch"}).balance == "batch"


def test_groups_with_balanced_batches_may_have_unequal_shares():
    given = {"kv": "dist_gsync", "balance": "batch", "data_allocator": 1}
    assert options.cast(given).data_allocator == 1


@pytest.mark.parametrize(
    "given, words",
    [
        ({"kv": "dist_async"}, "balance=batch is refused with kv=dist_async. Each update must sum"),
        (
            {"kv": "dist_async"},
            "Use kv=dist_sync or dist_device_sync or dist_gsync, or -e balance=none",
        ),
        ({"kv": "dist_ssync"}, "balance=batch is refused with kv=dist_ssync"),
        ({"kv": "local"}, "balance=batch is refused with kv=local"),
        (
            {"script": "train.py"},
            "balance=batch is refused with a script, because only the program",
        ),
        ({"data_allocator": 1}, "data_allocator=1 and kv=dist_sync, because the batch sizes"),
        ({"balance": "speed"}, "it must be one of none, batch"),
        ({"balance": "none", "step_ms": -1}, "step_ms=-1 is refused"),
        ({"balance": "none", "step_ms": 5, "script": "x.py"}, "step_ms=5 is refused with a script"),
    ],
)
def test_what_does_not_suit_balanced_batches_is_refused(given, words):
    assert words in refused(**dict({"balance": "batch"}, **given))


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
    ],
)
def test_an_impossible_measurement_is_refused(given, words):
    with pytest.raises(BadInput) as refusal:
        options.cast(given)
    assert words in str(refusal.value)
