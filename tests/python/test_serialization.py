"""cotan.load on files that PyTorch 2.15 and 1.13 wrote (tests/python/data) and on malicious ones; cotan.save read again by
Python's own zipfile and pickle. tests/parity/test_serialization.py exchanges files with PyTorch itself."""
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import cotan
from cotan import _core, nn, optim, serialization

DATA = Path(__file__).parent / "data"
EVENTS, WATCHED = [], ("os.", "subprocess.", "exec", "compile", "import", "ctypes.", "socket.", "shutil.", "pickle.")
WATCHING = False


def watch(event, args):
    if WATCHING and event.startswith(WATCHED):
        EVENTS.append((event, args))


sys.addaudithook(watch)


def bits(x):
    file = io.BytesIO()
    file.write(x.detach())
    return file.getvalue()


def values(x):
    return x.detach().tolist()


# --------------------------------------------------------------------------------------- PyTorch's


@pytest.mark.parametrize("name", ["torch2", "torch1"])
def test_files_of_pytorch(name):
    found = cotan.load(DATA / f"{name}.pt")
    state, a = found.pop("state"), np.arange(24, dtype="float32").reshape(2, 3, 4)
    assert type(state) is OrderedDict
    for key, want in [("dense", a), ("transposed", a.transpose(2, 0, 1)), ("slice", a[:, 1:, ::2]), ("again", a),
                      ("expanded", np.array([[1, 1, 1], [2, 2, 2]])), ("scalar", np.array(2.5)), ("empty", np.zeros((0, 3))),
                      ("ctransposed", np.array([[1 + 2j, 4], [3, 5j]]))]:
        assert tuple(state[key].shape) == want.shape and values(state[key]) == want.tolist(), key
    for key in ("parameter", "frozen"):
        assert type(state[key]) is nn.Parameter and state[key].requires_grad == (key == "parameter")
    assert state["leaf"].requires_grad and state["leaf"].is_leaf and values(state["parameter"]) == [1, -2]
    dtypes = ["float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128"]
    if name == "torch2":
        dtypes += ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]
        assert values(state["conj"]) == [1 - 2j]
    for dtype in dtypes:
        want = [False, True, True, True] if dtype == "bool" else [0, 1, 2, 3]
        assert str(state[dtype].dtype) == f"cotan.{dtype}" and values(state[dtype]) == want
    assert found == {"numbers": [1, -5, 300, 70000, 2**40, -2**70, 1.5, True, None, "text \u00e9", 1 + 2j],
                     "tuple": (1, (2,), ()), "size": (2, 3), "dtype": cotan.bfloat16, "device": "cuda:1",
                     "bytes": b"\x00\xff", "set": {1, 2}}
    assert type(found["size"]) is cotan.Size


def test_files_from_before_zip():
    found = cotan.load(io.BytesIO((DATA / "legacy.pt").read_bytes()), map_location="cpu")
    a = np.arange(24).reshape(2, 3, 4)
    assert values(found["a"]) == a.tolist() and values(found["t"]) == a.transpose(2, 0, 1).tolist()
    assert type(found["p"]) is nn.Parameter and values(found["p"]) == [1, -2] and found["n"] == 3


def test_only_equal_parts_of_a_storage_are_shared():
    state = cotan.load(DATA / "torch2.pt")["state"]
    state["dense"][0, 1, 0] = 9
    assert values(state["again"])[0][1][0] == 9 and values(state["slice"])[0][0][0] == 4


# -------------------------------------------------------------------------------------------- save


class Reader(pickle.Unpickler):
    """Python's own, with stand-ins for PyTorch's functions: tensors become NumPy arrays."""

    def __init__(self, archive):
        self.folder = archive.namelist()[0].split("/")[0]
        self.archive = archive
        super().__init__(io.BytesIO(archive.read(f"{self.folder}/data.pkl")))

    def find_class(self, module, name):
        if module.startswith("torch"):
            return {"_rebuild_tensor_v2": self.tensor, "_rebuild_tensor_v3": self.tensor, "Size": tuple,
                    "_rebuild_parameter": lambda data, requires_grad, hooks: (data, requires_grad)}.get(name, name)
        return super().find_class(module, name)

    def persistent_load(self, told):
        data = self.archive.read(f"{self.folder}/data/{told[2]}")
        kind = {"FloatStorage": "f4", "HalfStorage": "f2", "LongStorage": "i8", "BoolStorage": "?",
                "ComplexFloatStorage": "c8", "BFloat16Storage": "u2"}.get(told[1], "u1")
        assert told[0] == "storage" and told[3] == "cpu" and told[4] * np.dtype(kind).itemsize == len(data)
        return np.frombuffer(data, kind)

    @staticmethod
    def tensor(storage, offset, size, stride, requires_grad, hooks, dtype=None):
        assert not hooks and offset == 0
        storage = storage if dtype is None else storage.view({"uint16": "u2", "float8_e5m2": "u1"}[dtype])
        return np.lib.stride_tricks.as_strided(storage, size, [n * storage.itemsize for n in stride])


