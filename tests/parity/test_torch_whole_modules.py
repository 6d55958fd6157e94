"""Whole modules in files: PyTorch's in cotan.torch, and cotan.torch's in PyTorch."""
import cotan
import cotan.torch
import pytest
import torch
from numpy.testing import assert_allclose

LAYERS = [("Linear", (3, 2), {}, (2, 3)), ("Conv2d", (1, 2, 3), {"padding": "same"}, (1, 1, 5, 5)), ("ReLU", (), {}, (3,)),
          ("ConvTranspose1d", (1, 2, 3), {}, (1, 1, 5)), ("BatchNorm1d", (2,), {}, (3, 2)), ("LayerNorm", (3,), {}, (2, 3)),
          ("GroupNorm", (1, 2), {}, (1, 2, 3)), ("MaxPool2d", (2,), {}, (1, 4, 4)), ("GELU", (), {}, (3,)),
          ("AdaptiveAvgPool2d", (1,), {}, (1, 4, 4)), ("Softmax", (1,), {}, (2, 3)), ("Upsample", (), {"scale_factor": 2}, (1, 2, 3)),
          ("LSTM", (2, 3), {}, (4, 1, 2)), ("TransformerEncoderLayer", (4, 2, 8), {}, (3, 1, 4)), ("Flatten", (), {}, (2, 3, 4))]


@pytest.mark.parametrize("name, args, options, shape", LAYERS, ids=[layer[0] for layer in LAYERS])
def test_both_ways(tmp_path, name, args, options, shape):
    theirs = torch.nn.Sequential(getattr(torch.nn, name)(*args, **options)).eval()
    torch.save(theirs, tmp_path / "theirs.pt")
    ours = cotan.torch.load(tmp_path / "theirs.pt", weights_only=False)
    cotan.torch.save(ours, tmp_path / "ours.pt")
    again = torch.load(tmp_path / "ours.pt", weights_only=False)
    x = torch.rand(shape)
    first = lambda result: result[0] if isinstance(result, tuple) else result  # noqa: E731
    wanted = first(theirs(x)).detach().numpy()
    assert_allclose(first(ours(cotan.asarray(x.numpy()))).detach().numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert_allclose(first(again(x)).detach().numpy(), wanted, rtol=1e-6, atol=1e-7)
