"""Gradients of several small batches added up before a step, clipped by their norm; a last, shorter group."""
import json

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(13)
X = torch.from_numpy(rng.standard_normal((110, 10)).astype("float32"))
y = (X[:, :3].sum(dim=1, keepdim=True) + torch.sin(X[:, 3:4])).detach()
loader = DataLoader(TensorDataset(X, y), batch_size=8)

model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
for m in model:
    if isinstance(m, nn.Linear):
        with torch.no_grad():
            m.weight.copy_(torch.from_numpy(rng.standard_normal((m.out_features, m.in_features))) * 0.3)
            m.bias.fill_(0.01)
criterion = nn.MSELoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.05)
accumulation_steps = 4
losses, norms = [], []

for epoch in range(5):
    model.train()
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(loader):
        outputs = model(inputs)
        loss = criterion(outputs, targets) / accumulation_steps
        loss.backward()
        losses.append(loss.item() * accumulation_steps)
        if (i + 1) % accumulation_steps == 0 or (i + 1) == len(loader):
            total_norm = clip_grad_norm_(model.parameters(), max_norm=1.0)
            norms.append(float(total_norm))
            optimizer.step()
            optimizer.zero_grad()
    print(f"epoch {epoch}: loss {sum(losses[-len(loader):]) / len(loader):.4f}, norm {norms[-1]:.3f}")

# The gradient of the whole is the mean of its parts'.
model.zero_grad()
criterion(model(X[:32]), y[:32]).backward()
whole = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
for part, target in zip(X[:32].chunk(4), y[:32].chunk(4)):
    (criterion(model(part), target) / 4).backward()
assert all(torch.allclose(a, p.grad, atol=1e-5) for a, p in zip(whole, model.parameters()))
print(json.dumps(losses + norms))
