"""A convolutional autoencoder that removes noise: strided convolutions down, transposed ones and upsampling back."""
import gzip
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(18)


class Autoencoder(nn.Module):
    def __init__(self, upsample=False):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 6, 2),
        )
        up = [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(8, 1, 3, padding=1)] if upsample else \
            [nn.ConvTranspose2d(8, 1, 3, stride=2, padding=1, output_padding=1)]
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(6, 12, 2),
            nn.ReLU(),
            nn.ConvTranspose2d(12, 8, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(),
            *up,
            nn.Sigmoid(),
        )

    def forward(self, x):
        x = self.encoder(x)
        x = self.decoder(x)
        return x


with gzip.open("tests/data/digits.csv.gz", "rt") as file:
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)[:128]
images = torch.from_numpy(table[:, :-1] / 16).view(-1, 1, 8, 8)
losses = []
for upsample in (False, True):
    model = Autoencoder(upsample)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.25))
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
    for epoch in range(7):
        for img in images.split(32):
            noise = torch.from_numpy(rng.standard_normal(tuple(img.shape))).float()
            noisy = (img + 0.2 * noise).clamp(0.0, 1.0)
            recon = model(noisy)
            loss = criterion(recon, img)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"Epoch:{epoch + 1}, Loss:{loss.item():.4f}")
    model.eval()
    with torch.inference_mode():
        codes = model.encoder(images)
        print(codes.shape)
        losses += [codes.flatten(1).std(dim=0).mean().item(), F.l1_loss(model(images), images).item()]
print(json.dumps(losses))
