"""The rarer parts of nn, nn.utils and optim: what they compute, in closed form, and what they refuse.

tests/parity/test_nn_extras.py compares the same parts with PyTorch."""
import copy
import importlib
import pickle
import warnings

import numpy as np
import pytest

import cotan
from cotan import nn
from cotan.nn import functional as F
from cotan.nn.attention import SDPBackend, sdpa_kernel
from cotan.nn.utils import parametrizations, prune
from cotan.optim import lr_scheduler, swa_utils


def near(a, b, tol=1e-5):
    np.testing.assert_allclose(np.asarray(a.tolist() if hasattr(a, "tolist") else a), np.asarray(b), rtol=tol, atol=tol)


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


# ---------------------------------------------------------------------------------------- functions


def test_maxima_with_indices():
    x = cotan.arange(12.0).reshape(1, 1, 3, 4)
    y, index = F.adaptive_max_pool2d(x, (2, 2), return_indices=True)
    assert y.tolist() == [[[[5, 7], [9, 11]]]] and index.tolist() == [[[[5, 7], [9, 11]]]] and index.dtype == cotan.int64
    samples = cotan.zeros(1, 1, 2)
    y, index = F.fractional_max_pool2d(x, 2, output_size=(2, 3), return_indices=True, _random_samples=samples)
    assert y.tolist() == index.tolist() == [[[[5, 6, 7], [9, 10, 11]]]]
    cotan.manual_seed(0)
    drawn = nn.FractionalMaxPool2d(2, output_ratio=0.6)(cotan.asarray(array(2, 3, 8, 8)))
    assert drawn.shape == (2, 3, 4, 4)
    with pytest.raises(ValueError, match="output_ratio must be between 0 and 1"):
        nn.FractionalMaxPool2d(2, output_ratio=1.5)
    with pytest.raises(RuntimeError, match="6 windows of 3 elements do not fit into 4"):
        F.fractional_max_pool2d(cotan.zeros(1, 1, 8, 4), 3, output_size=6)


def test_resampling():
    """A bicubic grid on the elements returns them; a filter of a constant is constant, and of two halves each is a mean."""
    x = cotan.asarray(array(1, 2, 4, 5))
    grid = F.affine_grid(cotan.asarray(np.eye(2, 3, dtype="f")[None]), (1, 2, 4, 5), align_corners=True)
    near(F.grid_sample(x, grid, mode="bicubic", align_corners=True), x.numpy(), 1e-4)
    for mode in ("bilinear", "bicubic"):
        near(F.interpolate(cotan.full((1, 1, 9, 7), 3.0), size=(4, 3), mode=mode, antialias=True), np.full((1, 1, 4, 3), 3.0))
    ramp = F.interpolate(cotan.arange(8.0).reshape(1, 1, 1, 8).expand(1, 1, 4, 8), size=(4, 4), mode="bilinear", antialias=True)
    near(ramp[0, 0, 0, 1:3], [2.5, 4.5])
    spike = F.interpolate(cotan.eye(8)[3].reshape(1, 1, 1, 8).expand(1, 1, 4, 8), size=(4, 4), mode="bilinear", antialias=True)
    near(spike[0, 0, 0, 1:3], [3 / 8, 1 / 8])  # a triangle of width 4
    with pytest.raises(ValueError, match="Anti-alias option is restricted"):
        F.interpolate(cotan.zeros(1, 1, 4), size=2, mode="linear", antialias=True)
    with pytest.raises(RuntimeError, match="bicubic"):
        F.grid_sample(cotan.zeros(1, 1, 2, 2, 2), cotan.zeros(1, 1, 1, 1, 3), mode="bicubic")


