"""GGUF files of any content, for tests: version 3, without the package gguf."""
import struct

TYPES = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?"),
         "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}
STRING, ARRAY = 8, 9


def text(s):
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(data)) + data


def value(v):
    """Of text or bytes a string, of True a bool, of a whole number u32, of another one f32; ("i32", 1) and ("i32", [1, 2]) say the
    type; a list of texts."""
    if isinstance(v, (str, bytes)):
        return struct.pack("<I", STRING) + text(v)
    if isinstance(v, list):
        return struct.pack("<IIQ", ARRAY, STRING, len(v)) + b"".join(map(text, v))
    kind, number = v if isinstance(v, tuple) else ("bool" if isinstance(v, bool) else "u32" if isinstance(v, int) else "f32", v)
    code, packed = TYPES[kind]
    if isinstance(number, list):
        return struct.pack("<IIQ", ARRAY, code, len(number)) + struct.pack(f"<{len(number)}{packed}", *number)
    return struct.pack(f"<I{packed}", code, number)


def gguf(pairs, tensors=(), of=(2, (32, 4), 72)):
    """The bytes of a file. tensors: names of zeros, each `of` a type's number, dims (innermost first) and bytes; or {name: (type, dims,
    data)}."""
    if not isinstance(tensors, dict):
        tensors = {name: (of[0], of[1], bytes(of[2])) for name in tensors}
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)), b""
    head += b"".join(text(k) + value(v) for k, v in pairs.items())
    for name, (kind, dims, held) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += held + bytes(-len(held) % 32)
    return head + bytes(-len(head) % 32) + data
