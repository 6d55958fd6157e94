"""torch.sparse: sparse matrices and tensors, in coordinates (COO) and compressed rows (CSR)."""
import functools
import math

from .. import _core, _dtypes
from .._core import Tensor, ops
from .._creation import finish_new_tensor
from .._pytorch import sparse_coo, sparse_csr, strided
from .._shaping import concat_parts, normalize_axis
from .convert import NAMES
from .define import define, functions
from .pointwise import common_dtype

__all__ = ["SparseTensor", "addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "sum"]
_handlers = {}  # of functions of torch, by name; most are methods as well


def _handle(*names):
    def register(function):
        for name in names or (function.__name__,):
            _handlers[name] = function
        return function
    return register


def _sums(values, places, n):
    """Returns the sums (n, …) of the values (nnz, …) at each place; of bools, whether one of them is true."""
    wide = ops.cast(values, _core.int32) if values.dtype == _core.bool else values
    into = ops.cast(_core.full((n, *values.shape[1:]), 0), wide.dtype)
    return ops.cast(ops.scatter_add(into, places, wide, axis=0), values.dtype)


class SparseTensor:
    """A tensor of which only some elements are stored, by their indices (sparse_dim, nnz), with values (nnz, *dense
    sizes). Of equal indices the values are added. What it cannot do, .to_dense() can."""

    def __init__(self, indices, values, size, coalesced=False, layout=sparse_coo):
        self._i, self._v, self.shape, self._coalesced = indices, values, type(values.shape)(size), coalesced
        self.layout, self.ndim = layout, len(self.shape)
        self.is_sparse, self.is_sparse_csr = layout is sparse_coo, layout is sparse_csr

    dtype, device, is_leaf = (property(lambda self, name=name: getattr(self._v, name)) for name in ("dtype", "device", "is_leaf"))
    requires_grad = property(lambda self: self._v.requires_grad, lambda self, value: self._v.requires_grad_(value))
    T = property(lambda self: self.t())

    @property
    def grad(self):
        """The gradient of the stored values, with the same indices."""
        return None if self._v.grad is None else self.with_values(self._v.grad)

    def with_values(self, values, size=None):
        """Returns a sparse tensor of the same indices with other values."""
        return SparseTensor(self._i, values, self.shape if size is None else size, self._coalesced, self.layout)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        handler = _handlers.get(func.__name__)
        if handler is None:
            raise NotImplementedError(f"{func.__name__} is not there for sparse tensors\n  hint: .to_dense()")
        return handler(*args, **kwargs or {})

    def __getattr__(self, name):
        raise AttributeError(f"{name} is not there for sparse tensors\n  hint: .to_dense()" if hasattr(Tensor, name) else
                             f"'SparseTensor' object has no attribute '{name}'")

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def dim(self):
        return self.ndim

    def numel(self):
        return math.prod(self.shape)

    def __len__(self):
        return self.shape[0]

    def __bool__(self):
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    def sparse_dim(self):
        return self._i.shape[0]

    def dense_dim(self):
        return self.ndim - self._i.shape[0]

    def _nnz(self):
        return self._i.shape[1]

    def is_coalesced(self):
        return self._coalesced

    def _indices(self):
        return self._i

    def _values(self):
        return self._v

    def _check_layout(self, what, layout):
        if self.layout is not layout:
            raise RuntimeError(f"{what}: the layout is {self.layout}, it must be {layout}")

    def indices(self):
        """Returns the indices (sparse_dim, nnz) of a coalesced tensor."""
        self._check_layout("indices", sparse_coo)
        if not self._coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._i

    def values(self):
        """Returns the values of a coalesced tensor, in the order of its indices."""
        if not self._coalesced and self.is_sparse:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._v

    def crow_indices(self):
        """Returns for each row the place of its first value (rows + 1,); the last is the number of values."""
        self._check_layout("crow_indices", sparse_csr)
        counts = _sums(self._i[0] * 0 + 1, self._i[0], self.shape[0])
        ends = ops.cast(ops.cumsum(counts, axis=0), counts.dtype)
        return ops.pad(ends, ops.cast(_core.asarray(0), counts.dtype), low=[1], high=[0])

    def col_indices(self):
        self._check_layout("col_indices", sparse_csr)
        return self._i[1]

    def _flat_indices(self, axes):
        """Returns the places (nnz,) in row-major order among elements of these sparse axes."""
        flat = ops.cast(self._i[0], _core.int64) * 0
        for axis in axes:
            flat = flat * self.shape[axis] + self._i[axis]
        return flat

    def coalesce(self):
        """Returns the tensor with its indices in order, each once."""
        if self._coalesced or not self.is_sparse:
            return self
        n, sizes = self.sparse_dim(), self.shape[:self.sparse_dim()]
        flat, place = self._flat_indices(range(n)).unique(return_inverse=True)
        values = _sums(self._v, ops.reshape(place, (-1,)), flat.shape[0])
        rows = [ops.reshape(flat // math.prod(sizes[axis + 1:]) % max(sizes[axis], 1), (1, -1)) for axis in range(n)]
        return SparseTensor(concat_parts(rows, 0) if n else self._i[:, :flat.shape[0]], values, self.shape, True)

    def to_dense(self, dtype=None, *, masked_grad=None):
        sizes = self.shape[:self.sparse_dim()]
        dense = ops.reshape(_sums(self._v, self._flat_indices(range(len(sizes))), math.prod(sizes)), self.shape)
        return dense if dtype is None else dense.to(dtype)

    def to_sparse(self, *args, **options):
        return SparseTensor(self._i, self._v, self.shape, True) if self.is_sparse_csr else self

    to_sparse_coo = to_sparse

    def to_sparse_csr(self, dense_dim=None):
        if self.sparse_dim() != 2 or self.dense_dim():
            raise RuntimeError(f"to_sparse_csr: the tensor has {self.ndim} axes, only matrices are stored by rows")
        s = self.coalesce()
        return SparseTensor(s._i, s._v, s.shape, True, sparse_csr)

    def to(self, *args, **options):
        """Converts the values to another dtype or device, and moves the indices along."""
        values = self._v.to(*args, **options)
        moved = SparseTensor(self._i.to(values.device), values, self.shape, self._coalesced, self.layout)
        return self if values is self._v else moved

    def cpu(self):
        return self.to("cpu")

    def cuda(self, device=None):
        return self.to("cuda" if device is None else device)

    def requires_grad_(self, requires_grad=True):
        self._v.requires_grad_(requires_grad)
        return self

    def retain_grad(self):
        self._v.retain_grad()

    def __repr__(self):
        places = ((f"crow_indices={self.crow_indices()!r}", f"col_indices={self.col_indices()!r}") if self.is_sparse_csr else
                  (f"indices={self._i!r}",))
        lines = [f"{part},".replace("\n", "\n" + " " * (part.index("=") + 1)) for part in (*places, f"values={self._v.detach()!r}")]
        tracked = ", requires_grad=True" if self.requires_grad else ""
        rest = f"size={tuple(self.shape)}, nnz={self._nnz()}, layout={self.layout}{tracked})"
        return "tensor(" + "\n".join([*lines, rest]).replace("\n", "\n       ")


for _name, _dtype in NAMES.items():
    setattr(SparseTensor, _name, functools.partialmethod(SparseTensor.to, _dtype))


# ------------------------------------------------------------------------------------ arithmetic

def _sparse(x):
    return isinstance(x, SparseTensor)


def _define_of_values(name):
    def function(input, *args, **options):
        input = input.coalesce()
        return input.with_values(getattr(input._v, name)(*args, **options))

    function.__name__ = name
    function.__doc__ = f"{name} of the stored values; it is 0 of 0."
    _handle()(function)


for _name in """abs asin asinh atan atanh ceil clone conj_physical deg2rad detach erf erfinv expm1 floor isinf isnan log1p neg pow
rad2deg relu round sign sgn sin sinh sqrt square tan tanh trunc""".split():
    _define_of_values(_name)


def _same_layout(result, *operands):
    return result.to_sparse_csr() if any(_sparse(x) and x.is_sparse_csr for x in operands) else result


@_handle()
def add(input, other, *, alpha=1):
    """Returns input + alpha other: sparse of two sparse tensors, dense if the first is dense."""
    if not _sparse(other):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if not _sparse(input):
        return input + (other if alpha == 1 else other * alpha).to_dense()
    if input.shape != other.shape:
        raise RuntimeError(f"add: the sizes are {tuple(input.shape)} and {tuple(other.shape)}, which must be the same")
    dtype = _dtypes.promote_types(input.dtype, other.dtype)
    parts = [ops.cast(x, dtype) for x in (input._v, other._v if alpha == 1 else other._v * alpha)]
    both = SparseTensor(concat_parts([input._i, other._i], 1), concat_parts(parts, 0), input.shape)
    return _same_layout(both.coalesce(), input, other)


@_handle("sub", "subtract")
def sub(input, other, *, alpha=1):
    return add(input, other, alpha=-alpha)


def _at_indices(s, dense):
    """Returns the elements (nnz, *dense sizes) of a dense tensor, broadcast to s's sizes, at s's indices."""
    return dense.expand(s.shape)[tuple(s._i[axis] for axis in range(s.sparse_dim()))]


@_handle("mul", "multiply")
def mul(input, other):
    """Returns the products of elements, sparse; where one of them is 0, nothing is stored."""
    if not _sparse(input):
        input, other = other, input
    if not isinstance(other, (Tensor, SparseTensor)) or _is_number(other):
        return input.with_values(input._v * other)
    if not _sparse(other):
        return input.with_values(input._v * _at_indices(input, other))
    a, b = input.coalesce(), other.coalesce()
    axes = range(a.sparse_dim())
    in_a, in_b = a._flat_indices(axes), b._flat_indices(axes)
    place = ops.minimum(ops.searchsorted(in_b, in_a), max(b._nnz() - 1, 0))
    kept = (in_b[place] == in_a).nonzero()[:, 0] if b._nnz() else in_a[:0]
    return _same_layout(SparseTensor(a._i[:, kept], a._v[kept] * b._v[place[kept]], a.shape, True), input, other)


def _is_number(x):
    return isinstance(x, Tensor) and not x.ndim


@_handle("div", "divide", "true_divide")
def div(input, other, *, rounding_mode=None):
    """Returns the quotients of a sparse tensor and a number or a dense tensor."""
    if _sparse(other):
        raise NotImplementedError("div by a sparse tensor is not there\n  hint: .to_dense()")
    at = other if not isinstance(other, Tensor) or _is_number(other) else _at_indices(input, other)
    return input.with_values(input._v.div(at, rounding_mode=rounding_mode))


@_handle()
def transpose(input, dim0, dim1):
    """Exchanges two sparse axes."""
    dim0, dim1 = (normalize_axis(dim, input.ndim, "transpose") for dim in (dim0, dim1))
    if max(dim0, dim1) >= input.sparse_dim():
        raise RuntimeError("transpose: a dense axis of a sparse tensor stays in its place\n  hint: .to_dense()")
    order, shape = list(range(input.sparse_dim())), list(input.shape)
    order[dim0], order[dim1], shape[dim0], shape[dim1] = dim1, dim0, shape[dim1], shape[dim0]
    return SparseTensor(concat_parts([input._i[axis:axis + 1] for axis in order], 0), input._v, shape,
                        input._coalesced and input.is_sparse and dim0 == dim1)


@_handle()
def t(input):
    return transpose(input, 0, 1) if input.ndim == 2 else input


@_handle("cat", "concat", "concatenate")
def cat(tensors, dim=0):
    """Joins sparse tensors along a sparse axis."""
    dim, start, places = normalize_axis(dim, tensors[0].ndim, "cat"), 0, []
    for s in tensors:
        if not _sparse(s) or dim >= s.sparse_dim():
            raise RuntimeError("cat: sparse tensors are joined with sparse ones, along a sparse axis\n  hint: .to_dense()")
        places.append(concat_parts([s._i[axis:axis + 1] + (start if axis == dim else 0) for axis in range(s.sparse_dim())], 0))
        start += s.shape[dim]
    size = [start if axis == dim else n for axis, n in enumerate(tensors[0].shape)]
    return SparseTensor(concat_parts(places, 1), concat_parts([s._v for s in tensors], 0), size)


# -------------------------------------------------------------------------------------- products

def _product_of_sparse(a, b):
    """Returns the product of two sparse matrices, sparse: of each element of a, and each of the row of b that it meets."""
    b = b.coalesce()
    ends = SparseTensor(b._i, b._v, b.shape, True, sparse_csr).crow_indices()
    first, count = ends[a._i[1]], ends[a._i[1] + 1] - ends[a._i[1]]
    owner = ops.iota(_core.int64, (a._nnz(),), 0).repeat_interleave(count)
    at = first[owner] + ops.iota(_core.int64, (owner.shape[0],), 0) - (ops.cumsum(count, axis=0) - count)[owner]
    places = concat_parts([a._i[:1, owner], b._i[1:, at]], 0)
    return _same_layout(SparseTensor(places, a._v[owner] * b._v[at], (a.shape[0], b.shape[1])).coalesce(), a)


@_handle("mm", "matmul", "__matmul__", "mv", "spmm", "dsmm")
def matmul(input, mat2):
    """Returns the product of a sparse matrix (n, k) and a dense one (k, m) or a vector (k,), dense; of a dense matrix and a
    sparse one, dense; of two sparse ones, sparse."""
    if not _sparse(input):
        return matmul(mat2.t(), input.t()).t() if input.ndim == 2 else matmul(mat2.t(), input)
    if input.sparse_dim() != 2 or input.dense_dim() or mat2.ndim not in (1, 2) or input.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"mm: the sizes are {tuple(input.shape)} and {tuple(mat2.shape)}, not (n, k) and (k, m) or (k,)")
    if _sparse(mat2):
        return _product_of_sparse(input, mat2)
    return _reduce_rows(input, mat2, ops.scatter_add, 0)


def _reduce_rows(input, mat2, scatter, start):
    """Returns for each row of a sparse matrix the sum, or another reduction, of values times rows of mat2."""
    dtype = common_dtype(input._v, mat2)
    rows = ops.cast(mat2, dtype)[input._i[1]]  # (nnz, m) or (nnz,)
    values = ops.reshape(ops.cast(input._v, dtype), (-1, *(1,) * (mat2.ndim - 1)))
    into = ops.cast(_core.full((input.shape[0], *mat2.shape[1:]), start), dtype)
    return scatter(into, input._i[0], rows * values, axis=0)


def mm(mat1, mat2, reduce="sum"):
    """Returns the product of matrices, of which one or both are sparse; reduce is "sum", or "mean", "amax" or "amin" of the
    products of a row's stored elements, 0 where there are none."""
    if reduce == "sum":
        return matmul(mat1, mat2)
    if reduce not in ("mean", "amax", "amin"):
        raise ValueError(f'sparse.mm: reduce is {reduce!r}, it must be "sum", "mean", "amax" or "amin"')
    counts = SparseTensor(mat1._i[:1], mat1._v * 0 + 1, mat1.shape[:1]).to_dense()[:, None]
    if reduce == "mean":
        return matmul(mat1, mat2) / ops.maximum(counts, 1)
    extreme = (ops.scatter_max, -math.inf) if reduce == "amax" else (ops.scatter_min, math.inf)
    return ops.select(counts > 0, _reduce_rows(mat1, mat2, *extreme), 0.0)


@_handle("addmm", "sspaddmm")
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """Returns beta input + alpha mat1 @ mat2."""
    product = matmul(mat1, mat2) if _sparse(mat1) or _sparse(mat2) else mat1 @ mat2
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """Returns beta input + alpha mat1 @ mat2 at the indices of input alone, a sparse matrix."""
    sampled = (mat1[input._i[0]] * mat2.mT[input._i[1]]).sum(-1)
    result = input.with_values(input._v * beta + sampled * alpha)
    if out is None:
        return result
    out.__init__(result._i, result._v, result.shape, result._coalesced, result.layout)
    return out


# ------------------------------------------------------------------------------------- reductions

@_handle("sum")
def sum(input, dim=None, keepdim=False, dtype=None):
    """Returns the sum of all elements, dense, or along axes, sparse while a sparse axis is left."""
    input = input if dtype is None else input.to(dtype)
    if dim is None:
        return input._v.sum()
    if keepdim:
        raise NotImplementedError("sum with keepdim is not there for sparse tensors\n  hint: .to_dense()")
    axes = {normalize_axis(axis, input.ndim, "sum") for axis in ((dim,) if isinstance(dim, int) else dim)}
    n = input.sparse_dim()
    dense = [axis - n + 1 for axis in axes if axis >= n]
    values = input._v.sum(dense) if dense else input._v
    kept = [axis for axis in range(n) if axis not in axes]
    if not kept:
        return values.sum(0)
    shape = [size for axis, size in enumerate(input.shape) if axis not in axes]
    return SparseTensor(concat_parts([input._i[axis:axis + 1] for axis in kept], 0), values, shape).coalesce()


@_handle()
def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """Returns the norm of all elements."""
    if dim is not None:
        raise NotImplementedError("norm along an axis is not there for sparse tensors\n  hint: .to_dense()")
    return input.coalesce()._v.norm(p)


def _normalize_exponentials(input, dim, dtype, logarithm):
    input = (input if dtype is None else input.to(dtype)).coalesce()
    dim, n = normalize_axis(dim, input.ndim, "softmax"), input.sparse_dim()
    if dim >= n:
        return input.with_values((input._v.log_softmax if logarithm else input._v.softmax)(dim - n + 1))
    others = [axis for axis in range(n) if axis != dim]
    group = input._flat_indices(others)  # all elements with the same other indices
    start = ops.cast(_core.full((math.prod(input.shape[axis] for axis in others), *input._v.shape[1:]), -math.inf), input.dtype)
    shifted = input._v - ops.stop_gradient(ops.scatter_max(start, group, input._v, axis=0)[group])
    total = _sums(ops.exp(shifted), group, start.shape[0])[group]
    return input.with_values(shifted - ops.log(total) if logarithm else ops.exp(shifted) / total)


@_handle()
def softmax(input, dim, dtype=None):
    """Returns the softmax of the stored elements along an axis; those that are not stored count as -inf."""
    return _normalize_exponentials(input, dim, dtype, False)


@_handle()
def log_softmax(input, dim, dtype=None):
    """Returns the logarithm of softmax."""
    return _normalize_exponentials(input, dim, dtype, True)


@_handle()
def zeros_like(input, **options):
    return SparseTensor(input._i[:, :0], input._v.detach()[:0].to(options.get("dtype") or input.dtype), input.shape, True)


def is_tensor(obj):
    """Returns whether the object is a Tensor, or one of which only some elements are stored."""
    return isinstance(obj, (Tensor, SparseTensor))


functions["is_tensor"] = is_tensor  # no row: other classes that have __torch_function__ are no tensors


@_handle()
def sparse_mask(input, mask):
    """Returns the elements at the indices of a sparse tensor, sparse."""
    return mask.with_values(_at_indices(mask, input))


_handlers.update(numel=SparseTensor.numel)
for _name in ("is_complex", "is_floating_point", "is_signed"):
    _handlers[_name] = lambda input, name=_name: getattr(input._v, name)()


def _define_methods():
    for name, function in _handlers.items():
        if name not in ("cat", "concat", "concatenate", "spmm", "dsmm", "zeros_like", "sparse_mask"):
            setattr(SparseTensor, name, function)
    operators = {"add": add, "sub": sub, "mul": mul, "truediv": div, "matmul": matmul, "pow": _handlers["pow"]}
    for name, function in operators.items():
        setattr(SparseTensor, f"__{name}__", function)
        if name in ("add", "sub", "mul", "matmul"):
            setattr(SparseTensor, f"__r{name}__", lambda self, other, function=function: function(other, self))
    SparseTensor.__neg__, SparseTensor.__abs__ = _handlers["neg"], _handlers["abs"]


_define_methods()


# -------------------------------------------------------------------------------------- creation

_OPTIONS = "dtype: dtype=None, device=None, pin_memory: bool=False, requires_grad: bool=False, check_invariants: bool=None"


def _as_values(values, dtype, device, requires_grad):
    values = values if isinstance(values, Tensor) else _core.asarray(values)
    values = values.to(values.dtype if dtype is None else dtype)
    return finish_new_tensor(values.detach() if requires_grad else values, requires_grad, device)


def _check_indices(indices, size):
    for axis, n in enumerate(size[:indices.shape[0]]):
        if indices.shape[1] and not 0 <= indices[axis].min().item() <= indices[axis].max().item() < n:
            raise RuntimeError(f"size is inconsistent with indices: for dim {axis}, size is {n} but found index "
                               f"{indices[axis].max().item()}")


@define(f"sparse_coo_tensor(indices, values, size: ints=None, *, {_OPTIONS}, is_coalesced: bool=None)")
def sparse_coo_tensor(indices, values, size, dtype, device, pin_memory, requires_grad, check_invariants, is_coalesced):
    """Returns a sparse tensor of values (nnz, …) at indices (axes, nnz)."""
    indices = (indices if isinstance(indices, Tensor) else _core.asarray(indices)).to(_core.int64, device=device)
    values = _as_values(values, dtype, device, requires_grad)
    if indices.ndim != 2 or indices.shape[1] != (values.shape[0] if values.ndim else 1):
        raise RuntimeError(f"sparse_coo_tensor: the indices are {tuple(indices.shape)} and the values {tuple(values.shape)}, "
                           "they must be (axes, nnz) and (nnz, …)")
    values = values if values.ndim else ops.reshape(values, (1,))
    if size is None:
        size = (*(indices.max(1).values + 1).tolist(), *values.shape[1:])
    if len(size) != indices.shape[0] + values.ndim - 1:
        raise RuntimeError(f"sparse_coo_tensor: the size is {tuple(size)}, the indices have {indices.shape[0]} axes and the values "
                           f"{values.ndim - 1} more")
    if check_invariants:
        _check_indices(indices, size)
    return SparseTensor(indices, values, size, bool(is_coalesced))


@define(f"sparse_coo_tensor(size: ints, *, {_OPTIONS})")
def empty_sparse_tensor(size, dtype, device, pin_memory, requires_grad, check_invariants):
    values = _as_values(_core.full((0,), 0, dtype or _dtypes.get_default_dtype()), None, device, requires_grad)
    return SparseTensor(_core.full((len(size), 0), 0, _core.int64), values, size)


@define(f"sparse_csr_tensor(crow_indices, col_indices, values, size: ints=None, *, {_OPTIONS})")
def sparse_csr_tensor(crow_indices, col_indices, values, size, dtype, device, pin_memory, requires_grad, check_invariants):
    """Returns a sparse matrix of values (nnz,) row by row: their columns, and for each row the place of its first value."""
    crow, col = (x if isinstance(x, Tensor) else _core.asarray(x).to(_core.int64) for x in (crow_indices, col_indices))
    values = _as_values(values, dtype, device, requires_grad)
    if crow.ndim != 1 or col.ndim != 1 or tuple(values.shape) != tuple(col.shape):
        raise RuntimeError(f"sparse_csr_tensor: crow_indices are {tuple(crow.shape)}, col_indices {tuple(col.shape)} and values "
                           f"{tuple(values.shape)}, they must be (rows + 1,), (nnz,) and (nnz,)")
    rows = ops.cast(ops.searchsorted(crow, ops.iota(crow.dtype, (col.shape[0],), 0), right=True) - 1, crow.dtype)
    size = (crow.shape[0] - 1, col.max().item() + 1 if col.shape[0] else 0) if size is None else size
    indices = ops.concat([rows[None], ops.cast(col, crow.dtype)[None]], 0)
    if check_invariants:
        _check_indices(indices, size)
    return SparseTensor(indices, values, size, True, sparse_csr)


@define("Tensor.to_sparse(self, sparse_dim: int=None, *, layout=None, blocksize=None, dense_dim: int=None)")
def to_sparse(self, sparse_dim, layout, blocksize, dense_dim):
    """Returns the elements that are not 0 as a sparse tensor; with sparse_dim, of so many axes, which hold dense tensors."""
    if layout not in (None, sparse_coo, sparse_csr):
        raise NotImplementedError(f"to_sparse: the layout {layout} is not there\n  hint: torch.sparse_coo or torch.sparse_csr")
    n = self.ndim if sparse_dim is None else sparse_dim
    if not (0 < n or self.ndim == n == 0) or n > self.ndim:
        raise RuntimeError(f"to_sparse: sparse_dim is {sparse_dim}, the tensor has {self.ndim} axes")
    stored = (self != 0).any(tuple(range(n, self.ndim))) if n < self.ndim else self != 0
    indices = stored.nonzero().t()
    result = SparseTensor(indices, self[tuple(indices[axis] for axis in range(n))] if n else self[None], self.shape, True)
    return result.to_sparse_csr() if layout is sparse_csr else result


@define("Tensor.to_sparse_csr(self, dense_dim: int=None)")
def to_sparse_csr(self, dense_dim):
    """Returns a matrix's elements that are not 0, stored by rows."""
    return to_sparse(self, None, sparse_csr, None, dense_dim)


@define("Tensor.to_dense(self, dtype: dtype=None, *, masked_grad: bool=None)")
def to_dense(self, dtype, masked_grad):
    """Returns the tensor itself, which is dense."""
    return self if dtype is None else self.to(dtype)


define("Tensor.sparse_mask(self, mask)")(sparse_mask)


@define("spmm(input, mat2: Tensor)", alias="dsmm")
def spmm(input, mat2):
    return input @ mat2


Tensor.is_sparse_csr = property(lambda self: self.layout is not strided, doc="False: a tensor's elements are all stored.")


def _define_legacy(name, dtype):
    def make(*args):
        if len(args) >= 2:
            return sparse_coo_tensor(args[0], args[1], args[2] if len(args) > 2 else None, dtype, None, False, False, None, None)
        return empty_sparse_tensor(tuple(args[0]) if args else (0,), dtype, None, False, False, None)

    make.__name__, make.__doc__ = f"{name}Tensor", f"Returns a sparse tensor of {dtype.name}, of indices, values and sizes."
    globals()[make.__name__] = make


for _name, _dtype in (("Float", _core.float32), ("Double", _core.float64), ("Half", _core.float16), ("BFloat16", _core.bfloat16),
                      ("Int", _core.int32), ("Long", _core.int64), ("Short", _core.int16), ("Char", _core.int8),
                      ("Byte", _core.uint8)):
    _define_legacy(_name, _dtype)
