"""Hooks: activations seen and changed on their way forward, gradients of parameters seen and changed, statistics of both."""
import json
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(23)
losses = []


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleDict({"up": nn.Linear(width, 2 * width), "down": nn.Linear(2 * width, width)})
        self.scale = nn.Parameter(torch.ones(width))
        self.activations = nn.ModuleList([nn.ReLU(), nn.SiLU()])

    def forward(self, x, which=0):
        h = self.layers["up"](self.norm(x))
        return x + self.scale * self.layers["down"](self.activations[which](h))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(Block(8) for _ in range(3))
        self.head = nn.Sequential()
        self.head.add_module("norm", nn.LayerNorm(8))
        self.head.add_module("fc", nn.Linear(8, 3))

    def forward(self, x):
        x = self.stem(x)
        for i, block in enumerate(self.blocks):
            x = block(x, which=i % 2)
        return self.head(x)


net = Net()
net.apply(lambda m: nn.init.zeros_(m.bias) if isinstance(m, nn.Linear) else None)
with torch.no_grad():
    for name, p in net.named_parameters():
        if "weight" in name and p.dim() == 2:
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.4))
seen, means, gradients = {}, {}, {}


def save_activation(name, module, args, output):
    seen[name] = output.detach()


def halve(module, args, output):
    return output * 0.5


def double_input(module, args):
    return (args[0] * 2,)


def keep_gradient(name, grad):
    gradients[name] = grad.norm()


for name, module in net.named_modules():
    if isinstance(module, nn.Linear):
        module.register_forward_hook(partial(save_activation, name))
handle = net.blocks[1].register_forward_hook(halve)
pre = net.stem.register_forward_pre_hook(double_input)
for name, p in net.named_parameters():
    p.register_hook(partial(keep_gradient, name))
net.blocks[0].scale.register_hook(lambda grad: grad * 0.1)

optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, nesterov=True)
X = torch.from_numpy(rng.standard_normal((40, 6)).astype("float32"))
Y = torch.from_numpy(rng.integers(0, 3, 40))
for step in range(60):
    if step == 20:
        handle.remove()
        pre.remove()
    loss = F.cross_entropy(net(X), Y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 20 == 19:
        losses += [seen["stem"].mean().item(), seen["blocks.2.layers.up"].std().item()]
        losses += [gradients[name].item() for name in ("stem.weight", "blocks.0.scale", "head.fc.bias")]
print(sorted(seen), len(gradients))
print(net)
print(json.dumps(losses))
