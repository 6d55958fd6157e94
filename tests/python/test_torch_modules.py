"""cotan.torch's modules: those of cotan, those that say that they do nothing, and those that work on one machine."""
import importlib
import io
import pkgutil
import struct
import wave
import zlib
from collections import OrderedDict, namedtuple

import cotan
import cotan.torch as torch
import pytest
from cotan.torch import _modules, _tables
from cotan.utils.tensorboard import SummaryWriter, _histogram, events


def test_modules_are_cotans():
    import cotan.torch.nn.functional as F
    import cotan.torch.utils.data.sampler as sampler
    assert torch.nn is cotan.nn and F is cotan.nn.functional and torch.cuda is cotan.cuda
    assert sampler is cotan.utils.data.sampler and cotan.nn.__spec__.name == "cotan.nn"
    assert importlib.import_module("cotan.torch.fx.graph_module") is torch.fx
    assert torch.random.__name__ == "cotan.torch.random" and cotan.random.__name__ == "cotan.random"


def test_every_module_can_be_imported():
    own = [one.name for one in pkgutil.iter_modules(torch.__path__) if one.name != "__main__"]
    for name in (*own, *_tables.SAME, *_tables.MODULES):
        if _modules._exists(f"cotan.torch.{name}".rpartition(".")[0]):
            importlib.import_module(f"cotan.torch.{name}")


def test_what_is_not_there_says_so():
    with pytest.raises(NotImplementedError, match=r"torch\.onnx\.export: .* ONNX\n  hint: cotan\.export_c"):
        torch.onnx.export(None)
    assert not isinstance(1, torch.fx.GraphModule) and not torch.onnx.is_in_onnx_export()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("cotan.torch.nothing_of_that_name")
    before = dict(_modules.missing)
    assert not hasattr(torch, "no_such_name") and dict(_modules.missing) == before
    for module, name in ((torch, "torch.no_such_name"), (torch.nn, "torch.nn.no_such_name")):
        with pytest.raises(AttributeError, match=f"PyTorch's {name} is not there yet"):
            module.no_such_name
        assert _modules.missing.pop(name) == 1


def test_versions_compare():
    version = torch.__version__
    assert version == "2.7.0" and isinstance(version, str) and version.split(".")[0] == "2"
    assert "1.13" < version < "2.10" and version >= (2, 7) and version > "2.7.0a1" and version != "2.7.1" and not version > "2.7" and not version < "2.7.0"


def test_no_device():
    assert not torch.cuda.is_available() and torch.cuda.device_count() == torch.cuda.max_memory_allocated() == 0
    torch.cuda.synchronize(), torch.cuda.empty_cache(), torch.cuda.manual_seed_all(1), torch.xpu.manual_seed(1)
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.cuda.get_device_properties(0)
    with pytest.raises(TypeError, match="type torch.cuda.FloatTensor not available"):
        torch.cuda.FloatTensor(3)
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.device(-1):
        first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record(), second.record()
        assert first.elapsed_time(second) > 0
    assert torch.cuda.OutOfMemoryError is cotan.OutOfMemoryError is torch.OutOfMemoryError and not torch.mps.is_available()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = False
    assert torch.backends.opt_einsum.is_available() is False
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not torch.cuda.amp.GradScaler().is_enabled()


def test_jit_and_compiler_give_back():
    def function(x):
        return x + 1

    assert torch.jit.script(function) is function is torch.jit.trace(function, 1)
    assert torch.jit.ignore(drop=True)(function) is function is torch.jit.unused(function)
    assert not torch.jit.is_scripting() and torch.jit.annotate(int, 3) == 3
    assert torch.compiler.disable(function) is function is torch.compiler.disable()(function)
    assert not torch.compiler.is_compiling() and torch._dynamo.config.cache_size_limit is False
    with pytest.raises(NotImplementedError, match="TorchScript"):
        torch.jit.load("x.pt")


def test_distributed_of_one():
    dist = torch.distributed
    assert dist.is_available() and not dist.is_initialized() and dist.get_world_size() == 1 and dist.get_rank() == 0
    with pytest.raises(ValueError, match="has not been initialized"):
        dist.barrier()
    with pytest.raises(NotImplementedError, match="world_size is 2"):
        dist.init_process_group("gloo", rank=0, world_size=2)
    dist.init_process_group("gloo", rank=0, world_size=1)
    try:
        x, parts = cotan.asarray([1.0, 2.0]), [cotan.zeros(2)]
        dist.all_reduce(x, op=dist.ReduceOp.SUM), dist.broadcast(x, 0), dist.barrier(), dist.all_gather(parts, x)
        assert x.tolist() == parts[0].tolist() == [1, 2] and dist.all_reduce(x, async_op=True).wait()
        assert dist.get_backend() == "gloo"
    finally:
        dist.destroy_process_group()
    assert not dist.is_initialized()