def test_distances_and_in_place():
    x = cotan.asarray([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    near(F.pdist(x), [5.0, 1.0, np.sqrt(18)])
    y = cotan.asarray([-2.0, 0.5, 2.0])
    assert F.hardtanh_(y, -1, 1) is y and y.tolist() == [-1, 0.5, 1]
    assert F.leaky_relu_(y, negative_slope=0.5).tolist() == y.tolist() == [-0.5, 0.5, 1] and F.elu_.__name__ == "elu_"


def test_embeddings():
    weight = nn.Parameter(cotan.asarray([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]]))
    F.embedding(cotan.asarray([0, 1]), weight, max_norm=1.0)
    near(weight, [[0.6, 0.8], [0.3, 0.4], [6.0, 8.0]])
    F.embedding(cotan.asarray([1, 1, 0]), weight, scale_grad_by_freq=True).sum().backward()
    assert weight.grad.tolist() == [[1, 1], [1, 1], [0, 0]]


def test_shapes_and_dtypes_beside():
    x1, x2 = array(1, 2, 3), array(2, 1, 3, seed=1)
    a, b = (np.broadcast_to(x, (2, 2, 3)) for x in (x1, x2))
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    near(F.cosine_similarity(cotan.asarray(x1), cotan.asarray(x2), dim=-2), cosine)
    assert F.normalize(cotan.asarray(-4.0), dim=0).item() == -1 and F.cosine_similarity(cotan.asarray(2.0), cotan.asarray(-3.0),
                                                                                        dim=0).item() == -1
    out = cotan.zeros(1, 2)
    assert F.normalize(cotan.asarray([[3.0, 4.0]]), out=out) is out
    near(out, [[0.6, 0.8]])
    x = cotan.tensor([[[5.0, 5.0, 1.0]]], requires_grad=True)
    F.max_unpool1d(x, cotan.asarray([[[1, 1, 0]]]), 1, output_size=(3,)).backward(cotan.asarray([[[2.0, 3.0, 4.0]]]))
    assert x.grad.tolist() == [[[3, 3, 2]]]  # both elements of position 1 have its gradient
    row = cotan.arange(4.0).reshape(1, 1, 4)
    assert F.pad(row, (-3, 2), mode="replicate").tolist() == [[[3, 3, 3]]] and F.pad(row, (-4, 1),
                                                                                     mode="replicate").tolist() == [[[3]]]
    whole = cotan.arange(6).reshape(1, 1, 6)
    assert F.conv1d(whole, cotan.asarray([[[1, -2, 1]]])).tolist() == [[[0, 0, 0, 0]]] and F.hardtanh(whole, 1,
                                                                                                      3).dtype == cotan.int64
    assert F.threshold(whole, 2, -7)[0, 0].tolist() == [-7, -7, -7, 3, 4, 5]
    near(F.tanhshrink(whole)[0, 0, :2], [0.0, 1 - np.tanh(1.0)])
    q, k = cotan.asarray(array(3, 2, 4)), cotan.asarray(array(5, 3, 6, 4, seed=1))
    shared = F.scaled_dot_product_attention(q, k, k)
    near(shared, F.scaled_dot_product_attention(q.expand(5, 3, 2, 4), k, k).numpy())


def test_given_keys():
    """With static keys and values, those that are projected have no effect."""
    q, weight, own = (cotan.asarray(array(*shape, seed=len(shape))) for shape in ((2, 1, 4), (12, 4), (2, 3, 2)))
    bias = cotan.zeros(12)

    def attend(key, static=own):
        return F.multi_head_attention_forward(q, key, key, 4, 2, weight, bias, None, None, False, 0.0, cotan.eye(4), cotan.zeros(4),
                                              need_weights=False, static_k=static, static_v=static)[0]

    near(attend(cotan.zeros(3, 1, 4)), attend(cotan.ones(3, 1, 4)).numpy())
    scores = (q[:, 0] @ weight[:4].mT).reshape(2, 2, 2).transpose(0, 1) @ own.mT / 2 ** 0.5
    near(attend(q), (cotan.softmax(scores, -1) @ own).transpose(0, 1).reshape(2, 1, 4).numpy())


def test_older_reductions():
    a, b = cotan.asarray([1.0, 3.0]), cotan.asarray([0.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert F.mse_loss(a, b, size_average=False).item() == 5 and F.mse_loss(a, b, reduce=False).tolist() == [1, 4]
        assert F.l1_loss(a, b, False).item() == 3 and nn.MSELoss(size_average=False)(a, b).item() == 5
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        F.mse_loss(a, b, size_average=False)
    with pytest.warns(FutureWarning, match="`nn.init.constant` is now deprecated"):
        assert nn.init.constant(cotan.zeros(2), 3.0).tolist() == [3, 3]


# ------------------------------------------------------------------------------------------ modules


def test_paths():
    assert importlib.import_module("cotan.nn.modules.linear").Linear is nn.Linear is nn.modules.Linear
    from cotan.nn.modules.batchnorm import _BatchNorm
    from cotan.nn.modules.conv import _ConvNd, _pair
    from cotan.nn.parallel.distributed import DistributedDataParallel
    from cotan.nn.utils.clip_grad import clip_grad_norm_
    from cotan.optim.adamw import AdamW
    assert isinstance(nn.SyncBatchNorm(2), _BatchNorm) and isinstance(nn.ConvTranspose1d(1, 1, 1), _ConvNd) and _pair(3) == (3, 3)
    assert clip_grad_norm_ is nn.utils.clip_grad_norm_ and AdamW is cotan.optim.AdamW
    assert DistributedDataParallel is nn.parallel.DistributedDataParallel
    assert not issubclass(nn.EmbeddingBag, nn.Embedding) and not issubclass(nn.CELU, nn.ELU)


def test_backward_hooks():
    log, net = [], nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    with cotan.no_grad():
        net[0].weight.copy_(cotan.eye(2))
        net[1].weight.fill_(2.0)
    handles = [net[1].register_full_backward_hook(lambda module, inputs,
                                                  outputs: log.append((inputs[0].tolist(), outputs[0].tolist()))),
               net[1].register_full_backward_pre_hook(lambda module, outputs: (outputs[0] * 3,)),
               net[0].register_full_backward_hook(lambda module, inputs, outputs: log.append((inputs, outputs[0].tolist())))]
    net(cotan.ones(1, 2)).sum().backward()
    assert log == [([[6, 6]], [[3]]), ((None,), [[6, 6]])] and net[0].weight.grad.tolist() == [[6, 6], [6, 6]]
    for handle in handles:
        handle.remove()
    net.zero_grad()
    net(cotan.ones(1, 2)).sum().backward()
    assert len(log) == 2 and net[0].weight.grad.tolist() == [[2, 2], [2, 2]]
    net[0].register_full_backward_hook(lambda module, inputs, outputs: (cotan.ones(1, 2), None))
    with pytest.raises(RuntimeError, match="Backward hook returned an invalid number of grad_input, got 2, but expected 1"):
        net(cotan.ones(1, 2, requires_grad=True)).sum().backward()


def test_hooks_of_all_modules():
    called = []
    register = nn.modules.module.register_module_forward_hook
    with register(lambda module, args, kwargs, output: called.append((type(module).__name__, kwargs)), with_kwargs=True):
        nn.Sequential(nn.Identity())(cotan.ones(1))
    nn.Identity()(cotan.ones(1))
    assert called == [("Identity", {}), ("Sequential", {})]


def test_changed_modules():
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3)))
    net.set_submodule("1.0", nn.Linear(3, 4))
    assert net(cotan.ones(1, 2)).shape == (1, 4) and net.to_empty(device="cpu") is net
    for call, kind, text in ((lambda: net.set_submodule("1.2", nn.ReLU(), strict=True), AttributeError, "has no attribute `2`"),
                             (lambda: net.set_submodule("", nn.ReLU()), ValueError, "without a target name"),
                             (lambda: net.set_submodule("0", 1), ValueError, "`module` is not an nn.Module")):
        with pytest.raises(kind, match=text):
            call()


