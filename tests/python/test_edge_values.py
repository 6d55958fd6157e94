"""Values and gradients at the edges of domains: zeros, ties, infinities, NaN, saturation. The numbers are PyTorch's, or what
docs/edge-values.md says; tests/parity/test_edge_values.py compares all functions with PyTorch itself."""
import support.interpreted  # noqa: F401, I001: before cotan
import math

import cotan
import cotan.nn.functional as F
import numpy as np
import pytest

INF, NAN = math.inf, math.nan
BOTH = pytest.mark.parametrize("dtype", ["float32", "float64"])


def slopes(function, *operands, dtype="float64"):
    """The value of a function and the gradients of the sum of its elements, as lists."""
    tensors = [cotan.asarray(x, dtype=dtype).requires_grad_() for x in operands]
    value = function(*tensors)
    value.sum().backward()
    return [value.tolist(), *(x.grad.tolist() for x in tensors)]


def same(found, wanted):
    assert len(found) == len(wanted)
    for ours, right in zip(found, wanted):
        np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-12)


# --------------------------------------------------------------------------------------------------- losses

@BOTH
def test_bce_behind_a_saturated_sigmoid(dtype):
    def loss(z):
        return F.binary_cross_entropy(cotan.sigmoid(z), cotan.asarray([1.0, 0.0, 0.0, 1.0], dtype=dtype), reduction="none")

    same(slopes(loss, [2000.0, -2000.0, 2000.0, -2000.0], dtype=dtype), [[0, 0, 100, 100], [0, 0, 0, 0]])


@BOTH
def test_bce_at_the_ends(dtype):
    p, t = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1e-13, 0.25], [0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 1.0, 1.0]
    value, by_p, by_t = slopes(lambda p, t: F.binary_cross_entropy(p, t, reduction="none"), p, t, dtype=dtype)
    same([value, by_p], [[0, 100, 50, 100, 0, 50, -math.log(1e-13), math.log(4)], [0, -1e12, -5e11, 1e12, 0, 5e11, -1e12, -4]])
    same([by_t], [[100, 100, 100, -100, -100, -100, -math.log(1e-13), math.log(3)]])


def test_bce_differentiated_forwards_and_twice():
    p, t = cotan.asarray([0.0, 1.0, 0.25], dtype="float64"), cotan.asarray([1.0, 1.0, 1.0], dtype="float64")
    loss = lambda p: F.binary_cross_entropy(p, t, reduction="sum")  # noqa: E731
    assert cotan.jvp(loss, (p,), (cotan.asarray([1.0, 1.0, 0.0], dtype="float64"),))[1].item() == -1e12
    same([cotan.grad(lambda p: cotan.grad(loss)(p).sum())(p).tolist()], [[0, 0, 16]])
