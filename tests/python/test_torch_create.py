"""cotan.torch: creation, random numbers, dtypes and settings, against numbers that are written down."""
import math
import threading

import numpy as np
import pytest

import cotan.torch as torch

N = 20000


def check(x, dtype, values):
    assert x.dtype == dtype and x.tolist() == values


def test_constants():
    for name, value in (("zeros", 0), ("ones", 1)):
        make, like = getattr(torch, name), getattr(torch, name + "_like")
        check(make(2, 1), torch.float32, [[value], [value]])
        check(make((2,), dtype=torch.int64, device="cpu", layout=torch.strided, pin_memory=False), torch.int64, [value] * 2)
        check(make(size=[1]), torch.float32, [value])
        x = torch.tensor([[1, 2]], dtype=torch.int16)
        check(like(x), torch.int16, [[value, value]])
        check(like(x, dtype=torch.bool, memory_format=torch.preserve_format), torch.bool, [[bool(value)] * 2])
        check(getattr(x, "new_" + name)(1), torch.int16, [value])
        check(getattr(x, "new_" + name)((1,), dtype=torch.float64), torch.float64, [value])
    assert torch.ones(2, requires_grad=True).is_leaf and torch.empty(2, 3, memory_format=torch.contiguous_format).shape == (2, 3)
    out = torch.zeros(3)
    assert torch.ones(2, out=out) is out and out.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="must not be negative"):
        torch.zeros(-1)
    with pytest.raises(NotImplementedError, match="to_sparse"):
        torch.zeros(2, layout=torch.sparse_coo)


def test_full_and_others():
    check(torch.full((2,), 3), torch.int64, [3, 3])
    check(torch.full((2,), fill_value=True), torch.bool, [True, True])
    check(torch.full((1,), torch.tensor(2.5)), torch.float32, [2.5])
    check(torch.full((1,), 1j), torch.complex64, [1j])
    check(torch.full_like(torch.tensor([1, 2]), 3.7), torch.int64, [3, 3])
    check(torch.tensor([1.0]).new_full((2,), 3), torch.float32, [3, 3])
    check(torch.scalar_tensor(True), torch.float32, 1)
    check(torch.eye(2, 3, dtype=torch.int64), torch.int64, [[1, 0, 0], [0, 1, 0]])
    assert torch.empty_strided((2, 3), (1, 2)).shape == torch.empty_permuted((2, 3), (1, 0)).shape == (2, 3)
    check(torch.complex(torch.tensor([1.0]), torch.tensor([2.0])), torch.complex64, [1 + 2j])
    check(torch.polar(torch.tensor([2.0]), torch.tensor([0.0])), torch.complex64, [2])
    with pytest.raises(RuntimeError, match="both must be"):
        torch.complex(torch.tensor([1.0]), torch.tensor([2.0], dtype=torch.float64))


def test_data():
    check(torch.tensor([1, 2.5]), torch.float32, [1, 2.5])
    check(torch.tensor(np.arange(2.0)), torch.float64, [0, 1])
    x = torch.tensor([1.0], requires_grad=True)
    assert not torch.tensor(x).requires_grad and torch.as_tensor(x) is x and torch.as_tensor(x, dtype=torch.float64).requires_grad
    assert not torch.asarray(x).requires_grad and torch.asarray(x, requires_grad=True) is x
    check(torch.asarray([1], dtype=torch.float64), torch.float64, [1])
    with pytest.raises(ValueError, match="copy is False"):
        torch.asarray(x, dtype=torch.float64, copy=False)
    check(torch.from_numpy(np.array([3], np.int8)), torch.int8, [3])
    with pytest.raises(TypeError, match="expected np.ndarray"):
        torch.from_numpy([1])
    data = bytes(range(8))
    check(torch.frombuffer(data, dtype=torch.int16, offset=2, count=2), torch.int16, [0x0302, 0x0504])
    for options in (dict(offset=8), dict(offset=1), dict(count=5), dict(count=0)):
        with pytest.raises(ValueError, match="frombuffer"):
            torch.frombuffer(data, dtype=torch.int16, **options)
    check(torch.tensor([1]).new_tensor([2.5]), torch.int64, [2])
    check(torch.tensor([1]).new(2), torch.int64, [0, 0])
    check(torch.tensor([1.0]).new([3, 4]), torch.float32, [3, 4])


