"""Shell features that the bash of CentOS 7 (4.2) lacks."""

import pathlib
import re

import pytest

PROJECT = pathlib.Path(__file__).parents[3]
SCRIPTS = sorted([*(PROJECT / "tools").glob("*.sh"), *(PROJECT / "molecule").rglob("*.sh")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_an_array_that_may_be_empty_is_guarded(script):
    """Under `set -u`, bash before 4.4 exits at "${name[@]}" of an empty array."""
    text = script.read_text()
    for name in re.findall(r"^ *(?:local )?(\w+)=\(\)", text, re.MULTILINE):
        guarded = '${%s[@]+"${%s[@]}"}' % (name, name)
        assert "${%s[@]}" % name not in text.replace(guarded, ""), "%s: write %s" % (
            script.name,
            guarded,
        )
