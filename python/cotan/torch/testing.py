"""torch.testing: assert_close and make_tensor."""
import cmath
import collections.abc
import math

from .. import _core
from .._core import Tensor, ops
from .._dtypes import finfo, iinfo, promote_types
from .._random import rand, randint

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
_TOLERANCES = {_core.float16: (1e-3, 1e-5), _core.bfloat16: (1.6e-2, 1e-5), _core.float32: (1.3e-6, 1e-5), _core.float64: (1e-7,
                                                                                                                           1e-7),
               _core.complex64: (1.3e-6, 1e-5), _core.complex128: (1e-7, 1e-7)}
_OF_NUMBERS = {int: _core.int64, float: _core.float64, complex: _core.complex128}
_EXACT = "biu"  # the kinds of dtypes without rounding


def _mismatch_text(default, identifier, extra, differences, tolerances):
    """`differences` are pairs (largest difference, its index or None), absolute and relative."""
    exact, noun = tolerances == (0, 0), identifier(default) if callable(identifier) else identifier or default
    lines = [f"{noun} are not {'equal' if exact else 'close'}!", "", extra]
    for kind, (most, index), limit in zip(("absolute", "relative"), differences, tolerances[::-1]):
        text = f"{kind.title()} difference: {most}" if index is None else f"Greatest {kind} difference: {most} at index {index}"
        lines.append(text if exact else f"{text} (up to {limit} allowed)")
    return "\n".join(lines)


def _numbers_text(a, b, tolerances, identifier=None):
    difference = abs(a - b)
    relative = float("inf") if b == 0 else difference / abs(b)
    return _mismatch_text("Scalars", identifier, f"Expected {b} but got {a}.", ((difference, None), (relative, None)), tolerances)


def _tensors_text(a, b, matches, tolerances):
    """Describes where a and b, of one shape, differ most among the elements that do not match."""
    if not a.shape:
        return _numbers_text(a.item(), b.item(), tolerances)
    if a.dtype.kind in _EXACT:
        a, b = ops.cast(a, _core.int64), ops.cast(b, _core.int64)
    wrong, total = matches.numel() - int(ops.sum(ops.cast(matches, _core.int64))), matches.numel()
    absolute = abs(a - b)
    largest = []
    for difference in (absolute, absolute / abs(b)):
        difference = ops.select(matches, _core.full((), 0, difference.dtype), difference).reshape(-1)
        at = place = int(difference.argmax())
        index = []
        for size in reversed(matches.shape):
            at, rest = divmod(at, size)
            index.append(rest)
        largest.append((difference[place].item(), tuple(reversed(index))))
    return _mismatch_text("Tensor-likes", None, f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})", largest,
                          tolerances)


def _compare_numbers(a, b, tolerances, options):
    if options["check_dtype"] and type(a) is not type(b):
        return f"The (d)types do not match: {type(a)} != {type(b)}."
    if a == b or options["equal_nan"] and cmath.isnan(a) and cmath.isnan(b):
        return None
    difference = abs(a - b)
    if cmath.isfinite(difference) and difference <= tolerances[1] + tolerances[0] * abs(b):
        return None
    return _numbers_text(a, b, tolerances)


def _compare_tensors(a, b, tolerances, options):
    pairs = [("shape", lambda x: x.shape, True), ("stride()", lambda x: x.stride(), options["check_stride"]),
             ("device", lambda x: x.device, options["check_device"]), ("dtype", lambda x: x.dtype, options["check_dtype"])]
    for name, value, checked in pairs:
        if checked and value(a) != value(b):
            return f"The values for attribute '{name}' do not match: {value(a)} != {value(b)}."
    if a.dtype != b.dtype:
        dtype = promote_types(*(_core.int64 if x.dtype.kind == "u" and x.dtype.bits > 8 else x.dtype for x in (a, b)))
        a, b = ops.cast(a, dtype), ops.cast(b, dtype)
    matches = ops.equal(a, b)
    if a.dtype.kind not in _EXACT or tolerances != (0, 0):
        wide = [ops.cast(x, _core.float64) if x.dtype.kind != "c" else x for x in (a, b)]
        difference = abs(wide[0] - wide[1])
        near = ops.less_equal(difference, tolerances[1] + tolerances[0] * abs(wide[1]))
        matches = ops.or_(matches, ops.and_(near, difference < float("inf")))
        if options["equal_nan"]:
            matches = ops.or_(matches, ops.and_(a != a, b != b))
    return None if bool(ops.all(matches)) else _tensors_text(a, b, matches, tolerances)


def _tolerances(a, b, rtol, atol):
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    if rtol is not None:
        return rtol, atol
    return tuple(max(pair) for pair in zip(_TOLERANCES.get(a, (0.0, 0.0)), _TOLERANCES.get(b, (0.0, 0.0))))


