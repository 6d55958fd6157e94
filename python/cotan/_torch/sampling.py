"""Random numbers with PyTorch's signatures."""
import math

from .. import _core, _random
from .._core import Tensor, ops
from .._dtypes import BOOL, COMPLEX, FLOATS, get_default_dtype, promote_types
from .._shaping import broadcast_to
from .._transforms import while_loop
from .create import LIKE, OPTIONS, finish, parse_sizes
from .define import define

_GENERATOR = "generator=None"


def _define_drawn(name, draw, what):
    """Defines NAME(size) and NAME_like(tensor) of draw(shape, dtype, generator)."""
    def function(size, generator, dtype, layout, device, requires_grad, pin_memory):
        dtype = get_default_dtype() if dtype is None else _core.dtype(dtype)
        return finish(draw(parse_sizes((size,)), dtype, generator), layout, device, requires_grad)

    def like(input, generator, dtype, layout, device, requires_grad, memory_format):
        return function(tuple(input.shape), generator, dtype or input.dtype, layout, device or input._device_name(), requires_grad, False)

    function.__doc__ = like.__doc__ = f"Returns {what}."
    define(f"{name}(*size: ints, {_GENERATOR}, {OPTIONS})")(function)
    define(f"{name}_like(input, *, {_GENERATOR}, {LIKE})")(like)


_define_drawn("rand", lambda shape, dtype, generator: _random.uniform(shape, 0, 1, dtype, generator),
              "floats from 0 to 1, 1 excluded")
_define_drawn("randn", lambda shape, dtype, generator: _random.gaussian(shape, 0, 1, dtype, generator),
              "normally distributed numbers")


@define(f"randint(high: int, size: ints, *, {_GENERATOR}, {OPTIONS})")
def randint_below(high, size, generator, dtype, layout, device, requires_grad, pin_memory):
    """Returns integers from low, or 0, to high, high excluded: int64 unless a dtype is given."""
    return randint(0, high, size, generator, dtype, layout, device, requires_grad, pin_memory)


@define(f"randint(low: int, high: int, size: ints, *, {_GENERATOR}, {OPTIONS})")
def randint(low, high, size, generator, dtype, layout, device, requires_grad, pin_memory):
    drawn = _random.randint(low, high, parse_sizes((size,)), generator=generator, dtype=dtype)
    return finish(drawn, layout, device, requires_grad)


@define(f"randint_like(input, high: int|Tensor, *, {LIKE})")
def randint_like_below(input, high, dtype, layout, device, requires_grad, memory_format):
    """Returns integers from low, or 0, to high, high excluded, like the input."""
    return randint_like(input, 0, high, dtype, layout, device, requires_grad, memory_format)


@define(f"randint_like(input, low: int, high: int|Tensor, *, {LIKE})")
def randint_like(input, low, high, dtype, layout, device, requires_grad, memory_format):
    device = device or input._device_name()
    return randint(low, int(high), tuple(input.shape), None, dtype or input.dtype, layout, device, requires_grad, False)


@define(f"randperm(n: int, *, {_GENERATOR}, {OPTIONS})")
def randperm(n, generator, dtype, layout, device, requires_grad, pin_memory):
    """Returns the integers 0 to n - 1 in a random order."""
    return finish(_random.randperm(n, generator=generator, dtype=dtype), layout, device, requires_grad)


# -------------------------------------------------------------------------------------- distributions

@define(f"normal(mean: float, std: float, size: ints, *, {_GENERATOR}, {OPTIONS})")
def normal_of_size(mean, std, size, generator, dtype, layout, device, requires_grad, pin_memory):
    """Returns normally distributed numbers; of tensors mean and std one for each element."""
    return finish(_random.gaussian(parse_sizes((size,)), mean, std, dtype, generator), layout, device, requires_grad)


@define(f"normal(mean: float, std: Tensor, *, {_GENERATOR}, out=None)")
@define(f"normal(mean: Tensor, std: float=1.0, *, {_GENERATOR}, out=None)")
def normal(mean, std, generator):
    both = [x for x in (mean, std) if isinstance(x, Tensor)]
    dtype = both[0].dtype if len(both) == 1 else promote_types(both[0].dtype, both[1].dtype)
    shape = tuple((both[0] if len(both) == 1 else both[0] + both[1]).shape)
    mean, std = (x.detach() if isinstance(x, Tensor) else x for x in (mean, std))
    return _random.gaussian(shape, mean, std, dtype, generator)


@define(f"bernoulli(input, p: float|Tensor, *, {_GENERATOR})")
@define(f"bernoulli(input, *, {_GENERATOR}, out=None)", forms="fm")
def bernoulli(input, *rest):
    """Returns 1 with the probability of each element, or p, else 0."""
    *p, generator = rest
    if not p:
        if input.dtype not in FLOATS:
            raise RuntimeError(f"bernoulli: the probabilities are {input.dtype.name}, they must be floats")
        return _random.bernoulli(input.detach(), generator=generator)
    return _draw_bernoulli(input, *p, generator)


