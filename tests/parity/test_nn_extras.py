"""The rarer parts of nn, nn.functional, nn.utils and optim beside PyTorch's, on the same numbers: values and gradients."""
import importlib
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
cotan = pytest.importorskip("cotan")
BOTH = (torch, cotan)
needs_2 = pytest.mark.skipif(int(torch.__version__.partition(".")[0]) < 2, reason="PyTorch before 2 does not have it")
pytestmark = pytest.mark.filterwarnings("ignore")


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def part(library, name):
    return importlib.import_module(f"{library.__name__}.{name}")


def is_tensor(x):
    return hasattr(x, "requires_grad")


def flatten(value):
    return [x for one in value for x in flatten(one)] if isinstance(value, (list, tuple)) else [value]


def found(library, function, arrays):
    """Returns function's results and the gradients of its operands, as arrays."""
    operands = [library.tensor(a) for a in arrays]
    for x in operands:
        if x.dtype.is_floating_point:
            x.requires_grad_()
    results = flatten(function(library, *operands))
    total = None
    for y in results:
        if is_tensor(y) and y.requires_grad:
            cotangent = library.tensor(np.cos(np.arange(y.numel())).reshape(tuple(y.shape)).astype("float32"))
            total = (y * cotangent).sum() + (0 if total is None else total)
    if total is not None:
        total.backward()
    values = [np.array(y.detach().tolist()) if is_tensor(y) else y for y in results]
    return values + [np.zeros(a.shape) if x.grad is None else np.array(x.grad.tolist()) for a, x in zip(arrays, operands)]


def compare(function, *arrays, tol=2e-4):
    theirs, ours = (found(library, function, arrays) for library in BOTH)
    assert len(ours) == len(theirs)
    for a, b in zip(theirs, ours):
        if not isinstance(a, np.ndarray):
            assert a == b
            continue
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=tol, atol=tol * max(np.abs(a).max(initial=0), 1e-2))


def with_weights(make):
    """Returns a function that makes the module with weights that depend on their shapes only."""
    def made(library):
        module, numbers = make(library), itertools.count(1)
        with library.no_grad():
            for parameter in module.parameters():
                parameter.copy_(library.tensor(drawn(next(numbers), *parameter.shape) * 0.4))
        return module

    return made


def run_module(make, *arrays, call=lambda library, module, *operands: module(*operands), tol=2e-4):
    """Compares a module's results, and the gradients of its operands and parameters."""
    made = with_weights(make)

    def function(library, *operands):
        module = made(library)
        results = flatten(call(library, module, *operands))
        leaves = [p for p in module.parameters() if p.requires_grad]
        differentiable = [y for y in results if is_tensor(y) and y.requires_grad]
        if differentiable:
            loss = sum((y * y).sum() for y in differentiable)
            grads = library.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
            results += [grad if grad is not None else library.zeros(tuple(leaf.shape)) for grad, leaf in zip(grads, leaves)]
        return [y.detach() if is_tensor(y) and i >= len(results) - len(leaves) else y for i, y in enumerate(results)]

    compare(function, *arrays, tol=tol)


# ---------------------------------------------------------------------------------------- functions

IMAGE, GRID = drawn(0, 2, 3, 7, 6), drawn(1, 2, 4, 3, 2) * 0.8


@pytest.mark.parametrize("n, size", [(1, 3), (2, (3, 4)), (2, (None, 2)), (3, 2)])
@pytest.mark.parametrize("batch", [(2, 3), (3,)])
def test_adaptive_max_pool_with_indices(n, size, batch):
    compare(lambda l, x: getattr(l.nn.functional, f"adaptive_max_pool{n}d")(x, size, return_indices=True),
            drawn(n, *batch, *(7, 5, 6)[:n]))


@pytest.mark.parametrize("n, option", [(2, {"output_size": (3, 4)}), (3, {"output_size": (3, 4, 2)}),
                                       (2, {"output_ratio": (0.5, 0.6)})])
def test_fractional_max_pool(n, option):
    samples = np.random.default_rng(5).random((2, 3, n)).astype("float32")
    compare(lambda l, x: getattr(l.nn.functional, f"fractional_max_pool{n}d")(
        x, 2, **option, return_indices=True, _random_samples=l.tensor(samples)), drawn(n, 2, 3, *(9, 8, 7)[:n]))


@pytest.mark.parametrize("padding, align", [*itertools.product(("zeros", "border", "reflection"), (False, True))])
def test_grid_sample_bicubic(padding, align):
    compare(lambda l, x, g: l.nn.functional.grid_sample(x, g, mode="bicubic", padding_mode=padding, align_corners=align), IMAGE,
            GRID)


