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


# ---------------------------------------------------------------------------------------------------- norms

ZERO_NORMS = {
    "norm": lambda x: x.norm(), "norm p=3": lambda x: x.norm(p=3), "norm p=1.5": lambda x: x.norm(p=1.5),
    "norm p=0.5": lambda x: x.norm(p=0.5), "norm p=-1": lambda x: x.norm(p=-1), "norm p=1": lambda x: x.norm(p=1),
    "norm p=inf": lambda x: x.norm(p=INF), "vector_norm": lambda x: cotan.linalg.vector_norm(x, axis=-1),
    "matrix_norm": cotan.linalg.matrix_norm, "std": lambda x: x.std(), "std dim": lambda x: x.std(1),
    "std_mean": lambda x: cotan.std_mean(x)[0], "nanstd": cotan.nanstd,
    "cdist": lambda x: cotan.cdist(x, x), "cdist p=3": lambda x: cotan.cdist(x, x, p=3.0),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x.detach(), eps=0.0), "dist": lambda x: x.dist(x.detach()),
    "lp_pool": lambda x: F.lp_pool1d(x[None], 2, 2), "op lp_pool": lambda x: cotan._core.ops.lp_pool(x[None, None], kernel=(1, 2)),
    "op lp_pool p=3": lambda x: cotan._core.ops.lp_pool(x[None, None], kernel=(1, 2), power=3),
}


@BOTH
@pytest.mark.parametrize("name", ZERO_NORMS)
def test_slopes_of_norms_at_zero(name, dtype):
    value, slope = slopes(ZERO_NORMS[name], [[0.0, -0.0], [0.0, 0.0]], dtype=dtype)
    assert not np.any(value)
    same([slope], [[[0, 0], [0, 0]]])


def test_norms_beside_zeros():
    """A zero among others: of p below 1 it adds nothing, where the slope is infinite."""
    same(slopes(lambda x: x.norm(p=0.5), [1.0, 1.0, 0.0]), [4, [2, 2, 0]])
    same(slopes(lambda x: x.norm(p=3), [3.0, 4.0, 0.0]), [91 ** (1 / 3), [9 / 91 ** (2 / 3), 16 / 91 ** (2 / 3), 0]])
    same(slopes(lambda x: x.norm(p=-1), [2.0, 0.0, 2.0]), [0, [0, 0, 0]])
    same(slopes(lambda x: cotan.cdist(x, x), [[0.0, 0.0], [3.0, 4.0]]), [[[0, 5], [5, 0]], [[-1.2, -1.6], [1.2, 1.6]]])
    same(slopes(lambda x: x.std(1), [[5.0, 5.0], [1.0, 3.0]]), [[0, 2**0.5], [[0, 0], [-(0.5**0.5), 0.5**0.5]]])
    hessian = cotan.hessian(lambda x: x.norm())(cotan.asarray([0.0, 0.0], dtype="float64"))
    same([hessian.tolist()], [[[0, 0], [0, 0]]])


def test_norm_is_over_all_elements():
    """Of a matrix, too, as torch.norm and Tensor.norm are; linalg.norm is of matrices."""
    x = cotan.asarray([[3.0, 0.0], [0.0, 4.0]], dtype="float64")
    assert x.norm(p=2).item() == x.norm().item() == x.norm("fro").item() == cotan.norm(x, 2).item() == x.dist(x * 0).item() == 5
    assert x.norm(1).item() == 7 and x.norm("nuc").item() == 7 and cotan.linalg.norm(x, 2).item() == 4
    assert x.norm(INF, dim=0).tolist() == [3, 4] and x.norm(2, (0, 1), keepdim=True).tolist() == [[5]]


# -------------------------------------------------------------------------------------------------- medians

@pytest.mark.parametrize("dim, values, wanted, indices", [
    (None, [1.0, NAN, 2.0], NAN, None), (None, [3.0, 1.0, 2.0, 4.0], 2.0, None), (0, [1.0, NAN, 2.0], NAN, 1), (0, [5.0, 1.0, 2.0], 2.0, 2),
    (0, [NAN, 1.0, NAN, 0.0], NAN, 0), (-1, [INF, -INF, 1.0, 1.0], 1.0, 2)])
