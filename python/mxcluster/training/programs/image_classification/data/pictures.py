"""Resize pictures and choose boxes in pictures. Pure.

A box is (top, left, height, width) in pixels.
"""

import functools
import math
from typing import Tuple

import numpy as np

Box = Tuple[int, int, int, int]


def resize(images: np.ndarray, side: int) -> np.ndarray:
    """Return `images`, float32 (n, channels, height, width), bilinearly resized to (side, side)."""
    height, width = images.shape[2:]
    if (height, width) == (side, side):
        return images
    return np.matmul(np.matmul(_weights(height, side), images), _weights(width, side).T)


@functools.lru_cache(maxsize=None)
def _weights(size: int, new: int) -> np.ndarray:
    """Return the matrix, float32 (new, size), that resizes a line of `size` pixels to `new` pixels.

    Both lines cover the same part of the picture. The centre of pixel i is i + 0.5 pixels from the
    start of the line.
    """
    at = np.clip((np.arange(new) + 0.5) * size / new - 0.5, 0, size - 1)
    return np.maximum(0, 1 - np.abs(at[:, np.newaxis] - np.arange(size))).astype(np.float32)


def middle_box(height: int, width: int, part: float = 1.0) -> Box:
    """Return the square box in the middle of a picture.

    The box's side is `part` times the picture's shorter side. `height` and `width` are the
    picture's size in pixels.
    """
    side = max(1, int(round(min(height, width) * part)))
    return (height - side) // 2, (width - side) // 2, side, side


def shifted_box(height: int, width: int, pad: int, rng: np.random.RandomState) -> Box:
    """Return a square box at a random place in a picture.

    The box's side is the picture's shorter side less twice `pad`. `height`, `width` and `pad` are
    pixels.
    """
    side = max(1, min(height, width) - 2 * pad)
    return rng.randint(height - side + 1), rng.randint(width - side + 1), side, side


def partial_box(height: int, width: int, least_area: float, rng: np.random.RandomState) -> Box:
    """Return a random box that covers a random part of a picture's area, at least `least_area`.

    `least_area` is a fraction from 0 to 1, and `height` and `width` are pixels. The box's
    width divided by its height lies between 3/4 and 4/3. If ten tries find no such box, the
    function returns the box in the middle. Source: Szegedy et al., CVPR 2015.
    """
    for _ in range(10):
        area = height * width * rng.uniform(least_area, 1)
        shape = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        tall, wide = int(round(math.sqrt(area / shape))), int(round(math.sqrt(area * shape)))
        if 0 < tall <= height and 0 < wide <= width:
            return rng.randint(height - tall + 1), rng.randint(width - wide + 1), tall, wide
    return middle_box(height, width)
