"""A Siamese network: pairs by a contrastive loss, then triplets; the distance of digits."""
import gzip
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

rng = np.random.default_rng(14)
with gzip.open("tests/data/digits.csv.gz", "rt") as file:
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)[:200]


class Pairs(Dataset):
    def __init__(self, n):
        self.images, self.labels = table[:, :-1].reshape(-1, 1, 8, 8) / 16, table[:, -1]
        self.pairs = []
        for i in range(n):
            first = rng.integers(len(self.labels))
            same = self.labels == self.labels[first]
            second = rng.choice(np.flatnonzero(same if i % 2 else ~same))
            self.pairs.append((first, second))

    def __getitem__(self, index):
        first, second = self.pairs[index]
        target = torch.tensor(float(self.labels[first] == self.labels[second]))
        return torch.from_numpy(self.images[first]), torch.from_numpy(self.images[second]), target

    def __len__(self):
        return len(self.pairs)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU())
        self.fc = nn.Sequential(nn.Linear(32, 16), nn.ReLU(inplace=True), nn.Linear(16, 4))

    def forward_once(self, x):
        output = self.cnn(x)
        output = output.view(output.size()[0], -1)
        return self.fc(output)

    def forward(self, input1, input2):
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(torch.nn.Module):
    def __init__(self, margin=1.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=False)
        return torch.mean(label * torch.pow(euclidean_distance, 2) +
                          (1 - label) * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2))


net = SiameseNetwork()
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3))
criterion = ContrastiveLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.0005)
losses = []
dataloader = DataLoader(Pairs(120), shuffle=False, batch_size=24)
for epoch in range(6):
    for img0, img1, label in dataloader:
        optimizer.zero_grad()
        output1, output2 = net(img0, img1)
        loss_contrastive = criterion(output1, output2, label)
        loss_contrastive.backward()
        optimizer.step()
        losses.append(loss_contrastive.item())

images = torch.tensor(table[:, :-1]).div(16).view(-1, 1, 8, 8)
labels = table[:, -1]
triplet = nn.TripletMarginLoss(margin=0.5, p=2)
for step in range(40):
    anchor = rng.integers(0, 200, 16)
    positive = [rng.choice(np.flatnonzero(labels == labels[i])) for i in anchor]
    negative = [rng.choice(np.flatnonzero(labels != labels[i])) for i in anchor]
    a, p, n = (net.forward_once(images[torch.tensor(np.array(i))]) for i in (anchor, positive, negative))
    loss = triplet(a, p, n)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

net.eval()
with torch.no_grad():
    embedded = F.normalize(net.forward_once(images[:30]), dim=1)
    distances = torch.cdist(embedded, embedded)
    distances.fill_diagonal_(float("inf"))
    nearest = distances.argmin(dim=1)
    right = (torch.from_numpy(labels[:30])[nearest] == torch.from_numpy(labels[:30])).float().mean()
    print(f"nearest neighbours of one class: {right:.2f}")
    losses.append(right.item())
print(json.dumps(losses))
