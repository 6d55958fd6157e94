"""Saving and loading: a whole checkpoint, a run that is resumed, parts of a state dict for another model."""
# Needs PyTorch 2: weights_only.
import json
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

rng = np.random.default_rng(9)
losses = []


class TheModelClass(nn.Module):
    def __init__(self, classes=4):
        super(TheModelClass, self).__init__()
        self.features = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU())
        self.fc = nn.Linear(16, classes)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return self.fc(self.features(x))


model = TheModelClass()
with torch.no_grad():
    for param in model.parameters():
        param.copy_(torch.from_numpy(rng.standard_normal(tuple(param.shape)).astype("float32") * 0.4))
optimizer = optim.Adam(model.parameters(), lr=0.01, amsgrad=True)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.7)

print("Model's state_dict:")
for param_tensor in model.state_dict():
    print(param_tensor, "\t", model.state_dict()[param_tensor].size())

X = torch.from_numpy(rng.standard_normal((64, 6)).astype("float32"))
Y = (X[:, 0] > 0).long() + 2 * (X[:, 1] > 0).long()


def train(model, optimizer, scheduler, steps, first=0):
    model.train()
    for step in range(first, first + steps):
        batch = slice(step * 16 % 64, step * 16 % 64 + 16)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X[batch]), Y[batch])
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return loss


with tempfile.TemporaryDirectory() as folder:
    PATH = os.path.join(folder, "checkpoint.tar")
    loss = train(model, optimizer, scheduler, 25)
    torch.save({
        "epoch": 25,
        "model_state_dict": model.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "scheduler_state_dict": scheduler.state_dict(),
        "loss": loss.item(),
    }, PATH)
    train(model, optimizer, scheduler, 25, first=25)

    model = TheModelClass()
    optimizer = optim.Adam(model.parameters(), lr=0.5, amsgrad=True)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.7)
    checkpoint = torch.load(PATH, weights_only=True)
    model.load_state_dict(checkpoint["model_state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    scheduler.load_state_dict(checkpoint["scheduler_state_dict"])
    epoch = checkpoint["epoch"]
    losses.append(checkpoint["loss"])
    train(model, optimizer, scheduler, 25, first=epoch)
    assert losses[-25:] == losses[25:50], "a resumed run goes on as if nothing had happened"

    PATH = os.path.join(folder, "model.pth")
    torch.save(model.state_dict(), PATH)
    other = TheModelClass(classes=7)
    pretrained = {k: v for k, v in torch.load(PATH, map_location="cpu").items() if not k.startswith("fc")}
    found = other.load_state_dict(pretrained, strict=False)
    print(found.missing_keys)
    try:
        other.load_state_dict(torch.load(PATH))
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    with torch.no_grad():
        nn.init.constant_(other.fc.weight, 0.1)
        nn.init.zeros_(other.fc.bias)
    other.eval()
    losses += [other(X).sum().item(), float(other.seen)]
    losses.append(len(optimizer.state_dict()["state"]))
print(json.dumps(losses))
