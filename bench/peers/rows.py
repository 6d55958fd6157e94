"""The benchmarks of build/bench/rows as the peers compute them: the same cases, on the same numbers.

A case has a name, its operands, and a function for each library that can do it; where it has one for NumPy, tests
compare Cotan's program with it.
"""
import math
from dataclasses import dataclass, field
from typing import Callable, Optional

import numpy as np

from peers.programs import operands, programs


def hashed(seed, dims):
    """24 bits that look random, as bench/rows_numbers.c makes them."""
    u = np.arange(math.prod(dims), dtype=np.uint32) * np.uint32(2654435761)
    u += np.uint32(seed * 2246822519 % 2**32)
    u = (u ^ (u >> np.uint32(15))) * np.uint32(2246822519)
    return ((u ^ (u >> np.uint32(13))) >> np.uint32(8)).reshape(dims)


def numbers(seed, *dims):
    return np.float32(0.1) + np.float32(0.8) * (hashed(seed, dims).astype(np.float32) / np.float32(1 << 24))


def integers(seed, below, dtype, *dims):
    return (hashed(seed, dims) % np.uint32(below)).astype(dtype)


def moments(result):
    """Mean and mean square, by which results of different libraries are compared."""
    x = np.asarray(result, dtype=np.float64)
    return [float(x.mean()), float(np.square(x).mean())]


def same_moments(ours, theirs, tolerance):
    """What is added up in another order differs by a part of what was added, not of the sum."""
    scale = math.sqrt(ours[1])
    return abs(ours[0] - theirs[0]) <= tolerance * scale and abs(ours[1] - theirs[1]) <= 2 * tolerance * ours[1]


@dataclass
class Case:
    name: str
    inputs: Callable
    numpy: Optional[Callable] = None
    torch: Optional[Callable] = None  # of the module and the operands
    jax: Optional[Callable] = None
    onnx: Optional[Callable] = None   # of onnx.helper: nodes from in0, in1 ... to out
    wrt: tuple = ()                   # a gradient with respect to these operands,
    cotangent: int = 1                # where this one comes back
    sgd: Optional[tuple] = None       # a step of training the operands of wrt: learning rate and momentum
    program: Optional[Callable] = None  # of torch or cotan, and whether it is compiled: (run, read)
    vmapped: Optional[Callable] = None  # of jax: the same
    eager: bool = False               # no other way is asked about
    constants: range = range(0)       # operands that a graph of ONNX has inside
    product: Optional[tuple] = None   # of a matrix product: M, K, N, the form, how many
    tolerance: float = 1e-4           # relative, of the moments


@dataclass
class Row:
    cases: Callable  # of the options
    peers: list = field(default_factory=lambda: ["PyTorch", "PyTorch compiled", "JAX"])


# ----------------------------------------------------------------------------------------- matmul

def product(m, k, n, form):
    sizes = {"forward": (m * k, m * n), "dx": (m * n, m * k), "dw": (m * k, k * n)}[form]  # left operand, result
    times = int(min(512e6 / (sum(sizes) * 4), 5e10 / (2.0 * m * k * n), 100)) or 1
    left, right = {"forward": ((m, k), (k, n)), "dx": ((m, n), (k, n)), "dw": ((m, k), (m, n))}[form]

    def inputs():
        return [numbers(1, *right)] + [numbers(i + 2, *left) for i in range(times)]

    def turned(right, left):
        return (left, right) if form == "forward" else (left, right.T) if form == "dx" else (left.T, right)

    def numpy(right, *lefts):
        return [np.matmul(*turned(right, left)) for left in lefts]

    return Case(f"{m}x{k}x{n} {form}", inputs, numpy, product=(m, k, n, form, times))


FORMS = ("forward", "dx", "dw")


def matmul(options):
    if options.get("m"):
        return [product(int(options["m"]), int(options["k"]), int(options["n"]), form) for form in FORMS]
    layers = [(768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50257)]
    return ([product(m, k, n, form) for m in (256, 1024) for k, n in layers for form in FORMS] +
            [product(2**i, 2**i, 2**i, "forward") for i in range(6, 13)])


