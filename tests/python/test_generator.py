"""Draws of cotan.manual_seed's generator (rand, uniform_, randint, multinomial ...): their limits, bits and refusals."""
import math

import cotan
import numpy as np
import pytest

HALVES = (cotan.bfloat16, cotan.float16)


@pytest.mark.parametrize("dtype", HALVES)
def test_one_is_never_drawn_in_halves(dtype):
    cotan.manual_seed(0)
    n = 100_000
    zeros = cotan.zeros(n, dtype=dtype)
    for drawn in (cotan.rand(n, dtype=dtype), zeros.clone().uniform_(), cotan.rand_like(zeros), cotan.nn.init.uniform_(zeros.clone())):
        whole = drawn.float().numpy()
        assert drawn.dtype == dtype and whole.min() == 0 and whole.max() == 1 - cotan.finfo(dtype).eps / 2
        assert np.isfinite((-cotan.log(1 - drawn)).float().numpy()).all() and abs(whole.mean() - 0.5) < 0.01
    for low, high in ((1.0, 2.0), (-1.0, 0.1), (-2.0, -1.0)):
        whole = zeros.clone().uniform_(low, high).float().numpy()
        assert whole.min() <= low + 0.02 and high - 0.02 <= whole.max() < high
    one = cotan.ones(n, dtype=dtype)
    drawn = cotan.distributions.Uniform(one, one * 2).sample().float().numpy()
    assert drawn.min() == 1 and 1.96 < drawn.max() < 2


def test_a_sum_is_not_rounded_up_to_the_end():
    cotan.manual_seed(0)
    high = 1 + 2.0**-22  # float32 has one number between
    drawn = cotan.zeros(1000).uniform_(1.0, high).numpy()
    assert (drawn >= 1).all() and (drawn < high).all()
    assert cotan.zeros(3, dtype=cotan.float64).uniform_(0.1, 0.1).tolist() == [0.1] * 3


def test_float64_has_its_own_bits():
    cotan.manual_seed(1)
    n = 2000
    zeros = cotan.zeros(n, dtype=cotan.float64)
    for drawn in (cotan.rand(n, dtype=cotan.float64), zeros.clone().uniform_(), zeros.clone().uniform_(-1.0, 3.0), cotan.rand_like(zeros),
                  cotan.randn(n, dtype=cotan.float64), zeros.clone().normal_(), zeros.clone().normal_(1.0, 2.0), zeros.clone().exponential_(),
                  cotan.normal(zeros, zeros + 1), cotan.randn_like(zeros), cotan.nn.init.uniform_(zeros.clone(), -1, 1),
                  cotan.nn.init.trunc_normal_(zeros.clone()), cotan.distributions.Normal(zeros, zeros + 1).sample(),
                  cotan.distributions.Uniform(zeros, zeros + 1).sample(), cotan.rand(n, dtype=cotan.complex128).imag):
        values = drawn.numpy()
        assert values.dtype == np.float64 and np.isfinite(values).all()
        assert len(np.unique(values)) == n and (values.astype("float32") == values).mean() < 0.01
    square = cotan.nn.init.orthogonal_(cotan.zeros(4, 4, dtype=cotan.float64)).numpy()
    np.testing.assert_allclose(square @ square.T, np.eye(4), atol=1e-14)


def test_integers_of_64_bits():
    cotan.manual_seed(2)
    for low, high, dtype in ((-2**63, 2**63, cotan.int64), (0, 2**64, cotan.uint64), (2**63, 2**64, cotan.uint64), (0, 2**40, cotan.int64),
                             (-2**31, 2**31, cotan.int32), (0, 256, cotan.uint8), (-128, 128, cotan.int8), (-2**53, 2**53, cotan.float64)):
        drawn = cotan.randint(low, high, (500,), dtype=dtype)
        values = [int(value) for value in drawn.numpy()]
        assert drawn.dtype == dtype and low <= min(values) and max(values) < high
        assert min(values) < low + (high - low) // 16 and max(values) >= high - (high - low) // 16
    for dtype, last in ((cotan.int8, 127), (cotan.uint8, 255), (cotan.int64, 2**63 - 1), (cotan.uint64, 2**64 - 1), (cotan.float16, 2048),
                        (cotan.bfloat16, 256), (cotan.float32, 2**24), (cotan.float64, 2**53), (cotan.bool, 1)):
        values = [int(value) for value in cotan.zeros(500, dtype=dtype).random_().to(
            dtype if dtype.kind in "iu" else cotan.int64).numpy()]
        assert 0 <= min(values) <= last // 16 and last - last // 16 <= max(values) <= last
    assert set(cotan.zeros(50).random_(2, 4).tolist()) == {2, 3} and set(cotan.zeros(50).random_(to=2).tolist()) == {0, 1}


