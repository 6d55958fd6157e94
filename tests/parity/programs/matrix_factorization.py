"""Ratings by factors: embeddings of users and items with biases, few known places of a large table, and negative sampling."""
import json

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(28)
n_users, n_items, n_factors = 40, 30, 5
true_users, true_items = rng.standard_normal((n_users, 3)), rng.standard_normal((n_items, 3))
rows, cols = (rng.random((n_users, n_items)) < 0.3).nonzero()
ratings = (true_users @ true_items.T)[rows, cols] + 0.1 * rng.standard_normal(len(rows))


class MatrixFactorization(nn.Module):
    def __init__(self, n_users, n_items, n_factors=20):
        super().__init__()
        self.user_factors = nn.Embedding(n_users, n_factors)
        self.item_factors = nn.Embedding(n_items, n_factors)
        self.user_biases = nn.Embedding(n_users, 1)
        self.item_biases = nn.Embedding(n_items, 1)
        self.user_factors.weight.data.uniform_(0, 0.05)
        self.item_factors.weight.data.uniform_(0, 0.05)
        self.user_biases.weight.data.fill_(-0.01)
        self.item_biases.weight.data.fill_(0.01)

    def forward(self, user, item):
        pred = self.user_biases(user) + self.item_biases(item)
        pred += (self.user_factors(user) * self.item_factors(item)).sum(dim=1, keepdim=True)
        return pred.squeeze()


model = MatrixFactorization(n_users, n_items, n_factors)
for embedding in (model.user_factors, model.item_factors):
    embedding.weight.data.copy_(torch.from_numpy(rng.standard_normal(tuple(embedding.weight.shape))) * 0.3)
order = rng.permutation(len(rows))[:320]
data = TensorDataset(torch.LongTensor(rows[order]), torch.LongTensor(cols[order]), torch.FloatTensor(ratings[order]))
loader = DataLoader(data, batch_size=32)
loss_func = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = []
for epoch in range(6):
    for user, item, rating in loader:
        prediction = model(user, item)
        loss = loss_func(prediction, rating)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

# Word vectors by negative sampling: the same, with a dot product of each pair and five drawn others.
centers, contexts = nn.Embedding(25, 8), nn.Embedding(25, 8)
with torch.no_grad():
    centers.weight.copy_(torch.from_numpy(rng.standard_normal((25, 8))) * 0.3)
    contexts.weight.zero_()
optimizer = torch.optim.Adagrad([*centers.parameters(), *contexts.parameters()], lr=0.1)
for step in range(50):
    center = rng.integers(0, 25, 16)
    positive, negative = (center + rng.integers(1, 3, 16)) % 25, rng.integers(0, 25, (16, 5))
    v = centers(torch.from_numpy(center))
    u, neg = contexts(torch.from_numpy(positive)), contexts(torch.from_numpy(negative))
    score = torch.sum(v * u, dim=1)
    neg_score = torch.bmm(neg, v.unsqueeze(2)).squeeze(2)
    loss = -(nn.functional.logsigmoid(score) + nn.functional.logsigmoid(-neg_score).sum(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    similar = torch.cosine_similarity(centers.weight[3].unsqueeze(0), centers.weight, dim=1)
    values, indices = torch.topk(similar, 3)
    losses += values.tolist()
    assert indices[0] == 3
print(json.dumps(losses))
