"""Views: what is written to one is seen in the tensor of which it is a view, with PyTorch's values, or is an error."""
import copy
import gc
import weakref

import numpy as np
import pytest

import cotan as C
from cotan import nn, optim


def arange(*shape):
    return C.arange(int(np.prod(shape)), dtype=C.float32).reshape(shape)


# Each view, and the place of the element of arange(2, 3) or its kind that the first element of the view is.
VIEWS = {
    "diagonal": (lambda x: x.diagonal(1), (0, 1)), "diagonal below": (lambda x: x.diagonal(-1), (1, 0)),
    "diagonal of T": (lambda x: x.T.diagonal(), (0, 0)), "unfold": (lambda x: x.unfold(1, 2, 1)[:, 1], (0, 1)),
    "windows apart": (lambda x: x.unfold(0, 1, 1), (0, 0)), "movedim": (lambda x: x.movedim(0, 1), (0, 0)),
    "swapaxes": (lambda x: x.swapaxes(0, 1)[1:], (0, 1)), "select": (lambda x: x.select(1, 2), (0, 2)),
    "narrow": (lambda x: x.narrow(1, 1, 2), (0, 1)), "split": (lambda x: x.split(2, 1)[1], (0, 2)),
    "chunk": (lambda x: x.chunk(2, 0)[1], (1, 0)), "unbind": (lambda x: x.unbind(1)[1], (0, 1)), "T": (lambda x: x.T[2], (0, 2)),
    "mT": (lambda x: x.mT[2], (0, 2)), "H": (lambda x: x.H[2], (0, 2)), "squeeze": (lambda x: x[1:].squeeze(0), (1, 0)),
    "unsqueeze": (lambda x: x.unsqueeze(0), (0, 0)), "unflatten": (lambda x: x.unflatten(1, (3, 1)), (0, 0)),
    "hsplit": (lambda x: x.hsplit(3)[1], (0, 1)), "vsplit": (lambda x: x.vsplit(2)[1], (1, 0)),
    "tensor_split": (lambda x: x.tensor_split(2, 1)[1], (0, 2)), "permute": (lambda x: x.permute(1, 0)[1], (0, 1)),
    "t": (lambda x: x.t()[1], (0, 1)), "view": (lambda x: x.view(6)[4:], (1, 1)), "flatten": (lambda x: x.flatten()[4:], (1, 1)),
    "ravel": (lambda x: x.ravel()[5:], (1, 2)), "reshape": (lambda x: x.reshape(3, 2)[1], (0, 2)),
    "detach": (lambda x: x.detach(), (0, 0)), "data": (lambda x: x.data[1], (1, 0)), "real": (lambda x: x.real[1], (1, 0)),
    "conj": (lambda x: x.conj()[1], (1, 0)), "one of an expanded": (lambda x: x.expand(4, 2, 3)[1], (0, 0)),
    "as itself": (lambda x: x.expand(2, 3), (0, 0)), "atleast_3d": (lambda x: C.atleast_3d(x), (0, 0)),
    "bits twice": (lambda x: x.view(C.int32).view(C.float32)[1], (1, 0)), "contiguous": (lambda x: x.contiguous()[1], (1, 0)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_a_view_is_seen(name):
    view, at = VIEWS[name]
    x = arange(2, 3)
    before = view(x)
    view(x).mul_(10.0)
    right = np.arange(6.0).reshape(2, 3)
    expected = view(C.asarray(right, dtype=C.float32)) * 10
    np.testing.assert_array_equal(np.asarray(view(x)), np.asarray(expected))
    np.testing.assert_array_equal(np.asarray(before), np.asarray(expected))
    assert x[at].item() == 10 * right[at]
    assert float(x.sum()) == right.sum() + 9 * float(expected.sum()) / 10
    x.fill_(7.0)
    assert set(np.asarray(before).reshape(-1)) == {7.0}


def test_parts_of_complex_numbers():
    z = C.asarray([1 + 1j, 2j])
    z.real.fill_(5.0)
    C.view_as_real(z)[0, 1] = 2.0
    z.imag[1] = 4.0
    assert z.tolist() == [5 + 2j, 5 + 4j]
    z.conj().fill_(3 + 4j)
    assert z.tolist() == [3 - 4j, 3 - 4j]
    pairs = C.zeros(2, 2)
    C.view_as_complex(pairs)[1] = 5 + 6j
    assert pairs.tolist() == [[0.0, 0.0], [5.0, 6.0]]
    m = C.zeros(2, 3, dtype=C.complex64)
    m.mH[0, 1] = 1j
    assert m.tolist() == [[0, 0, 0], [-1j, 0, 0]]
    x = C.ones(1)
    assert x.real is x
    with pytest.raises(RuntimeError) as error:
        C.view_as_real(x)
    assert str(error.value) == "view_as_real: the tensor is float32, it must be complex"
    with pytest.raises(RuntimeError) as error:
        C.view_as_complex(x)
    assert str(error.value) == "view_as_complex: the tensor is float32, (1,), it must be of floats whose last axis is 2"


def test_bits_and_batches_of_diagonals():
    x = C.zeros(1)
    x.view(C.int32).fill_(0x3F800000)
    assert x.tolist() == [1.0]
    m = C.zeros(3, 2, 2)
    m.diagonal(0, 1, 2)[1].fill_(5.0)
    m.diagonal(1, 1, 2).fill_(2.0)
    m.diagonal(-1, 1, 2).fill_(3.0)
    assert m.tolist() == [[[0.0, 2.0], [3.0, 0.0]], [[5.0, 2.0], [3.0, 5.0]], [[0.0, 2.0], [3.0, 0.0]]]
    b = C.zeros(2, 4, dtype=C.bool)
    b.diagonal(2).fill_(True)
    assert b.tolist() == [[False, False, True, False], [False, False, False, True]]


def test_gradients_through_what_was_written():
    w = C.ones(2, 2).requires_grad_()
    y = w * 1
    y.diagonal().mul_(3.0)
    y.sum().backward()
    assert w.grad.tolist() == [[3.0, 1.0], [1.0, 3.0]]
    w = C.ones(3).requires_grad_()
    y = w * 1
    y.unfold(0, 2, 1)[0].mul_(3.0)
    y.sum().backward()
    assert w.grad.tolist() == [3.0, 3.0, 1.0]
    w = C.ones(2).requires_grad_()
    z = C.complex(w * 1, w * 2)
    z.imag.mul_(w)
    (z.real + z.imag).sum().backward()
    assert w.grad.tolist() == [5.0, 5.0]  # of x + 2 x^2


@pytest.mark.parametrize("write, text", [
    (lambda x: x.unfold(0, 2, 1).add_(1), "windows that overlap are written, of which several elements are one\n"
                                          "  hint: clone() before, or write one window at a time"),
    (lambda x: x.expand(2, 3).add_(1), "an expanded tensor is written, of which several elements are one\n  hint: clone() before"),
    (lambda x: (y := x * C.ones(3).requires_grad_()).view(C.int32).fill_(1) + y,
     "the bits of a tensor that has a history are written, which gradients do not go through\n  hint: detach() before"),
    (lambda x: C.vmap(lambda a: x.__setitem__(0, a))(C.ones(2)),
     "a tensor from outside is written inside a traced function\n  hint: return the value as a result, and write it outside"),
    (lambda x: C.vmap(lambda a: x.detach().fill_(1))(C.ones(2)),
     "a tensor from outside is written inside a traced function\n  hint: return the value as a result, and write it outside"),
])
def test_what_cannot_be_written(write, text):
    x = C.zeros(3)
    with pytest.raises(RuntimeError) as error:
        write(x)
    assert str(error.value) == text
    assert x.tolist() == [0.0, 0.0, 0.0]


# ------------------------------------------------------------------------------ without a history

def test_an_average_by_state_dict():
    m = nn.Linear(1, 1, bias=False)
    e = copy.deepcopy(m)
    with C.no_grad():
        m.weight.fill_(1.0)
        e.weight.fill_(0.0)
        for key, value in e.state_dict().items():
            value *= 0.5
            value += 0.5 * m.state_dict()[key].detach()
    assert e.weight.item() == 0.5
    e.weight.detach().fill_(7.0)
    assert e.weight.item() == 7.0
    kept = m.state_dict()["weight"]
    m.weight.grad = C.ones(1, 1)
    optim.SGD(m.parameters(), lr=0.25).step()
    assert kept.item() == 0.75  # as in PyTorch


def test_a_value_without_its_history_is_shared():
    w = C.ones(2).requires_grad_()
    y = w * 2
    one, other = y.detach(), y[:1].detach()
    one.fill_(7.0)  # y's gradient is that of w * 2
    assert (y.tolist(), other.tolist(), y.requires_grad, one.requires_grad) == ([7.0, 7.0], [7.0], True, False)
    y.sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]
    y = w * 2
    one = y.detach()
    y.mul_(3)
    assert one.tolist() == [6.0, 6.0] and one._version == 1
    one.mul_(w)  # one has a history then, y keeps its own
    assert one.requires_grad and y.tolist() == [6.0, 6.0]
    again = one.detach()
    again.zero_()
    assert (y.tolist(), one.tolist()) == ([0.0, 0.0], [0.0, 0.0])


@pytest.mark.parametrize("write", [lambda y: y.mul_(3), lambda y: y[:2].mul_(3), lambda y: y.__setitem__(0, 6.0), lambda y: y.fill_(6)])
def test_a_history_stays_where_none_are_kept(write):
    w = C.ones(1).requires_grad_()
    y = w * 2
    with C.no_grad():
        write(y)
    assert y.tolist() == [6.0] and y.requires_grad and not y.is_leaf
    (y * y).sum().backward()  # 2 y times 2
    assert w.grad.tolist() == [24.0]


def test_detached_values_do_not_keep_the_history():
    w = C.ones(2).requires_grad_()
    y = w * 2
    name = weakref.ref(y)
    one, other = y.detach(), y.detach()
    del y
    gc.collect()
    assert name() is None
    one.fill_(3.0)
    assert other.tolist() == [3.0, 3.0]


def test_a_view_that_is_a_leaf():
    x = C.zeros(3)
    leaf = x.detach()[:2].requires_grad_()
    optimizer = optim.SGD([leaf], lr=1.0)
    for expected in (-1.0, -2.0):
        optimizer.zero_grad()
        leaf.sum().backward()
        optimizer.step()
        assert x.tolist() == [expected, expected, 0.0] and leaf.tolist() == [expected, expected]
        assert leaf.is_leaf and leaf.requires_grad
    x.fill_(9.0)
    assert leaf.tolist() == [9.0, 9.0] and leaf.requires_grad
    with pytest.raises(RuntimeError, match="a leaf that requires gradients is written in its place"):
        leaf.fill_(1.0)


def test_detach_in_place():
    w = C.ones(2).requires_grad_()
    y = w * 2
    assert y.detach_() is y and not y.requires_grad and y.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError) as error:
        y = w * 2
        y[:1].detach_()
    assert str(error.value) == "detach_: a view's history is that of what it is a view of\n  hint: detach() gives a tensor without it"
    assert w.detach_() is w and not w.requires_grad


