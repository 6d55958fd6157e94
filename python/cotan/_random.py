"""Random numbers: they are computed of a key and a counter, both of which are operands of the plans that
draw."""
import contextlib
import os
import struct
import threading

from . import _core
from . import random as _keyed
from ._core import Tensor, ops
from ._devices import default_device
from ._dtypes import COMPLEX, FLOATS, INTEGERS, finfo, get_default_dtype, iinfo, real_dtype
from ._whole import Swap


class Generator:
    """A stream of random numbers. The same seed gives the same numbers, whatever else is computed between the
    draws."""

    def __init__(self, device="cpu"):
        self.device = device
        self._lock = threading.Lock()
        self.manual_seed(int.from_bytes(os.urandom(7), "little"))

    def manual_seed(self, seed):
        """Restarts the stream with the numbers of this seed."""
        self._position = int(seed), 0
        return self

    def seed(self):
        """Seeds the stream from the system's randomness, and returns the seed."""
        self.manual_seed(int.from_bytes(os.urandom(7), "little"))
        return self._position[0]

    def initial_seed(self):
        return self._position[0]

    def get_state(self):
        """Returns the seed and the counter, as a tensor of 16 bytes."""
        seed, count = self._position
        return _core._of_bytes(struct.pack("<qq", _to_int64(seed), count), _core.uint8, (16,))

    def set_state(self, state):
        numbers = state.tolist()  # 16 bytes, or both integers
        seed, count = numbers if len(numbers) == 2 else struct.unpack("<qq", bytes(numbers))
        self._position = int(seed), int(count)
        return self

    def position(self):
        """Returns the position in the stream, for rewound_to."""
        return self._position

    def rewound_to(self, position):
        """with generator.rewound_to(position): draws again the numbers that were drawn from that position. None:
        the stream continues at its present position."""
        return Swap(self, "_position", position) if position else contextlib.nullcontext()

    def next_key(self):
        """Returns a key that no earlier call returned; in a traced loop, no earlier iteration either."""
        for turn in _given.turns:
            if isinstance(turn, BaseException):
                raise turn
        key = self._next_key()
        for turn in _given.turns:
            key = ops.random_fold_in(key, turn)
        return key

    def _next_key(self):
        if _given.keys is not None:  # a function is being recorded, which gets its keys as arguments
            if self is not default_generator:
                raise RuntimeError("a function that is compiled draws from the process's generator alone")
            if _given.keys:
                return _given.keys.pop(0)
        with self._lock:
            seed, count = self._position
            self._position = seed, count + 1
        # The seed is part of the body, and the count an operand: the next trace is the same.
        if _core._tracing():
            key = ops.random_fold_in(_core.random_key(_to_int64(seed)), count & 0xFFFFFFFF)
            return ops.random_fold_in(key, count >> 32) if count >> 32 else key
        return _core._random_key_folded(_to_int64(seed), count)  # no kernel computes it

    def __getstate__(self):
        return self.device, *self._position

    def __setstate__(self, state):
        self.device, *position = state
        self._position, self._lock = tuple(position), threading.Lock()


def _to_int64(seed):
    """Returns a seed as an integer of 64 bits."""
    seed &= (1 << 64) - 1
    return seed - (1 << 64) if seed >> 63 else seed


class _TraceState(threading.local):
    """What this thread traces: .keys of a function that is compiled; .turns, the iteration numbers by which
    draws differ inside loops, from the outermost loop on, or an exception that a draw raises there."""

    keys = None
    turns = ()


_given = _TraceState()


class Draws(BaseException):
    """Raised when a traced body draws: it is traced again, with its iteration number as an operand. It is no
    Exception, which the body might catch."""


def with_iteration(turn):
    """with by_turn(turn): draws differ for each value of this integer; if it is an exception, draws raise
    it."""
    return Swap(_given, "turns", (*_given.turns, turn))


def with_recorded_keys(keys):
    """with recording(keys): draws from the process's generator take these keys, as long as there are any."""
    return Swap(_given, "keys", list(keys))


default_generator = Generator()


def manual_seed(seed):
    """Restarts the process's generator with the numbers of this seed."""
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
    """Returns the sizes of rand(2, 3) or rand((2, 3))."""
    return tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape


def _finish(drawn, dtype, requires_grad, device=None):
    device = default_device.names[-1] if device is None else device
    there = drawn if device is None else drawn.to(device)
    drawn = there._stays() if there is drawn else there
    drawn = drawn if dtype is None or _core.dtype(dtype) == drawn.dtype else ops.cast(drawn, dtype)
    return drawn.requires_grad_() if requires_grad else drawn


def _float_dtype(name, dtype):
    dtype = _core.dtype(dtype or get_default_dtype())
    if dtype not in FLOATS and dtype not in COMPLEX:
        raise RuntimeError(f"{name}: the dtype is {dtype!r}, it must be one of floats or complex numbers")
    return dtype


def unit_floats(shape, dtype, generator=None):
    """Returns floats from 0 to 1, 1 excluded: of 52 random bits in float64, else of 23 in float32."""
    if dtype == _core.float64:
        return _keyed.uniform(next_key(generator), shape, dtype)
    return ops.random_uniform(next_key(generator), shape)


def _unit_interval(shape, dtype, generator):
    """Returns the same in the dtype, rounded down: rounding to nearest would make some of them 1."""
    drawn = unit_floats(shape, dtype, generator)
    if dtype in (_core.float32, _core.float64):
        return drawn
    step = finfo(dtype).eps / 2
    return ops.cast(ops.floor(drawn * (1 / step)) * step, dtype)


def _normal(shape, dtype, generator):
    if dtype in COMPLEX or dtype == _core.float64:
        return _keyed.normal(next_key(generator), shape, dtype)
    return ops.random_normal(next_key(generator), shape)


def largest_below(low, high, dtype):
    """Returns the largest number that a draw from low to high may be; sums in the dtype could be rounded up
    to high."""
    return high - finfo(dtype).eps * max(abs(low), abs(high))


def uniform(shape, low=0.0, high=1.0, dtype=None, generator=None):
    """Returns floats from low to high, high excluded, uniformly distributed."""
    dtype, shape = _float_dtype("uniform", dtype), tuple(shape)
    if dtype in COMPLEX:
        return ops.complex(*(uniform(shape, low, high, real_dtype(dtype), generator) for _ in range(2)))
    if (low, high) == (0, 1):
        return _unit_interval(shape, dtype, generator)
    if not 0 <= high - low <= finfo(dtype).max:
        raise RuntimeError(f"uniform: numbers from {low} to {high} are asked for: the second must not be less than the first, "
                           f"and their difference a number of {dtype!r}")
    drawn = ops.cast(unit_floats(shape, dtype, generator) * (high - low) + low, dtype)
    return drawn if high == low else ops.minimum(drawn, largest_below(low, high, dtype))


def gaussian(shape, mean=0.0, std=1.0, dtype=None, generator=None):
    """Returns normally distributed floats."""
    if not isinstance(std, Tensor) and not std >= 0:
        raise RuntimeError(f"normal: the standard deviation is {std}, it must be at least 0")
    dtype = _float_dtype("normal", dtype)
    drawn = _normal(tuple(shape), dtype, generator)
    plain = not isinstance(mean, Tensor) and not isinstance(std, Tensor) and (mean, std) == (0, 1)
    return ops.cast(drawn if plain else drawn * std + mean, dtype)


def rand(*shape, generator=None, dtype=None, requires_grad=False, device=None):
    """Returns floats from 0 to 1, 1 excluded: rand(2, 3) or rand((2, 3))."""
    drawn = uniform(_sizes(shape), dtype=_float_dtype("rand", dtype), generator=generator)
    return _finish(drawn, dtype, requires_grad, device)


def randn(*shape, generator=None, dtype=None, requires_grad=False, device=None):
    """Returns normally distributed floats of mean 0 and variance 1."""
    drawn = _normal(tuple(_sizes(shape)), _float_dtype("randn", dtype), generator)
    return _finish(drawn, dtype, requires_grad, device)


def rand_like(x, dtype=None, requires_grad=False, device=None):
    return rand(x.shape, dtype=dtype or x.dtype, requires_grad=requires_grad, device=device or x._device_name())


def randn_like(x, dtype=None, requires_grad=False, device=None):
    return randn(x.shape, dtype=dtype or x.dtype, requires_grad=requires_grad, device=device or x._device_name())


