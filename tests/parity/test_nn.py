"""cotan.nn and cotan.optim against torch.nn and torch.optim: names, shapes and texts of modules; outputs, and gradients of
inputs and parameters, with the same weights; parameters after 50 steps of each optimizer."""
import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
cotan = pytest.importorskip("cotan")


NEWEST = "bias=" in repr(torch.nn.BatchNorm1d(1))  # texts of modules are compared with those of the newest PyTorch


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def unit(*shape):
    return 1 / (1 + np.exp(-drawn(*shape)))


def classes(n, *shape):
    return np.random.default_rng(7).integers(0, n, shape)


X1, X2, X3 = drawn(2, 4, 9), drawn(2, 4, 7, 8), drawn(2, 4, 5, 6, 4)
ROWS, IMAGE = drawn(5, 6), drawn(4, 7, 8)
SIGNS = np.sign(drawn(5)).astype("int64")
LABELS = np.array([[2, 0, -1, 1], [-1, 1, 0, 3], [3, 2, 1, 0]])

# A module's name, its arguments, its inputs.
MODULES = [
    ("Linear", (6, 3), {}, [ROWS]), ("Linear", (6, 3), {"bias": False}, [drawn(2, 5, 6)]), ("Linear", (6, 3), {}, [drawn(6)]),
    ("Bilinear", (6, 4, 3), {}, [ROWS, drawn(5, 4)]), ("Identity", (), {}, [ROWS]), ("Flatten", (), {}, [X2]),
    ("Flatten", (0, 1), {}, [X2]), ("Unflatten", (1, (2, 2)), {}, [X2]),
    ("Conv1d", (4, 6, 3), {}, [X1]), ("Conv1d", (4, 6, 3), {"padding": "same", "dilation": 2}, [X1]),
    ("Conv2d", (4, 6, 3), {"padding": 1, "stride": 2}, [X2]), ("Conv2d", (4, 6, 3), {"groups": 2, "bias": False}, [X2]),
    ("Conv2d", (4, 6, 4), {"padding": "same"}, [X2]), ("Conv2d", (4, 6, (3, 2)), {"padding": "valid"}, [IMAGE]),
    ("Conv2d", (4, 4, 3), {"padding": 1, "padding_mode": "reflect"}, [X2]),
    ("Conv2d", (4, 4, 3), {"padding": (2, 1), "padding_mode": "replicate"}, [X2]),
    ("Conv2d", (4, 4, 3), {"padding": 1, "padding_mode": "circular"}, [X2]), ("Conv3d", (4, 2, 3), {"padding": 1}, [X3]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "padding": 1, "output_padding": 1}, [X1]),
    ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "groups": 2}, [X2]), ("ConvTranspose3d", (4, 2, 2), {"dilation": 2}, [X3]),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, [X1]), ("MaxPool2d", (2,), {}, [X2]),
    ("MaxPool2d", (3,), {"stride": 2, "ceil_mode": True}, [IMAGE]), ("MaxPool3d", (2,), {}, [X3]),
    ("AvgPool1d", (3,), {"padding": 1}, [X1]), ("AvgPool2d", (3,), {"stride": 2, "padding": 1}, [X2]),
    ("AvgPool2d", (3,), {"padding": 1, "count_include_pad": False}, [X2]), ("AvgPool3d", (2,), {}, [X3]),
    ("LPPool1d", (2, 3), {}, [np.abs(X1)]), ("LPPool2d", (3, 2), {}, [np.abs(X2)]),
    ("AdaptiveAvgPool1d", (4,), {}, [X1]), ("AdaptiveAvgPool2d", ((3, None),), {}, [X2]), ("AdaptiveAvgPool2d", (1,), {}, [X2]),
    ("AdaptiveAvgPool3d", (2,), {}, [X3]), ("AdaptiveMaxPool1d", (4,), {}, [X1]), ("AdaptiveMaxPool2d", ((3, 2),), {}, [X2]),
    ("BatchNorm1d", (4,), {}, [X1]), ("BatchNorm1d", (6,), {"momentum": None}, [ROWS]), ("BatchNorm2d", (4,), {}, [X2]),
    ("BatchNorm2d", (4,), {"affine": False}, [X2]), ("BatchNorm2d", (4,), {"track_running_stats": False}, [X2]),
    ("BatchNorm3d", (4,), {}, [X3]), ("LayerNorm", (8,), {}, [X2]), ("LayerNorm", ((7, 8),), {}, [X2]),
    ("LayerNorm", (8,), {"elementwise_affine": False}, [X2]), ("GroupNorm", (2, 4), {}, [X2]),
    ("InstanceNorm1d", (4,), {}, [X1]), ("InstanceNorm2d", (4,), {"affine": True}, [X2]), ("InstanceNorm2d", (4,), {}, [IMAGE]),
    ("InstanceNorm2d", (4,), {"track_running_stats": True}, [X2]), ("InstanceNorm3d", (4,), {}, [X3]),
    ("RMSNorm", (8,), {}, [X2]), ("RMSNorm", ((7, 8),), {"eps": 1e-5}, [X2]), ("LocalResponseNorm", (3,), {}, [X2]),
    ("Embedding", (7, 3), {}, [classes(7, 2, 5)]), ("Embedding", (7, 3), {"padding_idx": 2}, [classes(7, 2, 5)]),
    ("EmbeddingBag", (7, 3), {}, [classes(7, 4, 5)]), ("EmbeddingBag", (7, 3), {"mode": "sum"}, [classes(7, 9), np.array([0, 4, 4])]),
    ("EmbeddingBag", (7, 3), {"mode": "max"}, [classes(7, 4, 5)]),
    ("RNN", (6, 5), {}, [drawn(4, 3, 6)]), ("RNN", (6, 5), {"nonlinearity": "relu", "num_layers": 2}, [drawn(4, 3, 6)]),
    ("LSTM", (6, 5), {"num_layers": 2, "bidirectional": True}, [drawn(4, 3, 6)]), ("LSTM", (6, 5), {}, [drawn(4, 6)]),
    ("LSTM", (6, 5), {"batch_first": True}, [drawn(3, 4, 6), (drawn(1, 3, 5), drawn(1, 3, 5, seed=1))]),
    ("GRU", (6, 5), {"bidirectional": True, "bias": False}, [drawn(4, 3, 6)]), ("GRU", (6, 5), {}, [drawn(4, 3, 6), drawn(1, 3, 5)]),
    ("RNNCell", (6, 5), {}, [ROWS, drawn(5, 5)]), ("LSTMCell", (6, 5), {}, [ROWS]), ("GRUCell", (6, 5), {}, [ROWS, drawn(5, 5)]),
    ("MultiheadAttention", (8, 2), {}, [drawn(5, 3, 8)] * 3), ("MultiheadAttention", (8, 2), {"batch_first": True}, [
        drawn(3, 5, 8), drawn(3, 4, 8), drawn(3, 4, 8, seed=1)]),
    ("MultiheadAttention", (8, 2), {"kdim": 6, "vdim": 4, "add_bias_kv": True, "add_zero_attn": True}, [
        drawn(5, 3, 8), drawn(4, 3, 6), drawn(4, 3, 4)]),
    ("TransformerEncoderLayer", (8, 2, 16), {"dropout": 0.0}, [drawn(5, 3, 8)]),
    ("TransformerEncoderLayer", (8, 2, 16), {"dropout": 0.0, "norm_first": True, "activation": "gelu", "batch_first": True}, [
        drawn(3, 5, 8)]),
    ("TransformerDecoderLayer", (8, 2, 16), {"dropout": 0.0}, [drawn(5, 3, 8), drawn(4, 3, 8)]),
    ("Transformer", (8, 2, 2, 2, 16), {"dropout": 0.0}, [drawn(5, 3, 8), drawn(4, 3, 8)]),
    ("ReLU", (), {}, [ROWS]), ("ReLU6", (), {}, [ROWS * 4]), ("Sigmoid", (), {}, [ROWS]), ("Tanh", (), {}, [ROWS]),
    ("SiLU", (), {}, [ROWS]), ("GELU", (), {}, [ROWS]), ("GELU", ("tanh",), {}, [ROWS]), ("ELU", (0.7,), {}, [ROWS]),
    ("SELU", (), {}, [ROWS]), ("CELU", (0.7,), {}, [ROWS]), ("LeakyReLU", (0.2,), {}, [ROWS]), ("PReLU", (), {}, [ROWS]),
    ("PReLU", (4,), {}, [X2]), ("GLU", (), {}, [ROWS]), ("Hardtanh", (-0.5, 0.7), {}, [ROWS]), ("Hardsigmoid", (), {}, [ROWS * 3]),
    ("Hardswish", (), {}, [ROWS * 3]), ("Hardshrink", (), {}, [ROWS]), ("Softshrink", (), {}, [ROWS]), ("Tanhshrink", (), {}, [ROWS]),
    ("Softplus", (2, 3), {}, [ROWS]), ("Softsign", (), {}, [ROWS]), ("Mish", (), {}, [ROWS]), ("LogSigmoid", (), {}, [ROWS]),
    ("Threshold", (0.1, 3), {}, [ROWS]), ("Softmax", (1,), {}, [ROWS]), ("LogSoftmax", (0,), {}, [ROWS]), ("Softmin", (1,), {}, [ROWS]),
    ("Softmax2d", (), {}, [X2]), ("Dropout", (0.0,), {}, [ROWS]), ("ZeroPad2d", ((1, 2, 0, 3),), {}, [X2]),
    ("ConstantPad1d", (2, 1.5), {}, [X1]), ("ReflectionPad1d", (2,), {}, [X1]), ("ReflectionPad2d", ((1, 2, 3, 0),), {}, [X2]),
    ("ReplicationPad2d", (2,), {}, [X2]), ("ReplicationPad3d", (1,), {}, [X3]), ("CircularPad2d", (2,), {}, [X2]),
    ("ZeroPad2d", ((-1, 2, 0, -3),), {}, [X2]), ("Upsample", (), {"scale_factor": 2}, [X2]),
    ("Upsample", (), {"size": (9, 5)}, [X2]), ("Upsample", (), {"scale_factor": 2, "mode": "bilinear"}, [X2]),
    ("Upsample", (), {"size": (9, 5), "mode": "bilinear", "align_corners": True}, [X2]),
    ("Upsample", (), {"scale_factor": 1.5, "mode": "bicubic"}, [X2]), ("Upsample", (), {"size": 5, "mode": "linear"}, [X1]),
    ("Upsample", (), {"scale_factor": 2, "mode": "trilinear"}, [X3]), ("Upsample", (), {"size": 5, "mode": "nearest-exact"}, [X1]),
    ("PixelShuffle", (2,), {}, [X2]), ("PixelUnshuffle", (2,), {}, [drawn(2, 3, 4, 6)]), ("ChannelShuffle", (2,), {}, [X2]),
    ("Unfold", (3,), {"padding": 1, "stride": 2}, [X2]), ("Fold", ((6, 7), 3), {"padding": 1, "stride": 2}, [drawn(2, 18, 12)]),
    ("CosineSimilarity", (), {}, [ROWS, drawn(5, 6, seed=1)]), ("PairwiseDistance", (), {}, [ROWS, drawn(5, 6, seed=1)]),
    ("MSELoss", (), {}, [ROWS, drawn(5, 6, seed=1)]), ("L1Loss", (), {"reduction": "sum"}, [ROWS, drawn(5, 6, seed=1)]),
    ("SmoothL1Loss", (), {"beta": 0.5}, [ROWS, drawn(5, 6, seed=1)]), ("HuberLoss", (), {"delta": 0.7}, [ROWS, drawn(5, 6, seed=1)]),
    ("CrossEntropyLoss", (), {}, [ROWS, classes(6, 5)]), ("CrossEntropyLoss", (), {"label_smoothing": 0.1}, [X2, classes(4, 2, 7, 8)]),
    ("CrossEntropyLoss", (), {"ignore_index": 2, "reduction": "none"}, [ROWS, classes(6, 5)]),
    ("CrossEntropyLoss", (), {"weight": unit(6), "label_smoothing": 0.2, "ignore_index": 1}, [ROWS, classes(6, 5)]),
    ("CrossEntropyLoss", (), {"weight": unit(6)}, [ROWS, unit(5, 6)]),
    ("NLLLoss", (), {}, [np.log(unit(5, 6)), classes(6, 5)]), ("NLLLoss", (), {"weight": unit(4)}, [X2, classes(4, 2, 7, 8)]),
    ("BCELoss", (), {}, [unit(5, 6), (drawn(5, 6) > 0).astype("float32")]),
    ("BCEWithLogitsLoss", (), {"pos_weight": unit(6)}, [ROWS, unit(5, 6)]), ("KLDivLoss", (), {"reduction": "batchmean"}, [
        np.log(unit(5, 6)), unit(5, 6)]), ("KLDivLoss", (), {"log_target": True, "reduction": "sum"}, [ROWS, np.log(unit(5, 6))]),
    ("PoissonNLLLoss", (), {"full": True}, [ROWS, np.abs(drawn(5, 6)) * 3]), ("GaussianNLLLoss", (), {"full": True}, [
        ROWS, drawn(5, 6, seed=1), unit(5, 6)]), ("HingeEmbeddingLoss", (), {}, [ROWS, np.sign(drawn(5, 6, seed=2))]),
    ("CosineEmbeddingLoss", (), {"margin": 0.1}, [ROWS, drawn(5, 6, seed=1), SIGNS]), ("MarginRankingLoss", (), {"margin": 0.1}, [
        drawn(5), drawn(5, seed=1), SIGNS]), ("SoftMarginLoss", (), {}, [ROWS, np.sign(drawn(5, 6, seed=2)).astype("int64")]),
    ("MultiMarginLoss", (), {"p": 2, "weight": unit(6)}, [ROWS, classes(6, 5)]), ("MultiLabelMarginLoss", (), {}, [drawn(3, 4), LABELS]),
    ("MultiLabelSoftMarginLoss", (), {}, [ROWS, (drawn(5, 6, seed=1) > 0).astype("float32")]),
    ("TripletMarginLoss", (), {"swap": True}, [ROWS, drawn(5, 6, seed=1), drawn(5, 6, seed=2)]),
    ("TripletMarginWithDistanceLoss", (), {}, [ROWS, drawn(5, 6, seed=1), drawn(5, 6, seed=2)]),
]


