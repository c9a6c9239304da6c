import pytest

from mxcluster.job import live_line
from tests.unit import statuses


def line(answers, **more):
    return live_line.line({host: statuses.state(one) for host, one in answers.items()}, **more)


FIRST = {"name": "rendezvous", "role": "rendezvous", "state": "running"}


def answer(host, processes, kv="dist_gsync", started=1000.0, failure=None, reason=None, **events):
    """Return the answer of a host's agent.

    `processes` is {name: state}, and `events` is {worker_0: {kind: event}}.
    """
    parts = [
        {"name": name, "role": name.split("-")[0], "index": int(name.split("-")[1]), "state": state}
        for name, state in processes.items()
    ]
    return {
        "status": {
            "host": host,
            "kv": kv,
            "started": started,
            "ended": None,
            "state": "running",
            "reason": reason,
            "processes": parts,
            "first_failure": failure,
        },
        "progress": {name.replace("_", "-"): value for name, value in events.items()},
    }


def training(
    step, speed, loss, done, accuracy=None, began=1000.0, now=1010.0, epoch=None, end=None
):
    events = {
        "start": {"epochs": 20, "time": began},
        "batch": {
            "epoch": step // 50 if epoch is None else epoch,
            "step": step,
            "samples_per_s": speed,
            "loss": loss,
            "done": done,
            "time": now,
        },
    }
    if accuracy is not None:
        events["epoch"] = {"epoch": 0, "accuracy": accuracy, "time": now}
    if end is not None:
        events["end"] = {"accuracy": end, "time": now}
    return events


def two_nodes(**worker_3):
    return {
        "node1": answer(
            "node1",
            {"scheduler-0": "running", "worker-0": "running"},
            worker_0=training(360, 800.0, 0.30, 0.36, accuracy=0.953),
        ),
        "node2": answer(
            "node2",
            {"server-0": "running", "worker-3": "running"},
            worker_3=dict(training(312, 401.2, 0.32, 0.31, accuracy=0.8), **worker_3),
        ),
    }


def test_the_line_of_a_running_job():
    assert line(two_nodes()) == (
        "gsync  epoch 7/20  step 312  1201 samples/s (slowest worker-3 401)  loss 0.31  accuracy "
        "0.953  ETA 0:22"
    )


@pytest.mark.parametrize(
    "width, expected",
    [
        (79, "gsync  epoch 7/20  step 312  1201 samples/s  accuracy 0.953  ETA 0:22"),
        (60, "epoch 7/20  1201 samples/s  accuracy 0.953  ETA 0:22"),
        (20, "epoch 7/20"),
        (6, "epoch…"),
    ],
)
def test_a_narrow_terminal_drops_the_least_important_parts(width, expected):
    shown = line(two_nodes(), width=width)
    assert shown == expected
    assert len(shown) <= width


def test_the_worker_with_the_fewest_steps_sets_epoch_and_eta():
    answers = {
        "a": answer(
            "a",
            {"worker-0": "running", "worker-1": "running"},
            worker_0=training(900, 10.0, 1.0, 0.9),
            worker_1=training(100, 10.0, 1.0, 0.1),
        )
    }
    shown = line(answers)
    assert "epoch 3/20" in shown and "step 100" in shown and shown.endswith("ETA 1:30"), shown


def test_the_line_of_a_script_whose_lines_are_read():
    workers = {"worker-0": "running", "worker-1": "running"}
    lines = {"source": "lines", "time": 1.0, "samples_per_s": 100.0, "train_accuracy": 0.75}
    answers = {
        "a": answer(
            "a",
            workers,
            worker_0={"batch": dict(lines, epoch=2, batch=0)},
            worker_1={"batch": dict(lines, epoch=1, batch=40)},
        )
    }
    assert line(answers) == (
        "gsync  epoch 2  batch 40  200 samples/s (slowest worker-0 100)  training accuracy 0.750"
    )
    answers["a"]["progress"]["worker-0"]["epoch"] = {"epoch": 1, "accuracy": 0.5, "time": 1.0}
    assert line(answers).endswith(" (slowest worker-0 100)  accuracy 0.500")


def test_the_line_of_a_script_without_a_figure_counts_pushes():
    workers = {"worker-0": "running", "worker-1": "running"}
    pushes = {"pushes": {"pushes": 60, "per_s": 12.0, "time": 1.0}}
    answers = {"a": answer("a", workers, worker_0=pushes, worker_1=pushes)}
    assert line(answers, now=1001.0) == "gsync  running 0:01  2 of 2 workers  24 pushes/s"


