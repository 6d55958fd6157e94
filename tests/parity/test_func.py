"""The tutorials of torch.func, per-sample gradients, ensembles, Jacobians and Hessians, with cotan.func and with torch.func."""
import cotan
import numpy as np
import pytest
import torch

pytestmark = pytest.mark.skipif(not hasattr(torch, "func"), reason="PyTorch before 2 has no torch.func")
RNG = np.random.default_rng(2)
IMAGES, LABELS = RNG.standard_normal((6, 1, 12, 12)).astype("float32"), RNG.integers(0, 10, 6)


def simple_cnn(lib):
    class SimpleCNN(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = lib.nn.Conv2d(1, 4, 3, 1)
            self.conv2 = lib.nn.Conv2d(4, 6, 3, 1)
            self.fc1 = lib.nn.Linear(96, 16)
            self.fc2 = lib.nn.Linear(16, 10)

        def forward(self, x):
            relu = lib.nn.functional.relu
            x = relu(self.conv2(relu(self.conv1(x))))
            x = lib.nn.functional.max_pool2d(x, 2)
            x = lib.flatten(x, 1)
            return lib.nn.functional.log_softmax(self.fc2(relu(self.fc1(x))), dim=1)

    return SimpleCNN()


class Mlp:
    def __new__(cls, lib):
        return lib.nn.Sequential(lib.nn.Linear(144, 16), lib.nn.Tanh(), lib.nn.Linear(16, 10))


def fill(lib, model, seed):
    rng = np.random.default_rng(seed)
    with lib.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.copy_(lib.tensor(rng.standard_normal(tuple(parameter.shape)).astype("float32") * 0.2))
    return model


def flat(tree):
    """All tensors of nested dicts, tuples and lists, by name."""
    if isinstance(tree, dict):
        return [one for name in sorted(tree) for one in flat(tree[name])]
    return [one for part in tree for one in flat(part)] if isinstance(tree, (tuple, list)) else [tree]


def both(program, tolerance=1e-5):
    ours, theirs = flat(program(cotan, cotan.func)), flat(program(torch, torch.func))
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_per_sample_gradients():
    """Of samples by vmap(grad), by loops, and of a module whose parameters it has."""
    def program(lib, func):
        model = fill(lib, simple_cnn(lib), 1)
        params = {name: one.detach() for name, one in model.named_parameters()}
        buffers = {name: one.detach() for name, one in model.named_buffers()}
        data, targets = lib.tensor(IMAGES), lib.tensor(LABELS)

        def compute_loss(params, buffers, sample, target):
            predictions = func.functional_call(model, (params, buffers), (sample.unsqueeze(0),))
            return lib.nn.functional.nll_loss(predictions, target.unsqueeze(0))

        per_sample = func.vmap(func.grad(compute_loss), in_dims=(None, None, 0, 0))(params, buffers, data, targets)
        losses = func.vmap(compute_loss, in_dims=(None, None, 0, 0))(params, buffers, data, targets)
        one = func.grad_and_value(compute_loss)(params, buffers, data[2], targets[2])
        return [per_sample, losses, *one]

    both(program)


def test_model_ensembling():
    def program(lib, func):
        models = [fill(lib, Mlp(lib), seed) for seed in range(4)]
        params, buffers = func.stack_module_state(models)
        base = Mlp(lib)

        def fmodel(params, buffers, x):
            return func.functional_call(base, (params, buffers), (x,))

        batches = lib.tensor(RNG_BATCHES)  # (4, 5, 144)
        each = lib.vmap(fmodel)(params, buffers, batches) if hasattr(lib, "vmap") else func.vmap(fmodel)(params, buffers, batches)
        same = func.vmap(fmodel, in_dims=(0, 0, None))(params, buffers, batches[0])
        assert all(one.requires_grad and one.is_leaf for one in params.values())
        (same ** 2).sum().backward()
        return [each, same, {name: one.grad for name, one in params.items()}]

    both(program)


RNG_BATCHES = np.random.default_rng(4).standard_normal((4, 5, 144)).astype("float32")


def test_jacobians_and_hessians():
    def program(lib, func):
        weight, bias, x = (lib.tensor(np.random.default_rng(i).standard_normal(size), dtype=lib.float64)
                           for i, size in enumerate([(4, 6), (4,), (6,)]))

        def predict(weight, bias, x):
            return lib.tanh(weight @ x + bias)

        reverse, forward = func.jacrev(predict, argnums=2)(weight, bias, x), func.jacfwd(predict, argnums=2)(weight, bias, x)
        total = lambda x: (predict(weight, bias, x) ** 3).sum()  # noqa: E731
        _, back = func.vjp(lambda x: predict(weight, bias, x), x)
        batch = lib.stack([x, 2 * x, -x])
        vector = lib.sin(x)
        hvp = func.jvp(func.grad(total), (x,), (vector,))[1]
        return [reverse, forward, func.hessian(total)(x), func.jacrev(func.jacfwd(total))(x), func.jacfwd(func.jacrev(total))(x),
                back(bias), hvp, func.vmap(func.jacrev(predict, argnums=2), in_dims=(None, None, 0))(weight, bias, batch),
                func.vmap(func.hessian(total))(batch)]

    both(program)


def test_functional_call():
    def program(lib, func):
        class Tied(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = lib.nn.Linear(3, 3)
                self.second = lib.nn.Linear(3, 3)
                self.second.weight = self.first.weight
                self.norm = lib.nn.BatchNorm1d(3)

            def forward(self, x, scale=1.0):
                return self.norm(self.second(self.first(x))) * scale

        model, x = fill(lib, Tied(), 3), lib.tensor(IMAGES[0, 0, :, :3])
        new = {"first.weight": lib.ones(3, 3)}
        buffers = {name: one.clone() for name, one in model.named_buffers()}
        found = func.functional_call(model, (new, buffers), x, {"scale": 2.0})
        return [found, model(x), list(buffers.values()), [one for _, one in sorted(model.named_parameters())]]

    both(program)


def test_errors():
    for program in (lambda lib, func: func.stack_module_state([]),
                    lambda lib, func: func.stack_module_state([Mlp(lib), lib.nn.Linear(2, 2)]),
                    lambda lib, func: func.stack_module_state([Mlp(lib), Mlp(lib).eval()])):
        with pytest.raises(RuntimeError) as ours:
            program(cotan, cotan.func)
        with pytest.raises(RuntimeError) as theirs:
            program(torch, torch.func)
        assert str(ours.value) == str(theirs.value)
    with pytest.raises(AttributeError):
        cotan.func.functional_call(Mlp(cotan), {"nothing": cotan.ones(2)}, cotan.ones(144))
    with pytest.raises(RuntimeError) as error:
        cotan.func.functional_call(Mlp(cotan), {"nothing": cotan.ones(2)}, cotan.ones(144), strict=True)
    assert str(error.value) == ("functional_call: missing key(s): ['0.bias', '0.weight', '2.bias', '2.weight'], "
                                "unexpected key(s): ['nothing']")