def test_ranges():
    check(torch.arange(3), torch.int64, [0, 1, 2])
    check(torch.arange(1, 2.5, 0.5), torch.float32, [1, 1.5, 2])
    check(torch.arange(start=5, end=0, step=-2), torch.int64, [5, 3, 1])
    check(torch.arange(torch.tensor(2)), torch.int64, [0, 1])
    check(torch.arange(0, 5.5, 1.5, dtype=torch.int64), torch.int64, [0, 1, 2, 3, 4])
    check(torch.arange(0, 5.5, 1.5, dtype=torch.int32), torch.int32, [0, 1, 2, 3])
    check(torch.range(1, 3), torch.float32, [1, 2, 3])
    check(torch.range(0.0, 1.0, 0.1)[-1:], torch.float32, [1])
    for start, end, step in ((0, 1, 0), (2, 1, 1), (0, math.inf, 1), (0.0, 1.0, 0.0)):
        with pytest.raises(RuntimeError, match="arange"):
            torch.arange(start, end, step)
    check(torch.linspace(0, 10, 5), torch.float32, [0, 2.5, 5, 7.5, 10])
    check(torch.linspace(torch.tensor(0.0), end=1, steps=2, dtype=torch.float64), torch.float64, [0, 1])
    check(torch.linspace(0, 10, 4, dtype=torch.int64), torch.int64, [0, 3, 6, 10])
    check(torch.linspace(0.9, 3.9, 3, dtype=torch.int64), torch.int64, [0, 1, 3])  # of integers, ends are integers
    check(torch.linspace(0, 1j, 2), torch.complex64, [0, 1j])
    check(torch.logspace(0, 3, 4, base=2), torch.float32, [1, 2, 4, 8])
    with pytest.raises(RuntimeError, match="0-dimensional"):
        torch.linspace(torch.zeros(2), 1, 3)
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.logspace(0, 1, -1)


def moments(x, mean, variance):
    x = x.to(torch.float64).numpy()
    assert abs(x.mean() - mean) < 6 * math.sqrt(variance / x.size) and abs(x.var() / variance - 1) < 0.15


def test_random_shapes_and_dtypes():
    for x, dtype, shape in (
            (torch.rand(2, 3), torch.float32, (2, 3)), (torch.rand((2,), dtype=torch.float64), torch.float64, (2,)),
            (torch.rand(()), torch.float32, ()), (torch.randn(size=(2,)), torch.float32, (2,)),
            (torch.randint(3, (2,)), torch.int64, (2,)), (torch.randint(1, 3, (2,), dtype=torch.uint8), torch.uint8, (2,)),
            (torch.randint(low=1, high=3, size=[2]), torch.int64, (2,)), (torch.randperm(3, dtype=torch.int32), torch.int32, (3,)),
            (torch.rand_like(torch.zeros(2), dtype=torch.float64), torch.float64, (2,)),
            (torch.randn_like(torch.zeros(2)), torch.float32, (2,)),
            (torch.randint_like(torch.zeros(2), 2, 5), torch.float32, (2,)),
            (torch.normal(0.0, 1.0, (2,)), torch.float32, (2,)),
            (torch.normal(torch.zeros(2, 1), torch.ones(3)), torch.float32, (2, 3)),
            (torch.normal(torch.zeros(2)), torch.float32, (2,)), (torch.normal(1, torch.ones(2)), torch.float32, (2,)),
            (torch.bernoulli(torch.rand(2)), torch.float32, (2,)),
            (torch.zeros(2, dtype=torch.int64).bernoulli(0.5), torch.int64, (2,)),
            (torch.rand(4).multinomial(2), torch.int64, (2,)), (torch.multinomial(torch.rand(3, 4), 9, True), torch.int64, (3, 9)),
            (torch.poisson(torch.rand(2)), torch.float32, (2,)),
            (torch.binomial(torch.ones(2), torch.rand(2)), torch.float32, (2,))):
        assert x.dtype == dtype and tuple(x.shape) == shape
    for call in (lambda: torch.rand(2, dtype=torch.int64), lambda: torch.randint(5, 2, (3,)), lambda: torch.normal(0.0, -1.0, (2,)),
                 lambda: torch.bernoulli(torch.ones(2, dtype=torch.int64)), lambda: torch.multinomial(torch.rand(2), 3),
                 lambda: torch.zeros(2).exponential_(0), lambda: torch.zeros(2).geometric_(1.5),
                 lambda: torch.zeros(2).cauchy_(sigma=0),
                 lambda: torch.zeros(2, dtype=torch.int64).uniform_(), lambda: torch.zeros(2).log_normal_(std=0)):
        with pytest.raises(RuntimeError):
            call()


