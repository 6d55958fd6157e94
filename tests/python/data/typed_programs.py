"""Twenty short programs with types. tests/python/test_typing.py runs mypy --strict over them, and runs them."""
import math
from collections.abc import Callable, Iterator
from typing import assert_type

import cotan
import cotan.torch as torch
from cotan import Tensor
from cotan.torch import nn, optim
from cotan.torch.distributions import Categorical, Normal, kl_divergence
from cotan.torch.nn import functional as F
from cotan.torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, StepLR
from cotan.torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split


class Net(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_in, 8), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(8, n_out, bias=False)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.head(self.layers(x)) * scale


def train_a_network() -> float:
    net = Net(3, 2)
    optimizer = optim.AdamW(net.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)
    loss = torch.tensor(0.0)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        y = net(torch.randn(4, 3), scale=0.5)
        assert_type(y, Tensor)
        loss = F.cross_entropy(y, torch.randint(0, 2, (4,)), label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return float(loss.item())


def use_arithmetic() -> Tensor:
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    y = 2 * x + 1 - x / 3 ** x
    y += x @ x.T.sum() if x.ndim == 0 else 1
    assert_type(x[0], Tensor)
    assert_type(-x, Tensor)
    assert_type(x > 1, Tensor)
    assert_type(x == 1, Tensor)
    return y[:, 1:, None].squeeze(-1)


def ask_for_shapes(x: Tensor) -> int:
    b, n = x.shape
    assert_type(x.shape, torch.Size)
    assert_type(x.size(0), int)
    assert_type(x.dim(), int)
    assert_type(x.dtype, torch.dtype)
    assert_type(x.requires_grad, bool)
    return b * n + x.numel() + x.shape.numel() + len(x)


def reduce_tensors(x: Tensor) -> Tensor:
    values, indices = x.max(dim=1)
    assert_type(values, Tensor)
    best = torch.max(x, 0, keepdim=True)
    assert_type(best.indices, Tensor)
    assert_type(x.max(), Tensor)
    top = torch.topk(x, 2, dim=-1)
    ordered, order = torch.sort(x, descending=True)
    return x.mean((0, 1)) + x.std(dim=1, keepdim=True) + values.sum() + top.values.sum() + ordered[0, 0] + indices[0] + order[0, 0]


def compare(x: Tensor, y: Tensor) -> bool:
    assert_type(torch.equal(x, y), bool)
    assert_type(x.allclose(y, rtol=1e-3), bool)
    assert_type(torch.isclose(x, y), Tensor)
    return torch.is_tensor(x) and x.is_floating_point() and not torch.equal(x, y)


def split_and_join(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=1)
    parts = torch.split(x, [1, 1], dim=0)
    rows = [row * 2 for row in x.unbind(0)]
    return torch.cat([torch.stack(rows), *parts], dim=0) + first.sum() + torch.hstack((second, second)).sum()


class Squares(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor([float(index)]), index ** 2


def load_data() -> int:
    train, test = random_split(Squares(), [8, 2], generator=torch.Generator().manual_seed(0))
    assert_type(train, Subset[tuple[Tensor, int]])
    n = 0
    for x, y in DataLoader(train, batch_size=4, shuffle=True, drop_last=False):
        n += len(x) + int(y.sum())
    features, labels = TensorDataset(torch.ones(3, 2), torch.zeros(3))[0]
    return n + test[0][1] + features.numel() + labels.numel()


class Counting(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def iterate_over_a_stream() -> int:
    return sum(int(batch.sum()) for batch in DataLoader(Counting(), batch_size=2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("mask", torch.triu(torch.ones(4, 4, dtype=torch.bool), diagonal=1))

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C)
        y, weights = self.attention(x, x, x, attn_mask=self.mask, need_weights=False)
        assert_type(weights, Tensor | None)
        return x + self.scale * self.norm(y)


def attend() -> Tensor:
    blocks = nn.ModuleList([Block(8, 2) for _ in range(2)])
    x = torch.randn(2, 4, 8)
    for block in blocks:
        x = block(x)
    q = k = v = x.view(2, 4, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def run_recurrent_layers() -> Tensor:
    lstm, gru = nn.LSTM(3, 4, num_layers=2, batch_first=True), nn.GRU(3, 4)
    y, (h, c) = lstm(torch.randn(2, 5, 3))
    z, hidden = gru(torch.randn(5, 2, 3))
    assert_type(c, Tensor)
    return y.sum() + h.sum() + z.sum() + hidden.sum()


def convolve() -> Tensor:
    net = nn.Sequential(nn.Conv2d(3, 4, kernel_size=3, padding="same"), nn.BatchNorm2d(4), nn.MaxPool2d((2, 2)), nn.Flatten(1))
    net.train(False).to("cpu").eval()
    with torch.no_grad():
        return F.pad(F.relu(net(torch.randn(1, 3, 8, 8))), (1, 1), value=0.5)


@torch.no_grad()
def without_gradients(x: Tensor) -> Tensor:
    return x * 2


def differentiate() -> Tensor:
    x = torch.ones(3, requires_grad=True)
    (g,) = torch.autograd.grad((x ** 3).sum(), x)
    assert_type(without_gradients(x), Tensor)
    y = (x * g).sum()
    y.backward()
    assert x.grad is not None
    return x.grad + g


def schedule() -> list[float]:
    optimizer = optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedulers = [StepLR(optimizer, step_size=2, gamma=0.5), CosineAnnealingLR(optimizer, T_max=10),
                  LambdaLR(optimizer, lambda epoch: 0.9 ** epoch)]
    optimizer.step()
    for scheduler in schedulers:
        scheduler.step()
    return schedulers[0].get_last_lr()


def sample() -> Tensor:
    p, q = Normal(torch.zeros(2), torch.ones(2)), Normal(0.5, scale=2.0)
    action = Categorical(logits=torch.randn(3, 4)).sample()
    assert_type(p.rsample((3,)), Tensor)
    return p.log_prob(p.sample()) + kl_divergence(p, q) + action.sum() + p.mean + q.entropy()


def solve() -> Tensor:
    a = torch.eye(3, dtype=torch.float64) * 2
    u, s, vh = torch.linalg.svd(a)
    q, r = torch.linalg.qr(a)
    assert_type(torch.linalg.slogdet(a).logabsdet, Tensor)
    return torch.linalg.solve(a, torch.ones(3, dtype=torch.float64)) + torch.linalg.norm(u @ torch.diag(s) @ vh - q @ r)


def transform_signals(x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x, n=8, norm="ortho")
    return torch.fft.irfft(spectrum, n=8) * torch.signal.windows.hann(8) + torch.special.expit(x.abs().sum())


def save_and_load(path: str) -> list[str]:
    net = Net(2, 2)
    torch.save(net.state_dict(), path)
    result = net.load_state_dict(torch.load(path), strict=True)
    for name, parameter in net.named_parameters():
        assert_type(name, str)
        assert_type(parameter, nn.Parameter)
    keys: list[str] = result.missing_keys
    return keys


def compose(functions: list[Callable[[Tensor], Tensor]]) -> Callable[[Tensor], Tensor]:
    def composed(x: Tensor) -> Tensor:
        for function in functions:
            x = function(x)
        return x
    return composed


def pass_functions() -> Tensor:
    f = compose([torch.sin, F.gelu, nn.Tanh(), Tensor.abs, lambda x: x.clamp(min=0.0, max=1)])
    return f(torch.linspace(0, math.pi, 5))


def use_arrays() -> Tensor:
    x = cotan.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert_type(cotan.sum(x, axis=0), Tensor)
    assert_type(cotan.linalg.inv(x), Tensor)
    return cotan.where(x > 2, x, cotan.zeros((2, 2))) + cotan.concat([x, x], axis=0)[:2]


def index_and_cast(x: Tensor) -> float:
    x = x.clone().to(torch.float64).masked_fill(x < 0, 0)
    x[0] = 1
    x[x > 3] = torch.tensor(0.0, dtype=torch.float64)
    y = x.gather(0, torch.zeros(1, 2, dtype=torch.int64)).float().detach().cpu()
    return float(y[0, 0]) + y.long().double().sum().item()


def run(path: str) -> None:
    x = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
    train_a_network()
    use_arithmetic()
    ask_for_shapes(x)
    reduce_tensors(x)
    compare(x, x)
    split_and_join(x)
    load_data()
    iterate_over_a_stream()
    attend()
    run_recurrent_layers()
    convolve()
    differentiate()
    schedule()
    sample()
    solve()
    transform_signals(torch.ones(8))
    save_and_load(path)
    pass_functions()
    use_arrays()
    index_and_cast(x)
