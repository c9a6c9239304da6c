"""The optimizers of the replay equal those of MXNet."""

import json
import os
import subprocess

import numpy as np

from tests.training.replay import OPTIMIZERS, TOLERANCE

OF_MXNET = [
    ("sgd", {}),
    ("sgd", {"wd": 0.1, "clip_gradient": 0.2}),
    ("sgd", {"momentum": 0.9, "wd": 0.1}),
    ("sgd", {"momentum": 0.9, "wd": 1.0, "clip_gradient": 0.1, "learning_rate": 0.1}),
    ("adam", {}),
    ("adam", {"learning_rate": 0.01, "wd": 1.0, "clip_gradient": 0.2}),
    ("adam", {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3, "wd": 0.1}),
    ("rmsprop", {}),
    ("rmsprop", {"learning_rate": 0.01, "wd": 1.0, "clip_gradient": 0.2, "epsilon": 1e-2}),
    ("rmsprop", {"gamma1": 0.7, "clip_weights": 0.5, "wd": 0.1}),
    ("rmsprop", {"centered": True}),
    ("rmsprop", {"centered": True, "gamma1": 0.8, "gamma2": 0.5, "wd": 0.5, "clip_gradient": 0.4}),
    ("rmsprop", {"centered": True, "epsilon": 1e-2, "clip_weights": 0.5}),
]


def test_the_optimizers_of_the_replay_are_mxnets(every_mxnet, tmp_path, scripts):
    """The test compares 40 updates of 200 numbers each, one by one and in sequence."""
    arguments = [text for name, params in OF_MXNET for text in (name, json.dumps(params))]
    done = subprocess.run(
        [
            str(every_mxnet.python),
            "-W",
            "ignore",
            str(scripts / "optimizer_steps.py"),
            str(tmp_path / "steps.npz"),
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")
    steps = np.load(str(tmp_path / "steps.npz"))
    for number, (name, params) in enumerate(OF_MXNET):
        gradients, scales, rates, weights = (
            steps["%s_%d" % (what, number)].astype("float64")
            for what in ("gradients", "scales", "rates", "weights")
        )
        optimizer = OPTIMIZERS[name](**params)
        slots, in_a_row, slots_in_a_row = optimizer.slots(200), weights[0], optimizer.slots(200)
        for t, (gradient, scale, rate) in enumerate(zip(gradients, scales, rates)):
            settings = scale * gradient, rate, optimizer.wd, t + 1
            weight, slots = optimizer.update(weights[t], slots, *settings)
            in_a_row, slots_in_a_row = optimizer.update(in_a_row, slots_in_a_row, *settings)
            size = np.abs(weights[t + 1]).max()
            assert np.abs(weight - weights[t + 1]).max() <= TOLERANCE / 2 * size, (name, params, t)
            assert np.abs(in_a_row - weights[t + 1]).max() <= 10 * TOLERANCE * size, (
                name,
                params,
                t,
            )
        assert np.abs(weights[-1] - weights[0]).max() > 0.005, (name, params)
