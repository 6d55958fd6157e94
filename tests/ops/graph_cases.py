"""Graphs of several ops, drawn from a seed and evaluated in NumPy while they are drawn.

An op is computed in f64 (or in its integers) by the functions of op_samples.py, and rounded once to its dtype. A value
is *exact* where any right evaluation gives the same bits: integers, movement, and what IEEE 754 defines, of exact
operands. What jumps (comparisons, floor, argmax, casts to integers) reads exact values alone. Of the others two more
versions are computed, in which every rounding is disturbed by up to 64 units in the last place: how far these move
says how near a result has to be.
"""
import numpy as np
import op_samples as samples
from op_cases import END, FLOATS, NUMPY, Operand, attr_words, is_float, pack, read_table, rounded

TABLE = read_table()
VERSIONS = 3
LARGEST = 4096  # elements of a node
LEAF, CONST, BARE_FLOAT, BARE_INTEGER, OP, GRADIENT = range(6)


# ------------------------------------------------------------------------------------------ random bits

def threefry(key, high, low):
    """Threefry-2x32 of the counters (high, low)."""
    def turned(v, by):
        return v << np.uint32(by) | v >> np.uint32(32 - by)
    keys = [key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)]
    with np.errstate(over="ignore"):
        a, b = high + keys[0], low + keys[1]
        for step in range(5):
            for by in ((13, 15, 26, 6), (17, 29, 16, 24))[step % 2]:
                a = a + b
                b = turned(b, by) ^ a
            a, b = a + keys[(step + 1) % 3], b + keys[(step + 2) % 3] + np.uint32(step + 1)
    return a, b


def random_bits(key, dims=()):
    low = np.arange(int(np.prod(dims)), dtype=np.uint32).reshape(dims)
    a, b = threefry(key, np.zeros_like(low), low)
    return a ^ b


def random_split(key, n=0):
    low = np.arange(n, dtype=np.uint32)
    return np.stack(threefry(key, np.zeros_like(low), low), 1)


def random_fold_in(key, data):
    return np.stack(threefry(key, np.uint32(0), np.uint32(data)))


def random_uniform(key, dims=()):
    return ((random_bits(key, dims) >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)


def random_normal(key, dims=()):
    low = np.nextafter(np.float32(-1), np.float32(0))
    return np.sqrt(2) * samples.erfinv(np.maximum(random_uniform(key, dims) * np.float32(2) + low, low).astype(np.float64))


def random_int(key, low, high, dims=()):
    upper, lower = (random_bits(k, dims).astype(np.uint64) for k in random_split(key, 2))
    span = int(high) - int(low)
    return (int(low) + ((upper << np.uint64(32) | lower) % np.uint64(span)).astype(np.int64)).astype(np.int32)


def dropout(x, key, rate):
    return np.where(random_uniform(key, x.shape) >= rate, x / (1 - rate), 0)


# ------------------------------------------------------------------------------------------ one op

def cast(x, dtype):
    if dtype == "bool" or dtype in FLOATS or not is_float(x):
        return x != 0 if dtype == "bool" else x.astype(NUMPY[dtype])
    limits = np.iinfo(NUMPY[dtype])  # cut towards zero, and as near as there is
    return np.clip(np.trunc(x.astype(np.float64)), float(limits.min), float(limits.max)).astype(NUMPY[dtype])


def gather(x, indices, axis=0, batch_dims=0, **more):
    if axis % x.ndim < batch_dims or x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise ValueError
    if indices.size * x.size > LARGEST * x.shape[axis] * max(np.prod(x.shape[:batch_dims]), 1):
        raise ValueError  # before it is made: three gathers of 1,100 rows are 10 GB
    return samples.np_gather(x, indices, axis, batch_dims, **more)


def slice_of(x, **attrs):
    if any(start > stop for start, stop in zip(attrs["start"], attrs["stop"])):
        raise ValueError
    return samples.np_slice(x, **attrs)


def scatter(name):
    def f(x, indices, updates, axis=0, batch_dims=0, **more):
        if updates.shape != gather(x, indices, zero_outside=True, axis=axis, batch_dims=batch_dims).shape:
            raise ValueError
        return samples.SAMPLES[name][0](x, indices, updates, axis, batch_dims, **more)
    return f


def attention(q, k, v, **attrs):
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2] or (attrs.get("window") and not attrs.get("causal")):
        raise ValueError
    return samples.np_attention(q, k, v, **attrs)


def attention_backward(q, k, v, c, total, delta, **attrs):
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2] or c.shape != (*q.shape[:-1], v.shape[-1]) or \
            (attrs.get("window") and not attrs.get("causal")):
        raise ValueError
    return samples.np_attention_backward(q, k, v, c, total, delta, **attrs)


