"""The autograd tutorials: graphs and their leaves, gradients switched off, products with Jacobians, frozen parts, a loop by hand."""
import json

import numpy as np
import torch

losses = []
rng = np.random.default_rng(8)

x = torch.ones(5)
y = torch.zeros(3)
w = torch.tensor(rng.standard_normal((5, 3)), dtype=torch.float32, requires_grad=True)
b = torch.tensor(rng.standard_normal(3), dtype=torch.float32, requires_grad=True)
z = torch.matmul(x, w) + b
loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
print(f"Requires grad: {z.requires_grad}, leaf: {z.is_leaf}")
loss.backward()
losses += [loss.item(), w.grad.sum().item(), b.grad.norm().item()]

z = torch.matmul(x, w) + b
print(z.requires_grad)
with torch.no_grad():
    z = torch.matmul(x, w) + b
print(z.requires_grad)
z = torch.matmul(x, w) + b
z_det = z.detach()
print(z_det.requires_grad)

inp = torch.eye(4, 5, requires_grad=True)
out = (inp + 1).pow(2).t()
out.backward(torch.ones_like(out), retain_graph=True)
print(f"First call\n{inp.grad}")
out.backward(torch.ones_like(out), retain_graph=True)
print(f"\nSecond call\n{inp.grad}")
losses.append(inp.grad.sum().item())
inp.grad.zero_()
out.backward(torch.ones_like(out), retain_graph=True)
losses.append(inp.grad.sum().item())

a = torch.tensor([2.0, 3.0], requires_grad=True)
b = torch.tensor([6.0, 4.0], requires_grad=True)
Q = 3 * a ** 3 - b ** 2
external_grad = torch.tensor([1.0, 1.0])
Q.backward(gradient=external_grad)
print(9 * a ** 2 == a.grad)
print(-2 * b == b.grad)
losses += a.grad.tolist() + b.grad.tolist()

x = torch.tensor(1.5, requires_grad=True)
y = torch.sin(x) * x ** 2
(first,) = torch.autograd.grad(y, x, create_graph=True)
(second,) = torch.autograd.grad(first, x, create_graph=True)
(third,) = torch.autograd.grad(second, x)
losses += [first.item(), second.item(), third.item()]


def exp_reducer(x):
    return x.exp().sum(dim=1)


def bilinear(x, y):
    return (x @ y).sum(dim=0)


inputs = torch.from_numpy(rng.random((2, 3)).astype("float32"))
losses.append(torch.autograd.functional.jacobian(exp_reducer, inputs).sum().item())
jx, jy = torch.autograd.functional.jacobian(bilinear, (inputs, inputs.T))
losses += [jx.square().sum().item(), jy.square().sum().item()]
losses.append(torch.autograd.functional.hessian(lambda v: (v ** 3).sum() + v[0, 0] * v[1, 2], inputs).sum().item())

u = torch.from_numpy(rng.random((5, 5)).astype("float32"))
v = torch.from_numpy(rng.random((5, 5)).astype("float32"))
q = torch.from_numpy(rng.random((5, 5)).astype("float32")).requires_grad_()
print(f"Does `a` require gradients?: {(u + v).requires_grad}")
print(f"Does `b` require gradients?: {(u + q).requires_grad}")

# Rosenbrock's valley by hand; each step reads the gradient and writes the point in place.
point = torch.tensor([-0.5, 0.8], requires_grad=True)
velocity = torch.zeros(2)
for step in range(50):
    value = (1 - point[0]) ** 2 + 10 * (point[1] - point[0] ** 2) ** 2
    value.backward()
    with torch.no_grad():
        velocity = 0.8 * velocity - 0.004 * point.grad
        point += velocity
        point.grad.zero_()
    losses.append(value.item())
print(json.dumps(losses))