@pytest.mark.parametrize("mode, align, size", [*itertools.product(("bilinear", "bicubic"), (False, True), ((3, 4), (13, 4)))])
def test_antialias(mode, align, size):
    compare(lambda l, x: l.nn.functional.interpolate(x, size=size, mode=mode, align_corners=align, antialias=True), IMAGE)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_pdist(p):
    compare(lambda l, x: l.nn.functional.pdist(x, p), drawn(7, 5, 3))


def test_names_beside():
    for name in "celu_ elu_ hardtanh_ leaky_relu_ selu_ relu_".split():
        compare(lambda l, x: (lambda y: [getattr(l.nn.functional, name)(y), y])(x * 1.5), drawn(2, 3, 4))
    compare(lambda l, x: l.nn.functional.threshold_(x * 1, 0.1, 2.0), drawn(2, 3, 4))
    compare(lambda l, x, w, b: l.nn.functional.conv_tbc(x, w, b, 1), drawn(1, 5, 2, 3), drawn(2, 3, 3, 4), drawn(3, 4))
    compare(lambda l, x: l.nn.functional.upsample_nearest(x, scale_factor=2), drawn(1, 2, 4, 3))
    compare(lambda l, x: l.nn.functional.upsample_bilinear(x, scale_factor=2), IMAGE)
    compare(lambda l, x: l.nn.functional.max_pool2d_with_indices(x, 2), IMAGE)


def test_shapes_beside():
    compare(lambda l, a, b: l.nn.functional.cosine_similarity(a, b, dim=-2), drawn(1, 1, 2, 3), drawn(2, 2, 1, 3))
    places = np.array([[[[0, 0], [5, 7]]]])
    compare(lambda l, x: l.nn.functional.max_unpool2d(x, l.tensor(places), 2), np.array([[[[2.0, 2.0], [1.0, 3.0]]]], "float32"))
    for pads in ((-3, 2), (-6, 1, 0, 0), (2, -4)):
        compare(lambda l, x: l.nn.functional.pad(x, pads, mode="replicate"), IMAGE if len(pads) == 4 else IMAGE[0])


@needs_2
def test_attention_beside():
    def static(library, q, k, own):
        return library.nn.functional.multi_head_attention_forward(
            q, k, k, 6, 2, library.tensor(drawn(1, 18, 6)), library.tensor(drawn(2, 18)), None, None, False, 0.0,
            library.tensor(drawn(3, 6, 6)), library.tensor(drawn(4, 6)), static_k=own, static_v=own)

    compare(static, drawn(5, 4, 2, 6), drawn(6, 5, 2, 6), drawn(7, 4, 5, 3))
    compare(lambda l, q, k: l.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True), drawn(1, 4, 3, 8),
            drawn(2, 2, 4, 6, 8))


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"max_norm": 1.0, "norm_type": 1.0}, {"scale_grad_by_freq": True},
                                     {"scale_grad_by_freq": True, "padding_idx": 2}])
def test_embedding(options):
    index = np.array([[0, 2, 2], [4, 0, 1]])

    def function(library, name, **more):
        weight = library.nn.Parameter(library.tensor(drawn(3, 5, 3)))
        y = getattr(library.nn.functional, name)(library.tensor(index), weight, **options, **more)
        (y * y).sum().backward()
        return y.detach(), weight.detach(), weight.grad

    compare(lambda l: function(l, "embedding"))
    if "max_norm" in options:  # PyTorch's gradient of bags by frequency is that of other rows
        for mode in ("sum", "mean", "max"):
            compare(lambda l: function(l, "embedding_bag", mode=mode))


@pytest.mark.parametrize("options", [{"size_average": False}, {"reduce": False}, {"size_average": True, "reduce": True}])
def test_size_average(options):
    a, b = drawn(1, 4, 3), drawn(2, 4, 3)
    compare(lambda l, x: l.nn.functional.mse_loss(x, l.tensor(b), **options), a)
    compare(lambda l, x: l.nn.L1Loss(**options)(x, l.tensor(b)), a)
    compare(lambda l, x: l.nn.functional.cross_entropy(x, l.tensor([0, 2, 1, 1]), **options), a)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_of_convolutions(n):
    x, w, options = drawn(1, 2, 4, *(6, 5, 4)[:n]), drawn(2, 6, 2, *(3, 2, 2)[:n]), {"stride": 2, "padding": 1, "groups": 2}
    g = getattr(torch.nn.functional, f"conv{n}d")(torch.tensor(x), torch.tensor(w), **options).numpy()
    compare(lambda l: getattr(part(l, "nn.grad"), f"conv{n}d_input")(x.shape, l.tensor(w), l.tensor(g), **options))
    compare(lambda l: getattr(part(l, "nn.grad"), f"conv{n}d_weight")(l.tensor(x), w.shape, l.tensor(g), **options))


