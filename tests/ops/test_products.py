"""The derivatives of products where factors are 0, against JAX: none, one, two and only zeros in a line, of floats and of complex
numbers, and where a size is dynamic."""
import numpy as np
import pytest
from op_cases import Operand, dyn
from op_transforms import SEED, check

RNG = np.random.default_rng(SEED)
X = RNG.uniform(0.5, 1.5, (5, 4)) * RNG.choice([-1, 1], (5, 4))
X[1, 2] = X[2, 0] = X[2, 3] = X[3, 1:] = X[4] = 0
BLOCK = RNG.uniform(0.5, 1.5, (2, 3, 2))
BLOCK[0, 1, 0] = BLOCK[1, 2, 1] = BLOCK[1, 1, 1] = 0
T, WEIGHT = RNG.normal(size=X.shape), RNG.normal(size=X.shape)
AXES = {"rows": {"axes": [1]}, "columns": {"axes": [0], "keepdims": True}, "all": {}}
ROW = RNG.uniform(0.5, 1.5, 9)
LINES = [ROW * (np.arange(9) >= zeros) for zeros in range(4)] + [ROW[:1], ROW[:0], ROW[:2] * [0, 1]]


def loss(o, x, **attrs):
    y = o.prod(o.mul(x, WEIGHT), **attrs)
    return o.sum(o.add(o.mul(y, y), o.mul(o.sin(y), 3.0)))


@pytest.mark.parametrize("name", AXES)
def test_products_with_zeros(name):
    attrs = AXES[name]
    f = lambda o, x: loss(o, x, **attrs)
    check(name, [
        ("grad", lambda o, x: o.grad(lambda x: f(o, x))(x), [X]),
        ("jvp", lambda o, x, t: o.jvp(lambda x: o.prod(x, **attrs), [x], [t]), [X, T]),
        ("hessian", lambda o, x: o.hessian(lambda x: f(o, x))(x), [X]),
        ("jvp of jvp", lambda o, x, t: o.jvp(lambda x: o.jvp(lambda x: f(o, x), [x], [t])[1], [x], [t]), [X, T]),
        ("hvp", lambda o, x, t: o.hvp(lambda x: f(o, x), [x], [t]), [X, T])])


def test_a_batch_of_products():
    f = lambda o, x: o.prod(x)
    check("vmap", [
        ("of grad", lambda o, x: o.vmap(o.grad(lambda x: f(o, x)))(x), [X]),
        ("of grad, columns", lambda o, x: o.vmap(o.grad(lambda x: f(o, x)), 1)(x), [X]),
        ("of hessian", lambda o, x: o.vmap(o.hessian(lambda x: f(o, x)))(x), [X]),
        ("grad of vmap", lambda o, x: o.grad(lambda x: o.sum(o.sin(o.vmap(lambda x: f(o, x))(x))))(x), [X])])


def test_axes_apart():
    f = lambda o, x: o.sum(o.sin(o.prod(x, axes=[0, 2])))
    check("axes", [("grad", lambda o, x: o.grad(lambda x: f(o, x))(x), [BLOCK]),
                   ("hessian", lambda o, x: o.hessian(lambda x: f(o, x))(x), [BLOCK])])


def test_lines():
    check("lines", [(f"grad at {x}", lambda o, x: o.grad(lambda x: o.prod(x))(x), [x]) for x in LINES] +
          [(f"hessian at {x}", lambda o, x: o.hessian(lambda x: o.prod(x))(x), [x]) for x in LINES if len(x)])


def test_dynamic_sizes():
    x, t = (Operand(v, dims=[dyn(5), dyn(4)]) for v in (X, T))
    check("dynamic", [("grad", lambda o, x: o.grad(lambda x: o.sum(o.sin(o.prod(x, axes=[1]))))(x), [x]),
                      ("of all", lambda o, x: o.grad(lambda x: o.prod(o.add(x, 0.5)))(x), [x]),
                      ("hvp", lambda o, x, t: o.hvp(lambda x: o.sum(o.sin(o.prod(x, axes=[1]))), [x], [t]), [x, t])])


@pytest.mark.parametrize("name", AXES)
def test_complex_products_with_zeros(name):
    attrs = AXES[name]

    def f(o, x, y):
        z = o.prod(o.mul(o.complex(x, y), WEIGHT), **attrs)
        return o.sum(o.add(o.real(o.mul(z, z)), o.imag(o.mul(z, 2.0))))
    z, t = X + 1j * np.where(X == 0, 0, T), T - 0.5j * WEIGHT
    check(name, [
        ("grad", lambda o, x, y: o.grad(lambda x, y: f(o, x, y))(x, y), [z.real, z.imag]),
        ("hessian", lambda o, x, y: o.hessian(lambda x, y: f(o, x, y))(x, y), [z.real, z.imag]),
        ("jvp", lambda o, x, t: o.jvp(lambda x: o.prod(x, **attrs), [x], [t]), [z, t]),
        ("vjp", lambda o, x: o.vjp(lambda x: o.prod(x), [x], [1.5 - 2j]), [z]),
        ("vmap", lambda o, x: o.vmap(lambda x: o.vjp(lambda x: o.prod(x), [x], [1.5 - 2j])[1])(x), [z])])


def test_16_bits():
    """Factors of which a product on the way is not a number of 16 bits, the whole product is."""
    x = np.array([300, 500, 0.001, 0.01, 2], np.float16)
    check("f16", [("grad", lambda o, x: o.cast(o.grad(lambda x: o.prod(x))(x), dtype="i32"), [x])])
