"""Functions that are made of others, where their formulas overflow, cancel or lose what is small: around 1e-6, 20 and 100.

Values and gradients against decimal numbers of 200 digits. A result may be off by `ulps` units in its last place, where
a unit is one of the true value or, where the entry says so, of a larger number: what the function is made of there.
"""
import os
from decimal import Decimal

import ml_dtypes
import numpy as np
import pytest
from exact import (PI, TWO, acos, acosh, asin, asinh, atan, atanh, bell, cbrt, cos, cosh, erf, erfinv, exp, expm1, log,
                   log1p, sigmoid, sin, sinh, softplus, tan, tanh)
from graph_cases import TABLE, Graph
from op_cases import FLOATS, NARROW, NUMPY, Failure, run

DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")


def both_signs(*values):
    return [sign * v for v in values for sign in (1, -1)]


SMALL = (1e-30, 1e-6, 1.3e-6, 1e-3)
MIDDLE = (0.1, 0.5, 1, 2, 3, 5, 7, 9, 12, 16.5, 20, 23)
ALL = [0.0, *both_signs(*SMALL, *MIDDLE, 37, 50, 80, 87, 100, 300)]
INSIDE = [0.0, *both_signs(*SMALL, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 0.99999)]
POSITIVE = [*SMALL[1:], *MIDDLE, 37, 50, 87, 100, 300, 1e6]
STEEP = Decimal("0.044715")


def one(x):
    return Decimal(1)


def inner(x):
    """Of the tanh form of gelu."""
    return (TWO / PI).sqrt() * (x + STEEP * x**3)


def gelu_slope(x):
    t = tanh(inner(x))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * (TWO / PI).sqrt() * (1 + 3 * STEEP * x * x)


def normal(x):
    """The cumulative probability of the normal distribution."""
    return (1 + erf(x / TWO.sqrt())) / 2


class Function:
    """`unit`, `slope_unit`: of what a unit in the last place is one; None: of the value, and of the slope."""

    def __init__(self, value, slope, at=ALL, ulps=1, slope_ulps=2, unit=None, slope_unit=None, **attrs):
        self.value, self.slope, self.at, self.attrs = value, slope, at, attrs
        self.ulps, self.slope_ulps, self.unit, self.slope_unit = ulps, slope_ulps, unit, slope_unit


FUNCTIONS = {
    "exp": Function(exp, exp),
    # The slopes of these are 1 less, or plus, something: of no more digits than 1 has.
    "expm1": Function(expm1, exp, slope_unit=one),
    "tanh": Function(tanh, lambda x: 1 - tanh(x)**2, slope_unit=one),
    "sigmoid": Function(sigmoid, lambda x: sigmoid(x) * sigmoid(-x), slope_unit=one),
    "silu": Function(lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * sigmoid(-x)), 
                     slope_unit=lambda x: 1 + abs(x), ulps=2),
    "log": Function(log, lambda x: 1 / x, POSITIVE),
    "log1p": Function(log1p, lambda x: 1 / (1 + x), [x for x in ALL if x > -1] + [-0.5, -0.999999]),
    "erf": Function(erf, bell, slope_ulps=4),
    "sin": Function(sin, cos),
    "cos": Function(cos, lambda x: -sin(x)),
    "softplus": Function(softplus, sigmoid),
    "log_sigmoid": Function(lambda x: -softplus(-x), lambda x: sigmoid(-x)),
    "gelu": Function(lambda x: x / 2 * (1 + tanh(inner(x))), gelu_slope, unit=abs, slope_ulps=4, slope_unit=lambda x: 1 + x * x),
    "gelu exact": Function(lambda x: x * normal(x), lambda x: normal(x) + x * exp(-x * x / 2) / (2 * PI).sqrt(), unit=abs,
                           slope_unit=one, exact=True),
    "tan": Function(tan, lambda x: 1 + tan(x)**2, ulps=2, slope_ulps=5),
    "asin": Function(asin, lambda x: 1 / (1 - x * x).sqrt(), INSIDE, ulps=3),
    "acos": Function(acos, lambda x: -1 / (1 - x * x).sqrt(), INSIDE, ulps=3),
    "atan": Function(atan, lambda x: 1 / (1 + x * x), ulps=2),
    "sinh": Function(sinh, cosh, ulps=4, slope_ulps=4),
    "cosh": Function(cosh, sinh, ulps=4, slope_ulps=4),
    "asinh": Function(asinh, lambda x: 1 / (1 + x * x).sqrt(), [*ALL, *both_signs(1e9, 2e17, 2e18)], ulps=3),
    "acosh": Function(acosh, lambda x: 1 / (x * x - 1).sqrt(), [1.0 + x for x in POSITIVE if x > 1e-3] + [1e9, 2e17, 1e20, 3e38], ulps=3, slope_ulps=3),
    "atanh": Function(atanh, lambda x: 1 / (1 - x * x), INSIDE, ulps=3),
    "log2": Function(lambda x: log(x) / log(TWO), lambda x: 1 / (x * log(TWO)), ulps=2),
    "log10": Function(lambda x: x.log10(), lambda x: 1 / (x * log(Decimal(10))), ulps=3),
    "exp2": Function(lambda x: TWO**x, lambda x: TWO**x * log(TWO), ulps=2, slope_ulps=3),
    "cbrt": Function(cbrt, lambda x: 1 / (3 * cbrt(x)**2), [x for x in ALL if x] + [1e37, 1e-37], ulps=2, slope_ulps=6),
    "rsqrt": Function(lambda x: 1 / x.sqrt(), lambda x: -1 / (2 * x * x.sqrt()), slope_ulps=3),
    "sqrt": Function(lambda x: x.sqrt(), lambda x: 1 / (2 * x.sqrt())),
    "reciprocal": Function(lambda x: 1 / x, lambda x: -1 / x**2),
    "square": Function(lambda x: x * x, lambda x: 2 * x),
    # Near 1 it has the digits that 1 - x has.
    "erfinv": Function(erfinv, lambda x: 1 / bell(erfinv(x)), ulps=4, unit=lambda x: 1 / bell(erfinv(x)), slope_ulps=16,
                       slope_unit=lambda x: abs(erfinv(x)) / bell(erfinv(x))**2,
                       at=[0.0, *both_signs(1e-30, 1e-6, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 0.995, 0.999, 0.9999, 0.99999, 0.999999)]),
}
for name in ("rsqrt", "sqrt", "log2", "log10"):
    FUNCTIONS[name].at = POSITIVE
