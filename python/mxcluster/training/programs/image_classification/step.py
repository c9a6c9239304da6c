"""Define what the training needs to know of a step."""

from typing import Callable, List, NamedTuple, Optional, Tuple

import numpy as np

READERS = 4  # threads that read the next batches
# Returns images and labels of sample numbers. The second argument is the seed of augmentation.
Read = Callable[[np.ndarray, List[int]], Tuple[np.ndarray, np.ndarray]]


class Step(NamedTuple):
    """A step that a worker has trained."""

    samples: int  # of this worker
    labels: np.ndarray  # of these samples
    chances: Optional[np.ndarray]  # (samples, classes), None for the outputs of the Module
    done: float  # the trained part of the epoch, 0 to 1
