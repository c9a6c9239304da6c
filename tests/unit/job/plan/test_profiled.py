"""A profile gives a plan what the user has not given: groups, shares, servers of parameters."""

import json

import pytest

from mxcluster.cluster import predictions
from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.plan import inputs, make_cluster_files, profiled, table
from mxcluster.model.inventory import Inventory
from mxcluster.model.plan import Plan
from tests.inventories.cases import changed, load, plan_of, records_of
from tests.plans import write_record
from tests.unit.cluster.profiles import completed, measured

LABELLED = load("good/local")
LOCAL = changed(
    LABELLED, {"hosts": {host: {"worker_group": None} for host in sorted(LABELLED["hosts"])}}
)
SPEEDS = {"node1": 25, "node2": 100, "node3": 101, "node4": 50}
# The servers of good/local are node1 and node2.
SERVERS = [
    {"host": "node1", "number": 0, "updates_per_s": 100.0},
    {"host": "node2", "number": 0, "updates_per_s": 300.0},
]


def made(speeds=SPEEDS, **more):
    content = measured(speeds, servers=[1, 1], **more)
    content["servers"] = SERVERS
    return completed(content)


def plan(case=LOCAL, found=None, **of):
    return plan_of(changed(case, {"options": of}), profile=found or made())


def lengths(made_plan):
    return [end - begin for begin, end in made_plan.shares]


def envs(made_plan, name):
    return {process.env.get(name) for process in made_plan.processes}


def test_the_groups_of_a_profile():
    got = plan()
    assert got.groups == [[1, 2], [3], [0]]
    assert got.group_labels == ["speed1", "speed2", "speed3"]
    assert envs(got, "MXCLUSTER_GROUPS") == {"2,0,0,1"}
    assert lengths(got) == [0.25] * 4, "data_allocator=0"
    assert got.profile.uses == ["groups", "servers of the parameters"]
    assert got.profile.fits and got.profile.speeds == [25, 100, 101, 50]
    assert Plan.decode(json.loads(json.dumps(got.encode()))) == got
    text = table(got)
    assert (
        "\nthe profile profile-1 of 2025-11-23 gives the groups and servers of the parameters\n"
        in text
    )
    assert "with one group" not in text and "lo         -     speed1  0.25 0.5\n" in text


def test_hand_written_groups_win():
    for case in (
        LABELLED,
        changed(LOCAL, {"files": {"groups": "127.0.0.11\n127.0.0.12 127.0.0.13 127.0.0.14\n"}}),
    ):
        got = plan(case)
        assert got.groups == plan_of(case).groups
        assert "groups" not in got.profile.uses
        # Their shares follow the slowest of each hand-written group.
        slowest = {
            index: min(list(SPEEDS.values())[one] for one in group)
            for group in got.groups
            for index in group
        }
        total = sum(slowest.values())
        assert lengths(plan(case, data_allocator=1)) == pytest.approx(
            [slowest[index] / total for index in range(4)]
        )


def test_hand_written_shares_win():
    text = "0 0.4\n0.4 0.6\n0.6 0.8\n0.8 1\n"
    got = plan(changed(LOCAL, {"files": {"data_sharding": text}}), data_allocator=1)
    assert lengths(got) == pytest.approx([0.4, 0.2, 0.2, 0.2]) and len(got.groups) == 3
    weighted = changed(LOCAL, {"hosts": {"node1": {"worker_share": 2}}})
    got = plan(weighted, data_allocator=1)
    assert lengths(got) == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert got.profile.uses == ["groups", "servers of the parameters"]
    # Worker 1 and 2 are a group of the profile.
    weighted = changed(LOCAL, {"hosts": {"node2": {"worker_share": 2}}})
    with pytest.raises(BadInput, match=r"differs inside the group speed1 \(node2: 2, node3: 1\)"):
        plan(weighted, data_allocator=1)


def test_workers_that_wait_for_nobody_get_shares_of_their_own_speeds():
    """Under dist_gsync a share follows the slowest of a group, here of the file's group."""
    got = plan(kv="dist_async", data_allocator=1)
    assert lengths(got) == pytest.approx([25 / 276, 100 / 276, 101 / 276, 50 / 276])
    assert got.groups == [[0, 1, 2, 3]] and got.profile.uses == ["shares"]
    labelled = plan(LABELLED, kv="dist_async", data_allocator=1)
    assert lengths(labelled) == lengths(got), "labels of groups mean nothing without groups"
    lacks = plan(found=made({"node1": 25}), kv="dist_async", data_allocator=1)
    assert lengths(lacks) == [0.25] * 4 and "has no speed of node2" in table(lacks)
    weighted = changed(LOCAL, {"hosts": {"node1": {"worker_share": 2}}})
    assert lengths(plan(weighted, kv="dist_async", data_allocator=1))[0] == pytest.approx(0.4)


