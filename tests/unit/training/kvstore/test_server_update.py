"""What workers may request of a server, and what a server refuses before the first optimizer."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.model.server_messages import ForgetRequest, SaveRequest
from mxcluster.model.shapes import Wrong
from mxcluster.training.kvstore.optimizer_json import Forbidden
from mxcluster.training.kvstore.server_update import Update


def test_all_work_is_refused_before_an_optimizer(tmp_path):
    with pytest.raises(BadInput, match="gradients of parameter 3 came before an optimizer"):
        Update()(3, None, None)
    with pytest.raises(BadInput, match="mlp-0001 was requested before an optimizer"):
        Update().save(str(tmp_path), "mlp-0001", "1")
    with pytest.raises(Forbidden, match="store only model parameters: use kv=dist_sync"):
        Update().assign(6)


@pytest.mark.parametrize("name", ["../token", "a/b", "", ".hidden", "a\n"])
def test_the_name_of_a_checkpoint_leads_to_no_other_folder(name):
    with pytest.raises(Wrong, match="only letters, digits"):
        SaveRequest.decode({"name": name, "id": "1"})
    with pytest.raises(Wrong, match="only letters, digits"):
        ForgetRequest.decode({"network": name, "epochs": 3})
