"""Make the panel of the report about what ran: command, versions, code, times and nodes."""

import shlex
from typing import List, NamedTuple, Optional, Tuple

from mxcluster.job.verdict_text import printable
from mxcluster.lists import several
from mxcluster.model.run_record import Clone, NodeOfRun, RunRecord

ATTACHED = (
    "made by a controller that attached to the job. Command, inventory, code and given knobs are "
    "on the controller that started it"
)


class MachineRow(NamedTuple):
    """A row of the table of nodes, with "" for unknown fields."""

    host: str
    system: str
    cpu: str
    memory: str
    gpus: str
    versions: str


def facts(record: RunRecord) -> List[Tuple[str, str]]:
    """Return [(name, text)] of the facts about the whole job, in the order of the page."""
    known, code = record.controller, record.code
    found = [("Record", ATTACHED if record.attached else "")]
    found += [
        ("Command", " ".join(map(shlex.quote, record.command))),
        ("Inventory", ", ".join(record.inventory)),
    ]
    if known:
        versions = "ansible-core %s, Python %s" % (known.ansible_core, known.python)
        found += [
            ("mxcluster", _joined(known.mxcluster, _state(known.clone), known.package)),
            ("Controller", versions),
        ]
    found += [
        ("Began", record.begun.replace("T", " ")),
        ("Ended", (record.ended or "").replace("T", " ")),
    ]
    if code:
        kept = "%s in script.zip, sha256 %s" % (code.path, code.sha256)
        found += [("Script", kept), ("Code of", _joined(code.folder, _state(code.clone)))]
    return [(name, printable(text)) for name, text in found if text]


def machines(record: RunRecord) -> List[MachineRow]:
    """Return the rows of the table of nodes."""
    return [_row(host, node) for host, node in record.nodes.items()]


def _row(host: str, node: NodeOfRun) -> MachineRow:
    versions = (
        ("MXNet", node.mxnet),
        ("numpy", node.numpy),
        ("Python", node.python),
        ("from", node.wheel),
    )
    cores = several(node.cores, "core") if node.cores else ""
    driver = "driver %s" % node.driver if node.driver else ""
    names = ["%d x %s" % (node.gpus.count(name), name) for name in sorted(set(node.gpus))]
    texts = (
        _joined(node.system, node.kernel),
        _joined(node.cpu, cores),
        "%.1f GB" % (node.memory_mb / 1024) if node.memory_mb else "",
        _joined(*names, driver),
        ", ".join("%s %s" % pair for pair in versions if pair[1]),
    )
    return MachineRow(host, *map(printable, texts))


def _state(clone: Optional[Clone]) -> str:
    """Return the commit of a clone as text, "" without a clone."""
    if clone is None:
        return ""
    return "commit %s%s" % (clone.commit[:12], "" if clone.clean else " with changes")


def _joined(*texts: str) -> str:
    return ", ".join(filter(None, texts))
