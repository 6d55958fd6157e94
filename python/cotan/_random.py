"""Random numbers: a key and a counter, both operands of the plans that draw."""
import contextlib
import os
import threading

from . import _core
from . import random as _keyed
from ._core import Tensor, ops
from ._dtypes import COMPLEX, FLOATS, INTEGERS, finfo, iinfo, real_dtype
from ._whole import Swap


class Generator:
    """A stream of random numbers: the same seed gives the same ones, whatever is computed between."""

    def __init__(self, device="cpu"):
        self.device = device
        self._lock = threading.Lock()
        self.manual_seed(int.from_bytes(os.urandom(7), "little"))

    def manual_seed(self, seed):
        """From here on the numbers of this seed come, from their beginning."""
        self._place = int(seed), 0
        return self

    def seed(self):
        """A seed of the system's randomness, which is given."""
        self.manual_seed(int.from_bytes(os.urandom(7), "little"))
        return self._place[0]

    def initial_seed(self):
        return self._place[0]

    def get_state(self):
        """Seed and counter, as a tensor of 2 integers."""
        seed, count = self._place
        return _core.asarray([_signed(seed), count])

    def set_state(self, state):
        seed, count = state.tolist()
        self._place = int(seed), int(count)
        return self

    def place(self):
        """Where it is in its stream, for back_at."""
        return self._place

    def back_at(self, place):
        """with generator.back_at(place): the numbers that came from there come again. None: it goes on where it is."""
        return Swap(self, "_place", place) if place else contextlib.nullcontext()

    def next_key(self):
        """A key that no earlier call gave; in a loop that is traced no earlier turn, either."""
        for turn in _given.turns:
            if isinstance(turn, BaseException):
                raise turn
        key = self._next_key()
        for turn in _given.turns:
            key = ops.random_fold_in(key, turn)
        return key

    def _next_key(self):
        if _given.keys is not None:  # a function is recorded, which is given its keys
            if self is not default_generator:
                raise RuntimeError("a function that is compiled draws from the process's generator alone")
            if _given.keys:
                return _given.keys.pop(0)
        with self._lock:
            seed, count = self._place
            self._place = seed, count + 1
        if _core._tracing():  # the seed is a part of the body there, and the count an operand: the next trace is the same
            key = ops.random_fold_in(_core.random_key(_signed(seed)), count & 0xFFFFFFFF)
            return ops.random_fold_in(key, count >> 32) if count >> 32 else key
        return _core._random_key_folded(_signed(seed), count)  # no kernel computes it

    def __getstate__(self):
        return self.device, *self._place

    def __setstate__(self, state):
        self.device, *place = state
        self._place, self._lock = tuple(place), threading.Lock()


def _signed(seed):
    """A seed as an integer of 64 bits."""
    seed &= (1 << 64) - 1
    return seed - (1 << 64) if seed >> 63 else seed


class _Given(threading.local):
    """What this thread traces: .keys of a function that is compiled; .turns, the numbers by which draws differ inside of
    loops, from the outermost on, or what a draw raises there."""

    keys = None
    turns = ()


_given = _Given()


class Draws(BaseException):
    """A body that is traced draws: it is traced again, with the number of its turn. No Exception, which it might catch."""


def by_turn(turn):
    """with by_turn(turn): draws are others for each value of this integer; of an exception they raise it."""
    return Swap(_given, "turns", (*_given.turns, turn))


def recording(keys):
    """with recording(keys): draws of the process's generator take these, as long as there are any."""
    return Swap(_given, "keys", list(keys))


default_generator = Generator()


def manual_seed(seed):
    """The process's generator begins the numbers of this seed."""
    return default_generator.manual_seed(seed)


def seed():
    return default_generator.seed()


def initial_seed():
    return default_generator.initial_seed()


def get_rng_state():
    return default_generator.get_state()


def set_rng_state(state):
    default_generator.set_state(state)


def next_key(generator=None):
    return (generator or default_generator).next_key()


def _sizes(shape):
    """The sizes of rand(2, 3), rand((2, 3))."""
    return tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape


def _finish(drawn, dtype, requires_grad, device=None):
    there = drawn if device is None else drawn.to(device)
    drawn = there._stays() if there is drawn else there
    drawn = drawn if dtype is None or _core.dtype(dtype) == drawn.dtype else ops.cast(drawn, dtype)
    return drawn.requires_grad_() if requires_grad else drawn