FUNCTIONS["reciprocal"].at = [x for x in ALL if abs(x) > 1e-17]


def off(got, want, ulps, unit, dtype):
    """Why a number is wrong, or None."""
    info, half = ml_dtypes.finfo(NUMPY[dtype]), dtype in NARROW
    largest, least = Decimal(float(info.max)), Decimal(float(info.smallest_subnormal if half else info.tiny))
    eps, got = Decimal(float(info.eps)), float(got)
    message = f"{got!r} instead of {want:.9g}"
    if abs(want) > largest * (1 - eps):
        if dtype == "f8e4m3" and np.isnan(got):  # which has no infinity
            return None
        return None if abs(got) >= float(info.max) * (1 - 2 * float(eps)) and (got > 0) == (want > 0) else message
    if not np.isfinite(got):
        return message
    # What is less than the least normal number may be lost; 16-bit floats are computed in f32, and rounded.
    room = least if abs(want) < least else ulps * eps * abs(want)
    if unit is not None:
        room += ulps * (Decimal(2)**-23 if half else eps) * abs(unit)
    error = abs(Decimal(got) - want)
    return None if error <= room + (least if half else 0) else f"{message}: {float(error / room) * ulps:.3g} units"


def evaluate(name, operands, attrs, device, weights=None, gradients=True):
    """The value of an op, and the gradients of the sum of it times weights."""
    graph = Graph(0)
    leaves = [graph.leaf(x) for x in operands]
    out = value = graph.record(name, leaves, attrs, [[operands[0]]])[0]
    if weights is not None:
        out = graph.record("mul", [value, graph.leaf(weights)], {}, [[weights]])[0]
    floats = [leaf for leaf in leaves if leaf.dtype in FLOATS]
    graph.roots = [value] + ([graph.gradient(out, leaf) for leaf in floats] if gradients else [])
    results = run([graph], device, compiled=False, mode="--graphs")[0]
    assert not isinstance(results, Failure), results
    return results


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name, dtype, device):
    f, wrong = FUNCTIONS[name], []
    with np.errstate(over="ignore"):
        x = np.array(f.at).astype(NUMPY[dtype])
    x = x[np.isfinite(x) & ((x != 0) | (0.0 in f.at)) & ((np.abs(x) < 1) | (f.at is not INSIDE and name != "erfinv"))]
    x = x[(x > 1) | (name != "acosh")]
    value, *slope = evaluate(name.split()[0], [x], f.attrs, device, gradients=dtype not in NARROW)
    for i, at in enumerate(Decimal(float(v)) for v in x):
        for what, got, exact, ulps, unit in [("value", value, f.value, f.ulps, f.unit)] + [
                ("slope", s, f.slope, f.slope_ulps, f.slope_unit) for s in slope]:
            message = off(got[i], exact(at), ulps, unit and unit(at), dtype)
            if message:
                wrong.append(f"{what} at {float(at)!r}: {message}")
    assert not wrong, f"{name}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_of_the_base(dtype, device):
    """Whole logarithms are whole, to the ends of the dtype."""
    info = np.finfo(NUMPY[dtype])
    twos = np.arange(info.minexp - info.nmant, info.maxexp)
    tens = np.arange(0, 11 if dtype == "f32" else 23)
    for name, base, n in (("log2", 2, twos), ("log10", 10, tens)):
        x = np.array([base**Decimal(int(k)) for k in n]).astype(NUMPY[dtype])
        got = evaluate(name, [x], {}, device, gradients=False)[0]
        assert (got == n).all(), (name, n[got != n], got[got != n])
    assert (evaluate("exp2", [twos.astype(NUMPY[dtype])], {}, device, gradients=False)[0] == np.exp2(twos).astype(NUMPY[dtype])).all()


