"""The same copy of the project as in tests/playbooks."""
from tests.playbooks.conftest import project  # noqa: F401
