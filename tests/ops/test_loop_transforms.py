"""Loops and branches under transforms of one another, against JAX: what is carried, sliced and captured moves and is batched,
or not, each by itself.

Under COTAN_TEST_ALL all transforms are tried, else a twentieth, and the value.
"""
import os

import numpy as np
import pytest
from op_cases import Failure, Operand, dyn
from op_transforms import SEED, chosen, difference
from programs import listed, run_jax, run_programs

DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
RNG = np.random.default_rng(SEED)
N, LENGTH, BATCH = 3, 5, 4
X, W, XS = RNG.normal(size=N), RNG.normal(size=(N, N)), RNG.normal(size=(LENGTH, N))
TIMES = np.int32(2)


# ------------------------------------------------------------------------------------------ functions
# of x (N,), w (N, N) and xs (LENGTH, N)

def scan(o, x, w, xs):
    """A carried number that counts, one that moves; w is captured; ys of floats and of integers."""
    def body(i, c, e):
        new = o.tanh(o.add(o.reshape(o.matmul(w, o.reshape(c, dims=[N, 1])), dims=[N]), e))
        return [o.add(i, TIMES), new, o.mul(new, o.cast(i, dtype="f64")), i, o.sum(o.mul(new, x))]
    _, last, ys, _, sums = o.scan(body, [np.int32(1), x], [xs])
    return [last, ys, sums]


def backwards(o, x, w, xs):
    last, ys = o.scan(lambda c, e: [o.mul(o.sin(c), o.add(e, 1.0)), o.exp(o.neg(o.mul(c, c)))], [o.mul(x, 0.5)], [xs],
                      reverse=True)
    return [o.mul(last, o.sum(w)), ys]


def becomes_moving(o, x, w, xs):
    """What is carried starts as a constant, and has the batch only from the second turn on, one after the other."""
    def body(a, b, c, e):
        return [b, c, o.add(o.mul(x, 0.5), o.mul(c, e))]
    return o.scan(body, [np.ones(N), np.zeros(N), np.full(N, 0.25)], [xs])


def fixed_length(o, x, w, xs):
    """Without xs or ys; what is captured is captured twice."""
    y = o.sin(x)
    f = o.call(lambda a, b: o.scan(lambda c: [o.add(o.mul(o.mul(a, b), o.cos(c)), 0.1)], [o.sum(o.mul(x, w), axes=[0])], [],
                                   length=4)[0])
    return [f(y, y)]


def fori(o, x, w, xs):
    return o.fori(1, 5, lambda i, c, d: [o.add(o.mul(c, 0.5), o.mul(x, o.cast(i, dtype="f64"))),
                                         o.sin(o.add(d, o.sum(o.dynamic_slice(xs, i, sizes=[1], axes=[0]))))],
                  [o.mul(x, x), o.sum(w)])


def nested(o, x, w, xs):
    def row(c, e):
        def element(d, v):
            return [o.add(o.mul(d, 0.5), o.mul(v, o.sum(c))), o.mul(d, v)]
        last, ys = o.scan(element, [o.sum(e)], [e])
        return [o.sin(o.add(c, last)), ys]
    return o.scan(row, [x], [xs])


def gradient_inside(o, x, w, xs):
    """A gradient step is the body."""
    def body(c, e):
        value, slope = o.value_and_grad(lambda c: o.sum(o.mul(o.cos(o.mul(c, x)), e)))(c)
        return [o.sub(c, o.mul(slope, 0.1)), value]
    return o.scan(body, [o.sum(w, axes=[1])], [xs])


def batch_inside(o, x, w, xs):
    def body(c, e):
        rows = o.vmap(lambda r: o.mul(o.sin(r), o.sum(o.mul(c, r))))(w)
        return [o.mul(o.sum(rows, axes=[0]), o.tanh(e)), rows]
    return o.scan(body, [x], [xs])


def cond(o, x, w, xs):
    y, z = o.cond(o.greater(o.sum(x), 0.1), lambda x, w: [o.mul(o.sin(x), x), o.sum(w)],
                  lambda x, w: [o.exp(o.mul(x, 0.5)), o.sum(o.mul(w, x))], [x, w])
    return [y, o.mul(z, xs)]


def cond_of_one(o, x, w, xs):
    """Its predicate is of w alone; one branch gives what has no batch."""
    return [o.cond(o.less(o.sum(w), 0.0), lambda x: o.cos(x), lambda x: o.mul(np.arange(N) + 0.5, o.sum(w)), [x])]