@define(f"multinomial(input, num_samples: int, replacement: bool=False, *, {_GENERATOR}, out=None)", forms="fm")
def multinomial(input, num_samples, replacement, generator):
    """Returns indices (..., num_samples) into the last axis, drawn with the input as weights."""
    if input.ndim not in (1, 2) or input.dtype not in FLOATS:
        raise RuntimeError(f"multinomial: the weights are {tuple(input.shape)} of {input.dtype.name}, "
                           "they must be floats, of 1 or 2 axes")
    return _random.multinomial(input.detach(), num_samples, replacement, generator=generator)


def _uniform(shape, generator):
    return _random.uniform(shape, 0, 1, _core.float64, generator)


def _positive_uniform(shape, generator):
    """Returns floats from 0 to 1, 0 excluded, whose logarithm is finite."""
    return 1 - _uniform(shape, generator)


def _repeat_until_accepted(propose, shape):
    """Returns proposals: propose() gives numbers, and which of these are accepted; others are drawn again."""
    def step(carry):
        value, done = carry
        proposed, accepted = propose()
        return ops.select(ops.and_(accepted, ops.not_(done)), proposed, value), ops.or_(done, accepted)

    start = _core.full(shape, 0, _core.float64), _core.full(shape, False, _core.bool)
    return while_loop(lambda carry: ops.not_(ops.all(carry[1])), step, start)[0]


def _count_until(term, limit, shape):
    """Returns the number of draws term() whose sum does not exceed the limit."""
    def step(carry):
        total, count = carry
        total = total + term()
        return total, count + ops.cast(total <= limit, _core.float64)

    zeros = _core.full(shape, 0, _core.float64)
    return while_loop(lambda carry: ops.any(carry[0] <= limit), step, (zeros, zeros + 0))[1]


@define(f"poisson(input, {_GENERATOR})")
def poisson(input, generator):
    """Returns Poisson distributed numbers with the rate of each element."""
    if input.dtype not in FLOATS:
        raise RuntimeError(f"poisson: the rates are {input.dtype.name}, they must be floats")
    shape, rate = tuple(input.shape), ops.cast(input.detach(), _core.float64)
    is_small = rate < 10
    # Waiting times add up to the rate; for large ones the transformed rejection PTRS (Hörmann 1993).
    small = _count_until(lambda: -ops.log(_positive_uniform(shape, generator)), ops.select(is_small, rate, 0.0), shape)
    large = ops.select(is_small, 10.0, rate)
    b = 0.931 + 2.53 * ops.sqrt(large)
    a = -0.059 + 0.02483 * b

    def propose():
        u, v = _uniform(shape, generator) - 0.5, _positive_uniform(shape, generator)
        us = 0.5 - abs(u)
        k = ops.floor((2 * a / us + b) * u + large + 0.43)
        sure = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
        s = ops.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b))
        likely = s <= k * ops.log(large) - large - ops.lgamma(ops.maximum(k, 0) + 1)
        return k, sure | ((k >= 0) & ~((us < 0.013) & (v > us)) & likely)

    return ops.cast(ops.select(is_small, small, _repeat_until_accepted(propose, shape)), input.dtype)


@define(f"binomial(count: Tensor, prob: Tensor, {_GENERATOR})")
def binomial(count, prob, generator):
    """Returns the numbers of successes of `count` trials, each with the probability `prob`."""
    if count.dtype not in FLOATS or prob.dtype not in FLOATS:
        raise RuntimeError(f"binomial: count is {count.dtype.name} and prob {prob.dtype.name}, both must be floats")
    n, p = (ops.cast(x.detach(), _core.float64) for x in (count, prob))
    shape = tuple((n + p).shape)
    n, p = ops.expand(n, shape), ops.expand(p, shape)
    q = ops.minimum(p, 1 - p)
    is_small = n * q < 10
    # Distances of successes add up to the count; for large means the transformed rejection BTRS (Hörmann 1993).
    q_small = ops.select(is_small & (q > 0), q, 0.5)
    small = _count_until(lambda: ops.maximum(ops.ceil(ops.log(_positive_uniform(shape, generator)) / ops.log1p(-q_small)), 1.0),
                         ops.select(is_small, n, 0.0), shape)
    small = ops.select(q > 0, small, 0.0)
    n_large, q_large = ops.select(is_small, 40.0, n), ops.select(is_small, 0.5, q)
    std = ops.sqrt(n_large * q_large * (1 - q_large))
    b = 1.15 + 2.53 * std
    a = -0.0873 + 0.0248 * b + 0.01 * q_large
    mode = ops.floor((n_large + 1) * q_large)

    def log_likelihood(k):
        return k * ops.log(q_large / (1 - q_large)) - ops.lgamma(k + 1) - ops.lgamma(n_large - k + 1)

    def propose():
        u, v = _uniform(shape, generator) - 0.5, _positive_uniform(shape, generator)
        us = 0.5 - abs(u)
        k = ops.floor((2 * a / us + b) * u + n_large * q_large + 0.5)
        possible = (k >= 0) & (k <= n_large)
        sure = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
        s = ops.log(v * ((2.83 + 5.1 / b) * std) / (a / (us * us) + b))
        inside = ops.select(possible, k, mode)
        return k, sure | possible & (s <= log_likelihood(inside) - log_likelihood(mode))

    drawn = ops.select(is_small, small, _repeat_until_accepted(propose, shape))
    return ops.cast(ops.select(p > 0.5, n - drawn, drawn), promote_types(count.dtype, prob.dtype))


