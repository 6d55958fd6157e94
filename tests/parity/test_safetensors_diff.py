"""Cotan's safetensors reader and writer against the format's reference implementation.

Needs the packages `safetensors` and `numpy`, a C compiler and build/libcotan.a; run by `make
parity`. Both readers see the same mutated files (fixed seed, COTAN_FUZZ_SEED and COTAN_FUZZ_RUNS
override); verdict, names, dtypes, shapes and sizes must agree. Where they may differ is listed in
`stricter`: the places in which the format's text forbids what the reference reader lets pass.
"""
import os
import random
import re
import struct
import subprocess
from pathlib import Path

import pytest

safetensors = pytest.importorskip("safetensors")
numpy = pytest.importorskip("numpy")
import safetensors.numpy  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SEED = int(os.environ.get("COTAN_FUZZ_SEED", "20251"))
RUNS = int(os.environ.get("COTAN_FUZZ_RUNS", "60000"))

# Sentences by which Cotan refuses what the reference reader accepts, each a rule of the format's
# text: the header begins with '{', keys are unique, a description is an object, a dtype a string.
stricter = [
    r'the header begins with "(\\[nrt]| )", not with',
    r'tensor ".*" appears twice',
    r'__metadata__: key ".*" appears twice',
    r"its description is an array, not an object",
    r"dtype is an object, not a string",
]


@pytest.fixture(scope="session")
def verdict(tmp_path_factory):
    program = tmp_path_factory.mktemp("st") / "verdict"
    archive = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "libcotan.a"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu17", f"-I{ROOT}/src", f"-I{ROOT}/include",
         f"-I{archive.parent}/derived",
         str(ROOT / "tests/parity/safetensors_verdict.c"), "-o", str(program), str(archive),
         "-ljansson", "-lz", "-lm", "-lpthread", "-ldl"], check=True)
    return program


def reference(data):
    try:
        tensors = safetensors.deserialize(data)
    except Exception as error:  # its own exception type, and UnicodeDecodeError
        return "no", str(error)
    return "ok", sorted(
        (name.encode(), t["dtype"], tuple(t["shape"]), len(t["data"])) for name, t in tensors)


def parse(line):
    word, _, rest = line.partition(" ")
    if word == "no":
        return word, rest
    tensors = []
    for item in rest.split():
        name, dtype, shape, size = item.split("/")
        dims = tuple(int(d) for d in shape.split(",") if d)
        tensors.append((bytes.fromhex(name), dtype, dims, int(size)))
    return word, sorted(tensors)


def ask(program, files):
    blob = b"".join(struct.pack("<Q", len(f)) + f for f in files)
    out = subprocess.run([program], input=blob, capture_output=True, check=True).stdout
    lines = out.decode().rstrip("\n").split("\n")
    assert len(lines) == len(files)
    return [parse(line) for line in lines]


def compare(program, files):
    counts = {"ok": 0, "no": 0, "stricter": 0}
    for data, ours in zip(files, ask(program, files)):
        theirs = reference(data)
        if ours[0] == "no" and theirs[0] == "ok" and any(re.search(p, ours[1]) for p in stricter):
            counts["stricter"] += 1
            continue
        assert ours[0] == theirs[0], (data, ours, theirs)
        if ours[0] == "ok":
            assert ours[1] == theirs[1], data
        counts[ours[0]] += 1
    return counts


def file_of(header, data, length=None):
    return struct.pack("<Q", len(header) if length is None else length) + header + b"\0" * data


SEEDS = [
    (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8),
    (b'{"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},'
     b'"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}', 9),
    (b'{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2],"x":[{"y":-1.5e3},null,true]},'
     b'"\\ud83d\\ude00":{"dtype":"I64","shape":[0,3],"data_offsets":[2,2]}}  ', 2),
]
PIECES = [
    b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\udc00", b"\\n",
    b"\\/", b"0", b"1", b"-", b"-0", b".", b"1e400", b"1e-400", b"1.0", b"1E+2", b"null", b"true",
    b"false", b"F64", b"F16", b"U8", b"BF16", b"F6_E2M3", b"F8_E8M0", b"C64", b"dtype", b"shape",
    b"data_offsets", b"__metadata__", b"18446744073709551615", b"18446744073709551616",
    b"9223372036854775808", b"\xff", b"\xed\xa0\x80", b"\xc3\xa9", b"\n", b" ", b"\t", b"\0",
    b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},', b'"x":1,', b'"__metadata__":null,',
    b"[" * 123, b"]" * 123, b"1" * 320,
]