# ------------------------------------------------------------------------------------------ modules

SEQUENCE, ROWS = drawn(4, 5, 3, 4), drawn(5, 6, 8)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}, {"batch_first": True}])
def test_projections(options):
    run_module(lambda l: l.nn.LSTM(4, 6, proj_size=2, **options), SEQUENCE)
    ours, theirs = (list(library.nn.LSTM(4, 6, proj_size=2, **options).state_dict()) for library in (cotan, torch))
    assert ours == theirs


def test_packed_sequences():
    def call(library, module, x):
        rnn = library.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, [2, 5, 3], enforce_sorted=False)
        y, state = module(packed.to(library.float32))
        return [*rnn.pad_packed_sequence(y), state]

    run_module(lambda l: l.nn.LSTM(4, 6, bidirectional=True), SEQUENCE, call=call)
    run_module(lambda l: l.nn.GRU(4, 6, num_layers=2), SEQUENCE, call=call)


def test_adaptive_softmax():
    targets = np.array([0, 5, 9, 3, 19, 11])
    run_module(lambda l: l.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, head_bias=True), ROWS,
               call=lambda l, m, x: [*m(x, l.tensor(targets)), m.log_prob(x), m.predict(x * 5)])
    run_module(lambda l: l.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10]), ROWS[0], call=lambda l, m, x: [*m(x, l.tensor(15))])


@pytest.mark.parametrize("size", [3, 4, 5])
def test_cross_map_norm(size):
    x = drawn(6, 2, 7, 4, 4)  # without gradients: PyTorch's are not those of its values
    compare(lambda l: l.nn.CrossMapLRN2d(size, 0.1, 0.6, 1.5)(l.tensor(x)))


@needs_2
def test_converted_batch_norms():
    run_module(lambda l: l.nn.SyncBatchNorm.convert_sync_batchnorm(l.nn.Sequential(
        l.nn.Conv2d(3, 4, 1), l.nn.Sequential(l.nn.BatchNorm2d(4)))), IMAGE, call=lambda l, m,
        x: [m.eval()(x), type(m[1][0]).__name__])


def test_lazy_modules():
    def made(library):
        nn = library.nn
        net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
        assert repr(net[3]) == "LazyLinear(in_features=0, out_features=2, bias=True)"
        net(library.zeros(2, 3, 7, 6))
        assert [type(one).__name__ for one in net] == ["Conv2d", "BatchNorm2d", "Flatten", "Linear"]
        return net

    run_module(made, IMAGE)


@needs_2
def test_backward_hooks():
    def function(library, x):
        log, nn = [], library.nn
        net = with_weights(lambda l: l.nn.Sequential(l.nn.Linear(8, 3), l.nn.Tanh(), l.nn.Linear(3, 1)))(library)
        net[0].register_full_backward_hook(lambda module, inputs, outputs: log.extend([*inputs, *outputs]))
        net[2].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
        net[2].register_full_backward_pre_hook(lambda module, outputs: (outputs[0] * 3,))
        handle = nn.modules.module.register_module_full_backward_hook(lambda module, inputs,
                                                                      outputs: log.append(type(module).__name__))
        (net(x) ** 2).sum().backward()
        handle.remove()
        return [one.detach() if is_tensor(one) else one for one in log] + [p.grad for p in net.parameters()] + [x.grad.clone()]

    compare(function, ROWS)


# ------------------------------------------------------------------------------------------ nn.utils

MATRIX = drawn(8, 5, 8)


def linear(library):
    return library.nn.Linear(8, 5)


