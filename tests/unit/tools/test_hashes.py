"""Every requirement of the controller has the hashes of its wheels."""

import pytest

from tools import hashes


@pytest.mark.parametrize("path", hashes.FILES, ids=lambda path: path.name)
def test_every_requirement_has_its_hashes(path):
    lines = path.read_text().splitlines()
    named = [line for line in lines if line and not line.startswith(("#", " ", "-r "))]
    assert sorted(line.rstrip(" \\") for line in named) == sorted(
        hashes.requirements(path.read_text())
    ), "each requirement must have a version"
    for before, line in zip(lines, lines[1:] + [""]):
        assert before.endswith("\\") == line.startswith(hashes.HASH), (
            "%s: python tools/hashes.py" % before
        )
        assert before not in named or before.endswith("\\"), "%s: python tools/hashes.py" % before
        assert (
            not line.startswith(hashes.HASH) or len(line.strip(" \\")) == len("--hash=sha256:") + 64
        ), line
        assert "index-url" not in line and "find-links" not in line, (
            "the machine's configuration sets the package index"
        )


def test_hashes_are_written_below_their_requirement_and_replace_old_ones():
    text = '# A comment.\n-r other.txt\n\none[more]==1.0\ntwo==2.0; python_version < "3.11"\n'
    lines = list(hashes.requirements(text))
    assert hashes.requirements(text) == {lines[0]: ("one", "1.0"), lines[1]: ("two", "2.0")}
    old = hashes.written(text, {lines[0]: ["old"], lines[1]: ["a", "b"]})
    new = hashes.written(old, {lines[0]: ["x"], lines[1]: ["a", "b"]})
    assert new == text.replace("1.0", "1.0 \\\n    --hash=sha256:x").replace(
        '"3.11"', '"3.11" \\\n    --hash=sha256:a \\\n    --hash=sha256:b'
    )
    assert hashes.requirements(new) == hashes.requirements(text)
