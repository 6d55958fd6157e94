"""Modules, their functions, initial values and random numbers, against closed forms and NumPy. tests/parity/test_nn.py
compares all of them with PyTorch."""
import copy
import math
import pickle
import re

import numpy as np
import pytest

import cotan
from cotan import nn

F = nn.functional


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def close(ours, theirs):
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-5, atol=1e-5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2), nn.Tanh())
        self.same = self.one
        self.register_buffer("mean", cotan.asarray([1.0, 2.0]))
        self.register_buffer("hidden", cotan.asarray([3.0]), persistent=False)

    def forward(self, x):
        return self.two(self.one(x))


def test_members():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["one.weight", "one.bias", "two.0.weight", "two.0.bias"]
    assert list(net.state_dict()) == ["mean", "one.weight", "one.bias", "two.0.weight", "two.0.bias", "same.weight", "same.bias"]
    net.two[0].weight = nn.Parameter(drawn(2, 4))
    assert list(net.two.state_dict()) == ["0.weight", "0.bias"]
    assert [name for name, _ in net.named_modules()] == ["", "one", "two", "two.0", "two.1"]
    assert [name for name, _ in net.named_buffers()] == ["mean", "hidden"] and len(list(net.children())) == 2
    assert net.get_submodule("two.0") is net.two[0] and net.get_parameter("two.0.bias") is net.two[0].bias
    del net.same
    assert "same" not in dir(net) and not hasattr(net, "same")
    net.one = None
    assert net.one is None and [name for name, _ in net.named_children()] == ["two"]


@pytest.mark.parametrize("change, kind, text", [
    (lambda net: setattr(net.one, "weight", 1), TypeError, "cannot assign 'int' as parameter 'weight' (cotan.nn.Parameter or None expected)"),
    (lambda net: setattr(net, "mean", 1), TypeError, "cannot assign 'int' as buffer 'mean' (cotan.Tensor or None expected)"),
    (lambda net: setattr(net, "one", 1), TypeError, "cannot assign 'int' as child module 'one' (cotan.nn.Module or None expected)"),
    (lambda net: net.register_buffer("one", None), KeyError, "\"attribute 'one' already exists\""),
    (lambda net: net.register_parameter("a.b", None), KeyError, "'parameter name can\\'t contain \".\", got: a.b'"),
    (lambda net: net.no_such, AttributeError, "'Net' object has no attribute 'no_such'"),
    (lambda net: nn.Module()(1), NotImplementedError, 'Module [Module] is missing the required "forward" function'),
    (lambda net: net.train(1), ValueError, "training mode is expected to be boolean"),
    (lambda net: net.to(cotan.int64), TypeError,
     "nn.Module.to only accepts floating point or complex dtypes, but got desired dtype=cotan.int64"),
    (lambda net: nn.LSTM(2, 3, proj_size=3), ValueError, "proj_size has to be smaller than hidden_size"),
    (lambda net: nn.Conv2d(4, 4, 3, groups=3), ValueError, "in_channels must be divisible by groups"),
    (lambda net: F.conv2d(cotan.asarray(drawn(1, 2, 4, 4)), cotan.asarray(drawn(1, 3, 2, 2))), RuntimeError,
     "Given groups=1, weight of size [1, 3, 2, 2], expected input[1, 2, 4, 4] to have 3 channels, but got 2 channels instead"),
    (lambda net: F.layer_norm(cotan.asarray(drawn(2, 3)), (4,)), RuntimeError,
     "Given normalized_shape=[4], expected input with shape [*, 4], but got input of size[2, 3]"),
    (lambda net: nn.BatchNorm1d(3)(cotan.asarray(drawn(1, 3))), ValueError,
     "Expected more than 1 value per channel when training, got input size cotan.Size([1, 3])"),
    (lambda net: nn.BatchNorm2d(3)(cotan.asarray(drawn(1, 3))), ValueError, "expected 4D input (got 2D input)"),
    (lambda net: F.cross_entropy(cotan.asarray(drawn(2, 3)), cotan.asarray([1])), ValueError,
     "cross_entropy: the target has shape (1,), with this input it must be (2,)"),
    (lambda net: F.dropout(cotan.asarray(drawn(2)), 1.5), ValueError, "dropout probability has to be between 0 and 1, but got 1.5"),
    (lambda net: cotan.randint(5, 5, (2,)), RuntimeError, "randint: no integer is at least 5 and less than 5"),
    (lambda net: cotan.multinomial(cotan.asarray([1.0, 2.0]), 3), RuntimeError, "multinomial: 3 different ones of 2 are asked for"),
])
def test_errors(change, kind, text):
    with pytest.raises(kind) as told:
        change(Net())
    assert str(told.value) == text


