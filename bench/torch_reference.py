"""The reference training run in PyTorch, from Cotan's initial weights and on Cotan's batches.

    bench/torch_reference.py CORPUS SEED INITIAL_DIR [STEPS]

Prints the final validation loss over all non-overlapping windows of the last tenth, and milliseconds a step. INITIAL_DIR comes from
build/bench/initial_weights SEED DIR. The recipe: 4 layers, 4 heads, width 128, context 64, batch 12, AdamW 0.9 0.99, decay 0.1 on
matrices, clip 1, learning rate 1e-3 to 1e-4 by a cosine behind 100 steps of warm-up.
"""
import json
import math
import struct
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
LR, MIN_LR, WARMUP = 1e-3, 1e-4, 100
MASK32, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def threefry(key, counter):
    rotate = [13, 15, 26, 6, 17, 29, 16, 24]
    k = [key[0], key[1], 0x1BD11BDA ^ key[0] ^ key[1]]
    a, b = (counter[0] + k[0]) & MASK32, (counter[1] + k[1]) & MASK32
    for r in range(20):
        a = (a + b) & MASK32
        n = rotate[r % 8]
        b = ((b << n | b >> (32 - n)) & MASK32) ^ a
        if r % 4 == 3:
            s = r // 4 + 1
            a = (a + k[s % 3]) & MASK32
            b = (b + k[(s + 1) % 3] + s) & MASK32
    return a, b


def window_start(seed, stream, k, span):
    halves = lambda v: (v & MASK32, v >> 32)
    key = threefry(halves(seed), halves(stream))
    threshold = (1 << 64) % span
    for attempt in range(256):
        lo, hi = threefry(key, halves(k | attempt << 56))
        product = (hi << 32 | lo) * span
        if product & MASK64 >= threshold:
            return product >> 64
    raise AssertionError


def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = torch.from_numpy(np.frombuffer(data[begin:end], np.float32).reshape(t["shape"]).copy())
    return out


def forward(p, x):
    B, T = x.shape
    mask = torch.ones(T, T, dtype=torch.bool).triu(1)
    h = p["wte.weight"][x] + p["wpe.weight"][:T]
    norm = lambda h, name: F.layer_norm(h, (WIDTH,), p[name + ".weight"], p.get(name + ".bias"), 1e-5)
    for i in range(LAYERS):
        w = lambda name: p[f"h.{i}.{name}.weight"]
        q, k, v = (norm(h, f"h.{i}.ln_1") @ w("attn.c_attn")).split(WIDTH, 2)
        q, k, v = (t.view(B, T, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
        a = (q @ k.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS)
        a = a.masked_fill(mask, -math.inf).softmax(-1) @ v
        h = h + a.transpose(1, 2).reshape(B, T, WIDTH) @ w("attn.c_proj")
        m = norm(h, f"h.{i}.ln_2") @ w("mlp.c_fc")
        m = 0.5 * m * (1 + torch.tanh(math.sqrt(2 / math.pi) * (m + 0.044715 * m**3)))
        h = h + m @ w("mlp.c_proj")
    return norm(h, "ln_f") @ p["wte.weight"].t()


def learning_rate(step, steps):
    if step < WARMUP:
        return LR * (step + 1) / (WARMUP + 1)
    done = (step - WARMUP) / max(1, steps - WARMUP)
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * done))


def main():
    corpus, seed, initial = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    steps = int(sys.argv[4]) if len(sys.argv) > 4 else 2000
    text = open(corpus, encoding="utf-8").read()
    place = {c: i for i, c in enumerate(sorted(set(text)))}
    tokens = torch.tensor([place[c] for c in text])
    cut = len(tokens) // 10 * 9 + len(tokens) % 10 * 9 // 10
    train, held = tokens[:cut], tokens[cut:]
    p = {k: v.requires_grad_() for k, v in read_safetensors(initial + "/model.safetensors").items()}
    groups = [{"params": [v for v in p.values() if v.dim() > 1], "weight_decay": 0.1},
              {"params": [v for v in p.values() if v.dim() <= 1], "weight_decay": 0.0}]
    optim = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99))
    span, ms = len(train) - CONTEXT, []
    for step in range(steps):
        starts = [window_start(seed, STREAM, step * BATCH + b, span) for b in range(BATCH)]
        x = torch.stack([train[s:s + CONTEXT] for s in starts])
        y = torch.stack([train[s + 1:s + CONTEXT + 1] for s in starts])
        for group in optim.param_groups:
            group["lr"] = learning_rate(step, steps)
        begin = time.perf_counter()
        loss = F.cross_entropy(forward(p, x).view(-1, len(place)), y.view(-1))
        optim.zero_grad(set_to_none=False)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        optim.step()
        ms.append((time.perf_counter() - begin) * 1e3)
        if step % 250 == 0:
            print(f"step {step}: loss {loss.item():.6f}", flush=True)
    with torch.no_grad():
        n = (len(held) - 1) // CONTEXT
        x, y = held[:n * CONTEXT].view(n, CONTEXT), held[1:n * CONTEXT + 1].view(n, CONTEXT)
        total = sum(F.cross_entropy(forward(p, x[i:i + 64]).reshape(-1, len(place)), y[i:i + 64].reshape(-1), reduction="sum").item()
                    for i in range(0, n, 64))
    print(f"val_loss {total / (n * CONTEXT):.6f}, median {sorted(ms)[len(ms) // 2]:.2f} ms a step, torch {torch.__version__}, "
          f"{torch.get_num_threads()} threads")


STREAM = 0  # the stream of training windows in src/models/lm_train.c
main()