def switch(o, x, w, xs):
    index = o.cast(o.floor(o.mul(o.sum(x), 2.0)), dtype="i32")
    return o.switch(index, [lambda x, e: [o.mul(x, o.sum(e)), o.sin(e)], lambda x, e: [o.exp(x), o.mul(e, x)],
                            lambda x, e: [o.tanh(o.mul(x, x)), o.cos(e)]], [x, xs])


def branch_inside(o, x, w, xs):
    def body(c, e):
        new = o.cond(o.greater(o.sum(e), o.sum(c)), lambda c, e: o.sin(o.add(c, e)), lambda c, e: o.mul(c, o.cos(e)), [c, e])
        return [new, o.mul(new, x)]
    return o.scan(body, [o.mul(x, 2.0)], [xs])


def turns(o, x, w, xs):
    """Each element of a batch ends after turns of its own. One whose loop never begins stays as it was."""
    i, y, _ = o.while_loop(lambda i, y, z: o.less(o.sum(o.mul(y, y)), 30.0),
                           lambda i, y, z: [o.add(i, TIMES), o.add(o.mul(y, 1.5), o.sin(x)), o.mul(w, o.sum(y))],
                           [np.int32(0), x, w])
    return [y, o.mul(o.cast(i, dtype="f64"), x)]


def turns_together(o, x, w, xs):
    """The predicate is of what is the same for all."""
    i, y = o.while_loop(lambda i, y: o.less(i, np.int32(7)), lambda i, y: [o.add(i, TIMES), o.tanh(o.mul(y, 1.5))],
                        [np.int32(0), x])
    return [y, o.mul(o.cast(i, dtype="f64"), o.sum(xs))]


def turns_to_a_bound(o, x, w, xs):
    bound = o.cast(o.add(o.abs(o.floor(o.mul(o.sum(x), 2.0))), 1.0), dtype="i32")
    return o.fori(np.int32(0), bound, lambda i, c: [o.add(o.mul(c, 0.5), o.mul(x, o.cast(i, dtype="f64")))], [x])


def diverges(o, x, w, xs):
    """Elements that are done would overflow, were they turned on."""
    y, _ = o.while_loop(lambda y, n: o.less(y, n), lambda y, n: [o.exp(o.mul(y, 2.0)), n],
                        [o.add(o.abs(o.sum(x)), 0.3), o.mul(o.exp(o.mul(o.sum(x), 2.0)), 9.0)])
    return [y]


def prefixes(o, x, w, xs):
    """Linear recurrences, with a captured factor."""
    s = o.exp(o.mul(x, 0.1))
    return o.associative_scan(lambda a, b, c, d: [o.mul(o.mul(a, c), s), o.add(o.mul(o.mul(b, c), s), d)], [o.sin(xs), o.mul(xs, x)])


def matrix_prefixes(o, x, w, xs):
    """Products of matrices, which do not commute, along the last axis and from its end."""
    m = o.add(o.mul(o.reshape(xs, dims=[LENGTH, N, 1]), o.expand(w, dims=[LENGTH, N, N])), o.mul(x, 0.5))
    return o.associative_scan(lambda a, b: [o.matmul(a, b)], [o.permute(m, axes=[1, 2, 0])], axis=2, reverse=True)


FORWARD = [turns, turns_together, turns_to_a_bound, diverges]
BOTH = [scan, backwards, becomes_moving, fixed_length, fori, nested, gradient_inside, batch_inside, cond, cond_of_one, switch,
        branch_inside, prefixes, matrix_prefixes]


# ------------------------------------------------------------------------------------------ transforms
# of functions of x, w and xs, each giving a list

def many(value, axis):
    rng = np.random.default_rng([SEED, value.ndim, axis])
    return np.stack([value * rng.uniform(-1.6, 1.6) for _ in range(BATCH)], axis)


def jvp(o, f):
    return lambda *x: o.jvp(f, list(x), [o.cos(v) for v in x])


def jvp_of_x(o, f):
    return lambda x, w, xs: o.jvp(lambda x: f(x, w, xs), [x], [o.cos(x)])


def grad(o, f):
    def loss(*x):
        total = o.sum(o.mul(x[0], 0.1))
        for v in listed(f(*x)):
            total = o.add(total, o.sum(o.mul(v, o.add(o.sin(v), 0.5))))
        return total
    return lambda *x: o.value_and_grad(loss)(*x)


def vjp_of_w(o, f):
    def g(x, w, xs):
        outs = listed(f(x, w, xs))
        given = [o.cos(v) for v in outs]
        return o.vjp(lambda w: f(x, w, xs), [w], given)
    return g


