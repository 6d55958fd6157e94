"""For each op what its operands look like, and what NumPy makes of them. An op of the table that is not here fails."""
import math

import ml_dtypes
import numpy as np
import scipy.special
from op_attention import attention_backward_cases, attention_cases, np_attention, np_attention_backward
from op_cases import END, EXPANDED, FLOATS, NUMPY, PLAIN, REVERSED, Operand, draw, dyn, least, most, read_table
from op_windows import (adaptive, adaptive_cases, conv_cases, in_groups, np_avg_pool, np_conv, np_conv_transpose, np_conv_weight,
                        np_lp_pool, np_max_pool, np_max_pool_indices, np_windows, pool_cases, windows_cases)

RNG_SEED = 20240711


# ------------------------------------------------------------------------------------------ elementwise

def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64))


def whole_div(a, b):
    pairs = zip(*(v.ravel().tolist() for v in np.broadcast_arrays(a, b)))
    q = [0 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) for x, y in pairs]
    wrap = 1 << 8 * a.dtype.itemsize
    return np.array([v % wrap for v in q], np.uint64).astype(a.dtype).reshape(np.broadcast(a, b).shape)


def divide(a, b):
    return a / b if a.dtype.kind == "f" else whole_div(a, b)


def modulo(a, b):
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    one = a.dtype.type(1)
    return np.where(b == 0, a.dtype.type(0), np.fmod(a, np.where(b == 0, one, b))).astype(a.dtype)


def power(a, b):
    if a.dtype.kind == "f":
        return np.power(a, b)
    wrap = 1 << 8 * a.dtype.itemsize
    pairs = zip(*(v.ravel().tolist() for v in np.broadcast_arrays(a, b)))
    p = [pow(x, y, wrap) if y >= 0 else x ** (y % 2) if x in (1, -1) else 0 for x, y in pairs]
    return np.array([v % wrap for v in p], np.uint64).astype(a.dtype).reshape(np.broadcast(a, b).shape)


def shift(left):
    def f(a, b):
        bits = a.dtype.itemsize * 8
        unsigned = a.view(f"u{a.dtype.itemsize}")
        by = np.clip(b, 0, bits - 1).astype(unsigned.dtype)
        moved = unsigned << by if left else unsigned >> by
        return np.where((b < 0) | (b >= bits), 0, moved).astype(unsigned.dtype).view(a.dtype)
    return f


def erfinv(x):
    """By bisection; erf is monotonous."""
    lo, hi = np.full(x.shape, -7.0), np.full(x.shape, 7.0)
    for _ in range(200):
        mid = (lo + hi) / 2
        above = erf(mid) > x
        lo, hi = np.where(above, lo, mid), np.where(above, mid, hi)
    out = np.where(np.abs(x) > 1, np.nan, np.copysign((lo + hi) / 2, x))
    return np.where(np.abs(x) == 1, x * np.inf, np.where(np.isnan(x), np.nan, out))


def gelu(x, exact=False):
    if exact:
        return 0.5 * x * (1 + erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    most = ml_dtypes.finfo(x.dtype).max
    y = np.where(np.isnan(x), x.dtype.type(nan), x)
    y = np.where(x == np.inf, x.dtype.type(most if posinf is None else posinf), y)
    return np.where(x == -np.inf, x.dtype.type(-most if neginf is None else neginf), y)


def digamma(x):
    return np.where(x == 0, -np.copysign(np.inf, x), scipy.special.digamma(x))


def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    return np.isclose(a, b, rtol, atol, equal_nan)


# One function of arrays an op; operands are floats in f64, or the integers themselves. An elementwise op that NumPy
# has by the same name needs no entry.
ELEMENTWISE = {name: getattr(np, name) for name, op in read_table().items() if op.kind == "elementwise"
               and isinstance(getattr(np, name, None), np.ufunc) and getattr(np, name).nin == op.n_in}
ELEMENTWISE |= {
    "sub": np.subtract, "mul": np.multiply, "div": divide, "mod": modulo,
    "neg": np.negative, "round": np.rint, "erf": erf, "stop_gradient": lambda x: x,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shift_left": shift(True), "shift_right": shift(False), "select": np.where,
    "square": np.square, "reciprocal": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": power, "sign": np.sign, "clamp": lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
    "is_nan": np.isnan, "is_inf": np.isinf, "is_finite": np.isfinite,
    "relu": lambda x: np.where(x <= 0, x * 0 if x.dtype.kind != "f" else 0.0, x).astype(x.dtype),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": gelu, "erfinv": erfinv, "softplus": lambda x: np.logaddexp(x, 0).astype(x.dtype),
    "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, x * x.dtype.type(slope)),
    "log_sigmoid": lambda x: -np.logaddexp(-x, 0).astype(x.dtype),
}
# Of NumPy's names, though they are compositions here.
ELEMENTWISE |= {name: getattr(np, name) for name in (
    "tan sinh cosh log2 log10 signbit copysign nextafter hypot fmax fmin logaddexp cbrt deg2rad rad2deg "
    "sinc").split()}
ELEMENTWISE |= {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
                "atanh": np.arctanh, "remainder": np.remainder, "floor_divide": np.floor_divide,
                "xlogy": lambda x, y: np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log(y)),
                "heaviside": lambda x, h: np.where(x == 0, h, np.where(x == x, x > 0, x)).astype(x.dtype), "nan_to_num": nan_to_num, "isclose": isclose}
ELEMENTWISE |= {
    "elu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)),
    "celu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x / alpha)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)), "hardtanh": lambda x, low=-1, high=1: np.clip(x, low, high),
    "relu6": lambda x: np.clip(x, x.dtype.type(0), x.dtype.type(6)), "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * (np.clip(x + 3, 0, 6) / 6), "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "softshrink": lambda x, **k: np.where(np.abs(x) <= k.get("lambda", 0.5), 0, x - np.sign(x) * k.get("lambda", 0.5)),
    "hardshrink": lambda x, **k: np.where(np.abs(x) <= k.get("lambda", 0.5), 0, x),
    "threshold": lambda x, threshold=0.0, value=0.0: np.where(x <= threshold, value, x),
    "prelu": lambda x, slope: np.where(x > 0, x, slope * x), "logit": lambda x: np.log(x / (1 - x))}
ELEMENTWISE |= {"erfc": scipy.special.erfc, "lgamma": lambda x: np.where(np.isinf(x), np.inf, scipy.special.gammaln(x)), "digamma": digamma}
ELEMENTWISE_ATTRS = {
    "elu": [{}, {"alpha": 0.5}], "celu": [{}, {"alpha": 0.5}], "hardtanh": [{}, {"low": -0.5, "high": 1.25}],
    "softshrink": [{}, {"lambda": 0.25}], "hardshrink": [{}, {"lambda": 0.25}], "threshold": [{}, {"threshold": 0.25, "value": -3.5}],
    "gelu": [{}, {"exact": True}], "nan_to_num": [{}, {"nan": 1.5, "posinf": 7, "neginf": -3}],
                     "isclose": [{}, {"rtol": 0.25, "atol": 0.5, "equal_nan": True}]}
# Ops of floats whose results depend on the dtype's own steps: NumPy has the operands as they are.
IN_OWN_DTYPE = {"nextafter", "nan_to_num"}


