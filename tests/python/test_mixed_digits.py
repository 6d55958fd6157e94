"""A small convolutional net learns digits in float32, and by autocast in bfloat16 and in float16, whose loss is scaled and whose first batches
overflow: as many of the held-out ones are told, to half a point. With COTAN_TEST_ALL on device opencl, too."""
import gzip
import os
from pathlib import Path

import cotan
import numpy as np
import pytest
from cotan import amp, nn, optim

DEVICES = ["cpu"] + (["opencl"] if os.environ.get("COTAN_TEST_ALL") == "1" else [])
TRAINED, BATCH, EPOCHS, SEED = 1200, 60, 14, 8


def digits():
    with gzip.open(Path(__file__).resolve().parents[1] / "data/digits.csv.gz", "rt") as lines:
        rows = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    rows = rows[np.random.default_rng(SEED).permutation(len(rows))]
    return (rows[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8), rows[:, 64]  # (N, 1, 8, 8), (N,)


def right(precision):
    """Of the digits that are held out, those that the net tells, and the scales of its loss."""
    images, classes = digits()
    cotan.manual_seed(SEED)
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    optimizer = optim.AdamW(net.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    scaler = amp.GradScaler(enabled=precision == cotan.float16, init_scale=2.0**26)
    order, scales = np.random.default_rng(SEED), []
    for _ in range(EPOCHS):
        rows = order.permutation(TRAINED)
        for at in range(0, TRAINED, BATCH):
            x, y = (cotan.tensor(part[rows[at:at + BATCH]]) for part in (images, classes))
            optimizer.zero_grad()
            with cotan.autocast("cpu", dtype=precision, enabled=precision != cotan.float32):
                loss = nn.functional.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        schedule.step()
    with cotan.no_grad(), cotan.autocast("cpu", dtype=precision, enabled=precision != cotan.float32):
        told = np.asarray(net(cotan.tensor(images[TRAINED:])).argmax(1))
    return (told == classes[TRAINED:]).mean(), scales


@pytest.mark.parametrize("device", DEVICES)
def test_digits_are_told_in_sixteen_bits(device):
    cotan.set_device(device)
    try:
        whole, _ = right(cotan.float32)
        brain, _ = right(cotan.bfloat16)
        half, scales = right(cotan.float16)
    finally:
        cotan.set_device("cpu")
    assert whole > 0.95
    assert abs(brain - whole) <= 0.005 and abs(half - whole) <= 0.005, (SEED, whole, brain, half)
    assert scales[0] == 2.0**25 and min(scales) >= 2.0**8 and len(set(scales[-20:])) == 1, scales
