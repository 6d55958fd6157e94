"""Loops and branches against jax: twelve programs, their results and gradients, and what is refused."""
import support.interpreted  # noqa: F401, I001: before cotan
import cotan
import jax
import jax.numpy as jnp
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)
RNG = np.random.default_rng(6)
X, W, V = RNG.standard_normal((5, 3)), RNG.standard_normal((3, 3)) * 0.5, RNG.standard_normal(7)


class Ours:
    """cotan by the names that the programs have."""
    np, grad, vmap = cotan, cotan.grad, cotan.vmap
    scan, cond, while_loop, fori, associative = cotan.scan, cotan.cond, cotan.while_loop, cotan.fori_loop, cotan.associative_scan


class Theirs:
    np, grad, vmap = jnp, jax.grad, jax.vmap
    scan, cond, while_loop, fori = jax.lax.scan, jax.lax.cond, jax.lax.while_loop, jax.lax.fori_loop
    associative = jax.lax.associative_scan


def recurrent(lib, x, w):
    """A recurrent net: a carry of two, a result each turn."""
    def cell(carry, row):
        h, total = carry
        h = lib.np.tanh(h @ w + row)
        return (h, total + h.sum()), h * row

    (h, total), ys = lib.scan(cell, (x[0] * 0, x[0].sum() * 0), x)
    return (h * total).sum() + (ys * ys).sum()


def backwards(lib, x, w):
    """From the last to the first, results in place."""
    carry, ys = lib.scan(lambda c, row: (lib.np.sin(c @ w) + row, c * row), x[0], x, reverse=True)
    return carry.sum() + (ys * x).sum()


def power(lib, x, w):
    """A fixed number of turns of fori."""
    return lib.fori(0, 6, lambda i, m: m @ w + x[:3] * 0.1, w).sum()


def indexed(lib, x, w):
    """fori that reads its place."""
    return lib.fori(1, 5, lambda i, total: total + (i + 1) * (x[i] @ w).sum(), x[0, 0] * 0)


def chosen(lib, x, w):
    """A branch that the data choose."""
    return lib.cond(x.sum() > 0, lambda x, w: (x @ w).sum(), lambda x, w: (x * x).sum() - w.sum(), x, w)


def nested(lib, x, w):
    """A branch in a loop in a loop."""
    def inner(c, row):
        c = lib.cond(row.sum() > 0, lambda c: lib.np.sin(c), lambda c: c * 0.5, c)
        return c + row, c.sum()

    def outer(c, _):
        c, sums = lib.scan(inner, c, x)
        return c, sums.sum()

    c, ys = lib.scan(outer, x[0] @ w, None, 3)
    return c.sum() + ys.sum()


def batched(lib, x, w):
    """A loop an element of a batch."""
    return lib.vmap(lambda row: lib.scan(lambda c, v: (lib.np.tanh(c * v + row.sum()), c), row[0], row)[0])(x @ w).sum()


def branches_of_a_batch(lib, x, w):
    return lib.vmap(lambda row: lib.cond(row[0] > 0, lambda r: (r * r).sum(), lambda r: lib.np.exp(r).sum(), row))(x @ w).sum()


def running_sums(lib, x, w):
    return (lib.associative(lambda a, b: a + b, x @ w) * x).sum()


def recurrence(lib, x, w):
    """A linear recurrence h = a h + b as an associative scan of pairs, from the end."""
    def compose(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    a, b = lib.np.tanh(x @ w), x
    forward = lib.associative(compose, (a, b))[1]
    return (forward * forward).sum() + lib.associative(compose, (a, b), reverse=True)[1].sum()


def products(lib, x, w):
    """Prefix products of matrices, along another axis."""
    stack = w[:, None] * 0.3 + x.T[:, :, None] * 0.1  # (3, 5, 3): matrices along axis 1
    return lib.associative(lambda a, b: lib.np.einsum("i...j,j...k->i...k", a, b), stack, axis=1).sum()


def second_order(lib, x, w):
    """A gradient through a loop, differentiated again."""
    def loss(x):
        return lib.scan(lambda c, row: (lib.np.sin(c * row), None), x[0], x)[0].sum()

    return (lib.grad(loss)(x) ** 2).sum() * w.sum()


PROGRAMS = [recurrent, backwards, power, indexed, chosen, nested, batched, branches_of_a_batch, running_sums, recurrence, products,
            second_order]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("sign", [1, -1])
def test_programs(program, sign):
    """The value, both gradients, and a second derivative."""
    x = X * sign
    ours, theirs = (lambda x, w, lib=lib: program(lib, x, w) for lib in (Ours, Theirs))
    near = lambda a, b: np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-9, atol=1e-9)  # noqa: E731
    mine, yours = (cotan.asarray(x), cotan.asarray(W)), (jnp.asarray(x), jnp.asarray(W))
    near(ours(*mine), theirs(*yours))
    for a, b in zip(cotan.grad(ours, argnums=(0, 1))(*mine), jax.grad(theirs, argnums=(0, 1))(*yours)):
        near(a, b)
    second = [lib.grad(lambda w, f=f, args=args, lib=lib: (lib.grad(f)(args[0], w) ** 2).sum())(args[1])
              for lib, f, args in ((Ours, ours, mine), (Theirs, theirs, yours))]
    near(*second)


def test_while_loops():
    def collatz(lib, n):
        return lib.while_loop(lambda s: s[0] != 1, lambda s: (lib.np.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, n * 0))[1]

    for n in (1, 6, 27):
        assert collatz(Ours, cotan.asarray(n)).item() == int(collatz(Theirs, jnp.asarray(n)))
    ours = cotan.vmap(lambda n: collatz(Ours, n))(cotan.asarray([1, 6, 27]))
    assert ours.tolist() == [0, 8, 111]


def test_what_is_refused():
    x = cotan.asarray(V)
    for run, kind, text in (
            (lambda: cotan.associative_scan(lambda a, b: a + b, x, axis=1), ValueError, "associative_scan: axis 1 of a tensor (7,) is asked for"),
            (lambda: cotan.associative_scan(3, x), TypeError, "lax.associative_scan: fn argument should be callable."),
            (lambda: cotan.associative_scan(lambda a, b: (a, b), x), TypeError,
             "associative_scan: what the function gives has the structure PyTreeDef((*, *)), it must be PyTreeDef(*)"),
            (lambda: cotan.scan(lambda c, v: c, x[0], x), TypeError, "scan: the function gives a pair (carry, y), not Tensor"),
            (lambda: cotan.scan(lambda c, v: (c, v), x[0]), ValueError, "scan: without xs, length is required: the number of iterations")):
        with pytest.raises(kind) as error:
            run()
        assert str(error.value) == text