def test_pruning():
    def call(library, module, x):
        prune, results = part(library, "nn.utils.prune"), []
        prune.l1_unstructured(module, "weight", 9)
        results.append(module.weight_mask)
        prune.ln_structured(module, "weight", 2, n=2, dim=0)
        prune.l1_unstructured(module, "weight", 0.5)
        prune.custom_from_mask(module, "bias", library.tensor([1.0, 0, 1, 1, 0]))
        results += [module.weight_mask, module(x), sorted(module.state_dict()), prune.is_pruned(module)]
        return results

    run_module(linear, ROWS, call=call)

    def globally(library, module, x):
        prune = part(library, "nn.utils.prune")
        for amount in (0.4, 7):
            prune.global_unstructured([(module[0], "weight"), (module[1], "weight")], prune.L1Unstructured, amount=amount)
        y = module(x).detach()
        prune.remove(module[0], "weight")
        return [y, module(x), "weight" in dict(module[0].named_parameters()), prune.is_pruned(module[0])]

    run_module(lambda l: l.nn.Sequential(l.nn.Linear(8, 5), l.nn.Linear(5, 3)), ROWS, call=globally)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    def call(library, module, x):
        library.nn.utils.weight_norm(module, dim=dim)
        with library.no_grad():
            module.weight_v.mul_(2.0)
            module.weight_g.add_(1.0)
        y, names = module(x), sorted(module.state_dict())
        y.sum().backward()
        grads = [module.weight_g.grad.clone(), module.weight_v.grad.clone()]
        library.nn.utils.remove_weight_norm(module)
        return [names, *grads, module(x)]

    run_module(linear, ROWS, call=call)


def test_spectral_norm():
    def call(library, module, x):
        library.nn.utils.spectral_norm(module, n_power_iterations=2)
        with library.no_grad():
            module.weight_u.copy_(library.tensor(np.ones(5, "f") / 5 ** 0.5))
            module.weight_v.copy_(library.tensor(np.ones(8, "f") / 8 ** 0.5))
        results = [module(x).detach(), module.weight_u.clone(), sorted(module.state_dict())]
        module.eval()
        results.append(module(x))
        return results

    run_module(linear, ROWS, call=call)


@pytest.mark.parametrize("orthogonal_map, shape, trivialize", [
    *itertools.product(("matrix_exp", "cayley", "householder"), ((4, 4), (6, 4), (4, 6)), (True,)),
    *itertools.product(("householder",), ((4, 4), (6, 4), (4, 6)), (False,))])
def test_orthogonal(orthogonal_map, shape, trivialize):
    base = np.linalg.qr(drawn(9, max(shape), min(shape)))[0]
    base = base if shape[0] >= shape[1] else base.T.copy()

    def function(library):
        module = library.nn.Linear(shape[1], shape[0], bias=False)
        with library.no_grad():
            module.weight.copy_(library.tensor(base))
        part(library, "nn.utils.parametrizations").orthogonal(module, orthogonal_map=orthogonal_map, use_trivialization=trivialize)
        parametrization = module.parametrizations.weight
        if trivialize and shape[0] != shape[1]:  # the rest of the base is drawn
            parametrization[0].base = library.tensor(np.linalg.qr(drawn(10, max(shape), max(shape)))[0])
        with library.no_grad():
            parametrization.original.add_(library.tensor(0.3 * drawn(11, *shape)))
        y = module(library.ones(2, shape[1]))
        (y * library.tensor(drawn(12, 2, shape[0]))).sum().backward()
        return [module.weight.detach(), y.detach(), parametrization.original.grad]

    compare(function)


def test_fusion():
    def call(fuse, *more):
        def function(library, module, x):
            module.eval()[1].running_mean.fill_(0.3)
            module[1].running_var.fill_(2.0)
            return getattr(part(library, "nn.utils.fusion"), fuse)(module[0], module[1], *more)(x)
        return function

    run_module(lambda l: l.nn.Sequential(l.nn.Conv2d(3, 4, 2, bias=False), l.nn.BatchNorm2d(4)), IMAGE,
               call=call("fuse_conv_bn_eval"))
    run_module(lambda l: l.nn.Sequential(l.nn.ConvTranspose2d(3, 4, 2), l.nn.BatchNorm2d(4)), IMAGE,
               call=call("fuse_conv_bn_eval", True))
    run_module(lambda l: l.nn.Sequential(l.nn.Linear(8, 4), l.nn.BatchNorm1d(4)), ROWS, call=call("fuse_linear_bn_eval"))


# -------------------------------------------------------------------------------------------- optim


def trained(library, make, steps, sparse):
    weight, bias, x, y = (library.tensor(a.astype("float64")) for a in (drawn(1, 4, 3), drawn(2, 3), drawn(3, 8, 4),
                                                                        drawn(4, 8, 3)))
    weight, bias = library.nn.Parameter(weight), library.nn.Parameter(bias)
    optimizer, losses = make(library, [weight] if sparse else [weight, bias]), []
    for i in range(steps):
        def closure():
            optimizer.zero_grad()
            if sparse:
                rows = library.nn.functional.embedding(library.tensor([i % 4, 2 * i % 4]), weight, sparse=library is torch)
                loss = (rows ** 2).sum()
            else:
                loss = ((x @ weight + bias).tanh() - y).pow(2).mean() + (weight ** 4).sum() * 0.01
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure)))
    state = optimizer.state_dict()
    names = sorted({name for inside in state["state"].values() for name in inside} - {"al"})
    return [np.array(losses), weight.detach(), bias.detach(), names, sorted(set(state["param_groups"][0]) - {"foreach",
                                                                                                             "differentiable",
                                                                                                             "capturable",
                                                                                                             "maximize"})]


