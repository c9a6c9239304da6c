# -*- coding: utf-8 -*-
"""Find the blocks of mxcluster between two marker lines of a file."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type


def without_block(content, marker):
    """Return (lines of `content` without the blocks, number of lines before the first block).

    The number is None without a block. A block without its last line stays.

    Args: `content` of a file and `marker` in bytes, with {mark} for BEGIN and END.
    """
    begin, end = marker.replace(b"{mark}", b"BEGIN"), marker.replace(b"{mark}", b"END")
    kept, start, at = [], None, None
    for line in content.splitlines(True):
        kept.append(line)
        if line.rstrip(b"\r\n") == begin:
            start = len(kept) - 1
        elif line.rstrip(b"\r\n") == end and start is not None:
            del kept[start:]
            at, start = start if at is None else at, None
    return kept, at
