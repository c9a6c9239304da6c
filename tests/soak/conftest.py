"""The fixture `project` of tests/playbooks."""

from tests.playbooks.conftest import project  # noqa: F401
