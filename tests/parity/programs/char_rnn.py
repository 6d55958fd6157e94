"""A character model: an LSTM whose state goes from step to step, detached (truncated backpropagation through time)."""
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

text = "the quick brown fox jumps over the lazy dog " * 20
chars = sorted(set(text))
idx = {c: i for i, c in enumerate(chars)}
data = torch.tensor([idx[c] for c in text])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(chars), 16)
        self.rnn = nn.LSTM(16, 32, batch_first=True)
        self.out = nn.Linear(32, len(chars))

    def forward(self, x, h=None):
        y, h = self.rnn(self.emb(x), h)
        return (self.out(y), h)


net = Net()
rng = np.random.default_rng(0)
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.2))
opt = torch.optim.Adam(net.parameters(), lr=0.003)
losses = []
h = None
for step in range(50):
    i = step * 40 % 400
    x = data[i:i + 40].view(4, 10)
    y = data[i + 1:i + 41].view(4, 10)
    logits, h = net(x, h)
    h = tuple((s.detach() for s in h))
    loss = F.cross_entropy(logits.reshape(-1, len(chars)), y.reshape(-1))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
print(json.dumps(losses))