def test_distributed_sampler():
    data = list(range(10))
    parts = [list(torch.utils.data.DistributedSampler(data, 3, rank, shuffle=False)) for rank in range(3)]
    assert parts == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    shuffled = torch.utils.data.DistributedSampler(data, 1, 0, seed=3)
    first = list(shuffled)
    assert sorted(first) == data and list(shuffled) == first
    shuffled.set_epoch(1)
    assert list(shuffled) != first
    assert [len(list(torch.utils.data.DistributedSampler(data, 3, r, drop_last=True))) for r in range(3)] == [3, 3, 3]


def test_hub(tmp_path):
    torch.save({"w": cotan.ones(2)}, tmp_path / "w.pt")
    found = torch.hub.load_state_dict_from_url((tmp_path / "w.pt").as_uri(), model_dir=str(tmp_path / "cache"))
    assert found["w"].tolist() == [1, 1] and (tmp_path / "cache/w.pt").exists()
    found = torch.hub.load_state_dict_from_url("https://example.org/w.pt", model_dir=str(tmp_path / "cache"))
    assert found["w"].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="nothing is downloaded\n  hint: put the file at"):
        torch.hub.load_state_dict_from_url("https://example.org/v.pt", model_dir=str(tmp_path))
    (tmp_path / "hubconf.py").write_text("def small(n=2):\n    return n\n")
    assert torch.hub.list(str(tmp_path), source="local") == ["small"]
    assert torch.hub.load(str(tmp_path), "small", 5, source="local") == 5


def test_pytree():
    tree = torch.utils._pytree
    Point = namedtuple("Point", "x y")
    value = {"b": [1, None], "a": Point(2, (3,)), "c": OrderedDict(z=4)}
    leaves, spec = tree.tree_flatten(value)
    assert leaves == [1, None, 2, 3, 4] and spec.num_leaves == 5
    assert tree.tree_unflatten(leaves, spec) == value and list(tree.tree_map(str, value)) == ["b", "a", "c"]
    assert tree.tree_map_only(int, lambda n: n + 1, value)["b"] == [2, None]
    assert tree.tree_map(lambda a, b: a + b, {"x": 1, "y": 2}, {"y": 20, "x": 10}) == {"x": 11, "y": 22}
    assert tree.tree_structure([1, 2]) == tree.TreeSpec(list, None, [tree.LeafSpec()] * 2)
    assert [tree.keystr(path) for path, _ in tree.tree_leaves_with_path({"a": [1, 2]})] == ["['a'][0]", "['a'][1]"]

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b
    tree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda values, _: Pair(*values))
    assert tree.tree_map(lambda n: -n, Pair(1, 2)).b == -2
    with pytest.raises(ValueError, match="arity"):
        tree.tree_map(lambda a, b: a, [1, 2], [1])


def test_assert_close():
    close, ones = torch.testing.assert_close, cotan.ones
    close({"a": [ones(2), 1.0]}, {"a": [ones(2) + 1e-7, 1.0 + 1e-9]})
    close(cotan.asarray(float("nan")), cotan.asarray(float("nan")), equal_nan=True)
    for actual, expected, text in (
            (cotan.asarray([1.0, 2.0]), cotan.asarray([1.0, 2.5]),
             "Tensor-likes are not close!\n\nMismatched elements: 1 / 2 (50.0%)\n"
             "Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)\n"
             "Greatest relative difference: 0.20000000298023224 at index (1,) (up to 1.3e-06 allowed)"),
            (cotan.asarray([[1, 2]]), cotan.asarray([[1, 4]]), "Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\n"
             "Greatest absolute difference: 2 at index (0, 1)\nGreatest relative difference: 0.5 at index (0, 1)"),
            (cotan.asarray([float("inf"), 1.0]), cotan.asarray([float("inf"), 1.5]), "Tensor-likes are not close!\n\n"
             "Mismatched elements: 1 / 2 (50.0%)\nGreatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)\n"
             "Greatest relative difference: 0.3333333432674408 at index (1,) (up to 1.3e-06 allowed)"),
            ([1.0, 1.5], [1.0, 1.0],
             "Scalars are not close!\n\nExpected 1.0 but got 1.5.\nAbsolute difference: 0.5 (up to 1e-07 allowed)\n"
             "Relative difference: 0.5 (up to 1e-07 allowed)\n\nThe failure occurred for item [1]"),
            ({"a": 1}, {"b": 1}, "The keys of the mappings do not match:\nMissing keys in the actual mapping: ['b']\n"
             "Additional keys in the actual mapping: ['a']"),
            (None, 1, "None mismatch: None is not 1")):
        with pytest.raises(AssertionError) as caught:
            close(actual, expected)
        assert str(caught.value) == text
    with pytest.raises(AssertionError, match="attribute 'dtype'"):
        close(ones(2), ones(2, dtype=cotan.float64))
    close(ones(2), ones(2, dtype=cotan.float64), check_dtype=False)
    with pytest.raises(ValueError, match="got no atol"):
        close(1.0, 1.0, rtol=1)
    made = torch.testing.make_tensor((50,), dtype=cotan.int8, low=0, high=3, exclude_zero=True).tolist()
    assert set(made) == {1, 2}


