"""Meta-learning: gradients through steps of gradient descent (MAML), with weights passed by hand and by functional_call."""
# Needs PyTorch 2: torch.func.
import json
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

rng = np.random.default_rng(27)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(1, 20)
        self.fc2 = nn.Linear(20, 20)
        self.fc3 = nn.Linear(20, 1)

    def forward(self, x):
        x = torch.tanh(self.fc1(x))
        x = torch.tanh(self.fc2(x))
        return self.fc3(x)

    def argforward(self, x, weights):
        x = torch.tanh(F.linear(x, weights[0], weights[1]))
        x = torch.tanh(F.linear(x, weights[2], weights[3]))
        return F.linear(x, weights[4], weights[5])


def sample_task():
    amplitude, phase = rng.uniform(0.5, 2.0), rng.uniform(0, np.pi)
    x = rng.uniform(-3, 3, (2, 10, 1))
    y = amplitude * np.sin(x + phase)
    return [torch.tensor(part, dtype=torch.float32) for part in (x[0], y[0], x[1], y[1])]


def draw():
    model = Net()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.4))
    return model


inner_lr, inner_steps = 0.05, 2
losses = []
model = draw()
meta_optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for iteration in range(50):
    meta_loss = 0
    for task in range(2):
        x_support, y_support, x_query, y_query = sample_task()
        temp_weights = [w.clone() for w in model.parameters()]
        for step in range(inner_steps):
            loss = F.mse_loss(model.argforward(x_support, temp_weights), y_support)
            grad = torch.autograd.grad(loss, temp_weights, create_graph=True)
            temp_weights = [w - inner_lr * g for w, g in zip(temp_weights, grad)]
        meta_loss = meta_loss + F.mse_loss(model.argforward(x_query, temp_weights), y_query)
    meta_optimizer.zero_grad()
    (meta_loss / 2).backward()
    meta_optimizer.step()
    losses.append(meta_loss.item() / 2)

model = draw()
meta_optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for iteration in range(50):
    x_support, y_support, x_query, y_query = sample_task()
    params = OrderedDict(model.named_parameters())
    for step in range(inner_steps):
        inner = F.mse_loss(functional_call(model, params, (x_support,)), y_support)
        grads = torch.autograd.grad(inner, tuple(params.values()), create_graph=True)
        params = OrderedDict((name, p - inner_lr * g) for (name, p), g in zip(params.items(), grads))
    outer = F.mse_loss(functional_call(model, params, (x_query,)), y_query)
    meta_optimizer.zero_grad()
    outer.backward()
    meta_optimizer.step()
    losses += [inner.item(), outer.item()]
print(json.dumps(losses))