def tensors(value, make):
    """The arrays of an input as tensors; floats require gradients."""
    if isinstance(value, tuple):
        return tuple(tensors(each, make) for each in value)
    x = make(value)
    return x.requires_grad_() if value.dtype.kind == "f" else x


def flat(value):
    if isinstance(value, (tuple, list)):
        return [each for part in value for each in flat(part)]
    return [] if value is None else [value]


def pair(name, args, kwargs):
    """The two modules, with the same weights."""
    torch.manual_seed(0)
    given = [{key: make(value) if isinstance(value, np.ndarray) else value for key, value in kwargs.items()}
             for make in (torch.tensor, cotan.asarray)]
    theirs, ours = getattr(torch.nn, name)(*args, **given[0]), getattr(cotan.nn, name)(*args, **given[1])
    for parameter in theirs.parameters():  # norms begin at 1 and 0, which would hide which is which
        parameter.data += torch.tensor(drawn(*parameter.shape)) * 0.1
    state = theirs.state_dict()
    assert {key: tuple(value.shape) for key, value in state.items()} == {
        key: tuple(value.shape) for key, value in ours.state_dict().items()}
    assert list(state) == list(ours.state_dict())
    assert repr(ours.load_state_dict({key: value.numpy() for key, value in state.items()})) == "<All keys matched successfully>"
    return theirs, ours