def test_medians(dim, values, wanted, indices):
    x = cotan.asarray(values)
    for found in (x.median(), ) if dim is None else (x.median(dim), cotan.median(x, dim=dim), x.median(dim, keepdim=True)):
        value, index = (found, None) if dim is None else found
        np.testing.assert_equal(value.reshape(()).item(), wanted)
        assert index is None or index.reshape(()).item() == indices
    np.testing.assert_equal(cotan.median(x).item(), float(np.median(values)))


def test_medians_of_lines_with_and_without_nan():
    x = cotan.asarray([[1.0, NAN, 2.0], [3.0, 1.0, 2.0]])
    np.testing.assert_equal(x.median(1)[0].tolist(), [NAN, 2])
    assert x.median(1)[1].tolist() == [1, 2] and cotan.asarray([3, 1, 2]).median().item() == 2


def test_slopes_of_medians():
    """Equals share the gradient of the median of all, as in PyTorch; along an axis one element has it."""
    same(slopes(lambda x: x.median(), [2.0, 2.0, 1.0, 2.0, 5.0]), [2, [1 / 3, 1 / 3, 0, 1 / 3, 0]])
    same(slopes(lambda x: x.median(), [-INF, -INF, 1.0]), [-INF, [0.5, 0.5, 0]])
    same(slopes(lambda x: x.median(0)[0], [2.0, NAN, 1.0]), [NAN, [0, 1, 0]])


