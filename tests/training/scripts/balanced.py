"""The training program, which also writes the samples of each epoch and its final weights.

Arguments: those of the program. SLOWDOWN in the environment is this worker's slowdown.
"""

import json
import os
import sys

import mxnet as mx
from exact_clock import Clock

from mxcluster.node import quota
from mxcluster.training.programs import main
from mxcluster.training.programs.image_classification import pace, training
from mxcluster.training.programs.image_classification.data import batches

index, folder = os.environ["MXCLUSTER_INDEX"], os.environ["MXCLUSTER_JOB_DIR"]
order, run = batches.order, training.Training.run


def written_order(*args):
    rows = order(*args)
    with open(os.path.join(folder, "samples-%s.jsonl" % index), "a") as stream:
        stream.write(json.dumps(rows.tolist()) + "\n")
    return rows


def run_and_save(self):
    run(self)
    mx.nd.save(os.path.join(folder, "weights-%s.params" % index), self.module.get_params()[0])


quota.tightest = lambda: None  # A quota of this machine would change the measured speeds.
batches.order, training.Training.run, pace.time = written_order, run_and_save, Clock()
arguments = dict(json.loads(sys.argv[1]), slowdown=float(os.environ.get("SLOWDOWN", "1")))
sys.exit(main("image_classification", [json.dumps(arguments)]))