def _float_dtype(name, dtype):
    dtype = _core.dtype(dtype or _core.float32)
    if dtype not in FLOATS and dtype not in COMPLEX:
        raise RuntimeError(f"{name}: the dtype is {dtype!r}, it must be one of floats or complex numbers")
    return dtype


def fraction(shape, dtype, generator=None):
    """Floats from 0 to 1, 1 excluded: in float64 of 52 random bits, else in float32 of 23."""
    if dtype == _core.float64:
        return _keyed.uniform(next_key(generator), shape, dtype)
    return ops.random_uniform(next_key(generator), shape)


def _unit(shape, dtype, generator):
    """The same in the dtype, rounded down: to the nearest, some would be 1."""
    drawn = fraction(shape, dtype, generator)
    if dtype in (_core.float32, _core.float64):
        return drawn
    step = finfo(dtype).eps / 2
    return ops.cast(ops.floor(drawn * (1 / step)) * step, dtype)


def _normal(shape, dtype, generator):
    if dtype in COMPLEX or dtype == _core.float64:
        return _keyed.normal(next_key(generator), shape, dtype)
    return ops.random_normal(next_key(generator), shape)


def last_below(low, high, dtype):
    """The last number that a draw from low to high may be: a sum of the dtype's numbers would be rounded up to high."""
    return high - finfo(dtype).eps * max(abs(low), abs(high))


def uniform(shape, low=0.0, high=1.0, dtype=None, generator=None):
    """Floats from low to high, high excluded, all equally likely."""
    dtype, shape = _float_dtype("uniform", dtype), tuple(shape)
    if dtype in COMPLEX:
        return ops.complex(*(uniform(shape, low, high, real_dtype(dtype), generator) for _ in range(2)))
    if (low, high) == (0, 1):
        return _unit(shape, dtype, generator)
    if not 0 <= high - low <= finfo(dtype).max:
        raise RuntimeError(f"uniform: numbers from {low} to {high} are asked for: the second must not be less than the first, "
                           f"and their difference a number of {dtype!r}")
    drawn = ops.cast(fraction(shape, dtype, generator) * (high - low) + low, dtype)
    return drawn if high == low else ops.minimum(drawn, last_below(low, high, dtype))


def gaussian(shape, mean=0.0, std=1.0, dtype=None, generator=None):
    """Floats with the normal distribution."""
    if not isinstance(std, Tensor) and not std >= 0:
        raise RuntimeError(f"normal: the standard deviation is {std}, it must be at least 0")
    dtype = _float_dtype("normal", dtype)
    drawn = _normal(tuple(shape), dtype, generator)
    plain = not isinstance(mean, Tensor) and not isinstance(std, Tensor) and (mean, std) == (0, 1)
    return ops.cast(drawn if plain else drawn * std + mean, dtype)


def rand(*shape, generator=None, dtype=None, requires_grad=False, device=None):
    """Floats from 0 to 1, 1 excluded: rand(2, 3) or rand((2, 3))."""
    drawn = uniform(_sizes(shape), dtype=_float_dtype("rand", dtype), generator=generator)
    return _finish(drawn, dtype, requires_grad, device)


def randn(*shape, generator=None, dtype=None, requires_grad=False, device=None):
    """Floats with the normal distribution of mean 0 and variance 1."""
    drawn = _normal(tuple(_sizes(shape)), _float_dtype("randn", dtype), generator)
    return _finish(drawn, dtype, requires_grad, device)


def rand_like(x, dtype=None, requires_grad=False, device=None):
    return rand(x.shape, dtype=dtype or x.dtype, requires_grad=requires_grad, device=device or x._place())


def randn_like(x, dtype=None, requires_grad=False, device=None):
    return randn(x.shape, dtype=dtype or x.dtype, requires_grad=requires_grad, device=device or x._place())


def whole_numbers(dtype):
    """(low, high): the integers that a dtype holds, each of them; high included."""
    if dtype in FLOATS:
        return int(-2 / finfo(dtype).eps), int(2 / finfo(dtype).eps)
    return (iinfo(dtype).min, iinfo(dtype).max) if dtype in INTEGERS else (0, 1)


def _check_whole(name, what, low, high, dtype):
    """Raises where not all integers from low to high, high included, are numbers of the dtype."""
    least, largest = whole_numbers(dtype)
    if low < least or high > largest:
        raise RuntimeError(f"{name}: {what}, {dtype!r} holds the integers from {least} to {largest}")


