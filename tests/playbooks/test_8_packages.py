"""The packages of scripts come to the nodes once, and MXNet may be the user's own build."""

import functools
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from mxcluster.cluster import pairs, wheels
from tests import own_wheels
from tests.playbooks.conftest import NET, SOURCE, On
from tests.recap import changes

NODE = ("--limit", "node1,localhost")  # the nodes share one environment


@pytest.mark.soak
def test_a_script_finds_its_packages(project, tmp_path):
    packages = ("-e", '{"mxnet_packages": ["six==1.17.0"]}')
    marker = project.path / ".state" / "local" / "env" / "mxcluster-env.json"
    before = marker.stat()
    built = project.run("provision.yml", *NODE, *packages)
    assert built.code == 0, built.output
    after = marker.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns), built.output
    assert "changed since the last provisioning: mxnet_packages" in built.output, built.output
    again = project.run("provision.yml", *NODE, *packages)
    assert again.code == 0 and changes(again.output)["node1"] == 0, again.output
    (tmp_path / "needs_six.py").write_text(
        "import mxnet, numpy, six\nprint('SIX', six.__version__, numpy.__version__)\n"
    )
    result, run = project.train(kv="local", script=str(tmp_path / "needs_six.py"))
    assert result.code == 0, result.output
    assert "SIX 1.17.0 1.2" in (run / "nodes" / "node1" / "worker-0.log").read_text()

    assert len(layers(project)) == 1
    without = project.run("provision.yml", *NODE)
    assert without.code == 0 and changes(without.output)["node1"] > 0, without.output
    result, run = project.train(kv="local", script=str(tmp_path / "needs_six.py"))
    assert result.code != 0 and "No module named 'six'" in result.output, result.output


def layers(project):
    """Return the files six.py of all layers."""
    return set((project.path / ".state" / "local" / "env-packages").glob("*/six.py"))