@pytest.mark.parametrize("name, options", [
    ("ASGD", {"lr": 0.1, "t0": 3, "lambd": 0.01}), ("ASGD", {"weight_decay": 0.1, "maximize": True}), ("Rprop", {}),
    ("Rprop", {"lr": 0.5, "etas": (0.4, 1.5), "step_sizes": (0.01, 0.3)}), ("SparseAdam", {"lr": 0.1}), ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1, "eps": (1e-8, 1e-2), "d": 1.5}), ("LBFGS", {"max_iter": 8}),
    ("LBFGS", {"line_search_fn": "strong_wolfe"}), ("LBFGS", {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 6}),
    ("LBFGS", {"lr": 0.3, "history_size": 2, "max_iter": 5})])
def test_optimizers(name, options):
    if not hasattr(torch.optim, name):
        pytest.skip(f"this PyTorch has no {name}")
    compare(lambda l: trained(l, lambda l, params: getattr(l.optim, name)(params, **options), 6, name == "SparseAdam"), tol=1e-6)


@needs_2
@pytest.mark.parametrize("which", ["mean", "swa", "ema", "ema_multi", "buffers"])
def test_averaged_models(which):
    def function(library):
        swa, nn = part(library, "optim.swa_utils"), library.nn
        options = {"mean": {}, "swa": {"multi_avg_fn": swa.get_swa_multi_avg_fn()}, "ema": {"avg_fn": swa.get_ema_avg_fn(0.9)},
                   "ema_multi": {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.9)}, "buffers": {"use_buffers": True}}[which]
        net = with_weights(lambda l: nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3)))(library)
        average, x = swa.AveragedModel(net, **options), library.tensor(ROWS)
        for i in range(4):
            net(x * (i + 1))
            with library.no_grad():
                net[0].weight.mul_(1.1)
            average.update_parameters(net)
        results = [average.module[0].weight.detach(), average.module[1].running_mean.clone(), sorted(average.state_dict())]
        swa.update_bn([x, x * 2], average)
        return [*results, average.module[1].running_mean, average.module[1].running_var, int(average.n_averaged)]

    compare(function)


def test_rates():
    def function(library):
        schedules, rates = part(library, "optim.lr_scheduler"), []
        swa = part(library, "optim.swa_utils").SWALR
        for make in (lambda o: schedules.StepLR(o, 3), lambda o: schedules.MultiStepLR(o, [2, 5]), schedules.ConstantLR,
                     schedules.LinearLR,
                     lambda o: schedules.ExponentialLR(o, 0.9), lambda o: schedules.PolynomialLR(o, 6, 2.0),
                     lambda o: schedules.CosineAnnealingLR(o, 6, 0.01), lambda o: schedules.LambdaLR(o, lambda e: 0.5 ** e)):
            optimizer = library.optim.SGD([library.nn.Parameter(library.zeros(1))], lr=0.5)
            schedule = make(optimizer)
            for epoch in (4, 1, 7):
                optimizer.step()
                schedule.step(epoch)
                rates.append(schedule.get_last_lr()[0])
        for strategy, epochs in itertools.product(("cos", "linear"), (0, 5)):
            optimizer = library.optim.SGD([library.nn.Parameter(library.zeros(1))], lr=0.5)
            schedule = swa(optimizer, 0.05, anneal_epochs=epochs, anneal_strategy=strategy)
            for _ in range(8):
                optimizer.step()
                schedule.step()
                rates.append(schedule.get_last_lr()[0])
        return np.array(rates)

    compare(lambda l: l.tensor(function(l)))


@needs_2
def test_paths_and_bases():
    """The classes by their paths, and which of them is a subclass of which."""
    names = [name for name in dir(torch.nn) if isinstance(getattr(torch.nn, name), type) and not name.startswith("Lazy")]
    kinds = [(getattr(torch.nn, name), getattr(cotan.nn, name)) for name in names]
    wrong = [(a.__name__, b.__name__) for a, ours in kinds for b, base in kinds if issubclass(a, b) != issubclass(ours, base)
             and not a.__name__.startswith("ZeroPad")]
    assert wrong == []
    for theirs, ours in kinds:
        if theirs.__module__.startswith("torch.nn.modules."):
            assert getattr(part(cotan, theirs.__module__[6:]), theirs.__name__) is ours
