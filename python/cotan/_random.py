"""Random numbers: a key and a counter, both operands of the plans that draw."""
import contextlib
import os
import threading

from . import _core
from ._core import ops


class Generator:
    """A stream of random numbers: the same seed gives the same ones, whatever is computed between."""

    def __init__(self, device="cpu"):
        self.device = device
        self._lock = threading.Lock()
        self.manual_seed(int.from_bytes(os.urandom(7), "little"))

    def manual_seed(self, seed):
        """From here on the numbers of this seed come, from their beginning."""
        self._seed, self._count, self._key = int(seed), 0, None
        return self

    def seed(self):
        """A seed of the system's randomness, which is given."""
        self.manual_seed(int.from_bytes(os.urandom(7), "little"))
        return self._seed

    def initial_seed(self):
        return self._seed

    def get_state(self):
        """Seed and counter, as a tensor of 2 integers."""
        return _core.asarray([_signed(self._seed), self._count])

    def set_state(self, state):
        self._seed, self._count = (int(number) for number in state.tolist())
        self._key = None
        return self

    def place(self):
        """Where it is in its stream, for back_at."""
        return self._seed, self._count

    @contextlib.contextmanager
    def back_at(self, place):
        """with generator.back_at(place): the numbers that came from there come again. None: it goes on where it is."""
        now = self.place()
        self._seed, self._count = place or now
        try:
            yield
        finally:
            self._seed, self._count = now if place else self.place()

    def next_key(self):
        """A key that no earlier call gave."""
        if _given.keys is not None:  # a function is recorded, which is given its keys
            if self is not default_generator:
                raise RuntimeError("a function that is compiled draws from the process's generator alone")
            if _given.keys:
                return _given.keys.pop(0)
        with self._lock:
            count, self._count = self._count, self._count + 1
        return _core._random_key_folded(_signed(self._seed), count)  # no kernel computes it

    def __getstate__(self):
        return self.device, self._seed, self._count

    def __setstate__(self, state):
        self.device, self._seed, self._count = state
        self._key, self._lock = None, threading.Lock()


def _signed(seed):
    """A seed as an integer of 64 bits."""
    seed &= (1 << 64) - 1
    return seed - (1 << 64) if seed >> 63 else seed


class _Given(threading.local):
    keys = None


_given = _Given()  # .keys: of a function that this thread records


@contextlib.contextmanager
def recording(keys):
    """with recording(keys): draws of the process's generator take these, as long as there are any."""
    _given.keys = list(keys)
    try:
        yield
    finally:
        _given.keys = None


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


def uniform(shape, low=0.0, high=1.0, dtype=None, generator=None):
    """Floats from low to high, all equally likely."""
    drawn = ops.random_uniform(next_key(generator), tuple(shape))
    return _finish(drawn if (low, high) == (0, 1) else drawn * (high - low) + low, dtype, False)


def gaussian(shape, mean=0.0, std=1.0, dtype=None, generator=None):
    """Floats with the normal distribution."""
    drawn = ops.random_normal(next_key(generator), tuple(shape))
    return _finish(drawn if (mean, std) == (0, 1) else drawn * std + mean, dtype, False)


def rand(*shape, generator=None, dtype=None, requires_grad=False, device=None):
    """Floats from 0 to 1, 1 excluded: rand(2, 3) or rand((2, 3))."""
    return _finish(ops.random_uniform(next_key(generator), _sizes(shape)), dtype, requires_grad, device)


def randn(*shape, generator=None, dtype=None, requires_grad=False, device=None):
    """Floats with the normal distribution of mean 0 and variance 1."""
    return _finish(ops.random_normal(next_key(generator), _sizes(shape)), dtype, requires_grad, device)


def rand_like(x, dtype=None, requires_grad=False, device=None):
    return rand(x.shape, dtype=dtype or x.dtype, requires_grad=requires_grad, device=device or x._place())


def randn_like(x, dtype=None, requires_grad=False, device=None):
    return randn(x.shape, dtype=dtype or x.dtype, requires_grad=requires_grad, device=device or x._place())


def randint(low, high=None, size=None, *, generator=None, dtype=None, requires_grad=False, device=None):
    """Integers (int64) from low (default 0) to high, high excluded: randint(10, (2, 3)), randint(2, 10, (2, 3))."""
    if size is None:
        low, high, size = 0, low, high
    if size is None:
        raise TypeError(f"randint: it needs the size, too: randint({high}, (2, 3))")
    if high - low > (1 << 31) - 1 or low < -(1 << 31) or high > (1 << 31):
        raise ValueError(f"randint: integers from {low} to {high} are asked for, they must have 32 bits")
    if high <= low:
        raise RuntimeError(f"randint: no integer is at least {low} and less than {high}")
    drawn = ops.random_int(next_key(generator), low, high, tuple(size))
    return _finish(drawn, dtype or _core.int64, requires_grad, device)


def randint_like(x, low, high=None, dtype=None):
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, x.shape, dtype=dtype or x.dtype, device=x._place())


def randperm(n, *, generator=None, dtype=None, requires_grad=False, device=None):
    """The integers 0 to n - 1 in a random order."""
    order = ops.lexsort([ops.random_bits(next_key(generator), (n,)), ops.random_bits(next_key(generator), (n,))], 0, False)
    return _finish(order, dtype or _core.int64, requires_grad, device)


def bernoulli(p, *, generator=None):
    """1 with the probability that each element of p says, else 0, in p's dtype."""
    drawn = ops.random_uniform(next_key(generator), p.shape)
    return ops.cast(ops.less(drawn, p), p.dtype)


def multinomial(weights, num_samples, replacement=False, *, generator=None):
    """Indices (..., num_samples) into the last axis, each as likely as its weight; without replacement all differ."""
    shape = tuple(weights.shape)
    if not replacement and num_samples > shape[-1]:
        raise RuntimeError(f"multinomial: {num_samples} different ones of {shape[-1]} are asked for")
    logits = ops.log(ops.cast(weights, _core.float32))
    if replacement:
        logits = ops.reshape(logits, shape[:-1] + (1, shape[-1]))
        logits = ops.expand(logits, shape[:-1] + (num_samples, shape[-1]))
    noise = ops.random_uniform(next_key(generator), logits.shape)
    scores = logits - ops.log(-ops.log(noise + 2.0**-33))  # the largest is as likely as its weight
    if replacement:
        return ops.cast(ops.argmax(scores, axis=-1), _core.int64)
    return ops.cast(ops.topk(scores, num_samples).indices, _core.int64)


def normal(mean=0.0, std=1.0, size=None, *, generator=None, dtype=None, requires_grad=False, device=None):
    """Floats with the normal distribution; mean and std are numbers (then size tells the shape) or tensors."""
    if size is None:
        mean, std = _core.asarray(mean), _core.asarray(std)
        shape = (mean + std).shape
        return _finish(ops.random_normal(next_key(generator), shape) * std + mean, dtype, requires_grad, device)
    return _finish(ops.random_normal(next_key(generator), tuple(size)) * std + mean, dtype, requires_grad, device)
