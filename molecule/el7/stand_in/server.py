"""Serve a folder over HTTP with ranges, log every request, and disturb selected requests.

`python server.py FOLDER ADDRESS PORT STATE` ends once the folder STATE is removed, as `molecule
destroy` does, or once a later server has begun with this folder. STATE contains four files.

- server.pid: the pid of the server that serves this folder, since its port is open.
- server.log: the error messages of the server.
- requests.log: a line of JSON for each request, with method, path, range, status, bytes sent and
  client address.
- disturb.json, read for each request: {path or its end: {disturbance: value}}. A disturbance is
  `status` (answer with it), `cut` (close the connection after so many bytes), `truncate` (serve so
  many bytes as the whole file), `swap` (change one byte in the middle) or `instead` (serve another
  file). `times` limits the number of disturbed requests.
"""

import json
import os
import pathlib
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    folder = state = None
    lock, disturbed = threading.Lock(), {}

    def disturbance(self):
        """Return the disturbance of this request."""
        try:
            orders = json.loads((self.state / "disturb.json").read_text())
        except (OSError, ValueError):
            return {}
        for end, how in orders.items():
            if self.path.endswith(end):
                with self.lock:
                    count = self.disturbed[json.dumps([end, how])] = (
                        self.disturbed.get(json.dumps([end, how]), 0) + 1
                    )
                return how if count <= how.get("times", count) else {}
        return {}

    def do_GET(self):
        """Answer a request."""
        how = self.disturbance()
        path = (self.folder / self.path.split("?")[0].lstrip("/")).resolve()
        status = how.get("status") or (
            200 if path.is_file() and self.folder in path.parents else 404
        )
        if status != 200:
            return self.answer(status, b"No.\n")
        content = pathlib.Path(how.get("instead", path)).read_bytes()[: how.get("truncate")]
        if how.get("swap"):
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
        wanted = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
        first, last = (
            (int(wanted.group(1)), int(wanted.group(2) or len(content) - 1))
            if wanted
            else (0, len(content) - 1)
        )
        if first >= len(content) > 0:
            return self.answer(416, b"", {"Content-Range": "bytes */%d" % len(content)})
        extra = {"Content-Range": "bytes %d-%d/%d" % (first, last, len(content))} if wanted else {}
        return self.answer(206 if wanted else 200, content[first : last + 1], extra, how.get("cut"))

    do_HEAD = do_GET

    def answer(self, status, content, extra=(), cut=None):
        """Send the response, or its part before the cut, and log it."""
        self.send_response(status)
        for name, value in dict(
            extra, **{"Content-Length": len(content), "Accept-Ranges": "bytes"}
        ).items():
            self.send_header(name, str(value))
        self.end_headers()
        sent = content[:cut] if self.command == "GET" else b""
        with self.lock, open(str(self.state / "requests.log"), "a") as log:
            log.write(
                json.dumps(
                    {
                        "method": self.command,
                        "path": self.path,
                        "range": self.headers.get("Range"),
                        "status": status,
                        "sent": len(sent),
                        "from": self.client_address[0],
                    }
                )
                + "\n"
            )
        self.wfile.write(sent)
        if cut is not None:
            self.close_connection = True

    def log_message(self, form, *words):
        """Suppress the log on stderr; requests.log replaces it."""


def open_server(address, port):
    """Return the server. The server of an interrupted run may hold the port for a second."""
    for _ in range(60):
        try:
            return ThreadingHTTPServer((address, int(port)), Handler)
        except OSError as error:
            print("%s:%s: %s" % (address, port, error), file=sys.stderr, flush=True)
            time.sleep(0.5)
    sys.exit(1)


def main(folder, address, port, state):
    """Serve until the state folder is removed, or belongs to another server."""
    Handler.folder, Handler.state = pathlib.Path(folder).resolve(), pathlib.Path(state)
    os.dup2(os.open(str(Handler.state / "server.log"), os.O_WRONLY | os.O_CREAT, 0o600), 2)
    server = open_server(address, port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    mine = Handler.state / "server.pid"
    mine.write_text(str(os.getpid()))
    try:
        while mine.read_text() == str(os.getpid()):
            time.sleep(0.5)
    except OSError:
        pass
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