def close(ours, theirs, what):
    theirs = theirs.detach().numpy()
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-5, atol=1e-5 * max(1, np.abs(theirs).max(initial=0)), err_msg=what)


@pytest.mark.parametrize("index", range(len(MODULES)), ids=[f"{i}-{case[0]}" for i, case in enumerate(MODULES)])
def test_module(index):
    name, args, kwargs, inputs = MODULES[index]
    if not hasattr(torch.nn, name) or (name == "ChannelShuffle" and not NEWEST):
        pytest.skip(f"this PyTorch has no {name}, or not its gradient")
    theirs, ours = pair(name, args, kwargs)
    assert repr(ours) == repr(theirs) or not NEWEST
    results = []
    same = all(each is inputs[0] for each in inputs)  # attention of one tensor to itself
    for module, make in ((theirs, torch.tensor), (ours, cotan.asarray)):
        given = [tensors(inputs[0], make)] * len(inputs) if same else [tensors(each, make) for each in inputs]
        out = flat(module(*given))
        if out[0].requires_grad:
            total = 0
            for i, y in enumerate(out):
                factor = drawn(*y.shape, seed=i) if y.shape else np.float32(1.5)
                total = total + (y * make(factor)).sum() if make is torch.tensor else total + cotan._core.ops.sum(y * make(factor))
            total.backward()
        results.append((out, [x.grad for x in flat(tuple(given))], {key: p.grad for key, p in module.named_parameters()},
                        dict(module.named_buffers())))
    (out, grads, weights, buffers), (own_out, own_grads, own_weights, own_buffers) = results
    assert len(out) == len(own_out)
    for a, b in zip(own_out, out):
        close(a, b, "output")
    for i, (a, b) in enumerate(zip(own_grads, grads)):
        assert (a is None) == (b is None), f"gradient of input {i}"
        if a is not None:
            close(a, b, f"gradient of input {i}")
    assert set(weights) == set(own_weights)
    for key in weights:
        if weights[key] is None:
            assert own_weights[key] is None or not own_weights[key].numpy().any(), key
        else:
            close(own_weights[key], weights[key], f"gradient of {key}")
    for key in buffers:
        close(own_buffers[key], buffers[key], key)