SAVED = {"f32": [1.5, -2.0], "f16": [0.5], "i64": [[1, 2], [3, 4]], "bool": [True, False], "c64": [1 + 2j], "bf16": [1.0, 2.0],
         "u16": [65535], "f8": [1.0]}
KINDS = {"f16": "float16", "bf16": "bfloat16", "u16": "uint16", "f8": "float8_e5m2"}


def saved_object():
    made = OrderedDict((key, cotan.asarray(numbers, dtype=KINDS.get(key))) for key, numbers in SAVED.items())
    made["computed"] = made["f32"] * 2
    made["empty"] = cotan.full((0, 3), 0)
    made["parameter"] = nn.Parameter([1.0])
    return {"state": made, "twice": made["f32"], "more": [0, 255, 256, -1, 2**31, -2**70, 0.1, None, True, "\u20ac", 2 - 1j, (), (1,)],
            "size": made["i64"].shape, "bytes": b"\0\xff", "bytearray": bytearray(b"a"), "set": {3}, 1: "one",
            "dtype": cotan.bfloat16, "nested": {"a": {"b": [{}, []]}}}


def test_python_reads_what_is_saved(tmp_path):
    cotan.save(saved_object(), tmp_path / "model.v1.pt")
    with zipfile.ZipFile(tmp_path / "model.v1.pt") as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert {name: archive.read("model.v1/" + name) for name in (".format_version", ".storage_alignment", "byteorder", "version")} == {
            ".format_version": b"1", ".storage_alignment": b"64", "byteorder": b"little", "version": b"3\n"}
        assert len([name for name in names if name.startswith("model.v1/data/")]) == len(SAVED) + 3  # the one twice is there once
        found = Reader(archive).load()
        raw = (tmp_path / "model.v1.pt").read_bytes()
        for entry in archive.infolist():
            head = entry.header_offset
            assert (head + 30 + sum(struct.unpack("<HH", raw[head + 26:head + 30]))) % 64 == 0
    state = found.pop("state")
    for key, numbers in SAVED.items():
        if key not in ("bf16", "f8"):
            assert state[key].tolist() == numbers, key
    assert state["bf16"].tolist() == [0x3f80, 0x4000] and state["f8"].tolist() == [0x3c]
    assert state["computed"].tolist() == [3, -4] and state["empty"].shape == (0, 3)
    assert state["parameter"][0].tolist() == [1] and state["parameter"][1] is True
    assert found.pop("twice").tolist() == SAVED["f32"] and found.pop("dtype") == "bfloat16"
    assert found == {"more": [0, 255, 256, -1, 2**31, -2**70, 0.1, None, True, "\u20ac", 2 - 1j, (), (1,)], "size": (2, 2),
                     "bytes": b"\0\xff", "bytearray": bytearray(b"a"), "set": {3}, 1: "one", "nested": {"a": {"b": [{}, []]}}}


def test_what_is_saved_loads():
    file, made = io.BytesIO(), saved_object()
    cotan.save(made, file)
    found = cotan.load(file)
    for key, x in made["state"].items():
        y = found["state"][key]
        assert (type(x), x.dtype, x.shape, x.requires_grad, bits(x)) == (type(y), y.dtype, y.shape, y.requires_grad, bits(y))
    for key in ("more", "size", "bytes", "bytearray", "set", 1, "dtype", "nested"):
        assert found[key] == made[key] and type(found[key]) is type(made[key])


