"""A GAN of two small networks with an optimizer each: a ring of points."""
import json

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(21)
latent_dim = 4


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(
            *block(latent_dim, 16, normalize=False),
            *block(16, 32),
            nn.Linear(32, 2),
        )

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(
            nn.Linear(2, 32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(32, 16),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(16, 1),
            nn.Sigmoid(),
        )

    def forward(self, img):
        img_flat = img.view(img.size(0), -1)
        validity = self.model(img_flat)
        return validity


adversarial_loss = torch.nn.BCELoss()
generator = Generator()
discriminator = Discriminator()
with torch.no_grad():
    for p in [*generator.parameters(), *discriminator.parameters()]:
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3))
optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.0005, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.0005, betas=(0.5, 0.999))
losses = []
for i in range(60):
    angle = rng.uniform(0, 2 * np.pi, 32)
    imgs = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    valid = torch.ones(imgs.shape[0], 1, requires_grad=False)
    fake = torch.zeros(imgs.shape[0], 1, requires_grad=False)
    real_imgs = torch.Tensor(imgs)

    optimizer_G.zero_grad()
    z = torch.from_numpy(rng.normal(0, 1, (imgs.shape[0], latent_dim))).type(torch.FloatTensor)
    gen_imgs = generator(z)
    g_loss = adversarial_loss(discriminator(gen_imgs), valid)
    g_loss.backward()
    optimizer_G.step()

    optimizer_D.zero_grad()
    real_loss = adversarial_loss(discriminator(real_imgs), valid)
    fake_loss = adversarial_loss(discriminator(gen_imgs.detach()), fake)
    d_loss = (real_loss + fake_loss) / 2
    d_loss.backward()
    optimizer_D.step()
    losses += [d_loss.item(), g_loss.item()]
    if i % 20 == 0:
        print("[Batch %d] [D loss: %f] [G loss: %f]" % (i, d_loss.item(), g_loss.item()))
print(json.dumps(losses))