MASK = np.triu(np.ones((5, 5), bool), 1)


@pytest.mark.parametrize("options", [
    {"attn_mask": MASK}, {"attn_mask": np.where(MASK, -np.inf, 0).astype("float32")}, {"need_weights": False},
    {"key_padding_mask": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]], bool)},
    {"attn_mask": MASK, "key_padding_mask": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], bool), "need_weights": False},
    {"average_attn_weights": False}], ids=range(6))
def test_attention_masks(options):
    theirs, ours = pair("MultiheadAttention", (8, 2), {})
    x = drawn(5, 3, 8)
    results = [module(*[make(x)] * 3, **{key: make(value) if isinstance(value, np.ndarray) else value for key, value in options.items()})
               for module, make in ((theirs, torch.tensor), (ours, cotan.asarray))]
    close(results[1][0], results[0][0], "output")
    assert (results[1][1] is None) == (results[0][1] is None)
    if results[0][1] is not None:
        close(results[1][1], results[0][1], "weights")


@pytest.mark.parametrize("options", [
    {}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 2}, {"weight": unit(7), "ignore_index": 0},
    {"label_smoothing": 0.2, "ignore_index": 1}, {"weight": unit(7), "label_smoothing": 0.1},
    {"weight": unit(7), "reduction": "sum"}, {"label_smoothing": 1.0}])