def elementwise(rng, op, dtype):
    """Operands of all the layouts that an elementwise op meets."""
    def at(shape, place=0):
        kind = "bool" if op.name == "select" and place == 0 else dtype
        return draw(rng, op, kind, shape, op.kinks)

    def several(*shapes):
        return [at(shapes[i % len(shapes)], i) for i in range(op.n_in)]

    yield several((2, 3))
    yield several(())
    yield several((1,))
    yield several((0, 3))
    yield several((7, 13))
    yield several((17,), (1,), (17,))
    yield several((4, 1, 3), (5, 1), (3,))
    yield several((), (2, 3), (3,))
    yield [Operand(a, REVERSED) for a in several((3, 5))]
    yield [Operand(a, REVERSED if i == 0 else PLAIN) for i, a in enumerate(several((2, 3, 5)))]
    yield [Operand(a, EXPANDED, (4, 3)) for a in several((3,))]
    yield [Operand(a, EXPANDED, (2, 5, 3)) if i == 0 else a
           for i, a in enumerate(several((5, 1), (2, 5, 3)))]


FLOAT_EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 3.0, 1e-3, -1e-3]
EDGES = {"u8": [0, 1, 2, 127, 128, 255], "bool": [0, 1], "u32": [0, 1, 2, 31, 2**31, 2**32 - 1],
         "u16": [0, 1, 2, 15, 16, 2**15, 2**16 - 1], "u64": [0, 1, 2, 63, 64, 2**31, 2**63, 2**64 - 1],
         "i8": [0, 1, -1, 2, 7, 8, 127, -128], "i16": [0, 1, -1, 2, 15, 16, 2**15 - 1, -2**15],
         "i32": [0, 1, -1, 2, 31, 2**31 - 1, -2**31], "i64": [0, 1, -1, 2, 63, 2**31, -2**62]}


def edges(op, dtype):
    """Every pairing of the values at which functions change their mind."""
    values = FLOAT_EDGES if dtype in FLOATS else EDGES[dtype]
    values = np.array(values, NUMPY[dtype])
    if op.name == "select":
        a, b = np.meshgrid(values, values)
        return [np.array([[True], [False]]), a.reshape(1, -1), b.reshape(1, -1)]
    return [m.ravel() for m in np.meshgrid(*[values] * op.n_in)]


# ------------------------------------------------------------------------------------------ reductions

def reduce_with(f, empty=None):
    def g(x, axes=(), keepdims=False):
        axes = tuple(axes) or None
        if empty is not None and x.size == 0:
            return f(x, axis=axes, keepdims=keepdims, initial=empty(x.dtype))
        return f(x, axis=axes, keepdims=keepdims)
    return g


def as_own(f):
    """NumPy sums small integers in wider ones."""
    return lambda x, **k: f(x, **k).astype(x.dtype)


def quiet_mean(x, axes=(), keepdims=False):
    n = np.prod([x.shape[a] for a in (axes or range(x.ndim))])
    with np.errstate(all="ignore"):
        return x.sum(axis=tuple(axes) or None, keepdims=keepdims) / n


def variance(x, axes=(), keepdims=False, correction=0):
    axes = tuple(axes) or tuple(range(x.ndim))
    n = np.prod([x.shape[a] for a in axes])
    with np.errstate(all="ignore"):
        d = x - x.sum(axis=axes, keepdims=True) / n
        return (d * d).sum(axis=axes, keepdims=keepdims) / (n - correction)


def logsumexp(x, axes=(), keepdims=False):
    axes = tuple(a % x.ndim for a in axes) or tuple(range(x.ndim))
    m = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    m = np.where(np.isfinite(m), m, 0)
    with np.errstate(divide="ignore"):
        out = np.log(np.exp(x - m).sum(axis=axes, keepdims=True)) + m
    return out if keepdims else out.reshape([s for a, s in enumerate(x.shape) if a not in axes])


def softmax(x, axes=(), masked_zero=False):
    axes = tuple(axes) or (-1,)
    most = x.max(axis=axes, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(x - most)
    return np.where(np.isneginf(most) & masked_zero, 0, e / e.sum(axis=axes, keepdims=True))


def leaving_out(f):
    def g(x, axes=(), keepdims=False):
        if x.size == 0:  # NumPy's raise
            return np.full(np.sum(x, axis=tuple(axes) or None, keepdims=keepdims).shape, np.nan)
        with np.testing.suppress_warnings() as quiet:
            quiet.filter(RuntimeWarning)
            return f(x, axis=tuple(axes) or None, keepdims=keepdims)
    return g


def counted(x, axes=(), keepdims=False):
    return np.asarray(np.count_nonzero(x, axis=tuple(axes) or None, keepdims=keepdims)).astype(np.int32)


def nan_cases(rng, op, dtype):
    """The cases of a reduction, some elements NaN, and a row of nothing else."""
    for operands, attrs in reduce_cases(rng, op, dtype):
        x = operands[0]
        if op.kinks and isinstance(x, Operand) and x.view == EXPANDED:  # ties
            continue
        yield operands, attrs
        if isinstance(x, np.ndarray) and x.ndim == 2 and x.size:
            holed = np.where(rng.random(x.shape) < 0.4, x.dtype.type(np.nan), x)
            holed[0] = np.nan
            yield [holed], attrs


REDUCE = {
    "count_nonzero": counted, "std": lambda x, **k: np.sqrt(variance(x, **k)),
    "sum": as_own(reduce_with(np.sum)), "prod": as_own(reduce_with(np.prod)),
    "max": reduce_with(np.max, least), "min": reduce_with(np.min, most),
    "mean": quiet_mean, "var": variance, "logsumexp": logsumexp,
    "any": reduce_with(np.any), "all": reduce_with(np.all),
}


def reduce_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape, op.kinks)
    yield [x(3, 5)], {}
    yield [x(3, 5)], {"axes": [0]}
    yield [x(3, 5)], {"axes": [1], "keepdims": True}
    yield [x(2, 3, 4)], {"axes": [0, 2]}
    yield [x(2, 3, 4)], {"axes": [-1], "keepdims": True}
    yield [Operand(x(2, 3, 7), REVERSED)], {"axes": [1]}
    yield [Operand(x(5, 1), EXPANDED, (3, 5, 2))], {"axes": [0, 2]}
    yield [Operand(x(6), dims=[dyn(6)])], {}
    yield [Operand(x(2, 6), dims=[2, dyn(6)])], {"axes": [1], "keepdims": True}
    yield [x()], {}
    yield [x(1, 1)], {"axes": [1]}
    yield [x(0, 3)], {"axes": [0]}
    yield [x(3, 0)], {"axes": [0]}
    yield [x(131)], {}
    yield [x(67, 3)], {"axes": [0]}
    if op.name in ("var", "std"):
        yield [x(4, 3)], {"axes": [0], "correction": 1}


def place_of(f):
    return lambda x, axis=0, keepdims=False: f(x, axis=axis, keepdims=keepdims).astype(np.int32)


def place_cases(rng, op, dtype):
    yield [draw(rng, op, dtype, (5,))], {}
    yield [draw(rng, op, dtype, (3, 7))], {"axis": 1}
    yield [Operand(draw(rng, op, dtype, (3, 7, 2)), REVERSED)], {"axis": -2, "keepdims": True}
    yield [draw(rng, op, dtype, (0, 7))], {"axis": 1}
    yield [np.zeros((2, 3), NUMPY[dtype])], {"axis": 1}  # the first of equals
    if dtype in FLOATS:
        yield [np.array([1, np.nan, np.inf, np.nan], NUMPY[dtype])], {}


# ------------------------------------------------------------------------------------------ movement

def movement(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    name = op.name
    if name == "reshape":
        yield [x(2, 6)], {"dims": [3, 4]}
        yield [x(2, 6)], {"dims": [-1]}
        yield [x(1)], {"dims": []}
        yield [x()], {"dims": [1, 1]}
        yield [x(0, 4)], {"dims": [2, 0]}
        yield [Operand(x(3, 5), REVERSED)], {"dims": [5, -1]}
    elif name == "permute":
        yield [x(2, 3)], {}
        yield [x(2, 3, 5)], {"axes": [1, 2, 0]}
        yield [x(0, 3)], {"axes": [1, 0]}
        yield [Operand(x(2, 3, 5), REVERSED)], {"axes": [-1, 0, 1]}
    elif name == "expand":
        yield [x()], {"dims": [2, 3]}
        yield [x(3, 1)], {"dims": [2, 3, 4]}
        yield [x(1, 3)], {"dims": [0, 3]}
        yield [Operand(x(4, 1), REVERSED)], {"dims": [4, 5]}
    elif name == "slice":
        yield [x(7)], {"start": [2], "stop": [5]}
        yield [x(7, 4)], {"start": [1, -2], "stop": [-1, END], "step": [2, 1]}
        yield [x(7, 5)], {"axes": [1], "start": [1], "stop": [5], "step": [3]}
        yield [Operand(x(5, 7), REVERSED)], {"axes": [-1, 0], "start": [-3, 1]}
        yield [x(7)], {"start": [3], "stop": [3]}
        yield [x(0, 3)], {"axes": [1], "stop": [2]}
        yield [Operand(x(4, 9), dims=[4, dyn(9)])], {"axes": [1], "start": [2]}
        yield [x(2, 4)], {"start": [0, 1], "step": [END, 2**62]}  # longer than the axis
        yield [Operand(x(2, 4), dims=[dyn(2), 4])], {"step": [END, 3]}
    elif name == "pad":
        fill = np.array(draw(rng, op, dtype, ()))
        yield [x(3), fill], {"low": [2], "high": [1]}
        yield [x(3, 2), fill], {"low": [0, 1], "interior": [2, 1]}
        yield [x(0), fill], {"low": [2], "high": [1], "interior": [3]}
        yield [x(), fill], {}
        yield [x(1, 2), fill], {"low": [1, 0], "interior": [END, 1]}  # between what is not there
        yield [Operand(x(1, 2), dims=[dyn(1), 2]), fill], {"interior": [END, 1]}
        yield [Operand(x(2, 3), REVERSED), fill], {"high": [1, 0], "interior": [0, 1]}
    elif name == "flip":
        yield [x(5)], {}
        yield [x(2, 3)], {"axes": [-1]}
        yield [Operand(x(2, 3, 4), REVERSED)], {"axes": [0, 2]}
        yield [x(0, 2)], {}
    elif name == "concat":
        yield [x(3), x(2)], {}
        yield [x(2, 3), x(2, 0), x(2, 1)], {"axis": 1}
        yield [x(4)], {}
        yield [Operand(x(2, 3), REVERSED), x(1, 3)], {"axis": 0}
        yield [x(2, 2), Operand(x(1, 2), EXPANDED, (3, 2))], {"axis": -2}
        yield [Operand(x(2, 3), dims=[2, dyn(3)]), x(2, 2)], {"axis": 1}
    elif name == "dynamic_slice":
        def at(*v): return np.array(v, np.int32)
        yield [x(7), at(2)], {"sizes": [3]}
        yield [x(7), np.int64(6)], {"sizes": [3]}  # moved inside
        yield [x(7, 5), at(-4, 1)], {"sizes": [2, 2]}
        yield [x(2, 7, 5), at(3, 1)], {"axes": [2, 1], "sizes": [2, 3]}
        yield [Operand(x(4, 5), REVERSED), at(1)], {"axes": [-1], "sizes": [5]}
        yield [x(3, 0), at(2)], {"axes": [0], "sizes": [1]}
    elif name == "dynamic_update":
        def at(*v): return np.array(v, np.int32)
        yield [x(7), x(3), at(2)], {}
        yield [x(7), x(3), np.int64(100)], {}
        yield [x(7, 5), x(2, 2), at(-1, 1)], {}
        yield [x(2, 7, 5), x(2, 3, 5), at(3)], {"axes": [1]}
        yield [Operand(x(4, 5), REVERSED), Operand(x(4, 2), REVERSED), at(1)], {"axes": [-1]}
        yield [x(5), x(0), at(2)], {}


def np_slice(x, axes=(), start=(), stop=(), step=()):
    cut = [slice(None)] * x.ndim
    axes = list(axes) or list(range(max(len(start), len(stop), len(step))))
    for i, a in enumerate(axes):
        end = stop[i] if stop else END
        cut[a] = slice(start[i] if start else 0, None if end == END else end,
                       step[i] if step else 1)
    return x[tuple(cut)]


def np_pad(x, fill, low=(), high=(), interior=()):
    low, high, interior = (list(v) or [0] * x.ndim for v in (low, high, interior))
    shape = [lo + n + max(n - 1, 0) * i + hi
             for n, lo, hi, i in zip(x.shape, low, high, interior)]
    out = np.full(shape, fill, x.dtype)
    out[tuple(slice(lo, lo + n + max(n - 1, 0) * i, i + 1)
              for n, lo, i in zip(x.shape, low, interior))] = x
    return out


def window(x, sizes, starts, axes):
    cut = [slice(None)] * x.ndim
    axes = list(axes) or list(range(x.ndim))
    for a, size, start in zip(axes, sizes, np.atleast_1d(starts)):
        at = min(max(int(start), 0), x.shape[a] - size)
        cut[a] = slice(at, at + size)
    return tuple(cut)


def np_dynamic_slice(x, starts, axes=(), sizes=()):
    return x[window(x, sizes, starts, axes)]


def np_dynamic_update(x, update, starts, axes=()):
    out = x.copy()
    sizes = [update.shape[a] for a in (list(axes) or range(x.ndim))]
    out[window(x, sizes, starts, axes)] = update
    return out


MOVEMENT = {
    "reshape": lambda x, dims=(): x.reshape(dims),
    "permute": lambda x, axes=(): np.transpose(x, axes or None),
    "expand": lambda x, dims=(): np.broadcast_to(x, dims),
    "slice": np_slice, "pad": np_pad,
    "flip": lambda x, axes=(): np.flip(x, tuple(axes) or None),
    "concat": lambda *xs, axis=0: np.concatenate(xs, axis),
    "dynamic_slice": np_dynamic_slice, "dynamic_update": np_dynamic_update,
}


# ------------------------------------------------------------------------------------------ indices

DROP, CLIP, PROMISE_IN_BOUNDS = range(3)  # ct_index_mode


def np_gather(x, indices, axis=0, batch_dims=0, zero_outside=False):
    axis %= x.ndim
    batch = x.shape[:batch_dims]
    rest = indices.shape[batch_dims:]
    out = np.zeros(x.shape[:axis] + rest + x.shape[axis + 1:], x.dtype)
    outside = np.nan if x.dtype.kind == "f" and not zero_outside else 0
    for b in np.ndindex(*batch):
        for i in np.ndindex(*rest):
            at = int(indices[b + i])
            to = b + (slice(None),) * (axis - batch_dims) + i
            inside = 0 <= at < x.shape[axis]
            out[to] = np.take(x[b], at, axis - batch_dims) if inside else outside
    return out


def scatter_with(put):
    """x with updates put to it, one after the other, by a function of what is there and the update."""
    def scatter(x, indices, updates, axis=0, batch_dims=0, mode=DROP, unique=False, sorted=False):
        axis %= x.ndim
        n, out = x.shape[axis], x.copy()
        for b in np.ndindex(*x.shape[:batch_dims]):
            for i in np.ndindex(*indices.shape[batch_dims:]):
                at = int(indices[b + i])
                at = min(max(at, 0), n - 1) if mode == CLIP else at
                lead = b + (slice(None),) * (axis - batch_dims)
                if 0 <= at < n:
                    out[lead + (at,)] = put(out[lead + (at,)], updates[lead + i])
        return out
    return scatter


SCATTERS = {"scatter_add": np.add, "scatter": lambda old, new: new, "scatter_mul": np.multiply, "scatter_min": np.minimum, "scatter_max": np.maximum}


def index_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape, op.kinks)

    def scatters(a, indices, attrs, view=PLAIN):
        where = {k: attrs[k] for k in ("axis", "batch_dims") if k in attrs}
        updates = x(*np_gather(a, indices, **where).shape)
        yield [Operand(a, view), indices, Operand(updates, view)], attrs

    def at(n, *shape, kind=np.int32):
        return rng.integers(-1 if op.name == "gather" else -2, n + 1, shape).astype(kind)
    layouts = [
        ((5,), at(5, 4), {}),
        ((5, 3), at(5, 2, 2), {}),
        ((4, 5, 3), at(5, 2, kind=np.int64), {"axis": 1}),
        ((2, 5, 3), at(5, 2, 7), {"axis": 1, "batch_dims": 1}),
        ((2, 3, 5), at(5, 2, 4), {"axis": 2, "batch_dims": 1}),
        ((2, 3, 5), at(5, 2, 3), {"axis": -1, "batch_dims": 2}),
        ((5, 2), np.int32(3), {}),
        ((5, 0), at(5, 3), {}),
        ((5, 2), at(5, 0), {}),
        ((200, 2), rng.integers(0, 200, 3).astype(np.uint8), {}),
    ]
    for shape, indices, attrs in layouts:
        a = x(*shape)
        if op.name == "gather":
            yield [a, indices], attrs
            yield [Operand(a, REVERSED), indices], attrs | {"zero_outside": True}
        else:
            yield from scatters(a, indices, attrs)
            yield from scatters(a, indices, attrs | {"mode": CLIP}, REVERSED)
    if op.name == "gather":
        return
    some, sorts = rng.permutation(40).astype(np.int32), {"sorted": True}
    yield from scatters(x(40, 2), some[:30], {"unique": True})
    yield from scatters(x(40), some - 3, {"unique": True, "mode": DROP})
    yield from scatters(x(3, 40), some[:30], {"unique": True, "mode": PROMISE_IN_BOUNDS, "axis": 1})
    yield from scatters(x(40, 2), np.sort(some[:30]), {"unique": True} | sorts)
    yield from scatters(x(3, 9), np.sort(at(9, 30)), {"axis": 1} | sorts)
    yield from scatters(x(9), np.sort(at(9, 30)), {"mode": CLIP} | sorts)
    yield from scatters(x(9), np.sort(rng.integers(0, 9, 30)), {"mode": PROMISE_IN_BOUNDS} | sorts)


# ------------------------------------------------------------------------------------------ order

def scan_with(f):
    """A ufunc along an axis, the other way round where it is reversed."""
    def g(x, axis=0, reverse=False):
        x = np.flip(x, axis) if reverse else x
        out = f.accumulate(x, axis=axis, dtype=x.dtype)
        return np.flip(out, axis) if reverse else out
    return g


def linear_recurrence(a, b, axis=0, reverse=False):
    way = slice(None, None, -1 if reverse else 1)
    a, b = np.moveaxis(a, axis, 0)[way], np.moveaxis(b, axis, 0)[way]
    out, y = np.empty(a.shape), np.zeros(a.shape[1:])
    for k in range(len(a)):
        y = out[k] = a[k] * y + b[k]
    return np.moveaxis(out[way], 0, axis)


SCANS = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum,
         "logcumsumexp": np.logaddexp}


def np_topk(x, k=0):
    rank = np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x
    nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    order = np.zeros(x.shape[:-1] + (k,), np.int32)
    for row in np.ndindex(*x.shape[:-1]):
        order[row] = sorted(range(x.shape[-1]),
                            key=lambda i: (not nan[row][i], -int(rank[row][i])
                                           if x.dtype.kind != "f" else -rank[row][i], i))[:k]
    return [np.take_along_axis(x, order.astype(np.int64), -1), order]


def np_argsort(x, axis=0, descending=False):
    if descending:  # from the end, so that equals stay in their order
        return np.flip(x.shape[axis] - 1 - np_argsort(np.flip(x, axis), axis), axis).astype(np.int32)
    return np.argsort(x, axis, kind="stable").astype(np.int32)


def np_lexsort(*keys, axis=0, descending=False):
    order = np.broadcast_to(np.arange(keys[0].shape[axis]).reshape([-1 if a == axis % keys[0].ndim else 1 for a in range(keys[0].ndim)]),
                            keys[0].shape)
    for key in reversed(keys):
        by = np_argsort(np.take_along_axis(key, order, axis), axis, descending)
        order = np.take_along_axis(order, by.astype(np.int64), axis)
    return order.astype(np.int32)


def np_take_along(x, indices, axis=0):
    at = indices.astype(np.int64)
    inside = (at >= 0) & (at < x.shape[axis])
    outside = np.nan if x.dtype.kind == "f" else 0
    if not x.shape[axis]:
        return np.full(at.shape, outside, x.dtype)
    return np.where(inside, np.take_along_axis(x, np.where(inside, at, 0), axis), np.asarray(outside, x.dtype))


def np_sort_pairs(keys, values, axis=0, descending=False):
    order = np_argsort(keys, axis, descending).astype(np.int64)
    return [np.take_along_axis(keys, order, axis), np.take_along_axis(values, order, axis)]


def np_searchsorted(x, values, batch_dims=0, right=False):
    out = np.zeros(values.shape, np.int32)
    for b in np.ndindex(*x.shape[:batch_dims]):
        out[b] = np.searchsorted(x[b], values[b], "right" if right else "left")
    return out


def np_unique(x, *fill, size=0, present=0):
    size = size or x.size
    values, index, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    rest = max(0, size - len(values))
    fill = fill[0] if fill else values[0] if len(values) else np.asarray(np.nan if x.dtype.kind == "f" else 0, x.dtype)
    first = index[0] if len(index) else 0
    return [np.append(values[:size], [fill] * rest).astype(x.dtype), np.append(index[:size], [first] * rest).astype(np.int32),
            inverse.reshape(x.shape).astype(np.int32), np.append(counts[:size], [0] * rest).astype(np.int32)]


SORTS = {"argsort": np_argsort, "sort": lambda x, axis=0, descending=False: np_sort_pairs(x, x, axis, descending)[0],
         "sort_pairs": np_sort_pairs, "lexsort": np_lexsort}


def sort_cases(rng, op, dtype):
    def keys(*shape):
        count = 3 if op.name == "lexsort" else op.n_in
        if op.gradient:
            return [draw(rng, op, dtype, shape, True) for _ in range(count)]
        return [rng.integers(0, 4, shape).astype(NUMPY[dtype]) for _ in range(count)]  # many equals
    for attrs in ({}, {"descending": True}):
        yield keys(7), attrs
        yield keys(1), attrs
        yield keys(3, 5), attrs | {"axis": 1}
        yield [Operand(x, REVERSED) for x in keys(2, 3, 5)], attrs | {"axis": -2}
        yield keys(0, 2), attrs
        yield keys(40, 0), attrs
        yield [Operand(x, dims=[2, dyn(50)]) for x in keys(2, 50)], attrs | {"axis": 1}
        yield keys(100, 2), attrs
        yield keys(2, 9, 3), attrs | {"axis": 1}
        if dtype in FLOATS:
            odd = np.array([1, np.nan, -np.inf, 0, -0.0, 2, np.nan, np.inf, 0, 1, -0.0, -1] * 3, NUMPY[dtype])
            yield [odd] + [x.reshape(-1) for x in keys(36)[1:]], attrs


def take_along_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    for shape, count, axis in (((5,), 7, 0), ((2, 5, 3), 4, 1), ((3, 4), 4, -1), ((4, 3), 0, 0)):
        at = list(shape)
        at[axis] = count
        yield [x(*shape), rng.integers(-1, shape[axis] + 1, at).astype(np.int32)], {"axis": axis}
    yield [Operand(x(3, 5), REVERSED), rng.integers(0, 5, (3, 9))], {"axis": 1}


def search_cases(rng, op, dtype):
    def line(*shape):
        return np.sort(rng.integers(0, 9, shape).astype(NUMPY[dtype]), -1)

    def x(*shape):
        return rng.integers(0, 10, shape).astype(NUMPY[dtype])
    for right in ({}, {"right": True}):
        yield [line(20), x(4, 5)], right
        yield [line(20), x()], right
        yield [line(0), x(3)], right
        yield [line(3), x(0)], right
        yield [line(2, 17), x(2, 6)], right | {"batch_dims": 1}
        yield [line(2, 3, 1), x(2, 3)], right | {"batch_dims": 2}
        yield [Operand(line(16), dims=[dyn(16)]), Operand(x(40), dims=[dyn(40)])], right
        if dtype in FLOATS:
            yield [np.array([-np.inf, -1, -0.0, 0, 2, np.inf, np.nan, np.nan], NUMPY[dtype]),
                   np.array([np.nan, -np.inf, np.inf, 0, -0.0, 5], NUMPY[dtype])], right


def unique_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape, True) if op.gradient and dtype == "f64" else rng.integers(0, 9, shape).astype(NUMPY[dtype])
    fill = np.asarray(7, NUMPY[dtype])
    for size in (4, 30):
        yield [x(12)], {"size": size}
        yield [x(3, 7), fill], {"size": size, "present": 1}
    yield [Operand(x(4, 5), REVERSED)], {"size": 6}
    yield [x(9)], {}
    yield [x(3, 5), fill], {"present": 1}
    yield [Operand(x(4, 6), dims=[dyn(4), dyn(6)])], {}
    yield [x(0)], {}
    yield [x()], {"size": 3}
    yield [x(0), fill], {"size": 3, "present": 1}
    yield [Operand(x(20), dims=[dyn(20)])], {"size": 9}
    yield [rng.integers(0, 4, 40).astype(NUMPY[dtype])], {"size": 6}
    if dtype in FLOATS:
        yield [np.array([1, np.nan, 1, 0, -np.inf, np.nan, 2, 0], NUMPY[dtype]), fill], {"size": 7, "present": 1}


def along_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape, op.kinks)
    if op.kind == "scan":
        def several(*shape):
            return [x(*shape) for _ in range(op.n_in)]
        for attrs in ({}, {"reverse": True}):
            yield several(7), attrs
            yield several(3, 5), attrs | {"axis": 1}
            yield [Operand(a, REVERSED) for a in several(2, 3, 5)], attrs | {"axis": -2}
            yield several(0, 2), attrs
            yield several(1), attrs
            yield [Operand(a, dims=[2, dyn(6)]) for a in several(2, 6)], attrs | {"axis": 1}
            yield several(1100, 2), attrs  # two blocks
        if op.name == "cumprod":
            yield [np.array([2, 0, 3, 0, 1], NUMPY[dtype])], {}
        if dtype in FLOATS and op.n_in == 1:
            yield [np.array([1, np.inf, 2, -np.inf, 1, np.nan, 1], NUMPY[dtype])], {}
            yield [np.array([-np.inf, -np.inf, 1], NUMPY[dtype])], {}
    else:
        yield [x(7)], {"k": 3}
        yield [x(3, 5)], {"k": 5}
        yield [x(3, 5)], {"k": 0}
        yield [x(0, 5)], {"k": 2}
        yield [Operand(x(11, 2), REVERSED)], {"k": 1}
        if dtype in FLOATS:
            yield [np.array([1, np.nan, 3, np.inf, np.nan, -1], NUMPY[dtype])], {"k": 4}
        yield [np.array([2, 1, 2, 2, 1], NUMPY[dtype])], {"k": 4}  # equals: no derivative


# ------------------------------------------------------------------------------------------ matmul

def matmul_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    yield [x(2, 3), x(3, 4)], {}
    yield [x(7, 13), x(13, 5)], {}
    yield [Operand(x(3, 5), REVERSED), Operand(x(5, 2), REVERSED)], {}
    yield [x(2, 4, 3), x(3, 5)], {}
    yield [x(2, 1, 4, 3), x(3, 3, 5)], {}
    yield [x(0, 3), x(3, 4)], {}
    yield [x(2, 0), x(0, 4)], {}
    yield [x(1, 1), x(1, 1)], {}
    yield [x(3, 4, 67), x(3, 67, 2)], {}


def np_contract(a, b, a_axes=(), b_axes=(), a_batch=(), b_batch=()):
    """By numbers for axes, as np.einsum takes them: those of b behind a's, but where they are paired."""
    of_a, of_b = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    pairs = [(x % a.ndim, y % b.ndim) for x, y in zip((*a_axes, *a_batch), (*b_axes, *b_batch))]
    if (len(a_axes), len(a_batch)) != (len(b_axes), len(b_batch)) or any(len(set(named)) < len(pairs) for named in zip(*pairs)):
        raise ValueError("axes that are in no pair, or in two")
    if any(a.shape[x] != b.shape[y] for x, y in pairs):
        raise ValueError("sizes differ")
    for x, y in pairs:
        of_b[y] = of_a[x]
    batch = [x % a.ndim for x in a_batch]
    gone = batch + [x % a.ndim for x in a_axes]
    out = np.einsum(a, of_a, b, of_b, batch + [x for x in of_a + of_b if x not in gone])
    return out.astype(a.dtype)


def contract_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    yield [x(2, 3), x(3, 4)], {"a_axes": [1], "b_axes": [0]}
    yield [x(7, 13), x(5, 13)], {"a_axes": [-1], "b_axes": [-1]}
    yield [x(3, 4), x(2)], {}  # all products
    yield [x(), x(3)], {}
    yield [x(), x()], {}
    yield [x(70), x(70)], {"a_axes": [0], "b_axes": [0]}
    yield [x(4, 67), x(67)], {"a_axes": [1], "b_axes": [0]}  # a vector: lanes along the rows
    yield [x(5), x(5, 40)], {"a_axes": [0], "b_axes": [0]}
    yield [x(2, 3, 4, 5), x(2, 6, 4, 5)], {"a_axes": [3], "b_axes": [3], "a_batch": [0, 2], "b_batch": [0, 2]}
    yield [x(3, 2, 5, 4), x(5, 7, 2)], {"a_axes": [2, 1], "b_axes": [0, 2]}  # not in the order of either
    yield [x(3, 2, 4), x(4, 2, 5)], {"a_axes": [1, 2], "b_axes": [1, 0]}
    yield [x(4, 3, 2, 5), x(3, 6, 4)], {"a_axes": [0], "b_axes": [2], "a_batch": [1], "b_batch": [0]}
    yield [x(2, 3, 4), x(2, 3, 4)], {"a_axes": [2], "b_axes": [2], "a_batch": [0, 1], "b_batch": [0, 1]}
    yield [x(2, 3), x(3, 2)], {"a_batch": [0, 1], "b_batch": [1, 0]}
    yield [Operand(x(3, 4, 5), REVERSED), Operand(x(5, 2, 4), REVERSED)], {"a_axes": [1, 2], "b_axes": [2, 0]}
    yield [Operand(x(4, 1), EXPANDED, (2, 4, 3)), x(3, 5)], {"a_axes": [2], "b_axes": [0]}
    yield [x(3, 0), x(0, 2)], {"a_axes": [1], "b_axes": [0]}
    yield [x(0, 3), x(3, 2)], {"a_axes": [1], "b_axes": [0]}
    rows, keys = dyn(3), dyn(6)
    yield [Operand(x(3, 2, 6), dims=[rows, 2, keys]), Operand(x(6, 2, 5), dims=[keys, 2, 5])], \
        {"a_axes": [2, 1], "b_axes": [0, 1]}
    yield [Operand(x(3, 6), dims=[rows, 6]), Operand(x(3, 4, 6), dims=[rows, 4, 6])], \
        {"a_axes": [1], "b_axes": [2], "a_batch": [0], "b_batch": [0]}


def group_ends(rows, sizes):
    return np.minimum(np.cumsum(np.maximum(sizes.astype(np.int64), 0)), rows)


def np_ragged_matmul(a, b, sizes):
    out, start = np.zeros((a.shape[0], b.shape[2]), a.dtype), 0
    for g, end in enumerate(group_ends(a.shape[0], sizes)):
        out[start:end] = a[start:end] @ b[g]
        start = end
    return out


def np_ragged_outer(a, b, sizes):
    out, start = np.zeros((len(sizes), a.shape[1], b.shape[1]), a.dtype), 0
    for g, end in enumerate(group_ends(a.shape[0], sizes)):
        out[g] = a[start:end].T @ b[start:end]
        start = end
    return out


def ragged_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)

    def given(m, k, n, *sizes, kind=np.int32, view=None):
        second = x(len(sizes), k, n) if op.name == "ragged_matmul" else x(m, n)
        a = x(m, k)
        return [Operand(a, REVERSED) if view else a, Operand(second, REVERSED) if view else second, np.array(sizes, kind)], {}
    yield given(6, 3, 4, 2, 4)
    yield given(40, 5, 3, 1, 0, 17, 22)
    yield given(70, 2, 3, 70)
    yield given(7, 3, 2, 2, 3)  # rows behind the last group
    yield given(7, 3, 2, 2, 30, 4, kind=np.int64)  # more than there are
    yield given(5, 3, 2, -1, 2, 2)
    yield given(0, 3, 2, 0, 0)
    yield given(3, 0, 2, 1, 2)
    yield given(4, 3, 1, 1, 1, 1, 1, view=True)
    rows = dyn(20)
    a, b = x(20, 3), x(3, 3, 2) if op.name == "ragged_matmul" else x(20, 2)
    yield [Operand(a, dims=[rows, 3]), b if op.name == "ragged_matmul" else Operand(b, dims=[rows, 2]), np.int32([5, 9, 2])], {}


# ------------------------------------------------------------------------------------------ networks

def np_cross_entropy(x, targets, per_row=False):
    rows = x.reshape(-1, x.shape[-1])
    lse = logsumexp(rows, [1])
    flat = targets.reshape(-1).astype(np.int64)
    inside = (flat >= 0) & (flat < x.shape[-1])
    picked = np.where(inside, rows[np.arange(len(flat)), np.where(inside, flat, 0)], np.nan)
    loss = (lse - picked).reshape(targets.shape)
    with np.errstate(all="ignore"):
        out = loss if per_row else loss.sum() / loss.size
    return [out, lse.reshape(targets.shape)]


def np_linear_logits(x, weight, bias, smoothing, softcap):
    """Logits, and how they go with what the cap bends."""
    z = x @ weight.T + (0 if bias is None else bias)
    bent = np.tanh(z / softcap) if softcap else z
    return (bent * softcap, 1 - bent * bent) if softcap else (z, np.ones_like(z))


def np_linear_cross_entropy_sum(x, weight, targets, factors, bias=None, smoothing=0.0, softcap=0.0):
    z, slope = np_linear_logits(x, weight, bias, smoothing, softcap)
    lse, classes = logsumexp(z, [1]), z.shape[1]
    hot = np.eye(classes)[targets.astype(np.int64)] * (1 - (smoothing or 0)) + (smoothing or 0) / classes
    rows = lse - (hot * z).sum(1)
    g = (np.exp(z - lse[:, None]) - hot) * factors[:, None] * slope
    return [(rows * factors).sum(), rows, g @ weight, g.T @ x, g.sum(0)]


def np_linear_cross_entropy(x, weight, targets, *rest, per_row=False, smoothing=0.0, softcap=0.0, present=0):
    rest, flat = list(rest), targets.reshape(-1).astype(np.int64)
    weights = rest.pop(0).reshape(-1) if present & 1 else np.ones(flat.shape, x.dtype)
    z, _ = np_linear_logits(x.reshape(len(flat), -1), weight, rest.pop(0) if present & 2 else None, smoothing, softcap)
    inside = (flat >= 0) & (flat < z.shape[1])
    picked = np.where(inside, z[np.arange(len(flat)), np.where(inside, flat, 0)], np.nan)
    rows = logsumexp(z, [1]) - (1 - (smoothing or 0)) * picked - (smoothing or 0) * z.mean(1)
    rows = np.where(weights == 0, 0, rows * weights)
    with np.errstate(all="ignore"):
        return rows.reshape(targets.shape) if per_row else rows.sum() / weights.sum()


def linear_cross_entropy_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)

    def t(n, *shape):
        return rng.integers(0, n, shape).astype(np.int32)

    def factors(n):
        return rng.uniform(0.1, 1, n).astype(np.float32 if dtype != "f64" else np.float64)
    if op.name == "linear_cross_entropy_sum":
        yield [x(3, 4), x(5, 4), t(5, 3), factors(3)], {}
        yield [x(600, 3), x(5, 3), t(5, 600), factors(600), x(5)], {"smoothing": 0.1}  # three blocks
        yield [x(512, 3), x(5, 3), t(5, 512), factors(512)], {"softcap": 2.0}
        return
    for attrs in ({}, {"per_row": True}):
        yield [x(3, 4), x(5, 4), t(5, 3)], attrs
        yield [x(2, 3, 4), x(131, 4), t(131, 2, 3).astype(np.int64), x(131)], {**attrs, "present": 2}
        yield [x(2, 150, 3), x(7, 3), t(7, 2, 150)], {**attrs, "smoothing": 0.2}  # two blocks, of which one is not full
        yield [x(5, 3), x(4, 3), t(4, 5), np.float32([1, 0, 2, 0.5, 0]), x(4)], {**attrs, "present": 3, "softcap": 1.5}
        yield [Operand(x(5, 3), REVERSED), Operand(x(4, 3), REVERSED), t(4, 5)], attrs
        yield [Operand(x(300, 3), dims=[dyn(300), 3]), x(4, 3), Operand(t(4, 300), dims=[dyn(300)])], attrs
    yield [x(2, 3), x(4, 3), np.int32([1, 4])], {"per_row": True}  # outside: NaN
    yield [x(2, 3), x(4, 3), np.int32([1, -100]), np.float32([1, 0])], {"present": 1}  # does not count
    yield [x(4), x(3, 4), np.int32(2)], {}


def np_layer_norm(x, *rest, eps=1e-5, present=0):
    d = x - x.mean(-1, keepdims=True)
    y = d / np.sqrt((d * d).mean(-1, keepdims=True) + eps)
    rest = list(rest)
    if present & 1:
        y = y * rest.pop(0)
    return y + rest.pop(0) if present & 2 else y


def np_rms_norm(x, *rest, eps=1e-5, present=0):
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return y * rest[0] if present else y


def network(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    if op.name in ("softmax", "log_softmax"):
        yield [x(7)], {}
        yield [x(3, 5)], {"axes": [0]}
        yield [x(2, 3, 4)], {"axes": [0, 2]}
        yield [Operand(x(3, 131), REVERSED)], {}
        yield [Operand(x(2, 6), dims=[2, dyn(6)])], {}
        yield [x(0, 3)], {}
        yield [x(1)], {}
        yield [x(5) * 200], {}  # exp alone would overflow
        if op.name == "softmax":
            for dims in (None, [dyn(3), 131]):
                y = x(3, 131)
                y[1, 7:] = y[2] = np.nan if dtype == "f8e4m3" else -np.inf
                yield [Operand(y, dims=dims)], {"masked_zero": True}
            yield [y], {}
    elif op.name == "cross_entropy":
        def t(n, *shape): return rng.integers(0, n, shape).astype(np.int32)
        for attrs in ({}, {"per_row": True}):
            yield [x(3, 5), t(5, 3)], attrs
            yield [x(2, 3, 131), t(131, 2, 3).astype(np.int64)], attrs
            yield [Operand(x(5, 7), REVERSED), t(7, 5)], attrs
            yield [x(4), np.uint8(2)], attrs
            yield [Operand(x(6, 5), dims=[dyn(6), 5]), Operand(t(5, 6), dims=[dyn(6)])], attrs
            yield [x(3, 5) * 300, t(5, 3)], attrs
        yield [x(2, 5), np.array([1, 5], np.int32)], {"per_row": True}  # outside: NaN
        yield [x(0, 5), t(5, 0)], {"per_row": True}
    elif op.name in ("layer_norm", "rms_norm"):
        yield [x(3, 8)], {}
        yield [x(3, 8), x(8)], {"present": 1}
        yield [Operand(x(5, 7), REVERSED), x(7)], {"present": 1, "eps": 0.1}
        yield [x(2, 3, 131), x(131)], {"present": 1}
        yield [x(9), x(9)], {"present": 1}
        yield [x(0, 3), x(3)], {"present": 1}
        if op.name == "layer_norm":
            yield [x(3, 8), x(8), x(8)], {"present": 3}
            yield [x(2, 3, 7), x(7)], {"present": 2}
    elif op.name == "attention":
        yield from attention_cases(x, rng)
    elif op.name == "attention_backward":
        yield from attention_backward_cases(x, rng, dtype)


NETWORK = {
    "softmax": softmax,
    "log_softmax": lambda x, axes=(): x - logsumexp(x, list(axes) or [x.ndim - 1], True),
    "cross_entropy": np_cross_entropy, "layer_norm": np_layer_norm, "rms_norm": np_rms_norm,
    "attention": np_attention, "attention_backward": np_attention_backward,
}

# ------------------------------------------------------------------------------------------ rearranged

def rearranged(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape, op.kinks)
    name = op.name
    if name in ("tril", "triu"):
        yield [x(3, 5)], {}
        yield [Operand(x(2, 4, 3), REVERSED)], {"diagonal": 1}
        yield [x(4, 4)], {"diagonal": -2}
        yield [Operand(x(3, 4), dims=[dyn(3), dyn(4)])], {"diagonal": -1}
        yield [x(0, 3)], {}
    elif name == "roll":
        yield [x(5)], {"shifts": [2]}
        yield [x(3, 4)], {"shifts": [-1, 6]}
        yield [Operand(x(2, 3, 4), REVERSED)], {"shifts": [0, 2, 0]}
        yield [Operand(x(3, 4), dims=[dyn(3), 4])], {"shifts": [0, -3]}
        yield [x(0, 3)], {"shifts": [4, 1]}
        yield [x()], {"shifts": []}
    elif name == "diff":
        yield [x(5)], {}
        yield [x(3, 4)], {"axis": 1, "n": 2}
        yield [Operand(x(3, 5), REVERSED)], {"axis": -1}
        yield [Operand(x(5, 3), dims=[dyn(5), 3])], {"n": 3}
        yield [x(2, 3)], {"n": 2}
        yield [x(2, 3)], {"n": 7, "axis": 1}
    elif name == "repeat":
        yield [x(4)], {"n": 3}
        yield [x(2, 3)], {"n": 2, "axis": -1}
        yield [Operand(x(2, 3, 4), REVERSED)], {"n": 2, "axis": 1}
        yield [Operand(x(3, 2), dims=[dyn(3), 2])], {"n": 2}
        yield [x(2, 3)], {"n": 0, "axis": 1}
    elif name == "tile":
        yield [x(4)], {"times": [3]}
        yield [x(2, 3)], {"times": [2, 3]}
        yield [Operand(x(2, 3, 4), REVERSED)], {"times": [1, 2, 1]}
        yield [Operand(x(3, 2), dims=[dyn(3), 2])], {"times": [2, 2]}
        yield [x()], {"times": []}
        yield [x(2, 3)], {"times": [0, 2]}
    elif name == "trapezoid":
        yield [x(6)], {}
        yield [x(3, 5)], {"axis": -1, "dx": 0.25}
        yield [Operand(x(4, 3), dims=[dyn(4), 3])], {}
        yield [x(2, 1)], {"axis": 1}
    elif name == "quantile":
        yield [x(7)], {"q": 0.5}
        yield [x(4, 5)], {"q": 0.3, "axis": 1, "keepdims": True}
        yield [Operand(x(4, 5), REVERSED)], {"q": 0.9}
        yield [x(3, 6)], {"q": 0.5, "axis": -1}
        yield [x(5, 2)], {"q": 1.0}
        yield [x(1, 3)], {"q": 0.25}
        if dtype in FLOATS:
            yield [np.array([[1, np.nan, 0], [2, 0.5, 3]], NUMPY[dtype])], {"q": 0.5, "axis": 1}
    else:
        top = {"n": 7}
        yield [draw(rng, op, dtype, (20,))], top
        yield [draw(rng, op, dtype, (3, 4))], {"n": 3}
        yield [np.zeros((0,), NUMPY[dtype])], top
        if dtype[0] == "i":
            yield [np.array([-1, 2, 100, 2], NUMPY[dtype])], top


def one_each(f):
    """A function with a list of one number an axis."""
    def g(x, shifts=(), times=()):
        if len(shifts or times) != x.ndim:
            raise ValueError
        return f(x, shifts or times) if x.ndim else x
    return g


def np_trapezoid(y, axis=0, dx=1.0):
    return np.trapezoid(y, dx=dx, axis=axis)


def np_bincount(x, n=0):
    return np.array([(x == k).sum() for k in range(n)], np.int32)


REARRANGED = {"tril": lambda x, diagonal=0: np.tril(x, diagonal), "triu": lambda x, diagonal=0: np.triu(x, diagonal),
              "roll": one_each(lambda x, shifts: np.roll(x, shifts, range(x.ndim))),
              "diff": lambda x, axis=0, n=1: np.diff(x, n, axis), "repeat": lambda x, n, axis=0: np.repeat(x, n, axis),
              "tile": one_each(np.tile), "trapezoid": np_trapezoid, "bincount": np_bincount,
              "quantile": lambda x, q, axis=0, keepdims=False: np.quantile(x, q, axis=axis, keepdims=keepdims)}


# ------------------------------------------------------------------------------------------ halves

def np_glu(x, axis=0):
    a, b = np.split(x, 2, axis)
    return a / (1 + np.exp(-b))


def glu_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    yield [x(4)], {}
    yield [x(3, 6)], {"axis": -1}
    yield [Operand(x(2, 4, 5), REVERSED)], {"axis": 1}
    yield [Operand(x(3, 2), dims=[dyn(3), 2])], {"axis": 1}
    yield [x(0, 2)], {"axis": 1}


# ------------------------------------------------------------------------------------------ norms by channels

def by_channel(t, x):
    return t.reshape(-1, *[1] * (x.ndim - 2))


def weighed(y, rest, present):
    rest = list(rest)
    if present & 1:
        y = y * by_channel(rest.pop(0), y)
    return y + by_channel(rest.pop(0), y) if present & 2 else y


def np_group_norm(x, *rest, groups=0, eps=1e-5, present=0):
    g = in_groups(x, 1, groups or 1)
    axes = tuple(range(2, g.ndim))
    d = g - g.mean(axes, keepdims=True)
    return weighed((d / np.sqrt((d * d).mean(axes, keepdims=True) + eps)).reshape(x.shape), rest, present)


def np_batch_norm(x, mean, var, *rest, eps=1e-5, present=0):
    return weighed((x - by_channel(mean, x)) / np.sqrt(by_channel(var, x) + eps), rest, present)


def np_batch_norm_train(x, mean, var, *rest, eps=1e-5, momentum=0.1, present=0):
    axes = (0,) + tuple(range(2, x.ndim))
    m, n = x.mean(axes), x.size / x.shape[1]
    v = ((x - by_channel(m, x)) ** 2).mean(axes)
    y = weighed((x - by_channel(m, x)) / np.sqrt(by_channel(v, x) + eps), rest, present)
    return [y, mean * (1 - momentum) + m * momentum, var * (1 - momentum) + v * n / (n - 1) * momentum]


def channel_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    if op.name == "group_norm":
        yield [x(3, 8)], {"groups": 2}
        yield [x(2, 6, 5, 3), x(6), x(6)], {"groups": 3, "present": 3}
        yield [Operand(x(2, 4, 7), REVERSED), x(4)], {"present": 1, "eps": 0.1}
        yield [x(2, 4, 7), x(4)], {"present": 2, "groups": 4}
        yield [Operand(x(2, 4, 7), dims=[dyn(2), 4, dyn(7)]), x(4), x(4)], {"present": 3, "groups": 2}
    elif op.name == "instance_norm":
        yield [x(2, 3, 5)], {}
        yield [x(2, 3, 5, 4), x(3), x(3)], {"present": 3}
        yield [x(2, 3, 5), x(3)], {"present": 2, "eps": 0.01}
    else:
        def stats(c): return [x(c), np.abs(x(c)) + np.asarray(0.5, NUMPY[dtype])]
        yield [x(5, 3), *stats(3)], {}
        yield [x(2, 3, 4, 5), *stats(3), x(3), x(3)], {"present": 3}
        yield [Operand(x(3, 2, 7), REVERSED), *stats(2), x(2)], {"present": 1, "eps": 0.1}
        yield [x(2, 3, 4), *stats(3), x(3)], {"present": 2}
        yield [Operand(x(4, 3, 2), dims=[dyn(4), 3, 2]), *stats(3)], {"momentum": 0.3} if op.name == "batch_norm_train" else {}


# ------------------------------------------------------------------------------------------ all of them

# name: (function of arrays and attributes, cases)
SAMPLES = {name: (f, reduce_cases) for name, f in REDUCE.items()}
SAMPLES |= {name: (leaving_out(getattr(np, name)), nan_cases) for name in ("nanmean", "nanmax", "nanmin")}
SAMPLES["nansum"] = (reduce_with(np.nansum), nan_cases)
SAMPLES |= {name: (f, rearranged) for name, f in REARRANGED.items()}
SAMPLES |= {name: (f, movement) for name, f in MOVEMENT.items()}
SAMPLES |= {name: (f, network) for name, f in NETWORK.items()}
SAMPLES |= {
    "argmax": (place_of(np.argmax), place_cases), "argmin": (place_of(np.argmin), place_cases), "matmul": (np.matmul, matmul_cases),
    "contract": (np_contract, contract_cases), "ragged_matmul": (np_ragged_matmul, ragged_cases),
    "ragged_outer": (np_ragged_outer, ragged_cases),
    "linear_cross_entropy": (np_linear_cross_entropy, linear_cross_entropy_cases),
    "linear_cross_entropy_sum": (np_linear_cross_entropy_sum, linear_cross_entropy_cases),
    "gather": (np_gather, index_cases),
    "linear_recurrence": (linear_recurrence, along_cases), "topk": (np_topk, along_cases),
}
SAMPLES |= {name: (scatter_with(f), index_cases) for name, f in SCATTERS.items()}
SAMPLES |= {name: (f, sort_cases) for name, f in SORTS.items()}
SAMPLES |= {"take_along": (np_take_along, take_along_cases), "searchsorted": (np_searchsorted, search_cases),
            "unique": (np_unique, unique_cases)}
SAMPLES |= {name: (scan_with(f), along_cases) for name, f in SCANS.items()}
SAMPLES |= {"windows": (np_windows, windows_cases), "max_pool": (np_max_pool, pool_cases),
            "max_pool_indices": (np_max_pool_indices, pool_cases), "avg_pool": (np_avg_pool, pool_cases),
            "lp_pool": (np_lp_pool, pool_cases), "glu": (np_glu, glu_cases), "adaptive_max_pool": (adaptive(np.max), adaptive_cases),
            "adaptive_avg_pool": (adaptive(np.mean), adaptive_cases),
            "global_max_pool": (lambda x: x.max(tuple(range(2, x.ndim)), keepdims=True), adaptive_cases),
            "global_avg_pool": (lambda x: x.mean(tuple(range(2, x.ndim)), keepdims=True), adaptive_cases),
            "conv": (np_conv, conv_cases), "conv_transpose": (np_conv_transpose, conv_cases),
            "conv_weight_grad": (np_conv_weight, conv_cases), "group_norm": (np_group_norm, channel_cases),
            "instance_norm": (lambda x, *rest, **k: np_group_norm(x, *rest, groups=x.shape[1], **k), channel_cases),
            "batch_norm": (np_batch_norm, channel_cases), "batch_norm_train": (np_batch_norm_train, channel_cases)}
# Tested by cases of their own in test_op_values.py and test_op_random.py.
# Ops of which so many first outputs are f32 where the operands are of fewer bits.
WIDE_OUTPUTS = {"linear_cross_entropy": 1, "linear_cross_entropy_sum": 2}
SPECIAL = {"cast", "bitcast", "iota", "one_hot", "random_bits", "random_split", "random_fold_in",
           "random_uniform", "random_normal", "random_bernoulli", "random_int", "dropout", "record_hook", "surrogate_loss", "transfer"}
