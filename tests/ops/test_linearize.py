"""Linear maps, applied several times and transposed, against jax.linearize; in and around other transforms."""
import numpy as np
from op_transforms import SEED, check

RNG = np.random.default_rng(SEED)
X, W = RNG.normal(size=3), RNG.normal(size=(3, 3))
WAYS = RNG.normal(size=(2, 3))


def f(o, x, w):
    h = o.tanh(o.reshape(o.matmul(w, o.reshape(x, dims=[3, 1])), dims=[3]))
    return [o.mul(h, o.exp(o.mul(x, 0.5))), o.sum(o.mul(h, h))]


def applied(o, x, w):
    return o.linearize(lambda x, w: f(o, x, w), [x, w], [o.sin(x), w], [WAYS[0], o.mul(w, 0.5)])


def transposed(o, x, w):
    return o.linear_transpose(lambda x, w: f(o, x, w), [x, w], [o.cos(x), 0.5])


def inside(o, x, w):
    def loss(x, w):
        return o.sum(o.mul(applied(o, x, w)[2], transposed(o, x, w)[2]))
    return o.value_and_grad(loss)(x, w)


def of_a_batch(o, x, w):
    return [o.vmap(lambda t: o.linearize(lambda x: f(o, x, w), [x], [t])[2])(WAYS)]


def of_a_loop(o, x, w):
    def g(x):
        return o.scan(lambda c, e: [o.sin(o.add(c, o.mul(x, e)))], [x], [w])[0]
    return o.linearize(g, [x], [WAYS[0]], [WAYS[1]])


def test_linear_maps():
    programs = [applied, transposed, inside, of_a_batch, of_a_loop]
    check("linearize", [(p.__name__, p, [X, W]) for p in programs])
