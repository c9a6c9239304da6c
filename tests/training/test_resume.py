"""Jobs resume from checkpoints with the servers' states, with real processes and real MXNet."""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal

import numpy as np
import pytest

from mxcluster.training.kvstore import shared_memory
from tests.often import seldom
from tests.training.conftest import newest_often
from tests.training.loopback import Job, log_of, program
from tests.training.test_program import MAIN
from tests.training.test_program import train as train_alone
from tests.waiting import until

EPOCHS, CUT = 6, 3


def train(
    python,
    folder,
    digits,
    kv,
    groups=(0, 0),
    servers=2,
    resumed=None,
    bound=2000,
    placement="",
    **options,
):
    """Run the program with checkpoints.

    `resumed` is the checkpoint folder of another job, to resume after CUT epochs; with states=False
    from its weights alone. `placement` is MXCLUSTER_PLACEMENT of the plan.
    """
    folder.mkdir()
    script = folder / "main.py"
    script.write_text(MAIN)
    epochs, compress = options.pop("epochs", EPOCHS), options.pop("compress", "none")
    arguments = dict(kv=kv, data_dir=digits, num_epochs=epochs, num_examples=256, savemodel=True)
    arguments.update(keep_checkpoints=options.pop("keep", EPOCHS), compression=compress, lr=0.02)
    arguments.update(options.pop("more", {}))
    # Small enough to split some arrays over the servers.
    environment = {"MXNET_KVSTORE_BIGARRAY_BOUND": str(bound), "MXCLUSTER_TRACE": "1"}
    if placement:
        environment["MXCLUSTER_PLACEMENT"] = placement
    environment.update(options.pop("knobs", {}))
    if compress != "none":
        environment["MXCLUSTER_COMPRESSION"] = compress
    states = options.pop("states", True)
    if resumed:
        shutil.copytree(str(resumed), str(folder / "resume"))
        if states:
            environment["MXCLUSTER_RESUME"] = "mlp-%04d" % CUT
        weights = folder / "resume" / ("mlp-%04d.params" % CUT)
        arguments.update(model_load_epoch=CUT, model_load_file=weights)
    options.update(arguments=program(**arguments), environment=environment)
    return Job(python, folder, script, kv, groups, servers, **options)


def states_of(folder, name):
    """Return {parameter: flat momentum}, joined from the parts of the servers."""
    pieces = {}
    for path in sorted(folder.glob(name + ".server-*.npz")):
        with np.load(str(path)) as file:
            for key in file.files:
                if key.startswith("state_"):
                    pieces.setdefault(int(key.split("_")[1]), []).append(file[key])
    return {parameter: np.concatenate(parts) for parameter, parts in pieces.items()}


