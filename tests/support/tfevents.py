"""Reads TensorBoard's event files strictly: every byte is accounted for, every checksum compared."""
import struct
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Event:
    wall_time: float = 0.0
    step: int = 0
    file_version: str = ""
    scalars: dict = field(default_factory=dict)
    starts: bool = False


def crc32c(data):
    """Bit by bit, unlike what it checks."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of the polynomial


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(raw):
    at = 0
    while at < len(raw):
        head = raw[at:at + 8]
        (length,), (check,) = struct.unpack("<Q", head), struct.unpack_from("<I", raw, at + 8)
        assert check == masked(head), f"the length's checksum at byte {at}"
        data = raw[at + 12:at + 12 + length]
        assert len(data) == length
        assert struct.unpack_from("<I", raw, at + 12 + length)[0] == masked(data), f"the checksum at byte {at}"
        yield data
        at += 16 + length


def varint(raw, at):
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            assert byte or shift == 7, "a varint longer than needed"
            return value, at


def fields(raw):
    """(number, value) of each field: int, or bytes of 4, 8 or any length."""
    at = 0
    while at < len(raw):
        key, at = varint(raw, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(raw, at)
        else:
            n = {1: 8, 5: 4}.get(wire)
            if n is None:
                assert wire == 2
                n, at = varint(raw, at)
            value, at = raw[at:at + n], at + n
            assert len(value) == n
        yield key >> 3, value


def scalar(raw):
    (one, tag), (two, value) = fields(raw)
    assert (one, two) == (1, 2)
    return tag.decode(), struct.unpack("<f", value)[0]


def event(raw):
    out = Event()
    for number, value in fields(raw):
        if number == 1:
            out.wall_time = struct.unpack("<d", value)[0]
        elif number == 2:
            out.step = value
        elif number == 3:
            out.file_version = value.decode()
        elif number == 5:
            for one, v in fields(value):
                assert one == 1
                tag, number = scalar(v)
                assert tag not in out.scalars
                out.scalars[tag] = number
        else:
            assert number == 7 and list(fields(value)) == [(1, 1)]
            out.starts = True
    return out


def read(path):
    return [event(data) for data in records(Path(path).read_bytes())]
