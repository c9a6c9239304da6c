"""Evaluate the weights of a Module on the validation samples."""

import mxnet as mx

from mxcluster.node.mxnet_types import Module
from mxcluster.training import pulse_file
from mxcluster.training.programs.image_classification.data import Source, batches
from mxcluster.training.programs.image_classification.step import READERS


def accuracy(module: Module, samples: Source, side: int, size: int) -> float:
    """Return the accuracy of the weights of `module` on `samples` (0 to 1).

    Args: `side` of a picture in pixels; `size` the batch size for which the Module is bound.
    """
    count, right = len(samples), 0
    rows = batches.ahead(
        lambda row: samples.read(row, side), batches.in_file_order(count, size), READERS
    )
    for number, (images, labels) in enumerate(rows):
        pulse_file.beat()
        module.forward(mx.io.DataBatch([mx.nd.array(images)], None), is_train=False)
        fresh = min(size, count - number * size)  # The other samples fill up the last batch.
        right += (module.get_outputs()[0].asnumpy().argmax(axis=1) == labels)[:fresh].sum()
    return float(right) / count
