"""Time sequence prediction as in PyTorch's examples: LSTM cells step by step, then the future from the model's own outputs; f64."""
import json

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 10)
        self.lstm2 = nn.LSTMCell(10, 10)
        self.linear = nn.Linear(10, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 10, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 10, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 10, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 10, dtype=torch.double)

        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        outputs = torch.cat(outputs, dim=1)
        return outputs


rng = np.random.default_rng(2)
T, L, N = 10, 24, 12
x = np.empty((N, L), "int64")
x[:] = np.array(range(L)) + rng.integers(-4 * T, 4 * T, N).reshape(N, 1)
data = np.sin(x / 1.0 / T).astype("float64")
input = torch.from_numpy(data[3:, :-1])
target = torch.from_numpy(data[3:, 1:])
test_input = torch.from_numpy(data[:3, :-1])
test_target = torch.from_numpy(data[:3, 1:])
seq = Sequence()
seq.double()
for p in seq.parameters():
    p.data = torch.from_numpy(rng.standard_normal(tuple(p.shape)) * 0.3)
criterion = nn.MSELoss()
optimizer = optim.Adam(seq.parameters(), lr=0.01)
losses = []
for i in range(50):
    optimizer.zero_grad()
    out = seq(input)
    loss = criterion(out, target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if i % 10 == 9:
        with torch.no_grad():
            future = 8
            pred = seq(test_input, future=future)
            loss = criterion(pred[:, :-future], test_target)
            y = pred.detach().numpy()
            losses += [loss.item(), float(y[0, -1])]
            print("STEP:", i, "test loss:", loss.item())
print(json.dumps(losses))
