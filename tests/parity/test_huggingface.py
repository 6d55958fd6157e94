"""GPT-2 files in both directions with Hugging Face's own library: theirs load here, ours load there."""
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")
numpy_files = pytest.importorskip("safetensors.numpy")

from parity.test_gpt2 import ROOT, STEPS, program  # noqa: E402,F401  (program is a fixture)
import subprocess  # noqa: E402

CONFIG = dict(vocab_size=67, n_positions=24, n_embd=48, n_layer=3, n_head=4)


def test_both_directions(program, tmp_path):  # noqa: F811
    torch.manual_seed(3)
    print("seed 3")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**CONFIG)).eval()
    with torch.no_grad():
        for p in model.parameters():  # norms and biases too, so that a mix-up shows
            p.add_(torch.randn_like(p) * 0.1)
    theirs = tmp_path / "theirs"
    model.save_pretrained(theirs, safe_serialization=True)
    ids = np.random.default_rng(3).integers(0, 67, (STEPS, 2, 21), dtype=np.int32)
    batches = {"tokens": np.ascontiguousarray(ids[:, :, :-1]), "targets": np.ascontiguousarray(ids[:, :, 1:])}
    numpy_files.save_file(batches, tmp_path / "batches.safetensors")
    done = subprocess.run([program, "cpu", theirs, tmp_path / "batches.safetensors", tmp_path / "out.safetensors",
                           tmp_path / "ours"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = numpy_files.load_file(tmp_path / "out.safetensors")
    tokens = torch.from_numpy(ids[0, :, :-1].astype(np.int64))
    with torch.no_grad():
        want = model(tokens).logits.numpy()
    assert np.abs(out["logits"] - want).max() <= 1e-4 * np.abs(want).max()
    # What was trained here and saved, there.
    back, report = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    saved = numpy_files.load_file(tmp_path / "ours/model.safetensors")
    assert np.array_equal(back.transformer.h[1].attn.c_attn.weight.detach().numpy(), saved["transformer.h.1.attn.c_attn.weight"])
