"""Tensors and modules on several devices: cpu:1 and async:cpu compute as cpu does, ref has bits of its own, opencl is PoCL's."""
import numpy as np
import pytest

import cotan
from cotan import nn

KNOWN = "known are cpu, ref, opencl (or opencl:1), and async: or dry: before them"
GPU_HINT = '\n  hint: programs for GPUs run on "cpu", or by OpenCL on "opencl"'
OTHERS = ["cpu:1", "async:cpu", "ref", "opencl"]


def numbers(*shape):
    return cotan.asarray(((np.arange(np.prod(shape)) * 37 + 11) % 19 - 9).reshape(shape).astype(np.float32) / 8)


def learned(device=None, moves_at=0, steps=4):
    """A network whose second half lies, or comes after some steps, on another device: its losses and weights."""
    cotan.manual_seed(3)
    first, second, drop = nn.Linear(5, 8), nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3)), nn.Dropout(0.3)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer, losses = cotan.optim.AdamW(parameters, lr=1e-2), []
    x, y = numbers(4, 5), cotan.asarray([0, 1, 2, 1])
    for step in range(steps):
        if device and step == moves_at:
            assert second.to(device) is second
        there = second[1].weight.device
        loss = nn.functional.cross_entropy(second(drop(cotan.relu(first(x)).to(there))), y.to(there))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if device:
        assert {p.device for p in second.parameters()} == {device} and second[0].running_mean.device == device
        assert {value.device for p in second.parameters() for value in optimizer.state[p].values()
                if isinstance(value, cotan.Tensor)} == {device}
        assert all(p.grad.device == p.device for p in parameters)
    assert [*first.parameters(), *second.parameters()] == parameters  # the same objects
    return losses, [p.detach().numpy() for p in parameters]


@pytest.mark.parametrize("moves_at", [0, 2])
@pytest.mark.parametrize("device", OTHERS)
def test_half_a_network_learns_the_same_elsewhere(device, moves_at):
    (want, weights), (got, there) = learned(), learned(device, moves_at)
    if device == "ref":
        np.testing.assert_allclose(got, want, rtol=1e-5)
    else:
        assert got == want and all((a == b).all() for a, b in zip(weights, there))


def test_a_tensor_says_where_it_is():
    x = numbers(2, 3)
    there = x.to("cpu:1")
    assert (x.device, there.device, there.device.type, there.device.index) == ("cpu", "cpu:1", "cpu", 1)
    assert there.to("cpu:1") is there and x.to("cpu:0") is x and x.cpu() is x and there.cpu().device == "cpu"
    assert there.to(x).device == "cpu" and there.to("ref", cotan.float64).dtype == cotan.float64
    assert cotan.device("async:cpu").type == "async:cpu" and not there.is_cuda
    assert there.tolist() == x.tolist() and (there.numpy() == x.numpy()).all() and there.sum().item() == x.sum().item()
    assert (there.exp() + 1).device == "cpu:1" and cotan.cat([there, there]).device == "cpu:1"
    with cotan.no_grad():
        assert x.copy_(there).device == "cpu" and there.zero_().device == "cpu:1"


def test_what_is_made_lies_where_it_is_told():
    for made in (cotan.zeros(2, device="cpu:1"), cotan.full((2,), 3, device="cpu:1"), cotan.arange(3, device="cpu:1"),
                 cotan.eye(2, device="cpu:1"), cotan.linspace(0, 1, 3, device="cpu:1"), cotan.rand(2, device="cpu:1"),
                 cotan.randn(2, device="cpu:1"), cotan.randint(0, 5, (2,), device="cpu:1"), cotan.tensor([1.0], device="cpu:1"),
                 cotan.as_tensor([1.0], device="cpu:1"), cotan.asarray([1.0], device="cpu:1")):
        assert made.device == "cpu:1" and cotan.zeros_like(made).device == "cpu:1" and made.new_ones(3).device == "cpu:1"
    x = cotan.arange(6.0, device="cpu:1").reshape(2, 3)
    x[0, 0] = 5
    x[1] = [7, 8, 9]
    x[:, x[0] > 3] = 0
    assert x.tolist() == [[0, 1, 2], [0, 8, 9]] and x[[0, 1], [1, 2]].tolist() == [1, 9] and x[0].device == "cpu:1"
    layer = nn.Conv2d(1, 2, 3, device="cpu:1")
    assert {p.device for p in layer.parameters()} == {"cpu:1"} and layer.cpu().weight.device == "cpu"


def test_attention_dropout_and_recurrence_elsewhere():
    layer = nn.TransformerEncoderLayer(8, 2, 16, device="cpu:1")
    y = layer(cotan.randn(2, 5, 8, device="cpu:1"))
    y.sum().backward()
    assert y.device == "cpu:1" and {p.grad.device for p in layer.parameters()} == {"cpu:1"}
    y, _ = nn.LSTM(3, 4, device="cpu:1")(cotan.randn(2, 5, 3, device="cpu:1"))
    assert y.device == "cpu:1"
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    other = nn.TransformerEncoderLayer(8, 2, 16)
    other.load_state_dict(layer.state_dict())
    assert {p.device for p in other.parameters()} == {"cpu"}
    assert all((a.numpy() == b.numpy()).all() for a, b in zip(layer.state_dict().values(), other.state_dict().values()))


@pytest.mark.parametrize("wrong", [
    lambda: numbers(2).to("cuda"), lambda: cotan.zeros(2, device="cuda"), lambda: nn.Linear(2, 2).to("cuda"),
    lambda: nn.Linear(2, 2, device="cuda"), lambda: numbers(2).cuda()])
def test_a_device_that_is_not_there(wrong):
    with pytest.raises(cotan.DeviceError) as told:
        wrong()
    line = wrong.__code__.co_firstlineno
    assert str(told.value) == f'{__file__}:{line}: to: device: there is no device "cuda": {KNOWN}{GPU_HINT}'


def test_tensors_of_two_devices_do_not_mix():
    a = cotan.ones(3)
    b = cotan.ones(3, device="cpu:1")
    line = test_tensors_of_two_devices_do_not_mix.__code__.co_firstlineno
    with pytest.raises(cotan.DeviceError) as told:
        a + b
    assert str(told.value) == (
        f"{__file__}:{line + 5}: add: operands are on two devices: operand 1 is (3,) float32 on cpu ({__file__}:{line + 1}), "
        f"operand 2 is (3,) float32 on cpu:1 ({__file__}:{line + 2})\n"
        "  hint: to() brings a tensor to another device")
    with pytest.raises(cotan.DeviceError):
        cotan.ones(3) * cotan.ones(3, device="cpu:1")  # in one line, too
    with pytest.raises(cotan.DeviceError):
        nn.Linear(3, 2, device="cpu:1")(a)
    assert (b + 1).tolist() == [2, 2, 2] and (b * a.sum()).tolist() == [3, 3, 3]
