"""Transforms of transforms: all compositions three deep of {whole plan, grad, jvp, vmap} over functions of many kinds, against JAX.

Each function, and each transform of one, takes a tensor (4,) and gives one, so that they go into each other in any order. Under
COTAN_TEST_ALL all compositions are compared, else a twentieth.
"""
import itertools
import os
import zlib

import numpy as np
import pytest
from op_cases import Failure
from programs import listed, run_jax, run_programs
from op_transforms import ALL, difference

DEVICE = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")[-1]
SEED = 20261017
RNG = np.random.default_rng(SEED)
N = 4
W1, W2 = RNG.normal(size=(N, 6)) / 2, RNG.normal(size=(6, N)) / 2
TABLE_OF = RNG.normal(size=(5, N))
WAY, WEIGHT = RNG.normal(size=N), RNG.normal(size=N)
SCALES = np.array([0.5, -1.0, 1.25])


# ------------------------------------------------------------------------------------------ functions

def mlp(o, x):
    return o.reshape(o.matmul(o.tanh(o.matmul(o.reshape(x, dims=[1, N]), W1)), W2), dims=[N])


def softmax_of_products(o, x):
    scores = o.matmul(o.reshape(x, dims=[N, 1]), o.reshape(o.sin(x), dims=[1, N]))
    return o.sum(o.mul(o.softmax(scores), o.reshape(x, dims=[1, N])), axes=[1])


def normalised(o, x):
    return o.layer_norm(o.reshape(o.mul(x, x), dims=[1, N]), WEIGHT, WAY, present=3, eps=0.1)


def rms(o, x):
    return o.mul(o.rms_norm(o.add(x, 2.0), eps=0.1), o.cos(x))


def cross_entropies(o, x):
    logits = o.mul(o.reshape(x, dims=[N, 1]), np.linspace(-1, 1, 5).reshape(1, 5))
    return o.cross_entropy(logits, np.array([0, 2, 4, 1], np.int32), per_row=True)[0]


def attends(o, x):
    q = o.matmul(o.reshape(x, dims=[N, 1]), W1[:1, :3])
    return o.sum(o.attention(q, o.sin(q), o.tanh(q), causal=True)[0], axes=[1])


def smooth_units(o, x):
    return o.add(o.mul(o.sigmoid(x), o.gelu(x)), o.add(o.silu(x), o.softplus(o.log_sigmoid(x))))


def powers(o, x):
    y = o.add(o.mul(x, x), 0.5)
    return o.add(o.pow(y, 1.5), o.div(o.sqrt(y), o.add(o.exp(x), o.log(y))))


def gathers(o, x):
    picked = o.gather(o.mul(TABLE_OF, x), np.array([4, 0, 4], np.int32))
    return o.sum(o.mul(picked, o.sin(x)), axes=[0])


def scatters(o, x):
    return o.scatter_add(o.sin(x), np.array([1, 3, 1], np.int32), o.mul(o.slice(x, start=[0], stop=[3]), x_of(o, x)))


def x_of(o, x):
    return o.cos(o.slice(x, start=[1], stop=[4]))


def moves(o, x):
    wide = o.concat(o.pad(x, 0.5, low=[1], interior=[1]), o.flip(o.mul(x, x)), axis=0)
    return o.sin(o.slice(wide, start=[2], stop=[10], step=[2]))


def windows(o, x):
    part = o.dynamic_slice(o.tanh(x), np.int32(1), sizes=[2])
    return o.dynamic_update(o.mul(x, x), o.mul(part, part), np.int32(2))


def running_sums(o, x):
    return o.mul(o.cumsum(o.sin(x)), o.exp(o.mul(o.cumsum(x, reverse=True), 0.1)))


def largest(o, x):
    values = o.topk(o.mul(x, o.cos(x)), k=2)[0]
    return o.mul(x, o.add(o.sum(values), o.max(o.sin(x))))


def chooses(o, x):
    return o.select(o.greater(x, 0.1), o.mul(x, o.exp(x)), o.sin(o.clamp(x, -2.0, 3.0)))


def statistics(o, x):
    return o.mul(o.sub(x, o.mean(x)), o.add(o.var(x, correction=1), o.logsumexp(x)))


def drops_out(o, x):
    return o.mul(o.dropout(o.sin(x), np.array([3, 5], np.uint32), np.float32(0.4)), x)


def noisy(o, x):
    noise = o.random_normal(np.array([1, 2], np.uint32), dims=[N])
    return o.mul(o.sin(x), o.cast(noise, dtype="f64"))


