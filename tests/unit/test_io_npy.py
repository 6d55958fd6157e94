"""npy and npz files against NumPy: what it writes is read, what is written it reads, byte for byte where it
can be; what is hostile is refused, and whatever is accepted NumPy reads as the same array."""
import io
import os
import random
import struct
import subprocess
import warnings
import zipfile

import numpy as np
import pytest
from support.program import command

PROGRAM = command("tests/unit/test_io_npy")
SEED = 20261
DTYPES = ["?", "u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"]
SHAPES = [(), (1,), (7,), (0,), (3, 0), (2, 3), (5, 1, 4), (3, 4, 2, 5)]


def copy(jobs):
    """Each (from, to, how) through tensors; "ok" or the error text."""
    lines = "".join(f"{a} {b} {how}\n" for a, b, how in jobs)
    done = subprocess.run([*PROGRAM, "--copy"], input=lines.encode(), capture_output=True, timeout=300,
                          env=os.environ | {"COTAN_DEVICE": "ref"})
    assert done.returncode == 0, done.stderr.decode()
    texts = done.stdout.decode().split("\0")[:-1]
    assert len(texts) == len(jobs)
    return texts


def array(rng, dtype, shape):
    raw = rng.integers(0, 256, (int(np.prod(shape)), np.dtype(dtype).itemsize), np.uint8)
    if np.dtype(dtype).kind == "b":
        raw %= 2
    return raw.reshape(-1).view(dtype).reshape(shape)  # all bit patterns, NaNs too


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_arrays(tmp_path):
    """Every dtype and shape; big-endian; Fortran's order; the three versions of the header."""
    rng, jobs, wants = np.random.default_rng(SEED), [], []
    for dtype in DTYPES:
        for shape in SHAPES:
            want = array(rng, dtype, shape)
            variants = [(want, v) for v in ((1, 0), (2, 0), (3, 0))]
            variants.append((want.copy(order="F"), (1, 0)))
            swapped = want.byteswap().view(want.dtype.newbyteorder(">"))
            variants += [(swapped, (1, 0)), (swapped.copy(order="F"), (2, 0))]
            for a, version in variants:
                path = tmp_path / f"{len(jobs)}.npy"
                with open(path, "wb") as f:
                    np.lib.format.write_array(f, a, version)
                jobs.append((path, tmp_path / f"{len(jobs)}.out", "npy"))
                wants.append(want)
    for (_, to, _), want, text in zip(jobs, wants, copy(jobs)):
        assert text == "ok"
        plain = io.BytesIO()
        np.save(plain, want)
        assert to.read_bytes() == plain.getvalue(), (want.dtype, want.shape)


def test_bools_of_other_values(tmp_path):
    """Any byte but 0 is True to NumPy; here it becomes 1."""
    path = tmp_path / "b.npy"
    np.save(path, np.array([True, False, True]))
    path.write_bytes(path.read_bytes()[:-3] + b"\x02\x00\xff")
    assert copy([(path, tmp_path / "o.npy", "npy")]) == ["ok"]
    assert (tmp_path / "o.npy").read_bytes()[-3:] == b"\1\0\1"


@pytest.mark.parametrize("save, how", [(np.savez, "store"), (np.savez_compressed, "deflate"),
                                       (np.savez, "deflate"), (np.savez_compressed, "store")])
def test_archives(tmp_path, save, how):
    rng = np.random.default_rng(SEED)
    wants = {f"{i}/{np.dtype(d).name}": array(rng, d, s) for i, s in enumerate(SHAPES) for d in DTYPES}
    wants |= {"ünïcode": np.zeros((300, 1000)), "f": np.asfortranarray(array(rng, "<f4", (30, 40))), "": np.float32(2)}
    save(tmp_path / "a.npz", **wants)
    assert copy([(tmp_path / "a.npz", tmp_path / "b.npz", how)]) == ["ok"]
    assert zipfile.ZipFile(tmp_path / "b.npz").testzip() is None
    packed = {i.compress_type for i in zipfile.ZipFile(tmp_path / "b.npz").infolist()}
    assert packed == {zipfile.ZIP_DEFLATED if how == "deflate" else zipfile.ZIP_STORED}
    with np.load(tmp_path / "b.npz") as got:
        assert list(got) == list(wants)
        for name, want in wants.items():
            assert same(got[name], np.asarray(want)), name
    copy([(tmp_path / "a.npz", tmp_path / "c.npz", how)])
    assert (tmp_path / "b.npz").read_bytes() == (tmp_path / "c.npz").read_bytes()