def test_draws_that_are_impossible():
    cotan.manual_seed(3)
    i, inf, nan = cotan.asarray, math.inf, math.nan
    assert cotan.multinomial(i([0.0, 1.0, 0.0]), 3).tolist() == [1, -1, -1]
    assert cotan.multinomial(i([[0.0, 0.0], [1.0, -1.0], [nan, 1.0], [inf, 1.0], [0.0, 3.0]]), 2, True).tolist() == [[-1, -1]] * 4 + [[1, 1]]
    assert cotan.multinomial(i([1e-300, 0.0], dtype=cotan.float64), 2, True).tolist() == [0, 0]
    assert cotan.distributions.Categorical(logits=i([-inf, -inf]), validate_args=False).sample((2,)).tolist() == [-1, -1]
    assert cotan.bernoulli(i([0.0, 1.0, -1.0, 2.0, nan])).tolist() == [0, 1, 0, 1, 0]
    assert cotan.zeros(2, 3).bernoulli_(i([0.0, 1.0, 1.0])).tolist() == [[0, 1, 1]] * 2
    half = cotan.distributions.Bernoulli(i([1.0, 0.001], dtype=cotan.bfloat16)).sample((20_000,)).float().mean(0).tolist()
    assert half[0] == 1 and 0 < half[1] < 0.003


def test_all_dropped_has_no_slope():
    for dtype in (cotan.float32, *HALVES):
        x = cotan.ones(8, dtype=dtype)
        assert cotan.ops.dropout(x, cotan.random.PRNGKey(0), 1.0).tolist() == [0] * 8
        for drop in (lambda x: cotan.ops.dropout(x, cotan.random.PRNGKey(0), 1.0), lambda x: cotan.nn.functional.dropout(x, 1.0)):
            assert cotan.func.grad(lambda x: drop(x).sum())(x).tolist() == [0] * 8


SAMPLER = cotan.utils.data.WeightedRandomSampler
REFUSED = (
    (lambda: cotan.rand(2, dtype=cotan.int64), "rand: the dtype is cotan.int64, it must be one of floats or complex numbers"),
    (lambda: cotan.zeros(2).long().normal_(), "normal: the dtype is cotan.int64, it must be one of floats or complex numbers"),
    (lambda: cotan.zeros(2).uniform_(2, 1), "uniform: numbers from 2 to 1 are asked for: the second must not be less than the first, and "
     "their difference a number of cotan.float32"),
    (lambda: cotan.zeros(2).half().uniform_(-6e4, 6e4), "uniform: numbers from -60000.0 to 60000.0 are asked for: the second must not be "
     "less than the first, and their difference a number of cotan.float16"),
    (lambda: cotan.zeros(2).normal_(0, -1), "normal: the standard deviation is -1, it must be at least 0"),
    (lambda: cotan.nn.init.normal_(cotan.zeros(2), 0, math.nan), "normal: the standard deviation is nan, it must be at least 0"),
    (lambda: cotan.normal(0.0, -1.0, (3,)), "normal: the standard deviation is -1.0, it must be at least 0"),
    (lambda: cotan.randint(0, 300, (3,), dtype=cotan.uint8),
     "randint: integers from 0 to 299 are asked for, cotan.uint8 holds the integers from 0 to 255"),
    (lambda: cotan.randint(0, 2**64, (3,)), "randint: integers from 0 to 18446744073709551615 are asked for, cotan.int64 holds the "
     "integers from -9223372036854775808 to 9223372036854775807"),
    (lambda: cotan.randint(0, 258, (3,), dtype=cotan.bfloat16),
     "randint: integers from 0 to 257 are asked for, cotan.bfloat16 holds the integers from -256 to 256"),
    (lambda: cotan.zeros(3, dtype=cotan.int8).random_(0, 200),
     "randint: integers from 0 to 199 are asked for, cotan.int8 holds the integers from -128 to 127"),
    (lambda: cotan.zeros(3).random_(0), "randint: no integer is at least 0 and less than 0"),
    (lambda: cotan.randperm(300, dtype=cotan.uint8),
     "randperm: the integers below 300 are asked for, cotan.uint8 holds the integers from 0 to 255"),
    (lambda: cotan.randperm(-1), "randperm: -1 integers are asked for"),
    (lambda: cotan.multinomial(cotan.ones(3), 0), "multinomial: 0 samples are asked for, it must be at least one"),
    (lambda: cotan.multinomial(cotan.zeros(0), 1, True), "multinomial: the weights are (0,), along the last axis there must be at least one"),
    (lambda: cotan.zeros(3).bernoulli_(1.5), "bernoulli: the probability is 1.5, it must be from 0 to 1"),
    (lambda: cotan.zeros(3).exponential_(0), "exponential: the rate is 0, it must be above 0"),
    (lambda: list(SAMPLER([0.0, 1.0], 2, False)),
     "WeightedRandomSampler: 1 of 2 samples can be drawn of these weights, which must be numbers of at least 0"))


@pytest.mark.parametrize("draw, words", REFUSED)
def test_what_is_refused(draw, words):
    with pytest.raises(RuntimeError) as error:
        draw()
    assert str(error.value) == words
    with pytest.raises(ValueError, match="^dropout probability has to be between 0 and 1, but got nan$"):
        cotan.nn.functional.dropout(cotan.ones(3), math.nan)
