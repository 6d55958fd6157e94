"""PyTorch's files: save writes files that torch.load(weights_only=True) reads, and load reads files that
torch.save writes.

load has the library's reader of pickles check that a file is data: the opcodes and globals of a closed list,
numbers that fit the file. Only then Python's own Unpickler makes the objects, of the same list of globals.
"""
import io
import math
import os
import stat
import struct
import sys
import zlib
from collections import Counter, OrderedDict
from pickle import Unpickler, UnpicklingError

from . import _core
from ._types import Size
from .nn.parameter import Parameter

Tensor = _core.Tensor
STORAGES = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
            "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
            "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
            "ComplexDoubleStorage": "complex128"}
STORAGE_OF = {dtype: name for name, dtype in STORAGES.items()}
UNTYPED = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")  # stored in storages of bytes
DTYPES = {name: _core.dtype(name) for name in (*STORAGE_OF, *UNTYPED)}
WIDTHS = {name: dtype.itemsize for name, dtype in DTYPES.items()}
MAGIC, PROTOCOL = 0x1950a86a20f9469cfc6c, 1001  # of files from before PyTorch 1.6
NESTING = 200  # the maximum depth of lists, tuples and dicts that save writes
CHUNK = 1 << 22


# --------------------------------------------------------------------------------------------- load


OBJECTS = {"collections.OrderedDict": OrderedDict, "collections.Counter": Counter, "torch.Size": Size,
           "torch.device": lambda *parts: ":".join(map(str, parts)), "_codecs.encode": str.encode, "builtins.set": set,
           "builtins.bytes": bytes, "builtins.bytearray": bytearray, "builtins.complex": complex,
           "torch._utils._rebuild_parameter": lambda data, requires_grad, hooks: Parameter(data, requires_grad),
           "torch.UntypedStorage": DTYPES["uint8"], "torch.storage.UntypedStorage": DTYPES["uint8"]}
OBJECTS.update({f"torch.{name}": DTYPES[dtype] for name, dtype in (*STORAGES.items(), *zip(DTYPES, DTYPES))})


def check_pickle(name, data, at, size, records):
    """Returns the end of the pickle at `at` and [(key, dtype, elements)] of its storages, whose bytes must be
    those of `records`. Objects may take 16 times the file's size: a small file must not become a large object."""
    found = _core._check_pickle(data, at, 16 * size + (1 << 26), records)
    if type(found) is str:
        raise UnpicklingError(f"load: {name}{found}")
    return found


class Loader(Unpickler):
    """Makes the objects of a pickle. What is not in OBJECTS is asked of find_other(module, name), which may
    import classes; without it, check_pickle must have read the pickle before."""

    def __init__(self, data, source, find_other=None):
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="surrogatepass")
        rebuild = "torch._utils._rebuild_tensor"
        self.known = {**OBJECTS, rebuild: source.tensor, rebuild + "_v2": source.tensor, rebuild + "_v3": source.typed_tensor}
        self.find_other = find_other

    def find_class(self, module, name):
        full = {"__builtin__": "builtins", "torch.cuda": "torch"}.get(module, module) + "." + name
        return self.known[full] if full in self.known or not self.find_other else self.find_other(module, name)

    def persistent_load(self, told):
        """("storage", its class, key, device, elements)."""
        return told[2], told[1]


def read_tensor(source, key, dtype, offset, size, stride):
    """Reads only the tensor's own bytes if they are contiguous, in whatever order of axes; otherwise the
    whole storage."""
    width = WIDTHS[dtype.name]
    dense = tuple(1 if n and not step else n for n, step in zip(size, stride))
    span = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(dense, stride))
    if span in (0, math.prod(dense)):
        data = source.read(key, offset * width, span * width) if span else b""
    else:
        data = memoryview(source.whole(key))[offset * width:]
    tensor = _core._of_bytes(data, dtype, dense, stride, source.is_swapped)
    return tensor if dense == size else _core.ops.expand(tensor, size)


