"""Files of torch.save that cotan.load reads, files of cotan.save that torch.load(weights_only=True) reads, and training that
goes on in the other library from such a file."""
import io
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
cotan = pytest.importorskip("cotan")

NEW = hasattr(torch, "uint16")  # PyTorch 1.13 refuses its own files with numbers or sets under weights_only
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128"]
DTYPES += ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"] if NEW else []


def drawn_bytes(n, seed):
    return np.random.default_rng(seed).integers(0, 256 if seed else 2, n).astype("uint8")


def to_cotan(obj, **options):
    file = io.BytesIO()
    torch.save(obj, file, **options)
    return cotan.load(io.BytesIO(file.getvalue()))


def to_torch(obj, path, **options):
    cotan.save(obj, path)
    return torch.load(path, weights_only=NEW, **options)


def bits(x):
    file = io.BytesIO()
    file.write(x)
    return file.getvalue()


def bits_there(x):
    """Row-major bytes of a tensor of PyTorch."""
    x = x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return b"" if x.numel() == 0 else x.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zipped", [True, False])
def test_dtypes(dtype, zipped, tmp_path):
    data = drawn_bytes(16 * 24, 0 if dtype == "bool" else 7)
    x = torch.from_numpy(data).view(getattr(torch, dtype))[:24].reshape(2, 3, 4)
    for there in (x, x.permute(2, 0, 1), x[:, 1:, ::2], x[1, 2, 3], x[:0], x[:1].expand(5, 3, 4), x.unfold(2, 2, 1), x.t() if x.dim() < 3 else x):
        found = to_cotan({"x": there}, _use_new_zipfile_serialization=zipped)["x"]
        assert tuple(found.shape) == tuple(there.shape) and str(found.dtype) == f"cotan.{dtype}"
        assert bits(found) == bits_there(there)
        back = to_torch({"x": found}, tmp_path / "x.pt")["x"]
        assert back.dtype == there.dtype and back.shape == there.shape and bits_there(back) == bits_there(there)


def test_strides_of_all_kinds():
    x = torch.arange(7 * 5 * 3 * 4).reshape(7, 5, 3, 4)
    for order in itertools.permutations(range(4)):
        y = x.permute(order)
        for there in (y, y[1:, ::2], y[..., 1:3, 1], y[:, :1].expand(-1, 3, -1, -1)):
            assert (to_cotan(there).numpy() == there.numpy()).all()


def object_of(lib, parameter, numbers):
    return {"tensor": lib.asarray(numbers), "parameter": parameter, "list": [1, -7, 2**40, -2**63, 1.5, float("inf"), None, True, "\u20ac\ud800"],
            "tuple": (1, (2, ()), [3]), "size": lib.asarray(numbers).shape, "dtype": lib.bfloat16, "set": {1, "a"}, "bytes": b"\0\xff",
            "empty bytes": b"", "bytearray": bytearray(b"ab"), "complex": 1 - 2j, 3: {4.5: None}, (1, "k"): 0}


def test_objects(tmp_path):
    ours = object_of(cotan, cotan.nn.Parameter([1.0, 2.0]), [1.0, 2.0])
    theirs = object_of(torch, torch.nn.Parameter(torch.tensor([1.0, 2.0])), [1.0, 2.0])
    for found, want, library in ((to_torch(ours, tmp_path / "x.pt"), theirs, torch), (to_cotan(theirs), ours, cotan)):
        assert list(found) == list(want)
        for key, value in want.items():
            assert type(found[key]) is type(value)
            if key in ("tensor", "parameter"):
                assert found[key].detach().tolist() == value.detach().tolist() and found[key].requires_grad == value.requires_grad
            else:
                assert found[key] == value


def test_one_tensor_twice_is_one_there(tmp_path):
    x = cotan.asarray([1.0])
    found = to_torch([x, x], tmp_path / "x.pt")
    assert found[0] is found[1]


@pytest.mark.skipif(not NEW, reason="PyTorch 1.13 has no mmap")
def test_mapped_and_computed_places(tmp_path):
    made = {f"{i}": cotan.asarray(np.arange(i * 5, dtype="float32")) for i in range(300)}
    from torch.utils.serialization import config
    before = config.load.calculate_storage_offsets
    config.load.calculate_storage_offsets = True
    try:
        found = to_torch(made, tmp_path / "x.pt", mmap=True)
    finally:
        config.load.calculate_storage_offsets = before
    for key, x in made.items():
        assert found[key].tolist() == x.tolist()


def networks():
    nets = []
    for lib in (torch, cotan):
        nn = lib.nn
        nets.append(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 5), nn.LayerNorm(5)))
    return nets


def step(lib, net, optimizer, seed):
    x = lib.asarray(np.random.default_rng(seed).normal(size=(2, 3, 6, 6)).astype("float32"))
    optimizer.zero_grad()
    (net(x) ** 3).mean().backward() if lib is torch else lib.ops.mean(net(x) ** 3).backward()
    optimizer.step()


@pytest.mark.parametrize("name, options", [("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {"lr": 0.01}), ("AdamW", {"lr": 0.01}),
                                           ("RMSprop", {"lr": 0.01, "momentum": 0.5}), ("Adagrad", {"lr": 0.1})] + [("NAdam", {"lr": 0.01})] * NEW)
@pytest.mark.parametrize("forth", [True, False])
def test_training_goes_on_in_the_other_library(name, options, forth, tmp_path):
    theirs, ours = networks()
    here, there = (cotan, torch) if forth else (torch, cotan)
    first, second = (ours, theirs) if forth else (theirs, ours)
    optimizer = getattr(here.optim, name)(first.parameters(), **options)
    for i in range(3):
        step(here, first, optimizer, i)
    made = {"net": first.state_dict(), "optimizer": optimizer.state_dict()}
    found = to_torch(made, tmp_path / "x.pt") if forth else to_cotan(made)
    assert found["net"]._metadata == made["net"]._metadata
    assert str(second.load_state_dict(found["net"])) == "<All keys matched successfully>"
    other = getattr(there.optim, name)(second.parameters(), **options)
    other.load_state_dict(found["optimizer"])
    step(here, first, optimizer, 3)
    step(there, second, other, 3)
    for (key, x), y in zip(first.state_dict().items(), second.state_dict().values()):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-4, atol=1e-5, err_msg=key)
