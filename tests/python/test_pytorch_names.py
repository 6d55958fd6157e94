"""What programs for PyTorch write beside functions of arrays: devices, classes by dtype, out=, axes changed in place."""
import gc

import numpy
import pytest

import cotan
from cotan import nn
from cotan.nn import functional as F
from cotan.utils.data import DataLoader, Dataset, TensorDataset


def test_devices():
    x = cotan.ones(2)
    assert str(x.device) == x.device == "cpu" and x.device.type == "cpu" and x.device.index is None
    one = cotan.device("cuda", 1)
    assert (one.type, one.index, str(one), repr(one)) == ("cuda", 1, "cuda:1", "device(type='cuda', index=1)")
    assert cotan.device("cpu") == x.device and x.to(x.device) is x and nn.Linear(2, 2).to(cotan.device("cpu")).weight.device == "cpu"
    with pytest.raises(RuntimeError) as error:
        x.to(cotan.device("cuda:0"))
    assert 'to: device: there is no device "cuda:0": known are cpu, ref, opencl' in str(error.value)
    with pytest.raises(RuntimeError) as error:
        cotan.device("cuda:0", 1)
    assert str(error.value) == "device: 'cuda:0' has an index, another one is given: 1"
    assert not cotan.cuda.is_available() and not cotan.backends.mps.is_available() and not cotan.accelerator.is_available()
    cotan.backends.cudnn.deterministic = True
    cotan.cuda.manual_seed_all(1)


def test_tensors_of_a_class():
    """Tensor(data) is float32, Tensor(2, 3) has sizes; tensor() keeps what the data are."""
    assert cotan.Tensor([1, 2]).dtype == cotan.Tensor(numpy.arange(2)).dtype == cotan.Tensor(numpy.ones(2)).dtype == cotan.float32
    assert cotan.tensor([1, 2]).dtype == cotan.int64 and cotan.tensor(numpy.ones(2)).dtype == cotan.float64
    assert cotan.Tensor(2, 3).shape == (2, 3) and cotan.Tensor([2, 3]).tolist() == [2, 3]
    assert cotan.Tensor([1j]).dtype == cotan.complex64 and cotan.Tensor([1], "int8").dtype == cotan.int8
    assert cotan.LongTensor([1.0, 2.0]).tolist() == [1, 2] and cotan.FloatTensor(2).tolist() == [0, 0]
    x = cotan.ByteTensor(2, 2)
    assert x.shape == (2, 2) and isinstance(x, cotan.ByteTensor) and not isinstance(x, cotan.LongTensor)
    assert x.type(cotan.FloatTensor).dtype == x.type(cotan.float32).dtype == cotan.float32
    big = numpy.array([2 ** 53 + 1, -3], "int64")
    assert cotan.tensor(big, dtype=cotan.float32).tolist() == big.astype("f").tolist()
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"):
        data = numpy.array([0, 1, 255, -1 % 256]).astype(dtype)
        for to in ("float32", "float64", "int64"):
            assert cotan.tensor(data, dtype=getattr(cotan, to)).tolist() == data.astype(to).tolist()


def test_out():
    a, b, y = cotan.ones(2, 3), cotan.arange(3.0), cotan.zeros(2, 3)
    assert cotan.add(a, b, out=y) is y and y.tolist() == [[1, 2, 3]] * 2
    cotan.matmul(a, cotan.eye(3), out=y)
    assert y.tolist() == a.tolist()
    assert cotan.stack([b, b], out=y) is y and cotan.cat([b[None], b[None]], out=y) is y and y[1].tolist() == [0, 1, 2]
    assert cotan.exp(b, out=None).shape == (3,)
    with pytest.raises(TypeError) as error:
        cotan.exp(b, out=[1])
    assert str(error.value) == "out must be a Tensor, not [1]"
    with pytest.raises(RuntimeError) as error:
        cotan.exp(b, out=cotan.zeros(3, dtype=cotan.int64))
    assert str(error.value) == "a tensor of int64 is written in its place, it cannot hold float32"