def test_a_job_brings_its_packages(project, tmp_path, monkeypatch):
    """The second train.yml installs nothing. A third one installs from the store, without index."""
    (tmp_path / "needs_six.py").write_text(
        "import mxnet, numpy, six\nprint('SIX', six.__version__, numpy.__version__)\n"
    )
    (tmp_path / "mine.txt").write_text("six==1.16.0\n")
    given = {"kv": "local", "script": str(tmp_path / "needs_six.py")}
    given["requirements"] = str(tmp_path / "mine.txt")
    earlier = layers(project)
    checked, _ = project.train("--check", **given)
    assert checked.code == 0 and layers(project) == earlier, checked.output
    result, run = project.train(**given)
    assert result.code == 0, result.output
    assert "requirements for Python 3." in result.output and "six==1.16.0" in result.output
    (log,) = (run / "nodes").glob("*/worker-0.log")
    assert "SIX 1.16.0 " in log.read_text()
    (layer,) = layers(project) - earlier
    assert layer.parent.name in json.loads((run / "plan.json").read_text())["layers"]
    before = layer.stat()
    again, run = project.train(**given)
    assert again.code == 0 and layers(project) == earlier | {layer}, again.output
    assert layer.stat().st_ctime_ns == before.st_ctime_ns, "the second job has built the layer"

    shutil.rmtree(str(layer.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    (tmp_path / "other.txt").write_text("six==1.15.0\n")
    lacking, run = project.train(**dict(given, requirements=str(tmp_path / "other.txt")))
    assert lacking.code != 0 and not run.exists(), lacking.output
    assert "pip found no wheel of six==1.15.0 for Python" in " ".join(lacking.output.split())
    offline, _ = project.train(**given)
    assert offline.code == 0 and layers(project) == earlier | {layer}, offline.output
    # The other jobs of the cluster do not find the packages of this one.
    python = project.path / ".state" / "local" / "env" / "bin" / "python"
    alone = subprocess.run([str(python), "-c", "import six; print(six)"], stdout=subprocess.PIPE)
    assert alone.returncode != 0, alone.stdout


def test_requirements_that_would_replace_numpy_or_mxnet_are_refused(project, tmp_path, monkeypatch):
    """By the name of the package, and by a module in a package of another name."""
    with zipfile.ZipFile(str(tmp_path / "sharp-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("mxnet/__init__.py", "")
        wheel.writestr(
            "sharp-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: sharp\nVersion: 1"
        )
        wheel.writestr("sharp-1.dist-info/WHEEL", "Wheel-Version: 1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "mine.py").write_text("import mxnet\n")
    for package, words in (
        ("numpy==2.0.0", "requirements: numpy==2.0.0 is refused"),
        ("sharp", "the wheel of sharp==1 contains the module mxnet"),
    ):
        (tmp_path / "mine.txt").write_text(package)
        refused, run = project.train(
            kv="local", script=str(tmp_path / "mine.py"), requirements=str(tmp_path / "mine.txt")
        )
        assert refused.code != 0 and words in " ".join(refused.output.split()), refused.output
        assert not run.exists()


def test_a_wheel_that_does_not_fit_is_refused_before_any_change(project, tmp_path):
    """Each node has another wheel. A second run has the wheels that only fail on their node."""
    incomplete = tmp_path / "mxnet-1.9.1+none-py3-none-any.whl"
    with zipfile.ZipFile(str(incomplete), "w") as packed:
        packed.writestr("mxnet/__init__.py", "")
    make = functools.partial(own_wheels.make, tmp_path)
    alone = make("mxnet-1.9.1+alone-py3-none-linux_x86_64.whl", "int nothing(void) { return 0; }")
    refused = (
        {
            str(incomplete): "is no complete wheel of MXNet (the file lacks mxnet/libmxnet.so)",
            alone: "has no distributed kv-store, so it cannot train on several nodes: build MXNet",
            "none.whl": "is not the name of a wheel",
            make("numpy-1.9.1-py3-none-linux_x86_64.whl"): "is a wheel of 'numpy', and not of",
        },
        {
            make("mxnet-1.9.1-cp38-cp38-linux_x86_64.whl"): "does not run on Python 3.",
            make(needed=["libcudart.so.10.2"]): "is built for CUDA 10.2, but this node trains on",
            make("mxnet-1.8.0-py3-none-linux_x86_64.whl"): "contains MXNet 1.8.0, but mxnet_",
        },
    )
    before = kept(project)
    for name, given in zip(("no_wheels", "no_match"), refused):
        inventory = with_variable(project, name, "mxnet_wheel", list(given))
        result = project.run("provision.yml", "-i", inventory)
        output = " ".join(result.output.split())
        assert result.code != 0, result.output
        assert [words for words in given.values() if words not in output] == [], result.output
        assert set(changes(result.output).values()) == {0}, result.output
    assert kept(project) == before


def kept(project):
    """Return {path: look} of the files of the environment and of the nodes' records."""
    state = project.path / ".state" / "local"
    paths = [state / "env" / "mxcluster-env.json", *state.glob("nodes/*"), *state.glob("drift/*")]
    assert len(paths) > 8, paths
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


@pytest.mark.soak
def test_a_job_trains_on_the_users_own_build(project, tmp_path):
    """The own build is the wheel from PyPI under another version."""
    wheel = renamed(stock_wheel(), tmp_path)
    own = On(project, project.small_inventory("own"))
    given = ("-e", "mxnet_wheel=%s" % wheel)
    built = own.run("provision.yml", *given, timeout=1200)
    assert built.code == 0, built.output
    again = own.run("provision.yml", *given)
    assert again.code == 0 and set(changes(again.output).values()) == {0}, again.output
    result, run = own.train(num_epochs=2)
    assert result.code == 0, result.output
    nodes = json.loads((run / "run.json").read_text())["nodes"]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    known = "%s (sha256 %s)" % (wheel.name, digest)
    assert set(nodes) == {"node1", "node2"}, nodes
    assert [host for host in nodes if known not in json.dumps(nodes[host])] == [], nodes
    assert digest in (run / "report.html").read_text()


def stock_wheel():
    """Return the path of the wheel from PyPI, from the store that builds the tests' environment."""
    environment = pairs.environment("1.9.1", pairs.CPU)
    python = "%d.%d" % sys.version_info[:2]
    line = wheels.requirements(environment, environment.build_for(python))[0]
    store = str(SOURCE / "tests" / ".state" / "cache" / "wheels")
    with wheels.locked(store):
        (found,) = wheels.provide(store, [line], python)
    return pathlib.Path(found)


def renamed(stock, folder):
    """Return a copy of the wheel `stock` in `folder` whose version has the suffix +mine."""
    wheel = folder / stock.name.replace("1.9.1", "1.9.1+mine", 1)
    with zipfile.ZipFile(str(stock)) as source, zipfile.ZipFile(str(wheel), "w") as target:
        for member in source.infolist():
            content = source.read(member)
            if member.filename.endswith(".dist-info/METADATA"):
                content = content.replace(b"\nVersion: 1.9.1\n", b"\nVersion: 1.9.1+mine\n", 1)
            name = member.filename.replace("mxnet-1.9.1.", "mxnet-1.9.1+mine.", 1)
            target.writestr(name, content if not name.endswith("/RECORD") else b"")
    return wheel


def test_what_has_no_wheel_or_would_replace_numpy_is_refused(project):
    """Each node names another package."""
    refused = {
        "numpy==2.0.0": "needs numpy==1.",
        "this-package-is-nobodys==9.9.9": "pip found no wheel of this-package-is-nobodys==9.9.9",
    }
    inventory = with_variable(
        project, "no_packages", "mxnet_packages", ["[%s]" % one for one in refused]
    )
    result = project.run("provision.yml", "-i", inventory)
    output = " ".join(result.output.split())
    assert result.code != 0, result.output
    assert [words for words in refused.values() if words not in output] == [], result.output


def with_variable(project, name, variable, values):
    """Write inventory/<name>, whose first nodes have these values of a variable, and return it."""
    addresses = ["%s.1%d" % (NET, number) for number in range(1, 1 + len(values))]
    lines = {
        address: "%s\n          %s: %s" % (address, variable, value)
        for address, value in zip(addresses, values)
    }
    return project.inventory(name, **lines)
