"""The step of bench/gpt2_step.c with PyTorch: bench/torch_gpt2_step.py [small|124m] [BATCH] [TOKENS] [STEPS] [THREADS]

For its best on a CPU that OpenBLAS misjudges: OPENBLAS_CORETYPE=SkylakeX ATEN_CPU_CAPABILITY=avx512, and glibc kept from
giving memory back: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456.
"""
import math
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.Linear(width, 3 * width, bias=bias)
        self.proj = nn.Linear(width, width, bias=bias)
        self.fc = nn.Linear(width, 4 * width, bias=bias)
        self.out = nn.Linear(4 * width, width, bias=bias)
        self.heads = heads

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        a = (q @ k.transpose(-2, -1)) / math.sqrt(C // self.heads)
        a = F.softmax(a.masked_fill(mask, float("-inf")), dim=-1) @ v
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, C))
        h = self.fc(self.ln_2(x))
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h * h * h)))
        return x + self.out(h)


class GPT(nn.Module):
    def __init__(self, vocab, context, layers, heads, width, bias):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, bias) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        T = x.shape[1]
        mask = torch.ones(T, T, dtype=torch.bool).triu(1)
        h = self.wte(x) + self.wpe(torch.arange(T))
        for block in self.blocks:
            h = block(h, mask)
        logits = self.ln_f(h) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def main():
    args = sys.argv[1:] + [None] * 5
    small = args[0] == "small"
    batch, tokens = int(args[1] or (12 if small else 4)), int(args[2] or 64)
    steps = int(args[3] or (200 if small else 12))
    if args[4]:
        torch.set_num_threads(int(args[4]))
    torch.manual_seed(1337)
    size = (65, tokens, 4, 4, 128, False) if small else (50257, 1024, 12, 12, 768, True)
    model = GPT(*size)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optim = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3)
    ms = []
    for step in range(steps):
        x, y = torch.randint(0, size[0], (2, batch, tokens))
        begin = time.perf_counter()
        loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad(set_to_none=False)
        ms.append((time.perf_counter() - begin) * 1e3)
        if not small or step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}, {ms[-1]:.1f} ms", flush=True)
    kept = sorted(ms[3:] if steps > 6 else ms)
    median = kept[len(kept) // 2]
    print(f"median {median:.2f} ms, {batch * tokens * 1e3 / median:.0f} tokens/s, torch {torch.__version__}, "
          f"{torch.get_num_threads()} threads")


main()
