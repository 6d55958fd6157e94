"""GPT-2 against PyTorch: logits, loss, every gradient, ten steps of AdamW, files in both directions.

The model is written here in plain torch as Hugging Face defines it (Conv1D layers, gelu_new, layer
norms before attention and MLP, tied embeddings), with its names. Run by `make parity`;
COTAN_PARITY_DEVICES (default "cpu ref") chooses the devices. The reference evaluates op by op, so it
gets the small configuration alone.
"""
import copy
import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
numpy_files = pytest.importorskip("safetensors.numpy")

ROOT = Path(__file__).resolve().parents[2]
DEVICES = os.environ.get("COTAN_PARITY_DEVICES", "cpu ref").split()
SMALL = dict(vocab_size=67, n_positions=24, n_embd=48, n_layer=3, n_head=4)
LARGE = dict(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
STEPS = 10


class Conv1D(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_in, n_out))
        self.bias = torch.nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.c_attn(x).split(w, 2))
        scores = q @ k.transpose(-1, -2) / math.sqrt(w // self.heads)
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(b, t, w))


class Mlp(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x):
        h = self.c_fc(x)
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        return self.c_proj(h)


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = torch.nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = torch.nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        self.wte = torch.nn.Embedding(config["vocab_size"], width)
        self.wpe = torch.nn.Embedding(config["n_positions"], width)
        self.h = torch.nn.ModuleList(
            Block(width, config["n_head"]) for _ in range(config["n_layer"]))
        self.ln_f = torch.nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def initialise(model, config, scale, seed):
    """GPT-2's first values times `scale`, and, since zeros hide mistakes, biases and norms near theirs."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0, 0.02 * scale, generator=generator)
            if name.endswith("c_proj.weight"):
                p /= math.sqrt(2 * config["n_layer"])
            if "ln_" in name and name.endswith("weight"):
                p += 1


def loss_of(model, tokens, targets):
    logits = model(tokens)
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(model, tokens, targets):
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
         {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.99))
    losses = []
    for x, y in zip(tokens, targets):
        loss = loss_of(model, x, y)[1]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpt2") / "gpt2_dump"
    archive = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "libcotan.a"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu17", "-O1", f"-I{ROOT}/src", f"-I{ROOT}/include",
         f"-I{archive.parent}/derived", str(ROOT / "tests/parity/gpt2_dump.c"), "-o", str(out),
         str(archive), "-ljansson", "-lz", "-lm", "-lpthread", "-ldl"], check=True)
    return out


def numpy_of(tensor):
    return tensor.detach().numpy().copy()


def distance(got, want):
    return float(np.max(np.abs(got.astype(np.float64) - want)))


def check_first_batch(out, logits, loss, model):
    report = {"logits": (distance(out["logits"], numpy_of(logits)), np.abs(numpy_of(logits)).max()),
              "loss": (distance(out["loss"], numpy_of(loss)), abs(loss.item()))}
    largest = max(p.grad.abs().max().item() for p in model.parameters())
    for name, p in model.named_parameters():
        got, want = out[f"grad.transformer.{name}"], numpy_of(p.grad)
        assert got.shape == want.shape, name
        if name.endswith("c_attn.bias"):  # the key's bias shifts all scores of a query: no gradient
            keys = slice(len(want) // 3, 2 * len(want) // 3)
            assert np.abs(got[keys]).max() <= 1e-6 * largest, name
            got, want = np.delete(got, keys), np.delete(want, keys)
        report[name] = distance(got, want), np.abs(want).max()
    worst = max(report, key=lambda name: report[name][0] / report[name][1])
    print(f"worst of {len(report)} tensors: {worst} {report[worst][0] / report[worst][1]:.2e}")
    wrong = {name: r for name, r in report.items() if not r[0] <= 1e-4 * r[1]}
    assert not wrong, wrong


def compare(program, folder, device, config, scale, batch, time):
    print("seed 1")
    model = Gpt2(config)
    initialise(model, config, scale, 1)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(
        dict(config, model_type="gpt2", activation_function="gelu_new", layer_norm_epsilon=1e-5,
             architectures=["GPT2LMHeadModel"], resid_pdrop=0.0)))
    numpy_files.save_file({f"transformer.{k}": numpy_of(v) for k, v in model.state_dict().items()},
                          folder / "model.safetensors", metadata={"format": "pt"})
    rng = np.random.default_rng(1)
    ids = rng.integers(0, config["vocab_size"], (2, batch, time + 1), dtype=np.int32)
    ids = ids[np.arange(STEPS) % 2]  # two batches in turn, so that there is something to learn
    batches = {"tokens": np.ascontiguousarray(ids[:, :, :-1]),
               "targets": np.ascontiguousarray(ids[:, :, 1:])}
    numpy_files.save_file(batches, folder / "batches.safetensors")
    done = subprocess.run(
        [program, device, folder, folder / "batches.safetensors", folder / "out.safetensors",
         folder / "saved"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = numpy_files.load_file(folder / "out.safetensors")
    tokens, targets = (torch.from_numpy(b.astype(np.int64)) for b in batches.values())
    logits, loss = loss_of(model, tokens[0], targets[0])
    loss.backward()
    check_first_batch(out, logits, loss, model)
    del logits, loss
    # In double, since Adam divides by the size of a gradient and so makes small errors large: on the
    # large model PyTorch's own losses in f32 stray by 2e-4 from its losses in double.
    exact = train(copy.deepcopy(model).double(), tokens, targets)
    losses = train(model, tokens, targets)
    print("losses: ours, in f64, in f32")
    for row in zip(out["losses"], exact, losses):
        print("  %.5f %.5f %.5f" % row)
    assert np.allclose(out["losses"], exact, rtol=0, atol=1e-4), (out["losses"], exact)
    assert np.allclose(out["losses"], losses, rtol=1e-4, atol=0), (out["losses"], losses)
    assert losses[0] - losses[-1] > 0.1, "nothing was learnt: a weak comparison"
    # Ours load there: every name, every shape, and the trained model computes the same.
    saved = numpy_files.load_file(folder / "saved/model.safetensors")  # with the names of the file that was loaded
    ours = Gpt2(config)
    ours.load_state_dict({k.removeprefix("transformer."): torch.from_numpy(v) for k, v in saved.items()}, strict=True)
    with torch.no_grad():
        here, there = (loss_of(m, tokens[0], targets[0])[1].item() for m in (ours, model))
        assert abs(here - there) <= 1e-4 * there


@pytest.mark.parametrize("device", DEVICES)
def test_small(program, tmp_path, device):
    compare(program, tmp_path / "small", device, SMALL, 5, 3, 20)


@pytest.mark.slow
@pytest.mark.skipif("cpu" not in DEVICES, reason="the reference would take hours")
def test_124m(program, tmp_path):
    compare(program, tmp_path / "large", "cpu", LARGE, 1, 2, 64)
