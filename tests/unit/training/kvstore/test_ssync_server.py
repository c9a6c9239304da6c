"""The update of dist_ssync, without MXNet."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.training.kvstore.ssync_server import StaleUpdate


def test_a_checkpoint_without_an_optimizer_is_refused(tmp_path):
    update = StaleUpdate(2, updates=None)
    with pytest.raises(BadInput, match="mlp-0001 was requested before an optimizer"):
        update.save(str(tmp_path), "mlp-0001", "1")
    assert not list(tmp_path.iterdir())