@pytest.mark.parametrize("kv", ["dist_sync", "dist_ssync", "local"])
def test_other_schemes_have_no_groups_and_shares_of_a_profile(kv):
    case = changed(LOCAL, {"options": {"kv": kv, "data_allocator": 1}})
    got, without = plan_of(case, profile=made()), plan_of(case)
    assert got.groups == without.groups and got.shares == without.shares
    assert (got.profile is None) == (kv != "dist_ssync")
    assert bool(got.placement) == (kv == "dist_ssync")


def test_a_worker_without_a_speed():
    got = plan(found=made({"node1": 25, "node2": 100, "node3": 100}), data_allocator=1)
    without = plan_of(changed(LOCAL, {"options": {"data_allocator": 1}}))
    assert got.groups == [[0, 1, 2, 3]] and got.shares == without.shares
    assert not got.profile.fits and got.profile.speeds == []
    text = table(got)
    assert "has no speed of node4 worker 0: run profile.yml again" in text
    assert "dist_gsync with one group of all workers trains as dist_sync does" in text
    assert "or let mxcluster measure the workers (-e grouping=auto)" in text
    lacks = made({"node1": 25})
    assert "has no speed of node2" in table(plan(LABELLED, lacks, data_allocator=1))
    assert "has no speed" not in table(plan(LABELLED, lacks, data_allocator=0))


def test_workers_that_are_gone():
    got = plan(num_workers=3)
    assert got.groups == [[1, 2], [0]] and got.group_labels == ["speed1", "speed3"]
    assert (
        "also has the speeds of node4 worker 0, which this job leaves out. The job's workers keep "
        "their groups" in table(got)
    )
    assert lengths(plan(num_workers=3, data_allocator=1)) == pytest.approx(
        [25 / 225, 100 / 225, 100 / 225]
    )
    assert "also has" not in table(plan(LABELLED, num_workers=3)), "nothing of it counts there"


def test_several_workers_on_a_host_and_lines_of_a_hosts_file():
    case = changed(
        LOCAL,
        {
            "hosts": {"node1": {"workers_per_host": 2}},
            "files": {"hosts": "127.0.0.12\n127.0.0.11\n127.0.0.13\n127.0.0.11\n"},
        },
    )
    found = made({"node1": [25, 30], "node2": 100, "node3": 100, "node4": 50})
    got = plan(case, found, data_allocator=1)
    assert got.groups == [[0, 2], [1, 3]]
    assert lengths(got) == pytest.approx([0.4, 0.1, 0.4, 0.1])
    assert got.profile.speeds == [100, 25, 100, 30]
    assert profiled.numbered(["a", "b", "a"]) == [("a", 0), ("b", 0), ("a", 1)]


def test_equal_speeds_are_one_group():
    got = plan(found=made(dict.fromkeys(SPEEDS, 100)))
    assert got.groups == [[0, 1, 2, 3]] and got.placement == []
    text = table(got)
    assert (
        "dist_gsync with one group of all workers trains as dist_sync does: the profile has one "
        "group\nthe profile profile-1 of 2025-11-23 gives the groups\nby its speeds, one group, "
        "because the speeds differ by 0 %, no more than the noise of 5 %\n" in text
    )
    assert "grouping=auto" not in text


def test_the_table_of_a_job_says_what_its_groups_gain():
    assert "by its speeds, 3 groups would compute 174 % more" in table(plan())
    nearly = plan(found=made(dict(dict.fromkeys(SPEEDS, 100), node4=90)))
    assert nearly.groups == [[0, 1, 2, 3]]
    assert "two groups would compute only 8 % more samples/s" in table(nearly)
    assert "balance=batch gives faster workers larger batches" in table(nearly)
    # The job's own workers count, not all workers of the profile.
    assert "by its speeds, 2 groups would compute 150 % more" in table(plan(num_workers=2))
    assert "by its speeds" not in table(plan(kv="dist_ssync"))