# ------------------------------------------------------------------------------------------ over rows

ROWS = [[20, -20, 1e-6], [100, -100, 0.5], [1e-6, -1e-6, 0], [1000, 999, -1000], [88.5, 88.5, 88.25], [-10000, -10001, -9999.5],
        [1e-6, 1.3e-6, 0.9e-6], [-100, -100, -100], [0, 300, 0]]
WEIGHTS = [[1, -2, 0.5]]


def softmax(row):
    e = [exp(x - max(row)) for x in row]
    return [v / sum(e) for v in e]


def logsumexp(row):
    return log(sum(exp(x - max(row)) for x in row)) + max(row)


def check(got, want, ulps, units, dtype, what):
    """got (rows, columns), want and units: lists of lists of decimal numbers."""
    wrong = []
    for r, (row, exact, unit) in enumerate(zip(np.asarray(got), want, units, strict=True)):
        for c, (g, e, u) in enumerate(zip(np.atleast_1d(row), exact, unit, strict=True)):
            message = off(g, e, ulps, u, dtype)
            if message:
                wrong.append(f"{what} {r}, {c}: {message}")
    return wrong


def decimals(array):
    return [[Decimal(float(v)) for v in row] for row in array]


def each(rows, f):
    return [[f(row, i) for i in range(len(row))] for row in rows]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "cross_entropy"])
def test_softmax_and_its_kin(name, dtype, device):
    x = np.array(ROWS, NUMPY[dtype])
    weights = np.broadcast_to(np.array(WEIGHTS, NUMPY[dtype]), x.shape)
    rows, w = decimals(x), decimals(weights)[0]
    ys = [softmax(row) for row in rows]
    # exp has the digits of what it is taken of: of the distance from the row's largest.
    far = each(rows, lambda row, i: softmax(row)[i] * (max(row) - row[i]))
    targets = np.arange(len(x)) % 3
    operands, attrs = [x], {}
    if name == "softmax":
        want, units = ys, far
        slopes = [[y[i] * (w[i] - sum(a * b for a, b in zip(w, y))) for i in range(3)] for y in ys]
    elif name == "log_softmax":
        want, units = each(rows, lambda row, i: row[i] - logsumexp(row)), each(rows, lambda row, i: 1 + max(row) - row[i])
        slopes = [[w[i] - y[i] * sum(w) for i in range(3)] for y in ys]
    elif name == "logsumexp":
        attrs, weights = {"axes": [1]}, None
        want, units, slopes = [[logsumexp(row)] for row in rows], [[max(map(abs, row))] for row in rows], ys
    else:
        operands, attrs, weights = [x, targets.astype(np.int32)], {"per_row": True}, None
        want = [[logsumexp(row) - row[t]] for row, t in zip(rows, targets)]
        units = [[1 + max(row) - row[t]] for row, t in zip(rows, targets)]
        slopes = [[y[i] - (i == t) for i in range(3)] for y, t in zip(ys, targets)]
    value, slope = evaluate(name, operands, attrs, device, weights)
    slope_units = [[1 + u for u in row] for row in each(rows, lambda row, i: max(abs(v) for v in row) * softmax(row)[i])]
    wrong = check(value, want, 4, units, dtype, "value") + check(slope, slopes, 8, slope_units, dtype, "slope")
    assert not wrong, "\n".join(wrong)


