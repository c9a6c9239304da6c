"""Send the servers' Commands a DCASGD and an SGD, as both kinds of message, without a job.

Prints {kind of message: [notes in the events]}. MXCLUSTER_JOB_DIR is an empty folder.
"""

import json
import os

from mxcluster.node import mxnet_compat

mx = mxnet_compat.import_mxnet()

from mxcluster import events, seal  # noqa: E402
from mxcluster.model.events import Note  # noqa: E402
from mxcluster.training.kvstore.server_messages import as_json  # noqa: E402
from mxcluster.training.server import Commands  # noqa: E402

folder = os.environ["MXCLUSTER_JOB_DIR"]
token = os.path.join(folder, "token")
with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
    stream.write("0" * 32)
os.environ["DMLC_NUM_SERVER"] = "1"


class Store(object):
    rank = 0

    def _set_updater(self, update):
        self.update = update


class Update(object):
    def use(self, optimizer, number):
        self.optimizer = optimizer


def notes(kind, index, *optimizers):
    os.environ["MXCLUSTER_INDEX"] = str(index)
    path = os.path.join(folder, events.FILE)
    if os.path.exists(path):
        os.remove(path)
    commands = Commands(Store())
    if kind == "training":
        commands._update = Update()
    for number, optimizer in enumerate(optimizers, 1):
        payload = as_json(optimizer)
        if kind == "training":
            payload = json.dumps({"number": number, "names": [], "optimizer": payload})
        body = seal.sealed(seal.read_token(folder), "worker-0", kind, payload)
        commands.receive(body.encode("utf-8"))
    assert commands._update is not None
    lines = events.read(path) if os.path.exists(path) else []
    return [line.event.text for line in lines if isinstance(line.event, Note)]


sgd, dcasgd = mx.optimizer.SGD(), mx.optimizer.DCASGD()
print(
    json.dumps(
        {
            "optimizer": notes("optimizer", 0, dcasgd),
            "training": notes("training", 0, sgd, dcasgd),
            "others": notes("optimizer", 0, sgd) + notes("training", 0, sgd),
            "further servers": notes("optimizer", 1, dcasgd) + notes("training", 1, dcasgd),
        }
    )
)
