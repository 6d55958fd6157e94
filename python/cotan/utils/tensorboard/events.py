"""TensorBoard's event files: records of protocol buffers messages, which are encoded here field by field."""
import os
import socket
import struct
import time


def _crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def masked_crc(data):
    """Returns the CRC-32C, rotated and with an offset, as the format requires."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    value &= (1 << 64) - 1  # a negative number is its 64 bits
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """Encodes an int as a varint, a float as a double, text or bytes as they are, a list of floats packed."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, list):
        value = struct.pack(f"<{len(value)}d", *value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def float_field(number, value):
    return varint(number << 3 | 5) + struct.pack("<f", value)


def plugin(name, content=b""):
    """Returns Summary.Value's metadata: which part of TensorBoard shows it."""
    return field(9, field(1, field(1, name) + (field(2, content) if content else b"")))


def summary_of(tag, *parts):
    """Returns a Summary of one value."""
    return field(1, field(1, tag) + b"".join(parts))


class EventFile:
    """A new event file of a folder. Events are written to the disk when `most` wait, or `seconds` have passed."""

    def __init__(self, folder, suffix="", most=10, seconds=120):
        os.makedirs(folder, exist_ok=True)
        self.most, self.seconds, self.waiting, self.written_at = most, seconds, 0, time.time()
        for number in range(1 << 20):
            name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{number}{suffix}"
            try:
                self.file = open(os.path.join(folder, name), "xb")
                break
            except FileExistsError:  # of a writer of the same second
                continue
        self.put(field(3, "brain.Event:2"))
        self.flush()

    def put(self, content, step=None, walltime=None):
        """Writes an Event with this summary (or version)."""
        event = field(1, float(time.time() if walltime is None else walltime)) + (field(2, int(step)) if step else b"") + content
        length = struct.pack("<Q", len(event))
        self.file.write(length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event)))
        self.waiting += 1
        if self.waiting >= self.most or time.time() - self.written_at > self.seconds:
            self.flush()

    def flush(self):
        if not self.file.closed:
            self.file.flush()
        self.waiting, self.written_at = 0, time.time()

    def close(self):
        self.file.close()
