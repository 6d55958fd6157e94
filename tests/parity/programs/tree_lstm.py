"""A graph that the data makes: a recursive tree-LSTM, and sequences of different lengths, packed, padded and masked."""
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

rng = np.random.default_rng(25)


class TreeLSTMCell(nn.Module):
    def __init__(self, in_dim, mem_dim):
        super().__init__()
        self.mem_dim = mem_dim
        self.ioux = nn.Linear(in_dim, 3 * mem_dim)
        self.iouh = nn.Linear(mem_dim, 3 * mem_dim)
        self.fx = nn.Linear(in_dim, mem_dim)
        self.fh = nn.Linear(mem_dim, mem_dim)

    def node_forward(self, inputs, child_c, child_h):
        child_h_sum = torch.sum(child_h, dim=0, keepdim=True)
        iou = self.ioux(inputs) + self.iouh(child_h_sum)
        i, o, u = torch.split(iou, iou.size(1) // 3, dim=1)
        i, o, u = torch.sigmoid(i), torch.sigmoid(o), torch.tanh(u)
        f = torch.sigmoid(self.fh(child_h) + self.fx(inputs).repeat(len(child_h), 1))
        fc = torch.mul(f, child_c)
        c = torch.mul(i, u) + torch.sum(fc, dim=0, keepdim=True)
        h = torch.mul(o, torch.tanh(c))
        return c, h

    def forward(self, tree, embedding):
        value, children = tree
        states = [self(child, embedding) for child in children]
        if states:
            child_c, child_h = zip(*states)
            child_c, child_h = torch.cat(child_c, dim=0), torch.cat(child_h, dim=0)
        else:
            child_c = torch.zeros(1, self.mem_dim)
            child_h = torch.zeros(1, self.mem_dim)
        return self.node_forward(embedding(torch.tensor([value])), child_c, child_h)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.cell = TreeLSTMCell(6, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, tree):
        c, h = self.cell(tree, self.embedding)
        return self.out(h)


def draw(module):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3))
    return module


def grow(depth):
    children = [] if depth == 0 else [grow(depth - 1) for _ in range(rng.integers(0, 3))]
    return int(rng.integers(0, 10)), children


def total(tree):
    return tree[0] + sum(total(child) for child in tree[1])


trees = [grow(3) for _ in range(10)]
net = draw(Net())
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)
losses = []
for epoch in range(8):
    for tree in trees:
        loss = F.cross_entropy(net(tree), torch.tensor([total(tree) % 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.hidden2tag = nn.Linear(8, 3)

    def forward(self, padded, lengths):
        packed = pack_padded_sequence(self.embedding(padded), lengths, batch_first=True, enforce_sorted=False)
        output, (h, c) = self.lstm(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return self.hidden2tag(output), h


tagger = draw(Tagger())
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.1)
sequences = [[torch.from_numpy(rng.integers(1, 10, rng.integers(2, 9))) for _ in range(4)] for _ in range(6)]
for epoch in range(10):
    for batch in sequences:
        lengths = torch.tensor([len(s) for s in batch])
        padded = pad_sequence(batch, batch_first=True)
        tags = pad_sequence([s % 3 for s in batch], batch_first=True, padding_value=-1)
        scores, h = tagger(padded, lengths)
        loss = F.cross_entropy(scores.reshape(-1, 3), tags.reshape(-1), ignore_index=-1)
        tagger.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
losses += [p.grad.norm().item() for p in tagger.parameters()]
print(json.dumps(losses))