def test_empty_archive(tmp_path):
    np.savez(tmp_path / "a.npz")
    assert copy([(tmp_path / "a.npz", tmp_path / "b.npz", "store")]) == ["ok"]
    assert list(np.load(tmp_path / "b.npz")) == []


HINT = "\n  hint: bool, u8, u16, u32, u64, i8, i16, i32, i64, f16, f32 and f64 can be read; NumPy's astype makes one of them"


@pytest.mark.parametrize("dtype, refusal", [
    ("<c8", 'its dtype is "<c8", of which Cotan has none' + HINT),
    ("<c16", 'its dtype is "<c16", of which Cotan has none' + HINT),
    ("<f16", 'its dtype is "<f16", of which Cotan has none' + HINT),
    ("<U5", 'its dtype is "<U5", of which Cotan has none' + HINT),
    ("|S3", 'its dtype is "|S3", of which Cotan has none' + HINT),
    ("|V4", 'its dtype is "|V4", of which Cotan has none' + HINT),
    ("<M8[ns]", 'its dtype is "<M8[ns]", of which Cotan has none' + HINT),
    ("<m8[10us]", 'its dtype is "<m8[10us]", of which Cotan has none' + HINT),
    ("O", 'descr "|O" means Python objects, pickled; they are never read'),
    ([("x", "<f4"), ("y", "<i4")], "descr is a list: arrays of records are not supported"),
])
def test_other_dtypes(tmp_path, dtype, refusal):
    npy, npz = tmp_path / "a.npy", tmp_path / "a.npz"
    a = np.zeros((2, 3), dtype)
    np.save(npy, a)
    np.savez(npz, name=a)
    assert copy([(npy, tmp_path / "o", "npy"), (npz, tmp_path / "o", "store")]) == [
        f"{npy}: npy: {refusal}", f'{npz}: npz: array "name": {refusal}']


# ------------------------------------------------------------------------------------ hostile archives


def npy(a=np.arange(6.0)):
    out = io.BytesIO()
    np.save(out, a)
    return out.getvalue()