def test_lazy_modules():
    net = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    assert isinstance(net[0].weight, nn.UninitializedParameter) and sorted(net.state_dict()) == ["0.bias", "0.weight"]
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        net[0].weight.shape
    weight = net[0].weight
    twin = pickle.loads(pickle.dumps(copy.deepcopy(net)))
    assert net(cotan.ones(2, 5)).shape == (2, 3) and net[0].weight is weight and weight.shape == (3, 5)
    assert type(net[0]) is nn.Linear and type(weight) is nn.Parameter and not net[0]._forward_pre_hooks
    twin.load_state_dict(net.state_dict())
    assert twin[0].weight.tolist() == weight.tolist()
    conv = nn.LazyConvTranspose2d(4, 3)
    assert conv(cotan.ones(1, 2, 5, 5)).shape == (1, 4, 7, 7) and type(conv) is nn.ConvTranspose2d
    assert conv.weight.abs().sum().item() > 0 and weight.abs().sum().item() > 0  # drawn, as by a Linear


def test_projected_lstm():
    lstm = nn.LSTM(3, 5, 2, proj_size=2, bidirectional=True)
    y, (h, c) = lstm(cotan.asarray(array(4, 2, 3)))
    assert y.shape == (4, 2, 4) and h.shape == (4, 2, 2) and c.shape == (4, 2, 5) and lstm.weight_hr_l1_reverse.shape == (2, 5)
    packed = nn.utils.rnn.pack_sequence([cotan.ones(3, 3), cotan.ones(2, 3)])
    assert packed.double().data.dtype == cotan.float64 and packed.to("cpu") is packed and not packed.is_cuda