FUNCTIONS = dict(samples.ELEMENTWISE) | {name: f for name, (f, _) in samples.SAMPLES.items()} | {
    "one_hot": lambda x, n=0, dtype="f32": (x[..., None] == np.arange(n)).astype(NUMPY[dtype]),
    "iota": lambda dtype, dims, axis=0: np.broadcast_to(
        np.arange(dims[axis]).reshape([-1 if a == axis % len(dims) else 1 for a in range(len(dims))]), dims).astype(NUMPY[dtype]),
    "bitcast": lambda x, dtype: x.view(NUMPY[dtype]), "cast": cast, "dropout": dropout,
    "random_bits": random_bits, "random_split": random_split, "random_fold_in": random_fold_in,
    "random_uniform": random_uniform, "random_normal": random_normal, "random_int": random_int,
    "attention": attention, "attention_backward": attention_backward, "gather": gather, "slice": slice_of, "random_bernoulli": lambda key, p, dims=(): random_uniform(key, dims) < p,
} | {name: scatter(name) for name in samples.SCATTERS}
EXACT = {"add", "sub", "mul", "div", "mod", "neg", "abs", "floor", "ceil", "round", "trunc", "sqrt", "maximum", "minimum",
         "select", "clamp", "relu", "sign", "square", "stop_gradient", "max", "min", "gather", "topk", "sort", "sort_pairs", "unique", "take_along",
         "scatter", "scatter_min", "scatter_max", "cast", "bitcast",
         "one_hot", "iota", "random_uniform", "windows", "max_pool", "adaptive_max_pool",
         "global_max_pool"} | set(samples.MOVEMENT)
JUMPS = {"floor", "ceil", "round", "trunc", "sign", "mod", "argmax", "argmin", "topk", "argsort", "lexsort", "sort", "sort_pairs", "unique", "searchsorted",
         "equal", "not_equal", "less", "less_equal", "max_pool", "max_pool_indices",
         "greater", "greater_equal", "is_nan", "is_inf", "is_finite", "bitcast"}
OWN_DTYPE = {"cast", "bitcast"}  # they see their operand in its own dtype


class Value:
    """`versions`: one array where it is exact, else VERSIONS of them. `bare`: a number that takes the others' dtype."""

    def __init__(self, node, out, versions, dtype, bare=False):
        self.node, self.out, self.versions, self.dtype, self.bare = node, out, versions, dtype, bare
        self.used = False
        self.nan = is_float(self.array) and bool(np.isnan(self.array).any())  # gathered outside: nothing reads it

    @property
    def exact(self):
        return len(self.versions) == 1

    @property
    def array(self):
        return self.versions[0]

    @property
    def shape(self):
        return self.array.shape

    def version(self, k):
        return self.versions[0 if self.exact else k]


class Refused(Exception):
    """NumPy has no value for it, or none that can be compared."""


def disturbed(array, rng):
    return array * (1 + 64 * np.finfo(array.dtype).eps * rng.uniform(-1, 1, array.shape))


def evaluate(op, operands, attrs, rng):
    """The versions of each output."""
    dtype = next((o.dtype for o in operands if not o.bare and o.dtype in FLOATS), None)
    exact = all(o.exact for o in operands)
    if op.name in JUMPS and not exact:
        raise Refused
    if op.name == "cast" and not exact and attrs["dtype"] not in FLOATS:
        raise Refused
    outs = None
    for k in range(1 if exact and (dtype is None or op.name in EXACT) and op.name != "random_normal" else VERSIONS):
        arrays = [o.version(k) for o in operands]
        if k and op.name not in EXACT | {"dropout"}:  # what a sum rounds on its way may be more than the sum
            arrays = [disturbed(a, rng) if a.dtype.kind == "f" else a for a in arrays]
        if op.name not in OWN_DTYPE:
            arrays = [a.astype(np.float64) if is_float(a) else a for a in arrays]
        with np.errstate(all="ignore"):
            try:
                found = FUNCTIONS[op.name](*arrays, **attrs)
            except (ValueError, IndexError, TypeError):
                raise Refused from None
        found = found if isinstance(found, list) else [found]
        outs = outs or [[] for _ in found]
        for out, a in zip(outs, map(np.asarray, found)):
            if is_float(a):
                if op.name != "gather" and not (np.abs(a) < 1e6).all():
                    raise Refused
                kind = attrs.get("dtype") or dtype or "f32"
                if k and not (exact and op.name in EXACT):
                    a = disturbed(a.astype(NUMPY[kind]), rng)
                a = a if a.dtype == NUMPY[kind] else rounded(a.astype(np.float64), kind)
            out.append(np.ascontiguousarray(a).reshape(a.shape))
    return [out if is_float(out[0]) else out[:1] for out in outs]