# -------------------------------------------------------------------------- rows bound by memory

def rows_of(rows, columns):
    def inputs():
        return [numbers(1, rows, columns), numbers(2, rows, columns), numbers(3, columns), numbers(4, columns)]
    return inputs


def norm_jax(jax, x, weight, bias=None):
    jnp = jax.numpy
    y = x - x.mean(-1, keepdims=True) if bias is not None else x
    y = y * jax.lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + 1e-5) * weight
    return y if bias is None else y + bias


def norms(options):
    inputs = rows_of(16384, 768)
    layer = dict(torch=lambda t, x, dy, w, b: t.nn.functional.layer_norm(x, (768,), w, b),
                 jax=lambda j, x, dy, w, b: norm_jax(j, x, w, b))
    rms = dict(torch=lambda t, x, dy, w, b: t.nn.functional.rms_norm(x, (768,), w, eps=1e-5),
               jax=lambda j, x, dy, w, b: norm_jax(j, x, w))
    return [Case("layer_norm", inputs, **layer, onnx=lambda h: [
                h.make_node("LayerNormalization", ["in0", "in2", "in3"], ["out"], axis=-1, epsilon=1e-5)]),
            Case("layer_norm_grad", inputs, **layer, wrt=(0, 2, 3)),
            Case("rms_norm", inputs, **rms), Case("rms_norm_grad", inputs, **rms, wrt=(0, 2))]


def softmax(options):
    inputs = rows_of(16384, 1024)
    functions = dict(torch=lambda t, x, *_: t.softmax(x, -1), jax=lambda j, x, *_: j.nn.softmax(x, -1))
    return [Case("softmax", inputs, **functions, onnx=lambda h: [h.make_node("Softmax", ["in0"], ["out"], axis=-1)]),
            Case("softmax_grad", inputs, **functions, wrt=(0,))]


def gelu(options):
    inputs = rows_of(16384, 1024)
    cases = []
    for name, how, approximate in (("gelu", "tanh", True), ("gelu_erf", "none", False)):
        functions = dict(torch=lambda t, x, *_, how=how: t.nn.functional.gelu(x, approximate=how),
                         jax=lambda j, x, *_, a=approximate: j.nn.gelu(x, approximate=a))
        node = dict(onnx=lambda h, how=how: [h.make_node("Gelu", ["in0"], ["out"], approximate=how)])
        cases += [Case(name, inputs, **functions, **node), Case(f"{name}_grad", inputs, **functions, wrt=(0,))]
    return cases


def cross_entropy(options):
    def inputs():
        return [numbers(1, 1024, 50257), (np.arange(1024) * 7919 % 50257).astype(np.int64)]

    def jax(j, x, targets):
        rows = j.numpy.arange(x.shape[0])
        return (j.nn.logsumexp(x, -1) - x[rows, targets]).mean()

    functions = dict(torch=lambda t, x, targets: t.nn.functional.cross_entropy(x, targets), jax=jax)
    return [Case("cross_entropy", inputs, **functions),
            Case("cross_entropy_grad", inputs, **functions, wrt=(0,), cotangent=-1)]


def linear_cross_entropy(options):
    """With all logits; and in blocks, for which PyTorch has options and JAX a scan that it would have to be written as."""
    cases = []
    for rows, width, classes in ((2048, 768, 131072), (1024, 768, 50257)):
        def inputs(rows=rows, width=width, classes=classes):
            return [numbers(1, rows, width), numbers(2, classes, width), (np.arange(rows) * 7919 % classes).astype(np.int64)]

        def jax(j, x, weight, targets):
            logits = x @ weight.T
            return (j.nn.logsumexp(logits, -1) - logits[j.numpy.arange(x.shape[0]), targets]).mean()

        def chunked(t, x, weight, targets):
            return t.nn.functional.linear_cross_entropy(x, weight, targets, options=t.nn.LinearCrossEntropyOptions())

        name = f"{rows}x{width}x{classes}"
        cases += [Case(f"{name} with logits", inputs, wrt=(0, 1), cotangent=-1, jax=jax,
                       torch=lambda t, x, weight, targets: t.nn.functional.cross_entropy(x @ weight.T, targets)),
                  Case(f"{name} in blocks", inputs, wrt=(0, 1), cotangent=-1, torch=chunked, eager=True)]
    return cases


