"""The filter mxcluster_knobs: short names for extra variables, full names for all others."""

import jinja2
import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from plugins.filter import mxcluster_knobs as plugin


@pytest.fixture
def knobs(monkeypatch):
    """Return a function that evaluates an expression with variables and extra variables."""

    def evaluate(expression, extra=(), **variables):
        monkeypatch.setattr(plugin, "load_extra_vars", lambda loader: dict(extra))
        environment = jinja2.Environment()
        environment.filters["mxcluster_knobs"] = plugin.mxcluster_knobs
        found = []
        environment.filters["keep"] = found.append
        environment.from_string("{{ %s | keep }}" % expression).render(
            dict(variables, **dict(extra))
        )
        return found[0]

    return evaluate


def test_an_extra_variable_takes_precedence(knobs):
    variables = {"train_job_kv": "dist_sync", "train_job_lr": 0.05}
    assert knobs("'train_job' | mxcluster_knobs", **variables) == {"kv": "dist_sync", "lr": 0.05}
    assert knobs("'train_job' | mxcluster_knobs", extra={"kv": "local"}, **variables) == {
        "kv": "local",
        "lr": 0.05,
    }


def test_a_bare_variable_of_the_inventory_is_no_knob(knobs):
    assert knobs("'train_job' | mxcluster_knobs('env')", env="production", train_job_env={}) == {
        "env": {}
    }


def test_secret_env_is_not_among_the_options(knobs):
    assert (
        knobs(
            "'train_job' | mxcluster_knobs",
            extra={"secret_env": {"A": "b"}},
            train_job_secret_env={},
        )
        == {}
    )


def test_the_names_of_the_given_knobs(monkeypatch):
    monkeypatch.setattr(
        plugin,
        "load_extra_vars",
        lambda loader: {"kv": "dist_sync", "train_job_lr": 0.05, "of_the_site": 1},
    )
    assert plugin.mxcluster_given("train_job") == ["kv", "lr"]


@pytest.fixture
def of_ansible(monkeypatch):
    """Return a function that evaluates an expression with Ansible, which evaluates variables."""
    monkeypatch.setattr(plugin, "load_extra_vars", lambda loader: {"network": 1})

    def evaluate(expression, **variables):
        templar = Templar(DataLoader(), variables=variables)
        # Another name, because Ansible finds the filter of this name with its own loader.
        templar.environment.filters["knobs_here"] = plugin.mxcluster_knobs
        return templar.template("{{ %s }}" % expression)

    return evaluate


def test_a_template_with_an_undefined_variable_is_refused(of_ansible):
    """The knob is given, so its default would be a silent change."""
    with pytest.raises(AnsibleError) as caught:
        of_ansible(
            "'train_job' | knobs_here",
            network="{{ nix }}",
            train_job_kv="{{ nowhere }}",
            train_job_env={"OMP_NUM_THREADS": "{{ threads }}"},
            train_job_lr=0.05,
        )
    for words in (
        "network is",
        "'nix'",
        "train_job_kv is",
        "'nowhere'",
        "train_job_env",
        "threads",
    ):
        assert words in str(caught.value), caught.value


def test_the_value_omit_leaves_a_knob_out(of_ansible):
    assert of_ansible(
        "'train_job' | knobs_here",
        omit="__omit_place_holder__17",
        train_job_kv="{{ nowhere | default(omit) }}",
        train_job_data="{{ omit }}",
        network="{{ lesson | default('lenet') }}",
    ) == {"network": "lenet"}