class Graph:
    """What is drawn, as words for `test_ops --graphs`, and in NumPy."""

    def __init__(self, seed, number=0):
        self.rng = np.random.default_rng([seed, number])
        self.number, self.nodes, self.lines, self.values, self.roots = number, [], [], [], []
        self.ops = 0

    # -------------------------------------------------------------------------------------- nodes

    def node(self, words, line, values):
        self.nodes.append(words)
        self.lines.append(line)
        self.values += values
        return values

    def leaf(self, array, const=False, view=0):
        operand = Operand(np.asarray(array), view)
        words = operand.words()[8:] if const else operand.words()
        kind = CONST if const else LEAF
        line = f"{'const' if const else 'data'}{' permuted' if view else ''} {operand.dtype}{operand.array.shape}"
        return self.node(pack(kind) + words, line,
                         [Value(len(self.nodes), 0, [operand.array], operand.dtype)])[0]

    def bare(self, number, like):
        """A number that takes the dtype of what it meets, which `like` has."""
        if like.dtype in FLOATS:
            words = pack(BARE_FLOAT) + np.float64(number).tobytes()
        else:
            words = pack(BARE_INTEGER, int(number))
        value = Value(len(self.nodes), 0, [np.asarray(number, NUMPY[like.dtype])], like.dtype, bare=True)
        self.node(words, f"{number}", [])
        return value

    def op(self, name, operands, attrs=None):
        """The outputs' values. Refused: it was not recorded."""
        op, attrs = TABLE[name], attrs or {}
        versions = evaluate(op, operands, attrs, self.rng)
        if sum(v[0].size for v in versions) > LARGEST:
            raise Refused
        return self.record(name, operands, attrs, versions)

    def record(self, name, operands, attrs, versions):
        """The same, whose outputs have these versions, or are at least of their dtypes and shapes."""
        op = TABLE[name]
        words = pack(OP, op.place) + attr_words(op, attrs) + pack(len(operands))
        words += b"".join(pack(o.node, o.out) for o in operands)
        values = [Value(len(self.nodes), k, v, next(d for d, n in NUMPY.items() if n == v[0].dtype.type))
                  for k, v in enumerate(versions)]
        for o in operands:
            o.used = True
        names = ", ".join(f"%{o.node}" + (f".{o.out}" if o.out else "") for o in operands)
        shapes = ", ".join(f"{v.dtype}{v.shape}" for v in values)
        self.ops += 1
        return self.node(words, f"{name}({names}{'; ' if attrs else ''}{attrs or ''}) -> {shapes}", values)

    def gradient(self, of, wrt):
        """Of the sum of a value. Not evaluated here."""
        value = Value(len(self.nodes), 0, wrt.versions, wrt.dtype)
        words = pack(GRADIENT, of.node, of.out, wrt.node, wrt.out)
        return self.node(words, f"gradient of the sum of %{of.node} by %{wrt.node}", [value])[0]

    def finish(self):
        """Roots: whatever nothing else reads, and some of the others."""
        made = [v for v in self.values if self.nodes[v.node][:8] == pack(OP)]
        self.roots = [v for v in made if not v.used or self.rng.random() < 0.1]
        return self

    def words(self):
        return b"".join([pack(len(self.nodes)), *self.nodes, pack(len(self.roots)),
                         *(pack(v.node, v.out) for v in self.roots)])

    def __repr__(self):
        return f"graph {self.number}:\n" + "\n".join(f"  %{i} = {line}" for i, line in enumerate(self.lines))

    # -------------------------------------------------------------------------------------- comparing

    def compare(self, results):
        """What is wrong with one root, or None."""
        for root, got in zip(self.roots, results, strict=True):
            want = root.array
            if got.shape != want.shape or got.dtype != want.dtype:
                return f"%{root.node}.{root.out} is {got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
            nan = want != want
            bad = np.where(nan, got == got, got != want)
            if not root.exact:
                exact, *moved = (np.where(nan, 0, v.astype(np.float64)) for v in root.versions)
                by = np.max([np.abs(m - exact) for m in moved], axis=0)
                size = np.abs(exact).max(initial=0)
                room = 8 * by + 4 * by.mean() + 64 * np.finfo(want.dtype).eps * size + 1e-30
                bad = np.where(nan, got == got, ~(np.abs(got.astype(np.float64) - exact) <= room))
            if bad.any():
                at = tuple(np.argwhere(bad)[0])
                return f"%{root.node}.{root.out}: {bad.sum()} of {bad.size} differ, first at {at}: {got[at]!r} instead of {want[at]!r}"
        return None


# ------------------------------------------------------------------------------------------ drawing

