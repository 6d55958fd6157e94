"""Copies of tensors, parameters and modules, and what they share, as in PyTorch."""
import copy
import pickle

import pytest

import cotan as C
from cotan import nn


def made(cls):
    x = C.ones(1).requires_grad_() if cls is C.Tensor else nn.Parameter(C.ones(1))
    x.info = [1]
    x.grad = C.full((1,), 3.0)
    x.register_hook(lambda g: g * 2)
    return x


@pytest.mark.parametrize("cls", [C.Tensor, nn.Parameter])
def test_a_deep_copy_shares_nothing(cls):
    x = made(cls)
    y = copy.deepcopy(x)
    assert type(y) is cls and y.requires_grad and y.is_leaf
    assert (y.grad is None) if cls is nn.Parameter else (y.grad.tolist() == [3.0] and y.grad is not x.grad)
    y.info.append(2)
    y.register_hook(lambda g: g * 0)
    with C.no_grad():
        y.fill_(5.0)
    assert x.info == [1] and x.tolist() == [1.0]
    x.grad = y.grad = None
    (x.sum() + y.sum()).backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2.0], [0.0])


@pytest.mark.parametrize("cls", [C.Tensor, nn.Parameter])
def test_a_shallow_copy_shares_the_elements(cls):
    x = made(cls)
    y = copy.copy(x)
    assert type(y) is cls and y.requires_grad and y.is_leaf and y.grad is None and y.info is x.info
    with C.no_grad():
        y.fill_(5.0)
        assert x.tolist() == [5.0]
        x.fill_(6.0)
        assert y.tolist() == [6.0]
    (y * y).sum().backward()
    assert (y.grad.tolist(), x.grad.tolist()) == ([12.0], [3.0])


def test_a_pickle_has_no_hooks():
    x = made(nn.Parameter)
    x.register_hook(print)
    with pytest.warns(UserWarning) as warned:
        y = pickle.loads(pickle.dumps(x))
    assert len(warned) == 2
    assert str(warned[1].message) == "pickle: the hook <built-in function print> of a tensor is left out"
    assert type(y) is nn.Parameter and y.requires_grad and y.grad is None and y.info == [1]
    y.sum().backward()
    assert y.grad.tolist() == [1.0]


def test_a_module_that_is_copied_has_its_own_state():
    m = nn.Linear(1, 1, bias=False)
    with C.no_grad():
        m.weight.fill_(1.0)
    called = []
    m.weight.register_hook(lambda g: called.append("m"))
    m.register_forward_hook(lambda *args: called.append("forward"))
    m.weight.grad = C.ones(1, 1)
    c = copy.deepcopy(m)
    c.weight.register_hook(lambda g: g * 0)
    c.register_forward_hook(lambda *args: called.append("c"))
    assert c.weight.grad is None
    m(C.ones(1, 1)).sum().backward()
    assert m.weight.grad.item() == 2.0 and called == ["forward", "m"]
    c(C.ones(1, 1)).sum().backward()
    assert c.weight.grad.item() == 0.0 and called == ["forward", "m", "forward", "c"]
    shallow = copy.copy(m)
    assert shallow.weight is m.weight


def test_only_leaves_are_copied_deeply():
    y = C.ones(1).requires_grad_() * 2
    with pytest.raises(RuntimeError) as error:
        copy.deepcopy(y)
    assert str(error.value) == "deepcopy: only tensors without a history are copied\n  hint: detach() before"
    z = copy.copy(y)  # a leaf of the same elements
    assert z.is_leaf and z.requires_grad
    with C.no_grad():
        z.fill_(7.0)
    assert y.tolist() == [7.0] and y.requires_grad and not y.is_leaf
