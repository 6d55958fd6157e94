"""Parametrised weights: symmetric and skew matrices by register_parametrization, weight norm and spectral norm."""
# Needs PyTorch 2: weight_norm as a parametrisation.
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from torch.nn.utils.parametrizations import weight_norm

rng = np.random.default_rng(32)
losses = []


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)


class Skew(nn.Module):
    def forward(self, X):
        A = X.triu(1)
        return A - A.transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu(1)


class Cayley(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("Id", torch.eye(n))

    def forward(self, X):
        return torch.linalg.solve(self.Id + X, self.Id - X)


def draw(module):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3))
    return module


layer = draw(nn.Linear(4, 4))
parametrize.register_parametrization(layer, "weight", Symmetric())
A = layer.weight
assert torch.allclose(A, A.T)
print(layer, [name for name, _ in layer.named_parameters()])
print(parametrize.is_parametrized(layer), parametrize.is_parametrized(layer, "bias"))

orthogonal = draw(nn.Linear(4, 4))
parametrize.register_parametrization(orthogonal, "weight", Skew())
parametrize.register_parametrization(orthogonal, "weight", Cayley(4))
X = orthogonal.weight
losses.append(torch.dist(X.T @ X, torch.eye(4)).item() < 1e-5)

model = nn.Sequential(layer, nn.Tanh(), orthogonal, nn.Tanh(), weight_norm(draw(nn.Linear(4, 6)), name="weight", dim=0), nn.ReLU(),
                      draw(nn.Linear(6, 1)))
print(sorted(model.state_dict()))
data = torch.from_numpy(rng.standard_normal((32, 4)).astype("float32"))
target = data.prod(dim=1, keepdim=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(50):
    loss = F.mse_loss(model(data), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

with parametrize.cached():
    losses.append(F.mse_loss(model(data), target).item())
parametrize.remove_parametrizations(layer, "weight")
losses += [layer.weight.sum().item(), F.mse_loss(model(data), target).item()]
print(type(layer), isinstance(layer.weight, nn.Parameter))
print(json.dumps(losses))