def test_linear_cross_entropy(options):
    """Against the same of all logits: values, and gradients of x, the weight and the bias; 600 rows are three blocks."""
    arrays = [drawn(600, 6), drawn(7, 6, seed=1), drawn(7, seed=2)]
    target = classes(7, 600)
    found = []
    for library, make in ((torch, torch.tensor), (cotan, cotan.asarray)):
        x, weight, bias = (make(array).requires_grad_() for array in arrays)
        given = {key: make(value) if isinstance(value, np.ndarray) else value for key, value in options.items()}
        F = library.nn.functional
        if library is torch:
            loss = F.cross_entropy(F.linear(x, weight, bias), make(target), **given)
        else:
            loss = F.linear_cross_entropy(x, weight, make(target), linear_bias=bias, **given)
        (loss * make(np.linspace(0.5, 2, 600, dtype="float32")) if loss.shape else loss * 3).sum().backward()
        found.append([loss.detach().numpy(), *(t.grad.numpy() for t in (x, weight, bias))])
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


ATTENTIONS = [  # heads of queries, of keys, queries, keys; how; shapes of other operands, or whole numbers of each text
    (4, 4, 70, 70, {"causal": True}, {}), (4, 2, 70, 70, {"causal": True}, {}), (4, 1, 5, 131, {}, {}),
    (2, 2, 7, 131, {}, {"mask": (7, 131)}), (4, 1, 7, 131, {}, {"mask": (4, 1, 131)}), (4, 2, 7, 131, {}, {"mask": (2, 1, 7, 1)}),
    (2, 2, 150, 150, {"causal": True, "window": 70}, {}), (4, 2, 9, 70, {"softcap": 0.7}, {"mask": (9, 70)}),
    (4, 2, 90, 90, {"causal": True, "window": 3, "softcap": 2.0, "scale": 0.3}, {}),
    (4, 4, 130, 130, {"causal": True}, {"alibi": (4,)}), (4, 2, 9, 70, {}, {"alibi": (4,)}),
    (4, 2, 70, 70, {"causal": True}, {"sinks": (4,)}), (2, 2, 7, 131, {}, {"sinks": (1,), "mask": (7, 131)}),
    (4, 2, 9, 131, {"causal": True}, {"position": [5, 120]}), (4, 4, 9, 131, {}, {"length": [131, 66]}),
    (4, 2, 5, 131, {"causal": True, "window": 40}, {"position": [60, 100], "length": [65, 103], "alibi": (4,), "sinks": (4,)}),
    (4, 2, 9, 131, {}, {"keep": (2, 4, 9, 131)}), (2, 2, 70, 70, {"causal": True}, {"keep": (70, 70)})]