def own_tangent(o, x):
    """A rule that says what f's derivative is, in other words than f."""
    f = o.custom_jvp(lambda x: o.mul(o.sin(x), x),
                     lambda x, y, t: o.mul(t, o.add(o.sin(x), o.mul(o.cos(x), x))))
    return o.mul(f(x), o.mean(x))


def own_cotangent(o, x):
    f = o.custom_vjp(lambda x: o.mul(o.exp(x), 0.5), lambda x, y, c: o.mul(o.mul(c, 0.5), o.exp(x)))
    return o.sin(f(x))


def scans(o, x):
    """x begins, is captured, and is what is gone along."""
    last, ys = o.scan(lambda c, e: [o.tanh(o.add(o.mul(c, x), o.mul(e, WEIGHT))), o.mul(c, e)], [o.sin(x)], [x])
    return o.add(last, o.sum(ys, axes=[0]))


def counts(o, x):
    return o.fori(0, 3, lambda i, y: o.add(o.mul(o.sin(y), x), o.cast(i, dtype="f64")), [o.mul(x, 0.5)])[0]


def either(o, x):
    return o.cond(o.greater(o.sum(x), 0.4), lambda x: o.mul(o.sin(x), x), lambda x: o.exp(o.mul(x, WEIGHT)), [x])


def one_of_three(o, x):
    index = o.cast(o.floor(o.mul(o.sum(x), 1.5)), dtype="i32")
    return o.switch(index, [o.tanh, lambda x: o.mul(x, o.sum(x)), lambda x: o.cos(o.mul(x, WAY))], [x])


def turns(o, x):
    """Without a gradient in reverse mode."""
    return o.while_loop(lambda y: o.less(o.sum(o.mul(y, y)), 20.0), lambda y: o.add(o.mul(y, 1.7), o.sin(x)), [x])[0]


FORWARD_ONLY = [turns]
FUNCTIONS = [mlp, softmax_of_products, normalised, rms, cross_entropies, attends, smooth_units, powers, gathers, scatters, moves,
             windows, running_sums, largest, chooses, statistics, drops_out, noisy, own_tangent, own_cotangent,
             scans, counts, either, one_of_three, turns]


# ------------------------------------------------------------------------------------------ transforms

def call(o, f):
    return o.call(f)


def grad(o, f, plain):
    def loss(x):
        return o.sum(o.mul(f(x), WEIGHT))
    return o.grad(loss) if plain else lambda x: o.value_and_grad(loss)(x)[1]


def jvp(o, f):
    return lambda x: o.jvp(f, [x], [o.mul(WAY, o.cos(x))])[1]


def vmap(o, f, axes):
    def g(x):
        many = o.mul(o.reshape(x, dims=[N, 1]) if axes[0] else x,
                     SCALES if axes[0] else SCALES.reshape(3, 1))
        return o.sum(o.vmap(f, axes[0], axes[1])(many), axes=[axes[1]])
    return g


def transformed(o, f, names, key):
    """names: the outermost first."""
    g = lambda x: f(o, x)
    for place, name in enumerate(reversed(names)):
        bit = zlib.crc32(f"{key} {place}".encode())
        g = {"call": lambda h=g: call(o, h), "grad": lambda h=g, b=bit: grad(o, h, b & 1),
             "jvp": lambda h=g: jvp(o, h), "vmap": lambda h=g, b=bit: vmap(o, h, (b & 1, b >> 1 & 1))}[name]()
    return g


COMPOSITIONS = list(itertools.product(("call", "grad", "jvp", "vmap"), repeat=3))


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_three_deep(f):
    x, programs = RNG_X, []
    for names in COMPOSITIONS:
        if f in FORWARD_ONLY and "grad" in names:
            continue
        key = f"{f.__name__} {' '.join(names)} {SEED}"
        if ALL or zlib.crc32(key.encode()) % 20 == 0:
            programs.append((" of ".join(names), lambda o, x, n=names, k=key: listed(transformed(o, f, n, k)(x)), [x]))
    errors = []
    for (what, g, operands), got in zip(programs, run_programs([(g, o) for _, g, o in programs], DEVICE)):
        if isinstance(got, Failure):
            errors.append(f"{what}: {got}")
            continue
        for a, b in zip(got, run_jax(g, operands)):
            text, off = difference(a, b)
            WORST[f.__name__] = max(WORST.get(f.__name__, 0), off)
            if text:
                errors.append(f"{what}: {text}")
    assert not errors, f"seed {SEED}\n" + "\n".join(errors[:20])


RNG_X = np.array([0.3, -0.8, 1.1, 0.45])
WORST = {}