class Source:
    """The storages of a file: `positions` has each key's position in it."""

    def __init__(self, name, file, places, is_swapped):
        self.name, self.file, self.positions, self.is_swapped = name, file, places, is_swapped
        self.cached, self.made = {}, {}

    def read(self, key, start, n):
        at, size, crc = self.positions.get(key, (0, 0, None))
        if start + n > size:
            raise RuntimeError(f"load: {self.name}: {n} bytes at {start} of storage '{key}' are asked for, it has {size}")
        data = read_exactly(self.name, self.file, at + start, n)
        if crc is not None:
            whole = (data,) if n == size else (read_exactly(self.name, self.file, at + i, min(CHUNK, size - i))
                                               for i in range(0, size, CHUNK))
            check_crc(self.name, f"data/{key}", whole, crc)
            self.positions[key] = at, size, None
        return data

    def whole(self, key):
        """Returns a whole storage, which is cached, since other tensors that use parts of it come later."""
        if key not in self.cached:
            self.cached[key] = self.read(key, 0, self.positions[key][1])
        return self.cached[key]

    def tensor(self, storage, offset, size, stride, requires_grad=False, hooks=None, metadata=None):
        """Returns a shared tensor for the same part of a storage, which is read once. The metadata are lazy
        conjugation and negation."""
        place = *storage, offset, tuple(size), tuple(stride)
        if place not in self.made:
            self.made[place] = read_tensor(self, *place)
        tensor = self.made[place].detach()
        if metadata and metadata.get("conj"):
            tensor = _core.ops.conj(tensor)
        if metadata and metadata.get("neg"):
            tensor = -tensor
        return tensor.requires_grad_() if requires_grad else tensor

    def typed_tensor(self, storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None):
        return self.tensor((storage[0], dtype), offset, size, stride, requires_grad, hooks, metadata)


def check_crc(name, record, parts, wanted):
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    if crc != wanted:
        raise RuntimeError(f"load: {name}: the record '{record}' is damaged: its CRC is {crc:08x}, the archive's directory "
                           f"has {wanted:08x}")


def read_exactly(name, file, at, n):
    """Returns n bytes of the file from `at` on."""
    data, done = bytearray(n), 0
    file.seek(at)
    with memoryview(data) as view:
        while done < n:
            if hasattr(file, "readinto"):
                got = file.readinto(view[done:])
            else:
                part = file.read(n - done)
                view[done:done + len(part)] = part
                got = len(part)
            if not got:
                raise RuntimeError(f"load: {name}: {n} bytes at {at} are asked for, the file has {done} of them")
            done += got
    return data


def list_records(name, file):
    """Returns {record: (position, bytes, CRC)} of the archive, without the folder that all records are in."""
    import zipfile  # imported here, since it takes 6 ms

    try:
        with zipfile.ZipFile(file) as archive:
            entries, end = archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error, OverflowError, OSError) as error:
        raise RuntimeError(f"load: {name}: it is no whole zip archive ({error})") from None
    found, last, folder = {}, 0, None
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        record = entry.orig_filename

        def refuse(text):
            raise RuntimeError(f"load: {name}: the record {record!r} {text}")

        parts = record.split("/")
        folder = folder or parts[0]
        if len(parts) < 2 or parts[0] != folder or set(parts) & {"", ".", ".."} or "\\" in record or "\0" in record:
            refuse("has no name of PyTorch's files")
        if record[len(folder) + 1:] in found:
            refuse("is there twice")
        if entry.compress_type or entry.flag_bits & 1:
            refuse("is compressed or encrypted, PyTorch's files store the bytes as they are")
        if entry.file_size != entry.compress_size:
            refuse(f"has {entry.file_size} bytes of which {entry.compress_size} are stored")
        if not 0 <= entry.header_offset <= end - 30:
            refuse(f"begins at byte {entry.header_offset}, records end at {end}")
        head = read_exactly(name, file, entry.header_offset, 30)
        begin = entry.header_offset + 30 + sum(struct.unpack("<HH", head[26:]))
        if head[:4] != b"PK\3\4" or entry.header_offset < last or begin + entry.file_size > end:
            refuse(f"with {entry.file_size} bytes does not fit between the records beside it")
        last = begin + entry.file_size
        found[record[len(folder) + 1:]] = begin, entry.file_size, entry.CRC
    return found