def test_library_and_ops():
    @torch.library.custom_op("cotan_test::twice", mutates_args=())
    def twice(x):
        return x * 2

    @twice.register_fake
    def _(x):
        return x
    twice.register_autograd(lambda ctx, grad: grad * 7, setup_context=lambda ctx, inputs, output: None)
    x = cotan.asarray([1.0, 2.0]).requires_grad_()
    torch.ops.cotan_test.twice(x).sum().backward()
    assert x.grad.tolist() == [7, 7] and torch.ops.cotan_test.twice.default(x).tolist() == [2, 4]
    assert torch.ops.aten.mm.default(cotan.ones((2, 3)), cotan.ones((3, 1))).tolist() == [[3], [3]]
    with pytest.raises(AttributeError, match="object has no attribute 'thrice'"):
        torch.ops.cotan_test.thrice


def test_overrides():
    class Logged:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, len(args)

    overrides = torch.overrides
    assert overrides.is_tensor_like(Logged()) and overrides.has_torch_function((1, Logged()))
    assert not overrides.has_torch_function((cotan.ones(2),))
    assert overrides.handle_torch_function(len, (Logged(),), 1, 2) == ("len", 2)


def test_timer():
    measured = torch.utils.benchmark.Timer("x + 1", globals={"x": cotan.ones(3)}).timeit(5)
    assert measured.median > 0 and "5 runs per measurement" in repr(measured)


def test_fork_rng():
    cotan.manual_seed(3)
    with torch.random.fork_rng():
        inside = cotan.rand(2).tolist()
    assert cotan.rand(2).tolist() == inside


def fields(data):
    """Yields (number, value) of a protocol buffers message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            at += size
            yield key >> 3, data[at - size:at]


def read_events(folder):
    """Yields {field: value} of each event, whose checksums are right."""
    path, = folder.glob("events.out.tfevents.*")
    data, at = path.read_bytes(), 0
    while at < len(data):
        size, = struct.unpack_from("<Q", data, at)
        head, body = data[at:at + 8], data[at + 12:at + 12 + size]
        assert struct.unpack_from("<I", data, at + 8) == (events.masked_crc(head),)
        assert struct.unpack_from("<I", data, at + 12 + size) == (events.masked_crc(body),)
        at += 16 + size
        yield dict(fields(body))


def test_crc():
    # 0xE3069283 is CRC-32C of "123456789".
    rotated = (0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8
    assert events.masked_crc(b"123456789") == rotated & 0xFFFFFFFF


def test_summary_writer(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", cotan.asarray(0.5), 7)
        writer.add_image("image", cotan.asarray([[[0.0, 1.0]], [[0.5, 1.0]], [[0.0, 2.0]]]), 1)
        writer.add_text("note", "hello")
        writer.add_audio("sound", cotan.zeros(4), sample_rate=8000)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 3)
        writer.add_hparams({"lr": 0.1, "name": "x", "on": True}, {"score": 2.0}, run_name="settings")
        with pytest.warns(UserWarning, match="add_graph"):
            writer.add_graph(None)
        with pytest.raises(NotImplementedError, match="SummaryWriter.add_mesh"):
            writer.add_mesh("mesh", None)
    first, scalar, image, note, sound = read_events(tmp_path)
    value = lambda event: dict(fields(dict(fields(event[5]))[1]))  # noqa: E731
    assert first[3] == b"brain.Event:2" and scalar[2] == 7
    assert value(scalar) == {1: b"loss", 2: struct.pack("<f", 0.5)}
    png = dict(fields(value(image)[4]))
    assert (png[1], png[2], png[3]) == (1, 2, 3)
    length, = struct.unpack(">I", png[4][33:37])
    assert zlib.decompress(png[4][41:41 + length]) == bytes([0, 0, 127, 0, 255, 255, 255])
    assert dict(fields(value(note)[8]))[8] == b"hello"
    assert wave.open(io.BytesIO(dict(fields(value(sound)[6]))[4])).getframerate() == 8000
    assert [value(event)[2] for event in list(read_events(tmp_path / "both_b"))[1:]] == [struct.pack("<f", 2.0)]
    tags = [value(event)[1] for event in list(read_events(tmp_path / "settings"))[1:]]
    assert tags == [b"_hparams_/experiment", b"_hparams_/session_start_info", b"_hparams_/session_end_info", b"score"]
    started = value(list(read_events(tmp_path / "settings"))[2])[9]
    for number in (1, 2, 3, 1):  # plugin data, its content, session_start_info, the last entry of hparams
        started = dict(fields(started))[number]
    assert dict(fields(started)) == {1: b"on", 2: b"\x20\x01"}


def test_histogram():
    message = dict(fields(dict(fields(_histogram(cotan.asarray([0.0, 1.0, 1.0, 4.0]), 4, None)))[5]))
    numbers = [struct.unpack("<d", message[i])[0] for i in range(1, 6)]
    assert numbers == [0, 4, 4, 6, 18]
    assert struct.unpack("<5d", message[6]) == (0, 1, 2, 3, 4) and struct.unpack("<5d", message[7]) == (0, 1, 2, 0, 1)
