"""Values and dtypes of calls in which a wrong result would not be noticed; the expected ones are PyTorch 2.7's."""
import numpy as np
import pytest

import cotan.torch as torch
from cotan.torch.nn import functional as F

MASK = torch.tensor([True, False])


@pytest.mark.parametrize("call, expected", [
    (lambda: MASK * 2, [2, 0]),
    (lambda: 3 + MASK, [4, 3]),
    (lambda: MASK ** 2, [1, 0]),
    (lambda: MASK << 1, [2, 0]),
    (lambda: MASK * np.int16(3), [3, 0]),
    (lambda: torch.mul(MASK, 3000000000), [3000000000, 0]),
])
def test_booleans_with_a_python_integer_are_int64(call, expected):
    result = call()
    assert result.dtype == torch.int64 and result.tolist() == expected


def test_booleans_with_a_python_bool_stay():
    assert (MASK * True).dtype == (False + MASK).dtype == torch.bool
    assert torch.add(MASK, MASK, alpha=2).dtype == torch.bool


@pytest.mark.parametrize("call", [
    lambda x: x ** -1, lambda x: torch.pow(x, -1), lambda x: x.pow_(-2), lambda x: x.bool() ** -1,
    lambda x: x.__ipow__(-1), lambda x: x ** -2 ** 70])
def test_integers_have_no_negative_power(call):
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        call(torch.tensor([2, 3]))


def test_powers_that_exist():
    x = torch.tensor([2, 4])
    assert (x ** -1.0).tolist() == [0.5, 0.25] and (x.double() ** -1).tolist() == [0.5, 0.25]
    assert torch.pow(x, torch.tensor([2, -3])).tolist() == [4, 0]


def test_copy_casts_to_a_lower_category():
    x = torch.zeros(3, dtype=torch.int64)
    assert x.copy_(torch.tensor([0, 1.5, -2.7]), non_blocking=True) is x and x.tolist() == [0, 1, -2]
    x[1:].copy_(7.5)
    assert x.tolist() == [0, 7, 7]
    assert torch.zeros(3, dtype=torch.bool).copy_(x, True).tolist() == [False, True, True]


def test_clamp_of_booleans_takes_the_limits_dtype():
    result = MASK.clamp_max(torch.tensor([0.5, 0.5]))
    assert result.dtype == torch.float32 and result.tolist() == [0.5, 0]


def test_alpha_does_not_promote():
    x = torch.tensor([1, 2], dtype=torch.float16)
    for result in (torch.add(x, torch.tensor([1, 2]), alpha=0.5), x.sub(torch.tensor([1, 2]), alpha=-0.5)):
        assert result.dtype == torch.float16 and result.tolist() == [1.5, 3]
    with pytest.raises(RuntimeError, match="alpha must not be a floating point"):
        torch.tensor([1]).add(1, alpha=0.5)


def test_mean_of_a_weighted_loss_is_over_the_weights():
    x, weight = torch.arange(3.0), torch.tensor([1.0, 2.0, 3.0])
    assert F.mse_loss(x, torch.zeros(3), weight=weight).item() == pytest.approx(14 / 6)
    assert F.l1_loss(x, torch.zeros(3), weight=weight).item() == pytest.approx(8 / 6)
    assert F.mse_loss(x, torch.zeros(3), weight=weight, reduction="sum").item() == 14
    assert F.huber_loss(x, torch.zeros(3), weight=weight).item() == pytest.approx((2 * 0.5 + 3 * 1.5) / 3)


def test_predicted_classes_are_int64():
    model = torch.nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4])
    assert model.predict(torch.ones(3, 4)).dtype == torch.int64


def test_python_types_are_the_wide_dtypes():
    assert torch.zeros(2, dtype=float).dtype == torch.ones(1).to(float).dtype == torch.float64
    assert torch.zeros(2, dtype=complex).dtype == torch.complex128 and torch.zeros(2, dtype=int).dtype == torch.int64


def test_a_product_of_another_shape_is_not_written_in_place():
    x = y = torch.arange(3.0)
    x @= x
    assert x.shape == () and x.item() == 5 and y.tolist() == [0, 1, 2]
    x = y = torch.ones(2, 2)
    x @= torch.ones(2, 2)
    assert y.tolist() == [[2, 2], [2, 2]]
