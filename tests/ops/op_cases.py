"""Cases for single ops: written for `test_ops --cases`, which evaluates them, and read back."""
import os
import struct
import subprocess
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
from support.program import command

PROGRAM = command("tests/ops/test_ops")
NUMPY = {"bool": np.bool_, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
         "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
         "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
         "u4": ml_dtypes.uint4, "i4": ml_dtypes.int4, "f4": ml_dtypes.float4_e2m1fn,
         "c64": np.complex64, "c128": np.complex128}
DTYPES = ["?", *NUMPY]
PACKED = ("u4", "i4", "f4")  # two elements a byte; tests/ops/test_dtypes.py has their cases
COMPLEX = ("c64", "c128")  # tests/ops/test_complex.py has their cases
COMPLEX_OPS = ("complex", "real", "imag", "conj", "angle")
LINALG_OPS = ("cholesky", "triangular_solve", "lu", "lu_solve", "qr", "eigh", "eigvalsh", "svd", "svdvals", "eig",
              "eigvals", "solve", "inv", "det", "slogdet", "pinv", "lstsq", "matrix_rank", "matrix_power", "vector_norm",
              "matrix_norm", "matrix_cond", "vecdot", "outer", "cross", "kron", "diagonal", "matrix_trace",
              "multi_dot")  # test_linalg.py
APART = COMPLEX_OPS + LINALG_OPS + ("fft",) + ("quantise", "dequantise", "quantised_matmul", "quantised_product", "chosen_product", "dequantised_product", "dequantise_offset", "offset_product")  # ops that have tests of their own
NARROW = ("f8e4m3", "f8e5m2", "f16", "bf16")  # floats that are computed in f32, and rounded after each op
FLOATS = NARROW + ("f32", "f64")
WHOLE = [d for d in NUMPY if d not in PACKED and d not in COMPLEX]  # elements of whole bytes
# All numbers of a narrow float, in the order of their codes.
EVERY = {d: np.arange(2 ** (8 * np.dtype(NUMPY[d]).itemsize)).astype(f"u{np.dtype(NUMPY[d]).itemsize}").view(NUMPY[d])
         for d in NARROW}
DYNAMIC = 0x5d1e << 48
END = 2**63 - 1
PLAIN, REVERSED, EXPANDED = 0, 1, 2


def dyn(n):
    """A size that is an argument of the kernels."""
    return n + DYNAMIC


def is_float(array):
    return array.dtype.kind == "f" or any(array.dtype == NUMPY[d] for d in NARROW)


def rounded(array, dtype):
    """Doubles in a dtype, rounded once."""
    with np.errstate(all="ignore"):
        return (odd_f32(array) if dtype in NARROW else array).astype(NUMPY[dtype])


def odd_f32(x):
    """Doubles as f32 numbers that round to a narrower float as the doubles do: where they are not exact, the neighbour of
    which the last bit is set. (ml_dtypes goes by f32 from wherever it comes, which would round twice.)"""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        near = x.astype(np.float32)
        bits = near.view(np.int32)
        size, got = np.abs(x), np.abs(near.astype(np.float64))
        step = np.where(size < got, -1, np.where(got < size, 1, 0))
        return np.where(bits & 1, bits, bits + step).astype(np.int32).view(np.float32)


class Op:
    def __init__(self, place, line):
        cells = line.split()
        self.place, self.name, self.kind = place, cells[0], cells[1]
        self.n_in, self.n_out, accepts = int(cells[2]), int(cells[3]), int(cells[4])
        self.takes = [d for i, d in enumerate(DTYPES) if i and accepts >> i & 1]
        self.accepts = [d for d in self.takes if d not in PACKED and d not in COMPLEX]
        self.gradient = cells[5] == "1"
        self.lo, self.hi = float(cells[6]), float(cells[7])
        if self.lo == 0 and self.hi == 0:
            self.lo, self.hi = -2.0, 2.0
        self.integers, self.kinks, self.ulp = cells[8] == "1", cells[9] == "1", float(cells[10])
        self.fields = [tuple(cell.split(":")) for cell in cells[11:]]


def read_table(leave_out=APART):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*PROGRAM, "--table", f"{folder}/table"], check=True)
        lines = Path(f"{folder}/table").read_text().splitlines()
    return {op.name: op for op in (Op(i, line) for i, line in enumerate(lines)) if op.name not in leave_out}


class Operand:
    """An array as an operand: as it is, behind a permute (its bytes lie reversed), or expanded to `wide`."""

    def __init__(self, array, view=PLAIN, wide=None, dims=None, dtype=None):
        self.array = np.asarray(array)
        self.view, self.wide, self.dims = view, wide, dims
        self.dtype = dtype or next(d for d, n in NUMPY.items() if n == self.array.dtype.type)

    def value(self):
        return np.broadcast_to(self.array, self.wide) if self.view == EXPANDED else self.array

    def words(self):
        laid = np.ascontiguousarray(self.array.T if self.view == REVERSED else self.array)
        if self.array.ndim == 0:
            laid = laid.reshape(())
        out = [pack(self.view, DTYPES.index(self.dtype)), ints(self.dims or laid.shape)]
        if self.view == EXPANDED:
            out.append(ints(self.wide))
        return b"".join(out) + data(laid)


def pack(*words):
    return struct.pack(f"<{len(words)}q", *words)


def ints(values):
    values = [int(v) for v in values]
    return pack(len(values), *values)