def test_a_first_view_sees_writes_of_a_tensor_that_goes():
    x = C.zeros(3)
    first = x[0]
    x.fill_(2.0)
    del x
    assert first.item() == 2.0


def test_data_is_replaced():
    p = nn.Parameter(C.zeros(2))
    before = p.data
    p.data = C.ones(2)
    assert (p.tolist(), before.tolist()) == ([1.0, 1.0], [0.0, 0.0])
    p.data = before
    assert p.tolist() == [0.0, 0.0] and p.requires_grad
    p.data = C.ones(3, dtype=C.float64)
    assert (p.tolist(), p.dtype, p.requires_grad, p.is_leaf) == ([1.0, 1.0, 1.0], C.float64, True, True)
    (p * 2).sum().backward()
    assert p.grad.tolist() == [2.0, 2.0, 2.0] and p.grad.dtype == C.float64
    with pytest.raises(TypeError) as error:
        p.data = 1.0
    assert str(error.value) == "data must be a Tensor, not 1.0"


def test_attributes_are_written_by_operators():
    p = nn.Parameter(C.ones(2))
    value = p.detach()
    p.data -= 0.25
    p.data[0] += 1
    assert (p.tolist(), value.tolist(), p.requires_grad) == ([1.75, 0.75], [1.75, 0.75], True)  # still shared
    y = C.ones(2)
    value = y.detach()
    y.data *= 3
    assert (y.tolist(), value.tolist()) == ([3.0, 3.0], [3.0, 3.0])
    z = C.asarray([1 + 1j])
    z.real += 1
    z.imag = 5.0
    assert z.tolist() == [2 + 5j]


def test_snapshots_are_read_only():
    x = C.zeros(2)
    assert not x.numpy().flags.writeable and not np.from_dlpack(x).flags.writeable
    assert not np.asarray(x).flags.writeable