@pytest.mark.parametrize("case", range(len(ATTENTIONS)))
def test_attention_options(case):
    """Against the formula written out: values, and gradients of queries, keys, values and all that floats give."""
    heads, shared, t, s, options, given = ATTENTIONS[case]
    arrays = [drawn(2, heads, t, 8), drawn(2, shared, s, 8, seed=1), drawn(2, shared, s, 6, seed=2)]
    floats = [name for name in ("mask", "keep", "alibi", "sinks") if name in given]
    arrays += [drawn(*given[name], seed=3 + i) * (0.1 if name == "alibi" else 1) for i, name in enumerate(floats)]
    weights = drawn(2, heads, t, 6, seed=9)
    q, k, v, *more = theirs = [torch.tensor(array.astype("float32"), requires_grad=True) for array in arrays]
    more = dict(zip(floats, more))
    place = {name: torch.tensor(given[name])[:, None, None, None] for name in ("position", "length") if name in given}
    k, v = (x.repeat_interleave(heads // shared, dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * options.get("scale", 8 ** -0.5)
    if cap := options.get("softcap"):
        scores = torch.tanh(scores / cap) * cap
    scores = scores + more["mask"] if "mask" in more else scores
    far = torch.arange(t)[:, None] + place.get("position", 0) - torch.arange(s)
    if "alibi" in more:
        scores = scores - more["alibi"][:, None, None] * far.abs()
    hidden = torch.arange(s) >= place.get("length", s)
    if options.get("causal"):
        hidden = hidden | (far < 0) | (far >= options.get("window", 10 ** 6))
    scores = scores.masked_fill(hidden, -float("inf"))
    if "sinks" in more:  # one more score, whose value is nothing
        own = more["sinks"].expand(heads)[:, None, None].expand(2, heads, t, 1)
        p = torch.cat([scores, own], -1).softmax(-1)[..., :-1]
    else:
        p = scores.softmax(-1)
    want = (p * more.get("keep", 1)) @ v
    (want * torch.tensor(weights)).sum().backward()
    ours = [cotan.asarray(array.astype("float32")).requires_grad_() for array in arrays]
    rest = dict(zip(floats, ours[3:])) | {
        name: cotan.asarray(np.array(given[name], np.int32)[:, None]) for name in ("position", "length") if name in given}
    got = cotan.ops.attention(*ours[:3], **rest, **options)
    (got * cotan.asarray(weights)).sum().backward()
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=3e-5)


def test_packed_sequences():
    theirs, ours = pair("LSTM", (6, 5), {"bidirectional": True})
    x, lengths = drawn(4, 3, 6), [2, 4, 3]
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), lengths, enforce_sorted=False)
    own = cotan.nn.utils.rnn.pack_padded_sequence(cotan.asarray(x), lengths, enforce_sorted=False)
    for a, b in zip(own, packed):
        close(a, b, "packed")
    out, (h, c) = theirs(packed)
    own_out, (own_h, own_c) = ours(own)
    close(own_out.data, out.data, "data")
    close(own_h, h, "h")
    close(own_c, c, "c")
    close(cotan.nn.utils.rnn.pad_packed_sequence(own_out)[0], torch.nn.utils.rnn.pad_packed_sequence(out)[0], "padded")


