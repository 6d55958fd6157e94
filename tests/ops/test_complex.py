"""Complex numbers against JAX: values, jvp, vjp and gradients, in complex128 to 1e-6; dtypes; what is refused."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from op_cases import DTYPES, NUMPY, Failure
from op_transforms import DEVICES, SEED, check, difference
from programs import run_jax, run_programs

RNG = np.random.default_rng(SEED)


def numbers(*shape, least=0.3, dtype=np.complex128):
    """Away from 0, where functions of a complex variable have their poles and cuts."""
    size, angle = RNG.uniform(least, 1.7, shape), RNG.uniform(-2.9, 2.9, shape)
    return (size * np.exp(1j * angle)).astype(dtype)


Z, W, X = numbers(3, 4), numbers(3, 4), RNG.uniform(0.5, 2, (3, 4))
AT = np.array([2, 0, 2], np.int32)
FUNCTIONS = ("expm1", "log1p", "log2", "log10", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh")
IN_NUMPY = {"log1p": lambda z: np.where(np.abs(z) < 1e-8, z - z * z / 2, np.log1p(z)), "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh}
# Functions of which a derivative is asked, and their operands.
HOLOMORPHIC = {
    "add": (lambda o, z, w: o.add(z, w), [Z, W]), "sub": (lambda o, z, w: o.sub(z, w), [Z, W]),
    "mul": (lambda o, z, w: o.mul(z, w), [Z, W]), "div": (lambda o, z, w: o.div(z, w), [Z, W]),
    "neg": (lambda o, z: o.neg(z), [Z]), "exp": (lambda o, z: o.exp(z), [Z]), "log": (lambda o, z: o.log(z), [Z]),
    "sqrt": (lambda o, z: o.sqrt(z), [Z]), "sin": (lambda o, z: o.sin(z), [Z]), "cos": (lambda o, z: o.cos(z), [Z]),
    "tanh": (lambda o, z: o.tanh(z), [0.6 * Z]), "pow": (lambda o, z, w: o.pow(z, w), [Z, W]),
    **{name: (lambda o, z, name=name: getattr(o, name)(z), [0.6 * Z]) for name in FUNCTIONS},
    "acosh": (lambda o, z: o.acosh(z), [np.abs(Z.real) + 1j * Z.imag]),  # JAX's slope has the other sign left of 0
    "square": (lambda o, z: o.square(z), [Z]), "reciprocal": (lambda o, z: o.reciprocal(z), [Z]),
    "sum": (lambda o, z: o.sum(z, axes=[1]), [Z]), "mean": (lambda o, z: o.mean(z, axes=[0], keepdims=True), [Z]),
    "prod": (lambda o, z: o.prod(z, axes=[1]), [Z]),
    "matmul": (lambda o, z, w: o.matmul(z, w), [Z, numbers(4, 5)]),
    "matmul of batches": (lambda o, z, w: o.matmul(z, w), [numbers(2, 3, 4), numbers(4, 2)]),
    "select": (lambda o, z, w: o.select(X > 1, z, w), [Z, W]),
    "broadcasts": (lambda o, z, w: o.mul(o.add(z, w), 2.0), [Z, numbers(4)]),
    "moves": (lambda o, z: o.permute(o.reshape(z, dims=[4, 3]), axes=[1, 0]), [Z]),
    "slice": (lambda o, z: o.slice(z, start=[1, 0], stop=[3, 3]), [Z]), "flip": (lambda o, z: o.flip(z, axes=[1]), [Z]),
    "pad": (lambda o, z: o.pad(z, 1.0, low=[1, 0], high=[0, 2]), [Z]),
    "concat": (lambda o, z, w: o.concat(z, w, axis=1), [Z, W]), "expand": (lambda o, z: o.expand(z, dims=[2, 3, 4]), [Z]),
    "gather": (lambda o, z: o.gather(z, AT, axis=1), [Z]),
    "scatter_add": (lambda o, z, w: o.scatter_add(z, AT, w, axis=1), [Z, numbers(3, 3)]),
    "scatter": (lambda o, z, w: o.scatter(z, AT, w, axis=1), [Z, numbers(3, 3)]),
    "dynamic_slice": (lambda o, z: o.dynamic_slice(z, np.array([1, 1], np.int32), sizes=[2, 2]), [Z]),
    "dynamic_update": (lambda o, z, w: o.dynamic_update(z, w, np.array([1, 0], np.int32)), [Z, numbers(2, 2)]),
    "cumsum": (lambda o, z: o.cumsum(z, axis=1), [Z]), "conj": (lambda o, z: o.conj(z), [Z]),
    "several": (lambda o, z, w: o.tanh(o.div(o.exp(o.mul(z, w)), o.add(o.sqrt(w), 3.0))), [Z, W]),
    "from floats": (lambda o, x, z: o.mul(x, z), [X, Z]),
    "scan": (lambda o, z, w: o.scan(lambda c, e: (o.mul(o.add(c, e), 0.5), o.mul(c, e)), [z], [w])[0], [Z[0], W]),
}
# Of complex numbers, floats.
TO_FLOATS = {
    "abs": lambda o, z: o.abs(z), "angle": lambda o, z: o.angle(z), "real": lambda o, z: o.real(z),
    "imag": lambda o, z: o.imag(o.mul(z, z)), "both": lambda o, z: o.atan2(o.real(z), o.abs(o.exp(z))),
}


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_functions_of_complex_numbers(name):
    f, operands = HOLOMORPHIC[name]
    out = run_jax(f, operands)[0]
    c = numbers(*out.shape)
    tangents = [numbers(*x.shape) if np.iscomplexobj(x) else RNG.normal(size=x.shape) for x in operands]
    n = len(operands)
    weights = RNG.normal(size=out.shape)
    check(name, [
        ("value", f, operands),
        ("jvp", lambda o, *x: o.jvp(lambda *x: f(o, *x), x[:n], x[n:]), [*operands, *tangents]),
        ("vjp", lambda o, *x: o.vjp(lambda *x: f(o, *x), x[:n], [x[n]]), [*operands, c]),
        ("gradient of a real part", lambda o, *x: o.grad(
            lambda *x: o.sum(o.real(o.mul(f(o, *x), c))))(*x), operands),
        ("gradient of sizes", lambda o, *x: o.grad(lambda *x: o.sum(o.mul(o.abs(f(o, *x)), weights)))(*x), operands),
        ("vmap", lambda o, *x: o.vmap(lambda *x: f(o, *x))(*x), [np.stack([x, x[::-1]]) for x in operands])])


@pytest.mark.parametrize("name", TO_FLOATS)
def test_floats_of_complex_numbers(name):
    f = TO_FLOATS[name]
    c, t = RNG.normal(size=Z.shape), numbers(*Z.shape)
    check(name, [
        ("value", f, [Z]), ("jvp", lambda o, z: o.jvp(lambda z: f(o, z), [z], [t]), [Z]),
        ("vjp", lambda o, z: o.vjp(lambda z: f(o, z), [z], [c]), [Z]),
        ("gradient", lambda o, z: o.grad(lambda z: o.sum(o.mul(f(o, z), f(o, z))))(z), [Z]),
        ("along floats", lambda o, x, y: o.grad(lambda x, y: o.sum(f(o, o.exp(o.complex(x, y)))))(x, y), [X, 0.5 * X])])


@pytest.mark.parametrize("name", sorted(HOLOMORPHIC))
def test_fused_and_unfused_are_the_same_bits(name):
    f, operands = HOLOMORPHIC[name]
    def loss(o, *x):
        return o.value_and_grad(lambda *x: o.sum(o.abs(f(o, *x))))(*x)
    fused, plain = (run_programs([(loss, operands)], "cpu", **env)[0] for env in ({}, {"COTAN_FUSE": "0"}))
    assert not isinstance(fused, Failure), fused
    assert [x.tobytes() for x in fused] == [x.tobytes() for x in plain]


def test_second_derivatives():
    def f(o, x, y):
        return o.sum(o.abs(o.sin(o.complex(x, y))))
    x, y = RNG.normal(size=3), RNG.normal(size=3)
    check("second", [("hessian", lambda o, x, y: o.hessian(lambda x, y: f(o, x, y))(x, y), [x, y]),
                     ("hvp", lambda o, x, y: o.hvp(lambda x, y: f(o, x, y), [x, y], [y, x]), [x, y])])


@pytest.mark.parametrize("name", sorted({**HOLOMORPHIC, **TO_FLOATS}))
def test_complex64(name):
    """Of c64 the values, compared with JAX's in complex128 of the same numbers."""
    f, operands = HOLOMORPHIC.get(name) or (TO_FLOATS[name], [Z])
    narrow = [x.astype(np.complex64 if np.iscomplexobj(x) else np.float32) for x in operands]
    want = run_jax(f, [x.astype(np.complex128 if np.iscomplexobj(x) else np.float64) for x in narrow])[0]
    for device in DEVICES:
        got = run_programs([(f, narrow)], device)[0]
        assert not isinstance(got, Failure), got
        assert got[0].dtype == (np.complex64 if np.iscomplexobj(want) else np.float32)
        text, _ = difference(got[0].astype(want.dtype), want, 4e-6)
        assert not text, f"{device}: {text}"


