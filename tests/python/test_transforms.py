"""Gradients of functions against jax and closed forms; cotan.autograd against its own closed forms."""
import support.interpreted  # noqa: F401, I001: before cotan
import cotan
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cotan import autograd

jax.config.update("jax_enable_x64", True)
RNG = np.random.default_rng(11)
X, W, B = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2)), RNG.standard_normal(2)


def near(ours, theirs, tolerance=1e-9):
    np.testing.assert_allclose(ours.numpy(), np.asarray(theirs), rtol=tolerance, atol=tolerance)


def loss(xp):
    def function(params, x):
        h = xp.tanh(x @ params["w"] + params["b"])
        return (h * h).sum() + xp.exp(h[0, 0])

    return function


def test_grad_of_trees():
    ours = cotan.grad(loss(cotan))({"w": cotan.asarray(W), "b": cotan.asarray(B)}, cotan.asarray(X))
    theirs = jax.grad(loss(jnp))({"w": W, "b": B}, X)
    assert set(ours) == {"w", "b"}
    for name in ours:
        near(ours[name], theirs[name])
        assert not ours[name].requires_grad


def test_value_and_grad():
    value, grads = cotan.value_and_grad(loss(cotan), argnums=(0, 1))({"w": cotan.asarray(W), "b": cotan.asarray(B)}, cotan.asarray(X))
    wanted, theirs = jax.value_and_grad(loss(jnp), argnums=(0, 1))({"w": W, "b": B}, X)
    near(value, wanted)
    near(grads[0]["w"], theirs[0]["w"])
    near(grads[1], theirs[1])
    (value, aux), grad = cotan.value_and_grad(lambda x: ((x * x).sum(), {"y": x[0]}), has_aux=True)(cotan.asarray(B))
    near(value, (B * B).sum())
    near(grad, 2 * B)
    near(aux["y"], B[0])


def test_higher_orders():
    def ours(x):
        return cotan.tanh(x * 1.5)

    def theirs(x):
        return jnp.tanh(x * 1.5)

    for order in range(4):
        ours, theirs = cotan.grad(ours), jax.grad(theirs)
        near(ours(cotan.asarray(0.3, dtype=cotan.float64)), theirs(0.3))


def test_prints_and_ifs_inside(capsys):
    def function(x):
        print("sum", x.sum().item())
        return (x * x).sum() if x[0] > 0 else (x * 3).sum()

    near(cotan.grad(function)(cotan.asarray(np.array([1.0, 2]))), [2, 4])
    near(cotan.grad(function)(cotan.asarray(np.array([-1.0, 2]))), [3, 3])
    assert capsys.readouterr().out == "sum 3.0\nsum 1.0\n"


def test_vjp_and_jvp():
    def function(xp):
        return lambda w, x: {"a": xp.sin(x @ w), "b": (w * w).sum()}

    ours, back = cotan.vjp(function(cotan), cotan.asarray(W), cotan.asarray(X))
    theirs, their_back = jax.vjp(function(jnp), W, X)
    near(ours["a"], theirs["a"])
    for scale in (1.0, -2.0):  # it may be called again
        cotangent = {"a": scale * np.cos(np.arange(8.0)).reshape(4, 2), "b": np.asarray(scale)}
        got = back({name: cotan.asarray(part) for name, part in cotangent.items()})
        for a, b in zip(got, their_back({name: jnp.asarray(part) for name, part in cotangent.items()})):
            near(a, b)
    dw, dx = RNG.standard_normal(W.shape), RNG.standard_normal(X.shape)
    value, tangent = cotan.jvp(function(cotan), (cotan.asarray(W), cotan.asarray(X)), (cotan.asarray(dw), cotan.asarray(dx)))
    wanted, their_tangent = jax.jvp(function(jnp), (W, X), (dw, dx))
    for name in ("a", "b"):
        near(value[name], wanted[name])
        near(tangent[name], their_tangent[name])


