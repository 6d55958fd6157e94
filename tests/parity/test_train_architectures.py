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
    cotan("train", "--data", TEXT, "--tokenizer", "bpe:300", "--arch", kind, *SIZES, "--steps", 3, "--out", run)
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


@pytest.mark.parametrize("arch", ["gpt2", "llama"])
@pytest.mark.parametrize("tokens", ["bytes", "chars"])
def test_bytes_and_characters(tokens, arch, tmp_path):
    text, run = tmp_path / "text.txt", tmp_path / "run"
    text.write_text("naïve → cafés \U0001fa75\n" + TEXT.read_text())
    cotan("train", "--data", text, "--tokenizer", tokens, "--arch", arch, *SIZES, "--steps", 3, "--out", run)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(run, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    some = text.read_text()[:300]
    ids = tokenizer(some).input_ids
    letters = sorted(set(text.read_text()))
    assert ids == (list(some.encode()) if tokens == "bytes" else [letters.index(c) for c in some])
    assert tokenizer.decode(ids) == some
    ids = np.array([ids[:16]], np.int32)
    with torch.no_grad():
        want = theirs(input_ids=torch.from_numpy(ids).long()).logits.numpy()
    assert abs(want - ours(run, ids, tmp_path)).max() < 1e-4 * max(1, abs(want).max())


@pytest.mark.parametrize("name", ["llama3", "qwen3", "gemma", "gpt2", "mixtral", "mamba"])
def test_a_step_on_from_theirs(name, tmp_path):
    """From weights that their library wrote, with a tokenizer of theirs, on one window, which is found by its loss: the gradients
    are in what the optimizer keeps, and the weights are those of their AdamW."""
    tokenizers = pytest.importorskip("tokenizers")
    kind, config, given = lm.MODELS[name]
    folder, run, context, lr, decay = tmp_path / "theirs", tmp_path / "run", 16, 1e-3, 0.1
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.pre_tokenizer, own.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    own.train([str(TEXT)], tokenizers.trainers.BpeTrainer(vocab_size=280, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
                                                          special_tokens=["<|end|>"], show_progress=False))
    transformers.PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|end|>", model_max_length=512).save_pretrained(folder)
    torch.manual_seed(7)
    model = getattr(transformers, kind)(getattr(transformers, config)(**given | dict(vocab_size=280), attn_implementation="eager")).float().eval()
    model.save_pretrained(folder)
    text = tmp_path / "text.txt"
    text.write_text(TEXT.read_text()[:900])
    cotan("train", "--data", text, "--from", folder, "--context", context, "--batch", 1, "--steps", 1, "--eval-batches", 1, "--lr", lr,
          "--min-lr", lr, "--warmup", 0, "--clip", 0, "--weight-decay", decay, "--out", run)
    said = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])

    ids = transformers.AutoTokenizer.from_pretrained(folder)(text.read_text()).input_ids + [0]
    assert np.load(run / "tokens.npy").tolist() == ids
    train = ids[:len(ids) // 10 * 9 + len(ids) % 10 * 9 // 10]
    windows = torch.tensor([train[i:i + context + 1] for i in range(len(train) - context)])
    with torch.no_grad():
        losses = torch.nn.functional.cross_entropy(model(input_ids=windows[:, :-1]).logits.transpose(1, 2), windows[:, 1:],
                                                   reduction="none").mean(1)
    at = int((losses - said["loss"]).abs().argmin())
    assert abs(float(losses[at]) - said["loss"]) < 1e-5
    optimizer = torch.optim.AdamW([{"params": [p], "weight_decay": decay if p.dim() > 1 else 0} for p in model.parameters()], lr=lr,
                                  betas=(0.9, 0.99))
    window = windows[at:at + 1]
    torch.nn.functional.cross_entropy(model(input_ids=window[:, :-1]).logits[0], window[0, 1:]).backward()
    gradients = {k: p.grad.numpy().copy() for k, p in model.named_parameters() if p.grad is not None}
    optimizer.step()
    state = lm.safetensors.read(run / "state.safetensors")
    moments = {k.removeprefix("exp_avg."): v / np.float32(0.1) for k, v in state.items() if k.startswith("exp_avg.")}
    after, compared = lm.safetensors.read(run / "model.safetensors"), 0
    for key, theirs in gradients.items():
        try:
            ours = lm.ours(key, moments)
        except KeyError:  # experts are laid out otherwise while their library computes
            continue
        compared += 1
        assert abs(theirs - ours).max() < 1e-4 * max(1, abs(theirs).max()), key
        if key in after:  # where a gradient is rounding alone, its sign is what Adam's first step goes by
            sure = abs(theirs) > 1e-6
            assert abs(model.get_parameter(key).detach().numpy() - after[key])[sure].max(initial=0) < 2e-5, key
    assert compared > len(gradients) / 2
