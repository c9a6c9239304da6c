"""The benchmark `start` refuses a tracker before it makes containers, and prepares launch.py."""

import pytest

from bench import start


@pytest.mark.parametrize(
    "text, words",
    [
        (None, "there is no "),
        ("while self.thread.isAlive():\n", "Thread.isAlive, which Python 3.9"),
    ],
)
def test_a_tracker_that_cannot_run_is_refused(tmp_path, text, words):
    """As the one of an installed MXNet 1.9.1."""
    if text:
        (tmp_path / "dmlc_tracker").mkdir()
        (tmp_path / "dmlc_tracker" / "tracker.py").write_text(text)
    with pytest.raises(SystemExit, match=words):
        start.check_tracker(tmp_path)


def test_a_current_tracker_is_accepted(tmp_path):
    (tmp_path / "dmlc_tracker").mkdir()
    (tmp_path / "dmlc_tracker" / "tracker.py").write_text("while self.thread.is_alive():\n")
    start.check_tracker(tmp_path)


def test_the_first_node_admits_its_own_key(monkeypatch, tmp_path):
    """launch.py starts processes on its own node by ssh, where no key of the mesh is valid."""
    calls = []
    monkeypatch.setattr(start, "say", lambda *words, stdin=None: calls.append(words))
    (tmp_path / "dmlc_tracker").mkdir()
    start.carry(tmp_path)
    adding = [words for words in calls if "authorized_keys" in words[-1]]
    assert [words[:7] for words in adding] == [
        (*start.enter(1), *"runuser -u mxcluster".split()),
    ]
    assert "id_ed25519.pub" in adding[0][-1]
