"""Learning rates by schedulers: one cycle, warm-up and cosine, plateaus, lambdas; the rates are part of what is compared."""
# Needs PyTorch 2: get_last_lr of ReduceLROnPlateau.
import json
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import (CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, ExponentialLR, LambdaLR, LinearLR,
                                      MultiStepLR, OneCycleLR, ReduceLROnPlateau, SequentialLR)

rng = np.random.default_rng(17)
X = torch.from_numpy(rng.standard_normal((64, 5)).astype(np.float32))
Y = torch.tanh(X @ torch.from_numpy(rng.standard_normal((5, 2)).astype(np.float32)))
weights = [rng.standard_normal(shape).astype(np.float32) * 0.3 for shape in ((16, 5), (16,), (2, 16), (2,))]
losses = []


def make_model():
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
    with torch.no_grad():
        for p, w in zip(model.parameters(), weights):
            p.copy_(torch.from_numpy(w))
    return model


def warmup_then_decay(step):
    return (step + 1) / 5 if step < 5 else 1 / math.sqrt(step - 3)


makers = {
    "onecycle": lambda o: OneCycleLR(o, max_lr=0.05, total_steps=50),
    "lambda": lambda o: LambdaLR(o, lr_lambda=warmup_then_decay),
    "sequential": lambda o: SequentialLR(o, [LinearLR(o, 0.1, total_iters=10), CosineAnnealingLR(o, T_max=40)], milestones=[10]),
    "restarts": lambda o: CosineAnnealingWarmRestarts(o, T_0=10, T_mult=2),
    "multistep": lambda o: MultiStepLR(o, milestones=[15, 30], gamma=0.3),
    "exponential": lambda o: ExponentialLR(o, gamma=0.95),
    "cyclic": lambda o: CyclicLR(o, base_lr=0.001, max_lr=0.05, step_size_up=8, mode="triangular2"),
    "plateau": lambda o: ReduceLROnPlateau(o, "min", factor=0.5, patience=2, threshold=0.05),
}
for name, make in makers.items():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = make(optimizer)
    for step in range(50):
        loss = F.mse_loss(model(X), Y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step(loss.item())
        else:
            scheduler.step()
        losses.append(loss.item())
        losses.append(optimizer.param_groups[0]["lr"])
    print(f"{name}: loss {losses[-2]:.5f}, rate {losses[-1]:.6f}, last {scheduler.get_last_lr()}")
print(json.dumps(losses))
