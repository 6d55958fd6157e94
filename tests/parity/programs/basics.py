"""Autograd by hand, an n-gram model, a net whose depth changes, gradients that add up, indexing."""
import json
import math
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(4)
losses = []
x = torch.linspace(-math.pi, math.pi, 200)
y = torch.sin(x)
a, b, c, d = (torch.tensor(v, requires_grad=True) for v in (0.1, -0.2, 0.3, 0.05))
for t in range(20):
    yp = a + b * x + c * x ** 2 + d * x ** 3
    loss = (yp - y).pow(2).sum()
    loss.backward()
    losses.append(loss.item())
    with torch.no_grad():
        for p in (a, b, c, d):
            p -= 1e-06 * p.grad
            p.grad = None
emb = nn.Embedding(10, 4)
lin = nn.Linear(8, 10)
with torch.no_grad():
    for p in list(emb.parameters()) + list(lin.parameters()):
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32")))
o = torch.optim.SGD(list(emb.parameters()) + list(lin.parameters()), lr=0.1, momentum=0.9, weight_decay=0.001)
for t in range(16):
    ctx = torch.tensor([t % 10, (t + 1) % 10])
    lp = F.log_softmax(lin(emb(ctx).view((1, -1))), dim=1)
    l = nn.NLLLoss()(lp, torch.tensor([(t + 2) % 10]))
    o.zero_grad()
    l.backward()
    o.step()
    losses.append(l.item())


class Dyn(nn.Module):
    def __init__(self):
        super().__init__()
        self.i = nn.Linear(3, 5)
        self.m = nn.Linear(5, 5)
        self.o = nn.Linear(5, 1)

    def forward(self, x, n):
        h = self.i(x).clamp(min=0)
        for _ in range(n):
            h = self.m(h).clamp(min=0)
        return self.o(h)


net = Dyn()
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.5))
best = copy.deepcopy(net.state_dict())
o = torch.optim.RMSprop(net.parameters(), lr=0.0003)
X = torch.from_numpy(rng.standard_normal((16, 3)).astype("float32"))
Y = X.sum(1, keepdim=True)
for t in range(18):
    l = F.smooth_l1_loss(net(X, t % 3), Y)
    o.zero_grad()
    l.backward()
    o.step()
    if l.item() < 0.3:
        best = copy.deepcopy(net.state_dict())
    losses.append(l.item())
net.load_state_dict(best)
net.eval()
with torch.no_grad():
    losses.append(net(X, 1).mean().item())
w = torch.ones(4, 3, requires_grad=True)
for i in range(3):
    out = (w[i:i + 2] * (i + 1)).sum() + torch.cat([w, w * 2], dim=0).max(dim=0)[0].sum() + torch.stack([w[0], w[1]]).mean()
    (out / 3).backward()
losses.append(w.grad.abs().sum().item())
q = torch.from_numpy(rng.standard_normal((2, 5, 8)).astype("float32"))
s = q @ q.transpose(-2, -1) / math.sqrt(8)
s = s.masked_fill(torch.tril(torch.ones(5, 5)) == 0, float("-inf"))
at = F.softmax(s, dim=-1)
losses.append(at.max().item())
z = torch.zeros(3, 4)
z[1] = 5
z[:, 2] += 1
z[z > 4] = -1
losses.append(z.sum().item())
v, i = torch.topk(torch.tensor([1.0, 5.0, 3.0]), 2)
losses.append(v.sum().item() + i[0].item())
onehot = torch.zeros(3, 4).scatter_(1, torch.tensor([[0], [2], [1]]), 1.0)
losses.append((onehot * torch.arange(4)).sum().item())
acc = (torch.tensor([[0.1, 0.9], [0.8, 0.2]]).argmax(dim=1) == torch.tensor([1, 1])).float().mean()
losses.append(acc.item())
losses.append(torch.norm(torch.tensor([3.0, 4.0])).item())
losses.append(float(sum((p.numel() for p in net.parameters()))))
for xb, yb in zip(X.split(5), Y.split(5)):
    losses.append(F.mse_loss(net(xb, 1), yb).item())
losses.append(torch.einsum("bij,bkj->bik", q, q).sum().item())
losses.append(torch.where(q > 0, q, torch.zeros_like(q)).mean().item())
losses.append(F.cosine_similarity(q[0], q[1], dim=1).sum().item())
losses.append(torch.cdist(q, q).sum().item() if hasattr(torch, "cdist") else 0)
print(json.dumps(losses))
