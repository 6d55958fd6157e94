"""npy and npz files against NumPy: what it writes is read, what is written it reads, byte for byte where it
can be; what is hostile is refused, and whatever is accepted NumPy reads as the same array."""
import io
import os
import random
import struct
import subprocess
import warnings
import zipfile
import zlib

import numpy as np
import pytest
from support.program import command

PROGRAM = command("tests/unit/test_io_npy")
SEED = 20261
DTYPES = ["?", "u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "<c8", "<c16"]
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


HINT = "\n  hint: bool, u8, u16, u32, u64, i8, i16, i32, i64, f16, f32, f64, c64 and c128 can be read; NumPy's astype makes one of them"


@pytest.mark.parametrize("dtype, refusal", [
    ("<c32", 'its dtype is "<c32", of which Cotan has none' + HINT),
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


def one_place():
    """Two entries of the directory, one place, at which no header is: who looks there first says so."""
    raw = archive([("a.npy", npy()), ("b.npy", npy())])
    struct.pack_into("<I", raw, central(raw, 1) + 42, 0)
    raw[0:5] = b"PK\3\4\xff"
    raw[8] ^= 1  # the method
    return raw


def long_extra():
    """The extra fields of an entry's own header reach into the next entry."""
    raw = archive([("a.npy", npy()), ("b.npy", npy())])
    struct.pack_into("<H", raw, local(raw) + 28, 40)
    return raw


def zeros(n):
    return archive([("a.npy", npy(np.zeros(n)))], zipfile.ZIP_DEFLATED)


def flipped(raw, at):
    raw[at] ^= 0x10
    return raw


def wrong_claim():
    """The npy file ends before its member does."""
    return archive([("a.npy", npy() + b"xyz")])


def deflated(packed, whole=npy()):
    """An array of which `packed` are the bytes in the archive, whatever they unpack to."""
    name = b"a.npy"
    common = struct.pack("<HHHIIIIHH", 20, 0, 8, 0x210000, zlib.crc32(whole), len(packed), len(whole), len(name), 0)
    own = b"PK\3\4" + common + name + packed
    directory = b"PK\1\2\x14\0" + common + bytes(14) + name
    return own + directory + struct.pack("<IIHHIIH", 0x06054B50, 0, 1, 1, len(directory), len(own), 0)


def deflate(data):
    how = zlib.compressobj(wbits=-15)
    return how.compress(data) + how.flush()


SIZE = len(archive([("a.npy", npy())]))
CUT = "the end of the archive is missing: it is cut short"
DIFFERS = 'array "a": its local header is damaged, or differs from the directory'
DAMAGED = 'array "a": its bytes cannot be unpacked: they are damaged'
HOSTILE = {
    "empty": (b"", 'it is no zip archive: it begins with "", not with "PK"'),
    "an npy file": (npy(), 'it is no zip archive: it begins with "\\x93NUM", not with "PK"\n  hint: it is an npy file: ct_load_npy'),
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
    "count too small": (edited(("end", 8, "<H", 0), ("end", 10, "<H", 0)),
                        "the directory has 51 bytes after its last entry"),
    "a part": (edited(("end", 4, "<H", 1)), "it is one part of several"),
    "its directory elsewhere": (edited(("end", 6, "<H", 1)), "it is one part of several"),
    "some entries elsewhere": (edited(("end", 8, "<H", 2)), "it is one part of several"),
    "longer directory": (edited(("end", 12, "<I", 52)), "its directory cannot be found"),
    "shorter directory": (edited(("end", 12, "<I", 50)), "its directory cannot be found"),
    "something before the end": (archive([("a.npy", npy())]).replace(b"PK\5\6", b"xPK\5\6"),
                                 "its directory cannot be found"),
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
    "into the directory": (edited(*full_size(177), *packed_size(177)),
                           'array "a": it takes 177 bytes from byte 35 on, but the directory begins at byte 211'),
    "header in the directory": (edited(("central", 42, "<I", 211 - 29)), DIFFERS),
    "long extra fields": (edited(("local", 28, "<H", 65535)), DIFFERS),
    "another method": (edited(("local", 8, "<H", 8)), DIFFERS),
    "another checksum": (edited(("local", 14, "<I", 8)), DIFFERS),
    "another size": (edited(("local", 22, "<I", 8)), DIFFERS),
    "a longer name": (edited(("local", 26, "<H", 6)), DIFFERS),
    "deflated, and more behind it": (deflated(deflate(npy()) + b"xyz"), DAMAGED),
    "deflated, of more bytes": (deflated(deflate(npy() + b"xyz")), DAMAGED),
    "deflated, and its last copy is longer": (deflated(deflate(npy(np.zeros(6)) + bytes(99)), npy(np.zeros(6))), DAMAGED),
    "deflated, of fewer bytes": (deflated(deflate(npy()[:-1])), DAMAGED),
    "deflated, cut short": (deflated(deflate(npy())[:-3]), DAMAGED),
    "bomb": (edited(*full_size(4294967294), raw=zeros(1000)),
             'array "a": it claims 4294967294 bytes, but its {packed} bytes in the archive cannot unpack to more '
             'than {most}'),
    "no header of its own": (flipped(archive([("b.npy", npy()), ("a.npy", npy())]), 211), DIFFERS),
    "headers differ": (edited(("local", 18, "<I", 5)), DIFFERS),
    "names differ": (edited(("local", 30, "B", ord("b"))), DIFFERS),
    "patched data": (edited(("local", 6, "<H", 32), ("central", 8, "<H", 32)),
                     'array "a": its flags 0x20 are not all known'),
    "overlap, and no header there": (one_place(), 'array "b": its bytes begin inside those of another array'),
    "overlap by extra fields": (long_extra(), 'array "a": its bytes end inside those of another array'),
    "overlap": (overlapping(), 'array "a": its bytes begin inside those of another array'),
    "a flipped bit": (flipped(archive([("a.npy", npy())]), 35 + 128 + 3),
                      'array "a": its checksum is wrong: the file is damaged'),
    "a flipped bit, deflated": (flipped(zeros(1000), 60), DAMAGED),
    "too much data": (wrong_claim(), 'array "a": (6,) f64 takes 48 bytes, but 51 follow the header: files of several '
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


# ---------------------------------------------------------------------------------- 64-bit fields

ONES = 2**64 - 1
PLACES = {"local": 0, "local extra": 35, "central": 231, "central extra": 282, "end64": 310, "locator": 366, "end": 386}


def wide(*changes):
    """An archive of one array in which every field that can be wide is, with (place, offset, form, value) written
    over it."""
    data, name = npy(), b"a.npy"
    extra = struct.pack("<HHQQ", 1, 16, len(data), len(data))
    common = struct.pack("<HHHIIIIHH", 45, 0, 0, 0x210000, zlib.crc32(data), 2**32 - 1, 2**32 - 1, len(name), len(extra))
    own = b"PK\3\4" + common + name + extra + data
    extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), 0)
    directory = b"PK\1\2\x2d\0" + common[:-2] + struct.pack("<HHHHII", len(extra), 0, 0, 0, 0, 2**32 - 1) + name + extra
    raw = bytearray(own + directory + struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, len(directory), len(own))
                    + struct.pack("<IIQI", 0x07064B50, 0, len(own) + len(directory), 1)
                    + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0))
    assert raw[PLACES["end"]:].startswith(b"PK\5\6") and raw[PLACES["end64"]:].startswith(b"PK\6\6")
    for where, offset, form, value in changes:
        struct.pack_into(form, raw, PLACES[where] + offset, value)
    return raw


def unseekable(method):
    """As it is written into a pipe: sizes and checksum stand behind the bytes."""
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def tell(self):
            raise OSError

    out = Pipe()
    with zipfile.ZipFile(out, "w", method) as z:
        z.writestr("a.npy", npy())
    return out.getvalue()


def forced(method):
    """As NumPy writes: room for wide sizes that turn out not to be."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z, z.open("a.npy", "w", force_zip64=True) as member:
        member.write(npy())
    return out.getvalue()


def padded():
    """Extra fields of others, and three bytes of padding."""
    info, out = zipfile.ZipInfo("a.npy"), io.BytesIO()
    info.extra = b"UT\5\0\1\0\0\0\0\0\0\0"
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(info, npy())
        z.comment = b"of the archive"
    return out.getvalue()


VALID = {
    "wide": wide(),
    "wide, of fewer bits in the end": wide(("end", 8, "<H", 1), ("end", 10, "<H", 1), ("end", 12, "<I", 79), ("end", 16, "<I", 231)),
    "forced": forced(zipfile.ZIP_STORED),
    "forced, deflated": forced(zipfile.ZIP_DEFLATED),
    "unseekable": unseekable(zipfile.ZIP_STORED),
    "unseekable, deflated": unseekable(zipfile.ZIP_DEFLATED),
    "others' fields": padded(),
    "by hand": deflated(deflate(npy())),
}


@pytest.mark.parametrize("name", VALID)
def test_valid_archives(tmp_path, name):
    path, to = tmp_path / "a.npz", tmp_path / "b.npz"
    path.write_bytes(VALID[name])
    assert zipfile.ZipFile(path).testzip() is None
    assert copy([(path, to, "store")]) == ["ok"]
    with np.load(path) as want, np.load(to) as got:
        assert list(want) == list(got) == ["a"] and same(want["a"], got["a"]) and same(got["a"], np.arange(6.0))


LOST = "its 64-bit end record cannot be found"
NOWHERE = "its directory cannot be found"
BROKEN = "entry 1 of 1 of the directory is damaged"
TWO = "its two end records differ"
PART = "it is one part of several"
WIDE_LIES = {
    "own size": (("local extra", 4, "<Q", 175), DIFFERS),
    "own packed size": (("local extra", 12, "<Q", ONES), DIFFERS),
    "own extra field of another kind": (("local extra", 0, "<H", 2), DIFFERS),
    "own extra field too long": (("local extra", 2, "<H", 17), DIFFERS),
    "own extra field too short": (("local extra", 2, "<H", 15), DIFFERS),
    "size": (("central extra", 4, "<Q", ONES), 'array "a": it is stored, but takes 176 bytes where it has 18446744073709551615'),
    "packed size": (("central extra", 12, "<Q", 1 << 63), 'array "a": it is stored, but takes 9223372036854775808 bytes where it has 176'),
    "place": (("central extra", 20, "<Q", ONES), DIFFERS),
    "place of the sign": (("central extra", 20, "<Q", 1 << 63), DIFFERS),
    "place off by one": (("central extra", 20, "<Q", 1), DIFFERS),
    "place in the directory": (("central extra", 20, "<Q", 231), DIFFERS),
    "extra field of another kind": (("central extra", 0, "<H", 2), 'array "a": it takes 4294967295 bytes, but the file has 408'),
    "extra field too long": (("central extra", 2, "<H", 25), BROKEN),
    "extra field too short": (("central extra", 2, "<H", 23), BROKEN),
    "end record's length": (("end64", 4, "<Q", 45), LOST),
    "end record's length wraps": (("end64", 4, "<Q", ONES - 11), LOST),
    "end record's mark": (("end64", 0, "<I", 0), LOST),
    "end record's part": (("end64", 16, "<I", 1), TWO),
    "directory's part": (("end64", 20, "<I", 1), TWO),
    "entries here": (("end64", 24, "<Q", 2), PART),
    "entries": (("end64", 32, "<Q", ONES), PART),
    "directory's size": (("end64", 40, "<Q", 78), NOWHERE),
    "directory's size wraps": (("end64", 40, "<Q", ONES), NOWHERE),
    "directory's place": (("end64", 48, "<Q", 230), NOWHERE),
    "directory's place wraps": (("end64", 48, "<Q", ONES - 50), NOWHERE),
    "no locator": (("locator", 0, "<I", 0), NOWHERE),
    "locator's place": (("locator", 8, "<Q", 309), LOST),
    "locator's place behind it": (("locator", 8, "<Q", 311), LOST),
    "locator's place wraps": (("locator", 8, "<Q", ONES), LOST),
    "locator's part": (("locator", 4, "<I", 1), PART),
    "parts": (("locator", 16, "<I", 2), PART),
    "other count": (("end", 10, "<H", 2), TWO),
    "other size": (("end", 12, "<I", 78), TWO),
    "other place": (("end", 16, "<I", 230), TWO),
}


@pytest.mark.parametrize("name", WIDE_LIES)
def test_lies_of_64_bits(tmp_path, name):
    lie, refusal = WIDE_LIES[name]
    path = tmp_path / "h.npz"
    path.write_bytes(wide(lie))
    assert copy([(path, tmp_path / "o", "store")]) == [f"{path}: npz: {refusal}"]


def test_other_lies_of_64_bits(tmp_path):
    """Of several fields at once: they agree with each other, not with the file."""
    path = tmp_path / "h.npz"
    extra = struct.pack("<HH", 1, 4)  # a second field of wide values, in the room of the first
    cases = {
        'array "a": it takes 9223372036854775808 bytes, but the file has 408': wide(
            ("central extra", 4, "<Q", 1 << 63), ("central extra", 12, "<Q", 1 << 63)),
        "the directory has 1099511627776 entries by its count, but the file only 408 bytes": wide(
            ("end64", 24, "<Q", 1 << 40), ("end64", 32, "<Q", 1 << 40)),
        NOWHERE: wide(("end64", 40, "<Q", ONES - 99), ("end64", 48, "<Q", 310 + 100)),
        "the directory has 79 bytes after its last entry": wide(("end64", 24, "<Q", 0), ("end64", 32, "<Q", 0)),
        BROKEN: wide(("central", 42, "<I", 0), ("central extra", 2, "<H", 16), ("central extra", 20, "4s", extra)),
    }
    for refusal, raw in cases.items():
        path.write_bytes(raw)
        assert copy([(path, tmp_path / "o", "store")]) == [f"{path}: npz: {refusal}"]


def test_beyond_4_gib(tmp_path):
    """A small array behind one of 4 GiB and more, which takes no room on the disk: it is a hole."""
    path, n = tmp_path / "big.npz", (1 << 32) + 1000
    head = npy(np.zeros(1, "u1"))[:128].replace(b"(1,), }" + b" " * 9, b"(%d,), }" % n)
    assert len(head) == 128
    with open(path, "wb") as f:
        places = []
        for name, begin, size in ((b"big.npy", head, 128 + n), (b"small.npy", npy(), 176)):
            crc = zlib.crc32(begin)  # the hole's is compared with nothing: only its header is read
            common = struct.pack("<HHHIIIIHH", 45, 0, 0, 0x210000, crc, 2**32 - 1, 2**32 - 1, len(name), 20)
            places.append((common, name, size, f.tell()))
            f.write(b"PK\3\4" + common + name + struct.pack("<HHQQ", 1, 16, size, size) + begin)
            f.seek(size - len(begin), 1)
        begin = f.tell()
        for common, name, size, at in places:
            f.write(b"PK\1\2\x2d\0" + common[:-2] + struct.pack("<HHHHII", 28, 0, 0, 0, 0, 2**32 - 1) + name
                    + struct.pack("<HHQQQ", 1, 24, size, size, at))
        end = f.tell()
        f.write(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 2, 2, end - begin, begin)
                + struct.pack("<IIQI", 0x07064B50, 0, end, 1) + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 2, 2, *[2**32 - 1] * 2, 0))
    with np.load(path) as want:
        assert same(want["small"], np.arange(6.0))
    row = "  {:<5}  {:<28} {}\n".format
    assert info(path) == (0, "npz: 2 arrays, 4295 MB\n" + row("big", f"({n},) u8", "4295 MB") + row("small", "(6,) f64", "48 bytes"))
    done = subprocess.run([*PROGRAM, "--get", path, "small"], capture_output=True, timeout=60, env=os.environ | {"COTAN_DEVICE": "ref"})
    assert done.stdout == np.arange(6.0).tobytes(), done.stderr


def test_many_arrays(tmp_path):
    """More than 16 bits count, read and written."""
    path, to, n = tmp_path / "a.npz", tmp_path / "b.npz", 65536
    data = npy(np.float32(1))
    with zipfile.ZipFile(path, "w") as z:
        for i in range(n):
            z.writestr(zipfile.ZipInfo(f"{i}.npy"), data)
    assert copy([(path, to, "store")]) == ["ok"]
    for archive in (path, to):
        assert archive.read_bytes()[-22 + 8:-22 + 12] == b"\xff\xff\xff\xff"
    with zipfile.ZipFile(to) as z:
        assert z.namelist() == [f"{i}.npy" for i in range(n)] and z.read("65535.npy") == data


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
              for m in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)] + [bytes(wide()), forced(zipfile.ZIP_DEFLATED)]
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
    (tmp_path / "b").write_bytes(npy(np.zeros(5, "<c32")))
    np.savez_compressed(tmp_path / "c.npz", w=np.zeros((300, 1000), "<f4"), **{"a\x1b/b": np.float16(1)}, t=np.zeros(3, "<U4"))
    row = "npy, version 1.0: {:<28} {}\n".format
    assert info(tmp_path / "a.npy") == (0, row("(2, 3) f64", "48 bytes, first axis fastest, big-endian"))
    assert info(tmp_path / "b") == (0, row("(5,) <c32", "160 bytes"))
    row = "  {:<9}  {:<28} {}\n".format
    assert info(tmp_path / "c.npz") == (0, "npz: 3 arrays, 1200 kB\n" + row("w", "(300, 1000) f32", "1200 kB") + row(
        "a\\u001b/b", "() f16", "2 bytes") + row("t", "(3,) <U4", "48 bytes"))
    (tmp_path / "d.npz").write_bytes(b"text")
    assert info(tmp_path / "d.npz") == (
        1, f'cotan: {tmp_path}/d.npz: npz: it is no zip archive: it begins with "text", not with "PK"\n')
