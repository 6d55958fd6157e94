"""Transfer learning: a network trained on some digits, then its head replaced: finetuned whole, and with all but the head frozen."""
import copy
import gzip
import json

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Subset, TensorDataset

rng = np.random.default_rng(0)
with gzip.open("tests/data/digits.csv.gz", "rt") as file:
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)[:400]
images = torch.from_numpy(table[:, :-1].reshape(-1, 1, 8, 8)) / 16
labels = torch.from_numpy(table[:, -1]).long()
old, new = labels < 6, labels >= 6
losses = []


class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)))
        self.fc = nn.Linear(12, num_classes)

    def forward(self, x):
        x = self.features(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


def draw(module):
    for p in module.parameters():
        nn.init.zeros_(p)
        p.data += torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3)
    return module


def train_model(model, dataloaders, criterion, optimizer, scheduler, num_epochs=25):
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    for epoch in range(num_epochs):
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss = 0.0
            running_corrects = 0
            for inputs, targets in dataloaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, targets)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                losses.append(loss.item())
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == targets.data)
            if phase == "train":
                scheduler.step()
            n = len(dataloaders[phase].dataset)
            epoch_loss = running_loss / n
            epoch_acc = running_corrects.double() / n
            if phase == "val":
                print(f"{phase} Loss: {epoch_loss:.4f} Acc: {epoch_acc:.4f}")
            if phase == "val" and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
    model.load_state_dict(best_model_wts)
    losses.append(float(best_acc))
    return model


def loaders(mask, shift):
    dataset = TensorDataset(images[mask], labels[mask] - shift)
    n = len(dataset) * 3 // 4
    parts = {"train": Subset(dataset, range(n)), "val": Subset(dataset, range(n, len(dataset)))}
    return {x: DataLoader(parts[x], batch_size=32, drop_last=x == "train") for x in ["train", "val"]}


criterion = nn.CrossEntropyLoss()
model = draw(Net(6))
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model = train_model(model, loaders(old, 0), criterion, optimizer, lr_scheduler.StepLR(optimizer, 2), num_epochs=5)

model_ft = copy.deepcopy(model)
num_ftrs = model_ft.fc.in_features
model_ft.fc = draw(nn.Linear(num_ftrs, 4))
optimizer_ft = optim.SGD(model_ft.parameters(), lr=0.02, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=7, gamma=0.1)
train_model(model_ft, loaders(new, 6), criterion, optimizer_ft, exp_lr_scheduler, num_epochs=6)

model_conv = copy.deepcopy(model)
for param in model_conv.parameters():
    param.requires_grad = False
before = model_conv.features[0].weight.clone()
model_conv.fc = draw(nn.Linear(num_ftrs, 4))
optimizer_conv = optim.SGD(filter(lambda p: p.requires_grad, model_conv.parameters()), lr=0.05, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_conv, step_size=7, gamma=0.1)
train_model(model_conv, loaders(new, 6), criterion, optimizer_conv, exp_lr_scheduler, num_epochs=10)
assert torch.allclose(before, model_conv.features[0].weight)
print([name for name, p in model_conv.named_parameters() if p.requires_grad])
print(json.dumps(losses))
