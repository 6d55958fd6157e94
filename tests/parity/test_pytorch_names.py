"""Grids, derivatives of functions and parametrised weights beside PyTorch's, on the same numbers."""
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
cotan = pytest.importorskip("cotan")
BOTH = (cotan, torch)
needs_2 = pytest.mark.skipif(int(torch.__version__.partition(".")[0]) < 2, reason="PyTorch before 2 has other names and rules here")


def close(ours, theirs, rtol=1e-4):
    assert tuple(ours.shape) == tuple(theirs.shape)
    ours, theirs = (np.asarray(x.detach().tolist(), dtype=float) for x in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * max(np.abs(theirs).max(), 1e-3))


@pytest.mark.parametrize("identity", [False, True])
@pytest.mark.parametrize("mode, padding, align", itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True)))
def test_grid_sample(mode, padding, align, identity):
    """The identity's places lie on elements: on which side of an element a slope is taken must be PyTorch's side, too."""
    rng, found = np.random.default_rng(1), []
    image = rng.standard_normal((2, 3, 5, 6)).astype("float32")
    theta = np.tile(np.eye(2, 3, dtype="float32"), (2, 1, 1)) + (0 if identity else 0.5 * rng.standard_normal((2, 2, 3)).astype("float32"))
    for library in BOTH:
        F = library.nn.functional
        x, t = (library.tensor(value, requires_grad=True) for value in (image, theta))
        grid = F.affine_grid(t, (2, 3, 5, 6) if identity else (2, 3, 8, 7), align_corners=align)
        y = F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=align)
        (y * y * library.arange(y.numel()).reshape(y.shape)).sum().backward()
        found.append((grid, y, x.grad) + (() if mode == "nearest" else (t.grad,)))
    for ours, theirs in zip(*found):
        close(ours, theirs)


@pytest.mark.parametrize("align", [False, True])
def test_grids_of_volumes(align):
    rng, found = np.random.default_rng(2), []
    image, theta = rng.standard_normal((1, 2, 3, 4, 5)), rng.standard_normal((1, 3, 4)) * 0.5
    for library in BOTH:
        F = library.nn.functional
        x, t = (library.tensor(value, requires_grad=True) for value in (image, theta))
        y = F.grid_sample(x, F.affine_grid(t, (1, 2, 4, 3, 6), align_corners=align), align_corners=align)
        (y * y).sum().backward()
        found.append((y, x.grad, t.grad))
    for ours, theirs in zip(*found):
        close(ours, theirs, 1e-9)


def test_derivatives_of_functions():
    rng, found = np.random.default_rng(3), []
    a, b = rng.standard_normal((2, 3)), rng.standard_normal(3)
    for library in BOTH:
        functional, x, y = library.autograd.functional, library.tensor(a), library.tensor(b)

        def several(x, y):
            return (x * y).sin().sum(1), x[0] * 2

        def number(x, y):
            return (x ** 3 * y).sum() + x[0, 0] * y[1] ** 2

        jacobians = functional.jacobian(several, (x, y))
        hessians = functional.hessian(number, (x, y))
        value, product = functional.vjp(several, (x, y), (library.ones(2, dtype=library.float64), library.tensor(b)))
        value2, moved = functional.jvp(several, (x, y), (x * 0.5, y + 1))
        out = [*jacobians[0], *jacobians[1], *hessians[0], *hessians[1], *value, *product, *value2, *moved]
        out += [functional.jacobian(lambda x: x.exp().sum(dim=1), x), functional.hessian(lambda x: (x ** 3).sum(), x)]
        for name in ("vhp", "hvp"):
            total, second = getattr(functional, name)(number, (x, y), (x - 1, y))
            out += [total, *second]
        leaf = library.tensor(b, requires_grad=True)
        functional.jacobian(lambda x: x ** 3, leaf, create_graph=True).sum().backward()
        found.append(out + [leaf.grad])
    assert len(found[0]) == len(found[1])
    for ours, theirs in zip(*found):
        close(ours, theirs, 1e-9)


