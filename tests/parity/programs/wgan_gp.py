"""A Wasserstein GAN whose critic is penalised by the norm of its gradient: gradients of gradients."""
import json

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn
import torch.optim as optim

rng = np.random.default_rng(26)
batch_size, latent_dim, lambda_gp, n_critic = 16, 3, 10, 3


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(latent_dim, 16), nn.ReLU(True), nn.Linear(16, 16), nn.ReLU(True), nn.Linear(16, 2))

    def forward(self, noise):
        return self.main(noise)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, inputs):
        return self.main(inputs).view(-1)


def compute_gradient_penalty(D, real_samples, fake_samples):
    alpha = torch.Tensor(rng.random((real_samples.size(0), 1)))
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=torch.ones(d_interpolates.size()),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    gradient_penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
    return gradient_penalty


netG, netD = Generator(), Critic()
for net in (netG, netD):
    for p in net.parameters():
        p.data.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.4))
optimizerD = optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.9))
optimizerG = optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.9))
centers = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)]) * 2.0
losses = []


def noise():
    return torch.from_numpy(rng.standard_normal((batch_size, latent_dim))).float()


for iteration in range(60):
    real = torch.tensor(centers[rng.integers(0, 4, batch_size)] + 0.1 * rng.standard_normal((batch_size, 2)), dtype=torch.float32)
    netD.zero_grad()
    with torch.no_grad():
        fake = netG(noise())
    penalty = compute_gradient_penalty(netD, real, fake)
    D_cost = -torch.mean(netD(real)) + torch.mean(netD(fake)) + lambda_gp * penalty
    D_cost.backward()
    optimizerD.step()
    losses += [D_cost.item(), penalty.item()]
    if iteration % n_critic == n_critic - 1:
        for p in netD.parameters():
            p.requires_grad_(False)
        netG.zero_grad()
        G_cost = -netD(netG(noise())).mean()
        G_cost.backward()
        optimizerG.step()
        losses.append(G_cost.item())
        for p in netD.parameters():
            p.requires_grad_(True)
print(json.dumps(losses))