def test_in_place_distributions():
    torch.manual_seed(0)
    z = torch.zeros(N)
    moments(z.uniform_(1, 3), 2, 1 / 3)
    moments(z.normal_(1, std=2), 1, 4)
    moments(z.exponential_(2.0), 0.5, 0.25)
    moments(z.geometric_(0.3), 1 / 0.3, 0.7 / 0.09)
    moments(z.log_normal_(0, 0.5).log(), 0, 0.25)
    moments((z.cauchy_(1, 2) - 1).atan2(torch.tensor(2.0)), 0, math.pi**2 / 12)
    moments(z.bernoulli_(0.3), 0.3, 0.21)
    moments(z.bernoulli_(torch.full((N,), 0.7)), 0.7, 0.21)
    moments(z.random_(2, 6), 3.5, 15 / 12)
    assert z.random_(5, None).min().item() >= 5 and z.random_(4).max().item() == 3 and z.random_().max().item() > 1e6
    assert torch.zeros(9, dtype=torch.int64).geometric_(0.5).min().item() >= 1


def test_poisson_and_binomial():
    torch.manual_seed(1)
    for rate in (0.3, 9.9, 10.1, 1e4):
        moments(torch.poisson(torch.full((N,), rate)), rate, rate)
    for n, p in ((5, 0.3), (100, 0.9), (100, 0.05), (1000, 0.7)):
        moments(torch.binomial(torch.full((N,), float(n)), torch.full((N,), p)), n * p, n * p * (1 - p))
    assert torch.poisson(torch.zeros(2)).tolist() == [0, 0]
    assert torch.binomial(torch.tensor([5.0, 5, 0, 1e6]), torch.tensor([0.0, 1, 0.5, 1])).tolist() == [0, 5, 0, 1e6]


def test_generators():
    first = torch.manual_seed(3)
    assert first is torch.default_generator and torch.initial_seed() == 3
    state = torch.get_rng_state()
    a, b = torch.rand(3).tolist(), torch.poisson(torch.ones(3)).tolist()
    assert state.dtype == torch.uint8
    torch.set_rng_state(state)
    assert torch.rand(3).tolist() == a and torch.poisson(torch.ones(3)).tolist() == b
    draws = [torch.zeros(3).normal_(generator=torch.Generator().manual_seed(5)).tolist() for _ in range(2)]
    assert draws[0] == draws[1] != torch.zeros(3).normal_().tolist()


@pytest.fixture
def float64_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_default_dtype(float64_default):
    one = torch.tensor([1])
    for x in (torch.tensor([1.5]), torch.zeros(1), torch.rand(1), torch.linspace(0, 1, 2), torch.full((1,), 1.0), torch.eye(1),
              one * 0.5, 0.5 * one, one / 2, one / one, one.sqrt(), torch.add(one, 0.5), torch.fft.fft(one).real, torch.hann_window(2),
              torch.nn.Linear(1, 1).weight, torch.Tensor([1]), torch.tensor([]), torch.arange(0, 1, 0.5)):
        assert x.dtype == torch.float64
    assert (one * 1j).dtype == torch.tensor(1j).dtype == torch.complex128
    assert (torch.ones(1, dtype=torch.float32) * 0.5).dtype == torch.float32 and (one * 2).dtype == torch.int64
    assert (one * 0.1).item() == 0.1 and torch.finfo().bits == 64 and "dtype" not in repr(torch.tensor([0.5]))


