"""torch.save and torch.load of whole modules."""
import os
import pickle
from collections import OrderedDict

import cotan
import cotan.torch as torch
import pytest
from cotan import nn
from cotan.torch import _whole


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(OrderedDict(fc=nn.Linear(3, 4), act=nn.ReLU(), norm=nn.BatchNorm1d(4)))
        self.register_buffer("seen", cotan.zeros(2))
        self.rate, self.kinds = 0.5, {"a": [1, nn.Linear]}

    def forward(self, x):
        return self.body(x) * self.rate


class Holder:
    def __init__(self, net):
        self.net = net

    def __reduce__(self):
        return Holder, (self.net,)


def round_trip(value, path):
    torch.save(value, path)
    return torch.load(path, weights_only=False)


def test_a_module(tmp_path):
    net, x = Net().eval(), cotan.rand(2, 3)
    net.register_forward_hook(lambda *args: None)
    found = round_trip({"net": net, "epoch": 3, "act": nn.functional.relu}, tmp_path / "net.pt")
    again = found["net"]
    assert type(again) is Net and not again.training and again.kinds == {"a": [1, nn.Linear]} and found["act"] is nn.functional.relu
    assert again(x).tolist() == net(x).tolist() and list(again.state_dict()) == list(net.state_dict())
    again.train()(x).sum().backward()
    assert again.body.fc.weight.grad is not None and net.body.fc.weight.grad is None
    again.register_forward_hook(lambda *args: 7)
    assert again(x) == 7


def test_layers_are_under_pytorchs_names(tmp_path):
    layers = nn.Sequential(nn.Linear(3, 2), nn.Conv2d(1, 2, 3), nn.LSTM(2, 3), nn.GELU(), nn.TransformerEncoderLayer(4, 2, 8))
    path = tmp_path / "layers.pt"
    again = round_trip(layers, path)
    assert [type(one) for one in again] == [type(one) for one in layers]
    data = path.read_bytes()
    assert b"ctorch.nn.modules.linear\nLinear\n" in data and b"ctorch.nn.modules.conv\nConv2d\n" in data and b"cotan" not in data
    x = cotan.rand(1, 1, 2)
    assert again[2](x)[0].tolist() == layers[2](x)[0].tolist()


def test_objects(tmp_path):
    net = Net()
    again = round_trip([Holder(net), net], tmp_path / "objects.pt")
    assert type(again[0]) is Holder and again[0].net is again[1]
    with pytest.raises(TypeError, match="names .*<lambda>, which is not found by that name"):
        torch.save({"f": lambda: 1}, tmp_path / "f.pt")


def test_what_is_refused(tmp_path):
    path = tmp_path / "net.pt"
    torch.save(Net(), path)
    with pytest.raises(pickle.UnpicklingError, match="code in files is never run"):
        torch.load(path)
    with pytest.raises(ValueError, match="weights_only=False is asked for"):
        cotan.load(path, weights_only=False)

    class Evil:
        def __reduce__(self):
            return os.system, ("true",)

    torch.save(Evil(), path)
    with pytest.raises(pickle.UnpicklingError, match="the file names posix.system, of Python's own library"):
        torch.load(path, weights_only=False)
    for module, name in (("torch.hub", "os.system"), ("__builtin__", "eval"), ("torch.no_such", "name")):
        with pytest.raises(pickle.UnpicklingError, match=f"the file names .*{name}"):
            _whole._find(module, name)