FORMATS = ("f32", "bf16", "bf16 (K, N)", "int8", "int8 by 32", "int4 by 32", "int4 by 128", "mxfp4", "int8 dequantised",
           "int4 by 32 dequantised", "mxfp4 dequantised")


def rows_of_formats(counts, k, n, formats):
    """Of the formats that libraries have for it: f32."""
    cases = []
    for rows in counts:
        for name in formats:
            def inputs(rows=rows, name=name):
                return [numbers(2, rows, k), numbers(1, *((k, n) if "(K, N)" in name else (n, k)))]

            def torch(t, x, w):
                return t.nn.functional.linear(x, w)
            cases.append(Case(f"{rows} {name}", inputs, torch=torch if name == "f32" else None,
                              jax=(lambda j, x, w: x @ w.T) if name == "f32" else None))
    return cases


def small_m(options):
    return rows_of_formats((1, 4, 16), 4096, 32768, FORMATS)


def large_m(options):
    return rows_of_formats((512,), 4096, 4096, [name for name in FORMATS if "(K, N)" not in name])


def attention(options):
    """The function that a library has for it; of "written out" the products, whatever a compiler makes of them."""
    cases = []
    for heads, length in ((12, 256), (12, 1024), (4, 4096)):
        def inputs(heads=heads, length=length):
            return [numbers(i, 1, heads, length, 64) for i in range(3)]

        for causal in (False, True):
            def torch(t, q, k, v, causal=causal):
                return t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

            def jax(j, q, k, v, causal=causal):
                q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
                return j.nn.dot_product_attention(q, k, v, is_causal=causal).swapaxes(1, 2)

            def written_torch(t, q, k, v):
                scores = (q @ k.transpose(-2, -1)) * 0.125
                hidden = t.ones(q.shape[-2], q.shape[-2], dtype=t.bool).triu(1)
                return scores.masked_fill(hidden, -float("inf")).softmax(-1) @ v

            def written_jax(j, q, k, v):
                i = j.numpy.arange(q.shape[-2])
                scores = j.numpy.where(i <= i[:, None], (q @ k.swapaxes(-2, -1)) * 0.125, -j.numpy.inf)
                return j.nn.softmax(scores, -1) @ v
            name = f"{heads}x{length}x64" + " causal" * causal
            ways = [(name, torch, jax)]
            if causal and length == 1024:
                ways.append((f"{name} written out", written_torch, written_jax))
            for name, of_torch, of_jax in ways:
                cases += [Case(name, inputs, torch=of_torch, jax=of_jax),
                          Case(f"{name} with gradients", inputs, wrt=(0, 1, 2), cotangent=-1,
                               torch=lambda *a, f=of_torch: f(*a).square().sum(), jax=lambda *a, f=of_jax: (f(*a) ** 2).sum())]
    return cases


def rotary(options):
    def inputs():
        return [numbers(1, 8, 12, 1024, 64), numbers(1, 1024, 32), numbers(2, 1024, 32)]

    def turned(join):
        def rotate(x, c, s):
            a, b = x[..., :32], x[..., 32:]
            return join([a * c - b * s, b * c + a * s])
        return rotate

    return [Case("rotary", inputs, turned(lambda halves: np.concatenate(halves, -1)),
                 torch=lambda t, *of: turned(lambda halves: t.cat(halves, -1))(*of),
                 jax=lambda j, *of: turned(lambda halves: j.numpy.concatenate(halves, -1))(*of))]