def test_axes_changed_in_place():
    x = cotan.arange(6.0)
    assert x.unsqueeze_(0) is x and x.shape == (1, 6) and x.squeeze_().shape == (6,)
    y = x.clone().view(2, 3)
    assert y.t_() is y and y.tolist() == [[0, 3], [1, 4], [2, 5]] and y.transpose_(0, 1).unsqueeze_(-1).shape == (2, 3, 1)
    whole = cotan.zeros(2, 2)
    row = whole[1]
    row.unsqueeze_(0).add_(1)  # still a view
    assert whole.tolist() == [[0, 0], [1, 1]] and row.shape == (1, 2)
    whole[1, 0] = 5
    assert row.tolist() == [[5, 1]]
    with pytest.raises(RuntimeError) as error:
        whole.unsqueeze_(0)
    assert str(error.value) == ("the axes of a tensor of which there are views cannot be changed in its place\n"
                                "  hint: x = x.unsqueeze(0), and the like")
    with pytest.raises(RuntimeError) as error:
        cotan.ones(2, requires_grad=True).unsqueeze_(0)
    assert str(error.value) == "the axes of a leaf that requires gradients, or did, cannot be changed in its place"
    w = cotan.ones(2, requires_grad=True)
    h = w * 2
    h.unsqueeze_(0).sum().backward()
    assert w.grad.tolist() == [2, 2]


def test_diagonals_and_indices():
    for shape, wrap in (((3, 3), False), ((5, 3), False), ((7, 3), True), ((3, 3, 3), False)):
        expected = numpy.zeros(shape)
        numpy.fill_diagonal(expected, 2, wrap) if len(shape) == 2 and (wrap or shape[0] <= shape[1]) else None
        if not expected.any():
            for i in range(min(shape)):
                expected[(i,) * len(shape)] = 2
        assert cotan.zeros(shape).fill_diagonal_(2, wrap).tolist() == expected.tolist()
    assert cotan.triu_indices(3, 4, 1).tolist() == [list(i) for i in numpy.triu_indices(3, 1, 4)]
    assert cotan.tril_indices(4, 3).tolist() == [list(i) for i in numpy.tril_indices(4, 0, 3)]
    assert cotan.cartesian_prod(cotan.tensor([1, 2]), cotan.tensor([3, 4])).tolist() == [[1, 3], [1, 4], [2, 3], [2, 4]]
    assert cotan.dist(cotan.tensor([3.0, 0]), cotan.tensor([0.0, 4])).item() == 5


@pytest.mark.parametrize("count", [3, 64, 65, 200])
@pytest.mark.parametrize("pending", [False, True])
def test_any_number_of_parts(count, pending):
    """Parts that are there are copied at once; of others 64 go into an op."""
    rng = numpy.random.default_rng(0)
    arrays = [rng.standard_normal((2, 1 + i % 3, 2)).astype("f") for i in range(count)]
    parts = [cotan.asarray(a) * 2 if pending else cotan.asarray(a * 2) for a in arrays]
    assert numpy.array_equal(cotan.cat(parts, dim=1).numpy(), 2 * numpy.concatenate(arrays, 1))
    same = [part[:, :1] for part in parts]
    for dim in (0, 1, -1):
        assert numpy.array_equal(cotan.stack(same, dim=dim).numpy(), 2 * numpy.stack([a[:, :1] for a in arrays], dim))


def test_samples_make_one_plan_in_whatever_pattern_they_come():
    """Some twice, some new: a replay memory, or a batch that is drawn with repetition."""
    rng, held = numpy.random.default_rng(0), []
    w = cotan.ones(4, requires_grad=True)
    for step in range(40):
        held.append(cotan.tensor(rng.standard_normal(4), dtype=cotan.float32).unsqueeze(0))
        batch = cotan.cat([held[i] for i in rng.integers(0, len(held), 8)] + [held[-1]])
        expected = sum(batch.tolist(), [])
        w.grad = None
        loss = (batch * w).sum()
        loss.backward()
        assert loss.item() == pytest.approx(sum(expected), rel=1e-5, abs=1e-5)
        if step == 5:
            plans = cotan.stats()["plans_made"]
    assert cotan.stats()["plans_made"] == plans


def test_a_batch_of_many_elements():
    class Squares(Dataset):
        def __len__(self):
            return 150

        def __getitem__(self, i):
            return cotan.tensor([i, i * i], dtype=cotan.float32), i

    (x, y), = DataLoader(Squares(), batch_size=150)
    assert x.shape == (150, 2) and x[:, 1].tolist() == [i * i for i in range(150)] and y[-1].item() == 149


