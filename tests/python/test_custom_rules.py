"""custom_vjp and custom_jvp against jax; autograd.Function where it is traced, what it costs, and what is refused."""
import gc
import traceback
import weakref

import support.interpreted  # noqa: F401, I001: before cotan
import cotan
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cotan import autograd

jax.config.update("jax_enable_x64", True)
RNG = np.random.default_rng(3)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2))


def near(ours, theirs, tolerance=1e-9):
    ours, theirs = cotan.tree_util.tree_leaves(ours), jax.tree_util.tree_leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a.detach().numpy(), np.asarray(b), rtol=tolerance, atol=tolerance)


def both(program, *arrays, tolerance=1e-9):
    """What the program gives with cotan and with jax is the same."""
    ours = program(cotan, cotan, *[cotan.asarray(a) for a in arrays])
    near(ours, program(jax, jnp, *[jnp.asarray(a) for a in arrays]), tolerance)


def log1pexp(lib, xp):
    @lib.custom_jvp
    def f(x):
        return xp.log(1 + xp.exp(x))

    @f.defjvp
    def rule(primals, tangents):
        x, = primals
        t, = tangents
        return f(x), (1 - 1 / (1 + xp.exp(x))) * t

    return f


def clipped(lib, xp):
    """The gradient is clipped, the value is not (JAX's own example)."""
    @lib.custom_vjp
    def f(lo, hi, x):
        return x * 1

    f.defvjp(lambda lo, hi, x: (x * 1, (lo, hi)), lambda res, g: (None, None, xp.clip(g, res[0], res[1])))
    return f


def powers(lib, xp):
    """Trees, several results, residuals, an argument that is no array."""
    import functools

    @functools.partial(lib.custom_vjp, nondiff_argnums=(0,))
    def f(n, params, x):
        return {"y": xp.sin(x @ params["w"]) ** n, "s": (x * x).sum()}

    def fwd(n, params, x):
        h = x @ params["w"]
        return {"y": xp.sin(h) ** n, "s": (x * x).sum()}, (params, x, h)

    def bwd(n, res, g):
        params, x, h = res
        slope = g["y"] * n * xp.sin(h) ** (n - 1) * xp.cos(h)
        return {"w": 2 * x.T @ slope}, slope @ params["w"].T + 2 * x * g["s"]  # twice the gradient of w: one sees the rule

    f.defvjp(fwd, bwd)
    return f


