"""The plan of the containers of a job."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.plan import containers
from mxcluster.model.host_variables import HostVariables, of_hosts
from mxcluster.model.plan import Container, Node
from tests.plans import plan_with


def test_a_job_on_the_host_has_no_container():
    assert containers.of(options.cast({}), "training:1") is None


def test_a_knob_of_containers_is_refused_on_the_command_line_of_a_job_on_the_host():
    containers.refuse_unread("docker", ["kv", "image", "image_python"])
    containers.refuse_unread("host", ["kv"])  # the inventory may describe the image of the site
    with pytest.raises(BadInput) as refusal:
        containers.refuse_unread("host", ["kv", "image"])
    assert "-e image: runtime=host does not read this knob" in str(refusal.value)
    assert "-e runtime=docker or -e runtime=podman" in str(refusal.value)


def test_the_container_of_a_job():
    given = options.cast({"runtime": "docker", "image": "training:1"})
    assert containers.of(given, given.image) == Container(
        engine="docker", image="training:1", python="python3"
    )


def test_the_table_of_a_plan_names_engine_and_image():
    given = options.cast({"runtime": "podman", "image": "training:1"})
    plan = plan_with().replaced(container=containers.of(given, "training:1"))
    assert containers.lines(plan) == ["in containers of podman, image training:1"]
    assert containers.lines(plan_with()) == []


def test_a_container_runs_its_own_python():
    node = Node(python="/env/bin/python", job_dir="/jobs/j")
    given = options.cast({"runtime": "docker", "image_python": "/opt/python"})
    assert containers.python(given, node) == "/opt/python"


def test_a_container_reads_the_data_and_cuda_of_its_node():
    found = containers.mounts("/data", "/opt/data", "/usr/local/cuda-9.2")
    assert found == ["/data", "/opt/data", "/usr/local/cuda-9.2"]
    assert containers.mounts("", "/opt/data", None) == ["/opt/data"]


def test_podman_is_refused_where_the_agent_is_a_unit():
    nobody = of_hosts("ab", {"a": {"mxcluster_user": ""}, "b": {"mxcluster_user": ""}})
    containers.check_units("podman", ["a", "b"], nobody)
    containers.check_units("docker", ["a", "b"], of_hosts("ab", {}))
    with pytest.raises(BadInput, match="runtime=podman on b is refused: .*mxcluster_user"):
        containers.check_units("podman", ["a", "b"], dict(nobody, b=HostVariables()))