def test_lists_as_keys_while_something_is_pending():
    """An assignment that waits is run by the look at the list: what only the key names stays."""
    w = cotan.tensor(numpy.arange(12.0).reshape(3, 4), requires_grad=True)
    y = w * 1
    assert y[range(3), cotan.tensor([0, -1, 1])].tolist() == [0, 7, 9]
    v = cotan.tensor(numpy.arange(12.0).reshape(3, 4), requires_grad=True)
    z = v * 1
    assert z[[-1, 0], [0, -1]].tolist() == [8, 3] and z[numpy.array([True, False, True])].shape == (2, 4)
    u = cotan.tensor(numpy.arange(4.0), requires_grad=True)
    with cotan.no_grad():
        u[[0, -1]] = cotan.tensor([5.0, 6.0], dtype=cotan.float64)
    assert u.tolist() == [5, 1, 2, 6]
    data = TensorDataset(cotan.arange(10.0), cotan.arange(10))
    p = cotan.tensor([1.0], requires_grad=True)
    for x, _ in DataLoader(data, batch_size=4):
        (p * x).sum().backward()
    assert p.grad.tolist() == [45]


@pytest.mark.parametrize("look", [False, True])
def test_a_leaf_that_nobody_names_any_more(look):
    """A gradient's gradient leads through the place at which it was taken, which a function made and has left."""
    w = cotan.tensor([2.0], requires_grad=True)

    def penalty():
        x = cotan.tensor([3.0]).requires_grad_()
        slope, = cotan.autograd.grad(w * x ** 3, x, create_graph=True)
        return slope.sum()

    value = penalty()
    gc.collect()
    if look:
        assert value.item() == 54
    value.backward()
    assert w.grad.tolist() == [27]


def test_leaves_that_nobody_names_hold_memory_level():
    w = cotan.tensor([2.0] * 64, requires_grad=True)

    def penalty():
        x = cotan.tensor([3.0] * 64).requires_grad_()
        slope, = cotan.autograd.grad((w * x ** 3).sum(), x, create_graph=True)
        return slope.sum()

    for turn in range(1500):
        w.grad, value = None, penalty()
        if turn % 3 == 0:
            value.item()
        if turn % 4:
            value.backward()
        cotan.eval()
        if turn == 300:
            held = [cotan.stats()[key] for key in ("memory", "live_bytes", "plans_made")]
    assert [cotan.stats()[key] for key in ("memory", "live_bytes", "plans_made")] == held


def test_one_version_that_is_read_before_and_after_a_look():
    w = cotan.tensor([1.0, 2.0], requires_grad=True)
    x = cotan.tensor([3.0, 4.0])
    first = (w * x).sum()
    assert first.item() == 11
    second = (w * x * x).sum()
    assert second.item() == 41
    (first + second).backward()
    assert w.grad.tolist() == [12, 20]


def test_samples_of_distributions():
    cotan.manual_seed(0)
    D = cotan.distributions
    loc = cotan.tensor([1.0, -2.0], requires_grad=True)
    normal = D.Normal(loc, 2.0)
    drawn = normal.sample((20000,)).numpy()
    assert drawn.shape == (20000, 2) and numpy.allclose(drawn.mean(0), [1, -2], atol=0.06) and numpy.allclose(drawn.std(0), 2, atol=0.06)
    normal.rsample((5,)).sum().backward()
    assert loc.grad.tolist() == [5, 5] and not normal.sample().requires_grad and normal.batch_shape == (2,)
    classes = D.Categorical(cotan.tensor([[1.0, 3.0], [0.0, 1.0]]))
    drawn = classes.sample((20000,)).numpy()
    assert drawn.shape == (20000, 2) and abs(drawn[:, 0].mean() - 0.75) < 0.02 and (drawn[:, 1] == 1).all()
    assert D.Categorical(cotan.ones(3)).sample().shape == () and classes.mode.tolist() == [1, 1]
    bits = D.Bernoulli(cotan.tensor([0.25, 1.0])).sample_n(20000).numpy()
    assert abs(bits[:, 0].mean() - 0.25) < 0.02 and (bits[:, 1] == 1).all()
    flat = D.Uniform(-1.0, 3.0).sample((20000,)).numpy()
    assert flat.min() >= -1 and flat.max() < 3 and abs(flat.mean() - 1) < 0.06


