"""Downloads of large files: once, resumed after a cut, and checked by their digest."""

import hashlib
import http.server
import threading

import pytest

from mxcluster.cluster import archives
from mxcluster.errors import MxclusterError

CONTENT = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.BaseHTTPRequestHandler):
    """Serve CONTENT with ranges; fail on request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        wanted = self.headers.get("Range")
        begin = int(wanted[len("bytes=") : -1]) if wanted and self.server.ranges else 0
        self.server.asked.append(begin)
        if self.server.status:
            self.send_error(self.server.status)
            return
        if begin >= len(self.server.content):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(self.server.content) - begin))
        self.end_headers()
        end = begin + self.server.cuts.pop(0) if self.server.cuts else None
        self.wfile.write(self.server.content[begin:end])
        if end:
            self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """Yield a server of one file; `cuts` has the bytes after which it cuts each connection."""
    monkeypatch.setattr(archives, "PAUSE", 0.0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as made:
        made.content, made.asked, made.cuts, made.ranges, made.status = CONTENT, [], [], True, None
        threading.Thread(target=made.serve_forever, daemon=True).start()
        made.file = archives.File(
            url="http://127.0.0.1:%d/there/file.rpm" % made.server_port,
            name="file.rpm",
            sha256=DIGEST,
        )
        yield made
        made.shutdown()


def refusal(store, file):
    with pytest.raises(MxclusterError) as refused:
        archives.provide(str(store), file)
    return str(refused.value)


def test_a_cut_download_is_resumed(server, tmp_path):
    server.cuts = [1000, 5000]
    assert open(archives.provide(str(tmp_path), server.file), "rb").read() == CONTENT
    assert server.asked == [0, 1000, 6000]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.cuts, server.ranges = [1000], False
    assert open(archives.provide(str(tmp_path), server.file), "rb").read() == CONTENT


def test_the_next_run_resumes_a_download(server, tmp_path):
    server.cuts = [100] * archives.TRIES
    said = refusal(tmp_path, server.file)
    assert "the download ended early" in said
    assert "put file.rpm (sha256 %s) into %s" % (DIGEST, tmp_path) in said
    assert "nvidia_mirror" in said
    assert [one.name for one in tmp_path.iterdir()] == ["file.rpm.part"]
    assert open(archives.provide(str(tmp_path), server.file), "rb").read() == CONTENT
    assert server.asked[-1] == 100 * archives.TRIES


def test_content_with_a_wrong_digest_is_refused_and_deleted(server, tmp_path):
    server.content = CONTENT[:-1] + b"x"
    assert "mxcluster deleted the file" in refusal(tmp_path, server.file)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_not_requested_again(server, tmp_path):
    server.status = 404
    assert "HTTP Error 404" in refusal(tmp_path, server.file) or "Not Found" in refusal(
        tmp_path, server.file
    )
    assert set(server.asked) == {0} and len(server.asked) <= 2


def test_a_file_put_into_the_store_is_checked(server, tmp_path):
    (tmp_path / "file.rpm").write_bytes(CONTENT)
    assert archives.provide(str(tmp_path), server.file) and server.asked == []
    (tmp_path / "file.rpm").write_bytes(b"another")
    said = refusal(tmp_path, server.file)
    assert "has the sha256" in said and "replace or remove this file" in said
    assert (tmp_path / "file.rpm").read_bytes() == b"another"


def test_a_full_disk_is_not_tried_again(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "fetch_once", full)
    with pytest.raises(OSError, match="No space left"):
        archives.provide(str(tmp_path), server.file)