def test_a_worker_without_a_step_is_in_the_first_epoch():
    processes = {"worker-0": "running", "worker-1": "running"}
    fast = training(250, 900, 1.0, 0.2)
    fast["start"]["batches"] = 50
    shown = line({"a": answer("a", processes, worker_0=fast)})
    assert "epoch 1/20" in shown and "step" not in shown and "1 of 2 workers" in shown, shown
    del fast["start"]["batches"]  # of a script, perhaps only one worker sends events
    assert "epoch 6/20" in line({"a": answer("a", processes, worker_0=fast)})


def test_the_line_during_the_rendezvous():
    assert line(dict(two_nodes(), c=None)) == "starting: 2 of 3 nodes have answered"
    answers = {
        host: answer(host, {"worker-%d" % number: "running"})
        for number, host in enumerate(("node1", "node2"))
    }
    answers["node1"]["status"]["rendezvous"] = dict(FIRST, state="ended")
    answers["node2"]["status"]["rendezvous"] = FIRST
    assert line(answers) == "rendezvous: 1 of 2 nodes have finished"
    answers["node2"]["status"]["rendezvous"] = None  # a job without a rendezvous
    assert line(answers, now=1001.0) == "gsync  running 0:01  2 of 2 workers"


def test_the_line_before_the_first_step():
    processes = {"worker-%d" % index: "running" for index in range(4)}
    began = {"worker_%d" % index: {"start": {"epochs": 20, "time": 1.0}} for index in range(3)}
    assert (
        line({"a": answer("a", processes, **began)}) == "gsync  starting: 3 of 4 workers have begun"
    )


def test_finished_workers_count_as_done_and_not_for_the_speed():
    answers = two_nodes()
    answers["node1"]["progress"]["worker-0"]["end"] = {"accuracy": 0.961, "time": 1011.0}
    assert line(answers) == (
        "gsync  epoch 7/20  step 312  401 samples/s  loss 0.32  accuracy 0.961  1 of 2 workers "
        "done  ETA 0:22"
    )


def test_the_line_of_a_script_shows_time_and_processes():
    answers = {
        "a": answer("a", {"scheduler-0": "running", "server-0": "running", "worker-0": "running"}),
        "b": answer("b", {"server-1": "running", "worker-1": "ended"}, started=1002.0),
    }
    assert (
        line(answers, now=1083.0)
        == "gsync  running 1:23  1 of 2 workers  2 of 2 servers  1 of 1 scheduler"
    )


def test_a_failure_replaces_the_line():
    answers = two_nodes()
    answers["node2"]["status"]["first_failure"] = {
        "name": "worker-3",
        "host": "node2",
        "reason": "killed by signal 9 (SIGKILL)",
        "time": 1.0,
    }
    assert line(answers) == "worker-3 on node2 killed by signal 9 (SIGKILL); ending the job"


def test_texts_of_a_node_are_printable_and_its_events_are_valid():
    answers = two_nodes(batch={"epoch": "\x1b[2J", "step": 7, "time": 3.0})
    answers["node1"]["status"]["kv"] = "dist_\x1b]0;owned\x07gsync\nOK"
    answers["node1"]["progress"]["worker-0"]["batch"] = {"time": 3.0, "loss": 0.5, "own": "\x1b"}
    assert line(answers) == ("]0;ownedgsyncOK  loss 0.5  accuracy 0.953  1 of 2 workers have begun")
    answers["node2"]["status"]["first_failure"] = {
        "name": "worker-3",
        "host": "node2",
        "reason": "\u202eno\x9b2J\rwhy\u2028",
        "time": 1.0,
    }
    assert line(answers) == "worker-3 on node2 no2Jwhy; ending the job"


def test_unequal_batch_sizes_are_shown_in_the_order_of_the_workers():
    answers = two_nodes()
    for node, worker, size in (("node1", "worker-0", 48), ("node2", "worker-3", 16)):
        answers[node]["progress"][worker]["batch"]["batch_size"] = size
    assert "(slowest worker-3 401)  b 48/16  loss 0.31" in line(answers)
    assert "b 48/16" not in line(answers, width=79)
    answers["node2"]["progress"]["worker-3"]["batch"]["batch_size"] = 48
    assert "b 48" not in line(answers)


def test_the_last_batch_sizes_stay_after_the_last_worker_has_ended():
    """A short job ends before the next line is due: its last line is the one that tells them."""
    answers = two_nodes()
    for node, worker, size in (("node1", "worker-0", 48), ("node2", "worker-3", 16)):
        answers[node]["progress"][worker]["batch"]["batch_size"] = size
    for answer in answers.values():
        for events in answer["progress"].values():
            events["end"] = {"accuracy": 0.9, "time": 1011.0}
    assert "b 48/16" in line(answers)


def test_a_job_with_a_deadline_shows_it():
    answers = two_nodes()
    assert "T 0" not in line(answers)
    answers["node2"]["progress"]["worker-3"]["batch"]["deadline_s"] = 0.21333
    assert "  T 0.213 s  loss 0.31" in line(answers)
