"""The knob secret_env on the controller: checked like env, without showing its values."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.model.job_knobs import Secrets
from plugins.filter.mxcluster_knobs import mxcluster_secret_env

SECRET = "the-s3cret-t0ken"


class Vaulted:
    """A value of a vault, as Ansible passes it to filters."""

    __ENCRYPTED__ = True

    def __str__(self):
        return SECRET


@pytest.mark.parametrize(
    "given", [{"TOKEN": SECRET}, '{"TOKEN": "%s"}' % SECRET, {"TOKEN": Vaulted()}]
)
def test_secret_env_accepts_a_dict_json_and_vault_values(given):
    env = {"TOKEN": SECRET}
    assert mxcluster_secret_env(given) == {"env": env, "names": ["TOKEN"], "problems": []}


@pytest.mark.parametrize("nothing", [{}, "", None, "{}"])
def test_an_empty_secret_env(nothing):
    assert mxcluster_secret_env(nothing) == {"env": {}, "names": [], "problems": []}


@pytest.mark.parametrize(
    "given, words",
    [
        ({"TOKEN": [SECRET]}, "secret_env: 'TOKEN' is refused. A name must consist of letters"),
        ({"TOKEN": SECRET + "\nmore"}, "'TOKEN' is refused"),
        ({"A-B": SECRET}, "'A-B' is refused"),
        (SECRET, "secret_env is refused: it must be a dict"),
        ('{"A": ', "secret_env is refused"),
    ],
)
def test_a_wrong_secret_env_is_refused_without_its_value(given, words):
    result = mxcluster_secret_env(given)
    with pytest.raises(BadInput) as refusal:
        options.refuse_secret_env(Secrets(names=result["names"], problems=result["problems"]), {})
    assert words in str(refusal.value)
    assert "values of secret_env are not shown" in str(refusal.value)
    assert SECRET not in str(result["problems"])


def test_reserved_names_are_refused():
    with pytest.raises(BadInput) as refusal:
        names = ["TOKEN", "DMLC_ROLE", "MXCLUSTER_JOB_DIR", "PATH", "HOME"]
        options.refuse_secret_env(Secrets(names=names, problems=[]), {"TOKEN": "1"})
    lines = str(refusal.value).splitlines()
    refused = [line.split(" ")[1] for line in lines]
    assert refused == ["DMLC_ROLE", "MXCLUSTER_JOB_DIR", "PATH", "TOKEN"]
    assert "mxcluster sets DMLC_ROLE itself: remove the variable" in lines[0]
    assert "is in env too" in lines[3]
    assert "Use absolute paths" in lines[2]
    with pytest.raises(
        BadInput, match="secret_env: LD_LIBRARY_PATH is refused: move the variable to env"
    ):
        options.refuse_secret_env(Secrets(names=["LD_LIBRARY_PATH"]), {})
    bound = "MXNET_KVSTORE_BIGARRAY_BOUND"
    with pytest.raises(BadInput, match="%s is refused: the plan must know" % bound):
        options.refuse_secret_env(Secrets(names=[bound]), {})