def test_state_dicts():
    net, other = Net(), Net()
    state = net.state_dict()
    assert repr(other.load_state_dict(state)) == "<All keys matched successfully>"
    x = cotan.asarray(drawn(5, 3))
    assert (net(x).detach().numpy() == other(x).detach().numpy()).all()
    assert not state["mean"].requires_grad and net.state_dict(keep_vars=True)["one.weight"] is net.one.weight
    assert list(net.two.state_dict(prefix="a.")) == ["a.0.weight", "a.0.bias"] and state._metadata["two.0"] == {"version": 1}
    del state["mean"], net
    state["more"], state["one.weight"] = cotan.asarray(1.0), cotan.asarray(drawn(2, 2))
    with pytest.raises(RuntimeError) as told:
        other.load_state_dict(state)
    assert str(told.value) == ('Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "mean". \n\t'
                               'Unexpected key(s) in state_dict: "more". \n\tsize mismatch for one.weight: copying a param with '
                               "shape cotan.Size([2, 2]) from checkpoint, the shape in current model is cotan.Size([4, 3]).")
    del state["one.weight"]
    assert other.load_state_dict(state, strict=False) == (["mean", "one.weight"], ["more"])
    weight = cotan.asarray(drawn(4, 3))
    other.one.load_state_dict({"weight": weight, "bias": cotan.asarray(drawn(4))}, assign=True)
    assert isinstance(other.one.weight, nn.Parameter) and other.one.weight.requires_grad
    close(other.one.weight, drawn(4, 3))


def test_hooks():
    net, seen = Net(), []
    handles = [net.one.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
               net.one.register_forward_hook(lambda module, args, out: seen.append(out.shape)),
               net.register_forward_hook(lambda module, args, kwargs, out: out + kwargs["more"], with_kwargs=True)]
    net.forward = lambda x, more: net.two(net.one(x))
    x = cotan.asarray(drawn(5, 3))
    hooked = net(x, more=1.0)
    for handle in handles:
        handle.remove()
    close(hooked, (net(x * 2, more=0.0) + 1).detach().numpy())
    assert seen == [(5, 4)] and not net._forward_hooks
    other = net._register_state_dict_hook(lambda module, state, prefix, local: {"all": len(state)})  # the older kind may replace it
    assert net.state_dict() == {"all": 7}
    other.remove()
    returns = net.register_state_dict_post_hook(lambda module, state, prefix, local: {})
    with pytest.raises(RuntimeError, match="^state_dict post-hook must return None$"):
        net.state_dict()
    returns.remove()
    net.register_state_dict_post_hook(lambda module, state, prefix, local: state.clear())
    assert net.state_dict() == {}


def test_modes_copies_dtypes():
    net = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9), nn.BatchNorm1d(2)).eval()
    assert not net[1].training and net.train()[2].training
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(other[0].weight) is nn.Parameter and other[0].weight is not net[0].weight
        assert other[0].weight.requires_grad and other[0].weight.detach().tolist() == net[0].weight.detach().tolist()
    net.requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in net.parameters())
    net.double()
    assert net[0].weight.dtype == cotan.float64 and net[2].num_batches_tracked.dtype == cotan.int64
    assert net.to(cotan.float32)[2].running_var.dtype == cotan.float32
    net.apply(lambda module: nn.init.zeros_(module.weight) if isinstance(module, nn.Linear) else None)
    assert not net[0].weight.numpy().any()


