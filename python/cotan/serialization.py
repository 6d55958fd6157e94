"""PyTorch's files: save writes files that torch.load(weights_only=True) reads, and load reads files that
torch.save writes.

load interprets the pickle itself: the few opcodes that data needs, with a closed list of globals. Nothing
that a file names is imported or called, and every number is checked against the file before it is used.
"""
import io
import itertools
import math
import os
import stat
import struct
import sys
import zlib
from collections import Counter, OrderedDict
from pickle import UnpicklingError

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


class Global:
    """A name of the closed list: `call` is the Machine's method for it, `storage` its dtype."""

    def __init__(self, name, call=None, storage=None):
        self.name, self.call, self.storage = name, call, storage


class Storage:
    """The storage of tensors: `count` elements of `dtype`."""

    def __init__(self, key, dtype, count):
        self.key, self.dtype, self.count = key, dtype, count


class Arguments(tuple):
    """A tuple that contains a Global or a Storage: it may only be the arguments of a call."""

    name = "a tuple with a storage or a function in it"


PRIVATE = (Global, Storage, Arguments)
KEYS = (str, int, float, bool, bytes, complex, type(None), _core.dtype)

GLOBALS = {name: Global(name, call) for name, call in {
    "collections.OrderedDict": "ordered_dict", "collections.Counter": "counter", "torch.Size": "size",
    "torch.device": "device", "_codecs.encode": "encode", "builtins.set": "set", "builtins.bytes": "no_bytes",
    "builtins.bytearray": "bytearray", "builtins.complex": "complex", "torch._utils._rebuild_tensor": "tensor",
    "torch._utils._rebuild_tensor_v2": "tensor", "torch._utils._rebuild_tensor_v3": "tensor",
    "torch._utils._rebuild_parameter": "parameter"}.items()}
GLOBALS.update({f"{module}.{name}": Global(name, storage=dtype) for name, dtype in STORAGES.items()
                for module in ("torch", "torch.cuda")})
GLOBALS["torch.storage.UntypedStorage"] = GLOBALS["torch.UntypedStorage"] = Global("UntypedStorage", storage="uint8")
GLOBALS.update({f"torch.{name}": dtype for name, dtype in DTYPES.items()})


def kind_of(value):
    return value.name if type(value) in (Global, Arguments) else type(value).__name__