# ------------------------------------------------------------------------------------ in place

def _check_floats(name, x):
    if x.dtype not in FLOATS + COMPLEX:
        raise RuntimeError(f"{name}: the tensor is {x.dtype.name}, it must be of floats")


def _check_above(name, what, number):
    if not number > 0:
        raise RuntimeError(f"{name}: {what} is {number}, it must be above 0")


def _draw_bernoulli(x, p, generator):
    _random.check_probability("bernoulli", p)
    if isinstance(p, Tensor):
        p = broadcast_to(p if p.dtype in FLOATS else p.to(get_default_dtype()), x.shape)
        return ops.cast(_random.bernoulli(p, generator=generator), x.dtype)
    return ops.cast(ops.random_bernoulli(_random.next_key(generator), p, tuple(x.shape)), x.dtype)


@define(f"Tensor.bernoulli_(self, p: float|Tensor=0.5, *, {_GENERATOR})")
def bernoulli_(self, p, generator):
    """Writes 1 with the probability p, else 0, in place."""
    return self.copy_(_draw_bernoulli(self, p, generator))


@define(f"Tensor.cauchy_(self, median: float=0, sigma: float=1, *, {_GENERATOR})")
def cauchy_(self, median, sigma, generator):
    """Writes Cauchy distributed numbers in place."""
    _check_floats("cauchy", self)
    _check_above("cauchy", "sigma", sigma)
    return self.copy_(median + sigma * ops.tan(math.pi * (_uniform(tuple(self.shape), generator) - 0.5)))


@define(f"Tensor.exponential_(self, lambd: float=1, *, {_GENERATOR})")
def exponential_(self, lambd, generator):
    """Writes exponentially distributed numbers with the rate lambd in place."""
    _check_floats("exponential", self)
    _check_above("exponential", "the rate", lambd)
    return self.copy_(-ops.log(_positive_uniform(tuple(self.shape), generator)) / lambd)


@define(f"Tensor.geometric_(self, p: float, *, {_GENERATOR})")
def geometric_(self, p, generator):
    """Writes the numbers of trials up to the first success, of probability p, in place."""
    if self.dtype in BOOL + COMPLEX or not 0 < p < 1:
        raise RuntimeError(f"geometric: p is {p}, it must be between 0 and 1, and the tensor {self.dtype.name} of real numbers")
    trials = ops.maximum(ops.ceil(ops.log(_positive_uniform(tuple(self.shape), generator)) / math.log1p(-p)), 1.0)
    return self.copy_(ops.cast(trials, self.dtype))


@define(f"Tensor.log_normal_(self, mean: float=1, std: float=2, *, {_GENERATOR})")
def log_normal_(self, mean, std, generator):
    """Writes numbers whose logarithm is normally distributed in place."""
    _check_floats("log_normal", self)
    _check_above("log_normal", "std", std)
    return self.copy_(ops.exp(_random.gaussian(tuple(self.shape), mean, std, self.dtype, generator)))


@define(f"Tensor.normal_(self, mean: float=0, std: float=1, *, {_GENERATOR})")
def normal_(self, mean, std, generator):
    """Writes normally distributed numbers in place."""
    return self.copy_(_random.gaussian(tuple(self.shape), mean, std, self.dtype, generator))


@define(f"Tensor.random_(self, *, {_GENERATOR})")
def random_(self, generator):
    """Writes integers in place: from `from`, or 0, to `to`, excluded; without them, all that the dtype holds, from 0
    on."""
    return random_between_(self, 0, None, generator)


@define(f"Tensor.random_(self, to: int, *, {_GENERATOR})")
def random_below_(self, to, generator):
    return random_between_(self, 0, to, generator)


@define(f"Tensor.random_(self, from: int, to: int=None, *, {_GENERATOR})")
def random_between_(self, start, to, generator):
    to = _random.exact_integer_range(self.dtype)[1] + 1 if to is None else to
    return self.copy_(_random.randint(start, to, tuple(self.shape), generator=generator, dtype=self.dtype))


@define(f"Tensor.uniform_(self, from: float=0, to: float=1, *, {_GENERATOR})")
def uniform_(self, start, to, generator):
    """Writes floats from `from` to `to`, excluded, in place."""
    return self.copy_(_random.uniform(tuple(self.shape), start, to, self.dtype, generator))