def _as_tensor(x):
    if isinstance(x, Tensor):
        return x
    try:
        return _core.asarray(x)
    except Exception:
        return None


def _failures(a, b, place, options):
    """Yields (error class, message) of each item that is not close."""
    where = "\n\nThe failure occurred for item " + "".join(f"[{key!r}]" for key in place) if place else ""
    both = lambda *kinds: isinstance(a, kinds) and isinstance(b, kinds)  # noqa: E731
    if both(collections.abc.Sequence) and not isinstance(a, str) and not isinstance(b, str):
        if len(a) != len(b):
            yield AssertionError, f"The length of the sequences mismatch: {len(a)} != {len(b)}{where}"
            return
        for i, (one, other) in enumerate(zip(a, b)):
            yield from _failures(one, other, (*place, i), options)
    elif both(collections.abc.Mapping):
        if a.keys() != b.keys():
            yield AssertionError, ("The keys of the mappings do not match:\n"
                                   f"Missing keys in the actual mapping: {sorted(b.keys() - a.keys())}\n"
                                   f"Additional keys in the actual mapping: {sorted(a.keys() - b.keys())}{where}")
            return
        for key in a:
            yield from _failures(a[key], b[key], (*place, key), options)
    elif both(type(None)):
        return
    else:
        message = _compare_leaves(a, b, options)
        if message is not None:
            yield (AssertionError if isinstance(message, str) else TypeError), "".join(message) + where


def _compare_leaves(a, b, options):
    """Returns why they are not close, a list with the text if they cannot be compared, None if they are."""
    if isinstance(a, bool) and isinstance(b, bool):
        return None if a == b else f"Booleans mismatch: {a} is not {b}"
    if type(a) in _OF_NUMBERS and type(b) in _OF_NUMBERS:
        return _compare_numbers(a, b, _tolerances(_OF_NUMBERS[type(a)], _OF_NUMBERS[type(b)], *options["tolerances"]), options)
    related = isinstance(a, type(b)) or isinstance(b, type(a))
    tensors = _as_tensor(a), _as_tensor(b)
    if None in tensors or not related or not options["allow_subclasses"] and type(a) is not type(b):
        if a is None or b is None:
            return f"None mismatch: {a} is not {b}"
        return [f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}."]
    return _compare_tensors(*tensors, _tolerances(tensors[0].dtype, tensors[1].dtype, *options["tolerances"]), options)


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
                 check_dtype=True, check_layout=True, check_stride=False, msg=None):
    """Raises AssertionError unless |actual - expected| <= atol + rtol * |expected| for all elements; tolerances
    are by default those of the dtype. Sequences and mappings are compared item by item."""
    __tracebackhide__ = True
    options = {"allow_subclasses": allow_subclasses, "tolerances": (rtol, atol), "equal_nan": equal_nan,
               "check_device": check_device,
               "check_dtype": check_dtype, "check_stride": check_stride}
    for kind, text in _failures(actual, expected, (), options):
        raise kind(msg(text) if callable(msg) else msg if msg is not None else text)


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """Compares by assert_close, without dtype and device."""
    actual, expected = _core.asarray(actual), _core.asarray(expected)
    if rtol is None and atol is None:
        rtol, atol = _tolerances(actual.dtype, expected.dtype, None, None)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False,
                 msg=msg or None)


def make_tensor(*shape, dtype, device=None, low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False,
                memory_format=None):
    """Returns a tensor of this shape, uniformly distributed from low to high (excluded): by default -9 to 9,
    0 to 9 for unsigned integers."""
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], collections.abc.Sequence) else shape
    exact = dtype.kind in _EXACT
    if requires_grad and exact:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}")
    whole = dtype == _core.bool
    least, above = (0, 2) if whole else (iinfo(dtype).min, iinfo(dtype).max + (dtype.bits < 64)) if exact else (
        finfo(dtype).min, finfo(dtype).max)
    low, high = (0 if whole else -9) if low is None else low, (2 if whole else 10 if exact else 9) if high is None else high
    if math.isnan(low) or math.isnan(high) or low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    low, high = min(max(low, least), above), min(max(high, least), above)
    if exact:
        result = ops.cast(randint(math.ceil(low), math.ceil(high), shape), dtype)
    elif dtype.kind == "c":
        part = _core.float32 if dtype == _core.complex64 else _core.float64
        result = ops.complex(*(rand(*shape, dtype=part) * (high - low) + low for _ in range(2)))
    else:
        result = ops.cast(rand(*shape) * (high - low) + low, dtype)
    if exclude_zero:
        result = ops.select(ops.equal(result, _core.full((), 0, dtype)), _core.full((), 1 if exact else finfo(dtype).tiny, dtype),
                            result)
    if device is not None:
        result = result.to(device)
    return result.requires_grad_() if requires_grad else result