def read_small_record(name, file, records, record, limit=64):
    if record not in records:
        raise RuntimeError(f"load: {name}: the record '{record}' is missing")
    at, size, crc = records[record]
    if size > limit:
        raise RuntimeError(f"load: {name}: the record '{record}' has {size} bytes, at most {limit} are read")
    data = bytes(read_exactly(name, file, at, size))
    check_crc(name, record, (data,), crc)
    return data


def load_zip(name, file, size, find_other):
    records = list_records(name, file)
    if "constants.pkl" in records:
        raise RuntimeError(f"load: {name}: it is a program of TorchScript, which Cotan does not run")
    data = read_small_record(name, file, records, "data.pkl", size)
    version = read_small_record(name, file, records, "version").strip()
    if not version.isdigit() or not 1 <= int(version) <= 10:
        raise RuntimeError(f"load: {name}: the archive is of version {version!r}, versions 1 to 10 are read")
    order = read_small_record(name, file, records, "byteorder") if "byteorder" in records else b"little"
    if order not in (b"little", b"big"):
        raise RuntimeError(f"load: {name}: the order of bytes is {order!r}, it must be little or big")
    places = {record[5:]: place for record, place in records.items() if record.startswith("data/")}
    if not find_other:
        check_pickle(f"{name}: data.pkl", data, 0, size, {key: place[1] for key, place in places.items()})
    return Loader(data, Source(name, file, places, order.decode() != sys.byteorder), find_other).load()


def load_legacy(name, file, size):
    """Reads the format from before PyTorch 1.6: pickles of a magic number, a protocol, the system, the object
    and the storages' keys, then the storages. The object is checked twice, first without storages, to find
    their positions."""
    head = read_exactly(name, file, 0, min(size, 1 << 25))  # with all pickles

    def pickled(at):
        end, _ = check_pickle(name, head, at, size, {})
        return Loader(head[at:end], Source(name, file, {}, False)).load(), end

    magic, at = pickled(0)
    if type(magic) is not int or magic != MAGIC:
        raise RuntimeError(f"load: {name}: it is a pickle, and no file of PyTorch")
    protocol, at = pickled(at)
    system, begin = pickled(at)
    if type(protocol) is not int or protocol != PROTOCOL or type(system) is not dict:
        raise RuntimeError(f"load: {name}: its head is none of PyTorch's files from before 1.6")
    after, storages = check_pickle(name, head, begin, size, None)
    storages = {key: (dtype, count) for key, dtype, count in storages}
    keys, at = pickled(after)
    if type(keys) is not list or set(map(str, keys)) != set(storages) or len(keys) != len(storages):
        raise RuntimeError(f"load: {name}: the keys of its storages are not those that its object needs")
    places, is_swapped = {}, (system.get("little_endian") is False) == (sys.byteorder == "little")
    for key in keys:
        dtype, count = storages[key]
        n = count * WIDTHS[dtype]
        if at + 8 + n > size:
            raise RuntimeError(f"load: {name}: storage '{key}' needs {8 + n} bytes at {at}, the file has {size}")
        told = int.from_bytes(read_exactly(name, file, at, 8), "big" if is_swapped else "little", signed=True)
        if told != count:
            raise RuntimeError(f"load: {name}: storage '{key}' has {told} elements, its object says {count}")
        places[key], at = (at + 8, n, None), at + 8 + n
    check_pickle(name, head, begin, size, {key: place[1] for key, place in places.items()})
    return Loader(head[begin:after], Source(name, file, places, is_swapped)).load()