class Twice:
    """A parametrization of each library, from the same lines."""

    def __new__(cls, library):
        class Symmetric(library.nn.Module):
            def forward(self, x):
                return x.triu() + x.triu(1).transpose(-1, -2)

            def right_inverse(self, x):
                return x.triu()

        return Symmetric()


@needs_2
def test_parametrizations():
    rng, found = np.random.default_rng(4), []
    weight, bias, data = rng.standard_normal((4, 4)), rng.standard_normal(4), rng.standard_normal((5, 4))
    for library in BOTH:
        nn, parametrize = library.nn, library.nn.utils.parametrize
        layers = [nn.Linear(4, 4).double() for _ in range(3)]
        for layer in layers:
            layer.weight.data.copy_(library.tensor(weight))
            layer.bias.data.copy_(library.tensor(bias))
        parametrize.register_parametrization(layers[0], "weight", Twice(library))
        library.nn.utils.parametrizations.weight_norm(layers[1], dim=1)
        library.nn.utils.parametrizations.spectral_norm(layers[2])
        norm = layers[2].parametrizations.weight[0]
        norm._u.copy_(library.ones(4, dtype=library.float64) / 2)
        norm._v.copy_(library.ones(4, dtype=library.float64) / 2)
        model = nn.Sequential(*layers)
        names = [name for name, _ in model.named_parameters()] + sorted(model.state_dict())
        (model(library.tensor(data)) ** 2).sum().backward()
        out = [p.grad for p in model.parameters()] + [norm._u, norm._v]
        layers[0].weight = library.ones(4, 4, dtype=library.float64)
        out.append(layers[0].parametrizations.weight.original)
        model.eval()
        with parametrize.cached():
            assert layers[1].weight is layers[1].weight
        out.append(model(library.tensor(data)))
        for layer in layers:
            assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "weight")
            parametrize.remove_parametrizations(layer, "weight")
            assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
            out.append(layer.weight)
        found.append((names, out))
    assert found[0][0] == found[1][0]
    for ours, theirs in zip(found[0][1], found[1][1]):
        close(ours, theirs, 1e-9)


@needs_2
def test_functional_call():
    rng, found = np.random.default_rng(5), []
    weights = [rng.standard_normal(shape) for shape in ((3, 2), (3,), (1, 3), (1,))]
    for library in BOTH:
        model = library.nn.Sequential(library.nn.Linear(2, 3), library.nn.Tanh(), library.nn.Linear(3, 1))
        given = {name: library.tensor(w, requires_grad=True) for (name, _), w in zip(model.named_parameters(), weights)}
        y = library.func.functional_call(model, given, (library.ones(4, 2, dtype=library.float64),))
        y.sum().backward()
        assert all(p.grad is None for p in model.parameters())
        found.append([y] + [w.grad for w in given.values()])
    for ours, theirs in zip(*found):
        close(ours, theirs, 1e-9)


def test_distributions():
    rng, found = np.random.default_rng(6), []
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    for library in BOTH:
        D, x, y = library.distributions, library.tensor(a, requires_grad=True), library.tensor(b)
        p, q = D.Normal(x, y.exp()), D.Normal(y, library.tensor(0.5, dtype=library.float64))
        out = [p.log_prob(y), p.entropy(), p.cdf(y), p.icdf(y.sigmoid()), D.kl_divergence(p, q), p.mean, p.stddev, q.variance]
        c, d = D.Categorical(logits=x), D.Categorical(y.exp())
        value = library.tensor([1, 0, 3])
        out += [c.log_prob(value), d.log_prob(library.tensor([[1, 1, 1], [2, 0, 3]])), c.entropy(), d.probs, D.kl_divergence(c, d)]
        e, f = D.Bernoulli(logits=x), D.Bernoulli(y.sigmoid())
        bits = (y > 0).double()
        out += [e.log_prob(bits), f.log_prob(bits), e.entropy(), D.kl_divergence(e, f), f.variance]
        u = D.Uniform(y - 1, y + 2)
        out += [u.log_prob(y), u.entropy(), u.mean]
        sum(one.sum() for one in out[:5] + out[8:9] + out[10:11] + out[12:14] + out[15:17]).backward()
        found.append(out + [x.grad])
    for ours, theirs in zip(*found):
        close(ours, theirs, 1e-6)
