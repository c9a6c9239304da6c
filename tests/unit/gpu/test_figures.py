"""What a row shows of a job: its run folder in words, and the lines of a failure."""

import json

from tests.gpu import figures

EVENTS = [
    {"event": "usage", "role": "worker", "index": 0, "gpu_memory": 345 << 20},
    {"event": "usage", "role": "worker", "index": 0, "gpu_memory": None},
    {"event": "end", "role": "worker", "index": 0, "accuracy": 0.9, "samples_per_s": 1000.4},
    {"event": "end", "role": "worker", "index": 1, "accuracy": 0.8, "samples_per_s": 200.0},
    {"event": "a script's", "role": "worker", "index": 1},
]
PLAN = [
    {"role": "server", "gpus": []},
    {"role": "worker", "gpus": [0, 1]},
    {"role": "worker", "gpus": []},
]


def run_folder(folder, events):
    lines = [json.dumps(dict(event, time=1700000000.0)) for event in events]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "plan.json").write_text(json.dumps({"processes": PLAN}))
    return folder


def test_a_job_is_described(tmp_path):
    run = run_folder(tmp_path, EVENTS)
    assert figures.described(run) == (
        "workers on GPU 0,1 and CPU, 1200 samples/s, accuracy 0.800, at most 345 MiB of a GPU"
    )
    assert figures.accuracy(run) == 0.8 and figures.speed(run) == 1200.4


def test_a_job_without_an_end_has_learned_nothing(tmp_path):
    run = run_folder(tmp_path, EVENTS[1:2])
    assert figures.accuracy(run) == 0 and figures.speed(run) == 0
    assert figures.described(run).endswith("0 samples/s, GPU memory unknown")


def test_the_lines_of_a_failure_are_shown():
    output = "PLAY [one]\nfatal: [box]: FAILED! a reason\n\nFAILED  job x\nlog  /runs/x\n"
    assert figures.last_words(output) == "fatal: [box]: FAILED! a reason | FAILED  job x"
    assert figures.last_words("one\ntwo\n\n three\nfour") == "two | three | four"
    assert figures.last_words("") == ""