def test_jacobians_and_hessian():
    def function(xp):
        return lambda x: xp.sin(x[:, None] * x[None, :]).sum(0) * x

    x = RNG.standard_normal(3)
    wanted = jax.jacrev(function(jnp))(x)
    near(cotan.jacrev(function(cotan))(cotan.asarray(x)), wanted)
    near(cotan.jacfwd(function(cotan))(cotan.asarray(x)), wanted)
    near(cotan.hessian(lambda x: function(cotan)(x).sum())(cotan.asarray(x)), jax.hessian(lambda x: function(jnp)(x).sum())(x))


def test_jacobians_of_trees():
    def function(xp):
        return lambda p, y: {"a": xp.sin(p["w"]) * y, "b": (p["w"].sum() * p["c"], y ** 3)}

    w, c, y = RNG.standard_normal((2, 3)), RNG.standard_normal(()), RNG.standard_normal(3)
    ours, theirs = {"w": cotan.asarray(w), "c": cotan.asarray(c)}, {"w": w, "c": c}
    for argnums in (0, 1, (0, 1), (1,)):
        wanted = jax.jacrev(function(jnp), argnums)(theirs, y)
        for way in (cotan.jacrev, cotan.jacfwd):
            found = way(function(cotan), argnums)(ours, cotan.asarray(y))
            jax.tree.map(near, found, wanted)
    total = [lambda p, y, xp=xp: (function(xp)(p, y)["a"] ** 2).sum() * p["c"] for xp in (cotan, jnp)]
    for argnums in (0, (0, 1)):
        jax.tree.map(near, cotan.hessian(total[0], argnums)(ours, cotan.asarray(y)), jax.hessian(total[1], argnums)(theirs, y))
    runs = []
    found, more = cotan.jacfwd(lambda x: (runs.append(x) or x * x, "more"), has_aux=True)(cotan.asarray(y))
    assert more == "more" and len(runs) == 1
    near(found, np.diag(2 * y))
    assert cotan.jacrev(lambda x: (x, "more"), has_aux=True)(cotan.asarray(y))[1] == "more"


def test_complex():
    z = RNG.standard_normal(3) + 1j * RNG.standard_normal(3)
    near(cotan.grad(lambda z: cotan.abs(z * z + 1).sum())(cotan.asarray(z)), jax.grad(lambda z: jnp.abs(z * z + 1).sum())(z))
    near(cotan.grad(lambda z: (z * z).sum(), holomorphic=True)(cotan.asarray(z)), jax.grad(lambda z: (z * z).sum(), holomorphic=True)(z))


def test_gradients_reach_what_is_closed_over():
    weight = cotan.asarray(B).requires_grad_()
    inner = cotan.grad(lambda x: (x * x * weight).sum())(cotan.asarray(B + 1))  # 2 x weight
    inner.sum().backward()
    near(weight.grad, 2 * (B + 1))


