"""What torch.save writes, as Cotan reads it: every dtype, views, shared storages, both forms of the file."""
import collections

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from support.weights_dump import build, dump  # noqa: E402

NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
         "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]
DTYPES = [getattr(torch, name) for name in NAMES if hasattr(torch, name)]  # the last five are newer than Debian's
FLOATS8 = [d for d in DTYPES if "float8" in str(d)]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dump"))


def bits(t):
    t = t.detach().contiguous()
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
        return t.numpy().view(np.uint16)
    return t.view(torch.uint8).numpy() if t.dtype in FLOATS8 else t.numpy()


def compare(program, path, tensors):
    got = dump(program, path)
    assert isinstance(got, dict), got
    assert set(got) == set(tensors)
    for name, t in tensors.items():
        want = bits(t)
        assert got[name].dtype == want.dtype and got[name].shape == want.shape, name
        assert got[name].tobytes() == want.tobytes(), name


@pytest.mark.parametrize("zip_form", [True, False])
def test_every_dtype(tmp_path, program, zip_form):
    tensors = {str(d): torch.arange(6).reshape(2, 3).to(d) for d in DTYPES}
    torch.save(tensors, tmp_path / "m.bin", _use_new_zipfile_serialization=zip_form)
    compare(program, tmp_path / "m.bin", tensors)


@pytest.mark.parametrize("zip_form", [True, False])
def test_views(tmp_path, program, zip_form):
    x = torch.randn(4, 6, 5)
    tensors = {"whole": x, "tail": x[1:], "transposed": x.permute(2, 0, 1), "part": x[1:3, ::2, 1:4], "row": x[2, 3],
               "one": x[3, 5, 4], "column": x[:, 0, 0], "none": x[:0], "scalar": torch.tensor(2.5),
               "expanded": torch.arange(3.)[:, None].expand(3, 2), "ones": torch.ones(1, 3, 1).permute(2, 0, 1)}
    torch.save(tensors, tmp_path / "m.pt", _use_new_zipfile_serialization=zip_form)
    compare(program, tmp_path / "m.pt", tensors)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(tmp_path, program, protocol):
    tensors = {f"layer.{i}.weight": torch.randn(3, i) for i in range(300)}
    torch.save(tensors, tmp_path / "m.pt", pickle_protocol=protocol)
    compare(program, tmp_path / "m.pt", tensors)


@pytest.mark.parametrize("zip_form", [True, False])
def test_state_of_a_training(tmp_path, program, zip_form):
    """A module's state dict with its metadata, parameters, an optimizer's state, plain values beside them."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    adam = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    adam.step()
    saved = {"model": model.state_dict(), "optimizer": adam.state_dict(), "epoch": 3, "loss": 0.5, "name": "naïve", "none": None,
             "args": {"sizes": torch.Size([1, 2]), "dtype": torch.bfloat16, "betas": (0.9, 0.999), "big": 1 << 80, "minus": -3},
             "parameter": torch.nn.Parameter(torch.ones(2)), "ordered": collections.OrderedDict(a=torch.zeros(1))}
    torch.save(saved, tmp_path / "m.pt", _use_new_zipfile_serialization=zip_form)
    want = {f"model.{k}": v for k, v in model.state_dict().items()}
    want |= {f"optimizer.state.{i}.{k}": v for i, s in adam.state_dict()["state"].items() for k, v in s.items()}
    compare(program, tmp_path / "m.pt", want | {"parameter": saved["parameter"], "ordered.a": torch.zeros(1)})


def test_shards(tmp_path, program):
    import json
    tensors = {f"w{i}": torch.randn(4, 4) for i in range(4)}
    for i in range(2):
        torch.save({k: v for k, v in tensors.items() if int(k[1]) % 2 == i}, tmp_path / f"pytorch_model-{i}.bin")
    index = {"weight_map": {k: f"pytorch_model-{int(k[1]) % 2}.bin" for k in tensors}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    compare(program, tmp_path, tensors)


def test_npz(tmp_path, program):
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(size=(2, 3)).astype(np.float32), "f": np.asfortranarray(rng.normal(size=(3, 4))),
              "s": np.arange(5, dtype=">i4"), "b": np.array([True, False])}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "weights.npz", **arrays)
        got = dump(program, tmp_path)
        for name, want in arrays.items():
            assert (got[name] == want).all() and got[name].shape == want.shape


def test_classes_are_refused(tmp_path, program):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pt")
    assert dump(program, tmp_path / "m.pt").startswith(f"{tmp_path}/m.pt: pytorch: data.pkl, byte 2: the global ")
    torch.save(torch.ones(2), tmp_path / "m.pt")
    assert dump(program, tmp_path / "m.pt") == f"{tmp_path}/m.pt: pytorch: it holds no dict of tensors by name"
    torch.save({"s": torch.eye(2).to_sparse()}, tmp_path / "m.pt")
    assert "the global 'torch._utils._rebuild_sparse_tensor' is none" in dump(program, tmp_path / "m.pt")