class Drawer:
    """Draws ops over arrays all of whose axes have n elements, or one, so that a wrong axis gives no other shape."""

    def __init__(self, graph, dtypes):
        self.g, self.rng, self.dtypes = graph, graph.rng, dtypes
        self.n = int(self.rng.integers(2, 7))

    def below(self, n):
        return int(self.rng.integers(0, n))

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, values):
        return values[self.below(len(values))]

    # -------------------------------------------------------------------------------------- operands

    def numbers(self, dtype, shape):
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype not in FLOATS:
            low = 0 if dtype[0] == "u" else -9
            return self.rng.integers(low, 10, shape).astype(NUMPY[dtype])
        return self.rng.uniform(-2, 2, shape).astype(NUMPY[dtype])

    def new(self, dtype, shape):
        const = self.chance(0.2) and np.prod(shape) <= 64
        return self.g.leaf(self.numbers(dtype, shape), const, 1 if not const and self.chance(0.2) else 0)

    def shape(self, rank):
        return (self.n,) * rank

    def operand(self, accepts, ranks=(0, 1, 2, 3), exact=False, like=None):
        """An earlier value, or a new leaf."""
        dtypes = [like.dtype] if like else [d for d in self.dtypes if d in accepts] or [self.pick(accepts)]
        known = [v for v in self.g.values if v.dtype in dtypes and v.array.ndim in ranks and (v.exact or not exact)
                 and v.array.size and not v.nan]
        if known and self.chance(0.85):
            return known[-1 - min(self.below(len(known)), self.below(len(known)))]
        return self.new(self.pick(dtypes), self.shape(self.pick(ranks)))

    def inside(self, op, x):
        """x, brought into the op's range of samples where it is outside."""
        array = x.array.astype(np.float64)
        if x.dtype not in FLOATS and not op.integers:
            return x
        low, high = (op.lo, op.hi) if (op.lo, op.hi) != (-2, 2) else (-6, 6)
        if not array.size or (array.min() >= low and array.max() <= high):
            return x
        return self.g.op("clamp", [x, self.g.bare(low, x), self.g.bare(high, x)])[0]

    # -------------------------------------------------------------------------------------- attributes

    def some_axes(self, rank, least=0):
        axes = [a - rank if self.chance(0.2) else a for a in range(rank)]
        n = least + self.below(rank + 1 - least)
        return [axes[i] for i in self.rng.permutation(rank)[:n]]

    def cut(self, n):
        step = 1 + self.below(3)
        start = self.below(n)
        stop = self.pick([END, n, min(n, start + 1 + self.below(n))])
        return start, stop, step

    def slice_attrs(self, x):
        axes = self.some_axes(x.array.ndim, 1)
        start, stop, step = zip(*(self.cut(x.shape[a]) for a in axes))
        return {"axes": axes, "start": start, "stop": stop, "step": step}

    def pad_attrs(self, x):
        rank = x.array.ndim
        return {k: [self.below(3) for _ in range(rank)] for k in ("low", "high", "interior")}

    def reshape_attrs(self, x):
        shape, size = list(x.shape), x.array.size
        return {"dims": self.pick([[size], [-1], [1, size], shape + [1], [1] + shape, shape[::-1], [-1] + shape[1:]])}

    def permute_attrs(self, x):
        rank = x.array.ndim
        return {"axes": [int(a) - (rank if self.chance(0.2) else 0) for a in self.rng.permutation(rank)]}

    def reduce_attrs(self, x):
        return {"axes": self.some_axes(x.array.ndim), "keepdims": self.chance(0.3)}

    def axis(self, x):
        return self.below(x.array.ndim) - (x.array.ndim if self.chance(0.2) else 0)

    def number(self, values):
        return self.pick([None, *values])

    # What an op wants: its operands, and a function that draws attributes for them. An op that is not here is
    # elementwise, or its operands and attributes are those of a sample.

    def several(self, op):
        """(operands, draw) of an op."""
        name, square = op.name, lambda *ranks: self.inside(op, self.operand(op.accepts, ranks or (1, 2, 3), name in JUMPS))
        if name in ("sum", "prod", "max", "min", "mean", "logsumexp", "any", "all"):
            x = square(2, 2, 3, 1)
            return [x], lambda: self.reduce_attrs(x)
        if name == "var":
            x = square(2, 3)
            return [x], lambda: self.reduce_attrs(x) | {"correction": self.below(2)}
        if name in ("argmax", "argmin"):
            x = square()
            return [x], lambda: {"axis": self.axis(x), "keepdims": self.chance(0.3)}
        if name in ("softmax", "log_softmax"):
            x = square()
            return [x], lambda: {"axes": self.some_axes(x.array.ndim, 1)}
        if name in ("cumsum", "logcumsumexp"):
            x = square()
            return [x], lambda: {"axis": self.axis(x), "reverse": self.chance(0.5)}
        if name in ("argsort", "sort"):
            x = square()
            return [x], lambda: {"axis": self.axis(x), "descending": self.chance(0.5)}
        if name in ("sort_pairs", "lexsort"):
            x = square()
            other = self.pick([v for v in self.g.values if v.shape == x.shape and v.dtype == x.dtype])
            return [x, other], lambda: {"axis": self.axis(x), "descending": self.chance(0.5)}
        if name == "unique":
            x = square()
            return [x], lambda: {"size": 1 + self.below(x.array.size + 3)}
        if name == "topk":
            x = square()
            return [x], lambda: {"k": 1 + self.below(x.shape[-1])}
        if name == "gelu":
            x = square()
            return [x], lambda: {"exact": self.chance(0.5)}
        if name == "leaky_relu":
            x = square()
            return [x], lambda: {"slope": self.number([0.1, 0.3, 0.0])}
        if name in ("cast", "bitcast"):
            x = self.operand([d for d in op.accepts if name == "cast" or d[0] in "iu"], exact=True)
            kinds = [d for d in ("f32", "f64", "i32", "i64", "u8", "i8", "u32", "u64", "u16", "i16", "bool") if name == "cast" or
                     (d[0] in "iu" and np.dtype(NUMPY[d]).itemsize == x.array.itemsize)]
            return [x], lambda: {"dtype": self.pick(kinds)}
        if name == "one_hot":
            x = self.g.leaf(self.rng.integers(-1, 6, self.shape(self.below(3))).astype(np.int32))
            return [x], lambda: {"n": 1 + self.below(6), "dtype": self.pick(["f32", "i32", "f64", "bool"])}
        if name == "iota":
            return [], lambda: {"dtype": self.pick(["f32", "i32", "f64", "i64"]), "dims": self.shape(2 + self.below(2)),
                                "axis": self.below(2)}
        if name in ("nan_to_num", "isclose"):
            kind = NUMPY[self.pick([d for d in op.accepts if d in ("f32", "f64")])]
            x = [self.g.leaf(np.array(v, kind)) for v in ([np.nan, np.inf, -np.inf, 1, 0.1], [np.nan, np.inf, 3, 1.2, 0.4])]
            choices = {"nan": [1.5, 2.5], "posinf": [7.0, 8.0], "neginf": [-3.0, -4.0]} if op.n_in == 1 else {
                "rtol": [0.01, 0.25], "atol": [0.01, 0.5], "equal_nan": [True, False]}
            return x[:op.n_in], lambda: {k: self.pick(v) for k, v in choices.items() if self.chance(0.7)}
        if name in samples.ELEMENTWISE_ATTRS:
            return [square() for _ in range(op.n_in)], lambda: self.pick(samples.ELEMENTWISE_ATTRS[name])
        return self.moving(op) or self.windowed(op) or self.channels(op) or self.indexing(op) or self.network(op) or self.random(op) or self.sampled(op)

    def moving(self, op):
        name = op.name
        if name in ("reshape", "permute", "slice", "flip"):
            x = self.operand(op.accepts, (2, 3, 3, 1))
            draw = {"reshape": self.reshape_attrs, "permute": self.permute_attrs, "slice": self.slice_attrs,
                    "flip": lambda x: {"axes": self.some_axes(x.array.ndim, 1)}}[name]
            return [x], lambda: draw(x)
        if name == "expand":
            x = self.operand(op.accepts, (0, 1, 2))
            return [x], lambda: {"dims": [self.pick([1, 2, self.n]) for _ in range(self.below(2))] +
                                 [self.pick([2, self.n]) if d == 1 else d for d in x.shape]}
        if name == "pad":
            x = self.operand(op.accepts, (1, 2))
            return [x, self.g.leaf(self.numbers(x.dtype, ()))], lambda: self.pad_attrs(x)
        if name == "concat":
            first = self.operand(op.accepts, (2, 3))
            same = [v for v in self.g.values if v.shape == first.shape and v.dtype == first.dtype]
            return [first] + [self.pick(same) for _ in range(1 + self.below(2))], lambda: {"axis": self.axis(first)}
        return None

    def few(self, n, low, high):
        return [low + self.below(high - low + 1) for _ in range(n)]

    def windowed(self, op):
        name = op.name
        if name == "windows":
            x = self.operand(op.accepts, (2, 3))
            def draw():
                own = {"axes": [self.axis(x)], "size": [self.pick([1, 2, x.shape[-1]])], "taps": self.chance(0.4), "low": self.few(1, -1, 2),
                       "high": self.few(1, -1, 2), "stride": self.few(1, 1, 2), "base": self.few(1, 1, 2), "fill": self.number([1])}
                counted = {"counts": self.few(1, 1, 4)} if self.chance(0.4) else {}
                return own | counted | {"dilation": [self.pick([1, 2, -1] if counted else [1, 2])]}
            return [x], draw
        if name.startswith("global_"):
            return [self.operand(op.accepts, (3,))], dict
        if not name.endswith(("_pool", "_pool_indices")):
            return None
        x, n = self.operand(op.accepts, (2, 3), name in JUMPS), 1 + self.below(2)
        if name.startswith("adaptive_"):
            return [x], lambda: {"output": self.few(n, 1, 4)}
        if name == "lp_pool":
            x = self.g.op("abs", [x])[0]
            return [x], lambda: {"kernel": self.few(n, 1, 3), "stride": self.few(n, 1, 2), "ceil_mode": self.chance(0.5), "power": self.number([1])}
        more = (lambda: {"exclude_padding": self.chance(0.5), "divisor": self.number([1, 2])}) if name == "avg_pool" else dict
        return [x], lambda: {"kernel": self.few(n, 1, 3), "stride": self.few(n, 1, 2), "padding": self.few(n, 0, 1),
                             "dilation": self.few(n, 1, 2), "ceil_mode": self.chance(0.5)} | more()

    def channels(self, op):
        """Convolutions, and norms by channels."""
        name = op.name
        if name in ("conv", "conv_transpose", "conv_weight_grad"):
            x, k = self.operand(op.accepts, (3,)), 1 + self.below(2)
            n, c, size = x.shape
            def draw():
                return {"stride": self.few(1, 1, 2), "padding": self.few(1, 0, 2), "dilation": self.few(1, 1, 3)}
            if name == "conv_weight_grad":
                y = self.new(x.dtype, (n, c, 1 + self.below(size)))
                return [x, y], lambda: draw() | {"size": self.few(1, 1, 3), "groups": self.pick([1, c])}
            w = self.new(x.dtype, (c, 1 + self.below(3), k) if name == "conv_transpose" else (1 + self.below(3), c, k))
            if name == "conv_transpose":
                def turned():
                    output = {"output": self.few(1, 1, 9)} if self.chance(0.5) else {}
                    return draw() | {"output_padding": self.few(1, 0, 2), "groups": self.pick([1, c])} | output
                return [x, w], turned
            def straight():
                own = draw() | ({"output": self.few(1, 1, 6)} if self.chance(0.5) else {})
                if self.chance(0.3):
                    del own["padding"]
                return own | {"same": self.chance(0.5) and "padding" not in own}
            return [x, w], straight
        if name not in ("group_norm", "instance_norm", "batch_norm", "batch_norm_train"):
            return None
        x = self.operand(op.accepts, (3,))
        c = x.shape[1]
        running = [self.new(x.dtype, (c,)), self.g.op("square", [self.new(x.dtype, (c,))])[0]] if name.startswith("batch") else []
        rows = [self.new(x.dtype, (c,)) for _ in range(self.below(3))]
        present = {0: [0], 1: [1, 2], 2: [3]}[len(rows)]
        def normal():
            own = {"eps": self.number([0.1, 0.01]), "present": self.pick(present)}
            own |= {"groups": self.pick([1, c])} if name == "group_norm" else {}
            return own | ({"momentum": self.number([0.3, 0.9])} if name == "batch_norm_train" else {})
        return [x, *running, *rows], normal

    def indexing(self, op):
        name = op.name
        x = self.operand(op.accepts, (2, 3)) if name in ("dynamic_slice", "dynamic_update", "gather", *samples.SCATTERS) else None
        def at(*shape): return self.g.leaf(self.rng.integers(0, x.shape[0], shape).astype(self.pick([np.int32, np.int64])))
        if name == "dynamic_slice":
            return [x, at(1)], lambda: {"axes": [self.axis(x)], "sizes": [1 + self.below(min(x.shape))]}
        if name == "dynamic_update":
            update = self.new(x.dtype, tuple(max(1, s - 1) for s in x.shape))
            return [x, update, at(x.array.ndim)], lambda: {"axes": self.permute_attrs(x)["axes"]}
        if name == "take_along":
            x = self.operand(op.accepts, (2, 3))
            indices = self.g.leaf(self.rng.integers(-1, x.shape[0] + 1, x.shape).astype(np.int32))
            return [x, indices], lambda: {"axis": self.axis(x)}
        if name == "searchsorted":
            x = self.operand(op.accepts, (1, 2))
            line = self.g.leaf(np.sort(self.rng.integers(-2, 3, x.shape).astype(x.array.dtype), -1))
            return [line, x], lambda: {"batch_dims": x.array.ndim - 1, "right": self.chance(0.5)}
        if name == "gather":
            rank = self.pick([1, 2]) if x.shape[0] < 64 else 1  # one by one in NumPy
            indices = self.g.leaf(self.rng.integers(-1, x.shape[0] + 1, x.shape[:1] * rank).astype(np.int32))
            return [x, indices], lambda: {"axis": self.axis(x), "batch_dims": self.below(2), "zero_outside": self.chance(0.8)}
        if name in samples.SCATTERS:
            batch = self.below(2)  # updates of x's shape: any axis will do
            updates = self.operand([x.dtype], (x.array.ndim,), like=x)
            indices = self.g.leaf(self.rng.integers(-1, x.shape[0] + 2, x.shape[:1 + batch]).astype(np.int32))
            return [x, indices, updates], lambda: {"axis": self.axis(x), "batch_dims": batch, "mode": self.below(2)}
        return None

    def network(self, op):
        name = op.name
        if name == "matmul":
            x = self.operand(op.accepts, (2, 3))
            return [x, self.operand(op.accepts, (2, 3), like=x)], dict
        if name == "contract":
            x = self.operand(op.accepts, (3,))

            def attrs():
                a, b = self.rng.permutation(3).tolist(), self.rng.permutation(3).tolist()
                return {"a_axes": a[:1], "b_axes": b[:1], "a_batch": a[1:2], "b_batch": b[1:2]}
            return [x, self.operand(op.accepts, (3,), like=x)], attrs
        if name in ("layer_norm", "rms_norm"):
            x = self.operand(op.accepts, (2, 3))
            row = [self.new(x.dtype, x.shape[-1:]) for _ in range(self.below(3 if name == "layer_norm" else 2))]
            present = {0: [0], 1: [1, 2] if name == "layer_norm" else [1], 2: [3]}[len(row)]
            return [x, *row], lambda: {"eps": self.number([0.1, 0.01]), "present": self.pick(present)}
        if name in ("attention", "attention_backward"):
            q = self.operand(op.accepts, (2, 3))
            rest = [self.operand(op.accepts, (q.array.ndim,), like=q) for _ in range(2)]
            if name == "attention_backward":
                rest += [self.new(q.dtype, rest[1].shape), *(self.new(q.dtype, q.shape[:-1]) for _ in range(2))]
            return [q, *rest], \
                lambda: {"causal": True, "window": self.below(3), "scale": self.number([0.3, 1.0]), "softcap": self.number([0.5, 2.0])} \
                if self.chance(0.5) else {"causal": False, "scale": self.number([0.3, 1.0])}
        if name == "cross_entropy":
            x = self.operand(op.accepts, (2, 3))
            targets = self.g.leaf(self.rng.integers(0, x.shape[-1], x.shape[:-1]).astype(np.int32))
            return [x, targets], lambda: {"per_row": self.chance(0.5)}
        if name in ("linear_cross_entropy", "linear_cross_entropy_sum"):
            x = self.operand(op.accepts, (2,))
            weight, bias = self.new(x.dtype, (4, x.shape[-1])), self.new(x.dtype, (4,))
            targets = self.g.leaf(self.rng.integers(0, 4, x.shape[:1]).astype(np.int32))
            factors = self.g.leaf(self.rng.uniform(0.1, 1, x.shape[:1]).astype(np.float64 if x.dtype == "f64" else np.float32))
            numbers = lambda: {"smoothing": self.number([0.1, 0.3]), "softcap": self.number([1.0, 2.5])}
            if name == "linear_cross_entropy_sum":
                return [x, weight, targets, factors] + [bias] * self.below(2), numbers
            row = self.below(2)
            return [x, weight, targets] + [factors] * row, \
                lambda: {**numbers(), "per_row": self.chance(0.5), "present": row}
        return None

    def random(self, op):
        if op.name == "dropout":
            x = self.operand(op.accepts, (1, 2))
            return [x, self.key(), self.g.leaf(np.float32(0.3))], dict
        if not op.name.startswith("random_"):
            return None
        draw = lambda: {"dims": self.shape(1 + self.below(2))}
        more = {"random_split": lambda: [], "random_bernoulli": lambda: [self.g.leaf(np.float32(self.rng.uniform(0.2, 0.8)))],
                "random_int": lambda: [self.g.leaf(np.int32(v)) for v in sorted(self.rng.integers(-50, 50, 2) + [0, 50])],
                "random_fold_in": lambda: [self.g.leaf(np.int32(self.below(5)))]}.get(op.name, list)()
        if op.name == "random_split":
            draw = lambda: {"n": 1 + self.below(3)}
        return [self.key(), *more], dict if op.name == "random_fold_in" else draw

    def key(self):
        known = [v for v in self.g.values if v.dtype == "u32" and v.shape == (2,)]
        return self.pick(known) if known and self.chance(0.5) else self.g.leaf(
            self.rng.integers(0, 2**32, 2).astype(np.uint32))

    def sampled(self, op):
        """A sample's operands, with the attributes of any sample."""
        _, make = samples.SAMPLES[op.name]
        dtype = self.pick([d for d in self.dtypes if d in op.accepts] or op.accepts)
        found = [([o if isinstance(o, Operand) else Operand(o) for o in operands], attrs)
                 for operands, attrs in make(self.rng, op, dtype)]
        operands, attrs = self.pick([f for f in found if not any(o.dims or o.wide for o in f[0])])
        first = [attrs]  # its own attributes, then those of the others
        return [self.g.leaf(o.array, view=o.view) for o in operands], lambda: first.pop() if first else self.pick(found)[1]

    # -------------------------------------------------------------------------------------- steps

    def elementwise(self, op):
        if op.name == "select":
            a = self.operand(op.accepts)
            return self.g.op("select", [self.operand(["bool"]), a, self.operand(op.accepts, like=a)])
        first = self.operand(op.accepts, exact=op.name in JUMPS)
        operands = [first]
        for _ in range(op.n_in - 1):
            if self.chance(0.3) and first.dtype != "bool":
                number = self.rng.uniform(max(op.lo, -2), min(op.hi, 3)) if first.dtype in FLOATS else self.rng.integers(0, 8)
                operands.append(self.g.bare(float(number) if first.dtype in FLOATS else int(number), first))
            else:
                operands.append(self.operand(op.accepts, exact=op.name in JUMPS, like=first))
        if op.n_in == 2 and self.chance(0.3):
            operands.reverse()
        return self.g.op(op.name, [o if o.bare else self.inside(op, o) for o in operands])

    def step(self, op):
        """Records the op; often once more with the same operands, and other attributes or the same."""
        if op.name in samples.ELEMENTWISE and op.name not in {*samples.ELEMENTWISE_ATTRS, "leaky_relu"}:
            self.elementwise(op)
            return
        operands, draw = self.several(op)
        first = self.tried(op, operands, draw)
        if not first or not self.chance(0.6):
            return
        attrs, values = first
        if self.chance(0.25):
            again = self.g.op(op.name, operands, attrs)
        else:
            again = (self.tried(op, operands, draw, values[0].shape) or (None, None))[1]
        if again and again[0].shape == values[0].shape and values[0].dtype not in ("bool",) and self.chance(0.5):
            self.g.op("sub", [values[0], again[0]]) if again[0].dtype == values[0].dtype else None

    def tried(self, op, operands, draw, shape=None):
        for _ in range(8):
            attrs = draw()
            try:
                if shape is not None and evaluate(op, operands, attrs, self.rng)[0][0].shape != shape:
                    continue
                return attrs, self.g.op(op.name, operands, attrs)
            except Refused:
                pass
        return None

    def algebra(self):
        """What a simplifier knows: neutral numbers on either side, things done twice, things that change nothing."""
        x = self.operand([d for d in self.dtypes if d != "bool"], (1, 2, 3))
        number = self.pick([0, 1])
        one = self.g.bare(number, x) if self.chance(0.4) else self.g.leaf(
            np.full(self.pick([(), (1,), x.shape[-1:]]), number, NUMPY[x.dtype]), const=self.chance(0.7))
        choice = self.below(8)
        if choice < 4:
            name = ("mul", "div", "sub", "add")[choice]
            pair = [x, one]
            if self.chance(0.5):
                pair.reverse()
            if name == "div" and (pair[1].array == 0).any() or (name == "div" and x.dtype in FLOATS and pair[1] is x):
                pair = [x, self.g.bare(1, x)]
            self.g.op(name, pair)
        elif choice == 4:
            self.g.op("neg", self.g.op("neg", [x]))
        elif choice == 5:
            self.g.op("cast", [x], {"dtype": x.dtype})
        elif choice == 6:
            turned = self.g.op("permute", [x], self.permute_attrs(x))[0]
            self.g.op("permute", [turned], self.permute_attrs(turned))
        else:
            flat = self.g.op("reshape", [x], self.reshape_attrs(x))[0]
            self.g.op("reshape", [flat], {"dims": list(self.pick([x.shape, flat.shape, (x.array.size,)]))})