def test_slopes_of_quantiles_by_q():
    x = cotan.asarray([[4.0, 1.0, 2.0], [0.0, 8.0, 2.0]], dtype="float64")
    same(slopes(lambda q: cotan.quantile(x, q, axis=1), 0.25), [[1.5, 1], 2 + 4])
    same(slopes(lambda q: cotan.quantile(x, q), [0.0, 0.5, 1.0]), [[0, 2, 8], [5, 0, 20]])
    same(slopes(lambda q: cotan.quantile(x, q, axis=0, keepdims=True), 1.0), [[[4, 8, 2]], 4 + 7 + 0])
    same(slopes(lambda x, q: cotan.quantile(x, q), [3.0, 1.0], 0.25), [1.5, [0.25, 0.75], 2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slopes_of_det_with_several_pivots_of_zero(dtype):
    """Of which a matrix may have more than its rank lacks."""
    def slope(rows):
        return cotan.grad(cotan.linalg.det)(cotan.asarray(rows, dtype=dtype)).numpy().round(4).tolist()
    assert slope([[0, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 4], [0, 0, 0, 0]]) == [[0, 0, 0, 0]] * 3 + [[-24, 0, 0, 0]]
    assert slope([[0, 1, 5], [0, 0, 1], [0, 0, 0]]) == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert slope([[0, 0], [0, 0]]) == [[0, 0], [0, 0]]


# ------------------------------------------------------------------------------------------------- matrices

@BOTH
def test_slopes_of_det_are_cofactors(dtype):
    det = cotan.linalg.det
    same(slopes(det, [[1.0, 2.0], [2.0, 4.0]], dtype=dtype)[1:], [[[4, -2], [-2, 1]]])
    same(slopes(det, [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]], dtype=dtype), [[1, 0], [[[1, 0], [0, 1]], [[0, 0], [0, 0]]]])
    same(slopes(det, [[0.0, 1.0], [0.0, 0.0]], dtype=dtype), [0, [[0, 0], [-1, 0]]])
    same(slopes(det, [[0.0]], dtype=dtype), [0, [[1]]])
    same(slopes(det, [[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 3.0, 0.0]], dtype=dtype), [0, [[0, 0, 0], [0, 0, -6], [0, 0, 0]]])
    found = slopes(det, np.full((2, 2), 1e-10).tolist(), dtype=dtype)[1]
    np.testing.assert_allclose(found, [[1e-10, -1e-10], [-1e-10, 1e-10]], rtol=1e-5)


def test_slopes_of_slogdet_beside_a_singular_matrix():
    value, slope = slopes(lambda x: cotan.linalg.slogdet(x)[1], [[[2.0, 0.0], [0.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]])
    same([value, slope[0]], [[math.log(8), -INF], [[0.5, 0], [0, 0.25]]])
    assert not np.isfinite(slope[1]).any()


def test_the_hessian_of_det_wants_an_inverse():
    x = cotan.asarray([[2.0, 1.0], [1.0, 3.0]], dtype="float64")
    second = cotan.hessian(cotan.linalg.det)(x)  # det = x00 x11 - x01 x10
    same([second.tolist()], [[[[[0, 0], [0, 1]], [[0, 0], [-1, 0]]], [[[0, -1], [0, 0]], [[1, 0], [0, 0]]]]])


# -------------------------------------------------------------------------------------- limits, ties, infinities

def test_slopes_at_limits():
    """x has the gradient at the limits of clamp, and none at those of hardtanh and what is made like it: PyTorch's."""
    x = [-2.0, -1.0, 0.0, 1.0, 2.0, NAN]
    for clamp in (lambda x: cotan.clamp(x, -1, 1), lambda x: x.clip(-1, 1), lambda x: cotan._core.ops.clamp(x, -1.0, 1.0)):
        same(slopes(clamp, x), [[-1, -1, 0, 1, 1, NAN], [0, 1, 1, 1, 0, 0]])
    same(slopes(lambda x: x.clamp(min=0.0), x)[1:], [[0, 0, 1, 1, 1, 0]])
    same(slopes(lambda x: x.clamp(max=0.0), x)[1:], [[1, 1, 1, 0, 0, 0]])
    same(slopes(lambda x, a, b: x.clamp(a, b), [0.0, 3.0, 1.0, 1.0], [1.0, 1.0, 1.0, 2.0], [2.0, 2.0, 2.0, 1.0]),
         [[1, 2, 1, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 1]])
    same(slopes(F.hardtanh, x)[1:], [[0, 0, 1, 0, 0, 1]])
    same(slopes(F.relu6, [0.0, 6.0, 3.0])[1:], [[0, 0, 1]])
    same(slopes(F.hardsigmoid, [-3.0, 3.0, 0.0, INF])[1:], [[0, 0, 1 / 6, 0]])
    same(slopes(F.hardswish, [3.0, 0.0, INF, -INF])[1:], [[1, 0.5, 1, 0]])
    same(slopes(lambda x: F.threshold(x, 0.5, 2.0), [NAN, 0.5, 1.0]), [[NAN, 2, 1], [1, 0, 1]])
    same(slopes(F.softshrink, [NAN, 0.5, 1.0]), [[NAN, 0, 0.5], [1, 0, 1]])


def test_slopes_of_equals():
    """maximum gives each a half, fmax all to the first, a running extreme to the last."""
    same(slopes(cotan.maximum, [1.0, 2.0, NAN], [1.0, 1.0, 0.0]), [[1, 2, NAN], [0.5, 1, 1], [0.5, 0, 1]])
    same(slopes(cotan.fmax, [1.0, NAN, 0.0, NAN], [1.0, 1.0, NAN, NAN]), [[1, 1, 0, NAN], [1, 0, 1, 1], [0, 1, 0, 0]])
    same(slopes(cotan.fmin, [1.0, NAN, 0.0, NAN], [1.0, 1.0, NAN, NAN])[1:], [[1, 0, 1, 1], [0, 1, 0, 0]])
    same(slopes(lambda x: cotan.cummax(x, 0)[0], [1.0, 1.0, 0.0, NAN, 2.0]), [[1, 1, 1, NAN, NAN], [1, 2, 0, 2, 0]])
    same(slopes(lambda x: cotan.cummin(x, 0)[0], [1.0, 1.0, 2.0])[1:], [[1, 2, 0]])


def test_slopes_of_functions_of_two_numbers():
    same(slopes(cotan.xlogy, [0.0, 0.0, 2.0], [0.0, -1.0, 1.0]), [[0, 0, 0], [0, 0, 0], [NAN, 0, 2]])
    same(slopes(cotan.copysign, [0.0, 2.0, -2.0], [-1.0, -1.0, -1.0]), [[0, -2, -2], [0, -1, 1], [0, 0, 0]])
    same(slopes(cotan.remainder, [1.0, -1.0, 3.0], [0.0, INF, 2.0])[1:], [[1, 1, 1], [-INF, 1, -1]])
    same(slopes(cotan.pow, [0.0, 0.0, 0.0], [-1.0, 0.0, 2.0]), [[INF, 1, 0], [-INF, 0, 0], [-INF, 0, 0]])
    same(slopes(cotan.atan2, [0.0, 0.0, 1.0], [0.0, -0.0, 1.0]), [[0, math.pi, math.pi / 4], [0, 0, 0.5], [0, 0, -0.5]])
    same(slopes(cotan.hypot, [0.0], [0.0]), [[0], [0], [0]])
    same(slopes(cotan.logit, [2.0, -1.0, 0.5]), [[NAN, NAN, 0], [NAN, NAN, 4]])


def test_losses_of_infinite_distances():
    """A slope of 1, not NaN; and a margin that is just kept has the slope of what is clamped."""
    for loss, slope in ((F.smooth_l1_loss, 1), (F.huber_loss, 1), (lambda *xs, **kw: F.huber_loss(*xs, delta=2.0, **kw), 2)):
        same(slopes(lambda x: loss(x, x.detach() * 0 + cotan.asarray([0.0, 0.0, 0.5]), reduction="none"), [3.0, -3.0, 0.5])[1:],
             [[slope, -slope, 0]])
        same(slopes(lambda x, y: loss(x, y, reduction="none"), [INF, 0.0], [0.0, INF])[1:], [[slope, -slope], [-slope, slope]])
    same(slopes(lambda x, y: F.kl_div(x, y, reduction="none"), [1.0, 1.0], [0.0, -1.0]), [[0, NAN], [0, 1], [-1, NAN]])
    same(slopes(lambda x, var: F.gaussian_nll_loss(x, x.detach() * 0, var, reduction="none"), [1.0, 0.0], [INF, 0.0]),
         [[INF, 0.5 * math.log(1e-6)], [0, 0], [0, 5e5]])
    same(slopes(lambda x: F.hinge_embedding_loss(x, cotan.asarray([-1.0, -1.0]), reduction="none"), [1.0, 2.0]), [[0, 0], [-1, 0]])
    same(slopes(lambda x: F.margin_ranking_loss(x, x.detach(), cotan.asarray([1.0])), [3.0]), [0, [-1]])


def test_places_of_running_extremes():
    """The last of equals; from a NaN on, the last NaN."""
    x = cotan.tensor([[1.0, 3.0, 2.0], [3.0, 3.0, 5.0], [0.0, 3.0, NAN], [4.0, 1.0, 7.0]])
    assert cotan.cummax(x, 0)[1].tolist() == [[0, 0, 0], [1, 1, 1], [1, 2, 2], [3, 2, 2]]
    assert cotan.cummax(x, -1)[1].tolist() == [[0, 1, 1], [0, 1, 2], [0, 1, 2], [0, 0, 2]]
    assert cotan.cummin(x, 0)[1].tolist() == [[0, 0, 0], [0, 1, 0], [2, 2, 2], [2, 3, 2]]
    assert cotan.cummin(x, 1)[1].tolist() == [[0, 0, 0], [0, 1, 1], [0, 0, 2], [0, 1, 1]]


def test_each_element_repeated_its_own_number_of_times():
    x = cotan.tensor([[10, 20, 30], [40, 50, 60]])
    assert cotan.repeat(x, cotan.tensor([2, 0, 3]), axis=1).tolist() == [[10, 10, 30, 30, 30], [40, 40, 60, 60, 60]]
    assert cotan.repeat(x, cotan.tensor([0, 2]), axis=0).tolist() == [[40, 50, 60], [40, 50, 60]]
    assert x.repeat_interleave(cotan.tensor([1, 2]), 0).tolist() == [[10, 20, 30], [40, 50, 60], [40, 50, 60]]


@pytest.mark.parametrize("choose", [lambda x: x.clamp(0, 2), lambda x: cotan.maximum(x, 0.0), lambda x: cotan.fmax(x, cotan.zeros(3)),
                                    lambda x: x.amax(), lambda x: x.amax(0), lambda x: x.relu()])
def test_what_is_not_chosen_does_not_see_an_infinite_slope(choose):
    """PyTorch's 0; a product with 0 would be NaN."""
    x = cotan.tensor([-1.0, -2.0, 1.0]).requires_grad_()
    y = choose(x)
    y.backward(cotan.full(y.shape, float("inf")))
    assert x.grad.tolist() == [0.0, 0.0, float("inf")]