def test_adaptive_softmax():
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6])
    x, targets = cotan.asarray(array(5, 4)), [0, 3, 9, 2, 7]
    logs = layer.log_prob(x)
    near(logs.exp().sum(1), np.ones(5))
    output, loss = layer(x, cotan.asarray(targets))
    near(output, logs.numpy()[np.arange(5), targets])
    near(loss, -output.numpy().mean())
    assert layer.predict(x).tolist() == logs.argmax(1).tolist()
    with pytest.raises(RuntimeError, match="Target values should be in"):
        layer(x, cotan.asarray([0, 3, 10, 2, 7]))


def test_norms_beside():
    """Of four channels of ones, the second sees three neighbours; from the third on the first channel counts as well."""
    empty = nn.BatchNorm1d(3)
    assert empty(cotan.zeros(0, 3, 2)).shape == (0, 3, 2) and empty.running_mean.tolist() == [0] * 3 and empty.num_batches_tracked == 1
    assert nn.PReLU()(cotan.asarray(-2.0)).tolist() == -0.5
    assert F.kl_div(cotan.asarray(-1.0), cotan.asarray(1.0), reduction="batchmean").item() == 1
    near(nn.CrossMapLRN2d(3, alpha=3.0, beta=1.0, k=0.0)(cotan.ones(1, 4, 1, 1))[0, :, 0, 0], [1 / 2, 1 / 3, 1 / 4, 1 / 3])
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval()
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert type(converted[1]) is nn.SyncBatchNorm and converted is net and not converted[1].training
    own = nn.BatchNorm1d(3)
    made = nn.SyncBatchNorm.convert_sync_batchnorm(own)
    assert made.weight is own.weight and made.running_var is own.running_var


def test_wrappers():
    inner = nn.Linear(2, 1)
    wrapped = nn.DataParallel(inner)
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    assert wrapped(cotan.ones(1, 2)).tolist() == inner(cotan.ones(1, 2)).tolist()
    state = wrapped.state_dict()
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    inner.load_state_dict(state)
    with pytest.raises(RuntimeError, match="device_ids names 2 devices, a module runs on one"):
        nn.DataParallel(inner, device_ids=[0, 1])
    parallel = nn.parallel.DistributedDataParallel(inner)
    with parallel.no_sync():
        assert not parallel.require_backward_grad_sync
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        q = cotan.asarray(array(1, 2, 3, 4))
        assert F.scaled_dot_product_attention(q, q, q).shape == (1, 2, 3, 4)


