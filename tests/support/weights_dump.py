"""Tensors of a file or folder as Cotan reads them, by the program tests/parity/weights_dump.c."""
import os
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32,
          "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
          "bf16": np.uint16, "f8e4m3": np.uint8, "f8e5m2": np.uint8, "c64": np.complex64, "c128": np.complex128}


def build(folder):
    program = Path(folder) / "weights_dump"
    archive = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "libcotan.a"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu17", f"-I{ROOT}/src", f"-I{ROOT}/include",
                    f"-I{archive.parent}/derived", str(ROOT / "tests/parity/weights_dump.c"), "-o", str(program),
                    str(archive), "-ljansson", "-lz", "-lm", "-lpthread", "-ldl"], check=True)
    return program


def dump(program, path):
    """{name: array}, bf16 and f8 by their bits; a sentence where the files are refused."""
    out = program.with_suffix(".bytes")
    done = subprocess.run([program, path, out], capture_output=True, text=True, timeout=120)
    if done.returncode:
        return done.stdout.removeprefix("no ").removesuffix("\n")
    room, at, tensors = out.read_bytes(), 0, {}
    for line in done.stdout.splitlines():
        name, _, dtype, dims = line.split("\t")
        shape = [int(d) for d in dims.split(",") if d]
        n = int(np.prod(shape, dtype=np.int64))
        tensors[name] = np.frombuffer(room, DTYPES[dtype], n, at).reshape(shape)
        at += n * tensors[name].itemsize
    assert at == len(room)
    return tensors
