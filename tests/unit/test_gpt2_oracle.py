"""GPT-2 against a second one in f64 (tests/support/gpt2.py): logits, loss, every gradient, decoding, steps of AdamW."""
import os
import subprocess

import numpy as np
import pytest
from support import gpt2, safetensors
from support.program import command

PROGRAM = command("tests/unit/test_gpt2_oracle")
DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
SEED, STEPS = 20250612, 4
CONFIG = gpt2.Config(vocab=29, context=12, width=24, layers=2, heads=3)


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(SEED)
    ids = rng.integers(0, CONFIG.vocab, (2, 2, 11))[np.arange(STEPS) % 2].astype(np.int32)
    return gpt2.draw(CONFIG, rng), np.ascontiguousarray(ids[..., :-1]), np.ascontiguousarray(ids[..., 1:])


@pytest.fixture(scope="module")
def ours(drawn, tmp_path_factory):
    """By device: what the program wrote, and the weights that it trained."""
    weights, tokens, targets = drawn
    folder, found = tmp_path_factory.mktemp("gpt2"), {}
    gpt2.save(folder / "model", CONFIG, weights)
    np.savez(folder / "batches.npz", tokens=tokens, targets=targets)
    for device in DEVICES:
        done = subprocess.run([*PROGRAM, device, folder / "model", folder / "batches.npz", folder / "out.npz", folder / "saved"],
                              capture_output=True, text=True, env=os.environ | {"COTAN_CC": "none"})
        assert done.returncode == 0, done.stderr
        found[device] = dict(np.load(folder / "out.npz")), safetensors.read(folder / "saved/model.safetensors")
    return found


@pytest.fixture(scope="module")
def theirs(drawn):
    weights, tokens, targets = drawn
    weights = gpt2.in_double(weights)
    (loss, logits), gradients = gpt2.loss_and_gradients(weights, tokens[0], targets[0], CONFIG)
    losses, trained = gpt2.train(weights, tokens, targets, CONFIG, 1e-3, 0.9, 0.99, 1e-8, 0.1, 1.0)
    found = {"logits": logits, "decoded": logits[:, -1], "loss": loss}
    return found | {f"grad.{name}": g for name, g in gradients.items()}, losses, trained


def relative(got, want):
    """The largest distance, measured by the largest element."""
    assert got.shape == want.shape and got.dtype == np.float32
    return float(np.abs(got - np.asarray(want)).max() / np.abs(want).max())


@pytest.mark.parametrize("device", DEVICES)
def test_logits_loss_and_gradients(ours, theirs, device):
    got, want = dict(ours[device][0]), dict(theirs[0])
    assert set(got) == {*want, "losses"}
    largest = max(np.abs(g).max() for name, g in want.items() if name.startswith("grad."))
    for name in want:
        if name.endswith("c_attn.bias"):  # the key's bias moves all scores of a query alike: no gradient
            keys = slice(CONFIG.width, 2 * CONFIG.width)
            assert np.abs(got[name][keys]).max() <= 1e-6 * largest, name
            got[name], want[name] = np.delete(got[name], keys), np.delete(want[name], keys)
    far = {name: relative(got[name], w) for name, w in want.items()}
    assert max(far.values()) < 1e-5, {name: d for name, d in far.items() if d >= 1e-5}


@pytest.mark.parametrize("device", DEVICES)
def test_steps_of_adamw(ours, theirs, device):
    """Adam divides by the size of a gradient, and so makes small errors large."""
    (got, saved), (_, losses, trained) = ours[device], theirs
    assert np.abs(got["losses"] - losses).max() < 2e-5, (got["losses"], losses)
    assert losses[0] - losses[2] > 0.05, "nothing was learnt: a weak comparison"
    assert set(saved) == set(trained)
    for name, want in trained.items():
        off = np.abs(saved[name] - np.asarray(want))
        if name.endswith("c_attn.bias"):
            off = np.delete(off, slice(CONFIG.width, 2 * CONFIG.width))
        assert off.max() < 2e-5, (name, off.max())
