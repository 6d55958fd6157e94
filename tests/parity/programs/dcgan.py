"""A small DCGAN in f64: two optimizers, detach, labels filled in their place."""
import json

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(3)


def fill(m):
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)) * 0.2).to(p.dtype))
    return m


G = fill(nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True), nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh()).double())
D = fill(nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 4, 1, 0, bias=False), nn.Sigmoid()).double())
oG = torch.optim.Adam(G.parameters(), lr=0.0002, betas=(0.5, 0.999))
oD = torch.optim.Adam(D.parameters(), lr=0.0002, betas=(0.5, 0.999))
crit = nn.BCELoss()
losses = []
for step in range(10):
    real = torch.from_numpy(rng.standard_normal((8, 1, 8, 8)))
    noise = torch.from_numpy(rng.standard_normal((8, 8, 1, 1)))
    D.zero_grad()
    label = torch.full((8,), 1.0, dtype=torch.double)
    out = D(real).view(-1)
    errR = crit(out, label)
    errR.backward()
    fake = G(noise)
    label.fill_(0.0)
    out = D(fake.detach()).view(-1)
    errF = crit(out, label)
    errF.backward()
    oD.step()
    G.zero_grad()
    label.fill_(1.0)
    out = D(fake).view(-1)
    errG = crit(out, label)
    errG.backward()
    oG.step()
    losses += [errR.item() + errF.item(), errG.item()]
print(json.dumps(losses))