def archive(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that comes twice
        with zipfile.ZipFile(out, "w", method) as z:
            for name, data in members:
                z.writestr(zipfile.ZipInfo(name), data, method)
    return bytearray(out.getvalue())


def local(raw):
    return raw.index(b"PK\3\4")


def central(raw, number=0):
    at = -1
    for _ in range(number + 1):
        at = raw.index(b"PK\1\2", at + 1)
    return at


def end(raw):
    return raw.rindex(b"PK\5\6")


def edited(*changes, raw=None):
    """An archive of one array, or `raw`, with (place, offset, form, value) written over it."""
    raw = archive([("a.npy", npy())]) if raw is None else raw
    at = {"local": local(raw), "central": central(raw), "end": end(raw), "start": 0}
    for where, offset, form, value in changes:
        struct.pack_into(form, raw, at[where] + offset, value)
    return raw


def packed_size(value):  # in the entry's own header and in the directory
    return ("local", 18, "<I", value), ("central", 20, "<I", value)


def full_size(value):
    return ("local", 22, "<I", value), ("central", 24, "<I", value)


def overlapping():
    """Two entries of the directory, one place."""
    raw = archive([("a.npy", npy()), ("a.npy", npy())])
    struct.pack_into("<I", raw, central(raw, 1) + 42, 0)
    return raw


def zeros(n):
    return archive([("a.npy", npy(np.zeros(n)))], zipfile.ZIP_DEFLATED)


def flipped(raw, at):
    raw[at] ^= 0x10
    return raw


def wrong_claim():
    """The npy file ends before its member does."""
    return archive([("a.npy", npy() + b"xyz")])


SIZE = len(archive([("a.npy", npy())]))
CUT = "the end of the archive is missing: it is cut short"
HOSTILE = {
    "empty": (b"", 'it is no zip archive: it begins with "", not with "PK"'),
    "an npy file": (npy(), 'it is no zip archive: it begins with "\\x93NUM", not with "PK"'),
    "something in front": (b"MZ" + archive([("a.npy", npy())]),
                           'it is no zip archive: it begins with "MZPK", not with "PK"'),
    "cut behind the data": (archive([("a.npy", npy())])[:200], CUT),
    "cut in its end": (archive([("a.npy", npy())])[:-9], CUT),
    "cut by a byte": (archive([("a.npy", npy())])[:-1], CUT),
    "something behind": (archive([("a.npy", npy())]) + b"x", CUT),
    "far directory": (edited(("end", 16, "<I", 100000)), "its directory cannot be found"),
    "newer format": (edited(("local", 4, "<H", 73), ("central", 6, "<H", 73)),
                     'array "a": it needs version 7.3 of the zip format'),
    "count too large": (edited(("end", 8, "<H", 60000), ("end", 10, "<H", 60000)),
                        f"the directory has 60000 entries by its count, but the file only {SIZE} bytes"),
    "count one too large": (edited(("end", 8, "<H", 2), ("end", 10, "<H", 2)),
                            "entry 2 of 2 of the directory is damaged"),
    "no directory": (edited(("central", 0, "<I", 0)), "entry 1 of 1 of the directory is damaged"),
    "name too long": (edited(("central", 28, "<H", 60000)), "entry 1 of 1 of the directory is damaged"),
    "twice": (archive([("a.npy", npy()), ("b.npy", npy()), ("a.npy", npy())]),
              'array "a": its name comes twice'),
    "climbs": (archive([("../a.npy", npy())]), 'the name "..\\/a.npy" leads out of its folder'),
    "climbs inside": (archive([("a/../../b.npy", npy())]), 'the name "a/..\\/..\\/b.npy" leads out of its folder'),
    "climbs with backslashes": (archive([("a\\..\\b.npy", npy())]),
                                'the name "a\\\\..\\\\b.npy" leads out of its folder'),
    "from the root": (archive([("/a.npy", npy())]), 'the name "\\/a.npy" leads out of its folder'),
    "no array": (archive([("readme.txt", b"hello")]),
                 '"readme.txt" is no array: its name does not end in ".npy"'),
    "short name": (archive([("npy", npy())]), '"npy" is no array: its name does not end in ".npy"'),
    "not UTF-8": (edited(("local", 30, "B", 0xff), ("central", 46, "B", 0xff)),
                  'the name "\\xff.npy" is not UTF-8, or has a zero byte'),
    "zero byte": (edited(("local", 30, "B", 0), ("central", 46, "B", 0)),
                  'the name "\\u0000.npy" is not UTF-8, or has a zero byte'),
    "encrypted": (edited(("local", 6, "<H", 1), ("central", 8, "<H", 1)), 'array "a": it is encrypted'),
    "packed otherwise": (archive([("a.npy", npy())], zipfile.ZIP_LZMA),
                         'array "a": it is packed by method 14; stored (0) and deflated (8) are supported'),
    "stored, two sizes": (edited(*full_size(9999)), 'array "a": it is stored, but takes 176 bytes where it has 9999'),
    "beyond the file": (edited(*full_size(4000000000), *packed_size(4000000000)),
                        f'array "a": it takes 4000000000 bytes, but the file has {SIZE}'),
    "over the end": (edited(*full_size(SIZE - 5), *packed_size(SIZE - 5)),
                     f'array "a": it takes {SIZE - 5} bytes from byte 35 on, but the file has {SIZE}'),
    "bomb": (edited(*full_size(4294967294), raw=zeros(1000)),
             'array "a": it claims 4294967294 bytes, but its {packed} bytes in the archive cannot unpack to more '
             'than {most}'),
    "headers differ": (edited(("local", 18, "<I", 5)),
                       'array "a": what stands before its bytes is damaged, or differs from the directory'),
    "names differ": (edited(("local", 30, "B", ord("b"))),
                     'array "a": what stands before its bytes is damaged, or differs from the directory'),
    "patched data": (edited(("local", 6, "<H", 32), ("central", 8, "<H", 32)),
                     'array "a": its flags 0x20 are not all known'),
    "overlap": (overlapping(), 'array "a": its bytes begin inside those of another array'),
    "a flipped bit": (flipped(archive([("a.npy", npy())]), 35 + 128 + 3),
                      'array "a": its checksum is wrong: the file is damaged'),
    "a flipped bit, deflated": (flipped(zeros(1000), 60), 'array "a": its bytes cannot be unpacked: they are damaged'),
    "too much data": (wrong_claim(), 'array "a": f64 (6) takes 48 bytes, but 51 follow the header: files of several '
                      'arrays are not supported'),
    "not an array": (archive([("a.npy", b"hello, world")]),
                     'array "a": it begins with "hello,", not with "\\x93NUMPY"'),
    "short array": (archive([("a.npy", b"\x93NUM")]),
                    'array "a": there are 4 bytes, but the shortest beginning takes 10'),
    "array cut in its header": (archive([("a.npy", npy()[:50])]),
                                'array "a": the header takes 118 bytes by its length, but only 40 follow: it is cut '
                                'short'),
    "huge shape": (archive([("a.npy", npy().replace(b"(6,), }     ", b"(600000000,)}"[:12]))]),
                   'array "a": the header ends where \',\' or \'}\' was expected'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives(tmp_path, name):
    raw, refusal = HOSTILE[name]
    if "{packed}" in refusal:
        packed = struct.unpack_from("<I", raw, local(raw) + 18)[0]
        refusal = refusal.format(packed=packed, most=packed * 1032)
    path = tmp_path / "h.npz"
    path.write_bytes(raw)
    assert copy([(path, tmp_path / "o", "store")]) == [f"{path}: npz: {refusal}"]
    assert not (tmp_path / "o").exists()


def mutate(rng, raw):
    raw = bytearray(raw)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            raw[at:at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            del raw[at:at + rng.randint(1, 4)]
        elif kind == 2:
            raw[at:at] = rng.choice([b"0", b"-1", b"(", b")", b",", b"'", b" ", b"True", b"L", b">", b"4294967296", b"\n"])
        elif kind == 3 and at < len(raw):
            raw[at] ^= 1 << rng.randrange(8)
        else:
            raw[at:at] = raw[at:at + 8]
    return bytes(raw)


def test_mutated_files(tmp_path):
    """1,500 mutated files: what is accepted, NumPy reads as the same array."""
    rng, jobs = random.Random(SEED), []
    seeds = [npy(np.arange(6).astype(d).reshape(s)) for d in ("<f4", ">i8", "?") for s in ((6,), (2, 3))]
    seeds += [npy(np.asfortranarray(np.arange(6).reshape(2, 3))), npy(np.float16(1))]
    packed = [bytes(archive([("a.npy", npy()), ("b.npy", npy(np.ones(3, "<i4")))], m))
              for m in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)]
    for i in range(1500):
        how = "npy" if i % 3 else "store"
        raw = rng.choice(seeds if how == "npy" else packed)
        if how == "npy" and i % 2:  # in the header's text, where most is at stake
            head = mutate(rng, raw[10:128])
            raw = raw[:8] + struct.pack("<H", len(head)) + head + raw[128:]
        else:
            raw = mutate(rng, raw)
        path = tmp_path / f"{i}"
        path.write_bytes(raw)
        jobs.append((path, tmp_path / f"{i}.out", how))
    accepted = {"npy": 0, "store": 0}
    for (path, to, how), text in zip(jobs, copy(jobs)):
        if text != "ok":
            assert text.startswith(f"{path}: np"), f"seed {SEED}: {path}: {text}"
            continue
        accepted[how] += 1
        if how == "npy":
            want, got = np.load(path), np.load(to)
            want = want.view("u1") != 0 if want.dtype == bool else want.astype(want.dtype.newbyteorder("<"))
            assert same(want, got), f"seed {SEED}: {path}"
            continue
        with np.load(path) as want, np.load(to) as got:
            assert list(want) == list(got)
            assert all(same(want[k], got[k]) for k in want), f"seed {SEED}: {path}"
    assert accepted["npy"] > 40 and accepted["store"] > 3, accepted  # else it tests nothing


def info(path):
    done = subprocess.run([*command("cotan"), "info", path], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_info(tmp_path):
    """Names, types and sizes, of arrays that cannot be loaded too; a file without its ending is known by its content."""
    np.save(tmp_path / "a.npy", np.asfortranarray(np.zeros((2, 3), ">f8")))
    (tmp_path / "b").write_bytes(npy(np.zeros(5, "<c8")))
    np.savez_compressed(tmp_path / "c.npz", w=np.zeros((300, 1000), "<f4"), **{"a\x1b/b": np.float16(1)}, t=np.zeros(3, "<U4"))
    row = "npy, version 1.0: {:<28} {}\n".format
    assert info(tmp_path / "a.npy") == (0, row("f64 (2, 3)", "48 bytes, first axis fastest, big-endian"))
    assert info(tmp_path / "b") == (0, row("<c8 (5)", "40 bytes"))
    row = "  {:<9}  {:<28} {}\n".format
    assert info(tmp_path / "c.npz") == (0, "npz: 3 arrays, 1200 KB\n" + row("w", "f32 (300, 1000)", "1200 KB") + row(
        "a\\u001b/b", "f16 ()", "2 bytes") + row("t", "<U4 (3)", "48 bytes"))
    (tmp_path / "d.npz").write_bytes(b"text")
    assert info(tmp_path / "d.npz") == (
        1, f'cotan: {tmp_path}/d.npz: npz: it is no zip archive: it begins with "text", not with "PK"\n')