EDGES = np.array([0, -0.0, 1, -1, 1j, -1j, complex(-1, -0.0), complex(-4, 0.0), 1e-200, 1e-200j, 1e200 + 1e200j, 3e-9 + 1j,
                  1 + 1e-9j, 700 + 1j, -700 - 1j, 40j, -40 + 2j, 1e-9 - 1e-9j])


@pytest.mark.parametrize("name", ["abs", "angle", "sqrt", "log", "exp", "sin", "cos", "tanh", "square", *FUNCTIONS])
def test_edges(name):
    want = np.array([0 if x == 0 and name == "log" else 1 for x in EDGES], bool)  # the log of 0 is compared apart
    x = EDGES[want]
    with np.errstate(all="ignore"):
        exact = IN_NUMPY.get(name, getattr(np, name, None))(x)
    finite = np.isfinite(exact)
    for device in DEVICES:
        got = run_programs([(lambda o, z: getattr(o, name)(z), [x])], device)[0][0]
        off = np.abs(got - exact)[finite] / np.maximum(np.abs(exact[finite]), 1e-300)
        assert np.isfinite(got[finite]).all() and off.max() < 1e-12, (device, x[finite][off.argmax()], off.max())
        if name == "log":
            zero = run_programs([(lambda o, z: o.log(z), [np.zeros(1, complex)])], device)[0][0]
            assert zero[0].real == -np.inf and zero[0].imag == 0