def transposed_add(options):
    return [Case("transposed_add", rows_of(4096, 4096), lambda x, y, *_: x + y.T,
                 torch=lambda t, x, y, *_: x + y.t(), jax=lambda j, x, y, *_: x + y.T)]


def dropout(options):
    inputs = rows_of(16384, 1024)

    def jax(j, x, *_):
        kept = j.random.bernoulli(j.random.key(1337), 0.9, x.shape)
        return j.numpy.where(kept, x / 0.9, 0)

    functions = dict(torch=lambda t, x, *_: t.nn.functional.dropout(x, 0.1), jax=jax, tolerance=1e-2)
    return [Case("dropout", inputs, **functions), Case("dropout_grad", inputs, **functions, wrt=(0,), cotangent=-2)]


# -------------------------------------------------------------------------------------------- ops

def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def same(f):
    return (f, f, f)


def named(numpy, torch=None, jax=None):
    """A function of x that has these names in numpy, torch and jax.numpy."""
    return tuple(lambda lib, x, *_, name=name: getattr(lib, name)(x) for name in (numpy, torch or numpy, jax or numpy))


# Of NumPy, torch and jax: each gets the library (jax.numpy of JAX, but where jax itself is named), x, y, z and x < y.
OPS = {
    "add": same(lambda lib, x, y, z, m: x + y),
    "sub": same(lambda lib, x, y, z, m: x - y),
    "mul": same(lambda lib, x, y, z, m: x * y),
    "div": same(lambda lib, x, y, z, m: x / y),
    "maximum": same(lambda lib, x, y, z, m: lib.maximum(x, y)),
    "minimum": same(lambda lib, x, y, z, m: lib.minimum(x, y)),
    "pow": same(lambda lib, x, y, z, m: x ** y),
    "less": same(lambda lib, x, y, z, m: x < y),
    "select": same(lambda lib, x, y, z, m: lib.where(m, x, y)),
    "multiply_add": (lambda lib, x, y, z, m: x * y + z, lambda lib, x, y, z, m: lib.addcmul(z, x, y),
                     lambda lib, x, y, z, m: x * y + z),
    "neg": same(lambda lib, x, *_: -x),
    "abs": named("abs"),
    "floor": named("floor"),
    "round": named("round"),
    "square": named("square"),
    "sqrt": named("sqrt"),
    "rsqrt": (lambda lib, x, *_: 1 / np.sqrt(x), lambda lib, x, *_: lib.rsqrt(x), lambda lib, x, *_: 1 / lib.sqrt(x)),
    "reciprocal": named("reciprocal"),
    "exp": named("exp"),
    "log": named("log"),
    "expm1": named("expm1"),
    "log1p": named("log1p"),
    "sin": named("sin"),
    "cos": named("cos"),
    "tanh": named("tanh"),
    "erf": (lambda lib, x, *_: erf(x), lambda lib, x, *_: lib.erf(x), lambda lib, x, *_: jax().scipy.special.erf(x)),
    "relu": (lambda lib, x, *_: np.maximum(x, 0), lambda lib, x, *_: lib.relu(x), lambda lib, x, *_: jax().nn.relu(x)),
    "sigmoid": (lambda lib, x, *_: sigmoid(x), lambda lib, x, *_: lib.sigmoid(x),
                lambda lib, x, *_: jax().nn.sigmoid(x)),
    "silu": (lambda lib, x, *_: x * sigmoid(x), lambda lib, x, *_: lib.nn.functional.silu(x),
             lambda lib, x, *_: jax().nn.silu(x)),
    "gelu": (lambda lib, x, *_: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
             lambda lib, x, *_: lib.nn.functional.gelu(x, approximate="tanh"), lambda lib, x, *_: jax().nn.gelu(x)),
    "clamp": (lambda lib, x, *_: np.clip(x, 0.2, 0.8), lambda lib, x, *_: lib.clamp(x, 0.2, 0.8),
              lambda lib, x, *_: lib.clip(x, 0.2, 0.8)),
    "to_bf16": (lambda lib, x, *_: x, lambda lib, x, *_: x.bfloat16(), lambda lib, x, *_: x.astype(lib.bfloat16)),
    "sum": same(lambda lib, x, *_: x.sum()),
    "max": same(lambda lib, x, *_: x.max()),
    "sum_rows": same(lambda lib, x, *_: x.sum(1)),
    "sum_columns": same(lambda lib, x, *_: x.sum(0)),
    "argmax_rows": same(lambda lib, x, *_: x.argmax(1)),
    "transpose": (lambda lib, x, *_: x.T.copy(), lambda lib, x, *_: x.t().contiguous(), lambda lib, x, *_: x.T),
    "concat": (lambda lib, x, y, *_: np.concatenate([x, y]), lambda lib, x, y, *_: lib.cat([x, y]),
               lambda lib, x, y, *_: lib.concatenate([x, y])),
    "cumsum_rows": same(lambda lib, x, *_: x.cumsum(1)),
}


