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
