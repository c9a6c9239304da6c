"""Valid inventories give the expected plan; invalid ones are refused with the value and the cure.

There is one invalid inventory for each rule.
"""

import json

import pytest

from mxcluster.cluster_files import parse_data_sharding, parse_groups, parse_hosts
from mxcluster.errors import BadInput
from mxcluster.model.plan import Plan
from tests.inventories.cases import FOLDER, changed, load, plan_of

GOOD = sorted(path.stem for path in (FOLDER / "good").glob("*.yml"))
BROKEN = load("broken")


def good(name):
    case = load(name)
    return (
        changed(good(case["base"]), dict(case["change"], expect=case["expect"]))
        if "base" in case
        else case
    )


@pytest.mark.parametrize("name", GOOD)
def test_good_inventory(name):
    case = good("good/" + name)
    plan = plan_of(case)
    found = {key: plan.encode()[key] for key in ("root", "groups", "group_labels", "shares")}
    found["where"] = " ".join(
        "%s@%s:%s" % (process.name, process.address, process.port) for process in plan.processes
    )
    found["gpus"] = [process.gpus for process in plan.processes if process.role == "worker"]
    # `changed` removes keys with null, so a root of null is a missing root.
    assert found == dict({"root": None}, **case["expect"])


@pytest.mark.parametrize("name", GOOD)
def test_plan_is_json_and_its_files_are_read_back(name):
    plan = plan_of(good("good/" + name))
    assert Plan.checked(json.loads(json.dumps(plan.encode()))) == plan
    hosts = parse_hosts(plan.files["hosts"])
    assert hosts == [process.address for process in plan.processes if process.role == "worker"]
    assert parse_groups(plan.files["groups"], hosts) == plan.groups
    assert parse_data_sharding(plan.files["data_sharding"], len(hosts)) == plan.shares


@pytest.mark.parametrize("case", BROKEN, ids=[case["name"] for case in BROKEN])
def test_broken_inventory_is_refused(case):
    with pytest.raises(BadInput) as refusal:
        plan_of(changed(good(case["base"]), case["change"]))
    message = str(refusal.value)
    missing = [word for word in case["words"] if str(word) not in message]
    assert not missing, "%s not in the message:\n%s" % (missing, message)
