"""The same copy of the project as in tests/playbooks."""
from tests.playbooks.conftest import bare_project, project  # noqa: F401
