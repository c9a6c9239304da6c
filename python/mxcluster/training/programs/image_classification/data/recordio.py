"""Read images by sample number from RecordIO files that MXNet's im2rec has written.

MXNet's own iterators cut a file into equal parts only, and drop or repeat samples at the cuts. With
this module a worker trains on exactly the samples of its shard.
"""

import os
import struct
from typing import List, NoReturn, Optional, Sequence, Tuple, Union

import numpy as np

from mxcluster.errors import BadInput
from mxcluster.training.programs.image_classification.data import pictures

Indices = Union[Sequence[int], np.ndarray]

# Format of dmlc-core's recordio.h: a magic number, 3 bits for the part of a record, 29 bits for the
# length, the content, padding to 4 bytes. dmlc-core splits a record at each magic number in its
# content and leaves that number out.
MAGIC = struct.pack("<I", 0xCED7230A)
WHOLE, FIRST, MIDDLE, LAST = range(4)
# MXNet's IRHeader before an image: number of further labels, label, two ids.
IMAGE_HEADER = struct.Struct("<IfQQ")

# Mean and standard deviation of ImageNet's colours (red, green, blue; 0 to 255), also for CIFAR-10.
MEAN = np.array([123.68, 116.78, 103.94], np.float32).reshape(3, 1, 1)
SPREAD = np.array([58.40, 57.12, 57.38], np.float32).reshape(3, 1, 1)


