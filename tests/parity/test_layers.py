"""Convolutions, pooling and norms by channels against PyTorch, in f64 and f32: values, and gradients of all operands.

Random configurations of a fixed seed; COTAN_PARITY_DEVICES (default "cpu ref") chooses the devices. On cpu the same is asked
for with COTAN_FUSE=0, which must give the same bits.
"""
import os
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ops"))
from op_cases import Case, Failure, read_table, run  # noqa: E402

F = torch.nn.functional
SEED, EACH = 20261123, 14
DEVICES = os.environ.get("COTAN_PARITY_DEVICES", "cpu ref").split()


class Draw:
    """One configuration: its operands, the op's attributes, and what PyTorch makes of it."""

    def __init__(self, rng, rank):
        self.rng, self.n = rng, rank

    def few(self, low, high):
        return [int(v) for v in self.rng.integers(low, high + 1, self.n)]

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def x(self, *shape):
        return self.rng.normal(size=shape)

    def sizes(self, kernel, dilation, most=9):
        return [(k - 1) * d + 1 + int(self.rng.integers(0, most)) for k, d in zip(kernel, dilation)]

    def conv(self):
        kernel, dilation, groups = self.few(1, 4), self.few(1, 2), self.pick([1, 2, 3])
        c, o = groups * self.pick([1, 1, 2, 4]), groups * self.pick([1, 2, 5])
        w, bias = self.x(o, c // groups, *kernel), [self.x(o)] if self.pick([0, 1]) else []
        x = self.x(self.pick([1, 2, 3]), c, *self.sizes(kernel, dilation, 7))
        attrs = {"dilation": dilation, "groups": groups, "present": len(bias)}
        own = {"dilation": dilation, "groups": groups}
        if self.pick([0, 0, 1]):
            attrs, own = attrs | {"same": True}, own | {"padding": "same"}
        else:
            both = {"stride": self.few(1, 3), "padding": self.few(0, 2)}
            attrs, own = attrs | both, own | both
        f = (F.conv1d, F.conv2d, F.conv3d)[self.n - 1]
        return "conv", [x, w, *bias], attrs, lambda x, w, b=None: [f(x, w, b, **own)]

    def conv_transpose(self):
        kernel, dilation, stride, groups = self.few(1, 4), self.few(1, 2), self.few(1, 3), self.pick([1, 2])
        if self.pick([0, 0, 1]):  # more phases than are computed apart
            most = {1: 150, 2: 20, 3: 10}[self.n]
            kernel, dilation, stride = self.few(1, most), [1] * self.n, self.few({1: 65, 2: 9, 3: 5}[self.n], most // 2 + 3)
        c, o = groups * self.pick([1, 2, 3]), groups * self.pick([1, 2, 4])
        w, bias = self.x(c, o // groups, *kernel), [self.x(o)] if self.pick([0, 1]) else []
        more = [int(self.rng.integers(0, max(s, d))) for s, d in zip(stride, dilation)]
        padding = [int(self.rng.integers(0, (k - 1) * d + 1)) for k, d in zip(kernel, dilation)]
        x = self.x(self.pick([1, 2]), c, *self.sizes(kernel, dilation, 4))
        own = {"stride": stride, "padding": padding, "output_padding": more, "groups": groups, "dilation": dilation}
        f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.n - 1]
        return "conv_transpose", [x, w, *bias], own | {"present": len(bias)}, lambda x, w, b=None: [f(x, w, b, **own)]

    def pool_options(self, dilated):
        kernel = self.few(1, 4)
        dilation = self.few(1, 2) if dilated else [1] * self.n
        padding = [int(self.rng.integers(0, k // 2 + 1)) for k in kernel]
        x = self.x(2, self.pick([1, 3]), *self.sizes(kernel, dilation))
        options = {"kernel": kernel, "stride": self.few(1, 3), "padding": padding, "ceil_mode": bool(self.pick([0, 1]))}
        return x, options, dilation

    def max_pool(self):
        x, own, dilation = self.pool_options(True)
        if self.pick([0, 1]):
            x = np.round(x)  # many equals
        f = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self.n - 1]
        return "max_pool", [x], own | {"dilation": dilation}, lambda x: [
            f(x, own["kernel"], own["stride"], own["padding"], dilation, ceil_mode=own["ceil_mode"])]

    def max_pool_indices(self):
        x, own, dilation = self.pool_options(True)
        f = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self.n - 1]
        return "max_pool_indices", [np.round(x)], own | {"dilation": dilation}, lambda x: [
            f(x, own["kernel"], own["stride"], own["padding"], dilation, ceil_mode=own["ceil_mode"], return_indices=True)[1]]

    def avg_pool(self):
        x, own, _ = self.pool_options(False)
        divisor = self.pick([None, None, 3]) if self.n > 1 else None
        more = {"exclude_padding": bool(self.pick([0, 1])), "divisor": divisor}
        f = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[self.n - 1]
        given = {"divisor_override": divisor} if self.n > 1 else {}
        return "avg_pool", [x], own | more, lambda x: [
            f(x, own["kernel"], own["stride"], own["padding"], own["ceil_mode"], not more["exclude_padding"], **given)]

    def lp_pool(self):
        x, own, _ = self.pool_options(False)
        del own["padding"]
        power, f = self.pick([1, 2, 3]), (F.lp_pool1d, F.lp_pool2d)[self.n - 1]
        kernel, stride = (own["kernel"], own["stride"]) if self.n > 1 else (own["kernel"][0], own["stride"][0])
        return "lp_pool", [np.abs(x) + 0.1], own | {"power": power}, lambda x: [f(x, power, kernel, stride, own["ceil_mode"])]

    def adaptive(self, kind):
        x, output = self.x(2, 3, *self.few(1, 9)), self.few(1, 6)
        if self.pick([0, 1]):
            output = [self.pick([d for d in range(1, s + 1) if s % d == 0]) for s in x.shape[2:]]
        if kind == "max":
            x = np.round(x)
        f = getattr(F, f"adaptive_{kind}_pool{self.n}d")
        return f"adaptive_{kind}_pool", [x], {"output": output}, lambda x: [f(x, output if self.n > 1 else output[0])]

    def adaptive_max_pool(self):
        return self.adaptive("max")

    def adaptive_avg_pool(self):
        return self.adaptive("avg")

    def rows(self, c):
        present = self.pick([0, 1, 2, 3])
        return present, [self.x(c) for bit in (1, 2) if present & bit]

    def group_norm(self):
        groups = self.pick([1, 2, 3])
        c, eps = groups * self.pick([1, 2, 4]), self.pick([1e-5, 0.1])
        present, rows = self.rows(c)
        def f(x, *rest):
            w, b = weight_and_bias(present, rest)
            y = F.group_norm(x, groups, None, None, eps)  # PyTorch 1.13 has no gradient of it with one of them alone
            along = (-1, *[1] * (x.ndim - 2))
            y = y if w is None else y * w.reshape(along)
            return [y if b is None else y + b.reshape(along)]
        return "group_norm", [self.x(2, c, *self.few(2, 5)), *rows], {"groups": groups, "eps": eps, "present": present}, f

    def instance_norm(self):
        c = self.pick([1, 3])
        present, rows = self.rows(c)
        def f(x, *rest):
            w, b = weight_and_bias(present, rest)
            return [F.instance_norm(x, None, None, w, b)]
        return "instance_norm", [self.x(2, c, *self.few(2, 5)), *rows], {"present": present}, f

    def running(self, train):
        c, eps, momentum = self.pick([1, 3]), self.pick([1e-5, 0.1]), self.pick([0.1, 0.3])
        present, rows = self.rows(c)
        operands = [self.x(3, c, *self.few(1, 4)), self.x(c), np.abs(self.x(c)) + 0.5, *rows]
        def f(x, mean, var, *rest):
            w, b = weight_and_bias(present, rest)
            kept = [mean.detach().clone(), var.detach().clone()]  # PyTorch has no gradients of them
            return [F.batch_norm(x, *kept, w, b, train, momentum, eps), *(kept if train else [])]
        attrs = {"eps": eps, "present": present}
        return ("batch_norm_train", operands, attrs | {"momentum": momentum}, f) if train else ("batch_norm", operands, attrs, f)

    def batch_norm(self):
        return self.running(False)

    def batch_norm_train(self):
        return self.running(True)


def weight_and_bias(present, rest):
    rest = list(rest)
    return rest.pop(0) if present & 1 else None, rest.pop(0) if present & 2 else None


KINDS = ["conv", "conv_transpose", "max_pool", "max_pool_indices", "avg_pool", "lp_pool", "adaptive_max_pool", "adaptive_avg_pool",
         "group_norm", "instance_norm", "batch_norm", "batch_norm_train"]


def configurations(kind):
    rng, ranks = np.random.default_rng([SEED, KINDS.index(kind)]), 2 if kind == "lp_pool" else 3
    return [getattr(Draw(rng, 1 + i % ranks), kind)() for i in range(EACH if "conv" in kind else EACH // 2 + 1)]


def slopes(f, operands, weights):
    """What the results are, and the gradients of sum(w (y + y y / 2)) over those that have any."""
    x = [torch.tensor(o, requires_grad=True) for o in operands]
    outs = f(*x)
    loss = sum((torch.tensor(w) * (y + y * y / 2)).sum() for y, w in zip(outs, weights) if y.requires_grad)
    if torch.is_tensor(loss):
        loss.backward()
    return [y.detach().numpy() for y in outs], [t.grad.numpy() if t.grad is not None else np.zeros(t.shape) for t in x]


def near(got, want, tolerance):
    scale = np.abs(want).max(initial=1)
    return got.shape == want.shape and np.allclose(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_like_pytorch(kind, device):
    table, rng = read_table(), np.random.default_rng(SEED)
    doubles, singles, wants = [], [], []
    for name, operands, attrs, f in configurations(kind):
        shapes = [y.shape for y in f(*map(torch.tensor, operands))]
        weights = [rng.normal(size=s) for s in shapes]
        if name == "batch_norm_train":  # running statistics are no part of PyTorch's loss
            weights[1:] = [np.zeros(s) for s in shapes[1:]]
        wants.append(slopes(f, operands, weights))
        if name == "max_pool_indices":
            weights = None
        elif name == "max_pool":  # the taps are no floats
            weights.append(np.zeros(0))
        directions = [np.zeros_like(o) for o in operands]
        doubles.append(Case(table[name], operands, attrs, weights, directions, again=False))
        singles.append(Case(table[name], [o.astype(np.float32) for o in operands], attrs))
    wrong, results = [], run(doubles, device)
    for case, (values, grads), got, single in zip(doubles, wants, results, run(singles, device)):
        n = len(values) + (kind == "max_pool")
        ok = not isinstance(got, Failure) and not isinstance(single, Failure)
        ok = ok and all(near(a, b, 1e-9) for a, b in zip(got, values)) and all(near(a, b, 1e-4) for a, b in zip(single, values))
        if ok and case.weights is not None:
            compared = [i for i in range(len(grads)) if i not in (1, 2) or not kind.startswith("batch_norm")]
            ok = len(got) == n + 2 + len(grads) and all(near(got[n + 2 + i], grads[i], 1e-9) for i in compared)
        if not ok:
            wrong.append(f"{case}: {got if isinstance(got, Failure) else ''}")
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(doubles)}\n" + "\n".join(wrong)
    if device != "ref":
        for case, a, b in zip(doubles, results, run(doubles, device, COTAN_FUSE="0")):
            assert all(x.tobytes() == y.tobytes() for x, y in zip(a, b)), f"{case} differs with COTAN_FUSE=0"
