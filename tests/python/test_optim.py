"""Optimizers against their formulas in NumPy; tests/parity/test_nn.py compares all of them with PyTorch."""
import copy

import numpy as np
import pytest

import cotan
from cotan import nn, optim


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def steps(optimizer, parameter, count=5):
    for step in range(count):
        parameter.grad = cotan.asarray(drawn(*parameter.shape, seed=step + 1))
        optimizer.step()
    return parameter.detach().numpy()


def test_sgd():
    parameter, want, velocity = nn.Parameter(drawn(3)), drawn(3), 0
    for step in range(5):
        grad = drawn(3, seed=step + 1) + 0.1 * want
        velocity = grad if step == 0 else 0.9 * velocity + grad
        want = want - 0.05 * velocity
    np.testing.assert_allclose(steps(optim.SGD([parameter], 0.05, momentum=0.9, weight_decay=0.1), parameter), want, rtol=1e-5)


def test_adamw():
    parameter, want, mean, square = nn.Parameter(drawn(3)), drawn(3), 0, 0
    for step in range(1, 6):
        grad = drawn(3, seed=step)
        want = want * (1 - 0.01 * 0.1)
        mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad**2
        want = want - 0.01 * mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(steps(optim.AdamW([parameter], 0.01, weight_decay=0.1), parameter), want, rtol=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"])
def test_a_saved_state_goes_on(name):
    kind = getattr(optim, name)
    straight, split = nn.Parameter(drawn(3)), nn.Parameter(drawn(3))
    first = kind([straight])
    steps(first, straight, 3)
    steps(kind([split]), split, 3)
    second = kind([split])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    del first
    assert [tensor.tolist() for tensor in (steps(second, split, 4),)] != [drawn(3).tolist()]
    again = kind([straight])
    again.load_state_dict(second.state_dict())
    assert again.state_dict()["param_groups"] == second.state_dict()["param_groups"]
    for key, inside in again.state_dict()["state"].items():
        for part, value in inside.items():
            assert value is None or (value.numpy() == second.state_dict()["state"][key][part].numpy()).all(), part


def test_groups_hooks_and_closures():
    a, b, order = nn.Parameter([1.0]), nn.Parameter([1.0]), []
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.5)
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: order.append("before"))
    handle = optimizer.register_step_post_hook(lambda optimizer, args, kwargs: order.append("after"))

    def closure():
        optimizer.zero_grad()
        loss = cotan._core.ops.sum(a * 2 + b * 3)
        loss.backward()
        return loss

    with_loss = optimizer.step(closure)
    assert with_loss.item() == 5 and a.item() == 0 and b.item() == -2 and order == ["before", "after"]
    handle.remove()
    optimizer.step()
    assert order == ["before", "after", "before"]
    optimizer.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0]
    optimizer.zero_grad()
    assert a.grad is None
    c = nn.Parameter([1.0])
    optimizer.add_param_group({"params": [c]})
    assert optimizer.param_groups[2]["lr"] == 0.5 and optimizer.state_dict()["param_groups"][2]["params"] == [2]
    assert repr(optim.SGD([c], 0.5)).startswith("SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n")


@pytest.mark.parametrize("make, kind, text", [
    (lambda p: optim.SGD([p], lr=-1), ValueError, "SGD: learning rate must be at least 0, it is -1"),
    (lambda p: optim.Adam([p], betas=(0.9, 1.0)), ValueError, "Adam: beta 1 must be at least 0 and less than 1, it is 1.0"),
    (lambda p: optim.SGD([p], nesterov=True), ValueError, "Nesterov momentum requires a momentum and zero dampening"),
    (lambda p: optim.SGD([]), ValueError, "optimizer got an empty parameter list"),
    (lambda p: optim.SGD(p), TypeError,
     "params argument given to the optimizer should be an iterable of Tensors or dicts, but got Parameter"),
    (lambda p: optim.SGD([1]), TypeError, "optimizer can only optimize Tensors, but one of the params is int"),
    (lambda p: optim.SGD([p * 2]), ValueError, "can't optimize a non-leaf Tensor"),
    (lambda p: optim.SGD([p, p]), ValueError, "some parameters appear twice in one parameter group"),
    (lambda p: optim.SGD([{"params": [p]}, {"params": [p]}]), ValueError, "some parameters appear in more than one parameter group"),
    (lambda p: optim.SGD([p]).load_state_dict({"state": {}, "param_groups": []}), ValueError,
     "loaded state dict has a different number of parameter groups"),
])
def test_errors(make, kind, text):
    with pytest.raises(kind) as told:
        make(nn.Parameter([1.0]))
    assert str(told.value) == text


def test_new_rates_and_steps_make_no_plan():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4, 2))
    optimizer = optim.AdamW(net.parameters(), 0.1)
    losses = []
    for step in range(30):
        if step == 3:
            before = cotan.stats()["plans_made"]
        optimizer.param_groups[0]["lr"] = 0.05 / (step + 1)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(cotan.asarray(drawn(8, 3))), cotan.asarray(drawn(8, 2)))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss)
    assert cotan.stats()["plans_made"] == before and losses[-1].item() < losses[0].item()


def test_what_lost_its_name_is_still_computed():
    def weights():
        layer = nn.Linear(3, 2)
        with_step = optim.SGD(layer.parameters(), 0.1, momentum=0.5)
        layer.weight.grad = layer.bias.grad = None
        layer.weight.grad = cotan.asarray(np.ones((2, 3), "float32"))
        with_step.step()
        return layer.state_dict(), with_step.state_dict()["state"][0]["momentum_buffer"]

    state, momentum = weights()
    assert state["weight"].numpy().shape == (2, 3) and momentum.tolist() == [[1, 1, 1], [1, 1, 1]]