@pytest.mark.parametrize(
    "of, found, needed",
    [
        ({}, None, True),
        ({}, made({"node1": 1}), True),
        ({}, made(), False),
        ({"num_workers": 1}, None, False),
    ],
)
def test_grouping_auto_says_when_it_needs_a_profile(of, found, needed):
    case = changed(LOCAL, {"options": dict(of, grouping="auto")})
    got = plan_of(case, profile=found)
    assert got.needs_profile is needed
    message = "as dist_sync does: no profile fits this job, so grouping=auto measures the workers"
    assert (message in table(got)) is needed
    assert not plan_of(changed(case, {"options": {"grouping": "given"}})).needs_profile
    assert not plan_of(changed(LABELLED, {"options": {"grouping": "auto"}})).needs_profile


def test_a_share_below_a_batch_is_refused():
    of = {"data_allocator": 1, "num_examples": 275, "batch_size": 25}
    assert lengths(plan(**of))
    with pytest.raises(
        BadInput,
        match="^node1 worker 0: the share from the profile holds 25 of the 275 training samples, "
        r"less than a batch of 26: use a smaller batch_size, .*\(data_allocator=0\)$",
    ):
        plan(**dict(of, batch_size=26))
    assert plan(**dict(of, batch_size=26, data_allocator=0))
    assert plan(**dict(of, batch_size=26, script="x.py"))


def test_the_profile_of_another_network_gives_groups_and_no_placement():
    got = plan(network="lenet", batch_size=64)
    assert len(got.groups) == 3 and got.placement == []
    text = table(got)
    assert "gives the groups, measured with network mlp and batch size 32\n" in text
    assert "is of the network mlp, so the profile chooses no servers for parameters" in text
    got = plan(script="x.py")
    assert got.placement == [] and "network" not in table(got)


def test_the_servers_of_parameters_under_gsync():
    """Times of a model: 12 ms and 5.3 ms; the parameters have 100, 10, 50 and 5 numbers."""
    got = plan()
    assert got.placement == [1, 1, 0, 0]
    assert envs(got, "MXCLUSTER_PLACEMENT") == {"1*2,0*2"}
    alone = plan(num_servers=1)
    assert alone.placement == [] and envs(alone, "MXCLUSTER_PLACEMENT") == {None}
    # A parameter that MXNet cuts over all servers counts for none.
    cut = plan(env={profiled.BOUND: "100"})
    assert cut.placement == [1, 1, 1, 0]


def test_the_servers_of_parameters_under_ssync_are_ranks():
    """The addresses 127.0.0.12 and .11 have the ranks 0 and 1."""
    got = plan(kv="dist_ssync")
    assert got.placement == [1, 1, 0, 0]
    assert envs(got, "MXCLUSTER_PLACEMENT") == {"0*2,1*2"}


def test_a_server_without_a_speed_leaves_the_placement_out():
    case = changed(LOCAL, {"groups": {"servers": ["node1", "node3"]}})
    got = plan(case)
    assert got.placement == [] and len(got.groups) == 3
    assert "has no speed of node3 server 0, so the profile chooses no servers" in table(got)
    case = changed(LOCAL, {"groups": {"servers": ["node2", "node1"]}})
    assert plan(case).placement == [0, 0, 1, 1]


def cluster_files(found, hosts=None, **files):
    return make_cluster_files(
        options.cast({}),
        Inventory.decode({"groups": LOCAL["groups"], "hosts": hosts or LOCAL["hosts"], "forks": 9}),
        records_of(LOCAL["records"]),
        files,
        found,
    )


GPUS = changed(
    load("good/gpus"), {"hosts": {"fast1": {"workers_per_host": 1}, "fast2": {"gpus": "auto"}}}
)
OF_GPUS = {"fast1": [400], "fast2": [300, 300], "slow1": [100]}


def of_gpus(noise_of_fast2=1.04, batch_size="32", hosts=None):
    """Return the plan of three hosts with a profile of their GPUs."""
    content = measured(OF_GPUS, servers=[100.0, 100.0])
    content["workers"][0].update(gpus=[0, 1, 2, 3], gpu_speeds=[30.0, 10.0, 10.0, 10.0])
    content["workers"][1].update(gpus=[0, 1], gpu_speeds=[10.0, 10.0 * noise_of_fast2])
    content["workers"][2].update(gpus=[2, 3], gpu_speeds=[20.0, 10.0])
    case = changed(GPUS, {"options": {"batch_size": batch_size}, "hosts": hosts or {}})
    return plan_of(case, profile=completed(content))