def test_smaller_functions():
    x = cotan.arange(24.0).reshape(2, 3, 4)
    windows = numpy.lib.stride_tricks.sliding_window_view(x.numpy(), 3, 2)[:, :, ::1]
    assert numpy.array_equal(x.unfold(2, 3, 1).numpy(), windows) and x.unfold(1, 2, 1).shape == (2, 2, 4, 2)
    assert cotan.combinations(cotan.tensor([5, 6, 7])).tolist() == [[5, 6], [5, 7], [6, 7]]
    assert cotan.block_diag(cotan.eye(2), cotan.tensor([[2.0, 3.0]])).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 3]]
    assert cotan.logdet(2 * cotan.eye(3)).item() == pytest.approx(3 * numpy.log(2))
    assert numpy.isnan(cotan.logdet(cotan.tensor([[0.0, 1], [1, 0]])).item())
    assert cotan.trapz(cotan.tensor([1.0, 2, 4]), dx=2).item() == 9
    assert cotan.ones(3, 3).tril_().sum().item() == 6 and cotan.ones(3).cumsum_(0).tolist() == [1, 2, 3]
    assert cotan.ones(2).get_device() == -1 and cotan.ones(2).pin_memory().shape == (2,) and not cotan.ones(2).is_sparse
    assert cotan.ones(4).multinomial(4).sort().values.tolist() == [0, 1, 2, 3]
    assert cotan.autograd.Variable(cotan.ones(1), requires_grad=True).requires_grad


@pytest.mark.parametrize("call, kind, text", [
    (lambda: cotan.ones(3).unfold(0, 4, 1), RuntimeError, "unfold: windows of 4 elements every 1 are asked for, axis 0 has 3"),
    (lambda: cotan.set_default_dtype(cotan.int64), TypeError,
     "set_default_dtype: int64 is asked for, the default is float16, bfloat16, float32 or float64"),
    (lambda: cotan.distributions.Categorical(), ValueError, "Categorical: either probs or logits is needed, not none of them"),
    (lambda: cotan.distributions.Categorical(cotan.tensor(1.0)), ValueError,
     "Categorical: probs is one number, it needs at least one axis"),
    (lambda: cotan.distributions.Bernoulli(0.5).rsample(), NotImplementedError,
     "Bernoulli: rsample is asked for, its outcomes have no gradients"),
    (lambda: cotan.distributions.kl_divergence(cotan.distributions.Normal(0, 1), cotan.distributions.Poisson(1)),
     NotImplementedError, "kl_divergence: of Normal from Poisson there is no formula here"),
    (lambda: F.grid_sample(cotan.ones(1, 1, 2, 2), cotan.ones(1, 2, 2, 3)), RuntimeError,
     "grid_sample: the input is (1, 1, 2, 2) and the grid (1, 2, 2, 3), they must be (N, C, H, W) and (N, H', W', 2), "
     "or (N, C, D, H, W) and (N, D', H', W', 3)"),
    (lambda: F.grid_sample(cotan.ones(1, 1, 2, 2), cotan.ones(1, 2, 2, 2), mode="linear"), ValueError,
     "grid_sample: mode is 'linear', it must be \"bilinear\", \"nearest\" or \"bicubic\""),
    (lambda: F.grid_sample(cotan.ones(1, 1, 2, 2), cotan.ones(1, 2, 2, 2), padding_mode="edge"), ValueError,
     "grid_sample: padding_mode is 'edge', it must be \"zeros\", \"border\" or \"reflection\""),
    (lambda: F.affine_grid(cotan.ones(1, 2, 3), (2, 1, 4, 4)), ValueError,
     "affine_grid: theta is (1, 2, 3) and the size (2, 1, 4, 4), they must be (N, 2, 3) and (N, C, H, W), or (N, 3, 4) and "
     "(N, C, D, H, W)"),
    (lambda: cotan.autograd.functional.hessian(lambda x: x, cotan.ones(2)), RuntimeError, "hessian: the function must give one number"),
    (lambda: cotan.autograd.functional.vjp(lambda x: x, cotan.ones(2), cotan.ones(3)), RuntimeError,
     "vjp: v has the sizes (3,), it needs (2,)"),
    (lambda: nn.utils.parametrize.remove_parametrizations(nn.Linear(1, 1), "weight"), ValueError,
     "module Linear has no parametrization on weight"),
    (lambda: nn.utils.parametrize.register_parametrization(nn.Linear(1, 1), "w", nn.Tanh()), ValueError,
     "module Linear has no parameter, buffer or parametrized tensor 'w'"),
    (lambda: nn.utils.parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Flatten(0)), ValueError,
     "a parametrization must keep the tensor's shape and dtype, it made of (2, 2) float32 (4,) float32\n  hint: unsafe=True"),
])
def test_errors(call, kind, text):
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == text