def exact_integer_range(dtype):
    """Returns (low, high): the range in which a dtype holds every integer; high is included."""
    if dtype in FLOATS:
        return int(-2 / finfo(dtype).eps), int(2 / finfo(dtype).eps)
    return (iinfo(dtype).min, iinfo(dtype).max) if dtype in INTEGERS else (0, 1)


def _check_integer_range(name, what, low, high, dtype):
    """Raises an error if the dtype cannot hold all integers from low to high, high included."""
    least, largest = exact_integer_range(dtype)
    if low < least or high > largest:
        raise RuntimeError(f"{name}: {what}, {dtype!r} holds the integers from {least} to {largest}")


def randint(low=0, high=None, size=None, *, generator=None, dtype=None, requires_grad=False, device=None):
    """Returns integers (int64) from low (default 0) to high, high excluded: randint(10, (2, 3)), randint(2,
    10, (2, 3))."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise TypeError(f"randint: it needs the size, too: randint({high}, (2, 3))")
    low, high, size, dtype = int(low), int(high), tuple(size), _core.dtype(dtype or _core.int64)
    if high <= low:
        raise RuntimeError(f"randint: no integer is at least {low} and less than {high}")
    _check_integer_range("randint", f"integers from {low} to {high - 1} are asked for", low, high - 1, dtype)
    if high - low <= (1 << 31) - 1 and low >= -(1 << 31) and high <= (1 << 31) - 1:
        drawn = ops.random_int(next_key(generator), low, high, size)
    else:
        wide = _core.uint64 if high - 1 > iinfo(_core.int64).max else _core.int64
        drawn = _keyed.randint(next_key(generator), size, low, high, wide)
    return _finish(drawn, dtype, requires_grad, device)


def randint_like(x, low, high=None, dtype=None):
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, x.shape, dtype=dtype or x.dtype, device=x._device_name())


def randperm(n, *, generator=None, dtype=None, requires_grad=False, device=None):
    """Returns the integers 0 to n - 1 in a random order."""
    if n < 0:
        raise RuntimeError(f"randperm: {n} integers are asked for")
    _check_integer_range("randperm", f"the integers below {n} are asked for", 0, n - 1, _core.dtype(dtype or _core.int64))
    order = ops.lexsort([ops.random_bits(next_key(generator), (n,)), ops.random_bits(next_key(generator), (n,))], 0, False)
    return _finish(order, dtype or _core.int64, requires_grad, device)


def check_probability(name, p):
    """Raises an error if p is a number that is no probability; a tensor's values are not checked."""
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise RuntimeError(f"{name}: the probability is {p}, it must be from 0 to 1")


def bernoulli(p, *, generator=None):
    """Returns 1 with the probability that each element of p gives, else 0, in p's dtype. Below 0, or for NaN,
    it is always 0; above 1 it is always 1."""
    return ops.cast(ops.less(unit_floats(tuple(p.shape), p.dtype, generator), p), p.dtype)


def multinomial(weights, num_samples, replacement=False, *, generator=None):
    """Returns indices (..., num_samples) into the last axis, drawn with these weights; without replacement
    all of them differ. An index is -1 if nothing can be drawn: after all elements with a weight are drawn,
    and for weights that are negative, infinite or NaN."""
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
    noise = unit_floats(tuple(logits.shape), dtype, generator)
    # Each score is the largest with the probability of its weight.
    scores = logits - ops.log(-ops.log(noise + 2.0**-33))
    if replacement:
        result, best = ops.argmax(scores, axis=-1), ops.max(scores, axes=-1)
    else:
        best, result = ops.topk(scores, num_samples)
    return ops.select(ops.is_finite(best), ops.cast(result, _core.int64), -1)


def normal(mean=0.0, std=1.0, size=None, *, generator=None, dtype=None, requires_grad=False, device=None):
    """Returns normally distributed floats; mean and std are numbers (size gives the shape then) or tensors.
    Of a std tensor only the absolute values count."""
    if size is None:
        both = _core.asarray(mean) + _core.asarray(std)
        own = dtype or (both.dtype if both.dtype in FLOATS + COMPLEX else None)
        return _finish(gaussian(both.shape, mean, std, own, generator), dtype, requires_grad, device)
    return _finish(gaussian(tuple(size), mean, std, dtype, generator), dtype, requires_grad, device)