def test_training_goes_on_from_a_file(tmp_path):
    def trainer():
        cotan.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        return net, optim.AdamW(net.parameters(), lr=0.1)

    def step(net, optimizer):
        optimizer.zero_grad()
        cotan.ops.sum(net(cotan.asarray(np.arange(15, dtype="float32").reshape(5, 3))) ** 2).backward()
        optimizer.step()

    net, optimizer = trainer()
    for _ in range(2):
        step(net, optimizer)
    cotan.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2}, tmp_path / "x.pt")
    other, other_optimizer = trainer()
    found = cotan.load(tmp_path / "x.pt")
    assert found["net"]._metadata == net.state_dict()._metadata
    other.load_state_dict(found["net"])
    other_optimizer.load_state_dict(found["optimizer"])
    step(net, optimizer)
    step(other, other_optimizer)
    assert [bits(x) for x in net.state_dict().values()] == [bits(x) for x in other.state_dict().values()]


@pytest.mark.parametrize("obj, kind, text", [
    ({"a": [1, print]}, TypeError, "save: ['a'][1] is a builtin_function_or_method: files have tensors, numbers, strings, lists, tuples, dicts and sets"),
    (nn.Linear(1, 1), TypeError, "save: the object is a Linear: files have tensors, numbers, strings, lists, tuples, dicts and sets; save its state_dict()"),
    ([2**3000], ValueError, "save: [0] is an integer of 376 bytes, files have at most 255"),
    ([cotan.int4], TypeError, "save: [0] is of int4, which PyTorch's files have not"),
])
def test_what_cannot_be_saved(tmp_path, obj, kind, text):
    (tmp_path / "x.pt").write_bytes(b"last good")
    with pytest.raises(kind) as told:
        cotan.save(obj, tmp_path / "x.pt")
    assert str(told.value) == text and os.listdir(tmp_path) == ["x.pt"] and (tmp_path / "x.pt").read_bytes() == b"last good"


def test_nesting():
    deep = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ValueError) as told:
        cotan.save(deep, io.BytesIO())
    assert str(told.value) == "save: lists, tuples and dicts nest deeper than 200"
    loop = [1]
    loop.append(loop)
    file = io.BytesIO()
    cotan.save(loop, file)
    assert cotan.load(file)[1][1][0] == 1


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_last_good_file(tmp_path, monkeypatch, failing):
    cotan.save([1], tmp_path / "x.pt")

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        with pytest.raises(OSError):
            cotan.save([2], tmp_path / "x.pt")
    assert os.listdir(tmp_path) == ["x.pt"] and cotan.load(tmp_path / "x.pt") == [1]


@pytest.mark.parametrize("last", ["fsync", "replace"])
def test_a_kill_leaves_the_last_good_file(tmp_path, last):
    cotan.save([1], tmp_path / "x.pt")
    program = f"import cotan, os\nos.{last} = lambda *args: os.kill(os.getpid(), 9)\ncotan.save([2], {str(tmp_path / 'x.pt')!r})"
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert cotan.load(tmp_path / "x.pt") == [1]


def test_links_modes_and_devices(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"")
    (tmp_path / "x.pt").chmod(0o640)
    (tmp_path / "link.pt").symlink_to("x.pt")
    cotan.save([1], tmp_path / "link.pt")
    assert (tmp_path / "link.pt").is_symlink() and (tmp_path / "x.pt").stat().st_mode & 0o777 == 0o640
    assert cotan.load(str(tmp_path / "x.pt")) == [1]
    cotan.save([1], "/dev/null")
    assert not os.path.isfile("/dev/null")


# ------------------------------------------------------------------------------------- what is told


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def whole(value):
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def named(name):
    return b"c" + "\n".join(name.rsplit(".", 1)).encode() + b"\n"


def storage(key="0", kind="torch.FloatStorage", count=6):
    return b"(" + text("storage") + named(kind) + text(key) + text("cpu") + whole(count) + b"tQ"


def row(values):
    return b"(" + b"".join(map(whole, values)) + b"t"


def tensor(offset=0, size=(2, 3), stride=(3, 1), flag=b"\x89", tail=b"", name="_rebuild_tensor_v2", of=None):
    return (named("torch._utils." + name) + b"(" + (of or storage()) + whole(offset) + row(size) + row(stride) + flag
            + named("collections.OrderedDict") + b")R" + tail + b"tR")


