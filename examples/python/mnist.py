"""Handwritten digits from MNIST's files: python mnist.py mnist10k-train mnist10k-test"""
import gzip
import sys

import numpy as np
from cotan import asarray, manual_seed, nn, no_grad, optim
from cotan.utils.data import DataLoader, TensorDataset


def read(prefix):
    with gzip.open(f"{prefix}-images-idx3-ubyte.gz") as images, gzip.open(f"{prefix}-labels-idx1-ubyte.gz") as labels:
        pixels, classes = (np.frombuffer(file.read(), "u1", offset=at) for file, at in ((images, 16), (labels, 8)))
    return TensorDataset(asarray(pixels.reshape(-1, 784) / 255).float(), asarray(classes).long())  # (N, 784), (N,)


train, test = read(sys.argv[1]), read(sys.argv[2])
manual_seed(0)
model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(5):
    for x, y in DataLoader(train, batch_size=64, shuffle=True):  # (64, 784), (64,)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with no_grad():
        right = (model(test.tensors[0]).argmax(1) == test.tensors[1]).float().mean()
    print(f"epoch {epoch}  loss {loss.item():.4f}  accuracy {100 * right.item():.1f} %")