def mutate(rng, text):
    at, kind = rng.randint(0, len(text)), rng.randrange(6)
    if kind == 0:
        return text[:at] + bytes([rng.randrange(256)]) + text[at + 1:]
    if kind == 1:
        return text[:at] + text[at + rng.randrange(4):]
    if kind == 2:
        return text[:at] + rng.choice(PIECES) + text[at + rng.randrange(3):]
    if kind == 3:
        begin = rng.randint(0, len(text))
        return text[:at] + text[begin:begin + rng.randrange(64)] + text[at:]
    if kind == 4:
        spots = [m.start() for m in re.finditer(rb"\d", text)]
        if spots:
            spot = rng.choice(spots)
            return text[:spot] + str(rng.randrange(12)).encode() + text[spot + 1:]
    # Between two tokens, where pieces are most often legal.
    spots = [m.end() for m in re.finditer(rb"[{,:\[]", text)]
    at = rng.choice(spots) if spots else 0
    return text[:at] + rng.choice(PIECES) + text[at:]


def test_mutated_files(verdict):
    rng = random.Random(SEED)
    print("seed", SEED)
    files = []
    for _ in range(RUNS):
        header, data = rng.choice(SEEDS)
        for _ in range(rng.randint(1, 3)):
            header = mutate(rng, header)
        if rng.random() < 0.1:
            data = rng.randrange(20)
        length = None if rng.random() < 0.95 else len(header) + rng.randrange(-4, 5)
        files.append(file_of(header, data, max(length, 0) if length is not None else None))
    counts = compare(verdict, files)
    print(counts)
    assert counts["ok"] > RUNS // 50 and counts["no"] > RUNS // 50


def test_structured_files(verdict):
    """Headers that are well-formed, with every dtype and offsets often but not always right."""
    rng = random.Random(SEED + 1)
    dtypes = ("BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 "
              "U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64 I4 F128 C128").split()
    bits = dict(zip(dtypes, [8, 4, 6, 6] + [8] * 7 + [16] * 4 + [32] * 3 + [64] * 4 + [4] * 3))
    files = []
    for _ in range(RUNS // 4):
        at, items = 0, []
        for i in range(rng.randrange(5)):
            dtype = rng.choice(dtypes[:-3] * 8 + dtypes)
            shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.randrange(4))]
            if rng.random() < 0.03:
                shape.insert(rng.randint(0, len(shape)), rng.choice([2**63, 2**64 - 1, 2**61]))
            count = bits[dtype]
            for d in shape:
                count *= d
            size = (count // 8) % 4096
            begin, end = at, at + size
            if rng.random() < 0.05:
                begin += rng.choice([-1, 1, 4])
            if rng.random() < 0.05:
                end += rng.choice([-1, 1, 4])
            at += size
            items.append('"t%d":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (
                i, dtype, shape, max(begin, 0), max(end, 0)))
        rng.shuffle(items)
        files.append(file_of(("{" + ",".join(items) + "}").encode(),
                             max(0, at + rng.choice([0] * 20 + [-1, 1]))))
    counts = compare(verdict, files)
    print(counts)
    assert counts["ok"] > RUNS // 20 and counts["no"] > RUNS // 50


def test_lengths(verdict):
    limit = 100_000_000
    files = [b"", b"\0" * 7, file_of(b"", 0), file_of(b"{}", 0, 3), file_of(b"{}", 0, limit),
             file_of(b"{}", 0, limit + 1), file_of(b"{}", 0, 2**64 - 1),
             file_of(b"{}", 0, 2**64 - 8), file_of(b"{}" + b" " * (limit - 2), 0),
             file_of(b"{}" + b" " * (limit - 1), 0)]
    compare(verdict, files)


def test_written_files_equal_the_reference_writers(verdict, tmp_path):
    """Read by us, written by us: the same bytes as the reference writer's."""
    rng = numpy.random.default_rng(SEED)
    tensors = {}
    for i, dtype in enumerate("bool uint8 int32 uint32 int64 float16 float32 float64".split() * 3):
        shape = [int(d) for d in rng.integers(0, 5, rng.integers(0, 4))]
        tensors[f"layer.{i}.\u00e9\"\\\n"] = numpy.array(rng.random(shape) * 100, dtype=dtype)
    one, two = tmp_path / "one", tmp_path / "two"
    safetensors.numpy.save_file(tensors, one, metadata={"format": "pt"})
    subprocess.run([verdict, one, two], check=True)
    assert one.read_bytes() == two.read_bytes()
    back = safetensors.numpy.load_file(two)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype and numpy.array_equal(back[name], tensor)
