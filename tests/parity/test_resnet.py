"""ResNet against PyTorch: logits in both modes, every gradient, steps of SGD with momentum, files in both directions.

The model is written here in plain torch as torchvision defines it, with its names. COTAN_PARITY_DEVICES (default "cpu ref")
chooses the devices.
"""
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
numpy_files = pytest.importorskip("safetensors.numpy")

ROOT = Path(__file__).resolve().parents[2]
DEVICES = os.environ.get("COTAN_PARITY_DEVICES", "cpu ref").split()
STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
nn = torch.nn


def convolution(n_in, n_out, k, stride=1):
    return nn.Conv2d(n_in, n_out, k, stride, k // 2, bias=False)


class Basic(nn.Module):
    expansion = 1

    def __init__(self, n_in, inner, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = convolution(n_in, inner, 3, stride), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = convolution(inner, inner, 3), nn.BatchNorm2d(inner)
        self.downsample = downsample

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.downsample(x) if self.downsample else x)).relu()


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, n_in, inner, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = convolution(n_in, inner, 1), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = convolution(inner, inner, 3, stride), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = convolution(inner, 4 * inner, 1), nn.BatchNorm2d(4 * inner)
        self.downsample = downsample

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        return (self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample else x)).relu()


class ResNet(nn.Module):
    def __init__(self, depth, classes, small):
        super().__init__()
        kind, n_in = Bottleneck if depth == 50 else Basic, 64
        self.conv1, self.bn1 = convolution(3, 64, *((3, 1) if small else (7, 2))), nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        for s, blocks in enumerate(STAGES[depth]):
            stage, n_out = [], (64 << s) * kind.expansion
            for i in range(blocks):
                stride = 2 if s and not i else 1
                shorten = stride != 1 or n_in != n_out
                downsample = nn.Sequential(convolution(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out)) if shorten else None
                stage.append(kind(n_in, 64 << s, stride, downsample))
                n_in = n_out
            setattr(self, f"layer{s + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(n_in, classes)

    def forward(self, x):
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def initialise(model):
    """Norms and running statistics near what they begin with, since ones and zeros hide mistakes."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, v in model.state_dict().items():
            if v.dim() == 4:
                v.normal_(0, (2 / (v.shape[0] * v.shape[2] * v.shape[3])) ** 0.5, generator=generator)
            elif "running_var" in name or v.dim() == 1 and name.endswith("weight"):
                v.uniform_(0.7, 1.3, generator=generator)
            elif v.dim() > 0:
                v.normal_(0, 0.05, generator=generator)


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("resnet") / "resnet_dump"
    archive = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "libcotan.a"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu17", "-O1", f"-I{ROOT}/src", f"-I{ROOT}/include",
         f"-I{archive.parent}/derived", str(ROOT / "tests/parity/resnet_dump.c"), "-o", str(out),
         str(archive), "-ljansson", "-lz", "-lm", "-lpthread", "-ldl"], check=True)
    return out


def worst(pairs):
    """Of differences on the scale of a tensor's largest element."""
    parts = {name: float(np.abs(got.astype(np.float64) - want.double().numpy()).max() / (want.abs().max().item() or 1))
             for name, (got, want) in pairs.items()}
    name = max(parts, key=parts.get)
    print(f"worst of {len(parts)}: {name} {parts[name]:.2e}")
    return parts[name], name


def compare(program, folder, device, depth, classes, small, size, batch, dtype):
    model = ResNet(depth, classes, small)
    initialise(model)
    state = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    numpy_files.save_file(state, folder / "weights.safetensors", metadata={"format": "pt"})
    rng = np.random.default_rng(1)
    images, labels = rng.normal(size=(batch, 3, size, size)).astype(dtype), np.arange(batch, dtype=np.int32) % classes
    numpy_files.save_file({"images": images, "labels": labels}, folder / "images.safetensors")
    done = subprocess.run(
        [program, device, str(depth), str(classes), str(int(small)), folder / "weights.safetensors",
         folder / "images.safetensors", folder / "out.safetensors", folder / "saved.safetensors"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out, saved = (numpy_files.load_file(folder / f"{name}.safetensors") for name in ("out", "saved"))

    # In double, and ours too where there are many relus: one that takes rounding for a sign changes gradients by more than
    # 1e-4. PyTorch's own gradients in f32 stray from those in double by a tenth (ResNet-50, 3 images of 64 x 64).
    model, x, y = model.double(), torch.from_numpy(images).double(), torch.from_numpy(labels).long()
    with torch.no_grad():
        evaluation = model.eval()(x)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    results, grads = {}, {}
    for step in range(3):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:  # which is not a step of ours: its gradients, and the running statistics of one call
            results = {"evaluation": evaluation, "training": logits.detach(), "loss": loss.detach()}
            grads = {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}
        else:
            optimizer.step()
    assert out.keys() == results.keys() | grads.keys()
    assert worst({name: (out[name], want) for name, want in (results | grads).items()})[0] <= 1e-4
    wanted = {k: v for k, v in model.state_dict().items() if "num_batches" not in k}
    assert saved.keys() == wanted.keys()
    assert worst({name: (saved[name], want) for name, want in wanted.items()})[0] <= 1e-4
    moved = max(np.abs(saved[name] - state[name]).max() for name in saved if "running" not in name)
    assert moved > 1e-2, "no parameter moved: a weak comparison"
    ours = ResNet(depth, classes, small)
    ours.load_state_dict({k: torch.from_numpy(v) for k, v in saved.items()}, strict=True)


@pytest.mark.parametrize("device", DEVICES)
def test_cifar_18(program, tmp_path, device):
    compare(program, tmp_path, device, 18, 10, True, 32 if device == "cpu" else 16, 2, np.float32)


@pytest.mark.parametrize("depth, dtype", [(18, np.float32), (34, np.float64), (50, np.float64)])
@pytest.mark.skipif("cpu" not in DEVICES, reason="the reference would take minutes")
def test_imagenet(program, tmp_path, depth, dtype):
    compare(program, tmp_path, "cpu", depth, 100, False, 64, 3, dtype)
