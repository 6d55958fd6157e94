"""Losses of one's own: focal loss, weights of classes, label smoothing by hand and built in, ignored targets, dice, mixtures."""
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(31)
losses = []


class FocalLoss(nn.Module):
    def __init__(self, alpha=None, gamma=2.0, reduction="mean"):
        super().__init__()
        self.register_buffer("alpha", alpha)
        self.gamma = gamma
        self.reduction = reduction

    def forward(self, inputs, targets):
        ce_loss = F.cross_entropy(inputs, targets, reduction="none")
        pt = torch.exp(-ce_loss)
        focal = (1 - pt) ** self.gamma * ce_loss
        if self.alpha is not None:
            focal = self.alpha[targets] * focal
        if self.reduction == "mean":
            return focal.mean()
        return focal.sum()


class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing=0.0):
        super(LabelSmoothing, self).__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.padding_idx = padding_idx
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing
        self.size = size

    def forward(self, x, target):
        assert x.size(1) == self.size
        true_dist = x.data.clone()
        true_dist.fill_(self.smoothing / (self.size - 2))
        true_dist.scatter_(1, target.data.unsqueeze(1), self.confidence)
        true_dist[:, self.padding_idx] = 0
        mask = (target.data == self.padding_idx).nonzero()
        if mask.dim() > 0:
            true_dist.index_fill_(0, mask.squeeze(), 0.0)
        return self.criterion(x, true_dist.clone().detach())


class DiceLoss(nn.Module):
    def forward(self, logits, targets, smooth=1.0):
        probs = F.softmax(logits, dim=1)
        onehot = F.one_hot(targets, num_classes=logits.shape[1]).float()
        intersection = (probs * onehot).sum(dim=0)
        union = probs.sum(dim=0) + onehot.sum(dim=0)
        return 1 - ((2.0 * intersection + smooth) / (union + smooth)).mean()


def uncertainty_weighted(parts, log_vars):
    return sum(torch.exp(-s) * part + s for part, s in zip(parts, log_vars))


X = torch.from_numpy(rng.standard_normal((48, 6)).astype("float32"))
labels = torch.from_numpy((X.numpy()[:, 0] > 0.3).astype("int64") + 2 * (X.numpy()[:, 1] > 0.8))
counts = torch.bincount(labels, minlength=4)
class_weights = counts.sum() / (4.0 * counts)
ignoring = labels.clone()
ignoring[::5] = -100
binary = (labels % 2).float().unsqueeze(1)

criteria = {
    "weighted": nn.CrossEntropyLoss(weight=class_weights),
    "smoothed": nn.CrossEntropyLoss(weight=class_weights, label_smoothing=0.1),
    "ignoring": lambda out, y: F.cross_entropy(out, ignoring, ignore_index=-100),
    "soft": lambda out, y: nn.CrossEntropyLoss()(out, F.one_hot(y, 4).float() * 0.9 + 0.025),
    "focal": FocalLoss(alpha=class_weights, gamma=2.0),
    "by hand": lambda out, y: LabelSmoothing(4, padding_idx=0, smoothing=0.1)(out.log_softmax(dim=-1), y) / len(y),
    "dice": DiceLoss(),
    "positive": lambda out, y: F.binary_cross_entropy_with_logits(out[:, :1], binary, pos_weight=torch.tensor([2.0])),
}
for name, criterion in criteria.items():
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))
    init = np.random.default_rng(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(init.standard_normal(tuple(p.shape)).astype("float32") * 0.4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(20):
        loss = criterion(model(X), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"{name}: {losses[-20]:.4f} -> {losses[-1]:.4f}")

model = nn.Linear(6, 5)
nn.init.constant_(model.weight, 0.05)
nn.init.zeros_(model.bias)
log_vars = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": [log_vars], "lr": 0.05}], lr=0.01)
for step in range(50):
    out = model(X)
    parts = F.cross_entropy(out[:, :4], labels), F.huber_loss(out[:, 4], X[:, 2], delta=0.5)
    loss = uncertainty_weighted(parts, log_vars)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps(losses))
