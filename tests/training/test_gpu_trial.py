"""The trials of verify.yml on GPUs compute rightly with every MXNet, here on devices of the CPU."""

import json
import os
import subprocess

from tests.training.environments import PROJECT

RUN = """
import json
from mxcluster.node import gpu_trial, mxnet_compat
mx = mxnet_compat.import_mxnet()
print("WELL " + json.dumps(list(gpu_trial.trials(mx, 3, mx.cpu))))

class Spoilt:
    "A device on which every sum is one too large, and which changes what is copied to it."
    def __init__(self, mx):
        self.mx, self.nd = mx, self
    def __getattr__(self, name):
        return getattr(self.mx.nd, name)
    def dot(self, one, two):
        return self.mx.nd.dot(one, two) + 1
    def arange(self, *arguments, **options):
        made = self.mx.nd.arange(*arguments, **options)
        return type("Sent", (), {"copyto": lambda _, goal: made.copyto(goal) * 2,
                                 "asnumpy": made.asnumpy})()

print("WRONG " + json.dumps(list(gpu_trial.trials(Spoilt(mx), 2, mx.cpu))))
print("NO GPU " + json.dumps(list(gpu_trial.trials(mx, 1, mx.gpu))))
"""


def test_trials_find_right_and_wrong_devices(every_mxnet):
    environment = dict(os.environ, PYTHONPATH=str(PROJECT / "python"))
    output = subprocess.run(
        [str(every_mxnet.python), "-c", RUN], env=environment, check=True, stdout=subprocess.PIPE
    ).stdout.decode()

    def found(mark):
        (line,) = (line for line in output.splitlines() if line.startswith(mark))
        return json.loads(line[len(mark) :])

    pairs = ["0 -> 1", "0 -> 2", "1 -> 0", "1 -> 2", "2 -> 0", "2 -> 1"]
    assert found("WELL ") == [[what, None] for what in ["0", "1", "2"] + pairs]
    product = "a product of matrices gives 9217, not 9216, in 1048576 of 1048576 places"
    assert found("WRONG ") == [
        ["0", product],
        ["1", product],
        ["0 -> 1", "1048575 of 1048576 numbers arrive changed"],  # twice 0 is 0
        ["1 -> 0", "1048576 of 1048576 numbers arrive changed"],
    ]
    ((_, why),) = found("NO GPU ")
    assert "GPU" in why