class Records:
    """The records of the RecordIO file `path`: len(records) and records[i] (bytes).

    Several threads may read the records at once.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY)
        self._size = os.fstat(self._fd).st_size
        index = os.path.splitext(path)[0] + ".idx"
        self._starts = self._from_index(index) if os.path.isfile(index) else self._scan()
        if not len(self._starts):
            raise BadInput("%s holds no records: make or fetch the file again" % path)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> bytes:
        return self._record(int(self._starts[number]))[0]

    def _scan(self) -> np.ndarray:
        """Return the byte position of each record, int64 (n,), from a scan of all headers."""
        starts: List[int] = []
        position = 0
        while position < self._size:
            part, length = self._header(position)
            if part in (WHOLE, FIRST):
                starts.append(position)
            position += 8 + (length + 3) // 4 * 4
        if position > self._size:
            self._refuse(self._size, "the file ends in the middle of a record")
        return np.array(starts, np.int64)

    def _from_index(self, index: str) -> np.ndarray:
        """Return the byte position of each record, int64 (n,), from the .idx file `index`.

        A line of `index` is a key and a position. Raises BadInput if `index` has another form or
        belongs to another file.
        """
        try:
            with open(index) as lines:
                starts = np.array(
                    sorted(int(line.split()[1]) for line in lines if line.strip()), np.int64
                )
        except (ValueError, IndexError):
            raise BadInput(
                "%s is not an index (lines of key and position): remove this optional file" % index
            ) from None
        # The last record must end at the end of the file, else the index is of another file.
        fits = not len(starts) or (
            starts[0] == 0
            and starts[-1] < self._size
            and self._record(int(starts[-1]))[1] == self._size
        )
        if not fits:
            raise BadInput(
                "%s does not belong to %s: remove this index file, which is optional"
                % (index, self.path)
            )
        return starts

    def _record(self, start: int) -> Tuple[bytes, int]:
        """Return (content, end) of the record at the byte `start`.

        `end` is the number of the first byte after the record. Raises BadInput if the record is not
        whole.
        """
        parts: List[bytes] = []
        position = start
        while True:
            part, length = self._header(position)
            if part not in ((WHOLE, FIRST) if not parts else (MIDDLE, LAST)):
                self._refuse(position, "the parts of a split record do not fit together")
            content = os.pread(self._fd, length, position + 8)
            if len(content) < length:
                self._refuse(self._size, "the file ends in the middle of a record")
            parts.append(content)
            position += 8 + (length + 3) // 4 * 4
            if part in (WHOLE, LAST):
                return MAGIC.join(parts), position

    def _header(self, position: int) -> Tuple[int, int]:
        """Return (part, length) from the record header at the byte `position`."""
        header = os.pread(self._fd, 8, position)
        if len(header) < 8 or header[:4] != MAGIC:
            self._refuse(position, "no record starts here")
        word = struct.unpack("<I", header[4:])[0]
        return word >> 29, word & (1 << 29) - 1

    def _refuse(self, position: int, fault: str) -> NoReturn:
        raise BadInput(
            "%s is not a whole RecordIO file (at byte %d %s): make or fetch the file again"
            % (self.path, position, fault)
        )


class Images:
    """A source of labelled images from the RecordIO file `path`.

    With an `rng`, `read` cuts a random box out of each image and mirrors the box at random. Without
    an `rng`, or if `pad` and `least_area` are 0, the box is the square in the middle.

    Args:
        path: the path of the file.
        classes: the number of classes.
        pad: pixels for `pictures.shifted_box` (CIFAR-10), 0 for no such box.
        least_area: the least area for `pictures.partial_box` (ImageNet), 0 for no such box.
        middle: the side of the square in the middle, relative to the shorter side of the image.
    """

    def __init__(
        self,
        path: str,
        classes: int,
        pad: int = 0,
        least_area: float = 0.0,
        middle: float = 1.0,
    ) -> None:
        self._records, self._classes = Records(path), classes
        self._pad, self._least_area, self._middle = pad, least_area, middle

    def __len__(self) -> int:
        return len(self._records)

    def read(
        self, indices: Indices, side: int, rng: Optional[np.random.RandomState] = None
    ) -> Tuple[np.ndarray, np.ndarray]:
        """Return (images, labels) at `indices`. An `rng` augments the images.

        The images are float32 (n, 3, side, side), the labels float32 (n,).
        """
        images = np.empty((len(indices), 3, side, side), np.float32)
        labels = np.empty(len(indices), np.float32)
        for row, number in enumerate(indices):
            labels[row], encoded = self._unpack(number)
            images[row] = self._fit(self._decode(encoded, number), side, rng).transpose(2, 0, 1)
        images -= MEAN
        images /= SPREAD
        return images, labels

    def _unpack(self, number: int) -> Tuple[float, bytes]:
        """Return (label, content of the image file) of the record `number`."""
        record = self._records[number]
        if len(record) < IMAGE_HEADER.size:
            raise BadInput(
                "%s: record %d is too short to be an image: make or fetch the file again"
                % (self._records.path, number)
            )
        further, label = IMAGE_HEADER.unpack_from(record)[:2]
        if further:
            label = struct.unpack_from("<f", record, IMAGE_HEADER.size)[0]
        if not 0 <= label < self._classes or label != int(label):
            raise BadInput(
                "%s: record %d has the label %g, but labels are whole numbers from 0 to %d: make "
                "the file again" % (self._records.path, number, label, self._classes - 1)
            )
        return label, record[IMAGE_HEADER.size + 4 * further :]

    def _decode(self, encoded: bytes, number: int) -> np.ndarray:
        """Return the pixels of `encoded`, an image file, as uint8 (height, width, 3), red first.

        Raises BadInput with the record's `number` if MXNet cannot read the image.
        """
        import mxnet as mx

        try:
            return mx.image.imdecode(encoded).asnumpy()
        # Not MXNetError: MXNet 1.2.1 returns a broken array and then raises a bare Exception.
        except Exception as error:
            raise BadInput(
                "%s: record %d is not an image that MXNet can read (%s): make or fetch the file "
                "again" % (self._records.path, number, str(error).splitlines()[0])
            ) from None

    def _fit(
        self, pixels: np.ndarray, side: int, rng: Optional[np.random.RandomState]
    ) -> np.ndarray:
        """Return a box of `pixels`, uint8 (height, width, 3), resized to (side, side, 3).

        With an `rng` the function mirrors the box at random.
        """
        if rng is not None and self._pad:
            pixels = np.pad(
                pixels, ((self._pad, self._pad), (self._pad, self._pad), (0, 0)), "constant"
            )
        height, width = pixels.shape[:2]
        if rng is None or not (self._pad or self._least_area):
            box = pictures.middle_box(height, width, self._middle)
        elif self._pad:
            box = pictures.shifted_box(height, width, self._pad, rng)
        else:
            box = pictures.partial_box(height, width, self._least_area, rng)
        top, left, tall, wide = box
        pixels = pixels[top : top + tall, left : left + wide]
        if (tall, wide) != (side, side):
            import mxnet as mx

            pixels = mx.image.imresize(mx.nd.array(pixels, dtype="uint8"), side, side).asnumpy()
        return pixels[:, ::-1] if rng is not None and rng.randint(2) else pixels