def test_default_dtypes_are_floats():
    with pytest.raises(TypeError, match="int64"):
        torch.set_default_dtype(torch.int64)
    torch.set_default_tensor_type("torch.DoubleTensor")
    assert torch.get_default_dtype() == torch.float64
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.get_default_dtype() == torch.float32


def test_default_device():
    with torch.device("opencl:7"):
        assert torch.get_default_device() == "opencl:7"
        with torch.device("cpu"):
            assert torch.zeros(1).device.type == torch.rand(1).device.type == "cpu"
        with torch.device("ref"):
            for x in (torch.zeros(1), torch.rand(1), torch.tensor([1]), torch.nn.Linear(1, 1).weight):
                assert x.device.type == "ref"
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.get_default_device().type))
        thread.start()
        thread.join()
        assert seen == ["cpu"]
        with pytest.raises(Exception, match="opencl"):
            torch.zeros(1)
    torch.set_default_device("cpu")
    assert torch.get_default_device() == torch.device("cpu")
    torch.set_default_device(None)


def test_limits_and_layouts():
    assert repr(torch.finfo(torch.float16)) == ("finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, "
                                                "smallest_normal=6.10352e-05, tiny=6.10352e-05, dtype=float16)")
    assert repr(torch.iinfo(torch.int8)) == "iinfo(min=-128, max=127, dtype=int8)" and torch.iinfo(torch.int8).dtype == "int8"
    assert repr(torch.strided) == str(torch.strided) == "torch.strided" and isinstance(torch.sparse_coo, torch.layout)
    assert isinstance(torch.channels_last, torch.memory_format) and torch.zeros(1).layout is torch.strided


def test_kinds():
    x = torch.tensor([1j])
    assert not (x.is_conj() or torch.is_neg(x) or torch.is_inference(x) or torch.is_storage(x))
    assert torch.resolve_conj(x) is x and x.resolve_neg() is x


def test_printing():
    x = torch.tensor([[1.0, 2.5], [3.0, 4.125]])
    try:
        torch.set_printoptions(precision=2)
        assert repr(x) == "tensor([[1.00, 2.50],\n        [3.00, 4.12]])"
        assert repr(torch.tensor([1.0, 2.0])) == "tensor([1., 2.])"
        torch.set_printoptions(precision=1, sci_mode=True)
        assert repr(x[0]) == "tensor([1.0e+00, 2.5e+00])"
        torch.set_printoptions(sci_mode=False, precision=4)
        assert repr(torch.tensor([1e-7, 1.0])) == "tensor([0.0000, 1.0000])"
        torch.set_printoptions(profile="short", edgeitems=1, threshold=3)
        assert repr(torch.tensor([1, 2, 3, 4])) == "tensor([1, ..., 4])"
        torch.set_printoptions(profile="default", linewidth=20)
        assert repr(torch.tensor([0.5, 1, 2])) == "tensor([0.5000,\n        1.0000,\n        2.0000])"
    finally:
        from cotan import _print
        _print.options.clear()
    assert repr(x[0]) == "tensor([1. , 2.5])"


def test_settings_are_kept():
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.get_deterministic_debug_mode() == 1
    torch.set_deterministic_debug_mode("default")
    assert not torch.are_deterministic_algorithms_enabled() and torch.get_deterministic_debug_mode() == 0
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision("highest")
    with pytest.raises(RuntimeError, match="low"):
        torch.set_float32_matmul_precision("low")
    torch.set_num_interop_threads(2)
    assert torch.get_num_interop_threads() == 2 and torch.set_flush_denormal(True) is False
    torch.set_warn_always(True)
    assert torch.is_warn_always_enabled()
    torch.set_warn_always(False)
    with torch.autograd.detect_anomaly(), torch.autograd.set_detect_anomaly(True):
        pass
