"""The packages of a script: a layer on each node that runs the script."""

import json

import pytest

from mxcluster.cluster import extra_packages
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.job.plan import inputs
from mxcluster.job.plan.script_packages import Store
from mxcluster.model.inventory import Inventory
from mxcluster.package import LAYER
from tests.plans import write_record

INVENTORY = Inventory(
    groups={"scheduler": ["a"], "servers": ["a"], "workers": ["b", "c", "d"]},
    forks=5,
    hosts={host: {"node_address": "127.0.0.1%d" % at} for at, host in enumerate("abcd", 1)},
)
PYTHONS = {"a": "3.11.2", "b": "3.11.4", "c": "3.8.1", "d": "3.11.2"}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a function that plans a job with a script, and the list of the index's queries."""
    (tmp_path / "nodes").mkdir()
    for host, python in PYTHONS.items():
        write_record(tmp_path / "nodes", host, python_version=python)
    (tmp_path / "mine.py").write_text("import six\n")
    (tmp_path / "mine.txt").write_text("six\n")
    asked = []

    def download(folder, names, pinned, python, store):
        asked.append((names, python))
        if "none" in names:
            raise MxclusterError("pip found no wheel of none for Python %s" % python)
        with open("%s/six-1-py3-none-any.whl" % folder, "w") as wheel:
            wheel.write("six")

    monkeypatch.setattr(extra_packages, "download", download)

    def run(store=True, check=False, **options):
        own = Store(str(tmp_path / "store"), check) if store else None
        folders = inputs.Folders(
            str(tmp_path / "nodes"), str(tmp_path / "runs"), str(tmp_path), own
        )
        return inputs.plan_job(dict({"script": "mine.py"}, **options), INVENTORY, folders)

    run.asked = asked
    return run


@pytest.mark.slow
def test_nodes_of_one_python_share_a_layer(site):
    planned = site(requirements="mine.txt")
    plan = planned.plan
    digests = {host: node.layer for host, node in plan.nodes.items()}
    assert digests["a"] == "", "the server imports no module of the script"
    assert digests["b"] == digests["d"] != digests["c"]
    assert set(plan.layers) == {digests["b"], digests["c"]}
    for process in plan.processes:
        wanted = digests[process.host] if process.role == "worker" else ""
        assert process.env.get(LAYER, "") == (wanted and "/env-packages/" + wanted)
    assert "requirements for Python 3.11: six==1" in planned.table
    assert "will not find the module" not in planned.table
    assert sorted(site.asked) == [(["six"], "3.11"), (["six"], "3.8")]
    # A later plan asks no index, in check mode neither.
    assert site(requirements="mine.txt", check=True, job_id="two").plan.layers == plan.layers
    assert len(site.asked) == 2


def test_servers_get_the_packages_of_their_classes(site):
    plan = site(requirements="mine.txt", server_classes=["mine:Optimizer"]).plan
    (server,) = plan.of_role("server")
    assert server.env[LAYER] == "/env-packages/" + plan.nodes["a"].layer
    assert all(LAYER not in process.env for process in plan.of_role("scheduler"))


def test_a_plan_keeps_its_layers_as_json(site):
    plan = site(requirements="mine.txt").plan
    assert type(plan).checked(json.loads(json.dumps(plan.encode()))) == plan


@pytest.mark.slow
def test_check_mode_and_a_sweep_choose_nothing(site, tmp_path):
    planned = site(requirements="mine.txt", check=True)
    assert planned.plan.layers == {} and "check mode chooses no wheels" in planned.table
    assert site(requirements="mine.txt", store=False, job_id="two").plan.layers == {}
    assert site.asked == [] and not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "content, words",
    [
        ("numpy==1.0\n", "requirements: numpy==1.0 is refused: mxnet==1.9.1 on Python 3.11 needs"),
        ("mxnet\n", "mine.txt, line 1: mxnet is refused, because mxcluster installs this package"),
        ("-r other.txt\n", "mine.txt, line 1: '-r other.txt' is refused"),
        ("none\n", "requirements: pip found no wheel of none for Python 3.11"),
    ],
)
def test_a_wrong_file_is_refused(site, tmp_path, content, words):
    (tmp_path / "mine.txt").write_text(content)
    with pytest.raises(MxclusterError) as refusal:
        site(requirements="mine.txt")
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"requirements": "none.txt"}, "requirements='none.txt' does not exist"),
        ({"requirements": "mine.txt", "script": ""}, "needs a script: add the script"),
        ({"requirements": "mine.txt", "runtime": "docker"}, "refused with runtime=docker"),
        (
            {"requirements": "mine.txt", "launcher": "slurm"},
            "refused with launcher=slurm.*name the packages in mxnet_packages",
        ),
    ],
)
def test_requirements_are_refused_where_no_layer_is_possible(site, options, words):
    with pytest.raises(BadInput, match=words):
        site(**options)
    assert site.asked == []


def test_a_node_of_another_python_needs_a_new_record(site, tmp_path):
    write_record(tmp_path / "nodes", "c", python_version="3.5.1")
    with pytest.raises(BadInput, match="c: MXNet 1.9.1 .* has no packages for Python 3.5: run pro"):
        site(requirements="mine.txt")