# ------------------------------------------------------------------------------------------ nn.utils


def test_pruning():
    layer = nn.Linear(4, 2, bias=False)
    with cotan.no_grad():
        layer.weight.copy_(cotan.asarray([[1.0, -2.0, 3.0, -4.0], [5.0, 6.0, 7.0, 8.0]]))
    assert prune.l1_unstructured(layer, "weight", 2) is layer and prune.is_pruned(layer)
    assert layer.weight.tolist() == [[0, 0, 3, -4], [5, 6, 7, 8]] and sorted(layer.state_dict()) == ["weight_mask", "weight_orig"]
    prune.l1_unstructured(layer, "weight", 0.5)  # of the six that are left
    assert layer.weight_mask.tolist() == [[0, 0, 0, 0], [0, 1, 1, 1]]
    prune.ln_structured(layer, "weight", 1, n=2, dim=1)
    assert layer.weight_mask.tolist() == [[0, 0, 0, 0], [0, 0, 1, 1]] and isinstance(layer._forward_pre_hooks.popitem()[1],
                                                                                      prune.PruningContainer)
    layer = prune.random_unstructured(nn.Linear(4, 2), "weight", 3)
    assert layer.weight_mask.sum().item() == 5
    layer(cotan.ones(1, 4)).sum().backward()
    assert layer.weight_orig.grad.tolist() == layer.weight_mask.tolist()
    prune.remove(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter) and not prune.is_pruned(layer) and (layer.weight == 0).sum().item() == 3
    for call, kind, text in ((lambda: prune.remove(layer, "weight"), ValueError, "has to be pruned before"),
                             (lambda: prune.l1_unstructured(layer, "weight", 9), ValueError, "amount=9 should be smaller"),
                             (lambda: prune.l1_unstructured(layer, "weight", 1.5), ValueError, "should either be a float in"),
                             (lambda: prune.ln_structured(layer, "bias", 1, 2, 0), ValueError, "multidimensional")):
        with pytest.raises(kind, match=text):
            call()
    assert isinstance(layer.weight, nn.Parameter)  # an error leaves the module as it was


def test_norms_as_hooks():
    layer = nn.Linear(3, 2)
    before = layer.weight.numpy().copy()
    with pytest.warns(FutureWarning, match="weight_norm"):
        nn.utils.weight_norm(layer)
    near(layer.weight_g, np.linalg.norm(before, axis=1, keepdims=True))
    with cotan.no_grad():
        layer.weight_g.mul_(2.0)
    near(layer(cotan.ones(3)), 2 * before.sum(1) + layer.bias.numpy())
    nn.utils.remove_weight_norm(layer)
    near(layer.weight, 2 * before)
    with cotan.no_grad():
        layer.weight.copy_(cotan.asarray([[0.0, 3.0, 0.0], [4.0, 0.0, 0.0]]) * cotan.asarray([[1.0], [0.1]]))
    nn.utils.spectral_norm(layer, n_power_iterations=12)
    layer(cotan.ones(1, 3))
    near(layer.weight, [[0, 1, 0], [0.4 / 3, 0, 0]], 1e-4)
    nn.utils.remove_spectral_norm(layer)
    assert sorted(name for name, _ in layer.named_parameters()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="spectral_norm of 'weight' not found"):
        nn.utils.remove_spectral_norm(layer)


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_orthogonal(orthogonal_map, shape):
    layer = parametrizations.orthogonal(nn.Linear(shape[1], shape[0]), orthogonal_map=orthogonal_map)
    original = layer.parametrizations.weight.original
    with cotan.no_grad():
        original.add_(cotan.asarray(array(*shape) * 3 * (1 - np.eye(*shape, dtype="f"))))  # a reflection's diagonal is its sign
    q = layer.weight.numpy()
    near(q @ q.T if shape[0] < shape[1] else q.T @ q, np.eye(min(shape)), 1e-4)
    layer(cotan.ones(1, shape[1])).sum().backward()
    assert cotan.isfinite(original.grad).all().item() and original.grad.abs().sum().item() > 0
    plain = nn.Linear(shape[1], shape[0])
    if orthogonal_map == "householder":
        before = plain.weight.numpy().copy()
        made = parametrizations.orthogonal(plain, orthogonal_map=orthogonal_map, use_trivialization=False).weight.numpy()
        near(np.triu(made.T @ before if shape[0] >= shape[1] else made @ before.T, 0)[0, 0] > 0, True)
    else:  # the tensor itself is the original
        before = plain.weight.tolist()
        parametrizations.orthogonal(plain, orthogonal_map=orthogonal_map, use_trivialization=False)
        assert plain.parametrizations.weight.original.tolist() == before
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="qr")


