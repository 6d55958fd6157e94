"""A neural ODE: a spiral learned through a solver, Euler's and Runge-Kutta's steps written as a loop."""
import json

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

rng = np.random.default_rng(29)
data_size, batch_time, batch_size = 60, 6, 8
true_y0 = torch.tensor([[2., 0.]])
t = torch.linspace(0., 6., data_size)
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y ** 3, true_A)


def euler(func, t, dt, y):
    return dt * func(t, y)


def rk4(func, t, dt, y):
    k1 = func(t, y)
    k2 = func(t + dt / 2, y + dt / 2 * k1)
    k3 = func(t + dt / 2, y + dt / 2 * k2)
    k4 = func(t + dt, y + dt * k3)
    return dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def odeint(func, y0, t, method=rk4):
    ys = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        ys.append(ys[-1] + method(func, t0, t1 - t0, ys[-1]))
    return torch.stack(ys)


with torch.no_grad():
    true_y = odeint(Lambda(), true_y0, t)
print(true_y.shape, true_y[-1])


class ODEFunc(nn.Module):
    def __init__(self):
        super(ODEFunc, self).__init__()
        self.net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y ** 3)


def get_batch():
    s = torch.from_numpy(rng.choice(np.arange(data_size - batch_time, dtype=np.int64), batch_size, replace=False))
    batch_y0 = true_y[s]
    batch_t = t[:batch_time]
    batch_y = torch.stack([true_y[s + i] for i in range(batch_time)], dim=0)
    return batch_y0, batch_t, batch_y


losses = []
for method in (euler, rk4):
    func = ODEFunc()
    for p in func.parameters():
        p.data = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.1)
    optimizer = optim.RMSprop(func.parameters(), lr=1e-3)
    for itr in range(50):
        optimizer.zero_grad()
        batch_y0, batch_t, batch_y = get_batch()
        pred_y = odeint(func, batch_y0, batch_t, method)
        loss = torch.mean(torch.abs(pred_y - batch_y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        pred_y = odeint(func, true_y0, t[:10], method)
        loss = torch.mean(torch.abs(pred_y - true_y[:10]))
        print("Total Loss {:.6f}".format(loss.item()))
print(json.dumps(losses))