ENDS = [complex(a, b) for a in (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf) for b in (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf)
        if np.isfinite(a) or np.isfinite(b)]


@pytest.mark.parametrize("name", ["abs", "sqrt", "log", "exp", "sin", "cos", "tanh", "square", *FUNCTIONS])
def test_infinite_parts(name):
    """NumPy's values, but for the signs of zeros that the array API standard leaves open; it says what expm1 of infinity is."""
    x = np.array([z for z in ENDS if name != "expm1" or z.imag or np.isfinite(z.real)])
    with np.errstate(all="ignore"):
        exact = IN_NUMPY.get(name, getattr(np, name, None))(x).astype(complex)
    for device in DEVICES:
        got = run_programs([(lambda o, z: getattr(o, name)(z), [x])], device)[0][0].astype(complex)
        for part in ("real", "imag"):
            a, b = getattr(got, part), getattr(exact, part)
            same = np.isclose(a, b, 1e-12, 1e-300, equal_nan=True)
            assert same.all(), (device, part, x[~same], got[~same], exact[~same])


def test_comparisons_and_casts():
    z = np.array([1 + 2j, 1 - 2j, 3, complex(np.nan, 1)])
    w = np.array([1 + 2j, 1 + 2j, 4, complex(np.nan, 1)])
    programs = [("equal", lambda o, z, w: o.equal(z, w), [z, w]), ("not equal", lambda o, z, w: o.not_equal(z, w), [z, w]),
                ("equal to a float", lambda o, z: o.equal(z, 3.0), [z]),
                ("to c64", lambda o, z: o.cast(z, dtype="c64"), [z]), ("c128", lambda o, z: o.cast(z, dtype="c128"), [z])]
    for d in DTYPES[1:]:
        if d not in ("c64", "c128", "u4", "i4", "f4"):
            x = np.array([0, 1, 1, 0]).astype(NUMPY[d])
            programs += [(f"{d} to c64", lambda o, x: o.cast(x, dtype="c64"), [x]), (f"{d} to c128", lambda o, x: o.cast(x, dtype="c128"), [x])]
    check("comparisons and casts", programs)