def check_location(where):
    """Accepts the CPU only, since Cotan's tensors are loaded there."""
    for place in where.values() if isinstance(where, dict) else () if where is None or callable(where) else (where,):
        if str(place).partition(":")[0] != "cpu":
            raise RuntimeError(f"load: map_location '{place}' is asked for, Cotan has 'cpu'")


def load(f, map_location=None, *, weights_only=True):
    """Loads what torch.save or cotan.save wrote to a path or file: tensors, numbers, strings and their
    containers.

    Files of newer PyTorch (zip archives) and those from before 1.6 can be read. Nothing in a file is ever
    run, so weights_only=False is refused. Tensors are on the CPU, whatever device they were saved from.
    Tensors that were the same part of one storage share it, as in PyTorch; other parts of a storage have
    values of their own: a write to one is not seen in the others.
    """
    if not weights_only:
        raise ValueError("load: weights_only=False is asked for, which would run code of the file; Cotan loads data only")
    check_location(map_location)
    if isinstance(f, (str, bytes, os.PathLike)):
        with open(f, "rb") as file:
            return load_file(os.fsdecode(f), file)
    if not (hasattr(f, "read") and hasattr(f, "seek") and hasattr(f, "tell")):
        raise TypeError(f"load: a path or a file that can seek is needed, not {type(f).__name__}")
    return load_file(getattr(f, "name", None) or "the file", f)


def load_file(name, file, find_other=None):
    """Loads a file; find_other(module, name) returns what is no data, such as classes (see Loader)."""
    size = file.seek(0, os.SEEK_END)
    head = bytes(read_exactly(name, file, 0, min(4, size)))
    if head == b"PK\3\4":
        return load_zip(name, file, size, find_other)
    if head[:2] == b"\x80\2":
        if find_other:
            raise RuntimeError(f"load: {name}: it is of the format from before PyTorch 1.6, of which data only can be read")
        return load_legacy(name, file, size)
    raise RuntimeError(f"load: {name}: its {size} bytes begin with {head!r}, which is no file of PyTorch")


# --------------------------------------------------------------------------------------------- save