def packed(array):
    """Codes of 4 bits, two a byte, the first in the lower half."""
    code = np.append(array.ravel().view(np.uint8) & 15, np.zeros(array.size % 2, np.uint8))
    return code[::2] | code[1::2] << 4


def unpacked(raw, kind, dims):
    byte, n = np.frombuffer(raw, np.uint8), int(np.prod(dims, dtype=np.int64))
    code = np.stack([byte & 15, byte >> 4], -1).ravel()[:n]
    if kind == ml_dtypes.int4:  # which has its sign in all bits of a byte
        code = (code ^ 8) - np.uint8(8)
    return code.view(kind).reshape(dims)


def data(array):
    raw = (packed(array) if any(array.dtype == NUMPY[d] for d in PACKED) else array).tobytes()
    return pack(len(raw)) + raw + b"\0" * (-len(raw) % 8)


def attr_words(op, attrs):
    """The op's attributes, in the order of its fields; one that is not given is its default."""
    out = []
    for kind, name in op.fields:
        v = attrs.get(name)
        if kind == "num":
            out.append(pack(v is not None) + struct.pack("<d", v or 0.0))
        elif kind == "f64":
            out.append(struct.pack("<d", v or 0.0))
        elif kind == "ints":
            out.append(ints(v or ()))
        elif kind == "dtype":
            out.append(pack(DTYPES.index(v or "?")))
        else:
            out.append(pack(int(v or 0)))
    return b"".join(out)


class Case:
    """`weights`: None, or arrays f64, one an output, that make outputs a loss to differentiate; `directions`: one an
    operand of f64, that make the gradient a number to differentiate again (`again`)."""

    def __init__(self, op, operands, attrs=None, weights=None, directions=None, again=True):
        self.op = op
        self.operands = [o if isinstance(o, Operand) else Operand(o) for o in operands]
        self.attrs = attrs or {}
        self.weights, self.directions, self.again = weights, directions, again
        self.compiled = True  # by check() of test_op_values.py, besides being interpreted
        unknown = set(self.attrs) - {name for _, name in op.fields}
        assert not unknown, f"{op.name} has no attribute {unknown}"

    def __repr__(self):
        shapes = ", ".join(f"{o.value().shape} {o.dtype}" + ["", " permuted", " expanded"][o.view]
                           for o in self.operands)
        return f"{self.op.name}({shapes}; {self.attrs})"

    def words(self):
        out = [pack(self.op.place, self.weights is not None), attr_words(self.op, self.attrs)]
        out.append(pack(len(self.operands)))
        out += [o.words() for o in self.operands]
        if self.weights is not None:
            out += [data(np.asarray(w, np.float64)) for w in self.weights]
            out += [data(np.asarray(d, np.float64)) for d in self.directions]
            out.append(pack(self.again))
        return b"".join(out)


class Failure(str):
    """The error text of a case that failed."""


class Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def word(self):
        self.at += 8
        return struct.unpack_from("<q", self.raw, self.at - 8)[0]

    def bytes(self, n):
        start = self.at
        self.at += n + (-n % 8)
        return self.raw[start:start + n]

    def tensor(self):
        dtype = DTYPES[self.word()]
        dims = [self.word() for _ in range(self.word())]
        kind = NUMPY[dtype]
        n = int(np.prod(dims, dtype=np.int64))
        if dtype in PACKED:
            return unpacked(self.bytes((n + 1) // 2), kind, dims)
        raw = self.bytes(n * np.dtype(kind).itemsize)
        return np.frombuffer(raw, kind).reshape(dims)


def run(cases, device="ref", compiled=True, program=PROGRAM, mode="--cases", **env):
    """The tensors of each case, or a Failure. `compiled`: or else kernels are interpreted, which costs nothing before."""
    env = os.environ | env | ({} if compiled else {"COTAN_CC": "none"})
    with tempfile.TemporaryDirectory() as folder:
        Path(f"{folder}/in").write_bytes(b"".join(case.words() for case in cases))
        done = subprocess.run([*program, mode, device, f"{folder}/in", f"{folder}/out"],
                              capture_output=True, text=True, env=env)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-2000:]}"
        r = Reader(Path(f"{folder}/out").read_bytes())
    results = []
    for _ in cases:
        if r.word():
            results.append(Failure(r.bytes(r.word()).decode()))
        else:
            results.append([r.tensor() for _ in range(r.word())])
    assert r.at == len(r.raw)
    return results


def draw(rng, op, dtype, shape, distinct=False):
    """Values of a dtype in the op's range; `distinct`: no two so near that a small step makes them change places."""
    n = int(np.prod(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype not in FLOATS:
        lo, hi = (op.lo, op.hi) if op.integers else (-9, 9)
        if dtype[0] == "u":
            lo = max(lo, 0)
        return rng.integers(int(lo), int(hi) + 1, shape).astype(NUMPY[dtype])
    if distinct and n:
        steps = (np.arange(n) + 0.25 + 0.5 * rng.random(n)) / n
        values = op.lo + (op.hi - op.lo) * rng.permutation(steps).reshape(shape)
    else:
        values = rng.uniform(op.lo, op.hi, shape)
    if op.integers:
        values = np.round(values)
    return values.astype(NUMPY[dtype])


def least(dtype):
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def most(dtype):
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


def whole(values):
    return [int(v) - DYNAMIC if DYNAMIC <= v < DYNAMIC + (1 << 48) else int(v) for v in values]
