"""The same training run here and in PyTorch: python bench/train_beside_torch.py BUILD TEXT [--width 256 ...]

A Llama with random weights is saved by transformers; cotan train goes on from it with --from, and so does PyTorch's AdamW, with the same
windows of the text, learning rates and clipping. Printed are both held-out losses, how far they are from each other, and both times. The
defaults are a model of ten million parameters, as large a text as one has, and 500 steps: minutes of both cores. Needs torch,
transformers and tokenizers.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.pop(0)  # this folder, where a file has the name of a library
import numpy as np  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

BETAS, DECAY = (0.9, 0.99), 0.1


def threefry(key, counter):
    """Threefry 2x32 of 20 rounds, as src/base/threefry.h has it."""
    mask = 0xffffffff
    k = [*key, 0x1bd11bda ^ key[0] ^ key[1]]
    a, b = counter[0] + k[0] & mask, counter[1] + k[1] & mask
    for i in range(20):
        r = (13, 15, 26, 6, 17, 29, 16, 24)[i & 7]
        a = a + b & mask
        b = (b << r | b >> 32 - r) & mask ^ a
        if i & 3 == 3:
            s = i // 4 + 1
            a, b = a + k[s % 3] & mask, b + k[(s + 1) % 3] + s & mask
    return a, b


def window_start(k, count):
    """Where window k begins, of `count` places: seed 0, stream 0 (src/data/loader.c)."""
    bits = threefry(threefry((0, 0), (0, 0)), (k & 0xffffffff, k >> 32))
    return (bits[0] | bits[1] << 32) * count >> 64


def made(folder, o):
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.pre_tokenizer, own.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    own.train([o.text], tokenizers.trainers.BpeTrainer(vocab_size=o.vocab, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
                                                       special_tokens=["<|end|>"], show_progress=False))
    transformers.PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|end|>", model_max_length=1 << 20).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=own.get_vocab_size(), hidden_size=o.width, intermediate_size=o.width * 8 // 3 // 16 * 16, num_hidden_layers=o.layers,
        num_attention_heads=o.width // 32, max_position_embeddings=o.context, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config).float()
    model.save_pretrained(folder)
    return model


def trained_here(o, folder, run):
    begin = time.perf_counter()
    done = subprocess.run([Path(o.build) / "cotan", "train", "--data", o.text, "--from", folder, "--out", run, *map(str, [
        "--context", o.context, "--batch", o.batch, "--steps", o.steps, "--lr", o.lr, "--eval-every", o.steps, "--eval-batches", 0])],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return lines, time.perf_counter() - begin


def trained_there(o, model, tokens, lines):
    matrices, others = ([p for p in model.parameters() if (p.dim() > 1) == wanted] for wanted in (True, False))
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}], betas=BETAS)
    split = len(tokens) // 10 * 9 + len(tokens) % 10 * 9 // 10
    begin = time.perf_counter()
    for step, line in enumerate(lines):
        starts = [window_start(step * o.batch + b, split - o.context) for b in range(o.batch)]
        window = torch.stack([tokens[s:s + o.context + 1] for s in starts])
        loss = loss_of(model, window)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        for group in optimizer.param_groups:
            group["lr"] = line["lr"]
        optimizer.step()
        if step % (o.steps // 10 or 1) == 0:
            print(f"step {step}: here {line['loss']:.4f}, there {float(loss.detach()):.4f}", flush=True)
    rest, losses = tokens[split:], []
    with torch.no_grad():
        count = (len(rest) - 1) // o.context
        for i in range(0, count, o.batch):
            window = torch.stack([rest[k * o.context:(k + 1) * o.context + 1] for k in range(i, min(i + o.batch, count))])
            losses += [float(loss_of(model, window))] * len(window)
    return float(np.mean(losses)), time.perf_counter() - begin


def loss_of(model, window):
    logits = model(input_ids=window[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), window[:, 1:].reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("text")
    for name, value in dict(width=256, layers=10, context=128, batch=8, steps=500, vocab=4096).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-3)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = made(folder / "model", o)
        lines, seconds_here = trained_here(o, folder / "model", folder / "run")
        tokens = torch.tensor(np.load(folder / "run/tokens.npy").astype(np.int64))
        print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(tokens)} tokens of {Path(o.text).stat().st_size} bytes")
        loss, seconds_there = trained_there(o, model, tokens, lines)
    ours = lines[-1]["val_loss"]
    print(f"held-out loss: here {ours:.4f}, there {loss:.4f}, {abs(ours / loss - 1):.2%} apart; {seconds_here:.0f} s here, {seconds_there:.0f} s there")
    return abs(ours / loss - 1) > 0.01


if __name__ == "__main__":
    raise SystemExit(main())