def loads(made_plan):
    return [one.work_load for one in made_plan.processes if one.role == "worker"]


def test_the_speeds_of_gpus_of_a_profile():
    got = of_gpus()
    assert loads(got) == [[30, 10, 10, 10], [10, 10.4], [20, 10], []]
    assert "speeds of GPUs" in got.profile.uses
    assert "the groups and the speeds of GPUs" not in table(got)  # the groups are hand-written
    assert "gives the speeds of GPUs" in table(got)
    written = of_gpus(hosts={"fast1": {"gpu_speeds": "1,1,1,2"}})
    assert loads(written)[0] == [1, 1, 1, 2] and loads(written)[2] == [20, 10]


def test_the_cluster_files_hold_groups_and_shares_of_the_profile():
    found = cluster_files(made({"node1": 25, "node2": 50, "node3": 50, "node4": 25}))
    assert found.files["groups"] == "127.0.0.12 127.0.0.13\n127.0.0.11 127.0.0.14\n"
    assert found.files["data_sharding"] == (
        "0.0 0.16666666666666666\n0.16666666666666666 0.5\n0.5 0.8333333333333334\n"
        "0.8333333333333334 1.0\n"
    )
    assert found.notes == [
        "the profile profile-1 of 2025-11-23 gives the groups and shares",
        "by its speeds, 2 groups would compute 50 % more samples/s than one group",
    ]
    assert cluster_files(None).notes == []
    lacks = cluster_files(made({"node1": 25}))
    assert lacks.files == cluster_files(None).files
    assert "node2 worker 0, node3 worker 0, node4 worker 0: run profile.yml" in lacks.notes[0]


@pytest.fixture
def state(tmp_path):
    """Return the folder of an inventory with two nodes, a and b."""
    (tmp_path / "nodes").mkdir()
    for host in "ab":
        write_record(tmp_path / "nodes", host)
    return tmp_path


def planned(state, **given):
    inventory = Inventory(
        groups={"scheduler": ["a"], "servers": ["a"], "workers": ["a", "b"]},
        forks=5,
        hosts={"a": {"node_address": "127.0.0.11"}, "b": {"node_address": "127.0.0.12"}},
    )
    nodes = str(state / "nodes")
    return (
        inputs.plan_job(given, inventory, inputs.Folders(nodes, str(state / "runs"), str(state))),
        lambda: inputs.plan_cluster({}, inventory, nodes, {}, str(state)),
    )


def test_the_profile_is_beside_the_node_records(state):
    assert inputs.read_profile(str(state / "nodes")) is None
    job, cluster = planned(state, kv="dist_gsync", grouping="auto")
    assert job.plan.groups == [[0, 1]] and job.plan.needs_profile
    found = completed(measured({"a": 10, "b": 20}))
    (state / "profile.json").write_text(json.dumps(found.encode()))
    assert inputs.read_profile(str(state / "nodes") + "/") == found
    job, cluster = planned(state, kv="dist_gsync", grouping="auto")
    assert job.plan.groups == [[1], [0]] and not job.plan.needs_profile
    assert cluster().files["groups"] == "127.0.0.12\n127.0.0.11\n"


@pytest.mark.slow
def test_a_plan_has_the_workers_of_each_row_that_profile_yml_compares(state):
    found = completed(measured({"a": 5, "b": 100}))
    (state / "profile.json").write_text(json.dumps(found.encode()))
    rows = predictions.predict(found)
    assert {one.workers for one in rows} == {1, 2}
    for one in rows:
        job, _ = planned(state, **one.knobs)
        hosts = [process.host for process in job.plan.of_role("worker")]
        assert hosts == (["b"] if one.workers == 1 else ["a", "b"]), one
        assert len(job.plan.groups) == (one.sets if "GSP" in one.title else 1), one


def test_a_damaged_profile_stops_no_job(state):
    """profile.yml plans a job, too, and could not replace the profile otherwise."""
    (state / "profile.json").write_bytes(b"{\xff")
    job, cluster = planned(state, kv="dist_gsync")
    assert (
        "mxcluster ignores the profile: %s/profile.json is damaged (" % state in job.table
        and "run profile.yml again" in job.table
        and job.plan.groups == [[0, 1]]
    )
    assert "profile" not in planned(state, kv="dist_sync")[0].table
    with pytest.raises(BadInput, match="profile.json is damaged .*: run profile.yml again"):
        cluster()
