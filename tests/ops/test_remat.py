"""Functions of which gradients compute what they need again (ct_remat), against jax.checkpoint: values and derivatives are those
of the function, whatever is saved."""
import os

import numpy as np
import pytest
from op_cases import Failure
from op_transforms import SEED, chosen, difference
from programs import listed, run_jax, run_programs

DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
RNG = np.random.default_rng(SEED)
N = 4
X, W = RNG.normal(size=(3, N)), RNG.normal(size=(N, N)) / 2
POLICIES = [("nothing", ()), ("everything", ()), ("products", ()), ("named", ("a", "c"))]


# ------------------------------------------------------------------------------------------ functions
# of x (3, N) and w (N, N)

def block(o, x, w):
    h = o.name(o.tanh(o.matmul(x, w)), "a")
    h = o.name(o.mul(o.sin(o.matmul(h, w)), h), "b")
    return o.add(x, o.name(o.exp(o.mul(h, 0.3)), "c"))


def plain(o, remat, x, w):
    return [remat(lambda x, w: block(o, x, w))(x, w)]


def stacked(o, remat, x, w):
    for _ in range(3):
        x = remat(lambda x, w: block(o, x, w))(x, w)
    return [x]


def captures(o, remat, x, w):
    """Another one inside; w is captured; an integer passes through; a result is not used."""
    def f(x, i):
        inner = remat(lambda y: o.mul(o.softmax(o.matmul(y, w)), y))(x)
        return o.name(o.cos(inner), "a"), o.add(i, i), o.mul(x, x)
    y, i, _ = remat(f)(x, np.int32(3))
    return [o.mul(y, o.cast(i, dtype="f64"))]


def twice_the_same(o, remat, x, w):
    return [remat(lambda a, b: o.mul(o.sin(a), o.name(o.exp(o.mul(b, 0.5)), "a")))(x, x)]


def in_a_loop(o, remat, x, w):
    def body(c, e):
        y = remat(lambda c, e: o.name(o.tanh(o.add(o.matmul(o.reshape(c, dims=[1, N]), w), e)), "a"))(c, e)
        return [o.reshape(y, dims=[N]), o.mul(c, e)]
    return o.scan(body, [o.sum(x, axes=[0])], [x])


def with_compositions(o, remat, x, w):
    def f(x, w):
        h = o.layer_norm(x, present=0, eps=0.1)
        q = o.matmul(h, w)
        h, _ = o.attention(q, o.sin(q), o.tanh(q), causal=True)
        return o.add(x, o.gelu(o.name(h, "c")))
    return [remat(f)(x, w)]


FUNCTIONS = [plain, stacked, captures, twice_the_same, in_a_loop, with_compositions]


# ------------------------------------------------------------------------------------------ derivatives

def loss(o, f):
    def g(*x):
        return o.sum(o.mul(listed(f(*x))[0], o.cos(listed(f(*x))[0])))
    return g


def grad(o, f):
    return lambda *x: o.value_and_grad(loss(o, f))(*x)


def jvp(o, f):
    return lambda *x: o.jvp(f, list(x), [o.cos(v) for v in x])


def hvp(o, f):
    return lambda *x: o.hvp(loss(o, f), list(x), [o.sin(v) for v in x])


def vmap_of_grad(o, f):
    return lambda x, w: o.vmap(grad(o, f), (0, None))(o.mul(o.reshape(x, dims=[1, 3, N]), np.array([1, -0.5]).reshape(2, 1, 1)), w)


def grad_of_vmap(o, f):
    def g(x, w):
        return o.vmap(f, (0, None))(o.mul(o.reshape(x, dims=[1, 3, N]), np.array([1, -0.5]).reshape(2, 1, 1)), w)
    return grad(o, g)


DERIVATIVES = {"value": lambda o, f: f, "grad": grad, "jvp": jvp, "hvp": hvp, "grad of grad": lambda o, f: grad(o, lambda *x: grad(o, f)(*x)[1]),
               "vmap of grad": vmap_of_grad, "grad of vmap": grad_of_vmap}


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_remat(f):
    programs = []
    for policy in POLICIES:
        for name, derivative in DERIVATIVES.items():
            if name == "grad" or chosen(f.__name__, policy[0], name):
                def run(o, x, w, policy=policy, derivative=derivative):
                    return derivative(o, lambda x, w: f(o, lambda g: o.remat(g, *policy), x, w))(x, w)
                programs.append((f"{name}, {policy[0]}", run))
    wants = [run_jax(p, [X, W]) for _, p in programs]
    errors = []
    for device in DEVICES:
        for (what, _), got, want in zip(programs, run_programs([(p, [X, W]) for _, p in programs], device), wants):
            if isinstance(got, Failure) or len(got) != len(want):
                errors.append(f"{what}, {device}: {got if isinstance(got, Failure) else len(got)}")
                continue
            errors += [f"{what}, {device}, result {i}: {text}" for i, (g, w) in enumerate(zip(got, want))
                       if (text := difference(g, w)[0])]
    assert not errors, f"seed {SEED}\n" + "\n".join(errors[:20])
