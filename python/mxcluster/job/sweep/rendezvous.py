"""Use the knob rendezvous of benchmark.yml."""

from mxcluster.errors import BadInput
from mxcluster.model.plan import SCHEDULER, Plan
from mxcluster.model.sweep import Knobs
from mxcluster.model.sweep_knobs import RENDEZVOUS


def check(text: str, plan: Plan) -> None:
    """Raise BadInput if the rendezvous address differs from the address of the plan's scheduler.

    Args: `text` the value of the knob rendezvous.
    """
    match = RENDEZVOUS.fullmatch(text)
    if not match or not plan.root or plan.root.address == match.group("address"):
        return
    scheduler = next(one.host for one in plan.of_role(SCHEDULER))
    owner = next(
        (host for host, node in plan.nodes.items() if node.address == match.group("address")),
        None,
    )
    raise BadInput(
        "rendezvous=%s: the scheduler runs on %s with the address %s. Give this address, or %s"
        % (
            text,
            scheduler,
            plan.root.address,
            "put %s into the group scheduler" % owner
            if owner
            else "give the interface with the address %s" % match.group("address"),
        )
    )


def knobs_of(text: str) -> Knobs:
    """Return {"root_port", "dmlc_interface"} from the knob `rendezvous`; {} without a value.

    Without an interface in the knob, "dmlc_interface" is missing.
    """
    match = RENDEZVOUS.fullmatch(text)
    if not match:
        return {}
    found = {"root_port": match.group("port")}
    if match.group("interface"):
        found["dmlc_interface"] = match.group("interface")
    return found
