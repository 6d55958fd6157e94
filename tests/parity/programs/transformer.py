"""A transformer encoder with positions and a causal mask, by AdamW."""
import json
import math

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(2)


class PE(nn.Module):
    def __init__(self, d, n=50):
        super().__init__()
        pe = torch.zeros(n, d)
        pos = torch.arange(0, n, dtype=torch.float).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        return x + self.pe[:, :x.size(1)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 16)
        self.pe = PE(16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(16, 20)

    def forward(self, x):
        mask = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), diagonal=1)
        return self.out(self.enc(self.pe(self.emb(x) * math.sqrt(16)), mask=mask))


net = Net()
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.2))
opt = torch.optim.AdamW(net.parameters(), lr=0.001)
losses = []
data = torch.from_numpy(rng.integers(0, 20, (8, 13)))
for step in range(50):
    x, y = (data[:, :-1], data[:, 1:])
    loss = nn.CrossEntropyLoss()(net(x).transpose(1, 2), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(json.dumps(losses))
