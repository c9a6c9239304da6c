"""Write small RecordIO files by the definition of the format, without the code under test."""

import io
import struct

MAGIC = 0xCED7230A


def record(content):
    """Return one record of dmlc-core's format.

    The content is split where it contains the magic number at a multiple of 4 bytes.
    """
    cuts = [
        at
        for at in range(0, len(content) - 3, 4)
        if content[at : at + 4] == struct.pack("<I", MAGIC)
    ]
    begins, ends = [0] + [cut + 4 for cut in cuts], cuts + [len(content)]
    pieces = [content[begin:end] for begin, end in zip(begins, ends)]
    kinds = [0] if len(pieces) == 1 else [1] + [2] * (len(pieces) - 2) + [3]
    return b"".join(
        struct.pack("<II", MAGIC, kind << 29 | len(piece)) + piece + b"\0" * (-len(piece) % 4)
        for kind, piece in zip(kinds, pieces)
    )


def write(path, contents):
    """Write a .rec file; return the start of each record."""
    starts, data = [], b""
    for content in contents:
        starts.append(len(data))
        data += record(content)
    path.write_bytes(data)
    return starts


def image(label, encoded, further=()):
    """Return the content of an image record with one label, or with the labels `further`."""
    return (
        struct.pack("<IfQQ", len(further), label, 0, 0)
        + struct.pack("<%df" % len(further), *further)
        + encoded
    )


def jpeg(color, width=32, height=32):
    """Return a JPEG of one colour (red, green, blue)."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (width, height), color).save(stream, "JPEG", quality=95)
    return stream.getvalue()
