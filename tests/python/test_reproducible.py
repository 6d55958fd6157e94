"""The same seed gives the same run, whatever the number of threads; gradients of parts add up to those of the whole."""
import subprocess
import sys

import numpy as np
import pytest

import cotan
from cotan import nn

TRAINING = """
import sys
import cotan
from cotan import nn, optim
from cotan.utils.data import DataLoader, TensorDataset

cotan.set_num_threads(int(sys.argv[1]))
cotan.manual_seed(7)
images, classes = cotan.randn(320, 1, 12, 12), cotan.randint(0, 10, (320,))
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2),
                      nn.Linear(288, 300), nn.GELU(), nn.Linear(300, 10))
optimizer = optim.AdamW(model.parameters(), lr=1e-3)
steps = 0
while steps < 200:
    for x, y in DataLoader(TensorDataset(images, classes), batch_size=64, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
cotan.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, sys.argv[2])
"""


def test_runs_write_the_same_bytes(tmp_path):
    files = [tmp_path / f"{threads}{run}/run.pt" for threads in (1, 2) for run in (1, 2)]  # its name is in the file
    for path in files:
        path.parent.mkdir()
        subprocess.run([sys.executable, "-c", TRAINING, path.parent.name[0], path], check=True)
    first = files[0].read_bytes()
    assert [path.parent.name for path in files if path.read_bytes() != first] == []
    state = cotan.load(files[0])
    assert all(np.isfinite(value.numpy()).all() for value in state["model"].values()) and len(first) > 1_000_000


@pytest.mark.parametrize("parts", [1, 4, 8])
def test_gradients_of_parts_add_up(parts):
    cotan.manual_seed(3)
    model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.LayerNorm(40), nn.Linear(40, 5))
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((32, 20)).astype("f"), rng.integers(0, 5, 32)

    def gradients(pieces):
        model.zero_grad()
        for one, target in zip(np.split(x, pieces), np.split(y, pieces)):
            loss = nn.functional.cross_entropy(model(cotan.asarray(one)), cotan.asarray(target))
            (loss / pieces).backward()
        return [p.grad.numpy().copy() for p in model.parameters()]

    for a, b in zip(gradients(parts), gradients(1)):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
