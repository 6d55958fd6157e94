"""Tensors in safetensors files."""
import json
import struct

import ml_dtypes
import numpy as np

DTYPES = {"U8": np.uint8, "U32": np.uint32, "F8_E4M3": ml_dtypes.float8_e4m3fn, "BF16": ml_dtypes.bfloat16,
          "F32": np.float32, "F64": np.float64, "F16": np.float16, "I32": np.int32, "I64": np.int64, "BOOL": np.bool_}


def write(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        kind = next(k for k, d in DTYPES.items() if d == t.dtype)
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # as the format's own library does, so that tensors are aligned
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(np.ascontiguousarray(t).tobytes())


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(raw[8 + n + begin:8 + n + end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors
