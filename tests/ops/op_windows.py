"""Moving windows, pools and convolutions: for each op what its operands look like, and what NumPy makes of them."""
import math

import numpy as np
from op_cases import NUMPY, REVERSED, Operand, draw, dyn, least, whole


# ------------------------------------------------------------------------------------------ moving windows

def spread(x, lists, n):
    """Lists of one number an axis, of which one number is for all and none is the normal one."""
    return [list(v) * n if len(v) == 1 else list(v) or [normal] * n for v, normal in lists]


def np_windows(x, axes=(), counts=(), size=(), stride=(), dilation=(), low=(), high=(), base=(), fill=None, taps=False):
    """Element by element, from the definition."""
    n = len(size)
    own = x.ndim - n if taps else x.ndim
    axes = [a % x.ndim for a in axes] or list(range(own - n, own))
    stride, dilation, low, high, base = spread(x, ((stride, 1), (dilation, 1), (low, 0), (high, 0), (base, 1)), n)
    shape = list(x.shape[:own])
    if taps and tuple(size) != x.shape[own:] or max(axes) >= own or (min(dilation) < 0 and not counts):
        raise ValueError
    for i, a in enumerate(axes):
        room = max(0, (x.shape[a] - 1) * base[i] + 1) + low[i] + high[i]
        shape[a] = whole(counts)[i] if counts else (room - (size[i] - 1) * dilation[i] - 1) // stride[i] + 1
        if not counts and shape[a] < 1:
            raise ValueError
    out = np.full([*shape, *size], 0 if fill is None else fill, x.dtype)
    for at in np.ndindex(*shape):
        for t in np.ndindex(*size):
            place, inside = list(at), True
            for i, a in enumerate(axes):
                p = at[a] * stride[i] + t[i] * dilation[i] - low[i]
                inside = inside and p >= 0 and p % base[i] == 0 and p // base[i] < x.shape[a]
                place[a] = p // base[i]
            if inside:
                out[at + t] = x[tuple(place) + (t if taps else ())]
    return out


def windows_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    fill = 3 if dtype not in ("bool",) else 1
    yield [x(7)], {"size": [3]}
    yield [x(2, 5, 6)], {"size": [3, 2]}
    yield [x(9, 2)], {"axes": [0], "size": [3], "stride": [2], "low": [2], "high": [1], "fill": fill}
    yield [x(2, 9)], {"size": [3], "dilation": [2], "low": [-1], "high": [-1]}
    yield [x(2, 4, 5)], {"axes": [2, 1], "size": [2, 3], "stride": [2, 1], "base": [3, 2], "low": [1, 2], "fill": fill}
    yield [x(6)], {"size": [3], "counts": [8], "dilation": [-2], "stride": [3], "low": [-5], "base": [2]}
    yield [x(3, 4, 2)], {"size": [2], "taps": True, "stride": [2], "low": [1]}
    yield [x(2, 5, 3)], {"axes": [0], "size": [3], "taps": True, "dilation": [-1], "counts": [4], "low": [-2]}
    yield [Operand(x(5, 6), REVERSED)], {"size": [2, 2], "high": [1, 1]}
    yield [Operand(x(3, 8), dims=[dyn(3), 8])], {"size": [3], "stride": [3]}
    yield [Operand(x(3, 8), dims=[3, dyn(8)])], {"size": [3], "stride": [2], "low": [1], "high": [1]}
    yield [x(0, 4)], {"size": [2]}


def fitted(n, size, stride, dilation, low, high, ceil=False):
    """How many windows; PyTorch's rule for one that lies inside in part."""
    rest = n + low + high - dilation * (size - 1) - 1
    if ceil and -stride < rest < 0 < n:
        return 1
    count = (-(-rest // stride) if ceil else rest // stride) + 1 if rest >= 0 else 0
    return count - 1 if ceil and (count - 1) * stride >= n + low else count


def pool_windows(x, fill, kernel, stride=(), padding=(), dilation=(), ceil_mode=False):
    """The windows (..., o, taps), and how many of their elements lie in x, and in x with its padding."""
    n = len(kernel)
    stride, dilation = spread(x, ((stride or kernel, 1), (dilation, 1)), n)
    pads = list(padding) if len(padding) == 2 * n else spread(x, ((padding, 0),), n)[0] * 2
    low, sizes = pads[:n], x.shape[x.ndim - n:]
    if any(max(lo, hi) > ((k - 1) * d + 1) // 2 for k, d, lo, hi in zip(kernel, dilation, low, pads[n:])):
        raise ValueError
    counts = [fitted(s, k, st, d, lo, hi, ceil_mode)
              for s, k, st, d, lo, hi in zip(sizes, kernel, stride, dilation, low, pads[n:])]
    if min(counts) < 1:
        raise ValueError
    own = {"counts": counts, "size": kernel, "stride": stride, "dilation": dilation}
    w = np_windows(x, low=low, fill=fill, **own)
    inside = np_windows(np.ones(sizes), low=low, **own)
    padded = np_windows(np.ones([a + b + c for a, b, c in zip(sizes, low, pads[n:])]), **own)
    def flat(t): return t.reshape(*t.shape[:t.ndim - n], math.prod(kernel))
    return flat(w), flat(inside).sum(-1), flat(padded).sum(-1), own | {"low": low}


def np_max_pool(x, **options):
    w = pool_windows(x, least(x.dtype), **options)[0]
    at = w.argmax(-1)
    return [np.take_along_axis(w, at[..., None], -1)[..., 0], at.astype(np.uint8 if w.shape[-1] <= 256 else np.int32)]


def np_max_pool_indices(x, **options):
    w, _, _, own = pool_windows(x, least(x.dtype), **options)
    n, at = len(own["size"]), np.unravel_index(w.argmax(-1), own["size"])
    sizes, o = x.shape[x.ndim - n:], np.indices(own["counts"])
    place = [np.clip(o[i] * own["stride"][i] + at[i] * own["dilation"][i] - own["low"][i], 0, sizes[i] - 1) for i in range(n)]
    return np.ravel_multi_index(place, sizes).astype(np.int64)


def np_avg_pool(x, exclude_padding=False, divisor=None, **options):
    w, inside, padded, _ = pool_windows(x, 0, **options)
    return w.sum(-1) / (divisor or (inside if exclude_padding else padded))


def np_lp_pool(x, power=None, **options):
    power = power or 2
    return (np_avg_pool(x**power, **options) * np.prod(options["kernel"])) ** (1 / power)


def adaptive(f):
    def g(x, output=()):
        n = len(output)
        out = np.zeros(x.shape[:x.ndim - n] + tuple(output), x.dtype)
        for o in np.ndindex(*output):
            cut = tuple(slice(i * s // m, -((-(i + 1) * s) // m)) for i, s, m in zip(o, x.shape[x.ndim - n:], output))
            out[(...,) + o] = f(x[(...,) + cut], axis=tuple(range(-n, 0)))
        return out
    return g


def pool_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape, op.kinks)
    yield [x(2, 3, 8)], {"kernel": [2]}
    yield [x(2, 3, 7, 5)], {"kernel": [3, 2], "stride": [2, 1]}
    yield [Operand(x(2, 6, 5), REVERSED)], {"kernel": [3], "stride": [2], "ceil_mode": True}
    yield [x(5, 4, 3)], {"kernel": [2, 2, 2], "stride": [1]}
    yield [Operand(x(3, 2, 8), dims=[dyn(3), 2, 8])], {"kernel": [3]}
    yield [Operand(x(3, 2, 8), dims=[3, 2, dyn(8)])], {"kernel": [3], "stride": [2], "ceil_mode": True}
    yield [x(0, 3, 4)], {"kernel": [2]}
    yield [x(3, 2)], {"kernel": [3], "stride": [2], "ceil_mode": True}  # one window, which lies inside in part
    if op.name == "lp_pool":
        yield [x(2, 6)], {"kernel": [3], "power": 3}
        yield [x(2, 6)], {"kernel": [3], "power": 1, "ceil_mode": True, "stride": [2]}
        return
    yield [x(2, 7, 9)], {"kernel": [3, 3], "stride": [2], "padding": [1]}
    yield [x(2, 6, 6)], {"kernel": [3, 4], "padding": [0, 1, 1, 2], "dilation": [2, 1], "stride": [2, 3], "ceil_mode": True}
    if op.name == "avg_pool":
        yield [x(2, 7, 6)], {"kernel": [3, 4], "stride": [2], "padding": [1, 2], "exclude_padding": True, "ceil_mode": True}
        yield [x(2, 7)], {"kernel": [4], "padding": [2], "exclude_padding": True}
        yield [x(2, 7)], {"kernel": [4], "padding": [2], "divisor": 1}
    else:
        yield [x(1, 18, 17)], {"kernel": [17, 17], "stride": [1]}  # more taps than a byte counts
        yield [np.array([[1, 3, 3, 2, 3, 3, 0]], NUMPY[dtype])], {"kernel": [3], "stride": [2]}  # the first of equals


def adaptive_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape, op.kinks)
    if op.name.startswith("global"):
        yield [x(2, 3, 5)], {}
        yield [x(2, 3, 4, 5)], {}
        yield [Operand(x(2, 1, 2, 3, 4), REVERSED)], {}
        yield [Operand(x(2, 3, 4, 5), dims=[dyn(2), 3, dyn(4), 5])], {}
        return
    yield [x(2, 3, 8)], {"output": [4]}
    yield [x(2, 7, 5)], {"output": [3, 5]}
    yield [x(2, 7, 5)], {"output": [1, 1]}
    yield [Operand(x(4, 5, 6), REVERSED)], {"output": [3, 2, 4]}
    yield [x(2, 3)], {"output": [7]}
    yield [Operand(x(3, 7), dims=[3, dyn(7)])], {"output": [3]}


# ------------------------------------------------------------------------------------------ convolutions

def conv_options(x, sizes, stride=(), padding=(), dilation=(), same=False):
    n = x.ndim - 2
    stride, dilation = spread(x, ((stride, 1), (dilation, 1)), n)
    if same and padding:
        raise ValueError
    if same:
        more = [max(0, (-(-s // st) - 1) * st + (k - 1) * d + 1 - s) for s, k, st, d in zip(x.shape[2:], sizes, stride, dilation)]
        pads = [m // 2 for m in more] + [m - m // 2 for m in more]
    else:
        pads = list(padding) if len(padding) == 2 * n else spread(x, ((padding, 0),), n)[0] * 2
    return {"size": list(sizes), "stride": stride, "dilation": dilation, "low": pads[:n], "high": pads[n:]}


def output_of(x, size, output, stride, dilation, low, high):
    """As many windows as asked for, where a transposed convolution can have made x of them."""
    for s, k, o, st, d, lo, hi in zip(x.shape[2:], size, output, stride, dilation, low, high):
        if o < 1 or not 0 <= s + lo + hi - (k - 1) * d - 1 - (o - 1) * st < max(st, d):
            raise ValueError
    return (slice(None),) * 2 + tuple(slice(0, o) for o in output)


def in_groups(t, axis, groups):
    return t.reshape(*t.shape[:axis], groups, t.shape[axis] // groups, *t.shape[axis + 1:])


def contracted(form, a, b, n):
    """einsum where o and k stand for n axes each."""
    for letter, many in (("o", "uvw"), ("k", "xyz")):
        form = form.replace(letter, many[:n])
    return np.einsum(form, a, b)


def np_conv(x, w, *bias, groups=0, output=(), present=0, **options):
    n, g = x.ndim - 2, groups or 1
    own = conv_options(x, w.shape[2:], **options)
    views = np_windows(x, **own)[output_of(x, output=output, **own)]
    y = contracted("ngcok,gack->ngao", in_groups(views, 1, g), in_groups(w, 0, g), n)
    y = y.reshape(y.shape[0], w.shape[0], *y.shape[3:])
    return y + bias[0].reshape(-1, *[1] * n) if bias else y


def np_conv_transpose(x, w, *bias, groups=0, output=(), output_padding=(), present=0, **options):
    """Each element of x spreads the weights around its place."""
    n, g = x.ndim - 2, groups or 1
    own, more = conv_options(x, w.shape[2:], **options), spread(x, ((output_padding, 0),), n)[0]
    full = [(s - 1) * st + (k - 1) * d + 1 for s, st, k, d in zip(x.shape[2:], own["stride"], w.shape[2:], own["dilation"])]
    size = list(output) or [f - lo - hi + m for f, lo, hi, m in zip(full, own["low"], own["high"], more)]
    if any(m >= max(st, d) for m, st, d in zip(more, own["stride"], own["dilation"])) or min(size) < 1:
        raise ValueError
    output_of(np.empty([1, 1, *size]), **own | {"output": x.shape[2:], "size": w.shape[2:]})
    y = np.zeros([x.shape[0], g * w.shape[1], *[max(f, lo + s) for f, lo, s in zip(full, own["low"], size)]])
    for at in np.ndindex(*x.shape[2:]):
        spot = contracted("ngc,gcak->ngak", in_groups(x[(...,) + at], 1, g), in_groups(w, 0, g), n)
        to = tuple(slice(p * st, p * st + (k - 1) * d + 1, d) for p, st, k, d in zip(at, own["stride"], w.shape[2:], own["dilation"]))
        y[(...,) + to] += spot.reshape(x.shape[0], -1, *w.shape[2:])
    y = y[(...,) + tuple(slice(lo, lo + s) for lo, s in zip(own["low"], size))]
    return y + bias[0].reshape(-1, *[1] * n) if bias else y


def np_conv_weight(x, y, size=(), groups=0, **options):
    n, g = x.ndim - 2, groups or 1
    own = conv_options(x, size, **options)
    views = np_windows(x, **own)[output_of(x, output=y.shape[2:], **own)]
    w = contracted("ngcok,ngao->gack", in_groups(views, 1, g), in_groups(y, 1, g), n)
    return w.reshape(-1, *w.shape[2:])


def conv_cases(rng, op, dtype):
    def x(*shape):
        return draw(rng, op, dtype, shape)
    if op.name == "conv":
        yield [x(2, 3, 7), x(4, 3, 3)], {}
        yield [x(2, 3, 6, 5), x(4, 3, 3, 2), x(4)], {"present": 1, "padding": [1]}
        yield [x(2, 4, 7, 8), x(6, 2, 3, 3)], {"groups": 2, "stride": [2], "dilation": [1, 2], "padding": [1, 0, 2, 1]}
        yield [x(1, 2, 4, 5, 3), x(3, 2, 2, 3, 2)], {"stride": [1, 2, 1]}
        yield [x(2, 3, 9), x(6, 1, 4), x(6)], {"groups": 3, "same": True, "stride": [2], "present": 1}  # depthwise
        yield [Operand(x(2, 3, 5, 5), REVERSED), Operand(x(2, 3, 1, 1), REVERSED)], {}
        yield [Operand(x(3, 2, 6, 6), dims=[dyn(3), 2, 6, 6]), x(4, 2, 3, 3)], {"padding": [1]}
        yield [Operand(x(3, 2, 6), dims=[3, 2, dyn(6)]), x(4, 2, 3)], {"stride": [2], "padding": [1]}
        yield [x(0, 2, 5), x(3, 2, 2)], {}
        yield [x(1, 1, 8), x(2, 1, 2)], {"output": [3], "stride": [3], "dilation": [1]}
        yield [x(2, 2, 0), x(3, 2, 1)], {"padding": [1]}  # of padding alone
    elif op.name == "conv_transpose":
        yield [x(2, 3, 5), x(3, 4, 3)], {}
        yield [x(2, 3, 4, 3), x(3, 2, 3, 2), x(2)], {"present": 1, "stride": [2, 3], "padding": [1, 0], "output_padding": [1, 2]}
        yield [x(2, 4, 3, 4), x(4, 3, 2, 3)], {"groups": 2, "dilation": [2, 1], "stride": [1, 2], "padding": [0, 1, 1, 0]}
        yield [x(1, 2, 2, 3, 2), x(2, 2, 2, 1, 3)], {"stride": [2]}
        yield [x(2, 3, 5), x(3, 2, 3)], {"groups": 3, "stride": [2]}
        yield [Operand(x(2, 2, 4), REVERSED), x(2, 3, 3)], {"stride": [2], "output": [10]}
        yield [Operand(x(2, 2, 4), dims=[dyn(2), 2, dyn(4)]), x(2, 3, 3)], {"stride": [2]}
        # strides whose phases are too many: fewer taps than a stride, more, and padding that begins and ends inside one
        yield [x(2, 2, 3, 2), x(2, 3, 9, 9), x(3)], {"present": 1, "stride": [9]}
        yield [x(2, 4, 3, 2), x(4, 2, 3, 12)], {"groups": 2, "stride": [13, 5], "padding": [1, 7, 2, 1], "output_padding": [7, 3]}
        yield [Operand(x(1, 2, 3), dims=[1, 2, dyn(3)]), x(2, 3, 150)], {"stride": [70], "padding": [72], "output": [201]}
        yield [Operand(x(1, 2, 3, 2), dims=[dyn(1), 2, dyn(3), dyn(2)]), x(2, 1, 8, 9)], {"stride": [9], "output_padding": [3]}
        yield [Operand(x(1, 2, 3, 2), dims=[1, 2, dyn(3), dyn(2)]), x(2, 2, 3, 3)], {"stride": [2, 3], "padding": [1], "dilation": [1, 2]}
        yield [x(1, 2, 3), x(2, 3, 3)], {"stride": [66], "dilation": [2]}
        yield [x(1, 8, 1), x(8, 1, 3)], {"stride": [2]}  # columns that exist in part, in steps of k and single ones
    else:
        yield [x(2, 3, 7), x(2, 4, 5)], {"size": [3]}
        yield [x(2, 4, 7, 8), x(2, 6, 4, 3)], {"size": [3, 3], "groups": 2, "stride": [2], "dilation": [1, 2], "padding": [1, 0, 1, 1]}
        yield [x(1, 2, 4, 5, 3), x(1, 3, 3, 2, 2)], {"size": [2, 3, 2], "stride": [1, 2, 1]}
        yield [x(2, 3, 9), x(2, 6, 3)], {"size": [4], "groups": 3, "stride": [2]}
        yield [Operand(x(3, 2, 6), dims=[dyn(3), 2, 6]), Operand(x(3, 2, 4), dims=[dyn(3), 2, 4])], {"size": [3]}