# A mean far from 0, and deviations that its square would swallow; next to no deviations; none.
SPREADS = [[1000.25, 1000.5, 1001, 999], [1e-6, -1e-6, 2e-6, 0], [100, 100 + 2**-10, 100, 100 - 2**-10], [20, -20, 1e-6, 0],
           [3, 3, 3, 3], [0, 0, 0, 0], [1e-18, 2e-18, 0, 0], [1e4, -1e4, 1e4, 5]]


def moments(row):
    mean = sum(row) / len(row)
    return mean, sum((v - mean)**2 for v in row) / len(row)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("eps", [None, 1e-12])
@pytest.mark.parametrize("name", ["var", "layer_norm", "rms_norm"])
def test_moments(name, eps, dtype, device):
    x = np.array(SPREADS, NUMPY[dtype])
    rows, n, unit_of = decimals(x), x.shape[1], Decimal(float(np.finfo(NUMPY[dtype]).eps))
    small = Decimal(float(NUMPY[dtype](1e-5 if eps is None else eps)))  # eps is a number of the dtype
    weights, w = np.array([[1, -2, 0.5, 3]], NUMPY[dtype]), [Decimal(v) for v in (1, -2, 0.5, 3)]
    if name == "var":
        value, slope = evaluate("var", [x], {"axes": [1]}, device)
        want = [[moments(row)[1]] for row in rows]
        slopes = each(rows, lambda row, i: 2 * (row[i] - moments(row)[0]) / n)
        # The mean is rounded, and its error is squared.
        units = [[moments(row)[1] + moments(row)[0]**2 * unit_of] for row in rows]
        slope_units = each(rows, lambda row, i: max(map(abs, row)))
    else:
        value, slope = evaluate(name, [x], {"eps": eps}, device, np.broadcast_to(weights, x.shape))
        centre = (lambda row: moments(row)[0]) if name == "layer_norm" else lambda row: Decimal(0)
        def rate(row): return 1 / (sum((v - centre(row))**2 for v in row) / n + small).sqrt()
        want = each(rows, lambda row, i: (row[i] - centre(row)) * rate(row))
        units = each(rows, lambda row, i: max(map(abs, row)) * rate(row))

        def slope_at(row, i):
            y = [(v - centre(row)) * rate(row) for v in row]
            mean = sum(w) / n if name == "layer_norm" else 0
            return rate(row) * (w[i] - mean - y[i] * sum(a * b for a, b in zip(w, y)) / n)
        slopes = each(rows, slope_at)
        slope_units = each(rows, lambda row, i: 4 * rate(row) * (1 + max(map(abs, row)) * rate(row)))
    wrong = check(value, want, 4, units, dtype, "value") + check(slope, slopes, 8, slope_units, dtype, "slope")
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------------------------------ of two numbers

POWERS = [(20, 20), (20, -20), (1e-6, 3), (1e-6, -2.5), (100, -2.5), (100, 12), (0.5, 100), (1 + 2**-20, 1e6), (2, 1e-6), (3, 0), (1, 100),
          (0.999, 20000), (7, 0.5), (7, 1)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_pow(dtype, device):
    x, y = (np.array(column, NUMPY[dtype]) for column in zip(*POWERS))
    value, by_x, by_y = evaluate("pow", [x, y], {}, device)
    at = list(zip(*(decimals([v])[0] for v in (x, y))))
    def power(a, b): return exp(b * log(a))
    wrong = check([value], [[power(a, b) for a, b in at]], 1, [[None] * len(at)], dtype, "value")
    slopes = [b * power(a, b - 1) for a, b in at]
    wrong += check([by_x], [slopes], 4, [[None] * len(at)], dtype, "by x")
    slopes = [power(a, b) * log(a) for a, b in at]
    wrong += check([by_y], [slopes], 4, [[None] * len(at)], dtype, "by y")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_that_are_exact(dtype, device):
    x, y = (v.ravel() for v in np.meshgrid(np.arange(1, 60), np.arange(-2, 12)))
    want = np.array([float(a)**int(b) if b >= 0 else 1 / float(a**-b) for a, b in zip(x.tolist(), y.tolist())])
    fits = (y < 0) & (x < 2) | (y >= 0) & (want < 2.0 ** np.finfo(NUMPY[dtype]).nmant)
    x, y, want = (np.append(x[fits], [81, 1e300 if dtype == "f64" else 1e30]).astype(NUMPY[dtype]),
                  np.append(y[fits], [0.5, 1]).astype(NUMPY[dtype]), np.append(want[fits], [9, 1e300 if dtype == "f64" else 1e30]))
    got = evaluate("pow", [x, y], {}, device, gradients=False)[0]
    assert (got == want.astype(NUMPY[dtype])).all(), [v for v in zip(x, y, got, want) if v[2] != NUMPY[dtype](v[3])][:5]