class Machine:
    """Interprets one pickle. `source` returns the bytes of storages; without it tensors are placeholders (see
    load_legacy)."""

    def __init__(self, name, file, at, end, source, max_copied):
        self.name, self.file, self.position, self.end = name, file, at, end
        self.source, self.remaining, self.budget = source, max_copied, max_copied
        self.stack, self.marks, self.memo, self.made, self.storages = [], [], {}, {}, {}

    def refuse(self, text):
        raise UnpicklingError(f"load: {self.name}, byte {self.at}: {text}")

    def spend(self, n):
        """Counts n bytes that are made by a copy: a small file must not become a large object."""
        self.remaining -= n
        if self.remaining < 0:
            self.refuse(f"its objects take more than {self.budget} bytes, 16 times the file and 64 MiB")

    # ---------------------------------------------------------------------------------- bytes

    def read(self, n):
        if n > self.end - self.position:
            self.refuse(f"{n} bytes are needed, {self.end - self.position} are left")
        self.position += n
        return self.file.read(n)

    def number(self, format):
        return struct.unpack(format, self.read(struct.calcsize(format)))[0]

    def line(self):
        text = self.file.readline(200)
        self.position += len(text)
        if not text.endswith(b"\n"):
            self.refuse("the name of a global has no end")
        return text[:-1].decode("utf-8", "replace")

    # ---------------------------------------------------------------------------------- stack

    def pop(self):
        if not self.stack:
            self.refuse("an operand is missing on the stack")
        return self.stack.pop()

    def pop_mark(self):
        if not self.marks:
            self.refuse("a mark is missing on the stack")
        items, self.stack = self.stack, self.marks.pop()
        return items

    def top(self, *kinds):
        """Returns the container into which the items before it are put."""
        if not self.stack or type(self.stack[-1]) not in kinds:
            found = kind_of(self.stack[-1]) if self.stack else "nothing"
            self.refuse(f"elements are put into {found}, not into {kinds[0].__name__}")
        return self.stack[-1]

    def value(self, item):
        if type(item) in PRIVATE:
            self.refuse(f"{kind_of(item)} is not a value")
        return item

    def key(self, item):
        if type(item) not in KEYS and not (type(item) in (tuple, Size) and all(type(part) in KEYS for part in item)):
            self.refuse(f"a {kind_of(item)} is no key of a dict or element of a set")
        return item

    def make_tuple(self, items):
        self.stack.append((Arguments if any(type(item) in PRIVATE for item in items) else tuple)(items))

    def set_items(self, items):
        target = self.top(dict, OrderedDict, Counter)
        if len(items) % 2:
            self.refuse("a key has no value")
        for i in range(0, len(items), 2):
            target[self.key(items[i])] = self.value(items[i + 1])

    # -------------------------------------------------------------------------------- opcodes

    CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False}
    EMPTY = {b")": tuple, b"]": list, b"}": dict}
    NUMBERS = {b"J": "<i", b"K": "<B", b"M": "<H", b"G": ">d"}
    TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}

    def run(self):
        """Returns the object; runs up to and including STOP."""
        while True:
            self.at = self.position
            code = self.read(1)
            if code == b".":
                result = self.value(self.pop())
                if self.stack or self.marks:
                    self.refuse("more than one object is left on the stack")
                return result
            self.step(code)

    def step(self, code):
        stack = self.stack
        if code in self.CONSTANTS:
            stack.append(self.CONSTANTS[code])
        elif code in self.EMPTY:
            stack.append(self.EMPTY[code]())
        elif code in self.NUMBERS:
            stack.append(self.number(self.NUMBERS[code]))
        elif code == b"X":
            stack.append(self.text(self.read(self.number("<I"))))
        elif code in b"qr":
            self.memo[self.number("<B" if code == b"q" else "<I")] = self.top_of_any()
        elif code in b"hj":
            index = self.number("<B" if code == b"h" else "<I")
            if index not in self.memo:
                self.refuse(f"object {index} of the memo is read and was not written")
            stack.append(self.memo[index])
        elif code == b"(":
            self.marks.append(stack)
            self.stack = []
        elif code == b"t":
            self.make_tuple(self.pop_mark())
        elif code in self.TUPLES:
            self.make_tuple([self.pop() for _ in range(self.TUPLES[code])][::-1])
        elif code in b"ae":
            items = [self.pop()] if code == b"a" else self.pop_mark()
            self.top(list).extend(self.value(item) for item in items)
        elif code in b"su":
            self.set_items([self.pop(), self.pop()][::-1] if code == b"s" else self.pop_mark())
        else:
            self.rarer_step(code)

    def rarer_step(self, code):
        if code == b"c":
            self.find_global(self.line() + "." + self.line())
        elif code == b"R":
            self.reduce()
        elif code == b"Q":
            self.stack.append(self.persistent(self.pop()))
        elif code == b"b":
            self.build(self.pop())
        elif code == b"U":
            self.stack.append(self.text(self.read(self.number("<B"))))
        elif code == b"\x8a":
            self.stack.append(int.from_bytes(self.read(self.number("<B")), "little", signed=True))
        elif code == b"\x80":
            version = self.number("<B")
            if version != 2:
                self.refuse(f"the pickle is of protocol {version}, PyTorch's files are of 2")
        else:
            self.refuse(f"opcode 0x{code[0]:02x} is none that data needs")

    def text(self, data):
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self.refuse("a string is no UTF-8")

    def top_of_any(self):
        if not self.stack:
            self.refuse("an operand is missing on the stack")
        return self.stack[-1]

    def find_global(self, name):
        name = name.replace("__builtin__.", "builtins.", 1) if name.startswith("__builtin__.") else name
        if name not in GLOBALS:
            self.refuse(f"the global {name!r} is none of those that data needs; code in files is never run")
        self.stack.append(GLOBALS[name])

    def reduce(self):
        args, function = self.pop(), self.pop()
        if type(function) is not Global or not function.call:
            self.refuse(f"{kind_of(function)} is called, it is no function")
        if not isinstance(args, tuple):
            self.refuse(f"{function.name} is called with a {kind_of(args)}, not with a tuple")
        self.stack.append(getattr(self, "make_" + function.call)(function.name, args))

    def build(self, state):
        """Sets attributes: the _metadata of a state dict, the versions of its modules, has them."""
        target = self.top(OrderedDict)
        if type(state) is not dict or any(name != "_metadata" for name in state):
            self.refuse("an OrderedDict is given attributes other than _metadata")
        if type(state.get("_metadata", {})) not in (dict, OrderedDict):
            self.refuse(f"_metadata is of type {kind_of(state['_metadata'])}, not dict")
        target.__dict__.update(state)

    def persistent(self, told):
        """("storage", its class, key, device, elements)."""
        if not isinstance(told, tuple) or len(told) not in (5, 6) or told[0] != "storage":
            self.refuse(f"a persistent id is a {kind_of(told)}, not (\"storage\", class, key, device, elements)")
        kind, key, device, count = told[1:5]
        if type(kind) is not Global or not kind.storage:
            self.refuse(f"a storage is of class {kind_of(kind)}, which is none")
        if type(key) is not str or not (key.isascii() and key.isdecimal()):
            self.refuse(f"a storage's key is {key!r:.60}, not a string of digits")
        if type(count) is not int or count < 0 or type(device) is not str:
            self.refuse(f"storage '{key}' has {count!r:.60} elements on {device!r:.60}")
        if told[5:] not in ((), (None,)):
            self.refuse(f"storage '{key}' is a view of another, which Cotan does not read")
        found = Storage(key, kind.storage, count)
        if self.source:
            has, needs = self.source.size(key), count * WIDTHS[kind.storage]
            if has is None:
                self.refuse(f"the record of storage '{key}' is missing")
            if not needs <= has < needs + WIDTHS[kind.storage]:
                self.refuse(f"storage '{key}' has {count} elements of {kind.storage}, {needs} bytes, its record has {has}")
        elif (kind.storage, count) != self.storages.setdefault(key, (kind.storage, count)):
            self.refuse(f"storage '{key}' is described twice, differently")
        return found

    # --------------------------------------------------------------------------------- objects

    def arguments(self, name, args, *choices):
        """Checks that the types of the arguments are one of the choices."""
        if tuple(type(arg) for arg in args) not in choices:
            self.refuse(f"{name} is called with ({', '.join(kind_of(arg) for arg in args)})")

    def make_ordered_dict(self, name, args):
        self.arguments(name, args, (), (list,))
        result = OrderedDict()
        for pair in args[0] if args else ():
            if type(pair) not in (list, tuple) or len(pair) != 2:
                self.refuse(f"{name} is made of a list whose elements are no pairs")
            result[self.key(pair[0])] = pair[1]
        self.spend(100 * len(result))
        return result

    def make_counter(self, name, args):
        self.arguments(name, args, (), (dict,))
        self.spend(100 * len(args[0]) if args else 0)
        result = Counter()
        dict.update(result, *args)
        return result

    def make_set(self, name, args):
        self.arguments(name, args, (), (list,))
        self.spend(100 * len(args[0]) if args else 0)
        return {self.key(item) for item in (args[0] if args else ())}

    def make_size(self, name, args):
        self.arguments(name, args, (tuple,))
        if any(type(size) is not int for size in args[0]):
            self.refuse(f"{name} is made of a tuple whose elements are no integers")
        self.spend(8 * len(args[0]))
        return Size(args[0])

    def make_device(self, name, args):
        self.arguments(name, args, (str,), (str, int))
        return ":".join(str(arg) for arg in args)

    def make_encode(self, name, args):
        self.arguments(name, args, (str, str))
        self.spend(len(args[0]))
        if args[1] != "latin1" or not all(letter <= "\xff" for letter in args[0]):
            self.refuse("bytes are given as a string that is not latin1")
        return args[0].encode("latin1")

    def make_no_bytes(self, name, args):
        self.arguments(name, args, ())
        return b""

    def make_bytearray(self, name, args):
        if args[1:] == ("latin-1",):
            args = (self.make_encode(name, (args[0], "latin1")),)
        self.arguments(name, args, (), (bytes,))
        self.spend(len(args[0]) if args else 0)
        return bytearray(*args)

    def make_complex(self, name, args):
        self.arguments(name, args, (float, float))
        return complex(*args)

    def make_parameter(self, name, args):
        self.arguments(name, args, (Tensor, bool, OrderedDict))
        self.check_gradients(args[0].dtype, args[1])
        return Parameter(args[0], args[1])

    def check_gradients(self, dtype, wanted):
        if wanted and not dtype.name.startswith(("float", "bfloat", "complex")):
            self.refuse(f"a tensor of {dtype.name} requires gradients")

    def make_tensor(self, name, args):
        """(storage, offset, size, stride, requires_grad, hooks, dtype of v3, metadata)"""
        least = {"torch._utils._rebuild_tensor": 4, "torch._utils._rebuild_tensor_v2": 6}.get(name, 7)
        if len(args) not in (least, least + (least > 4)) or type(args[0]) is not Storage:
            self.refuse(f"{name} is called with ({', '.join(kind_of(arg) for arg in args)})")
        storage, offset, size, stride = args[:4]
        requires_grad = args[4] if least > 4 else False
        dtype, count = DTYPES[storage.dtype], storage.count
        if least == 7:
            if type(args[6]) is not _core.dtype:
                self.refuse(f"a tensor's dtype is a {kind_of(args[6])}")
            dtype = args[6]
            count = count * WIDTHS[storage.dtype] // WIDTHS[dtype.name]
        if type(requires_grad) is not bool:
            self.refuse(f"requires_grad is a {kind_of(requires_grad)}")
        self.check_gradients(dtype, requires_grad)
        self.check_layout(storage.key, count, offset, size, stride)
        if not self.source:
            return _core.full((), 0, dtype)
        self.spend(math.prod(size) * WIDTHS[dtype.name])
        tensor = self.apply_metadata(self.shared_tensor(storage.key, dtype, offset, tuple(size), tuple(stride)), args[least:])
        return tensor.requires_grad_() if requires_grad else tensor

    def check_layout(self, key, count, offset, size, stride):
        for what, numbers in (("offset", (offset,)), ("size", size), ("stride", stride)):
            if not isinstance(numbers, tuple) or any(type(n) is not int or not 0 <= n < 1 << 60 for n in numbers):
                self.refuse(f"a tensor's {what} is {numbers!r:.60}: whole numbers from 0 to 2^60 must be there")
        if len(size) != len(stride):
            self.refuse(f"a tensor has {len(size)} sizes and {len(stride)} strides")
        if math.prod(n for n in size if n) >= 1 << 60:
            self.refuse(f"a tensor's sizes {tuple(size)} multiply to 2^60 or more")
        if 0 not in size:
            last = offset + sum((n - 1) * step for n, step in zip(size, stride))
            if last >= count:
                self.refuse(f"a tensor of sizes {tuple(size)} and strides {tuple(stride)} from element {offset} on reads "
                            f"element {last}, its storage '{key}' has {count}")

    def shared_tensor(self, *place):
        """Returns a shared tensor for the same part of a storage, which is read once."""
        if place not in self.made:
            try:
                self.made[place] = read_tensor(self.source, *place)
            except (ValueError, _core.Error) as error:
                self.refuse(str(error))
        return self.made[place].detach()

    def apply_metadata(self, tensor, metadata):
        """Applies the lazy conjugation and negation that PyTorch's files may record."""
        wanted = metadata[0] if metadata else None
        if wanted is not None and (type(wanted) is not dict or set(wanted) - {"conj", "neg"}):
            self.refuse("a tensor's metadata are not of conj and neg alone")
        if wanted and wanted.get("conj"):
            tensor = _core.ops.conj(tensor)
        return -tensor if wanted and wanted.get("neg") else tensor