def vmap(axes):
    def of(o, f):
        def g(*x):
            batched = [v if a is None else o.mul(np.expand_dims(many(np.ones(1), 0)[:, 0], [k for k in range(r + 1) if k != a]),
                                                 o.reshape(v, dims=[*s[:a], 1, *s[a:]]))
                       for v, a, r, s in zip(x, axes, (1, 2, 2), ([N], [N, N], [LENGTH, N]))]
            return o.vmap(f, axes)(*batched)
        return g
    return of


ALL_BATCHED, X_BATCHED, W_BATCHED, XS_BATCHED = vmap((0, 0, 0)), vmap((0, None, None)), vmap((None, 2, None)), vmap((None, None, 1))
ONE = {"jvp": [jvp], "jvp of x": [jvp_of_x], "vmap": [ALL_BATCHED], "vmap of x": [X_BATCHED], "vmap of w": [W_BATCHED],
       "vmap of xs": [XS_BATCHED], "jvp of vmap": [X_BATCHED, jvp], "vmap of jvp": [jvp_of_x, ALL_BATCHED],
       "jvp of jvp": [jvp, jvp_of_x], "vmap of vmap": [X_BATCHED, XS_BATCHED]}
REVERSE = {"grad": [grad], "vjp of w": [vjp_of_w], "grad of vmap": [X_BATCHED, grad], "vmap of grad": [grad, ALL_BATCHED],
           "vmap of vjp of w": [vjp_of_w, XS_BATCHED], "jvp of grad": [grad, jvp_of_x], "grad of jvp": [jvp, grad],
           "grad of grad": [grad, grad], "grad of vmap of jvp": [jvp_of_x, W_BATCHED, grad]}


def program(f, names):
    def run(o, *operands):
        g = lambda *x: f(o, *x)
        for transform in names:
            g = transform(o, g)
        return g(*operands)
    return run


def check(programs, operands):
    """programs: (what, program)."""
    errors, wants = [], [run_jax(p, operands) for _, p in programs]
    for device in DEVICES:
        found = run_programs([(p, operands) for _, p in programs], device)
        for (name, _), got, want in zip(programs, found, wants):
            if isinstance(got, Failure) or len(got) != len(want):
                errors.append(f"{name}, {device}: {got if isinstance(got, Failure) else len(got)}")
                continue
            errors += [f"{name}, {device}, result {i}: {text}" for i, (g, w) in enumerate(zip(got, want))
                       if (text := difference(g, w)[0])]
    assert not errors, f"seed {SEED}\n" + "\n".join(errors[:20])


@pytest.mark.parametrize("f", BOTH + FORWARD, ids=lambda f: f.__name__)
def test_transforms_of_loops(f):
    wanted = ONE | (REVERSE if f in BOTH else {})
    check([("value", program(f, []))] + [(name, program(f, transforms)) for name, transforms in wanted.items()
                                         if chosen(f.__name__, name)], [X, W, XS])


def roots(o, x, w):
    """Each branch has no number where the other one is chosen; w is captured."""
    return o.vmap(lambda x: o.cond(o.greater(x, 0.0), lambda x: o.mul(o.sqrt(x), w),
                                   lambda x: o.mul(x, o.log(o.neg(o.mul(x, w)))), [x]))(x)


def roots_of_three(o, x, w):
    def each(x, i):
        return o.switch(i, [o.sqrt, lambda x: o.mul(o.log(x), w), lambda x: o.mul(o.sqrt(o.neg(x)), w)], [x])
    return o.vmap(each)(x, np.array([1, 2, -3, 7], np.int32))


@pytest.mark.parametrize("f", [roots, roots_of_three], ids=lambda f: f.__name__)
def test_a_branch_that_is_not_chosen_has_no_slope(f):
    transforms = {"grad": lambda o, x, w: o.grad(lambda x, w: o.sum(f(o, x, w)))(x, w),
                  "jvp": lambda o, x, w: o.jvp(lambda x, w: f(o, x, w), [x, w], [o.cos(x), w]),
                  "hessian": lambda o, x, w: o.hessian(lambda x, w: o.sum(f(o, x, w)))(x, w)}
    check(list(transforms.items()), [np.array([4.0, -1.5, 9.0, -2.0]), np.array(1.7)])


@pytest.mark.parametrize("f", [scan, backwards], ids=lambda f: f.__name__)
def test_of_dynamic_length(f):
    transforms = {"vmap of x": [X_BATCHED], "grad of vmap of jvp": [jvp_of_x, W_BATCHED, grad], "grad": [grad]}
    check([(name, program(f, t)) for name, t in transforms.items() if chosen(f.__name__, name, "dynamic") or name == "vmap of x"],
          [X, W, Operand(XS, dims=[dyn(LENGTH), N])])
