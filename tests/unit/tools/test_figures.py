"""The figures of the code: what counts as a line of code, and as an untyped dictionary."""

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
