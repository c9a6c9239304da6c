"""What the shell scripts must not rely on, since the bash of CentOS 7 (4.2) has not got it."""
import pathlib
import re

import pytest

SCRIPTS = sorted((pathlib.Path(__file__).parents[3] / "tools").glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_an_array_that_may_be_empty_is_asked_for_first(script):
    """Under `set -u`, bash before 4.4 ends at "${name[@]}" of an array without members."""
    text = script.read_text()
    for name in re.findall(r"^ *(?:local )?(\w+)=\(\)", text, re.MULTILINE):
        guarded = '${%s[@]+"${%s[@]}"}' % (name, name)
        assert "${%s[@]}" % name not in text.replace(guarded, ""), "%s: write %s" % (script.name, guarded)
