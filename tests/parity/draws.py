"""Runs a program with the random numbers that PyTorch drew in it.

    python draws.py record FILE program.py [argument ...]    under PyTorch: FILE keeps what the program drew
    python draws.py replay FILE program.py [argument ...]    under cotan.torch: it draws these numbers

Both runs must draw in the same order, the same kinds and shapes; a sentence says where they do not.
"""
import contextlib
import functools
import runpy
import sys

import numpy as np

# Functions that draw, by what they draw: what one side draws by another function of the same kind matches.
KINDS = {"uniform": "rand rand_like", "normal": "randn randn_like normal", "integers": "randint randint_like", "order": "randperm",
         "bernoulli": "bernoulli", "multinomial": "multinomial", "poisson": "poisson", "binomial": "binomial"}
METHODS = {"uniform": "uniform_", "normal": "normal_", "integers": "random_", "bernoulli": "bernoulli_ bernoulli",
           "multinomial": "multinomial", "exponential": "exponential_", "geometric": "geometric_", "cauchy": "cauchy_",
           "log_normal": "log_normal_"}
INNER = {"uniform": "uniform", "normal": "gaussian", "integers": "randint", "order": "randperm", "bernoulli": "bernoulli",
         "multinomial": "multinomial"}  # of cotan._random
INIT = """uniform_ normal_ trunc_normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ sparse_"""
LAYERS = """Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Embedding EmbeddingBag RNN LSTM GRU
RNNCell LSTMCell GRUCell MultiheadAttention Transformer"""


class Record:
    """Writes draws to a file."""

    def __init__(self, path):
        self.file = open(path, "wb")

    def draw(self, kind, tensor):
        value = tensor.detach()
        np.save(self.file, np.array(kind))
        np.save(self.file, (value.double() if value.is_floating_point() else value).cpu().numpy())

    def close(self):
        self.file.close()


class Replay:
    """Writes the draws of a file to tensors."""

    def __init__(self, path):
        self.file, self.count = open(path, "rb"), 0

    def draw(self, kind, tensor):
        try:
            expected, value = np.load(self.file).item(), np.load(self.file)
        except EOFError:
            raise SystemExit(f"draws: the program draws {kind} {tuple(tensor.shape)}, "
                             f"PyTorch drew {self.count} times only") from None
        if (kind, tuple(tensor.shape)) != (expected, value.shape):
            raise RuntimeError(f"draws: draw {self.count} is {kind} {tuple(tensor.shape)}, PyTorch's is {expected} {value.shape}")
        self.count += 1
        with torch.no_grad():
            tensor.detach().copy_(torch.as_tensor(value))

    def close(self):
        with contextlib.suppress(EOFError):
            kind, value = np.load(self.file).item(), np.load(self.file)
            print(f"draws: PyTorch draws {kind} {value.shape} after the program's {self.count} draws", file=sys.stderr)