# ------------------------------------------------------------------------- tensors without axes

@pytest.mark.parametrize("of, alone, dtype", [
    ("float16", "float32", "float16"), ("float32", "float64", "float32"), ("bfloat16", "float16", "bfloat16"), ("int8", "int64", "int8"),
    ("uint8", "int8", "uint8"), ("float32", "int64", "float32"), ("complex64", "float64", "complex64"),
    ("complex64", "complex128", "complex64"), ("float64", "complex64", "complex128"), ("float32", "complex128", "complex64"),
    ("int64", "float16", "float16"), ("uint8", "float64", "float64"), ("bool", "int8", "int8"), ("bool", "float64", "float64")])
def test_a_tensor_without_axes_does_not_raise_the_dtype(of, alone, dtype):
    of, alone, dtype = (cotan.dtype(name) for name in (of, alone, dtype))
    x, t = cotan.ones(3, dtype=of), cotan.asarray(1, dtype=alone)
    for result in (x + t, t + x, x * t, t - x if of != cotan.bool else x + t, x / t if dtype.kind in "fc" else x * t, x.add(t), x.mul(t),
                   x.where(x == x, t), t.where(x == x, x)):
        assert result.dtype == dtype
    if dtype.kind != "c":
        assert x.maximum(t).dtype == x.pow(t).dtype == dtype
    both = cotan.promote_types(of, alone)  # the functions are the array API's
    assert cotan.add(x, t).dtype == cotan.multiply(t, x).dtype == both
    assert cotan.where(x == x, x, t).dtype == both and (cotan.ones(1, dtype=of) + cotan.ones(1, dtype=alone)).dtype == both
    assert (cotan.asarray(1, dtype=of) + t).dtype == both  # neither has axes
    for divided in (cotan.divide(x, t), cotan.divide(t, x)):
        assert divided.dtype == (both if both.kind in "fc" else cotan.float32)
    if both.kind in "iu":
        assert cotan.floor_divide(x, t).dtype == cotan.bitwise_left_shift(t, x).dtype == both


def test_values_beside_a_tensor_without_axes():
    x, t = cotan.asarray([200, 1], dtype=cotan.uint8), cotan.asarray(300)
    assert (x + t).tolist() == [244, 45]  # 300 is 44 in uint8
    h = cotan.asarray([2049.0, 0.1], dtype=cotan.float16)
    assert (h == cotan.asarray(0.1)).tolist() == [False, True]  # compared in float16
    w = cotan.asarray(2.0, dtype=cotan.float64).requires_grad_()
    y = cotan.ones(3, dtype=cotan.float16) * w
    y.sum().backward()
    assert w.grad.dtype == cotan.float64 and w.grad.item() == 3.0
    h += cotan.asarray(1.0)
    assert h.dtype == cotan.float16


def test_booleans_beside_whole_numbers_are_int64():
    """As in PyTorch and NumPy; beside other numbers and booleans they promote as tensors do."""
    x = cotan.tensor([True, False])
    for y, dtype, right in ((x + 1, cotan.int64, [2, 1]), (2 - x, cotan.int64, [1, 2]), (cotan.torch.mul(x, 3), cotan.int64, [3, 0]),
                            (x & 1, cotan.int64, [1, 0]), (x + True, cotan.bool, [True, True]), (x * x, cotan.bool, [True, False]),
                            (x + 1.5, cotan.float32, [2.5, 1.5])):
        assert y.dtype == dtype and y.tolist() == right
