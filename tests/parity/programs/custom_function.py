"""Functions with a backward of their own: Legendre's polynomial, a clamp whose gradient passes, exp that keeps its result."""
import json
import math

import torch

losses = []


class LegendrePolynomial3(torch.autograd.Function):
    """Forward and backward passes that operate on Tensors."""

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input ** 3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input ** 2 - 1)


dtype = torch.float
device = torch.device("cpu")
x = torch.linspace(-math.pi, math.pi, 200, device=device, dtype=dtype)
y = torch.sin(x)
a = torch.full((), 0.0, device=device, dtype=dtype, requires_grad=True)
b = torch.full((), -1.0, device=device, dtype=dtype, requires_grad=True)
c = torch.full((), 0.0, device=device, dtype=dtype, requires_grad=True)
d = torch.full((), 0.3, device=device, dtype=dtype, requires_grad=True)
learning_rate = 5e-6
for t in range(60):
    P3 = LegendrePolynomial3.apply
    y_pred = a + b * P3(c + d * x)
    loss = (y_pred - y).pow(2).sum()
    losses.append(loss.item())
    loss.backward()
    with torch.no_grad():
        a -= learning_rate * a.grad
        b -= learning_rate * b.grad
        c -= learning_rate * c.grad
        d -= learning_rate * d.grad
        a.grad = None
        b.grad = None
        c.grad = None
        d.grad = None
    if t % 20 == 19:
        print(t, loss.item())
print(f"Result: y = {a.item()} + {b.item()} * P3({c.item()} + {d.item()} x)")


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i, bound):
        ctx.bound = bound
        ctx.save_for_backward(i)
        return i.clamp(-bound, bound).sign()

    @staticmethod
    def backward(ctx, grad_output):
        i, = ctx.saved_tensors
        return grad_output * (i.abs() <= ctx.bound).to(grad_output.dtype), None


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        result, = ctx.saved_tensors
        return grad_output * result


class BinaryNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-0.9, 1.1, 24).view(4, 6))
        self.scale = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        binary = StraightThrough.apply(self.weight, 1.0)
        return torch.nn.functional.linear(x, binary) * Exp.apply(self.scale)


model = BinaryNet()
data = torch.cos(torch.arange(96.0)).view(16, 6)
target = data[:, :4] - data[:, 2:]
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for step in range(50):
    loss = torch.nn.functional.mse_loss(model(data), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps(losses))
