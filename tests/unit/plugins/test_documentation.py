"""The documentation of each module of mxcluster, with its behaviour in check mode and --diff."""

import ast
import pathlib

import pytest
import yaml

PLUGINS = pathlib.Path(__file__).resolve().parents[3] / "plugins"
NAMES = sorted(
    {path.stem for folder in ("modules", "action") for path in PLUGINS.glob(folder + "/*.py")}
)


def documentation(name):
    """Return the DOCUMENTATION of the module, or of the action plugin if there is no module."""
    path = PLUGINS / "modules" / (name + ".py")
    path = path if path.exists() else PLUGINS / "action" / (name + ".py")
    found = [
        ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "DOCUMENTATION"
    ]
    assert len(found) == 1, path
    return yaml.safe_load(found[0]), path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_module_declares_check_mode_and_diff_mode(name):
    told, source = documentation(name)
    assert told["module"] == name
    for attribute in ("check_mode", "diff_mode"):
        declared = told["attributes"][attribute]
        assert declared["description"] and declared["support"] in ("full", "partial", "none")
        assert (declared["support"] == "partial") <= bool(declared.get("details")), attribute
    if "AnsibleModule(" in source:
        supported = told["attributes"]["check_mode"]["support"] != "none"
        assert ("supports_check_mode=True" in source) == supported
        returned = 'result["diff"]' in source or "diff=" in source
        assert (told["attributes"]["diff_mode"]["support"] != "none") == returned