def jax():
    import jax
    return jax


def ops(options):
    def inputs():
        x, y, z = (numbers(i, 1000, 1000) for i in (1, 2, 3))
        return [x, y, z, x < y]

    return [Case(name, inputs, lambda *of, f=f[0]: f(np, *of), torch=f[1], jax=lambda j, *of, f=f[2]: f(j.numpy, *of))
            for name, f in OPS.items()]


# ------------------------------------------------------------------------------- ordinary programs

def ordinary(options):
    def inputs(of):
        return [numbers(i + 1, *dims) if dtype == "f32" else integers(i + 1, below, {"u8": "u1", "i32": "i4"}[dtype], *dims)
                for i, (dtype, below, dims) in enumerate(of)]

    def case(name, of):
        tolerance = 1e-2 if "dropout" in name else 1e-4  # other random bits
        return Case(name, lambda: inputs(of), jax=lambda j, *x: programs(j)[name](*x), tolerance=tolerance)

    return [case(name, of) for name, of in operands().items()]


# ---------------------------------------------------------------------------- convolutions, pooling

CONVS = {  # images, channels in, size, channels out, kernel, stride, padding, and groups if there are several
    "small": (32, 16, 32, 32, 3, 1, 1), "cifar layer1": (64, 64, 32, 64, 3, 1, 1),
    "cifar layer2": (64, 128, 16, 128, 3, 1, 1), "cifar layer3": (64, 256, 8, 256, 3, 1, 1),
    "cifar layer4": (64, 512, 4, 512, 3, 1, 1), "cifar stride 2": (64, 64, 32, 128, 3, 2, 1),
    "stem 7x7": (1, 3, 224, 64, 7, 2, 3), "layer1 3x3": (1, 64, 56, 64, 3, 1, 1),
    "layer3 3x3": (1, 256, 14, 256, 3, 1, 1), "layer4 3x3": (1, 512, 7, 512, 3, 1, 1),
    "layer3 1x1": (1, 1024, 14, 256, 1, 1, 0), "depthwise 3x3": (8, 96, 56, 96, 3, 1, 1, 96),
    "depthwise 3x3 stride 2": (8, 96, 56, 96, 3, 2, 1, 96), "depthwise 7x7": (8, 96, 56, 96, 7, 1, 3, 96),
    "patches 16x16": (8, 3, 224, 192, 16, 16, 0),
}


def taps(x, n, k, stride):
    """Of a padded x: what each tap of the kernel sees, n x n."""
    return {(i, j): x[:, :, i:i + stride * (n - 1) + 1:stride, j:j + stride * (n - 1) + 1:stride]
            for i in range(k) for j in range(k)}