class Pickler:
    """Writes pickle protocol 2 as torch.save does. `tensors` are those whose bytes the archive needs, by
    key."""

    def __init__(self):
        self.out, self.memo, self.alive, self.tensors, self.path = bytearray(b"\x80\2"), {}, [], [], []

    def refuse(self, text, kind=TypeError):
        raise kind(f"save: {''.join(self.path) or 'the object'} {text}")

    def dump(self, value):
        self.write(value)
        self.out += b"."
        return self.out

    def remember(self, key, value=None):
        index = self.memo[key] = len(self.memo)
        self.alive.append(value)  # keeps the object alive, so that no other one gets its id
        self.out += struct.pack("<cB", b"q", index) if index < 256 else struct.pack("<cI", b"r", index)

    def known(self, key):
        index = self.memo.get(key)
        if index is not None:
            self.out += struct.pack("<cB", b"h", index) if index < 256 else struct.pack("<cI", b"j", index)
        return index is not None

    def name(self, module, name):
        if not self.known((module, name)):
            self.out += f"c{module}\n{name}\n".encode()
            self.remember((module, name))

    def call(self, module, name, *args):
        self.name(module, name)
        self.write_tuple(args)
        self.out += b"R"

    def write(self, value):
        kind = type(value)
        if value is None or kind is bool:
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            self.write_int(int(value))
        elif isinstance(value, float):
            self.out += struct.pack(">cd", b"G", value)
        elif isinstance(value, str):
            data = str(value).encode("utf-8", "surrogatepass")
            self.out += struct.pack("<cI", b"X", len(data)) + data
        elif kind is complex:
            self.call("__builtin__", "complex", value.real, value.imag)
        elif kind is bytes:
            self.call("_codecs", "encode", value.decode("latin1"), "latin1")
        elif kind is _core.dtype:
            self.name("torch", self.dtype_name(value))
        elif not self.known(id(value)):
            self.write_object(kind, value)

    def write_object(self, kind, value):
        if isinstance(value, Tensor):
            self.write_tensor(value)
        elif kind is Size:
            self.call("torch", "Size", tuple(value))
        elif kind is tuple:
            self.write_tuple(value)
        elif kind is list:
            self.out += b"]"
            self.remember(id(value), value)
            self.write_list(value)
            return
        elif kind in (dict, OrderedDict):
            self.write_dict(kind, value)
            return
        elif kind is set:
            self.call("__builtin__", "set", list(value))
        elif kind is bytearray:
            self.call("__builtin__", "bytearray", bytes(value))
        else:
            hint = "; save its state_dict()" if hasattr(value, "state_dict") else ""
            self.refuse(f"is a {kind.__name__}: files have tensors, numbers, strings, lists, tuples, dicts and sets{hint}")
        self.remember(id(value), value)

    def write_int(self, value):
        if 0 <= value < 1 << 8:
            self.out += struct.pack("<cB", b"K", value)
        elif -(1 << 31) <= value < 1 << 31:
            self.out += struct.pack("<ci", b"J", value)
        else:
            n = value.bit_length() // 8 + 1
            if n > 255:
                self.refuse(f"is an integer of {n} bytes, files have at most 255", ValueError)
            self.out += struct.pack("<cB", b"\x8a", n) + value.to_bytes(n, "little", signed=True)

    def inside(self, place, value):
        if len(self.path) >= NESTING:
            raise ValueError(f"save: lists, tuples and dicts nest deeper than {NESTING}")
        self.path.append(f"[{place!r}]")
        self.write(value)
        self.path.pop()

    def write_list(self, value):
        self.out += b"("
        for i, item in enumerate(value):
            self.inside(i, item)
        self.out += b"e"

    def write_tuple(self, value):
        if not value:
            self.out += b")"
            return
        self.out += b"("
        for i, item in enumerate(value):
            self.inside(i, item)
        self.out += b"t"

    def write_dict(self, kind, value):
        if kind is dict:
            self.out += b"}"
        else:
            self.call("collections", "OrderedDict")
        self.remember(id(value), value)
        self.out += b"("
        for key, item in value.items():
            self.inside(key, key)
            self.inside(key, item)
        self.out += b"u"
        metadata = getattr(value, "_metadata", None)
        if metadata is not None:
            self.write({"_metadata": metadata})
            self.out += b"b"

    def dtype_name(self, dtype):
        name = dtype.name
        if name not in DTYPES:
            self.refuse(f"is of {name}, which PyTorch's files have not")
        return name

    def write_tensor(self, x):
        if isinstance(x, Parameter):
            self.name("torch._utils", "_rebuild_parameter")
            self.out += b"("
            self.write_values(x, False)
            self.write(x.requires_grad)
            self.call("collections", "OrderedDict")
            self.out += b"tR"
        else:
            self.write_values(x, x.requires_grad)

    def write_values(self, x, requires_grad):
        """Writes a tensor that has a row-major storage of its own."""
        dtype, shape = self.dtype_name(x.dtype), tuple(x.shape)
        untyped = dtype in UNTYPED
        self.name("torch._utils", "_rebuild_tensor_v3" if untyped else "_rebuild_tensor_v2")
        self.out += b"(("
        self.write("storage")
        self.name(*(("torch.storage", "UntypedStorage") if untyped else ("torch", STORAGE_OF[dtype])))
        for part in (str(len(self.tensors)), "cpu", math.prod(shape) * (WIDTHS[dtype] if untyped else 1)):
            self.write(part)
        self.out += b"tQ"
        self.tensors.append(_core._snapshot(x))  # another thread may train it meanwhile
        self.write(0)
        self.write_tuple(shape)
        self.write_tuple(tuple(max(1, math.prod(max(n, 1) for n in shape[i + 1:])) for i in range(len(shape))))
        self.write(requires_grad)
        self.call("collections", "OrderedDict")
        if untyped:
            self.name("torch", dtype)
        self.out += b"tR"