def test_fusion_and_skipped_values():
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3))
    net(cotan.asarray(array(4, 2, 5, 5)))
    x = cotan.asarray(array(1, 2, 5, 5, seed=1))
    near(nn.utils.fuse_conv_bn_eval(*net.eval())(x), net(x).numpy())
    cotan.manual_seed(3)
    expected = cotan.rand(2).tolist()
    cotan.manual_seed(3)
    assert nn.utils.skip_init(nn.Linear, 2, 3).weight.shape == (3, 2) and cotan.rand(2).tolist() == expected
    with pytest.raises(RuntimeError, match="must support a 'device' arg"):
        nn.utils.skip_init(nn.ReLU)


# -------------------------------------------------------------------------------------------- optim


def minimize(optimizer, x, steps):
    target = cotan.asarray([1.0, -2.0])

    def closure():
        optimizer.zero_grad()
        loss = ((x - target) ** 2 * cotan.asarray([1.0, 10.0])).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return x.tolist()


@pytest.mark.parametrize("name, options, steps", [
    ("LBFGS", {}, 2), ("LBFGS", {"line_search_fn": "strong_wolfe"}, 2), ("Rprop", {"lr": 0.1}, 60),
    ("ASGD", {"lr": 0.05, "lambd": 0}, 300),
    ("SparseAdam", {"lr": 0.1}, 200), ("Adafactor", {"lr": 0.5}, 300)])
def test_minima(name, options, steps):
    x = nn.Parameter(cotan.asarray([4.0, 3.0]))
    optimizer = getattr(cotan.optim, name)([x], **options)
    near(minimize(optimizer, x, steps), [1.0, -2.0], 0.05)
    state = pickle.loads(pickle.dumps(optimizer.state_dict()))
    again = getattr(cotan.optim, name)([x], **options)
    again.load_state_dict(state)
    near(minimize(again, x, 2), [1.0, -2.0], 0.05)


def test_lbfgs_on_rosenbrock():
    x, calls = nn.Parameter(cotan.asarray([-1.5, 2.0], dtype="float64")), []
    optimizer = cotan.optim.LBFGS([x], line_search_fn="strong_wolfe", max_iter=100)

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == pytest.approx(12.5)
    near(x, [1.0, 1.0])
    assert len(calls) < 80
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        cotan.optim.LBFGS([x], line_search_fn="armijo").step(closure)
    with pytest.raises(ValueError, match="per-parameter options"):
        cotan.optim.LBFGS([{"params": [x]}, {"params": [nn.Parameter(cotan.ones(1))]}])


