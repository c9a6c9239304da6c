import numpy as np
import pytest

from mxcluster.training.programs.image_classification.data import pictures


def test_an_image_of_the_same_size_is_unchanged():
    images = np.random.RandomState(0).rand(2, 3, 8, 8).astype(np.float32)
    assert pictures.resize(images, 8) is images


def test_a_line_is_interpolated():
    line = np.array([0, 1], np.float32).reshape(1, 1, 1, 2)
    assert np.allclose(pictures.resize(line, 4)[0, 0, 0], [0, 0.25, 0.75, 1])


@pytest.mark.parametrize("part,box", [(1.0, (0, 10, 40, 40)), (0.875, (2, 12, 35, 35))])
def test_middle_box(part, box):
    assert pictures.middle_box(40, 60, part) == box


@pytest.mark.parametrize(
    "choose",
    [
        lambda height, width, rng: pictures.shifted_box(height, width, 4, rng),
        lambda height, width, rng: pictures.partial_box(height, width, 0.08, rng),
    ],
)
@pytest.mark.parametrize("height,width", [(40, 40), (9, 300), (31, 12)])
def test_boxes_lie_inside_the_image(choose, height, width):
    rng = np.random.RandomState(0)
    boxes = [choose(height, width, rng) for _ in range(200)]
    for top, left, tall, wide in boxes:
        assert top >= 0 and left >= 0 and tall > 0 and wide > 0, (top, left, tall, wide)
        assert top + tall <= height and left + wide <= width, (top, left, tall, wide)
    assert len(set(boxes)) > 10 or min(height, width) == 9, boxes


def test_partial_boxes_have_the_requested_area():
    rng = np.random.RandomState(0)
    for _ in range(200):
        _, _, tall, wide = pictures.partial_box(200, 250, 0.5, rng)
        assert 0.49 <= tall * wide / 50000 <= 1 and 0.74 <= wide / tall <= 1.35, (tall, wide)