class Archive:
    """A zip archive with the layout of PyTorch's own writer: records are stored uncompressed, at multiples of
    64 bytes, with their sizes after them; torch.load may compute positions from that."""

    LARGE = 0xFFFFFFFF

    def __init__(self, file, folder):
        self.file, self.folder, self.at, self.directory, self.count = file, folder, 0, bytearray(), 0

    def put(self, data):
        self.file.write(data)
        self.at += data.nbytes if isinstance(data, Tensor) else len(data)

    def record(self, name, data, size):
        name, start, flags = f"{self.folder}/{name}".encode(), self.at, 0x808 if size else 0x800
        large, far = size >= self.LARGE, start >= self.LARGE
        sizes = (struct.pack("<QQ", size, size) if large else b"") + (struct.pack("<Q", start) if far else b"")
        extra = struct.pack("<HH", 1, len(sizes)) + sizes if sizes else b""
        padding = -(start + 34 + len(name) + len(extra)) % 64
        local = extra + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        need = 45 if sizes else 20
        self.put(struct.pack("<4s5H3I2H", b"PK\3\4", need, flags, 0, 0, 0x21, 0, 0, 0, len(name), len(local)) + name + local)
        crc = zlib.crc32(data)
        if size:
            self.put(data)
            self.put(struct.pack("<4sIQQ" if sizes else "<4s3I", b"PK\7\x08", crc, size, size))
        shown = self.LARGE if large else size
        self.directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", need, need, flags, 0, 0, 0x21, crc, shown, shown, len(name),
                                      len(extra), 0, 0, 0, 0, self.LARGE if far else start) + name + extra
        self.count += 1

    def finish(self):
        start, size, count = self.at, len(self.directory), self.count
        self.put(self.directory)
        self.put(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
                 + struct.pack("<4sIQI", b"PK\6\7", 0, start + size, 1)
                 + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), size,
                               min(start, self.LARGE), 0))


def write_archive(file, folder, pickled, tensors):
    archive = Archive(file, folder)
    for name, data in (("data.pkl", bytes(pickled)), (".format_version", b"1"), (".storage_alignment", b"64"),
                       ("byteorder", sys.byteorder.encode())):
        archive.record(name, data, len(data))
    for i, x in enumerate(tensors):
        archive.record(f"data/{i}", x, x.nbytes)
    archive.record("version", b"3\n", 2)
    archive.finish()


def save(obj, f, pickler_class=Pickler):
    """Writes tensors, numbers, strings and lists, tuples, dicts and sets of them to a path or file, such as a
    state dict of a module or an optimizer. torch.load(f, weights_only=True) and cotan.load can read it.

    A file at a path is replaced when the new one is complete and on the disk, so a full disk or a crash
    leaves the old one. A Tensor object that occurs twice is written once.
    """
    pickler = pickler_class()
    pickled = pickler.dump(obj)
    if not isinstance(f, (str, bytes, os.PathLike)):
        if not hasattr(f, "write"):
            raise TypeError(f"save: a path or a file is needed, not {type(f).__name__}")
        write_archive(f, "archive", pickled, pickler.tensors)
        return
    path = os.path.realpath(os.fsdecode(f))
    folder = os.path.splitext(os.path.basename(path))[0] or "archive"
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            write_archive(file, folder, pickled, pickler.tensors)
        return
    replace_file(path, lambda file: write_archive(file, folder, pickled, pickler.tensors))


def replace_file(path, write):
    """Replaces a file: it is the complete new one or the old one, whatever happens meanwhile."""
    parent = os.path.dirname(path)
    temporary = os.path.join(parent, f".{os.path.basename(path)[:200]}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            if os.path.exists(path):
                os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    handle = os.open(parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