def test_a_result_that_has_no_slope():
    class Parts(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            largest = x.max()
            ctx.mark_non_differentiable(largest)
            return x * 2, largest, x.argmax(), "said"

        @staticmethod
        def backward(ctx, doubled, *others):
            return doubled * 2

    x = cotan.tensor([1.0, 3.0], requires_grad=True)
    doubled, largest, place, said = Parts.apply(x)
    assert (doubled.requires_grad, largest.requires_grad, place.requires_grad, said) == (True, False, False, "said")
    (doubled.sum() + largest).backward()
    assert x.grad.tolist() == [2, 2] and (largest.item(), place.item()) == (3, 1)


def test_a_result_without_a_gradient_has_zeros_or_none():
    given = []

    class Two(autograd.Function):
        @staticmethod
        def forward(ctx, x, materialize):
            if not materialize:
                ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            given.append(second)
            return first * 2, None

    for materialize in (True, False):
        x = cotan.ones(3, requires_grad=True)
        Two.apply(x, materialize)[0].sum().backward()
        assert x.grad.tolist() == [2, 2, 2]
    assert given[0].tolist() == [0, 0, 0] and given[1] is None


def test_custom_jvp():
    def program(lib, xp, x):
        f = log1pexp(lib, xp)
        total = lambda x: f(x * 2).sum()  # noqa: E731
        one = lambda x: f(x)  # noqa: E731
        return [f(x), lib.grad(total)(x), lib.jvp(f, (x,), (x * 0.5,)), lib.vjp(f, x)[1](x)[0], lib.jacfwd(f)(x[0]), lib.jacrev(f)(x[0]),
                lib.hessian(lambda x: f(x).sum())(x[0]), lib.grad(lib.grad(lib.grad(one)))(x[0, 0])]

    both(program, X)
    assert np.isfinite(cotan.grad(log1pexp(cotan, cotan))(cotan.asarray(1000.0)).item())  # the rule is used, where exp overflows


def test_custom_jvp_is_traced():
    def program(lib, xp, x):
        f = log1pexp(lib, xp)
        scan = lib.scan if lib is cotan else jax.lax.scan
        total = lambda x: lib.vmap(f)(x).sum()  # noqa: E731
        turns = lambda x: scan(lambda c, row: (f(c + row), c.sum()), x[0], x)[0].sum()  # noqa: E731
        return [lib.vmap(f)(x), lib.grad(total)(x), lib.vmap(lib.grad(f))(x[0]), lib.vmap(lib.grad(lib.grad(f)))(x[0]),
                lib.grad(turns)(x)]

    both(program, X)


def test_defjvps():
    def program(lib, xp, x):
        @lib.custom_jvp
        def f(a, b, c):
            return a * xp.sin(b) + c

        f.defjvps(lambda t, result, a, b, c: 3 * t * xp.sin(b), lambda t, result, a, b, c: t * a * xp.cos(b) + 0 * result, None)
        g = lambda a, b, c: f(a, b, c).sum()  # noqa: E731
        return [*lib.grad(g, argnums=(0, 1))(x, x * 2, x), lib.jvp(f, (x, x, x), (x, x, x))]

    both(program, X)


def test_custom_jvp_of_trees():
    def program(lib, xp, x, w):
        import functools

        @functools.partial(lib.custom_jvp, nondiff_argnums=(1,))
        def f(p, n, x):
            return {"y": (x @ p["w"]) ** n}, x.sum()

        @f.defjvp
        def rule(n, primals, tangents):
            (p, x), (dp, dx) = primals, tangents
            h = x @ p["w"]
            return ({"y": h ** n}, x.sum()), ({"y": 5 * n * h ** (n - 1) * (dx @ p["w"] + x @ dp["w"])}, dx.sum())

        def total(p, x):
            tree, s = f(p, 3, x)
            return tree["y"].sum() * s

        return lib.grad(total, argnums=(0, 1))({"w": w}, x)

    both(program, X, W)


def test_custom_vjp():
    def program(lib, xp, x, w):
        f = powers(lib, xp)
        total = lambda p, x: sum(part.sum() for part in f(3, p, x).values())  # noqa: E731
        value, back = lib.vjp(lambda p, x: f(2, p, x), {"w": w}, x)
        second = lib.grad(lambda x: (lib.grad(total, argnums=1)({"w": w}, x) ** 2).sum())
        return [f(3, {"w": w}, x), lib.grad(total, argnums=(0, 1))({"w": w}, x), back(value), second(x)]

    both(program, X, W)


def test_clipped_gradients():
    def program(lib, xp, x):
        f = clipped(lib, xp)
        return lib.grad(lambda x: (f(-0.3, 0.3, xp.sin(x)) * x).sum())(x)

    both(program, X)


def test_custom_vjp_is_traced():
    def program(lib, xp, x):
        f = clipped(lib, xp)
        loss = lambda row: (f(-0.3, 0.3, xp.sin(row)) * row).sum()  # noqa: E731
        scan = lib.scan if lib is cotan else jax.lax.scan
        turns = lambda x: scan(lambda c, row: (f(-0.2, 0.2, c * row), c), x[0], x)[0].sum()  # noqa: E731
        return [lib.vmap(lib.grad(loss))(x), lib.grad(lambda x: lib.vmap(loss)(x).sum())(x), lib.grad(turns)(x),
                lib.vmap(lib.jacrev(lambda row: f(-1.0, 1.0, row * row)))(x)]

    both(program, X)


def test_second_derivatives_of_rules_inside_of_vmap():
    def program(lib, xp, x):
        @lib.custom_vjp
        def f(x):
            return xp.sin(x)

        f.defvjp(lambda x: (xp.sin(x), x), lambda x, g: (2 * g * xp.cos(x),))  # twice what it should be
        return [lib.grad(lib.grad(f))(x[0, 0]), lib.vmap(lib.grad(lib.grad(f)))(x[0])]

    both(program, X)


def straight_through(lib, xp):
    @lib.custom_vjp
    def f(x):
        return xp.round(x)

    f.defvjp(lambda x: (xp.round(x), None), lambda res, g: (g,))
    return f


def test_straight_through_estimator():
    def program(lib, xp, x):
        f = straight_through(lib, xp)
        plain = lambda x: (xp.round(x * 3) * x).sum()  # noqa: E731
        return [lib.grad(lambda x: (f(x * 3) * x).sum())(x), lib.grad(plain)(x)]

    both(program, X)


def test_rules_run_on_real_values(capsys):
    @cotan.custom_vjp
    def f(x):
        return x * x

    def fwd(x):
        print("forward", x.sum().item())
        return x * x, x

    def bwd(x, g):
        print("backward", g.sum().item())
        return (g * x * (3 if x.sum().item() > 0 else 1),)

    f.defvjp(fwd, bwd)
    grad = cotan.grad(lambda x: f(x).sum())(cotan.asarray([1.0, 2.0]))
    assert grad.tolist() == [3, 6] and not grad.requires_grad
    assert capsys.readouterr().out == "forward 3.0\nbackward 2.0\n"


def exp_function():
    class Exp(autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            y = (x * scale).exp()
            ctx.scale = scale
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            y, = ctx.saved_tensors
            return grad * y * ctx.scale, None

    return Exp


def test_a_function_is_traced():
    """autograd.Function inside of vmap and scan, differentiated inside and outside of them."""
    f = exp_function().apply
    x = cotan.asarray(X)
    near(cotan.vmap(lambda row: f(row, 0.5))(x), np.exp(0.5 * X))
    near(cotan.grad(lambda x: cotan.vmap(lambda row: (f(row, 0.5) * row).sum())(x).sum())(x), np.exp(0.5 * X) * (1 + 0.5 * X))
    near(cotan.vmap(cotan.grad(lambda row: f(row, 0.5).sum()))(x), 0.5 * np.exp(0.5 * X))
    near(cotan.vmap(cotan.grad(cotan.grad(lambda v: f(v, 0.5))))(x[0]), 0.25 * np.exp(0.5 * X[0]))
    ours = cotan.grad(lambda x: cotan.scan(lambda c, row: (f(c, 0.1) * row, c), x[0], x)[0].sum())(x)
    near(ours, jax.grad(lambda x: jax.lax.scan(lambda c, row: (jnp.exp(c * 0.1) * row, c), x[0], x)[0].sum())(X))


def test_a_loop_makes_no_plan_and_holds_memory_level():
    f = exp_function().apply
    w, x = cotan.asarray(np.full(512, 0.1)).requires_grad_(), cotan.asarray(np.linspace(0, 1, 512))
    plans = memory = 0
    for turn in range(300):
        w.grad = None
        h = f(w * x, 2.0)
        h.register_hook(lambda grad: grad * 1)
        loss = (f(h, 0.1) * x).sum()
        if turn % 4:
            loss.backward()
        else:
            loss.item()
        with cotan.no_grad():
            w -= 1e-4 * (w.grad if turn % 4 else w)
        cotan.eval()
        if turn == 19:
            plans, memory = cotan.stats()["plans_made"], cotan.stats()["memory"]
    assert cotan.stats()["plans_made"] == plans
    assert cotan.stats()["memory"] == memory


def test_a_loss_that_is_read_before_backward_makes_no_plan():
    f = exp_function().apply
    w, x, plans = cotan.asarray(0.1).requires_grad_(), cotan.asarray(np.linspace(0, 1, 64)), []
    for _ in range(16):
        loss = f(w * x, 2.0).square().sum()
        loss.item()
        loss.backward()
        with cotan.no_grad():
            w -= 1e-3 * w.grad
            w.grad = None
        plans.append(cotan.stats()["plans_made"])
    assert plans[8:] == plans[8:9] * 8


def test_saved_tensors_go_with_their_history():
    kept = []

    class Keep(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            kept.append(weakref.ref(ctx))
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = cotan.asarray(X).requires_grad_()
    y = Keep.apply(x).sum()
    y.backward()
    z = Keep.apply(x).sum()
    del y, z
    cotan.eval()
    cotan.asarray(1.0)  # the next call gives back what nothing needs
    gc.collect()
    assert [one() for one in kept] == [None, None]


def test_saved_tensors_that_were_freed():
    seen = []

    class Square(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            seen.append(ctx)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            x, = ctx.saved_tensors
            return 2 * x * grad

    x = cotan.asarray(X).requires_grad_()
    y = Square.apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    near(x.grad, 4 * X)
    with pytest.raises(RuntimeError) as error:
        seen[0].saved_tensors
    assert str(error.value) == ("saved_tensors: the saved tensors were freed by the backward that used them\n"
                                "  hint: backward(retain_graph=True) keeps them")
    with pytest.raises(RuntimeError, match="the history of the value of .* was used by an earlier backward"):
        y.backward()


def test_forward_that_writes_to_its_input():
    class Double(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x *= 2
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    x = cotan.asarray(X).requires_grad_()
    y = x * 1
    z = Double.apply(y)
    z.sum().backward()
    assert y.tolist() == z.tolist() == (2 * x).tolist() and (x.grad == 2).all()
    with pytest.raises(RuntimeError, match="Double.forward wrote to its argument 0 in its place, in a function that is traced\n  hint"):
        cotan.vmap(Double.apply)(x * 1)


def test_forward_that_marks_its_input_dirty():
    class Square(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.clone())
            ctx.mark_dirty(x)
            return x.mul_(x)

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad

    x = cotan.asarray([1.0, 2.0, 3.0]).requires_grad_()
    y = x * 2
    assert Square.apply(y) is y and y.tolist() == [4, 16, 36]
    (y * y).sum().backward()  # 16 x^4
    assert x.grad.tolist() == [64, 512, 1728]


def test_forward_that_writes_to_the_data_of_its_input():
    class Assign(autograd.Function):
        @staticmethod
        def forward(ctx, rows, value, index):
            ctx.index = index
            rows.data[index] = value
            return rows

        @staticmethod
        def backward(ctx, grad):
            return grad, grad[ctx.index], None

    x = cotan.asarray([1.0, 2.0, 3.0]).requires_grad_()
    first = Assign.apply(cotan.zeros(2, 3), x * 2, 0)
    total = first.sum() * 1
    rows = Assign.apply(first, x * 3 * first[0], 1)
    (rows.prod() + total).backward()
    assert rows.tolist() == [[2, 4, 6], [6, 24, 54]] and x.grad.tolist() == [1119746, 559874, 373250]  # as PyTorch's


def test_a_value_that_is_read_in_a_traced_function():
    class Read(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * (2 if x.sum().item() > 0 else 3)

        @staticmethod
        def backward(ctx, grad):
            return grad

    with pytest.raises(cotan.TraceError) as error:
        cotan.vmap(Read.apply)(cotan.asarray(X))
    assert str(error.value).partition(": ")[2] == ("a value is read inside a traced function\n"
                                                   "  hint: return it as a result of the function, and read it outside")


def test_an_exception_keeps_its_traceback():
    def inside(x):
        raise KeyError("mine")

    for run in (lambda: cotan.vmap(inside)(cotan.asarray(X)), lambda: cotan.checkpoint(inside)(cotan.asarray(X).requires_grad_())):
        with pytest.raises(KeyError) as error:
            run()
        assert "inside" in [frame.name for frame in traceback.extract_tb(error.value.__traceback__)]
    near(cotan.vmap(lambda x: x * 2)(cotan.asarray(X)), 2 * X)  # nothing is left of it


def refused(rule, match):
    @cotan.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), rule)
    for run in (lambda x: cotan.grad(lambda x: f(x, x).sum())(x), cotan.vmap(lambda x: f(x, x))):
        with pytest.raises((TypeError, ValueError)) as error:
            run(cotan.asarray(X))
        assert str(error.value) == match or "(4, 3)" in match and str(error.value) == match.replace("(4, 3)", "(3,)")


def test_wrong_rules():
    refused(lambda res, g: g, "custom_vjp: the reverse rule of f gives a tuple of 2 cotangents, one an argument, not Tensor")
    refused(lambda res, g: (g,), "custom_vjp: the reverse rule of f gives a tuple of 2 cotangents, one an argument, not 1 of them")
    refused(lambda res, g: (g, g.sum()), "custom_vjp: the reverse rule of f gives a cotangent () for argument 1, it is (4, 3)")
    for made, text in ((cotan.custom_vjp, "No VJP defined for custom_vjp function <lambda> using defvjp."),
                       (cotan.custom_jvp, "No JVP defined for custom_jvp function <lambda> using defjvp.")):
        with pytest.raises(AttributeError) as error:
            made(lambda x: x)(1.0)
        assert str(error.value) == text
