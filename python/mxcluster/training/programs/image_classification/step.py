"""Define what the training needs to know of a step."""

from typing import Callable, List, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np

from mxcluster.node.mxnet_types import DataBatch

READERS = 4  # threads that read the next batches
# Returns images and labels of sample numbers. The second argument is the seed of augmentation.
Read = Callable[[np.ndarray, List[int]], Tuple[np.ndarray, np.ndarray]]


class Loaded(NamedTuple):
    """A batch in MXNet's memory, and its labels."""

    batch: DataBatch
    labels: np.ndarray


def loaded(images: np.ndarray, labels: np.ndarray) -> Loaded:
    """Return a batch as MXNet's arrays.

    The threads that read ahead call this function, so that a worker does not wait for the copies.
    """
    return Loaded(mx.io.DataBatch([mx.nd.array(images)], [mx.nd.array(labels)]), labels)


class Step(NamedTuple):
    """A step that a worker has trained."""

    samples: int  # of this worker
    labels: np.ndarray  # of these samples
    chances: Optional[np.ndarray]  # (samples, classes), None for the outputs of the Module
    done: float  # the trained part of the epoch, 0 to 1
