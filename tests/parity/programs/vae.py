"""A variational autoencoder; the noise is NumPy's."""
import json

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F

rng = np.random.default_rng(1)
X = torch.from_numpy((rng.random((64, 30)) < 0.3).astype("float32"))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(30, 20)
        self.mu = nn.Linear(20, 4)
        self.lv = nn.Linear(20, 4)
        self.fc3 = nn.Linear(4, 20)
        self.fc4 = nn.Linear(20, 30)

    def forward(self, x, eps):
        h = F.relu(self.fc1(x))
        mu, logvar = (self.mu(h), self.lv(h))
        z = mu + eps * torch.exp(0.5 * logvar)
        return (torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar)


m = VAE()
for p in m.parameters():
    p.data = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3)
opt = optim.Adam(m.parameters(), lr=0.01)
losses = []
for step in range(50):
    eps = torch.from_numpy(rng.standard_normal((64, 4)).astype("float32"))
    r, mu, lv = m(X, eps)
    bce = F.binary_cross_entropy(r, X, reduction="sum")
    kld = -0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp())
    loss = bce + kld
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(json.dumps(losses))
