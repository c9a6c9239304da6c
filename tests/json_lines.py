"""Reading the JSON lines that a running process may still write."""

import json
import pathlib


def complete(path):
    """Return the values of the complete lines of the file `path`, [] if the file is missing.

    The process may have written only a part of the last line.
    """
    path = pathlib.Path(path)
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
