"""The tensor tutorial: how tensors are made, indexed, joined, reshaped and written to; a fit with nothing but these."""
import json

import numpy as np
import torch

losses = []
data = [[1, 2], [3, 4]]
x_data = torch.tensor(data)
np_array = np.array(data)
x_np = torch.from_numpy(np_array)
x_ones = torch.ones_like(x_data)
x_rand = torch.zeros_like(x_data, dtype=torch.float)
print(f"Ones Tensor: \n {x_ones} \n")
print(f"Like Tensor: \n {x_rand} \n")
losses.append((x_data + x_np + x_ones).sum().item())

tensor = torch.arange(16, dtype=torch.float32).reshape(4, 4)
print(f"Shape of tensor: {tensor.shape}")
print(f"Datatype of tensor: {tensor.dtype}")
print(f"Device tensor is stored on: {tensor.device}")
if torch.cuda.is_available():
    tensor = tensor.to("cuda")
print(f"First row: {tensor[0]}")
print(f"First column: {tensor[:, 0]}")
print(f"Last column: {tensor[..., -1]}")
tensor[:, 1] = 0
t1 = torch.cat([tensor, tensor, tensor], dim=1)
losses.append(t1.norm().item())

y1 = tensor @ tensor.T
y2 = tensor.matmul(tensor.T)
y3 = torch.empty_like(y1)
torch.matmul(tensor, tensor.T, out=y3)
z1 = tensor * tensor
z2 = tensor.mul(tensor)
z3 = torch.empty_like(tensor)
torch.mul(tensor, tensor, out=z3)
losses += [(y1 - y2).abs().max().item(), y3.sum().item(), (z1 - z2).abs().max().item(), z3.mean().item()]

agg = tensor.sum()
agg_item = agg.item()
print(agg_item, type(agg_item))
tensor.add_(5)
losses.append(tensor.sum().item())
t = torch.ones(5)
n = t.numpy().copy()
t.add_(1)
losses += [t.sum().item(), float(n.sum())]

a = torch.linspace(0, 1, 12).view(3, 4)
losses.append(torch.stack([a, a.flip(0)], dim=0).std().item())
losses.append(a.t().contiguous().view(-1)[3:9:2].sum().item())
losses.append(torch.mm(a, a.t()).trace().item())
losses.append(torch.bmm(a.expand(2, 3, 4), a.t().expand(2, 4, 3)).sum().item())
losses.append(torch.addmm(torch.ones(3, 3), a, a.t(), beta=0.5, alpha=2).sum().item())
losses.append(a.unsqueeze(1).squeeze(1).permute(1, 0).chunk(2, dim=0)[1].prod().item())
losses.append(torch.where(a > 0.5, a, -a).cumsum(dim=1)[-1, -1].item())
values, indices = a.sort(dim=1, descending=True)
losses += [values[0, 0].item(), indices[2, 3].item()]
b = a.clone()
b[b > 0.4] = 0
b[1:, ::2] += 10
b.clamp_(max=9.5).mul_(2).sub_(1)
losses.append(b.sum().item())
losses.append(torch.outer(a[0], a[1]).sum().item())
losses.append(float((a.int() == 0).all(dim=1).any()))
print(a.numel(), a.dim(), a.size(), a.size(0), a.is_contiguous(), torch.is_tensor(a), a.tolist()[0][:2])
print(torch.eye(3), torch.full((2, 3), 3.14), torch.arange(0, 10, 2), torch.tensor(3), torch.tensor([True, False]))
assert torch.allclose(a, a + 1e-9) and a.equal(a.clone())

# A line through points, by its normal equations' gradient, written in place.
rng = np.random.default_rng(0)
X = torch.from_numpy(rng.standard_normal((64, 3)).astype(np.float32))
true_w = torch.tensor([[1.0], [-2.0], [0.5]])
y = X.mm(true_w) + 0.3
w, c = torch.zeros(3, 1), torch.zeros(1)
for step in range(50):
    residual = X.mm(w) + c - y
    losses.append((residual ** 2).mean().item())
    w -= 0.1 * X.t().mm(residual) / len(X)
    c -= 0.1 * residual.mean(dim=0)
losses.extend(w.flatten().tolist() + [c.item()])
print(json.dumps(losses))