def test_averaged_descent():
    """The means of ASGD are those of the parameters after the first t0 + 1 steps."""
    x = nn.Parameter(cotan.zeros(1))
    optimizer, values = cotan.optim.ASGD([x], lr=1.0, lambd=0, t0=1), []
    for grad in (1.0, 2.0, 3.0, 4.0):
        x.grad = cotan.full((1,), grad)
        optimizer.step()
        values.append(x.item())
    assert values == [-1, -3, -6, -10]
    near(optimizer.state[x]["ax"], [np.mean(values[2:])])


def test_rows_without_gradients_stay():
    weight = nn.Parameter(cotan.ones(3, 2))
    optimizer = cotan.optim.SparseAdam([weight], lr=0.5)
    for row in (0, 1):
        optimizer.zero_grad()
        F.embedding(cotan.asarray([row]), weight).sum().backward()
        optimizer.step()
    first, second, third = weight.tolist()
    near(first, [0.5, 0.5], 1e-4)
    assert second[0] < 1 and third == [1, 1]


def test_hooks_of_optimizers():
    log = []
    optimizer = cotan.optim.SGD([nn.Parameter(cotan.ones(1))], lr=1.0)
    optimizer.register_state_dict_pre_hook(lambda o: log.append("before state"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: log.append(sorted(state)))
    optimizer.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    optimizer.load_state_dict(optimizer.state_dict())
    assert log == ["before state", ["more", "param_groups", "state"], "loaded"]

    class Halved(cotan.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    halved = Halved([nn.Parameter(cotan.ones(1))], lr=1.0)
    halved.register_step_post_hook(lambda o, args, kwargs: log.append("own"))
    with cotan.optim.optimizer.register_optimizer_step_pre_hook(lambda o, args, kwargs: log.append("all")):
        halved.step()
    halved.step()
    assert log[3:] == ["all", "own", "own"]
    schedule = lr_scheduler.StepLR(halved, 1)
    halved.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a step of a subclass counts as one
        schedule.step()
    for options, kind in (({"foreach": True, "fused": True}, RuntimeError), ({"differentiable": True}, NotImplementedError)):
        with pytest.raises(kind):
            cotan.optim.Adam([nn.Parameter(cotan.ones(1))], **options)


def test_averages():
    net = nn.Linear(1, 1, bias=False)
    mean, moving = swa_utils.AveragedModel(net), swa_utils.AveragedModel(net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5))
    for value in (1.0, 3.0, 8.0):
        with cotan.no_grad():
            net.weight.fill_(value)
        mean.update_parameters(net)
        moving.update_parameters(net)
    near(mean.module.weight, [[4.0]])
    near(moving.module.weight, [[5.0]])
    assert sorted(mean.state_dict()) == ["module.weight", "n_averaged"] and mean.n_averaged.item() == 3
    norm = nn.BatchNorm1d(2)
    swa_utils.update_bn([cotan.asarray([[1.0, 2.0], [3.0, 2.0]]), cotan.asarray([[5.0, 0.0], [7.0, 0.0]])], norm)
    near(norm.running_mean, [4.0, 1.0])
    assert norm.momentum == 0.1
    optimizer = cotan.optim.SGD([nn.Parameter(cotan.ones(1))], lr=1.0)
    schedule, rates = swa_utils.SWALR(optimizer, 0.2, anneal_epochs=4, anneal_strategy="linear"), []
    for _ in range(6):
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    near(rates, [0.8, 0.6, 0.4, 0.2, 0.2, 0.2])


def test_rates_of_a_step():
    """step(epoch) sets the rate of that step, whatever the steps before."""
    optimizer = cotan.optim.SGD([nn.Parameter(cotan.ones(1))], lr=1.0)
    schedule = lr_scheduler.StepLR(optimizer, 2, 0.1)
    optimizer.step()
    with pytest.warns(UserWarning, match="The epoch parameter"):
        schedule.step(5)
    near(schedule.get_last_lr(), [0.01])
    assert lr_scheduler.ReduceLROnPlateau(optimizer).in_cooldown is False
