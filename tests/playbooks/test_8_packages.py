"""The packages of scripts come to the nodes once, and MXNet may be the user's own build."""

import json
import zipfile

import pytest

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
    assert "changed since the last provisioning: mxnet_packages\n" in built.output, built.output
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


def test_a_job_brings_its_packages(project, tmp_path):
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
    before = layer.stat()
    again, run = project.train(**given)
    assert again.code == 0 and layers(project) == earlier | {layer}, again.output
    assert layer.stat().st_ctime_ns == before.st_ctime_ns, "the second job has built the layer"
    assert "six==1.16.0" in json.dumps(json.loads((run / "plan.json").read_text())["layers"])
    # The other jobs of the cluster do not find the packages of this one.
    alone, _ = project.train(kv="local", script=given["script"])
    assert alone.code != 0 and "No module named 'six'" in alone.output, alone.output


def test_requirements_that_would_replace_numpy_are_refused(project, tmp_path):
    (tmp_path / "mine.py").write_text("import mxnet\n")
    (tmp_path / "mine.txt").write_text("numpy==2.0.0\n")
    refused, run = project.train(
        kv="local", script=str(tmp_path / "mine.py"), requirements=str(tmp_path / "mine.txt")
    )
    words = " ".join(refused.output.split())
    assert refused.code != 0 and "requirements: numpy==2.0.0 is refused" in words, refused.output
    assert not run.exists()


def test_a_file_that_is_no_build_of_mxnet_is_refused(project, tmp_path):
    wheel = tmp_path / "mxnet-1.9.1+mine-py3-none-any.whl"
    with zipfile.ZipFile(str(wheel), "w") as packed:
        packed.writestr("mxnet/__init__.py", "")
    for path, words in (
        (wheel, "is no complete wheel of MXNet (the file lacks mxnet/libmxnet.so)"),
        (tmp_path / "none.whl", "is not the name of a wheel"),
    ):
        refused = project.run("provision.yml", *NODE, "-e", "mxnet_wheel=%s" % path)
        assert refused.code != 0 and words in " ".join(refused.output.split()), refused.output


@pytest.mark.soak
def test_a_job_trains_on_the_users_own_build(project, tmp_path):
    """The own build is the wheel from PyPI under another version."""
    store = project.path / ".state" / "cache" / "wheels"
    (stock,) = store.glob("mxnet-1.9.1-*.whl")
    wheel = tmp_path / stock.name.replace("1.9.1", "1.9.1+mine", 1)
    with zipfile.ZipFile(str(stock)) as source, zipfile.ZipFile(str(wheel), "w") as target:
        for member in source.infolist():
            content = source.read(member)
            if member.filename.endswith(".dist-info/METADATA"):
                content = content.replace(b"\nVersion: 1.9.1\n", b"\nVersion: 1.9.1+mine\n", 1)
            name = member.filename.replace("mxnet-1.9.1.", "mxnet-1.9.1+mine.", 1)
            target.writestr(name, content if not name.endswith("/RECORD") else b"")
    built = project.run("provision.yml", *NODE, "-e", "mxnet_wheel=%s" % wheel, timeout=1200)
    assert built.code == 0, built.output
    result, run = project.train(kv="local", num_workers=1, num_epochs=2)
    assert result.code == 0, result.output
    record = json.loads((run / "run.json").read_text())
    assert wheel.name + " (sha256 " in json.dumps(record["nodes"]), record
    back = project.run("provision.yml", *NODE, timeout=1200)
    assert back.code == 0, back.output


def test_what_has_no_wheel_or_would_replace_numpy_is_refused(project):
    for packages, words in (
        ("numpy==2.0.0", "needs numpy==1."),
        (
            "this-package-is-nobodys==9.9.9",
            "pip found no wheel of this-package-is-nobodys==9.9.9 for Python",
        ),
    ):
        refused = project.run("provision.yml", *NODE, "-e", '{"mxnet_packages": ["%s"]}' % packages)
        assert refused.code != 0 and words in " ".join(refused.output.split()), refused.output
