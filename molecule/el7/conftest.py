"""Fixtures for the tests of this scenario: the stand-in's server, and checks of the nodes."""

import json
import pathlib

import pytest

from tests.recap import changes

GPUS = ("gpu1", "gpu2")
BASE = ("os", "updates", "extras")  # the system's repositories


class Server:
    """The stand-in's server."""

    def __init__(self, folder, www):
        self.folder, self.www = folder, www
        self.disturb({})

    def disturb(self, orders):
        """Set the disturbances of requests from now on: see stand_in/server.py."""
        (self.folder / "disturb.json").write_text(json.dumps(orders))

    def disturb_system(self):
        """Let the system's repositories answer with an error from now on."""
        down = {"status": 503}
        self.disturb({"/vault/%s/x86_64/repodata/repomd.xml" % name: down for name in BASE})

    def requests(self, end):
        """Return the requests so far for paths with this suffix."""
        lines = [
            json.loads(line) for line in (self.folder / "requests.log").read_text().splitlines()
        ]
        return [line for line in lines if line["path"].endswith(end) and line["method"] == "GET"]


@pytest.fixture
def server(cluster):
    """Return the server, without disturbances before and after a test."""
    folder = pathlib.Path(json.loads((cluster.shared / "stand_in.json").read_text())["folder"])
    served = Server(cluster.shared / "server", folder / "www")
    yield served
    served.disturb({})


@pytest.fixture(scope="session")
def nodes(cluster):
    """Return the object that reads the nodes' state and runs provision.yml."""
    return Nodes(cluster)


@pytest.fixture
def trainable(nodes, cluster):
    """Restart gpu2 for its driver, unless an earlier test has. Before, train.yml refuses gpu2."""
    record = json.loads((cluster.state / "nodes" / "gpu2.json").read_text())
    if record["driver"]["nouveau"]:
        nodes.provision(nvidia_driver_reboot=True)


@pytest.fixture(params=GPUS)
def name(request):
    """Return the name of a node with a GPU; a test with it runs once for each."""
    return request.param


class Nodes:
    """The nodes of the scenario: read their state, and run provision.yml."""

    gpus = GPUS

    def __init__(self, cluster):
        self.cluster = cluster

    def packages(self, name):
        """Return {name: version} of the packages that rpm has installed."""
        lines = self.cluster.shell(name, "rpm -qa --qf '%{NAME} %{VERSION}\\n'").splitlines()
        return dict(line.split() for line in lines)

    @staticmethod
    def changes(result):
        """Return {node: number of changes}."""
        return changes(result.output)

    def provision(self, *arguments, **options):
        """Run provision.yml, which must succeed."""
        result = self.cluster.play("provision.yml", *arguments, **options)
        assert result.code == 0, result.output
        return result

    def refused(self, *arguments, **options):
        """Run provision.yml, which must fail; return its output in one line."""
        result = self.cluster.play("provision.yml", *arguments, **options)
        assert result.code != 0, result.output
        return " ".join(result.output.split())
