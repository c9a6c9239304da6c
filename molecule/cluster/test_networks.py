"""Training traffic uses the data network, by ps-lite's log and by the interfaces' counters."""

import re

import pytest


@pytest.fixture
def data(cluster):
    """Return {node: (address on the data network, interface)}."""
    return {
        "node1": (cluster.here("172.29.20.11"), "data0"),
        "node2": (cluster.here("172.29.20.12"), "ib0"),
        "node3": (cluster.here("172.29.20.13"), "eth00"),
        "node4": (cluster.here("172.29.20.14"), "data0"),
    }


def counted(cluster, name, interface):
    """Return the bytes that an interface has received and sent."""
    return sum(
        int(cluster.shell(name, "cat /sys/class/net/%s/statistics/%s_bytes" % (interface, way)))
        for way in ("rx", "tx")
    )


def test_the_files_hold_addresses_of_the_data_network(cluster, data):
    for name in cluster.names:
        assert cluster.shell(name, "cat /etc/mxcluster/hosts") == "\n".join(
            address for address, _ in data.values()
        )


def test_training_takes_the_data_network(cluster, data):
    before = {
        name: (counted(cluster, name, data[name][1]), counted(cluster, name, "eth0"))
        for name in data
    }
    job = cluster.train(
        kv="dist_sync", network="resnet20", num_epochs=1, num_examples=400, ps_verbose=1
    )
    assert job.result.code == 0, job.result.output
    for number, (name, (address, interface)) in enumerate(data.items()):
        folder = job.folder / "nodes" / name
        environment = (folder / ("worker-%d.env" % number)).read_text()
        assert "export DMLC_INTERFACE=%s\n" % interface in environment
        assert "export DMLC_NODE_HOST=%s\n" % address in environment
        log = (folder / ("worker-%d.log" % number)).read_text()
        # ps-lite logs its own address and those of its peers: role=worker, ip=172.29.20.11,
        # port=9092.
        addresses = set(re.findall(r"ip=([\d.]+)", log))
        assert address in addresses and addresses <= {address for address, _ in data.values()}, log
        trained = counted(cluster, name, interface) - before[name][0]
        management = counted(cluster, name, "eth0") - before[name][1]
        # The management network carries Ansible's traffic and the logs.
        assert trained > 10e6 and trained > 10 * management, (name, trained, management)


@pytest.mark.soak  # tests/unit and test_3_refusals.py name interfaces
def test_an_interface_can_be_named_for_a_job(cluster):
    """-e dmlc_interface= selects the addresses of all nodes; a missing interface is refused."""
    job = cluster.train(kv="dist_sync", num_epochs=1, dmlc_interface="eth0")
    assert job.result.code == 0, job.result.output
    environment = (job.folder / "nodes" / "node3" / "worker-2.env").read_text()
    assert cluster.here("export DMLC_NODE_HOST=172.29.11.13\n") in environment
    assert cluster.here("export DMLC_PS_ROOT_URI=172.29.11.11\n") in environment
    refused = cluster.train(dmlc_interface="ib0")
    assert refused.result.code != 0 and not refused.folder.exists()
    assert (
        "node1: the interface dmlc_interface=ib0 is missing on the node (the node has "
        in refused.result.output
    ), refused.result.output