def conv_case(name, form, n, c, size, o, k, stride, padding, groups=1):
    out = (size + 2 * padding - k) // stride + 1
    sides = [(0, 0), (0, 0), (padding, padding), (padding, padding)]

    def inputs():
        return [numbers(1, n, c, size, size), numbers(2, o, c // groups, k, k), numbers(3, n, o, out, out)]

    def grouped(x):  # (N, groups, channels of one, H, H)
        return x.reshape(n, groups, -1, *x.shape[2:])

    def numpy(x, w, dy):
        x, w, dy = np.pad(x, sides), w.reshape(groups, o // groups, c // groups, k, k), grouped(dy)
        if form == "forward":
            return sum(np.einsum("ngchw,goc->ngohw", grouped(tap), w[..., i, j], optimize=True)
                       for (i, j), tap in taps(x, out, k, stride).items()).reshape(n, o, out, out)
        if form == "dw":
            dw = np.zeros_like(w)
            for (i, j), tap in taps(x, out, k, stride).items():
                dw[..., i, j] = np.einsum("ngchw,ngohw->goc", grouped(tap), dy, optimize=True)
            return dw.reshape(o, c // groups, k, k)
        dx = np.zeros_like(x)
        for (i, j), tap in taps(dx, out, k, stride).items():
            tap += np.einsum("ngohw,goc->ngchw", dy, w[..., i, j], optimize=True).reshape(tap.shape)
        return dx[:, :, padding:padding + size, padding:padding + size]

    def torch(t, x, w, dy):  # the gradient alone: autograd would compute what it does not need
        if form == "forward":
            return t.nn.functional.conv2d(x, w, stride=stride, padding=padding, groups=groups)
        wanted = [form == "dx", form == "dw", False]
        return t.ops.aten.convolution_backward(dy, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups,
                                               wanted)[form == "dw"]

    def jax(j, x, w, dy):
        def forward(x, w):
            return j.lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2,
                                              feature_group_count=groups)
        return forward(x, w) if form == "forward" else j.vjp(forward, x, w)[1](dy)[form == "dw"]

    onnx = dict(onnx=lambda h: [h.make_node("Conv", ["in0", "in1"], ["out"], strides=[stride] * 2, pads=[padding] * 4,
                                               group=groups)],
                constants=range(1, 2)) if form == "forward" else {}
    return Case(f"{name} {form}", inputs, numpy, torch, jax, **onnx)


def conv(options):
    return [conv_case(name, form, *shape) for name, shape in CONVS.items() for form in FORMS]


def pooling(options):
    def inputs():
        return [numbers(1, 16, 64, 112, 112), numbers(2, 16, 64, 56, 56)]

    def numpy(x, dy):
        x = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
        return np.max(list(taps(x, 56, 3, 2).values()), 0)

    def numpy_grad(x, dy):
        y, x = numpy(x, dy), np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
        dx = np.zeros_like(x)
        for at, tap in taps(dx, 56, 3, 2).items():
            tap += np.where(taps(x, 56, 3, 2)[at] == y, dy, 0)
        return dx[:, :, 1:-1, 1:-1]

    def jax(j, x, dy):
        return j.lax.reduce_window(x, -np.inf, j.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])

    functions = dict(torch=lambda t, x, dy: t.nn.functional.max_pool2d(x, 3, 2, 1), jax=jax)
    return [Case("max_pool", inputs, numpy, **functions, onnx=lambda h: [
                h.make_node("MaxPool", ["in0"], ["out"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)]),
            Case("max_pool_grad", inputs, numpy_grad, **functions, wrt=(0,))]


# ----------------------------------------------------------------------------------------- ResNets

def resnet(library, x, depth, small):
    """What `library` makes of convolutions with their norms, relus, sums, the pool and the last layer, in the order of
    torchvision's parameters."""
    x = library.relu(library.conv(x, 64, *((3, 1) if small else (7, 2))))
    x = x if small else library.pool(x)
    n_in = 64
    for stage, blocks in enumerate({18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]):
        inner, n_out = 64 << stage, (256 if depth == 50 else 64) << stage
        for i in range(blocks):
            stride = 2 if stage and not i else 1
            convs = [(inner, 1, 1), (inner, 3, stride), (n_out, 1, 1)] if depth == 50 else [(n_out, 3, stride), (n_out, 3, 1)]
            y = x
            for n, what in enumerate(convs):
                y = library.conv(library.relu(y) if n else y, *what)
            if stride != 1 or n_in != n_out:
                x = library.conv(x, n_out, 1, stride)
            x, n_in = library.relu(library.add(y, x)), n_out
    return library.last(x)


class Sizes:
    """A value is its channels and its size. Shapes of all parameters, and the multiply-adds."""

    def __init__(self, classes):
        self.classes, self.shapes, self.multiply_adds = classes, [], 0

    def conv(self, x, out, k, stride):
        self.shapes += [(out, x[0], k, k), (out,), (out,)]
        size = (x[1] - 1) // stride + 1
        self.multiply_adds += out * x[0] * k * k * size**2
        return out, size

    def last(self, x):
        self.shapes += [(self.classes, x[0]), (self.classes,)]
        self.multiply_adds += self.classes * x[0]
        return self

    def pool(self, x):
        return x[0], (x[1] - 1) // 2 + 1

    def relu(self, x):
        return x

    def add(self, x, y):
        return x


class InTorch:
    def __init__(self, torch, params, running, training):
        self.f, self.params, self.running, self.training = torch.nn.functional, iter(params), iter(running), training

    def conv(self, x, out, k, stride):
        x = self.f.conv2d(x, next(self.params), stride=stride, padding=k // 2)
        weight, bias = next(self.params), next(self.params)
        return self.f.batch_norm(x, next(self.running), next(self.running), weight, bias, self.training)

    def last(self, x):
        return self.f.linear(x.mean((2, 3)), next(self.params), next(self.params))

    def pool(self, x):
        return self.f.max_pool2d(x, 3, 2, 1)

    def relu(self, x):
        return x.relu()

    def add(self, x, y):
        return x + y


class InOnnx:
    """A value is a name; in0 is the image, then come the parameters, then the running statistics."""

    def __init__(self, helper, n_params):
        self.helper, self.nodes = helper, []
        self.params, self.running = (iter(f"in{i}" for i in range(begin, 10**6)) for begin in (1, 1 + n_params))

    def node(self, kind, *inputs, out=None, **attributes):
        out = out or f"value{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, inputs, [out], **attributes))
        return out

    def conv(self, x, out, k, stride):
        x = self.node("Conv", x, next(self.params), strides=[stride] * 2, pads=[k // 2] * 4)
        return self.node("BatchNormalization", x, next(self.params), next(self.params), next(self.running),
                         next(self.running), epsilon=1e-5)

    def last(self, x):
        x = self.node("Flatten", self.node("GlobalAveragePool", x))
        self.node("Gemm", x, next(self.params), next(self.params), out="out", transB=1)
        return self.nodes

    def pool(self, x):
        return self.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def relu(self, x):
        return self.node("Relu", x)

    def add(self, x, y):
        return self.node("Add", x, y)


def resnet_weights(shapes):
    """Those of bench/rows_nets.c, and the running statistics that models begin with."""
    params, running = [], []
    for i, shape in enumerate(shapes):
        if len(shape) == 1:  # of a norm the weight, then the bias; or the last layer's bias
            weight = len(shapes[i - 1]) == 4
            params.append(np.full(shape, weight, np.float32))
            running += [np.full(shape, value, np.float32) for value in (0, 1)] if weight else []
            continue
        summed = shape[0] * shape[2] * shape[3] if len(shape) == 4 else 6 * shape[1]
        params.append((numbers(i + 2, *shape) - np.float32(0.5)) * np.float32(math.sqrt(2 / summed) / 0.2309))
    return params + running


def resnet18(options):
    batch, shapes = int(options.get("batch", 64)), resnet(Sizes(10), (3, 32), 18, True).shapes
    last = 2 + len(shapes)

    def inputs():
        labels = (np.arange(batch) * 7919 % 10).astype(np.int64)
        return [numbers(1, batch, 3, 32, 32), labels, *resnet_weights(shapes)]

    def torch(t, x, labels, *weights):
        net = InTorch(t, weights[:len(shapes)], weights[len(shapes):], True)
        return t.nn.functional.cross_entropy(resnet(net, x, 18, True), labels)

    return [Case("step", inputs, torch=torch, wrt=tuple(range(2, last)), sgd=(0.01, 0.9), tolerance=1e-3)]


def resnet50(options):
    shapes = resnet(Sizes(1000), (3, 224), 50, False).shapes

    def inputs():
        return [numbers(1, 1, 3, 224, 224), *resnet_weights(shapes)]

    def torch(t, x, *weights):
        return resnet(InTorch(t, weights[:len(shapes)], weights[len(shapes):], False), x, 50, False)

    return [Case("image", inputs, torch=torch, onnx=lambda h: resnet(InOnnx(h, len(shapes)), "in0", 50, False),
                 constants=range(1, 1000), tolerance=1e-3)]


# --------------------------------------------------------------------------------- scan and cold start

def scan(options):
    length, width = int(options.get("length", 10000)), int(options.get("width", 64))

    def inputs():
        return [numbers(1, width), numbers(2, length, width)]

    def forward(j, c, xs):
        def body(c, x):
            y = j.numpy.tanh(c + x)
            return y, y
        return j.lax.scan(body, c, xs)[1]

    return [Case("forward", inputs, jax=forward),
            Case("gradient", inputs, jax=lambda j, c, xs: forward(j, c, xs).sum(), wrt=(0, 1), cotangent=-1)]


def cold_start(options):
    """Of a width that is new each time; see worker.py."""
    return [Case("forward", lambda: []), Case("gradient", lambda: [])]


# ----------------------------------------------------------------------------------------- Python

def python(options):
    """Ours in Python: what an eager program costs beside what it computes."""
    from peers import python_programs as p
    return [Case("chain", list, program=p.chain, eager=True),
            Case("chain, gradient", list, program=p.chain_gradient, eager=True, tolerance=1e-3),
            Case("mlp step", list, program=p.mlp, tolerance=1e-3),
            Case("gradients of examples", list, program=p.example_gradients, vmapped=p.example_gradients_jax)]


CHANNELS_LAST = ["PyTorch", "PyTorch channels last", "PyTorch compiled"]
ROWS = {
    "matmul": Row(matmul, ["PyTorch", "OpenBLAS", "oneDNN"]),
    "norms": Row(norms, ["PyTorch", "PyTorch compiled", "JAX", "ONNX Runtime"]),
    "small-m": Row(small_m),
    "large-m": Row(large_m),
    "softmax": Row(softmax, ["PyTorch", "PyTorch compiled", "JAX", "ONNX Runtime"]),
    "gelu": Row(gelu, ["PyTorch", "PyTorch compiled", "JAX", "ONNX Runtime"]),
    "cross-entropy": Row(cross_entropy),
    "linear-cross-entropy": Row(linear_cross_entropy),
    "attention": Row(attention),
    "rotary": Row(rotary),
    "transposed-add": Row(transposed_add),
    "dropout": Row(dropout),
    "ops": Row(ops),
    "programs": Row(ordinary, ["JAX"]),
    "conv": Row(conv, CHANNELS_LAST + ["JAX", "ONNX Runtime"]),
    "pooling": Row(pooling, CHANNELS_LAST + ["JAX", "ONNX Runtime"]),
    "resnet18": Row(resnet18, CHANNELS_LAST + ["Cotan in Python"]),
    "resnet50": Row(resnet50, CHANNELS_LAST + ["ONNX Runtime"]),
    "python": Row(python),
    "scan": Row(scan, ["JAX"]),
    "cold-start": Row(cold_start, ["PyTorch", "JAX"]),
}