WEIGHTS = {"sum": 6, "prod": 2, "max": 3, "min": 3, "mean": 3, "var": 2, "argmax": 3, "cumsum": 3, "slice": 4, "pad": 3, "permute": 4,
           "reshape": 3, "flip": 2, "matmul": 4, "softmax": 2, "any": 3, "all": 3, "select": 4, "cast": 3, "gather": 3}
KNOWN = sorted(name for name in FUNCTIONS if name in TABLE)


def random_graph(seed, number):
    """A graph of 8 to 30 ops."""
    graph = Graph(seed, number)
    rng = graph.rng
    main = ("f32", "f64", "i32", "f32", "f64", "i64", "f32", "u8")[number % 8]
    draw = Drawer(graph, [main] if rng.random() < 0.5 else [main, str(rng.choice(["f32", "i32", "bool"]))])
    for _ in range(2):
        draw.new(main, draw.shape(2))
    draw.new(main, draw.shape(3))
    fit = [op for op in map(TABLE.get, KNOWN) if any(d in op.accepts for d in draw.dtypes)
           or op.kind in ("source",) or op.name.startswith("random_")]
    weight = np.array([WEIGHTS.get(op.name, 1) * (1.0 if main in op.accepts else 0.3) for op in fit])
    want = int(rng.integers(8, 31))
    for _ in range(10 * want):
        if graph.ops >= want:
            break
        try:
            draw.algebra() if draw.chance(0.12) else draw.step(fit[rng.choice(len(fit), p=weight / weight.sum())])
        except Refused:
            pass
    return graph.finish()