def check_restored(job, servers, saved, bound=2000, unit=1):
    """Check that every server has restored its own part of the saved states, bit by bit.

    Arrays are cut in units of `unit` numbers.
    """
    found = {}
    for event in job.events("restored"):
        found.setdefault(event["parameter"], {})[event["rank"]] = event["states"]
    assert set(found) == set(saved)
    for parameter, whole in saved.items():
        units = -(-whole.size // unit)
        cuts = [unit * int(units / servers * rank + 0.5) for rank in range(servers + 1)]
        parts = {rank: whole[cuts[rank] : cuts[rank + 1]] for rank in range(servers)}
        if whole.size < bound:
            parts = dict.fromkeys(found[parameter], whole)
        assert len(parts) in (1, servers)
        assert found[parameter] == {
            rank: [hashlib.sha256(part.tobytes()).hexdigest()] for rank, part in parts.items()
        }


def last_losses(job):
    return [
        event["loss"]
        for event in sorted(job.events("batch"), key=lambda event: (event["epoch"], event["index"]))
        if event["epoch"] == EPOCHS - 1
    ]


LATE = {"MXCLUSTER_GSYNC_COMPENSATION": "0.04", "MXCLUSTER_GSYNC_MAX_Y": "4"}


@pytest.mark.parametrize(
    "kv, knobs",
    [
        ("dist_sync", {}),
        seldom("dist_async", {}),
        seldom("dist_gsync", {}),
        seldom("dist_gsync", LATE),
        ("dist_ssync", {}),
    ],
    ids=["dist_sync", "dist_async", "dist_gsync", "dist_gsync-late", "dist_ssync"],
)
def test_a_resumed_job_goes_on_as_if_nothing_had_been(mxnet_new, tmp_path, digits, kv, knobs):
    groups = (0, 1) if kv == "dist_gsync" else (0, 0)
    # If the order of updates is undefined, two jobs agree only after most of the training.
    epochs = EPOCHS if kv == "dist_sync" else 3 * EPOCHS
    alike = {"epochs": epochs, "keep": epochs, "knobs": knobs}
    whole = train(mxnet_new.python, tmp_path / "whole", digits, kv, groups, **alike).succeed()
    saved = states_of(tmp_path / "whole" / "checkpoints", "mlp-%04d" % CUT)
    assert len(saved) == 6 and all(np.abs(momentum).max() > 0 for momentum in saved.values())
    kept = tmp_path / "whole" / "checkpoints"
    job = train(mxnet_new.python, tmp_path / "again", digits, kv, groups, resumed=kept, **alike)
    again = job.succeed()
    assert {event["epoch"] for event in again.events("epoch")} == set(range(CUT, epochs))
    check_restored(again, 2, saved)
    ends = [job.events("end")[0]["accuracy"] for job in (whole, again)]
    if kv == "dist_sync":
        assert np.allclose(last_losses(whole), last_losses(again), atol=1e-4) and ends[0] == ends[1]
        states = states_of(kept, "mlp-%04d" % EPOCHS)
        others = states_of(tmp_path / "again" / "checkpoints", "mlp-%04d" % EPOCHS)
        assert set(states) == set(others)
        assert all(np.allclose(states[name], others[name], atol=1e-4) for name in states)
        bare = train(
            mxnet_new.python, tmp_path / "bare", digits, kv, resumed=kept, states=False
        ).succeed()
        assert not np.allclose(last_losses(whole), last_losses(bare), atol=1e-3), "the test is void"
    assert abs(ends[0] - ends[1]) < 0.1, ends


def test_the_best_checkpoint_stays_on_the_nodes(mxnet_new, tmp_path, digits):
    """With this learning rate the accuracy falls before the end."""
    high = {"lr": 0.15, "keep_best": True}
    job = train(mxnet_new.python, tmp_path / "job", digits, "dist_sync", keep=1, more=high)
    job.succeed()
    first = [event for event in job.events("epoch") if event["index"] == 0]
    found = {event["epoch"] + 1: event["accuracy"] for event in first}
    # The program saves the last weights after a last pull.
    (found[EPOCHS],) = [one["accuracy"] for one in job.events("end") if one["index"] == 0]
    best = max(found, key=lambda epoch: (found[epoch], epoch))
    assert 1 < best < EPOCHS, "the test is void: %s" % found
    # The node holds the first checkpoint, because no controller fetches it.
    for ending in (".json", ".params", ".server-1.npz"):
        there = {path.name for path in (tmp_path / "job" / "checkpoints").glob("mlp-????" + ending)}
        assert there == {"mlp-%04d%s" % (epoch, ending) for epoch in (1, best, EPOCHS)}, found
    manifest = tmp_path / "job" / "checkpoints" / ("mlp-%04d.json" % best)
    assert json.loads(manifest.read_text())["accuracy"] == found[best]


@pytest.mark.parametrize("kv, groups", [("dist_gsync", (0, 1)), seldom("dist_ssync", (0, 0))])
def test_the_plan_names_the_servers_of_parameters(mxnet_new, tmp_path, digits, kv, groups):
    """The checkpoint shows the server of a parameter."""
    job = train(
        mxnet_new.python, tmp_path / "first", digits, kv, groups, placement="1*4,0*1"
    ).succeed()
    kept = tmp_path / "first" / "checkpoints"
    held = {}
    for server in (0, 1):
        with np.load(str(kept / ("mlp-%04d.server-%d.npz" % (CUT, server)))) as file:
            for key in file.files:
                if key.startswith("size_"):
                    held.setdefault(int(key.split("_")[1]), []).append(server)
    # Two parameters are cut over both servers. The home of the sixth is its number modulo 2.
    assert held == {0: [0, 1], 1: [1], 2: [0, 1], 3: [1], 4: [0], 5: [1]}
    assert job.events("end")[0]["accuracy"] > 0.4, job.evidence()


@newest_often
def test_other_numbers_of_workers_and_servers_and_another_scheme(every_mxnet, tmp_path, digits):
    train(every_mxnet.python, tmp_path / "first", digits, "dist_sync", servers=2).succeed()
    kept = tmp_path / "first" / "checkpoints"
    saved = states_of(kept, "mlp-%04d" % CUT)
    for name, kv, groups, servers in [
        ("more", "dist_gsync", (0, 0, 1), 3),
        ("fewer", "dist_sync", (0,), 1),
    ]:
        # Two groups merge in any order, so the accuracy after EPOCHS varies from 0.49 to 0.56.
        more = {"resumed": kept, "epochs": 2 * EPOCHS}
        job = train(every_mxnet.python, tmp_path / name, digits, kv, groups, servers, **more)
        job.succeed()
        check_restored(job, servers, saved)
        assert job.events("end")[0]["accuracy"] > 0.5, job.evidence()


@newest_often
def test_compressed_gradients_resume(every_mxnet, tmp_path, digits):
    """MXNet then cuts arrays in units of 16 numbers: 8192 into 2736, 2720 and 2736."""
    alike = {"kv": "dist_sync", "compress": "2bit"}
    train(every_mxnet.python, tmp_path / "first", digits, servers=2, **alike).succeed()
    kept = tmp_path / "first" / "checkpoints"
    alike.update(servers=3, resumed=kept)
    job = train(every_mxnet.python, tmp_path / "again", digits, **alike).succeed()
    check_restored(job, 3, states_of(kept, "mlp-%04d" % CUT), unit=16)


def memory_of(pid):
    """Return the file of the shared memory that a server process has open."""
    for path in pathlib.Path("/proc/%d/fd" % pid).iterdir():
        if os.readlink(str(path)).startswith(shared_memory.FOLDER + "/mxcluster-"):
            return open(str(path), "r+b")
    raise AssertionError("the server shares no memory")


def awaited_by(pid):
    """Return the bytes of files for whose locks a process waits: see proc_locks(5)."""
    lines = map(str.split, pathlib.Path("/proc/locks").read_text().splitlines())
    return [int(line[7]) for line in lines if line[1] == "->" and int(line[5]) == pid]


def kill_in_an_update(job):
    """Kill server-0 during an update of a parameter in the shared memory.

    An update that begins a round takes the lock of the whole memory, byte 0. The test holds this
    lock, so server-0 waits in such an update, or for a parameter that the other server updates.
    While worker 0 saves a checkpoint, server-0 waits for nothing, and the other server cannot give
    its state. So the test holds the lock for a second, then for two seconds, and so on.
    """
    pid = job.processes["server-0"].pid

    def evidence():
        return pathlib.Path("/proc/locks").read_text() + job.evidence()

    with memory_of(pid) as memory:
        for patience in (2**turn for turn in range(9)):
            fcntl.lockf(memory, fcntl.LOCK_EX, 1, 0)
            with contextlib.suppress(AssertionError):
                until(lambda: awaited_by(pid), seconds=patience)
            assert not job.has_failed(), job.evidence()
            if awaited_by(pid) == [0]:
                os.kill(pid, signal.SIGKILL)
                job.processes["server-0"].wait()
                return
            fcntl.lockf(memory, fcntl.LOCK_UN, 1, 0)
            until(lambda: not awaited_by(pid), seconds=300, evidence=evidence)
    raise AssertionError("server-0 has waited in no update\n" + evidence())


@newest_often
def test_a_server_killed_in_an_update_ends_the_job_and_leaves_the_checkpoint_before(
    every_mxnet, tmp_path, digits
):
    alike = {"kv": "dist_gsync", "groups": (0, 1), "servers": 1}
    more = {"epochs": 50000, "keep": 5000, "heartbeat": 5}
    job = train(every_mxnet.python, tmp_path / "first", digits, **alike, **more)
    kept = tmp_path / "first" / "checkpoints"

    def has_saved_and_both_train():
        """Return True after checkpoint CUT + 1 if both groups have pushed all parameters.

        A worker that begins later than the other may still wait for all servers, and pushes nothing
        after the death of one.
        """
        assert not job.has_failed(), job.evidence()
        pushed = [
            {event["parameter"] for event in job.events("merge") if event["group"] == group}
            for group in (0, 1)
        ]
        saved = (kept / ("mlp-%04d.json" % (CUT + 1))).exists()
        return saved and pushed[0] == pushed[1]

    until(has_saved_and_both_train, seconds=300, evidence=job.evidence)
    kill_in_an_update(job)
    codes = job.wait(grace=120)
    assert codes["server-0"] == -signal.SIGKILL and not {0, "still running"} & set(
        codes.values()
    ), (codes, job.evidence())
    assert "died during an update of parameter" in log_of(tmp_path / "first", "server-1"), (
        job.evidence()
    )
    again = train(every_mxnet.python, tmp_path / "again", digits, resumed=kept, **alike).succeed()
    check_restored(again, 1, states_of(kept, "mlp-%04d" % CUT))


def test_a_broken_checkpoint_ends_the_servers_with_its_name(mxnet_new, tmp_path, digits):
    train(mxnet_new.python, tmp_path / "first", digits, "dist_sync", servers=1).succeed()
    kept = tmp_path / "first" / "checkpoints"
    with open(str(kept / ("mlp-%04d.server-0.npz" % CUT)), "r+b") as file:
        file.seek(100)
        file.write(b"torn")
    job = train(mxnet_new.python, tmp_path / "again", digits, "dist_sync", servers=1, resumed=kept)
    assert job.wait(grace=1)["server-0"] == 1, job.evidence()
    assert "mlp-0003.server-0.npz differs from its digest or size" in log_of(
        tmp_path / "again", "server-0"
    ), job.evidence()


def test_the_last_ones_are_kept_and_say_what_they_are(mxnet_new, tmp_path, digits):
    train(mxnet_new.python, tmp_path / "job", digits, "dist_sync", keep=2).succeed()
    names = {path.name for path in (tmp_path / "job" / "checkpoints").iterdir()}
    # The first checkpoint is held for a controller, and no controller fetched it.
    servers = ("server-%d.%s" % (rank, end) for rank in (0, 1) for end in ("json", "npz"))
    ends = ("json", "params", *servers)
    files = {"mlp-%04d.%s" % (epoch, end) for epoch in (1, 5, 6) for end in ends}
    assert names == {"mlp-symbol.json"} | files
    manifest = json.loads((tmp_path / "job" / "checkpoints" / "mlp-0006.json").read_text())
    told = [manifest[name] for name in ("epoch", "seed", "servers", "workers")]
    assert told == [6, 0, 2, 2]


def test_one_process_alone(mxnet_new, tmp_path, digits):
    """Without servers the worker saves the states itself, and a job with servers can resume."""
    folder = tmp_path / "alone"
    knobs = {"num_epochs": EPOCHS, "num_examples": 256, "keep_checkpoints": EPOCHS}
    run = train_alone(mxnet_new, folder, data_dir=digits, savemodel=True, **knobs).succeeded()
    saved = states_of(folder / "checkpoints", "mlp-%04d" % CUT)
    assert len(saved) == 6 and run.of("end")
    job = train(
        mxnet_new.python, tmp_path / "job", digits, "dist_sync", resumed=folder / "checkpoints"
    ).succeed()
    check_restored(job, 2, saved)
