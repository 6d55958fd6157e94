"""Autocasting and loss scaling in Python; tests/parity/test_amp.py compares them with PyTorch's."""
import threading

import cotan
import pytest
from cotan import amp

F = cotan.nn.functional


def dtypes(x):
    return repr((x @ x).dtype), repr(cotan.exp(x @ x).dtype)


def test_blocks_nest_and_are_the_thread_s():
    x, seen = cotan.ones(3, 3), []
    with cotan.autocast("cpu"):
        assert dtypes(x) == ("cotan.bfloat16", "cotan.float32") and cotan.is_autocast_enabled()
        with cotan.autocast("cpu", dtype=cotan.float16):
            assert dtypes(x)[0] == "cotan.float16" and cotan.get_autocast_dtype("cpu") == cotan.float16
            with pytest.raises(ZeroDivisionError), cotan.autocast("cpu", enabled=False):
                assert dtypes(x)[0] == "cotan.float32"
                1 / 0
        assert dtypes(x)[0] == "cotan.bfloat16"
        other = threading.Thread(target=lambda: seen.append(dtypes(cotan.ones(2, 2))[0]))
        other.start()
        other.join()
    assert seen == ["cotan.float32"] and dtypes(x)[0] == "cotan.float32" and not cotan.is_autocast_enabled()


def test_a_decorator_and_compiled_functions():
    @cotan.amp.autocast("cpu")
    def product(x):
        return x @ x

    double = cotan.compile(lambda x: x @ x)
    x = cotan.ones(3, 3)
    assert product(x).dtype == cotan.bfloat16 and double(x).dtype == cotan.float32
    with cotan.autocast("cpu"):
        assert double(x).dtype == cotan.bfloat16
    assert double(x).dtype == cotan.float32


def test_gradients_of_float32_weights_are_float32():
    model = cotan.nn.Sequential(cotan.nn.Conv2d(1, 4, 3), cotan.nn.BatchNorm2d(4), cotan.nn.ReLU(), cotan.nn.Flatten(),
                                cotan.nn.Linear(4 * 36, 3))
    with cotan.autocast("cpu"):
        y = model(cotan.ones(2, 1, 8, 8))
        loss = F.cross_entropy(y, cotan.tensor([0, 2]))
    loss.backward()
    assert y.dtype == cotan.bfloat16 and loss.dtype == cotan.float32
    assert all(p.grad.dtype == cotan.float32 for p in model.parameters())


def test_what_cannot_be_cast_to():
    with pytest.warns(UserWarning, match="In CPU autocast, but the target dtype is not supported. Disabling autocast."):
        assert not cotan.autocast("cpu", dtype=cotan.int32)._enabled
    with pytest.warns(UserWarning, match="User provided device_type of 'cuda', but CUDA is not available. Disabling"):
        assert not cotan.autocast("cuda")._enabled
    with pytest.raises(RuntimeError, match="User specified an unsupported autocast device_type 'abacus'"):
        cotan.autocast("abacus")


def test_custom_functions_get_their_dtype():
    class Product(cotan.autograd.Function):
        @staticmethod
        @cotan.amp.custom_fwd(device_type="cpu", cast_inputs=cotan.float32)
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            assert x.dtype == cotan.float32
            return x @ w

        @staticmethod
        @cotan.amp.custom_bwd(device_type="cpu")
        def backward(ctx, slope):
            x, w = ctx.saved_tensors
            return slope @ w.T, x.T @ slope

    w = cotan.nn.Parameter(cotan.ones(2, 2))
    with cotan.autocast("cpu"):
        y = Product.apply(cotan.ones(2, 2, dtype=cotan.bfloat16), w)
    assert y.dtype == cotan.float32
    y.sum().backward()
    assert w.grad.tolist() == [[2, 2], [2, 2]] and w.grad.dtype == cotan.float32


def test_an_overflowing_batch_is_left_out():
    """A huge batch among good ones: the scale is halved, the weights stay, training goes on."""
    cotan.manual_seed(3)
    model = cotan.nn.Linear(4, 1)
    optimizer, scaler = cotan.optim.Adam(model.parameters(), lr=0.05), cotan.amp.GradScaler(init_scale=1024.0)
    x, losses = cotan.randn(16, 4), []
    y = x.sum(1, keepdim=True)
    for step in range(60):
        optimizer.zero_grad()
        before, scale = model.weight.tolist(), scaler.get_scale()
        with cotan.autocast("cpu", dtype=cotan.float16):
            loss = F.mse_loss(model(x * 1e5 if step == 30 else x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step == 30:
            assert scaler.get_scale() == scale / 2 and model.weight.tolist() == before
        else:
            assert scaler.get_scale() == scale and model.weight.tolist() != before
            losses.append(loss.item())
    assert losses[-1] < losses[0] / 10 and scaler.state_dict()["_growth_tracker"] == 29


def test_policies():
    """jmp's texts, defaults and casts."""
    texts = {"c=bf16": "p=f32,c=bf16,o=bf16", "p=f16": "p=f16,c=f16,o=f16", "half": "p=f16,c=f16,o=f16",
             "params=float32,compute=float16,output=float32": "p=f32,c=f16,o=f32", "full": "p=f32,c=f32,o=f32"}
    for text, whole in texts.items():
        assert str(amp.get_policy(text)) == whole and amp.get_policy(whole) == amp.get_policy(text)
    policy = amp.get_policy("c=bf16").with_output_dtype(cotan.float32)
    tree = policy.cast_to_compute({"w": cotan.ones(2, 2), "i": cotan.arange(3), "n": 3})
    assert tree["w"].dtype == cotan.bfloat16 and not tree["i"].dtype.is_floating_point and tree["n"] == 3
    assert policy.cast_to_output(tree)["w"].dtype == policy.cast_to_param(tree)["w"].dtype == cotan.float32
    w = cotan.ones(2, 2, requires_grad=True)
    with policy.autocast():
        out = w @ w
    out.float().sum().backward()
    assert out.dtype == cotan.bfloat16 and w.grad.dtype == cotan.float32
    for text, message in (("q=f32", "get_policy: 'q' is none of params, compute and output"),
                          ("c=int8", "get_policy: 'int8' is no floating-point dtype, as float32 or bf16 is"),
                          ("f3", "get_policy: 'f3' is no floating-point dtype, as float32 or bf16 is")):
        with pytest.raises(ValueError) as error:
            amp.get_policy(text)
        assert str(error.value) == message


def test_a_generator_runs_inside_of_autocast():
    @cotan.autocast("cpu", dtype=cotan.bfloat16)
    def steps():
        yield (cotan.ones(2, 2) @ cotan.ones(2, 2)).dtype
        yield (cotan.ones(2, 2) @ cotan.ones(2, 2)).dtype

    assert [(one, (cotan.ones(2, 2) @ cotan.ones(2, 2)).dtype) for one in steps()] == [(cotan.bfloat16, cotan.float32)] * 2
