"""mxnet_packages installs the packages of scripts on the nodes once, and removes them again."""

import pytest

from tests.recap import changes

NODE = ("--limit", "node1,localhost")  # the nodes share one environment


@pytest.mark.soak
def test_a_script_finds_its_packages(project, tmp_path):
    packages = ("-e", '{"mxnet_packages": ["six==1.17.0"]}')
    built = project.run("provision.yml", *NODE, *packages)
    assert built.code == 0, built.output
    assert "changed since the last provisioning: mxnet_packages\n" in built.output, built.output
    again = project.run("provision.yml", *NODE, *packages)
    assert again.code == 0 and changes(again.output)["node1"] == 0, again.output
    (tmp_path / "needs_six.py").write_text(
        "import mxnet, numpy, six\nprint('SIX', six.__version__, numpy.__version__)\n"
    )
    result, run = project.train(kv="local", script=str(tmp_path / "needs_six.py"))
    assert result.code == 0, result.output
    assert "SIX 1.17.0 1.2" in (run / "nodes" / "node1" / "worker-0.log").read_text()

    installed = list((project.path / ".state" / "local" / "env").glob("lib/*/site-packages/six.py"))
    assert len(installed) == 1
    without = project.run("provision.yml", *NODE)
    assert without.code == 0 and changes(without.output)["node1"] > 0, without.output
    assert not installed[0].exists()


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
