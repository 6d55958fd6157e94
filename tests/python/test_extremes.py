"""Numbers that have no number on the way to a result that has one, and what few elements or none come to."""
import math

import cotan
import numpy as np
import pytest

I = cotan.asarray
F = cotan.nn.functional
inf, nan, f64 = math.inf, math.nan, cotan.float64


def half(values):
    return I(values, dtype=cotan.float16)


def same(ours, wanted):
    ours = ours.tolist() if hasattr(ours, "tolist") else ours
    np.testing.assert_allclose(ours, wanted, rtol=3e-7, atol=0, equal_nan=True)


def test_round_to_decimals():
    same(cotan.round(I([12345, 15, 25, -25, 5, 49]), -1), [12340, 20, 20, -20, 0, 50])  # halves to the even one, as NumPy
    same(cotan.round(I([12345, -12350, -12450]), -2), [12300, -12400, -12400])
    assert cotan.round(I([-2**63, 2**63 - 1]), -1).tolist() == [-9223372036854775800, 9223372036854775800]  # the next has none
    assert cotan.round(I([127, -128, 50], dtype=cotan.int8), -2).tolist() == [100, -100, 0]
    assert cotan.round(I([255, 245], dtype=cotan.uint8), -1).tolist() == [250, 240]
    assert cotan.round(I([5]), -20).tolist() == [0] and cotan.round(I([7]), 3).tolist() == [7]
    assert half([1000.0]).round(decimals=2).tolist() == [1000.0] and cotan.round(half([0.126]), 2).tolist() == half([0.13]).tolist()
    same(cotan.round(I([1e38, -3e38, inf, -inf, nan]), 2), [1e38, -3e38, inf, -inf, nan])
    same(cotan.round(I([1e300, 1 / 3], dtype=f64), 20), [1e300, 0.33333333333333333333])
    same(cotan.round(I([123.456], dtype=f64), 400), [123.456])
    same(cotan.round(I([5.0, -5.0, inf]), -60), [0, 0, inf])
    same(cotan.round(I([1.234e-35]), 37), [1.23e-35])
    same(cotan.round(I([123.456, 2.5, 0.125]), 2), np.round(np.float32([123.456, 2.5, 0.125]), 2))
    assert cotan.func.grad(lambda x: cotan.round(x, 2).sum())(I([1e38, 1.0])).tolist() == [0, 0]


def test_var_of_few():
    x = I([1.0, 3.0])
    for correction in (2, 3, 2.5):
        assert x.var(correction=correction).item() == inf == x.std(correction=correction).item()
    for nothing in (cotan.zeros(0), cotan.zeros(2, 0), I([1.0])):
        axis = nothing.ndim - 1
        assert np.isnan(nothing.var(axis).tolist()).all() and np.isnan(nothing.std(axis).tolist()).all()
    assert math.isnan(I([2.0, 2.0]).var(correction=3).item()) and cotan.cov(I([[1.0, 3.0]]), correction=3).item() == inf
    assert math.isnan(cotan.nanvar(I([1.0, 3.0, nan]), ddof=2).item()) and math.isnan(cotan.nanstd(I([1.0, 3.0]), ddof=3).item())
    same(cotan.nanvar(I([1.0, 3.0, nan]), ddof=1), 2.0)
    same(I([1e6, 1e6 + 1]).var(correction=0), 0.25)  # the mean is taken away first


def test_powers_of_integers():
    for x in (cotan.float_power(I([2]), -1), cotan.float_power(2, I([-1]))):
        assert x.dtype == f64 and x.tolist() == [0.5]
    assert cotan.float_power(I([2.0]), 3).dtype == f64 and cotan.float_power(I([1j]), 2).dtype == cotan.complex128


def test_lerp():
    for start, end, weight, right in ((1e38, -3e38, 0.5, -1e38), (3e38, -3e38, 0.5, 0), (-3e38, 3e38, 0.75, 1.5e38), (1e8, 1.0, 1.0, 1.0),
                                      (0.1, 0.7, 0.0, np.float32(0.1)), (0.1, 0.7, 1.0, np.float32(0.7))):
        same(cotan.lerp(I([start]), I([end]), weight), [right])
        same(cotan.lerp(I([start]), I([end]), I([weight])), [right])
    assert cotan.lerp(half([6e4]), half([-6e4]), 0.5).tolist() == [0] and cotan.lerp(I([0]), I([10]), 0.5).tolist() == [5]
    assert cotan.lerp(half([2.0**-24 * 3]), half([2.0**-24 * 3]), 0.5).tolist() == [2.0**-24 * 3]
    slope = cotan.func.grad(lambda w: cotan.lerp(I([3e30]), I([-3e30]), w).sum())(I([0.5]))
    same(slope, [-6e30])
    same(cotan.addcmul(I([1.0]), I([1e30]), I([1e30]), value=1e-30), [1e30])
    same(cotan.addcdiv(I([1.0]), I([1e30]), I([1e-30]), value=1e-30), [1e30])


