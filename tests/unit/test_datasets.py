import pytest
from mxcluster.datasets import DATASETS, training_samples
from mxcluster.errors import BadInput


def test_samples_of_an_epoch():
    assert training_samples("digits") == 1437
    assert training_samples("mnist") == 60000
    assert training_samples("cifar10", 100) == 100
    assert training_samples("synthetic", 10 ** 7) == 10 ** 7


def test_more_samples_than_there_are():
    assert training_samples("imagenet", 1281167) == 1281167
    with pytest.raises(BadInput, match="num_examples=1281168: imagenet has only 1281167 .* at most 1281167"):
        training_samples("imagenet", 1281168)


def test_digits_are_all_of_the_1797():
    assert DATASETS["digits"].train + DATASETS["digits"].validation == 1797