def sizes_of_lists(attributes):
    """How many sizes the lists of an op with several of them have: one, for they speak of the same axes."""
    lists = [v for v in attributes.values() if isinstance(v, (list, tuple))]
    return len({len(v) for v in lists})


def twins(seed, op, field, same_type=True):
    """A graph of the op twice, with operands that are the same and attributes of which one differs (or any: field None),
    and the values with it; None: none was found."""
    for number in range(40):
        graph = Graph(seed, 1000 * op.place + number)
        dtype = ("f32", "f64", "i32", "bool", "i64")[number % 5]
        if dtype not in op.accepts and number % 5:
            continue
        draw = Drawer(graph, [dtype if dtype in op.accepts else op.accepts[0]])
        try:
            operands, attributes = draw.several(op)
        except Refused:
            continue
        for _ in range(12):
            try:
                first, second = attributes(), attributes()
                changed = first | {k: v for k, v in second.items() if field in (k, None)}
                if changed == first or sizes_of_lists(changed) != sizes_of_lists(first):
                    continue
                one, two = (evaluate(op, operands, a, graph.rng)[0][0] for a in (first, changed))
            except Refused:
                continue
            equal_type = one.shape == two.shape and one.dtype == two.dtype
            if equal_type != same_type or (equal_type and np.allclose(one, two, rtol=1e-3)):
                continue
            try:
                graph.op(op.name, operands, first)
                graph.op(op.name, operands, changed)
            except Refused:
                continue
            return graph.finish()
    return None
