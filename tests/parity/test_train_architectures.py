"""What cotan train writes of every architecture against Hugging Face's library: it loads there, with our logits; and a step of a
model that goes on from theirs has their loss, gradients and weights."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

transformers = pytest.importorskip("transformers", minversion="5", reason="Hugging Face's transformers 5 is not there")
torch = pytest.importorskip("torch")

from support import language_models as lm  # noqa: E402

BUILD = Path(os.environ["COTAN_BUILD"])
PROGRAM = BUILD / "tests/unit/test_language_models"
TEXT = Path(__file__).parents[1] / "e2e/few_letters.txt"
TYPES = """llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3_text phi3 phimoe deepseek_v2 deepseek_v3 gpt_oss
llama4_text smollm3 olmo2 glm4 granite starcoder2 gpt2 gptj gpt_neox mamba rwkv""".split()
SIZES = ["--layers", 2, "--heads", 2, "--width", 32, "--context", 16, "--batch", 2, "--eval-batches", 1, "--lr", 0.02, "--warmup", 0]
transformers.logging.set_verbosity_error()


def cotan(*words):
    done = subprocess.run([BUILD / "cotan", *map(str, words)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env=os.environ | {"COTAN_CC": "none"})
    assert done.returncode == 0, done.stderr
    return done


def ours(folder, ids, tmp_path):
    np.savez(tmp_path / "in.npz", ids=ids)
    done = subprocess.run([PROGRAM, "logits", folder, tmp_path / "in.npz", tmp_path / "out.npz"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "out.npz")["logits"]


@pytest.mark.parametrize("kind", TYPES)
def test_a_new_model(kind, tmp_path):
    run = tmp_path / "run"
    cotan("train", "--data", TEXT, "--tokens", "bpe:300", "--arch", kind, *SIZES, "--steps", 3, "--out", run)
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(run, attn_implementation="eager", output_loading_info=True)
    assert not any(v for k, v in info.items() if k != "error_msgs"), info
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    ids = tokenizer("and the\nbeginning of a text", return_tensors="pt").input_ids[:, :12]
    assert tokenizer.decode(ids[0]) in "and the\nbeginning of a text"
    with torch.no_grad():
        want = theirs.eval().float()(input_ids=ids).logits.numpy()
    got = ours(run, ids.numpy().astype(np.int32), tmp_path)
    assert abs(want - got).max() < 1e-4 * max(1, abs(want).max())
    assert theirs.generation_config.eos_token_id == json.loads((run / "generation_config.json").read_text())["eos_token_id"]