def test_norms():
    norm = cotan.linalg.norm
    for scale in (1e30, 1.0, 1e-30, 1e-44):
        x, right = I([3.0, 4.0]) * scale, np.linalg.norm((np.float32([3, 4]) * np.float32(scale)).astype("float64"))
        for found in (norm(x), x.norm(), norm(cotan.complex(x * 0, x)), norm(x[None], axis=1)[0]):
            np.testing.assert_allclose(found.item(), right, rtol=1e-6 if scale > 1e-40 else 0.1)
        if scale > 1e-40:
            same(F.normalize(x, dim=0, eps=0), [0.6, 0.8])
    same(norm(I([3e200, 4e200], dtype=f64)), 5e200)
    same(norm(I([3e200, 4e200], dtype=f64), 4), 337**0.25 * 1e200)
    same(I([1e30, 1e30]).norm(3), 2 ** (1 / 3) * 1e30)
    assert half([3e4, 4e4]).norm().item() == half([5e4]).item() and half([3e-4, 4e-4]).norm().item() == half([5e-4]).item()
    assert [norm(x).item() for x in (I([inf, 1.0]), cotan.zeros(0), cotan.zeros(3))] == [inf, 0, 0] and math.isnan(norm(I([nan, 1.0])).item())
    assert norm(I([3e38, 3e38])).item() == inf  # it has no number
    grad = cotan.func.grad
    assert grad(lambda x: x.norm())(cotan.zeros(2)).tolist() == [0, 0]
    for scale in (1e30, 1e-30):
        same(grad(lambda x: x.norm())(I([3 * scale, 4 * scale])), [0.6, 0.8])
    x = I([3e30, 4e30])
    same(F.cosine_similarity(x, x, dim=0), 1.0)
    assert F.cosine_similarity(half([6e4, 6e4]), half([6e4, 6e4]), dim=0).item() == 1
    same(F.pairwise_distance(I([3e30]), I([-3e30])), 6e30)
    same(F.cosine_embedding_loss(I([[3e12, 4e12]]), I([[3e12, 4e12]]), I([1])) + 1, 1.0)


def test_lines_between_ends():
    same(cotan.linspace(-1e308, 1.7e308, 3, dtype=f64), [-1e308, 3.5e307, 1.7e308])
    same(cotan.interp(I([0.5, 1.5, nan]), I([0.0, 1.0, 2.0]), I([-3e38, 3e38, 0.0])), [0, 1.5e38, nan])
    same(cotan.geomspace(-1, -1000, 4), [-1, -10, -100, -1000])
    same(cotan.median(I([-3e38, 3e38])), 0.0)
    same(cotan.quantile(I([3e38, -3e38, 3e38, -3e38]), 0.5), 0.0)
    same(cotan.trapezoid(I([3e38, 3e38]), dx=0.1), 3e37)
    same(cotan.trapezoid(I([3e38, 3e38]), I([0.0, 0.1])), 3e37)
    assert cotan.trapezoid(I([2, 4])).item() == 3 and cotan.trapezoid(I([127, 127], dtype=cotan.int8)).item() == 127
    for call, words in ((lambda: cotan.arange(0, inf), "arange: the numbers from 0 to inf by 1 are asked for, which have no count"),
                        (lambda: cotan.geomspace(-1, 10),
                         "geomspace: numbers from -1 to 10 are asked for, both must be above 0 or both below")):
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value) == words


def test_exponents():
    same(cotan.ldexp(I([1e38, 1e-38, 1.0, 0.75]), I([-200, 150, 200, 3])), [math.ldexp(np.float32(1e38), -200), math.ldexp(np.float32(1e-38), 150), inf, 6.0])
    assert cotan.ldexp(I([2.0**-149]), I([276])).tolist() == [2.0**127] and cotan.ldexp(I([2.0**127]), I([-276])).tolist() == [2.0**-149]
    assert cotan.ldexp(I([2.0**-1074], dtype=f64), I([2097])).tolist() == [2.0**1023]
    assert cotan.ldexp(half([2.0**-24]), I([39])).tolist() == [2.0**15] and cotan.ldexp(I([3]), I([2])).tolist() == [12]
    for dtype in ("float32", "float64"):
        x = np.array([1e-40, 2.0**-149, 3e38, 1.0, -0.1, 0.0, inf], dtype)
        mantissa, exponent = cotan.frexp(I(x))
        wanted = np.frexp(x)
        assert mantissa.tolist() == wanted[0].tolist() and exponent.tolist()[:-1] == wanted[1].tolist()[:-1]


def test_integers_have_no_nan():
    x = I([[1, 2], [3, 5]])
    assert cotan.nansum(x).item() == 11 and cotan.nanmax(x, axis=0).tolist() == [3, 5] and cotan.nanmin(x).item() == 1
    assert cotan.nanmean(x).item() == 2.75
    large = I([2**62])
    assert cotan.isclose(large, large + 1).tolist() == [True] and cotan.isclose(large, large + 1, rtol=0, atol=0).tolist() == [False]
    assert cotan.allclose(I([1, 2]), I([1, 2])) and not cotan.allclose(I([1, 2]), I([1, 3]))
