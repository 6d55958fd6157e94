"""A convolutional classifier: batch norm, pooling, mini-batches by index, evaluation."""
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

rng = np.random.default_rng(5)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.fc1 = nn.Linear(8 * 3 * 3, 20)
        self.fc2 = nn.Linear(20, 5)

    def forward(self, x):
        x = self.pool(F.relu(self.bn(self.conv1(x))))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        return self.fc2(F.relu(self.fc1(x)))


net = Net()
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3))
X = torch.from_numpy(rng.standard_normal((32, 1, 14, 14)).astype("float32"))
Y = torch.from_numpy(rng.integers(0, 5, 32))
opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
crit = nn.CrossEntropyLoss(label_smoothing=0.1)
losses = []
for step in range(50):
    sel = torch.from_numpy(rng.permutation(32)[:16])
    opt.zero_grad(set_to_none=True)
    out = net(X[sel])
    loss = crit(out, Y[sel])
    loss.backward()
    opt.step()
    losses.append(loss.item())
net.eval()
with torch.no_grad():
    _, pred = torch.max(net(X), 1)
    losses.append((pred == Y).sum().item())
print(json.dumps(losses))
