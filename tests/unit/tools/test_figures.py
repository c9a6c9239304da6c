"""The figures of the code: what counts as a line of code, and as an untyped dictionary."""

import ast

import pytest

from tools import figures

SOURCE = '''"""A docstring
of two lines."""

# A comment.
from typing import Any, Dict, Mapping

DOCUMENTATION = """
a block
"""
Json = Dict[str, Any]
RIGHT = Dict[str, int]


def one(given: Json, other: "Mapping[str, int]") -> Mapping[str, object]:
    """Docstring."""
    text = """
    a value
    """  # the value counts
    return {"a": text}  # type: Json
'''


def test_documentation_is_no_code(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    assert figures.code_lines(tmp_path / "a.py") == 8
    (tmp_path / "a.yml").write_text("# a comment\n\na: 1\n")
    assert figures.code_lines(tmp_path / "a.yml") == 1


def test_each_use_of_an_untyped_dictionary_counts(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    assert figures.untyped(tmp_path / "a.py") == [10, 14, 14]


def test_long_and_wide_functions_are_found(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE + "\n\ndef f(a, b, *, c):\n    pass\n")
    assert sorted(figures.large_functions(tmp_path / "a.py")) == [
        (2, 3, "a.py:f"),
        (6, 2, "a.py:one"),
    ]
    assert not figures.is_untyped(ast.parse("Dict[str, int]", mode="eval").body)


def test_a_figure_above_its_bound_is_refused(monkeypatch):
    """`make lint` runs the check on the real code, so the figures here are stand-ins."""
    monkeypatch.setattr("sys.argv", ["figures.py", "--check"])
    monkeypatch.setattr(figures, "figures", lambda: dict(figures.BOUNDS))
    figures.main()
    name = "untyped dictionaries"
    above = dict(figures.BOUNDS, **{name: figures.BOUNDS[name] + 1})
    monkeypatch.setattr(figures, "figures", lambda: above)
    with pytest.raises(SystemExit, match="%d %s, at most" % (above[name], name)):
        figures.main()