class Draws:
    """Replaces what draws: the outermost of these functions draws, those that it calls do not."""

    def __init__(self, tape):
        self.tape, self.depth = tape, 0

    @contextlib.contextmanager
    def inside(self):
        self.depth += 1
        try:
            yield self.depth == 1
        finally:
            self.depth -= 1

    def whole(self, function, kind, taken=lambda result, args: [("", result)]):
        """Returns the function, whose drawn tensors are those of the tape."""
        @functools.wraps(function)
        def drawn(*args, **options):
            with self.inside() as outermost:
                result = function(*args, **options)
                for name, tensor in taken(result, args) if outermost else ():
                    # Where a data loader seeds itself, PyTorch alone draws.
                    if tensor.numel() and not (function.__name__ == "random_" and not tensor.ndim):
                        self.tape.draw(kind + name, tensor)
            return result
        return drawn

    def mask(self, shape, p, like):
        """Returns ones with the probability 1 - p, else zeros."""
        with self.inside() as outermost, torch.no_grad():
            mask = torch.full(shape, 1.0 - p, dtype=torch.float32).bernoulli()
            if outermost:
                self.tape.draw("mask", mask)
        return mask.to(like.dtype)

    def dropout(self, function, axes=None):
        """Returns dropout whose mask is a draw, of whole slices over all axes from `axes` on."""
        @functools.wraps(function)
        def dropout(input, p=0.5, training=True, inplace=False):
            if not training or not 0 < p < 1:
                return function(input, p, training, inplace)
            unbatched = axes == 2 and input.ndim < dropout.full
            kept = tuple(input.shape[:axes and axes - unbatched])
            scale = self.mask(kept + (1,) * (input.ndim - len(kept)), p, input) / (1 - p)
            return input.mul_(scale) if inplace else input * scale
        dropout.full = {"dropout1d": 3, "dropout2d": 4, "dropout3d": 5}.get(function.__name__, 0)
        return dropout

    def attention(self, function):
        """Returns scaled_dot_product_attention, whose dropout draws a mask."""
        @functools.wraps(function)
        def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
            if not dropout_p:
                return function(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
            scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
            if is_causal:
                attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            if attn_mask is not None:
                scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
            return torch.nn.functional.dropout(scores.softmax(-1), dropout_p) @ value
        return attention


def replace(function, new):
    """Puts a function in the place of another in all modules that have it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("torch", "cotan"):
            for attribute in [key for key, value in list(vars(module).items()) if value is function]:
                setattr(module, attribute, new)


def indices(self):
    """Yields a RandomSampler's indices. PyTorch's own draws once more when it has given all."""
    if self.replacement:
        raise NotImplementedError("draws: RandomSampler(replacement=True) draws in other portions than PyTorch's")
    left = self.num_samples
    while left > 0:
        yield from torch.randperm(len(self.data_source)).tolist()[:left]
        left -= len(self.data_source)


def parameters(result, args):
    uninitialized = torch.nn.parameter.UninitializedParameter
    return [("." + name, p) for name, p in args[0].named_parameters() if not isinstance(p, uninitialized)]


def install(tape):
    """Makes all that draws in torch draw from the tape."""
    draws, functional, init = Draws(tape), torch.nn.functional, torch.nn.init
    for kind, names in KINDS.items():
        for name in names.split():
            replace(getattr(torch, name), draws.whole(getattr(torch, name), kind))
    for kind, names in METHODS.items():
        for name in names.split():
            setattr(torch.Tensor, name, draws.whole(getattr(torch.Tensor, name), kind))
    for name in INIT.split():
        replace(getattr(init, name), draws.whole(getattr(init, name), "init"))
    for layer in (getattr(torch.nn, name) for name in LAYERS.split()):
        for name in ("__init__", "reset_parameters"):
            if hasattr(layer, name):
                setattr(layer, name, draws.whole(getattr(layer, name), layer.__name__, parameters))
    for name, axes in (("dropout", None), ("dropout1d", 2), ("dropout2d", 2), ("dropout3d", 2)):
        replace(getattr(functional, name), draws.dropout(getattr(functional, name), axes))
    torch.utils.data.RandomSampler.__iter__ = indices
    torch.dropout = lambda input, p, train: functional.dropout(input, p, train)
    replace(functional.scaled_dot_product_attention, draws.attention(functional.scaled_dot_product_attention))
    if "cotan" in sys.modules:
        inner = sys.modules["cotan._random"]
        for kind, name in INNER.items():
            replace(getattr(inner, name), draws.whole(getattr(inner, name), kind))


def main(mode, path, program, *args):
    global torch
    if mode == "replay":
        import cotan.torch
        cotan.torch.install()
    import torch
    tape = {"record": Record, "replay": Replay}[mode](path)
    install(tape)
    sys.argv, sys.path[0] = [program, *args], program.rpartition("/")[0]
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        tape.close()
        if mode == "replay":
            cotan.torch._modules.report()


if __name__ == "__main__":
    main(*sys.argv[1:])
