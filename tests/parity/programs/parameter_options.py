"""Options of single parameters: groups with their own rates and decay, groups added and rates changed on the way, many optimizers."""
# Needs PyTorch 2: NAdam's rule.
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

rng = np.random.default_rng(30)
X = torch.from_numpy(rng.standard_normal((50, 7)).astype("float32"))
Y = torch.from_numpy(rng.integers(0, 3, 50))
weights = [rng.standard_normal(shape).astype("float32") * 0.4 for shape in ((12, 7), (12,), (12,), (12,), (3, 12), (3,))]
losses = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(7, 12), nn.LayerNorm(12), nn.ReLU())
        self.classifier = nn.Linear(12, 3)
        for p, w in zip(self.parameters(), weights):
            p.data = torch.from_numpy(w.copy())

    def forward(self, x):
        return self.classifier(self.base(x))


def decayed(model, weight_decay):
    decay, no_decay = [], []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        (no_decay if param.ndim <= 1 or name.endswith(".bias") else decay).append(param)
    return [{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": weight_decay}]


makers = {
    "sgd": lambda m: optim.SGD([{"params": m.base.parameters(), "lr": 1e-2}, {"params": m.classifier.parameters()}], lr=1e-1,
                               momentum=0.9),
    "adamw": lambda m: optim.AdamW(decayed(m, 0.1), lr=5e-3, betas=(0.9, 0.98), eps=1e-9),
    "adam": lambda m: optim.Adam(m.parameters(), lr=5e-3, weight_decay=1e-2, amsgrad=True),
    "rmsprop": lambda m: optim.RMSprop(m.parameters(), lr=1e-3, alpha=0.9, momentum=0.5, centered=True),
    "adagrad": lambda m: optim.Adagrad(m.parameters(), lr=0.05, lr_decay=0.01),
    "adadelta": lambda m: optim.Adadelta(m.parameters(), lr=0.5, rho=0.8),
    "adamax": lambda m: optim.Adamax(m.parameters(), lr=5e-3),
    "nadam": lambda m: optim.NAdam(m.parameters(), lr=5e-3),
    "radam": lambda m: optim.RAdam(m.parameters(), lr=5e-3),
    "maximize": lambda m: optim.SGD(m.parameters(), lr=0.02, dampening=0.1, momentum=0.5, maximize=True),
}
for name, make in makers.items():
    model = Net()
    optimizer = make(model)
    for step in range(15):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss = F.cross_entropy(model(X), Y)
        if name == "maximize":
            (-loss).backward()
        else:
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"{name}: {losses[-1]:.5f}, groups {[len(group['params']) for group in optimizer.param_groups]}")

model = Net()
for param in model.base.parameters():
    param.requires_grad_(False)
optimizer = optim.SGD(model.classifier.parameters(), lr=0.1)
for step in range(60):
    if step == 20:
        for param in model.base.parameters():
            param.requires_grad_(True)
        optimizer.add_param_group({"params": model.base.parameters(), "lr": 0.05, "weight_decay": 1e-3})
    if step == 40:
        for group in optimizer.param_groups:
            group["lr"] *= 0.1

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        return loss

    losses.append(optimizer.step(closure).item())
print(optimizer)
print(json.dumps(losses))