def test_containers():
    net = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
    del net[1]
    assert len(net) == 2 and isinstance(net[-1], nn.Sigmoid) and list(net._modules) == ["0", "1"] and len(net[:1]) == 1
    modules = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)] + [nn.ReLU()])
    assert repr(modules) == ("ModuleList(\n  (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)\n  (3): ReLU()\n)")
    modules.insert(1, nn.Tanh())
    assert isinstance(modules.pop(1), nn.Tanh) and len(modules) == 4
    names = nn.ModuleDict({"a": nn.ReLU()})
    names["b"] = nn.Tanh()
    assert list(names) == ["a", "b"] and "a" in names
    weights = nn.ParameterList([cotan.asarray([1.0]), nn.Parameter([2.0])])
    assert all(weight.requires_grad for weight in weights) and list(weights.state_dict()) == ["0", "1"]
    assert repr(weights) == ("ParameterList(\n    (0): Parameter containing: [cotan.float32 of size 1]\n"
                             "    (1): Parameter containing: [cotan.float32 of size 1]\n)")
    named = nn.ParameterDict({"w": cotan.asarray([1.0])})
    assert named["w"].requires_grad and list(named.items())[0][0] == "w"


def test_linear_and_its_gradient():
    layer, x = nn.Linear(3, 4), drawn(5, 3)
    y = layer(cotan.asarray(x))
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    close(y, x @ w.T + b)
    cotan._core.ops.sum(y * y).backward()
    close(layer.weight.grad, 2 * (x @ w.T + b).T @ x)
    close(layer.bias.grad, 2 * (x @ w.T + b).sum(0))


def test_convolution_and_pooling():
    x, layer = drawn(2, 3, 6, 5), nn.Conv2d(3, 4, 3, padding="same")
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))  # (N, C, H, W, 3, 3)
    want = np.einsum("nchwij,ocij->nohw", windows, layer.weight.detach().numpy()) + layer.bias.detach().numpy()[:, None, None]
    close(layer(cotan.asarray(x)), want)
    pooled, where = F.max_pool2d(cotan.asarray(x), 2, return_indices=True)
    blocks = x[:, :, :6, :4].reshape(2, 3, 3, 2, 2, 2)
    assert (pooled.numpy() == blocks.max((3, 5))).all()
    close(F.max_unpool2d(pooled, where, 2, output_size=(6, 5)), np.where(np.isin(x, blocks.max((3, 5))), x, 0))