def randint(low=0, high=None, size=None, *, generator=None, dtype=None, requires_grad=False, device=None):
    """Integers (int64) from low (default 0) to high, high excluded: randint(10, (2, 3)), randint(2, 10, (2, 3))."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise TypeError(f"randint: it needs the size, too: randint({high}, (2, 3))")
    low, high, size, dtype = int(low), int(high), tuple(size), _core.dtype(dtype or _core.int64)
    if high <= low:
        raise RuntimeError(f"randint: no integer is at least {low} and less than {high}")
    _check_whole("randint", f"integers from {low} to {high - 1} are asked for", low, high - 1, dtype)
    if high - low <= (1 << 31) - 1 and low >= -(1 << 31) and high <= (1 << 31) - 1:
        drawn = ops.random_int(next_key(generator), low, high, size)
    else:
        wide = _core.uint64 if high - 1 > iinfo(_core.int64).max else _core.int64
        drawn = _keyed.randint(next_key(generator), size, low, high, wide)
    return _finish(drawn, dtype, requires_grad, device)


def randint_like(x, low, high=None, dtype=None):
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, x.shape, dtype=dtype or x.dtype, device=x._place())


def randperm(n, *, generator=None, dtype=None, requires_grad=False, device=None):
    """The integers 0 to n - 1 in a random order."""
    if n < 0:
        raise RuntimeError(f"randperm: {n} integers are asked for")
    _check_whole("randperm", f"the integers below {n} are asked for", 0, n - 1, _core.dtype(dtype or _core.int64))
    order = ops.lexsort([ops.random_bits(next_key(generator), (n,)), ops.random_bits(next_key(generator), (n,))], 0, False)
    return _finish(order, dtype or _core.int64, requires_grad, device)


def check_probability(name, p):
    """Raises if p is a number that is no probability; what a tensor holds is not looked at."""
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise RuntimeError(f"{name}: the probability is {p}, it must be from 0 to 1")


def bernoulli(p, *, generator=None):
    """1 with the probability that each element of p says, else 0, in p's dtype. Below 0, or NaN, it is always 0, above 1
    always 1."""
    return ops.cast(ops.less(fraction(tuple(p.shape), p.dtype, generator), p), p.dtype)


def multinomial(weights, num_samples, replacement=False, *, generator=None):
    """Indices (..., num_samples) into the last axis, each as likely as its weight; without replacement all differ. -1 for
    what cannot be drawn: when all that have a weight are drawn, and of weights that are negative, infinite or NaN."""
    shape = tuple(weights.shape)
    if num_samples <= 0:
        raise RuntimeError(f"multinomial: {num_samples} samples are asked for, it must be at least one")
    if not shape or not shape[-1]:
        raise RuntimeError(f"multinomial: the weights are {shape}, along the last axis there must be at least one")
    if not replacement and num_samples > shape[-1]:
        raise RuntimeError(f"multinomial: {num_samples} different ones of {shape[-1]} are asked for")
    dtype = _core.float64 if weights.dtype == _core.float64 else _core.float32
    weights = ops.cast(weights, dtype)
    known = ops.all(ops.and_(ops.greater_equal(weights, 0.0), ops.is_finite(weights)), axes=-1, keepdims=True)
    logits = ops.log(ops.select(known, weights, 0.0))
    if replacement:
        logits = ops.reshape(logits, shape[:-1] + (1, shape[-1]))
        logits = ops.expand(logits, shape[:-1] + (num_samples, shape[-1]))
    noise = fraction(tuple(logits.shape), dtype, generator)
    scores = logits - ops.log(-ops.log(noise + 2.0**-33))  # the largest is as likely as its weight
    if replacement:
        found, best = ops.argmax(scores, axis=-1), ops.max(scores, axes=-1)
    else:
        best, found = ops.topk(scores, num_samples)
    return ops.select(ops.is_finite(best), ops.cast(found, _core.int64), -1)


def normal(mean=0.0, std=1.0, size=None, *, generator=None, dtype=None, requires_grad=False, device=None):
    """Floats with the normal distribution; mean and std are numbers (then size tells the shape) or tensors, of whose std the
    size counts alone."""
    if size is None:
        both = _core.asarray(mean) + _core.asarray(std)
        own = dtype or (both.dtype if both.dtype in FLOATS + COMPLEX else None)
        return _finish(gaussian(both.shape, mean, std, own, generator), dtype, requires_grad, device)
    return _finish(gaussian(tuple(size), mean, std, dtype, generator), dtype, requires_grad, device)