@pytest.mark.parametrize("call, error, text", [
    (lambda: cotan.grad(lambda x: x)(cotan.ones(3)), TypeError,
     "grad: <lambda> must give one number, a tensor of shape (), it gave (3,)"),
    (lambda: cotan.grad(lambda x: 1.0)(cotan.ones(3)), TypeError,
     "grad: <lambda> must give one number, a tensor of shape (), it gave float"),
    (lambda: cotan.grad(lambda x: x.sum())(cotan.arange(3)), TypeError,
     "grad: gradients with respect to cotan.int64 are asked for, only floats and complex numbers have any"),
    (lambda: cotan.grad(lambda x: x.sum(), argnums=1)(cotan.ones(3)), ValueError,
     "grad: argument 1 of <lambda> is asked for, it is called with 1"),
    (lambda: cotan.vjp(lambda x: (x, x), cotan.ones(2))[1](cotan.ones(2)), ValueError,
     "vjp: the cotangents have the structure PyTreeDef(*), the result has PyTreeDef((*, *))"),
    (lambda: cotan.jvp(lambda x: x, (cotan.ones(2),), ()), ValueError, "jvp: there are 1 primals and 0 tangents"),
    (lambda: autograd.grad(cotan.ones(2, requires_grad=True) * 2, cotan.ones(2)), RuntimeError,
     "grad: an output is cotan.Size([2]), it must be one number\n  hint: give grad_outputs of its shape"),
])
def test_errors(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


def test_autograd_grad():
    x, y = (cotan.asarray(part).requires_grad_() for part in (B, B + 2))
    gx, gy = autograd.grad((x * x * y).sum(), (x, y))
    near(gx, 2 * B * (B + 2))
    near(gy, B * B)
    assert x.grad is None
    h = x * 3  # a value on the way
    near(autograd.grad((h * h).sum(), h, retain_graph=True)[0], 6 * B)
    z = [x * y, x + y]
    grads = autograd.grad(z, x, grad_outputs=[cotan.asarray(B), cotan.asarray(B * 0 + 2)])
    near(grads[0], B * (B + 2) + 2)
    with pytest.raises(RuntimeError, match="grad: no output hangs on input 1\n  hint: allow_unused=True gives None for it"):
        autograd.grad((x * 2).sum(), (x, y))
    assert autograd.grad((x * 2).sum(), (x, y), allow_unused=True)[1] is None
    near(autograd.grad((x * 2).sum(), (x, y), materialize_grads=True)[1], B * 0)


def test_what_has_no_slope_left_has_zeros():
    """The second derivative of a linear function, and of what vmap's function ignores."""
    x = cotan.asarray(B)
    near(cotan.grad(cotan.grad(lambda x: 3 * x))(x[0]), 0)
    near(cotan.hessian(lambda x: (x * 3).sum())(x), np.zeros((2, 2)))
    near(cotan.grad(lambda x: cotan.vmap(lambda a, b: a * 2)(cotan.asarray(B), x).sum())(x), [0, 0])
    leaf = cotan.asarray(B).requires_grad_()
    autograd.grad((leaf * 3).sum(), leaf, create_graph=True)[0].sum().backward()
    near(leaf.grad, [0, 0])


def test_a_gradient_penalty():
    w = cotan.asarray(W).requires_grad_()
    x = cotan.asarray(X).requires_grad_()
    slope, = autograd.grad(cotan.tanh(x @ w).sum(), x, create_graph=True)
    ((slope.norm(2, dim=1) - 1) ** 2).mean().backward()

    def penalty(w):
        slope = jax.grad(lambda x: jnp.tanh(x @ w).sum())(X)
        return ((jnp.sqrt((slope ** 2).sum(1)) - 1) ** 2).mean()

    near(w.grad, jax.grad(penalty)(W))


# ---------------------------------------------------------------------------------- traced functions

def test_vmap():
    def function(xp):
        return lambda w, x: {"y": xp.tanh(x @ w), "s": (x * x).sum()}

    ours = cotan.vmap(function(cotan), in_axes=(None, 1), out_axes={"y": 1, "s": 0})(cotan.asarray(W), cotan.asarray(X.T))
    theirs = jax.vmap(function(jnp), in_axes=(None, 1), out_axes={"y": 1, "s": 0})(W, X.T)
    for name in ours:
        near(ours[name], theirs[name])
    near(cotan.vmap(cotan.vmap(lambda x: x * 2 + 1))(cotan.asarray(X)), X * 2 + 1)


@pytest.mark.parametrize("name", "tanh exp sin log1p sqrt abs square logsumexp".split())
def test_vmap_of_grad(name):
    def loss(xp):
        f = getattr(xp, name) if name != "logsumexp" else (cotan.logsumexp if xp is cotan else jax.nn.logsumexp)
        return lambda w, x: (f(xp.abs(x @ w) + 0.1) * 1.5).sum()

    ours = cotan.vmap(cotan.grad(loss(cotan)), in_axes=(None, 0))(cotan.asarray(W), cotan.asarray(X))
    near(ours, jax.vmap(jax.grad(loss(jnp)), in_axes=(None, 0))(W, X))


def test_vmap_of_hessian():
    near(cotan.vmap(cotan.hessian(lambda x: cotan.tanh(x).sum() * x.sum()))(cotan.asarray(X)),
         jax.vmap(jax.hessian(lambda x: jnp.tanh(x).sum() * x.sum()))(X))


def test_gradients_of_vmap_and_scan():
    def loss(xp, vmap, scan):
        def function(w, x):
            carry, ys = scan(lambda c, row: (xp.tanh(c + row @ w), c.sum()), xp.zeros(2), x)
            return carry.sum() + (ys * ys).sum() + vmap(lambda row: xp.sin(row @ w).sum())(x).sum()

        return function

    ours = cotan.grad(loss(cotan, cotan.vmap, lambda f, c, x: cotan.scan(f, c.double(), x)), argnums=(0, 1))
    theirs = jax.grad(loss(jnp, jax.vmap, jax.lax.scan), argnums=(0, 1))
    for a, b in zip(ours(cotan.asarray(W), cotan.asarray(X)), theirs(W, X)):
        near(a, b)


def test_loops():
    near(cotan.scan(lambda c, x: (c * 0.5 + x, c), cotan.zeros(3, dtype=cotan.float64), cotan.asarray(X), reverse=True)[1],
         jax.lax.scan(lambda c, x: (c * 0.5 + x, c), jnp.zeros(3), X, reverse=True)[1])
    near(cotan.scan(lambda c, _: (c + 1, ()), cotan.zeros(()), length=7)[0], 7)
    near(cotan.fori_loop(2, 6, lambda i, c: c * 2 + i, cotan.asarray(1)), jax.lax.fori_loop(2, 6, lambda i, c: c * 2 + i, 1))
    count, value = cotan.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] * 2), (cotan.asarray(0), cotan.asarray(1.0)))
    assert count.item() == 10 and value.item() == 1024
    for holds in (True, False):
        ours = cotan.grad(lambda x: cotan.cond(x[0] > 0, lambda x: (x * x).sum(), lambda x: x.sum() * 3, x))
        x = np.array([1.0, 2.0]) * (1 if holds else -1)
        near(ours(cotan.asarray(x)), 2 * x if holds else [3, 3])