def read_tensor(source, key, dtype, offset, size, stride):
    """Reads only the tensor's own bytes if they are contiguous, in whatever order of axes; otherwise the
    whole storage."""
    width = WIDTHS[dtype.name]
    if 0 in size:
        return _core._of_bytes(b"", dtype, size)
    dense = tuple(1 if step == 0 else n for n, step in zip(size, stride))
    span = 1 + sum((n - 1) * step for n, step in zip(dense, stride))
    if span == math.prod(dense):
        data, offset = source.read(key, offset * width, span * width), 0
    else:
        data = source.whole(key)
    if source.is_swapped:
        data = byteswap(data, width // 2 if dtype.name.startswith("complex") else width)
    if len(data) != span * width or strides_of_long_axes(dense, stride) != strides_of_long_axes(dense, row_major_strides(dense)):
        data = gather_strided(data, width, offset, dense, stride)
    tensor = _core._of_bytes(data, dtype, dense)
    return tensor if dense == size else _core.ops.expand(tensor, size)


def row_major_strides(size):
    return tuple(math.prod(size[i + 1:]) for i in range(len(size)))


def strides_of_long_axes(size, stride):
    return [step for n, step in zip(size, stride) if n > 1]


def byteswap(data, width):
    result = bytearray(len(data))
    for i in range(width):
        result[i::width] = data[width - 1 - i::width]
    return result


def gather_strided(data, width, offset, size, stride):
    """Returns the elements in row-major order: the longest axis by slices with a step, the others one by
    one."""
    if width == 16:
        width, offset, size, stride = 8, 2 * offset, (*size, 2), (*(2 * step for step in stride), 1)
    unit = {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
    source = memoryview(data)[:len(data) // width * width].cast(unit)
    result = bytearray(math.prod(size) * width)
    target = memoryview(result).cast(unit)
    axes = sorted(((n, step, to) for n, step, to in zip(size, stride, row_major_strides(size)) if n > 1), reverse=True)
    n, step, to = axes[0] if axes else (1, 1, 1)
    for place in itertools.product(*(range(axis[0]) for axis in axes[1:])):
        start = offset + sum(i * axis[1] for i, axis in zip(place, axes[1:]))
        first = sum(i * axis[2] for i, axis in zip(place, axes[1:]))
        target[first:first + (n - 1) * to + 1:to] = source[start:start + (n - 1) * step + 1:step]
    return result


class Source:
    """The bytes of storages: `positions` has each key's position in the file."""

    def __init__(self, name, file, places, is_swapped):
        self.name, self.file, self.positions, self.is_swapped = name, file, places, is_swapped
        self.cached = {}

    def size(self, key):
        return self.positions[key][1] if key in self.positions else None

    def read(self, key, start, n):
        at, size, crc = self.positions[key]
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


def load_zip(name, file, size):
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
    source = Source(name, file, places, order.decode() != sys.byteorder)
    return Machine(f"{name}: data.pkl", io.BytesIO(data), 0, len(data), source, 16 * size + (1 << 26)).run()


def load_legacy(name, file, size):
    """Reads the format from before PyTorch 1.6: pickles of a magic number, a protocol, the system, the object
    and the storages' keys, then the storages. The object is interpreted twice, first without storages, to
    find their positions."""
    def machine(at, source=None):
        file.seek(at)
        return Machine(name, file, at, size, source, 16 * size + (1 << 26))

    def pickled(at):
        reader = machine(at)
        return reader.run(), reader.position, reader.storages

    magic, at, _ = pickled(0)
    if type(magic) is not int or magic != MAGIC:
        raise RuntimeError(f"load: {name}: it is a pickle, and no file of PyTorch")
    protocol, at, _ = pickled(at)
    system, begin, _ = pickled(at)
    if type(protocol) is not int or protocol != PROTOCOL or type(system) is not dict:
        raise RuntimeError(f"load: {name}: its head is none of PyTorch's files from before 1.6")
    _, after, storages = pickled(begin)
    keys, at, _ = pickled(after)
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
    # The file's position is needed for the storages.
    objects = io.BytesIO(read_exactly(name, file, begin, after - begin))
    return Machine(name, objects, begin, after, Source(name, file, places, is_swapped), 16 * size + (1 << 26)).run()


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


def load_file(name, file):
    size = file.seek(0, os.SEEK_END)
    head = bytes(read_exactly(name, file, 0, min(4, size)))
    if head == b"PK\3\4":
        return load_zip(name, file, size)
    if head[:2] == b"\x80\2":
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
