"""The step of `build/bench/rows train gpt2` by PyTorch's names, in torch (eager or compiled) at its best, fused attention and
fused AdamW, and in cotan."""


def make(torch):
    """The model's class, of torch or cotan."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.heads = heads

        def forward(self, x):  # (B, T, C)
            B, T, C = x.shape
            q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.attn(self.ln_1(x)).split(C, dim=2))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D)
            x = x + self.proj(a.transpose(1, 2).reshape(B, T, C))
            return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self, vocab, context, layers, heads, width):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, x, y):
            h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
            for block in self.blocks:
                h = block(h)
            return F.cross_entropy((self.ln_f(h) @ self.wte.weight.t()).flatten(0, 1), y.flatten())

    return Gpt2


def trainer(torch, options, threads, compiled):
    torch.set_num_threads(threads)
    torch.manual_seed(1337)
    vocab, batch, context = 50257, options["batch"], options["context"]
    model = make(torch)(vocab, max(1024, context), options["layers"], options["heads"], options["width"])
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optim = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=1e-3, fused=True)
    forward = torch.compile(model) if compiled else model

    def step():
        x, y = torch.randint(0, vocab, (2, batch, context))
        loss = forward(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad()
        return loss.item()
    return step, torch.__version__