def test_calls_with_known_shapes_make_no_plans():
    gradients = cotan.vmap(cotan.grad(lambda w, x: cotan.tanh(x @ w).sum()), in_axes=(None, 0))
    plans = []
    for i in range(5):
        gradients(cotan.asarray(W), cotan.asarray(X + i)).sum().item()
        plans.append(cotan.stats()["plans_made"])
    assert plans[1] == plans[-1]


@pytest.mark.parametrize("call, error, text", [
    (lambda: cotan.vmap(lambda x: x, in_axes=2)(cotan.ones(2)), ValueError, "vmap: axis 2 of a tensor (2,) is asked for"),
    (lambda: cotan.vmap(lambda x, y: x + y)(cotan.ones(2), cotan.ones(3)), ValueError,
     "vmap: the batch has 2 elements in one argument, 3 in another"),
    (lambda: cotan.vmap(lambda x: x, in_axes=None)(cotan.ones(2)), ValueError,
     "vmap: no argument has an axis for the batch\n  hint: give the size of the batch as axis_size"),
    (lambda: cotan.vmap(lambda x: x, in_axes=(0, 0))(cotan.ones(2)), ValueError,
     "vmap: in_axes (0, 0) does not fit the structure PyTreeDef((*,))"),
    (lambda: cotan.scan(lambda c, x: c, cotan.ones(2), cotan.ones(3)), TypeError,
     "scan: the function gives a pair (carry, y), not Tensor"),
    (lambda: cotan.scan(lambda c, x: ((c, c), x), cotan.ones(2), cotan.ones(3)), TypeError,
     "scan: the carry that the function gives has the structure PyTreeDef((*, *)), it must be PyTreeDef(*)"),
    (lambda: cotan.scan(lambda c, x: (c, x), cotan.ones(2)), ValueError, "scan: without xs, length is required: the number of iterations"),
    (lambda: cotan.cond(True, lambda x: x, lambda x: (x, x), cotan.ones(2)), TypeError,
     "cond: what false_fun gives has the structure PyTreeDef((*, *)), it must be PyTreeDef(*)"),
])
def test_errors_of_traced_functions(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text
    assert cotan.ones(2).sum().item() == 2


def test_a_value_read_inside():
    with pytest.raises(cotan.TraceError) as caught:
        cotan.vmap(lambda x: x if x.sum() > 0 else -x)(cotan.ones(3, 2))
    assert str(caught.value).endswith(": a value is read inside a traced function\n  hint: return it as a result of the function, "
                                      "and read it outside")
    with pytest.raises(ZeroDivisionError) as caught:
        cotan.vmap(lambda x: x * (1 // 0))(cotan.ones(3, 2))
    assert "x * (1 // 0)" in str(caught.traceback[-1].statement)
    assert cotan.ones(2).sum().item() == 2


def test_func():
    from cotan import func
    near(func.vmap(func.grad(lambda w, x: (x @ w).sum() ** 2), in_dims=(None, 0))(cotan.asarray(W), cotan.asarray(X)),
         jax.vmap(jax.grad(lambda w, x: (x @ w).sum() ** 2), in_axes=(None, 0))(W, X))
    gradient, value = func.grad_and_value(lambda x: (x * x).sum())(cotan.asarray(B))
    near(gradient, 2 * B)
    near(value, (B * B).sum())


LOOPS = {
    "scan": lambda draw: cotan.scan(lambda c, x: (c, draw(x)), cotan.asarray(0.0), cotan.zeros(3))[1],
    "scan in scan": lambda draw: cotan.scan(lambda c, x: (c, cotan.scan(lambda d, y: (d, draw(x)), c, length=2)[1]),
                                            cotan.asarray(0.0), cotan.zeros(3))[1],
    "backwards": lambda draw: cotan.scan(lambda c, x: (c, draw(x)), cotan.asarray(0.0), cotan.zeros(3), reverse=True)[1],
    "fori_loop": lambda draw: cotan.fori_loop(0, 3, lambda i, c: cotan.concat([c[1:], draw(c)[None]]), cotan.zeros(3)),
    "while_loop": lambda draw: cotan.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, cotan.concat([c[1][1:], draw(c[1])[None]])), (cotan.asarray(0), cotan.zeros(3)))[1],
    "cond": lambda draw: cotan.scan(lambda c, x: (c, cotan.cond(x > 1, lambda: draw(x), lambda: draw(x) + 2)),
                                    cotan.asarray(0.0), cotan.arange(3.0))[1],
    "vmap": lambda draw: cotan.vmap(draw, randomness="different")(cotan.zeros(3)),
    "scan in vmap": lambda draw: cotan.vmap(lambda x: cotan.scan(lambda c, y: (c, draw(x)), x, length=2)[1],
                                            randomness="different")(cotan.zeros(3)),
    "vmap in scan": lambda draw: cotan.scan(lambda c, x: (c, cotan.vmap(lambda y: draw(x), randomness="different")(cotan.zeros(2))),
                                            cotan.asarray(0.0), length=3)[1],
}


@pytest.mark.parametrize("name", LOOPS)
def test_draws_differ_from_turn_to_turn(name):
    def draw(x):
        return cotan.rand(()) + cotan.dropout(cotan.ones(()), 0.5, True) * 0

    def run():
        cotan.manual_seed(5)
        return LOOPS[name](draw)

    found = run().numpy()
    assert len(set(found.reshape(-1).tolist())) == found.size
    assert run().numpy().tobytes() == found.tobytes() and cotan.compile(run)().numpy().tobytes() == found.tobytes()
    generator = cotan.Generator().manual_seed(1)
    other = LOOPS[name](lambda x: cotan.rand((), generator=generator)).numpy()
    assert len(set(other.reshape(-1).tolist())) == found.size


def test_randomness_of_vmap():
    same = cotan.vmap(lambda x: x + cotan.rand(2))(cotan.zeros(3)).numpy()
    assert (same == same[0]).all()
    with pytest.raises(RuntimeError) as error:
        cotan.vmap(lambda x: cotan.rand(2), randomness="error")(cotan.zeros(3))
    assert str(error.value) == ("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
                                "randomness flags on vmap or perform the randomness operation out of vmap")
    with pytest.raises(RuntimeError) as error:
        cotan.vmap(lambda x: x, randomness="none")
    assert str(error.value) == "Only allowed values for randomness are 'error', 'different', or 'same'. Got none"
    with pytest.raises(RuntimeError) as error:
        cotan.associative_scan(lambda a, b: a + b + cotan.rand(()), cotan.zeros(3))
    assert str(error.value) == ("associative_scan: the function draws random numbers, which would be the same for all elements\n"
                                "  hint: draw them outside, as elements")
    assert cotan._random._given.turns == ()