@pytest.mark.parametrize("name, kwargs", [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}), ("Adam", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01}), ("RMSprop", {}), ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.01}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.01}), ("Adadelta", {"weight_decay": 0.01}), ("Adamax", {"weight_decay": 0.01}),
    ("NAdam", {"weight_decay": 0.01}), ("NAdam", {"weight_decay": 0.01, "decoupled_weight_decay": True}), ("RAdam", {"weight_decay": 0.01}),
], ids=lambda value: value if isinstance(value, str) else "-".join(value) or "plain")
def test_optimizer(name, kwargs):
    if not NEWEST and name in ("NAdam", "RAdam"):
        pytest.skip(f"older ones of PyTorch have another {name}")
    start, gradients = drawn(4, 3), [drawn(4, 3, seed=step) for step in range(50)]
    theirs, ours = torch.nn.Parameter(torch.tensor(start)), cotan.nn.Parameter(start)
    a, b = getattr(torch.optim, name)([theirs], **kwargs), getattr(cotan.optim, name)([ours], **kwargs)
    for step, gradient in enumerate(gradients):
        theirs.grad, ours.grad = torch.tensor(gradient), cotan.asarray(gradient)
        a.step()
        b.step()
        if step == 24:  # ours goes on from a file of theirs, and the other way round
            saved = copy.deepcopy(a.state_dict())
            own = b.state_dict()
            options = own["param_groups"][0].keys(), saved["param_groups"][0].keys()
            assert options[0] == options[1] or not NEWEST  # older ones have fewer
            assert {key: tuple(value.shape) for key, value in own["state"].get(0, {}).items() if value is not None} == {
                key: tuple(getattr(value, "shape", ())) for key, value in saved["state"].get(0, {}).items() if value is not None}
            saved["state"] = {key: {name: value.numpy() if hasattr(value, "numpy") else value for name, value in inside.items()}
                              for key, inside in saved["state"].items()}
            b = getattr(cotan.optim, name)([ours], **kwargs)
            b.load_state_dict(saved)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5)


def build(nn, kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.blocks = nn.Linear(3, 4), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)] + [nn.ReLU()])
            self.names = nn.ModuleDict({"a": nn.Dropout(0.5), "b": nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2))})
            self.weights = nn.ParameterList([nn.Parameter(kind(drawn(2, 3))), nn.Parameter(kind(drawn(2)))])
            self.shared = self.first
            self.register_buffer("mean", kind(drawn(2)))
            self.register_buffer("hidden", kind(drawn(2)), persistent=False)

    return Net()


def test_containers_and_state_dicts():
    theirs, ours = build(torch.nn, torch.tensor), build(cotan.nn, cotan.asarray)
    assert repr(ours).replace("cotan.float32", "torch.float32") == repr(theirs) or not NEWEST
    for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [name for name, _ in getattr(ours, method)()] == [name for name, _ in getattr(theirs, method)()], method
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert dict(ours.state_dict()._metadata) == dict(theirs.state_dict()._metadata)
    assert len(list(ours.modules())) == len(list(theirs.modules()))


def test_errors_of_load_state_dict_are_all_told():
    texts = []
    for nn, kind in ((torch.nn, torch.tensor), (cotan.nn, cotan.asarray)):
        net = build(nn, kind)
        state = net.state_dict()
        del state["mean"], state["blocks.1.bias"]
        state["more.weight"] = state["extra"] = kind(drawn(1))
        state["first.weight"] = kind(drawn(2, 2))
        with pytest.raises(RuntimeError) as told:
            net.load_state_dict(state)
        texts.append(str(told.value))
        assert repr(net.load_state_dict({key: value for key, value in state.items() if "first" not in key}, strict=False))
    assert texts[1].replace("cotan.Size", "torch.Size") == texts[0]


def test_copies_and_pickles():
    ours = build(cotan.nn, cotan.asarray)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours.blocks))):
        mine = ours if type(other) is type(ours) else ours.blocks
        for (name, a), (_, b) in zip(mine.named_parameters(), other.named_parameters()):
            assert a is not b and (a.detach().numpy() == b.detach().numpy()).all(), name
            assert type(b) is cotan.nn.Parameter and b.requires_grad
