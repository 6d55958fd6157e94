"""Digits read row by row by a recurrent network: LSTM and GRU, two layers, both directions."""
import gzip
import json

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
sequence_length, input_size, hidden_size, num_layers, num_classes = 8, 8, 12, 2, 10
rng = np.random.default_rng(24)


class RNN(nn.Module):
    def __init__(self, kind, bidirectional):
        super(RNN, self).__init__()
        self.directions = 2 if bidirectional else 1
        self.rnn = getattr(nn, kind)(input_size, hidden_size, num_layers, batch_first=True, bidirectional=bidirectional)
        self.fc = nn.Linear(hidden_size * self.directions, num_classes)

    def forward(self, x):
        h0 = torch.zeros(num_layers * self.directions, x.size(0), hidden_size).to(device)
        if isinstance(self.rnn, nn.LSTM):
            out, _ = self.rnn(x, (h0, torch.zeros_like(h0)))
        else:
            out, _ = self.rnn(x, h0)
        return self.fc(out[:, -1, :])


with gzip.open("tests/data/digits.csv.gz", "rt") as file:
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)[:250]
images, labels = torch.tensor(table[:, :-1] / 16).reshape(-1, 8, 8), torch.tensor(table[:, -1].astype(int))
train_loader = DataLoader(TensorDataset(images[:200], labels[:200]), batch_size=40)
losses = []
for kind, bidirectional in (("LSTM", True), ("GRU", False)):
    model = RNN(kind, bidirectional).to(device)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    total_step = len(train_loader)
    for epoch in range(10):
        for i, (rows, target) in enumerate(train_loader):
            rows = rows.reshape(-1, sequence_length, input_size).to(device)
            outputs = model(rows)
            loss = criterion(outputs, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print("Epoch [{}], Step [{}/{}], Loss: {:.4f}".format(epoch + 1, i + 1, total_step, loss.item()))
    model.eval()
    with torch.no_grad():
        outputs = model(images[200:])
        _, predicted = torch.max(outputs.data, 1)
        losses.append(criterion(outputs, labels[200:]).item())
        print("Test Accuracy: {} %".format(100 * (predicted == labels[200:]).sum().item() / 50))
print(json.dumps(losses))