def archive(pickled, change=(), compression=0, more=()):
    records = {"data.pkl": b"\x80\x02" + pickled + b".", "byteorder": b"little",
               "data/0": np.arange(6, dtype="float32").tobytes(), "version": b"3\n", **dict(change)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        for name, data in [*((f"x/{name}", data) for name, data in records.items() if data is not None), *more]:
            made.writestr(name, data)
    return file.getvalue()


def patched(data, old, new, at=-1):
    """The last (or first) `old` in the file becomes `new`."""
    place = data.rindex(old) if at < 0 else data.index(old)
    return data[:place] + new + data[place + len(old):]


def directory_size(data, record, size):
    """The size that the directory tells of a record."""
    place = data.rindex(b"x/" + record)
    return data[:place - 26] + struct.pack("<II", size, size) + data[place - 18:]


GOOD = archive(tensor())
BIG = archive(tensor(), {"byteorder": b"big", "data/0": np.arange(6, dtype=">f4").tobytes()})
LEGACY = (DATA / "legacy.pt").read_bytes()


def test_handmade_files_load():
    for data in (GOOD, BIG, archive(tensor(), {"byteorder": None})):
        assert values(cotan.load(io.BytesIO(data))) == [[0, 1, 2], [3, 4, 5]]
    for size, stride in (((0,), (0,)), ((0, 2), (1, 0)), ((2, 0), (0, 1))):
        assert cotan.load(io.BytesIO(archive(tensor(size=size, stride=stride)))).shape == size
    for records in ({}, {"byteorder": b"big", "data/0": np.arange(6, dtype=">f4").tobytes()}):
        file = archive(tensor(1, (2, 2), (0, 3)), records)
        assert values(cotan.load(io.BytesIO(file))) == [[1, 4], [1, 4]]
    deep = cotan.load(io.BytesIO(archive(b"]" * 50000 + b"a" * 49999)))
    assert len(deep) == 1
    assert cotan.load(io.BytesIO(archive(b"]q\x00h\x00a")))[0][0] != []


class Net:
    pass


def test_objects_of_classes():
    data = archive(named("net.Net") + b")\x81}" + text("weight") + tensor() + b"sb")
    found = serialization.load_file("x", io.BytesIO(data), lambda *name: {("net", "Net"): Net}[name])
    assert type(found) is Net and values(found.weight) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(pickle.UnpicklingError, match="the global 'net.Net' is none of those"):
        cotan.load(io.BytesIO(data))
    with pytest.raises(RuntimeError) as told:
        serialization.load_file("x", io.BytesIO(archive(tensor(of=storage(count=5), size=(8,), stride=(1,)))), lambda *name: None)
    assert str(told.value) == "load: x: 32 bytes at 0 of storage '0' are asked for, it has 24"
    with pytest.raises(RuntimeError) as told:
        serialization.load_file("x", io.BytesIO(LEGACY), lambda *name: None)
    assert str(told.value) == "load: x: it is of the format from before PyTorch 1.6, of which data only can be read"


MALICIOUS = [
    ("os_system", lambda: archive(named("posix.system") + b"(" + text("touch /tmp/x") + b"tR"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 2: the global 'posix.system' is none of those that data needs; code in files is never run"),
    ("eval", lambda: archive(named("builtins.eval") + b"(" + text("1") + b"tR"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 2: the global 'builtins.eval' is none of those that data needs; code in files is never run"),
    ("python2_eval", lambda: archive(named("__builtin__.eval") + b"(" + text("1") + b"tR"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 2: the global 'builtins.eval' is none of those that data needs; code in files is never run"),
    ("getattr_chain", lambda: archive(named("builtins.getattr") + b"(" + named("os.path") + text("os") + b"tR"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 2: the global 'builtins.getattr' is none of those that data needs; code in files is never run"),
    ("dotted_global", lambda: archive(b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 2: the global 'torch._utils._rebuild_tensor_v2.__globals__' is none of those that data needs; code in files is never run"),
    ("unknown_dtype", lambda: archive(named("torch.quint8")), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 2: the global 'torch.quint8' is none of those that data needs; code in files is never run"),
    ("numpy_scalar", lambda: archive(named("numpy._core.multiarray.scalar")), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 2: the global 'numpy._core.multiarray.scalar' is none of those that data needs; code in files is never run"),
    ("calls_a_string", lambda: archive(text("x") + b")R"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 9: str is called, it is no function'),
    ("calls_a_storage", lambda: archive(named("torch.FloatStorage") + b")R"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 23: FloatStorage is called, it is no function'),
    ("calls_with_a_list", lambda: archive(named("collections.OrderedDict") + b"]R"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 28: collections.OrderedDict is called with a list, not with a tuple'),
    ("global_as_value", lambda: archive(b"]" + named("torch._utils._rebuild_tensor_v2") + b"a"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 36: torch._utils._rebuild_tensor_v2 is not a value'),
    ("storage_as_value", lambda: archive(b"(" + storage() + b"t"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 56: a tuple with a storage or a function in it is not a value'),
    ("beyond_the_storage", lambda: archive(tensor(size=(2, 4), stride=(3, 1))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 136: a tensor of sizes (2, 4) and strides (3, 1) from element 0 on reads element 6, its storage '0' has 6"),
    ("offset_beyond", lambda: archive(tensor(offset=6, size=(1,), stride=(1,))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 130: a tensor of sizes (1,) and strides (1,) from element 6 on reads element 6, its storage '0' has 6"),
    ("negative_size", lambda: archive(tensor(size=(-2, 3))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 136: a tensor's size is (-2, 3): whole numbers from 0 to 2^60 must be there"),
    ("negative_stride", lambda: archive(tensor(offset=5, size=(2,), stride=(-1,))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 130: a tensor's stride is (-1,): whole numbers from 0 to 2^60 must be there"),
    ("negative_offset", lambda: archive(tensor(offset=-1)), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 136: a tensor's offset is (-1,): whole numbers from 0 to 2^60 must be there"),
    ("huge_stride", lambda: archive(tensor(size=(2,), stride=(2**64 + 1,))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 138: a tensor's stride is (an integer of 9 bytes,): whole numbers from 0 to 2^60 must be there"),
    ("sizes_overflow", lambda: archive(tensor(size=(2**32, 2**32), stride=(0, 0))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 144: a tensor's sizes (4294967296, 4294967296) multiply to 2^60 or more"),
    ("empty_sizes_overflow", lambda: archive(tensor(size=(0, 2**32, 2**32), stride=(0, 0, 0))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 150: a tensor's sizes (0, 4294967296, 4294967296) multiply to 2^60 or more"),
    ("expanded_bomb", lambda: archive(tensor(size=(2**40,), stride=(0,))), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 135: its objects take more than 67118000 bytes, 16 times the file and 64 MiB'),
    ("sizes_without_strides", lambda: archive(tensor(size=(2, 3), stride=(1,))), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 133: a tensor has 2 sizes and 1 strides'),
    ("sizes_are_text", lambda: archive(named("torch._utils._rebuild_tensor") + b"(" + storage() + b"K\x00" + text("23") + text("31") + b"tR"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 102: a tensor's size is '23': whole numbers from 0 to 2^60 must be there"),
    ("too_many_axes", lambda: archive(tensor(size=(1,) * 70, stride=(1,) * 70)), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 544: the sizes are 70 numbers, at most 32 are possible'),
    ("offset_is_bool", lambda: archive(named("torch._utils._rebuild_tensor") + b"(" + storage() + b"\x88" + row((2,)) + row((1,)) + b"tR"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 97: a tensor's offset is (True,): whole numbers from 0 to 2^60 must be there"),
    ("integer_gradients", lambda: archive(tensor(flag=b"\x88", of=storage(kind="torch.IntStorage"))), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 134: a tensor of int32 requires gradients'),
    ("record_too_short", lambda: archive(tensor(of=storage(count=7))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 87: storage '0' has 7 elements of float32, 28 bytes, its record has 24"),
    ("record_too_long", lambda: archive(tensor(of=storage(count=5))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 87: storage '0' has 5 elements of float32, 20 bytes, its record has 24"),
    ("count_negative", lambda: archive(tensor(of=storage(count=-1))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 87: storage '0' has -1 elements on 'cpu'"),
    ("count_huge", lambda: archive(tensor(of=storage(count=2**62))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 94: storage '0' has 4611686018427387904 elements of float32, 18446744073709551616 bytes, its record has 24"),
    ("record_missing", lambda: archive(tensor(of=storage(key="7"))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 87: the record of storage '7' is missing"),
    ("key_is_a_path", lambda: archive(tensor(of=storage(key="../data.pkl"))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 97: a storage's key is '..\\/data.pkl', not a string of digits"),
    ("key_is_not_ascii", lambda: archive(tensor(of=storage(key="\u0660"))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 88: a storage's key is '٠', not a string of digits"),
    ("persistent_text", lambda: archive(text("0") + b"Q"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 8: a persistent id is a str, not ("storage", class, key, device, elements)'),
    ("persistent_module", lambda: archive(b"(" + text("module") + text("a") + text("b") + text("c") + text("d") + b"tQ"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 39: a persistent id is a tuple, not ("storage", class, key, device, elements)'),
    ("persistent_class", lambda: archive(b"(" + text("storage") + text("os") + text("0") + text("cpu") + b"K\x06tQ"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 39: a storage is of class str, which is none'),
    ("v3_dtype", lambda: archive(tensor(name="_rebuild_tensor_v3", tail=text("float32"))), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 148: a tensor's dtype is a str"),
    ("metadata", lambda: archive(tensor(tail=b"}" + text("grad") + b"\x88s")), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 148: a tensor's metadata are not of conj and neg alone"),
    ("opcode_inst", lambda: archive(b"(" + text("touch x") + b"ios\nsystem\n"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 15: opcode 0x69 is none that data needs'),
    ("opcode_obj", lambda: archive(b"(" + named("collections.OrderedDict") + b"o"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 28: opcode 0x6f is none that data needs'),
    ("opcode_newobj", lambda: archive(named("torch.Size") + b")\x81"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 15: opcode 0x81 is none that data needs'),
    ("opcode_ext", lambda: archive(b"\x82\x01"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: opcode 0x82 is none that data needs'),
    ("opcode_stack_global", lambda: archive(text("os") + text("system") + b"\x93"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 20: opcode 0x93 is none that data needs'),
    ("opcode_persid_text", lambda: archive(b"P0\n"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: opcode 0x50 is none that data needs'),
    ("opcode_long4", lambda: archive(b"\x8b\xff\xff\xff\x7f"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: opcode 0x8b is none that data needs'),
    ("protocol_5", lambda: archive(b"", {"data.pkl": b"\x80\x05N."}), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 0: the pickle is of protocol 5, PyTorch's files are of 2"),
    ("build_on_set", lambda: archive(named("__builtin__.set") + b"(]tR}b"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 24: elements are put into set, not into OrderedDict'),
    ("build_on_tensor", lambda: archive(tensor() + b"}b"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 138: elements are put into Tensor, not into OrderedDict'),
    ("build_attributes", lambda: archive(named("collections.OrderedDict") + b")R}" + text("items") + b"Nsb"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 42: an OrderedDict is given attributes other than _metadata'),
    ("build_metadata", lambda: archive(named("collections.OrderedDict") + b")R}" + text("_metadata") + b"K\x01sb"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 47: _metadata is of type int, not dict'),
    ("setitem_on_list", lambda: archive(b"]K\x00K\x01s"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 7: elements are put into list, not into dict'),
    ("append_to_dict", lambda: archive(b"}K\x01a"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 5: elements are put into dict, not into list'),
    ("append_to_set", lambda: archive(named("__builtin__.set") + b"(]tRK\x01a"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 25: elements are put into set, not into list'),
    ("list_as_key", lambda: archive(b"}]Ns"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 5: a list is no key of a dict or element of a set'),
    ("nested_tuple_as_key", lambda: archive(b"})" + b"\x85" * 5000 + b"Ns"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 5005: a tuple is no key of a dict or element of a set'),
    ("key_without_value", lambda: archive(b"}(K\x01u"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 6: a key has no value'),
    ("memo_missing", lambda: archive(b"h\x05"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: object 5 of the memo is read and was not written'),
    ("memo_of_nothing", lambda: archive(b"r\xff\xff\xff\xff"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: an operand is missing on the stack'),
    ("stack_empty", lambda: archive(b""), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: an operand is missing on the stack'),
    ("stack_left", lambda: archive(b"NN"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 4: more than one object is left on the stack'),
    ("mark_missing", lambda: archive(b"Nt"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 3: a mark is missing on the stack'),
    ("text_beyond", lambda: archive(b"X\xff\xff\xff\xff"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: 4294967295 bytes are needed, 1 are left'),
    ("text_not_utf8", lambda: archive(b"X\x01\x00\x00\x00\xff"), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: a string is no UTF-8'),
    ("global_without_end", lambda: archive(b"c" + b"a" * 1000), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 2: the name of a global has no end'),
    ("pickle_truncated", lambda: archive(b"", {"data.pkl": b"\x80\x02]"}), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 3: 1 bytes are needed, 0 are left'),
    ("set_bomb", lambda: archive(b"](" + b"K\x01" * 2000 + b"eq\x00" + (named("__builtin__.set") + b"h\x00\x85R0") .replace(b"0", b"q\x01") * 1000), pickle.UnpicklingError,
     'load: the file: data.pkl, byte 11778: its objects take more than 67547936 bytes, 16 times the file and 64 MiB'),
    ("device_bomb", lambda: archive(text("c" * 50000) + b"q\x00](" + (named("torch.device") + b"h\x00K\x01\x86R") * 3000 + b"e"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 77570: its objects take more than 68876016 bytes, 16 times the file and 64 MiB"),
    ("bytearray_of_a_number", lambda: archive(named("__builtin__.bytearray") + whole(2**40) + b"\x85R"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 34: builtins.bytearray is called with (int)"),
    ("encode_with_a_codec", lambda: archive(named("_codecs.encode") + text("a") + text("zlib") + b"\x86R"), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 34: bytes are given as a string that is not latin1"),
    ("no_data_pkl", lambda: archive(b"N", {"data.pkl": None}), RuntimeError,
     "load: the file: the record 'data.pkl' is missing"),
    ("no_version", lambda: archive(b"N", {"version": None}), RuntimeError,
     "load: the file: the record 'version' is missing"),
    ("version_99", lambda: archive(b"N", {"version": b"99\n"}), RuntimeError,
     "load: the file: the archive is of version b'99', versions 1 to 10 are read"),
    ("version_long", lambda: archive(b"N", {"version": b"3" * 100}), RuntimeError,
     "load: the file: the record 'version' has 100 bytes, at most 64 are read"),
    ("byteorder", lambda: archive(b"N", {"byteorder": b"middle"}), RuntimeError,
     "load: the file: the order of bytes is b'middle', it must be little or big"),
    ("torchscript", lambda: archive(b"N", {"constants.pkl": b"\x80\x02)."}), RuntimeError,
     'load: the file: it is a program of TorchScript, which Cotan does not run'),
    ("duplicate", lambda: archive(b"N", more=[("x/data/0", b"abcd")]), RuntimeError,
     "load: the file: the record 'x/data/0' is there twice"),
    ("path_up", lambda: archive(b"N", more=[("x/../../etc/passwd", b"root")]), RuntimeError,
     "load: the file: the record 'x/../../etc/passwd' has no name of PyTorch's files"),
    ("path_absolute", lambda: archive(b"N", more=[("/etc/passwd", b"root")]), RuntimeError,
     "load: the file: the record '/etc/passwd' has no name of PyTorch's files"),
    ("path_backslash", lambda: archive(b"N", more=[("x/data\\0", b"root")]), RuntimeError,
     "load: the file: the record 'x/data\\\\0' has no name of PyTorch's files"),
    ("other_folder", lambda: archive(b"N", more=[("y/data/1", b"root")]), RuntimeError,
     "load: the file: the record 'y/data/1' has no name of PyTorch's files"),
    ("zip_bomb", lambda: archive(tensor(of=storage(count=2**22)), {"data/0": bytes(2**24)}, zipfile.ZIP_DEFLATED), RuntimeError,
     "load: the file: the record 'x/data.pkl' is compressed or encrypted, PyTorch's files store the bytes as they are"),
    ("size_beyond_the_file", lambda: directory_size(GOOD, b"data/0", 2**31), RuntimeError,
     "load: the file: the record 'x/data/0' with 2147483648 bytes does not fit between the records beside it"),
    ("size_over_the_next", lambda: directory_size(GOOD, b"data/0", 60), RuntimeError,
     "load: the file: the record 'x/version' with 2 bytes does not fit between the records beside it"),
    ("size_too_small", lambda: directory_size(GOOD, b"data/0", 20), pickle.UnpicklingError,
     "load: the file: data.pkl, byte 87: storage '0' has 6 elements of float32, 24 bytes, its record has 20"),
    ("bytes_changed", lambda: patched(GOOD, np.float32(5).tobytes(), np.float32(6).tobytes()), RuntimeError,
     "load: the file: the record 'data/0' is damaged: its CRC is f41afbb0, the archive's directory has 91e79017"),
    ("local_header", lambda: patched(GOOD, b"PK\3\4", b"PK\3\5"), RuntimeError,
     "load: the file: the record 'x/version' with 2 bytes does not fit between the records beside it"),
    ("directory_truncated", lambda: GOOD[:-30], RuntimeError,
     'load: the file: it is no whole zip archive (File is not a zip file)'),
    ("archive_truncated", lambda: GOOD[:200], RuntimeError,
     'load: the file: it is no whole zip archive (File is not a zip file)'),
    ("no_file_of_ours", lambda: b"GIF89a", RuntimeError,
     "load: the file: its 6 bytes begin with b'GIF8', which is no file of PyTorch"),
    ("empty", lambda: b"", RuntimeError,
     "load: the file: its 0 bytes begin with b'', which is no file of PyTorch"),
    ("pickle_of_others", lambda: pickle.dumps(os.system, 2), pickle.UnpicklingError,
     "load: the file, byte 2: the global 'posix.system' is none of those that data needs; code in files is never run"),
    ("legacy_magic", lambda: b"\x80\x02K\x01.", RuntimeError,
     'load: the file: it is a pickle, and no file of PyTorch'),
    ("legacy_count", lambda: LEGACY[:-16] + struct.pack("<q", 3) + LEGACY[-8:], RuntimeError,
     "load: the file: storage '518233808' has 3 elements, its object says 2"),
    ("legacy_truncated", lambda: LEGACY[:-1], RuntimeError,
     "load: the file: storage '518233808' needs 16 bytes at 659, the file has 674"),
]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("make, kind, told_text", [case[1:] for case in MALICIOUS], ids=[case[0] for case in MALICIOUS])
def test_malicious_files_are_refused(make, kind, told_text):
    global WATCHING
    file = io.BytesIO(make())
    WATCHING = True
    try:
        with pytest.raises(kind) as told:
            cotan.load(file)
    finally:
        WATCHING = False
    assert (type(told.value), str(told.value)) == (kind, told_text) and not EVENTS


@pytest.mark.parametrize("data", [GOOD, LEGACY], ids=["zip", "legacy"])
def test_every_truncation_is_refused(data):
    for n in range(len(data)):
        with pytest.raises((RuntimeError, pickle.UnpicklingError)):
            cotan.load(io.BytesIO(data[:n]))


def test_every_changed_byte_is_refused_or_read():
    for data in (GOOD, LEGACY):
        for i in range(len(data)):
            for bit in (1, 0x80):
                changed = data[:i] + bytes([data[i] ^ bit]) + data[i + 1:]
                try:
                    cotan.load(io.BytesIO(changed))
                except (RuntimeError, pickle.UnpicklingError):
                    pass


class Zeros(serialization.Source):
    def read(self, key, start, n):
        return bytes(n)

    def whole(self, key):
        return bytes(1 << 20)


def test_what_is_checked_is_made():
    """Python's Unpickler makes an object of every pickle that the library's reader accepts."""
    draw, accepted = random.Random(0), [[b"]"], [b"}"]]
    parts = [named(name) for name in serialization.OBJECTS] + [
        tensor(), storage(), row((2, 3)), text("latin1"), text("_metadata"), whole(2**70), *(bytes([c]) for c in b"N\x88)]}(teusabRQ\x85\x86"),
        b"q\0", b"h\0", b"q\1", b"h\1", named("__builtin__.set") + b"]\x85R", named("collections.OrderedDict") + b")R"]
    for _ in range(30000):
        made = list(draw.choice(accepted))
        at = draw.randrange(len(made) + 1)
        made[at:at] = draw.choices(parts, k=draw.randrange(1, 4))
        data = b"\x80\2" + b"".join(made) + b"."
        if type(_core._check_pickle(data, 0, 1 << 20, None)) is not str:
            serialization.Loader(data, Zeros("x", None, {}, False)).load()
            accepted.append(made)
    assert len(accepted) > 300


@pytest.mark.parametrize("call, kind, told_text", [
    (lambda: cotan.load(DATA / "torch2.pt", weights_only=False), ValueError,
     "load: weights_only=False is asked for, which would run code of the file; Cotan loads data only"),
    (lambda: cotan.load(DATA / "torch2.pt", "cuda:0"), RuntimeError, "load: map_location 'cuda:0' is asked for, Cotan has 'cpu'"),
    (lambda: cotan.load(1), TypeError, "load: a path or a file that can seek is needed, not int"),
    (lambda: cotan.save(1, 1), TypeError, "save: a path or a file is needed, not int"),
])
def test_arguments(call, kind, told_text):
    with pytest.raises(kind) as told:
        call()
    assert str(told.value) == told_text
