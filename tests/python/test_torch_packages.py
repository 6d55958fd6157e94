"""What packages that are written for PyTorch ask of torch beyond its documented names."""
import cotan
import cotan.torch as torch
import pytest
from cotan.torch.utils.data import DataLoader


def test_booleans_add_and_multiply_as_or_and_and():
    a, b = torch.tensor([True, False, True]), torch.tensor([True, True, False])
    assert (a + b).tolist() == [True, True, True] and (a * b).tolist() == [True, False, False]
    assert (a * True).dtype == (True + a).dtype == torch.bool
    a *= b
    assert a.tolist() == [True, False, False] and (a * 2).tolist() == [2, 0, 0]


def test_names_of_types():
    assert not isinstance(torch.ones(1), torch.TensorType) and isinstance(torch.Tensor, torch._C._TensorMeta)
    assert torch.ScriptModule is torch.jit.ScriptModule
    assert torch._dynamo.eval_frame is torch._dynamo and torch._dynamo.eval_frame.OptimizedModule
    assert "Cotan" in torch.__config__.show() and "threads" in torch.__config__.parallel_info()
    assert torch.distributions.multivariate_normal.Distribution is torch.distributions.Distribution
    assert torch.utils._pytree._get_node_type([1]) is list


def test_ops_by_name():
    assert torch.ops.aten.add_.Tensor(torch.ones(2), 1).tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="aten._to_copy"):
        torch.ops.aten._to_copy.default(torch.ones(2))
    with pytest.raises(AttributeError):
        torch.ops.aten.no_such_op


def test_a_loader_is_made_again_of_its_attributes():
    loader = DataLoader([1, 2, 3], batch_size=2)
    again = DataLoader(loader.dataset, batch_size=2, num_workers=loader.num_workers, prefetch_factor=loader.prefetch_factor)
    assert [batch.tolist() for batch in again] == [[1, 2], [3]]
    assert DataLoader([1], num_workers=1).prefetch_factor == 2 and loader.multiprocessing_context is None


def test_softmax_backward_data():
    x = torch.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    y, g = x.softmax(-1), torch.tensor([[1.0, 0.0, 2.0]])
    y.backward(g)
    assert torch._softmax_backward_data(g, y, -1, torch.float32).tolist() == [pytest.approx(row) for row in x.grad.tolist()]


def test_numbers_are_first_operands():
    two = torch.tensor([2.0, 4.0])
    assert torch.div(1.0, two).tolist() == [0.5, 0.25] and torch.sub(1, two, alpha=2).tolist() == [-3, -7]
    assert torch.add(1, two).tolist() == [3, 5] and torch.mul(3, two).tolist() == [6, 12]
    assert torch.floor_divide(7, two).tolist() == [3, 1]


def test_what_no_tensor_is():
    assert not any(getattr(torch.ones(1), f"is_{kind}") for kind in "mps xpu xla meta nested quantized mkldnn cuda".split())


def test_checkpoint_states():
    from cotan.torch.utils.checkpoint import get_device_states, set_device_states
    set_device_states(*get_device_states(torch.ones(1)))


def test_text_of_numbers():
    assert torch._tensor_str._tensor_str(torch.tensor([[1.0, 2.5]]), 0) == "[[1. , 2.5]]"
    assert torch._tensor_str._tensor_str(torch.tensor(3), 0) == "3"


def test_lkj_cholesky():
    two = torch.distributions.LKJCholesky(2, 1.0)  # uniform correlation: the density of L is that of L[1, 0], times 1 / L[1, 1]^0
    assert float(two.log_prob(torch.tensor([[1.0, 0.0], [0.6, 0.8]]))) == pytest.approx(-0.6931472, abs=1e-5)
    cotan.manual_seed(1)
    four = torch.distributions.LKJCholesky(4, torch.tensor([0.5, 2.0]))
    lower = four.sample((4000,))
    assert four.support.check(lower).all() and lower.shape == (4000, 2, 4, 4)
    correlation = lower @ lower.mT
    for i, concentration in enumerate((0.5, 2.0)):  # each correlation's variance is 1 / (2 concentration + dim - 1)
        seen = correlation[:, i].var(0)[~torch.eye(4, dtype=torch.bool)]
        assert seen.tolist() == pytest.approx([1 / (2 * concentration + 3)] * 12, rel=0.08)
    with pytest.raises(ValueError, match="dim=1"):
        torch.distributions.LKJCholesky(1)


def test_an_optimizer_that_wraps_another():
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        def step(self, closure=None):
            self.inner.step(closure)

    w = torch.ones(1, requires_grad=True)
    w.sum().backward()
    Wrapper(torch.optim.SGD([w], lr=0.5)).step()
    assert w.tolist() == [0.5]


def test_types_by_name():
    x = torch.ones(2)
    assert x.type(x.type()).dtype == torch.float32 and x.type("torch.DoubleTensor").dtype == torch.float64
    with pytest.raises(ValueError, match="invalid type: 'NoTensor'"):
        x.type("torch.NoTensor")


def test_is_tensor_asks_no_other_class():
    class Other:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise NotImplementedError

    assert torch.is_tensor(torch.ones(1)) and not torch.is_tensor(Other())


def test_nvtx():
    with torch.autograd.profiler.emit_nvtx():
        assert issubclass(torch.futures.Future, object) and not torch.profiler.kineto_available()


def test_parse_to():
    parse = torch._C._nn._parse_to
    assert parse("cpu", torch.float64, True)[:3] == (torch.device("cpu"), torch.float64, True)
    assert parse(torch.ones(1, dtype=torch.float64))[1] == torch.float64 and parse(dtype=torch.int8)[:2] == (None, torch.int8)
    assert torch.ones(1).dtype != torch.complex32 and not torch.cuda._initialized