def test_batch_norm_keeps_statistics():
    norm, batches = nn.BatchNorm1d(3, momentum=None), [drawn(8, 3, seed=seed) for seed in range(4)]
    for x in batches:
        y = norm(cotan.asarray(x))
    close(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5))
    close(norm.running_mean, np.mean([x.mean(0) for x in batches], 0))
    close(norm.running_var, np.mean([x.var(0, ddof=1) for x in batches], 0))
    assert norm.num_batches_tracked.item() == 4
    norm.eval()
    close(norm(cotan.asarray(x)), (x - norm.running_mean.numpy()) / np.sqrt(norm.running_var.numpy() + 1e-5))
    assert not norm.running_mean.requires_grad


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_lstm():
    layer, x = nn.LSTM(3, 2, batch_first=True), drawn(4, 5, 3)
    w, u, b, c = (p.detach().numpy() for p in layer.parameters())
    h, cell = np.zeros((4, 2)), np.zeros((4, 2))
    for t in range(5):
        i, f, g, o = np.split(x[:, t] @ w.T + b + h @ u.T + c, 4, 1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(cell)
    y, (last, inside) = layer(cotan.asarray(x))
    assert y.shape == (4, 5, 2)
    close(last, h[None])
    close(inside, cell[None])


def test_long_sequences():
    cell, layer, x = nn.RNNCell(3, 2), nn.RNN(3, 2), cotan.asarray(drawn(70, 1, 3))
    cell.load_state_dict({name[:-3]: value for name, value in layer.state_dict().items()})
    h = None
    for t in range(70):
        h = cell(cotan.asarray(drawn(70, 1, 3)[t]), h)
    y, last = layer(x)
    assert y.shape == (70, 1, 2)
    close(last, h.detach().numpy()[None])
    close(nn.utils.parameters_to_vector([nn.Parameter([float(i)]) for i in range(130)]), np.arange(130))


def test_attention_by_hand_and_by_the_op():
    q, k, v = (cotan.asarray(drawn(2, 4, 3, seed=seed)) for seed in range(3))
    mask = np.tril(np.ones((4, 4), bool))
    scores = np.where(mask, q.numpy() @ k.numpy().transpose(0, 2, 1) / math.sqrt(3), -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    close(F.scaled_dot_product_attention(q, k, v, is_causal=True), weights @ v.numpy())
    added = cotan.asarray(np.where(mask, 0, -np.inf).astype("float32"))
    close(F.scaled_dot_product_attention(q, k, v, attn_mask=added), weights @ v.numpy())


def test_attention_of_shared_heads():
    q, k = (cotan.asarray(drawn(2, heads, 5, 3, seed=heads)) for heads in (4, 2))
    spread = cotan.asarray(k.numpy().repeat(2, 1))
    close(F.scaled_dot_product_attention(q, k, k, enable_gqa=True), F.scaled_dot_product_attention(q, spread, spread).numpy())
    with pytest.raises(RuntimeError) as caught:
        F.scaled_dot_product_attention(q, k, k)
    assert str(caught.value) == ("scaled_dot_product_attention: the query has 4 heads, the key 2; heads that share keys are asked for "
                                 "by enable_gqa=True")


def test_cross_entropy():
    x, target = drawn(6, 4), np.array([0, 3, 2, 1, 1, 0])
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    rows = -logs[np.arange(6), target]
    close(F.cross_entropy(cotan.asarray(x), cotan.asarray(target)), rows.mean())
    close(F.cross_entropy(cotan.asarray(x), cotan.asarray(target), ignore_index=1), rows[target != 1].mean())
    smooth = 0.9 * rows - 0.1 * logs.mean(1)
    close(F.cross_entropy(cotan.asarray(x), cotan.asarray(target), label_smoothing=0.1, reduction="sum"), smooth.sum())


def test_linear_cross_entropy():
    """A block of rows is 256: 300 rows are two. Rows that are ignored may have any target."""
    x, target = cotan.asarray(drawn(300, 5)), np.arange(300) % 6
    layer = nn.LinearCrossEntropyLoss(5, 6, bias=True, ignore_index=4)
    loss = layer(x, cotan.asarray(target))
    logits = x.numpy() @ layer.linear.weight.detach().numpy().T + layer.linear.bias.detach().numpy()
    close(loss.detach(), F.cross_entropy(cotan.asarray(logits), cotan.asarray(target), ignore_index=4).numpy())
    loss.backward()
    hot = np.eye(6)[target] * (target != 4)[:, None]
    slope = (np.exp(logits) / np.exp(logits).sum(1, keepdims=True) * (target != 4)[:, None] - hot) / (target != 4).sum()
    close(layer.linear.weight.grad, slope.T @ x.numpy())
    close(layer.linear.bias.grad, slope.sum(0))
    none = cotan.asarray(np.full(300, -100))
    assert F.linear_cross_entropy(x, layer.linear.weight, none, reduction="sum").item() == 0
    assert np.isnan(F.linear_cross_entropy(x, layer.linear.weight, none).item())
    spread = nn.LinearCrossEntropyLoss(5, 3, out_features=(2,))
    wide = cotan.asarray(target.reshape(150, 2) % 3)
    whole = (x[:150].numpy() @ spread.linear.weight.detach().numpy().T).reshape(150, 3, 2)
    close(spread(x[:150], wide).detach(), F.cross_entropy(cotan.asarray(whole), wide).numpy())


def test_dropout():
    cotan.manual_seed(1)
    x = cotan.asarray(np.ones((200, 100), "float32"))
    layer = nn.Dropout(0.3)
    first, second = layer(x).numpy(), layer(x).numpy()
    assert set(np.unique(first)) == {0, np.float32(1) / np.float32(0.7)} and (first != second).any()
    assert abs((first == 0).mean() - 0.3) < 0.02 and layer.eval()(x) is x
    whole = nn.Dropout2d(0.5)(cotan.asarray(np.ones((30, 20, 2, 2), "float32"))).numpy()
    assert (whole == whole[:, :, :1, :1]).all() and 0.4 < (whole == 0).mean() < 0.6


def test_random_numbers():
    cotan.manual_seed(5)
    first = cotan.randn(3, 4)
    more = cotan.rand((2, 2))
    cotan.manual_seed(5)
    assert (cotan.randn(3, 4).numpy() == first.numpy()).all() and (cotan.rand(2, 2).numpy() == more.numpy()).all()
    generator = cotan.Generator().manual_seed(7)
    state = generator.get_state()
    drawn_once = cotan.rand(5, generator=generator).tolist()
    assert cotan.rand(5, generator=generator.set_state(state)).tolist() == drawn_once
    assert generator.initial_seed() == 7 and pickle.loads(pickle.dumps(generator)).initial_seed() == 7
    assert sorted(cotan.randperm(50).tolist()) == list(range(50)) and cotan.randperm(50).tolist() != list(range(50))
    numbers = cotan.randint(3, 7, (1000,))
    assert numbers.dtype == cotan.int64 and set(numbers.tolist()) == {3, 4, 5, 6}
    weights = cotan.asarray([[1.0, 0.0, 3.0]])
    counts = np.bincount(cotan.multinomial(weights, 2000, replacement=True).numpy()[0], minlength=3) / 2000
    np.testing.assert_allclose(counts, [0.25, 0, 0.75], atol=0.05)
    assert sorted(cotan.multinomial(weights, 2).tolist()[0]) == [0, 2]
    assert abs(cotan.bernoulli(cotan.asarray(np.full(2000, 0.2, "float32"))).numpy().mean() - 0.2) < 0.05
    values = cotan.normal(3.0, 0.5, (4000,)).numpy()
    assert abs(values.mean() - 3) < 0.05 and abs(values.std() - 0.5) < 0.05


def test_a_seed_makes_no_plan():
    cotan.rand(3).tolist()
    cotan.rand(3).tolist()
    before = cotan.stats()["plans_made"]
    for seed in range(3):
        cotan.manual_seed(seed)
        cotan.rand(3).tolist()
        cotan.rand(3).tolist()
    assert cotan.stats()["plans_made"] == before


@pytest.mark.parametrize("fill, low, high, std", [
    (lambda w: nn.init.uniform_(w, -2, 3), -2, 3, 5 / math.sqrt(12)), (lambda w: nn.init.normal_(w, 0, 0.5), -3, 3, 0.5),
    (lambda w: nn.init.trunc_normal_(w, std=1, a=-1, b=1), -1, 1, 0.54),
    (nn.init.xavier_uniform_, -math.sqrt(6 / 150), math.sqrt(6 / 150), math.sqrt(2 / 150)),
    (lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu"), -1, 1, math.sqrt(2 / 50)),
    (lambda w: nn.init.kaiming_uniform_(w, a=math.sqrt(5)), -1 / math.sqrt(50), 1 / math.sqrt(50), 1 / math.sqrt(150)),
])
def test_initial_values(fill, low, high, std):
    cotan.manual_seed(0)
    weight = nn.Parameter(np.zeros((100, 50), "float32"))
    assert fill(weight) is weight and weight.requires_grad
    values = weight.detach().numpy()
    assert low <= values.min() and values.max() <= high and abs(values.std() / std - 1) < 0.05


def test_orthogonal_rows():
    weight = nn.init.orthogonal_(nn.Parameter(np.zeros((3, 5), "float32")), gain=2)
    close(cotan._core.ops.matmul(weight, cotan._core.ops.permute(weight, (1, 0))), 4 * np.eye(3))


def test_sparse_columns():
    """So many zeros in each column, at places that differ from one to the next."""
    weight = nn.init.sparse_(nn.Parameter(np.zeros((20, 50), "float32")), 0.33).detach().numpy()
    zeros = weight == 0
    assert (zeros.sum(0) == 7).all() and len({tuple(column) for column in zeros.T}) > 40


def test_gradients_are_clipped():
    layer = nn.Linear(3, 2)
    layer.weight.grad, layer.bias.grad = cotan.asarray(drawn(2, 3) * 9), cotan.asarray(drawn(2) * 9)
    both = np.concatenate([layer.weight.grad.numpy().ravel(), layer.bias.grad.numpy()])
    total = nn.utils.clip_grad_norm_(layer.parameters(), 2.0)
    close(total, np.linalg.norm(both))
    close(layer.weight.grad, drawn(2, 3) * 9 * 2 / np.linalg.norm(both))
    nn.utils.clip_grad_value_(layer.parameters(), 0.1)
    assert np.abs(layer.weight.grad.numpy()).max() <= np.float32(0.1)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    nn.utils.vector_to_parameters(vector * 2, layer.parameters())
    close(nn.utils.parameters_to_vector(layer.parameters()), vector.detach().numpy() * 2)


def test_sequences_of_several_lengths():
    parts = [drawn(n, 2, seed=n) for n in (2, 4, 3)]
    padded = nn.utils.rnn.pad_sequence([cotan.asarray(part) for part in parts], batch_first=True, padding_value=-1.0)
    for row, part in zip(padded.numpy(), parts):
        assert (row[:len(part)] == part).all() and (row[len(part):] == -1).all()
    packed = nn.utils.rnn.pack_sequence([cotan.asarray(part) for part in parts], enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 3, 2, 1] and packed.data.shape == (9, 2)
    for part, back in zip(parts, nn.utils.rnn.unpack_sequence(packed)):
        assert (back.numpy() == part).all()


def test_every_function_has_its_name():
    public = [name for name in dir(F) if not re.match("_|[A-Z]|activation$|attention$|base$|ctc$|grid$|loss$|normalization$|window$|window_max$", name)]
    assert len(public) > 100 and all(callable(getattr(F, name)) for name in public)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("convert", [
    lambda m: m.half(), lambda m: m.bfloat16(), lambda m: m.double(), lambda m: m.to(cotan.float64), lambda m: m.type(cotan.float64),
    lambda m: m.to("cpu", cotan.float16), lambda m: m.double().float()])
def test_parameters_stay_the_same_when_their_dtype_changes(convert):
    m = Tied()
    weight, called = m.embed.weight, []
    optimizer = cotan.optim.SGD(m.parameters(), lr=1.0, momentum=0.5)
    weight.register_hook(lambda g: called.append(1))
    weight.grad = cotan.ones(5, 4)
    grad, values, before = weight.grad, weight.detach(), weight.tolist()
    optimizer.step()
    assert convert(m) is m and list(m.parameters()) == [weight] and m.head.weight is weight and m.embed.weight is weight
    dtype = weight.dtype
    assert weight.requires_grad and weight.is_leaf and weight.grad is grad
    assert grad.dtype == dtype and grad.tolist() == [[1.0] * 4] * 5
    assert values.dtype == cotan.float32  # PyTorch's views of the memory before keep it, too
    after = weight.tolist()
    optimizer.zero_grad()
    m.head(cotan.ones(1, 4, dtype=dtype)).sum().backward()
    optimizer.step()  # 0.5 of the first gradient and 1, that is 1.5 less
    assert called == [1] and optimizer.state[weight]["momentum_buffer"].dtype == cotan.float32
    np.testing.assert_allclose(np.array(weight.tolist()), np.array(after) - 1.5, atol=2e-2)
    np.testing.assert_allclose(np.array(after), np.array(before) - 1.0, atol=2e-2)


def test_buffers_are_converted():
    m = nn.BatchNorm1d(2).half()
    assert (m.running_mean.dtype, m.num_batches_tracked.dtype) == (cotan.float16, cotan.int64)