def test_numbers_without_a_dtype():
    """As JAX's: a number takes the other's dtype, and of a float's width the complex numbers are as wide."""
    z = numbers(3)
    check("numbers", [("c128 and a float", lambda o, z: o.mul(z, 0.1), [z]), ("c128 and a whole one", lambda o, z: o.add(z, 2), [z]),
                      ("c64 and f64", lambda o, z, x: o.mul(z, x), [z.astype(np.complex64), RNG.normal(size=3)]),
                      ("c64 and f16", lambda o, z, x: o.mul(z, x), [z.astype(np.complex64), np.array([1, 2, 3], np.float16)]),
                      ("c64 and i64", lambda o, z, x: o.add(z, x), [z.astype(np.complex64), np.array([1, 2, 3])])])


REFUSED = [(name, (lambda name: lambda o, z, w: getattr(o, name)(z, w))(name), 2)
           for name in ("less", "less_equal", "greater", "greater_equal", "maximum", "minimum", "mod", "atan2")] + \
          [(name, (lambda name: lambda o, z: getattr(o, name)(z))(name), 1)
           for name in ("max", "min", "argmax", "relu", "floor", "softmax", "topk", "cummax", "sort", "argsort")]


@pytest.mark.parametrize("name,f,n", REFUSED)
def test_order_is_refused(name, f, n):
    got = run_programs([(f, [Z, W][:n])], DEVICES[0])[0]
    assert isinstance(got, Failure) and "operand 1 is (3, 4) c128, accepted are" in got, got
    assert got.endswith("\n  hint: ct_real, ct_imag and ct_abs make floats of complex numbers"), got


def test_jax_agrees_about_the_convention():
    """The gradient of a real function of z = x + iy is its slope along x less i times that along y."""
    g = run_programs([(lambda o, z: o.grad(lambda z: o.sum(o.mul(o.abs(z), o.abs(z))))(z), [Z])], DEVICES[0])[0][0]
    assert np.allclose(g, 2 * np.conj(Z)) and np.allclose(g, jax.grad(lambda z: jnp.sum(jnp.abs(z) ** 2))(Z))


def hard(dtype):
    """Near the poles and ends of cuts at 1 and i, on the cuts, and where squares and sums overflow, underflow or are no numbers."""
    part = np.float32 if dtype == np.complex64 else np.float64
    info = np.finfo(part)
    own = [0, 1, 1 + info.eps, 1 - info.eps / 2, 1 - 3 * info.eps, info.tiny, 1e-20, 1e-4, 0.5, np.pi / 4, np.pi / 2, 2, 80,
           1e12, 1e30, info.max, np.inf, np.nan]
    own = np.array(own, part)
    re, im = np.meshgrid(*[np.concatenate([own, -own])] * 2)
    z = np.empty(re.size, dtype)
    z.real, z.imag = re.ravel(), im.ravel()
    return z


def left_open(name, z):
    """What C's annex G and NumPy leave open: signs beside infinity and NaN; where an argument is large, or NumPy's log1p cancels."""
    turn = z.real if name in ("sin", "cos", "tan") else z.imag
    if name in ("exp", "sin", "cos", "tan", "sinh", "cosh", "tanh"):
        return np.isfinite(turn) & (np.abs(turn) > 100)
    return np.full(z.shape, name == "log1p") & (np.abs(np.abs(1 + z) - 1) < 0.5)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["sqrt", "log", "log1p", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
                                  "acosh", "atanh"])
def test_near_poles_on_cuts_and_at_the_ends(name, dtype):
    z = hard(dtype)
    with np.errstate(all="ignore"):
        z = z[~left_open(name, z)]
    f = getattr(np, name if hasattr(np, name) else "arc" + name[1:])
    with np.errstate(all="ignore"):
        wide = f(z.astype(np.clongdouble))
        want = wide.astype(dtype)
    for device in DEVICES:
        got = run_programs([(lambda o, z: getattr(o, name)(z), [z])], device)[0][0]
        for part in ("real", "imag"):
            a, b, exact = (getattr(x, part) for x in (got, want, wide))
            known = np.isfinite(z)
            with np.errstate(all="ignore"):
                off = np.abs(a.astype(np.longdouble) - exact) / np.spacing(np.abs(b)).astype(np.longdouble)
            same = np.where(np.isfinite(b) & np.isfinite(a), off <= 16, (a == b) | (np.isnan(a) & np.isnan(b)) | (~known & np.isinf(a) & np.isinf(b)))
            sign = np.isnan(b) | (np.signbit(a) == np.signbit(b)) | ~known
            bad = ~(same & sign)
            assert not bad.any(), (device, part, z[bad][:5], a[bad][:5], b[bad][:5])
