"""Digits for what learns to tell them: 8-bit images of 28 x 28 and their classes."""
import gzip
import random
import struct
from pathlib import Path

SIDE, EACH = 28, 3  # an image of 8 x 8 has nine pixels for one, and two around them


def enlarged(pixels):
    image = bytearray(SIDE * SIDE)
    for at, value in enumerate(pixels):
        for row in range(EACH):
            begin = (2 + EACH * (at // 8) + row) * SIDE + 2 + EACH * (at % 8)
            image[begin:begin + EACH] = bytes([min(255, 16 * value)] * EACH)
    return bytes(image)


def written_by_hand():
    """[(image, class)], shuffled, so that each part has digits of all writers."""
    with gzip.open(Path(__file__).resolve().parents[1] / "data/digits.csv.gz", "rt") as lines:
        rows = [[int(cell) for cell in line.split(",")] for line in lines]
    random.Random(0).shuffle(rows)
    return [(enlarged(row[:64]), row[64]) for row in rows]


def write_idx(prefix, digits):
    """The two files of MNIST's format."""
    n = len(digits)
    for kind, sizes, values in (("images-idx3", (n, SIDE, SIDE), b"".join(image for image, _ in digits)),
                                ("labels-idx1", (n,), bytes(label for _, label in digits))):
        head = bytes([0, 0, 8, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes)
        Path(f"{prefix}-{kind}-ubyte").write_bytes(head + values)
