"""A test whose Python is missing fails, unless `make test` has named the Python as missing."""

import pytest

from tests import pythons


def test_a_missing_python_fails_its_tests(monkeypatch):
    monkeypatch.delenv(pythons.WITHOUT, raising=False)
    with pytest.raises(AssertionError, match="these tests need Python 3.99: install it"):
        pythons.find_python("3.99")


def test_a_python_that_was_named_as_missing_skips_its_tests(monkeypatch):
    monkeypatch.setenv(pythons.WITHOUT, "python2.7 python3.99")
    with pytest.raises(pytest.skip.Exception, match="without Python 3.99"):
        pythons.find_python("3.99")
    assert pythons.available("2.7") is None
    assert pythons.python_of("controller")
