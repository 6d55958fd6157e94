"""Tensor's methods, by the names of PyTorch and NumPy.

Where the two differ, methods follow PyTorch, unless NumPy's `axis=` or `keepdims=` is given.
"""
import warnings

from . import _core, _creation, _devices, _dtypes, _elementwise, _reductions, _searching, _shaping, linalg
from ._core import Tensor, ops
from ._grad import no_grad


def method(function):
    setattr(Tensor, function.__name__, function)
    return function


def add_property(function):
    setattr(Tensor, function.__name__, property(function))
    return function


# -------------------------------------------------------------------------------------- elementwise

def _in_place_method(function):
    def written(self, *args, **options):
        return self.copy_(function(self, *args, **options))

    written.__doc__, written.__wrapped__ = f"{function.__name__.rstrip('_')} in its place.", function
    return written


for _name in ("real", "imag"):  # NumPy and PyTorch have the parts as attributes, which can be assigned
    _part = getattr(_elementwise, _name)
    setattr(Tensor, _name, property(lambda self, part=_part: part(self), lambda self, value, part=_part: part(self).copy_(value)))


def _add_functions_as_methods(module, names):
    """Adds functions whose first argument is the tensor as methods."""
    for name in names.split():
        function = getattr(module, name)
        if not hasattr(function, "__get__"):  # a C function, which does not bind
            op = function

            def function(self, *args, op=op, **options):
                return op(self, *args, **options)

            function.__name__, function.__doc__ = name, op.__doc__
        setattr(Tensor, name, function)


_add_functions_as_methods(_reductions, "diff ptp")

# ------------------------------------------------------------------------------------------ shapes

_add_functions_as_methods(_shaping, """permute transpose swapaxes swapdims t moveaxis movedim squeeze unsqueeze flatten unflatten ravel expand
broadcast_to unbind select narrow chunk tensor_split hsplit vsplit flip fliplr flipud rot90 roll tile repeat_interleave diag
diag_embed diagflat diagonal trace""")


@method
def squeeze(self, dim=None, *, axis=None):
    """Removes axes of size 1: all, or those of dim."""
    return _shaping.squeeze(self, axis, dim=dim)


@method
def squeeze_(self, dim=None):
    """Removes axes of size 1 in place."""
    return _core._turn(self, (("reshape", _shaping.squeezed_sizes(self, None, dim)),))


@method
def unsqueeze_(self, dim):
    """Adds an axis of size 1 in place."""
    return _core._turn(self, (("reshape", _shaping.expanded_sizes(self, dim)),))


@method
def transpose_(self, dim0, dim1):
    """Exchanges two axes in place."""
    return _core._turn(self, (("permute", _shaping.swapped_axes(self, dim0, dim1)),))


Tensor.swapaxes_ = Tensor.swapdims_ = transpose_


@method
def t_(self):
    """Transposes a matrix in place."""
    return self.transpose_(0, 1) if self.ndim == 2 else self


@method
def reshape(self, *shape):
    """Returns the same elements with other sizes, as a view; one size may be -1."""
    return _shaping.make_view(self, ("reshape", tuple(_shaping.parse_size_args(shape))))


@method
def view(self, *shape):
    """Views the same elements with other sizes; or, for a dtype, their bits as that dtype."""
    if len(shape) == 1 and isinstance(shape[0], (_core.dtype, type)):
        return _shaping.make_view(self, ("bitcast", shape[0]))
    return _shaping.make_view(self, ("reshape", tuple(_shaping.parse_size_args(shape))))


@method
def split(self, split_size, dim=0):
    """Splits into parts of the given size along dim, of which the last may be smaller; or into parts of the
    sizes of a list."""
    return _shaping.split_sizes(self, split_size, dim)


@method
def repeat(self, *times):
    """Repeats the tensor along each axis."""
    return _shaping.tile(self, _shaping.parse_size_args(times))


@method
def view_as(self, other):
    return self.view(tuple(other.shape))


@method
def reshape_as(self, other):
    return self.view(tuple(other.shape))


@method
def expand_as(self, other):
    return _shaping.broadcast_to(self, other.shape)


@method
def sum_to_size(self, *shape):
    """Returns the sum over the axes along which a tensor of this shape would be broadcast."""
    shape = _shaping.parse_size_args(shape)
    front = self.ndim - len(shape)
    axes = [*range(front), *(i + front for i, size in enumerate(shape) if size == 1 and self.shape[i + front] != 1)]
    return ops.reshape(ops.sum(self, axes=axes), shape) if axes else self


@method
def tril(self, diagonal=0):
    return ops.tril(self, diagonal=diagonal)


@method
def triu(self, diagonal=0):
    return ops.triu(self, diagonal=diagonal)


@method
def contiguous(self, memory_format=None):
    """Returns the tensor itself: the memory layout is not visible."""
    return self


@method
def is_contiguous(self, memory_format=None):
    return True


@method
def stride(self, dim=None):
    """Returns the distance between neighbours along an axis, in elements, in row-major order."""
    strides, step = [], 1
    for size in reversed(self.shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides) if dim is None else strides[dim]


@add_property
def H(self):
    """The matrix transposed and conjugated."""
    return _reductions.conj_transposed(self)


@add_property
def mH(self):
    """The matrices (the last two axes) transposed and conjugated."""
    return _reductions.conj_transposed(self)


# ----------------------------------------------------------------------------------------- indexing

_add_functions_as_methods(_searching, """argsort argwhere bincount gather histc index_add index_copy index_fill index_select kthvalue
masked_fill masked_scatter masked_select msort scatter scatter_add scatter_reduce take take_along_dim topk unique""")
for _name in "index_add index_copy index_fill masked_fill masked_scatter scatter scatter_add scatter_reduce".split():
    setattr(Tensor, _name + "_", _in_place_method(getattr(Tensor, _name)))


@method
def sort(self, dim=-1, descending=False, stable=True):
    """Returns (values, indices) of the elements along dim in order."""
    return _searching.sort_with_indices(self, dim, descending)


@method
def where(self, condition, other):
    """Returns self where the condition holds, else other."""
    return _searching.where(condition, *_core._met(self, other))


@method
def nonzero(self, *, as_tuple=False):
    """Returns (n, ndim): the indices of elements that are not 0; with as_tuple, one tensor for each axis."""
    return _searching.nonzero(self, as_tuple=as_tuple)


@method
def searchsorted(self, values, side="left", right=False):
    return _searching.searchsorted(self, values, side=side, right=right)


# ---------------------------------------------------------------------------------------- products

@method
def matmul(self, other):
    return self @ other


for _name in ("mm", "bmm", "mv"):
    setattr(Tensor, _name, matmul)


@method
def dot(self, other):
    """Returns the sum of products of two vectors; for matrices, as in NumPy, their product."""
    return self @ other


_add_functions_as_methods(linalg, "cholesky cross det inv matrix_power outer")
Tensor.inverse, Tensor.ger = Tensor.inv, Tensor.outer


@method
def addmm(self, mat1, mat2, *, beta=1, alpha=1):
    """Returns beta self + alpha mat1 @ mat2."""
    product = mat1 @ mat2
    return (self if beta == 1 else self * beta) + (product if alpha == 1 else product * alpha)


Tensor.addmv = Tensor.baddbmm = addmm
for _name in ("addmm", "addmv", "baddbmm", "tril", "triu"):
    setattr(Tensor, _name + "_", _in_place_method(getattr(Tensor, _name)))


@method
def norm(self, p="fro", dim=None, keepdim=False, *, ord=None, axis=None, keepdims=False):
    """Returns the p-norm over axes (None: all), also of matrices; "fro" is p = 2, "nuc" is a norm of
    matrices. With ord it is linalg.norm."""
    axis, keepdims = axis if dim is None else dim, keepdim or keepdims
    if ord is not None or p == "nuc":
        return linalg.norm(self, ord=p if ord is None else ord, axis=axis, keepdims=keepdims)
    return linalg.vector_norm(self, axis=axis, keepdims=keepdims, ord=2 if p in ("fro", None) else p)


@method
def dist(self, other, p=2):
    """Returns the p-norm of the difference."""
    return (self - other).norm(p)


@method
def unfold(self, dimension, size, step):
    """Returns windows of the given size along an axis, one every `step` elements; they become a new last
    axis."""
    axis = _shaping.normalize_axis(dimension, self.ndim, "unfold")
    if size > self.shape[axis] or step <= 0:
        raise RuntimeError(f"unfold: windows of {size} places every {step} are asked for, axis {axis} has {self.shape[axis]}")
    return _shaping.make_view(self, ("windows", (axis, size, step)))


@method
def multinomial(self, num_samples, replacement=False, *, generator=None):
    """Draws indices with these weights."""
    from . import _random
    return _random.multinomial(self, num_samples, replacement, generator=generator)


# ------------------------------------------------------------------------------- dtypes and devices

_DTYPE_NAMES = {name for name in dir(_core) if isinstance(getattr(_core, name), _core.dtype)} | {"float", "int", "bool", "complex"}


@method
def to(self, *args, dtype=None, device=None, copy=False, non_blocking=False, memory_format=None):
    """Converts to another dtype or device: to(cotan.float64), to("opencl"), to(other), to("cpu",
    cotan.float64)."""
    for one in args:
        if isinstance(one, Tensor):
            dtype, device = one.dtype, one._place()
        elif isinstance(one, (_core.dtype, type)) or (isinstance(one, str) and one in _DTYPE_NAMES):
            dtype = one
        elif not isinstance(one, bool):
            device = one
    dtype = self.dtype if dtype is None else _core.dtype(dtype)
    if self.dtype in _dtypes.COMPLEX and dtype not in _dtypes.COMPLEX:
        warnings.warn("Casting complex values to real discards the imaginary part", stacklevel=2)
        self = ops.not_equal(self, 0) if dtype == _core.bool else ops.real(self)
    moved = _creation.move_to_device(self, device)
    return moved if dtype == self.dtype and not (copy and moved is self) else ops.cast(moved, dtype)


@method
def astype(self, dtype, copy=True):
    return _dtypes.astype(self, _core.dtype(dtype), copy=copy)


@method
def type_as(self, other):
    return self.to(other.dtype)


def _type(self, dtype=None):
    """Returns the dtype's name; with a dtype, or a tensor class that has one, the tensor in it."""
    if dtype is None:
        return f"cotan.{self.dtype.name}"
    of_class = getattr(dtype, "dtype", None)
    return self.to(of_class if isinstance(of_class, _core.dtype) else dtype)


Tensor.type = _type

for _name, _dtype in (("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"), ("int", "int32"),
                      ("long", "int64"), ("short", "int16"), ("char", "int8"), ("byte", "uint8"), ("bool", "bool"),
                      ("cfloat", "complex64"), ("cdouble", "complex128")):
    setattr(Tensor, _name, (lambda dtype: lambda self: self.to(dtype))(getattr(_core, _dtype)))


@method
def cpu(self):
    return self._to("cpu")


@method
def pin_memory(self):
    """Returns the tensor itself: there is no device for which pinned memory would be faster."""
    return self


@method
def get_device(self):
    """Returns the index of the GPU; -1 for a tensor on the CPU."""
    return -1


@method
def is_same_size(self, other):
    return tuple(self.shape) == tuple(other.shape)


@method
def cuda(self, device=None):
    return _creation.move_to_device(self, "cuda" if device is None else device)


@method
def to_device(self, device, /, *, stream=None):
    return _creation.move_to_device(self, device)


@method
def is_floating_point(self):
    return self.dtype in _dtypes.FLOATS


@method
def is_complex(self):
    return self.dtype in _dtypes.COMPLEX


@method
def nelement(self):
    return self.numel()


@method
def ndimension(self):
    return self.ndim


@add_property
def is_cuda(self):
    return self._place().startswith("cuda")


# ---------------------------------------------------------------------------- new tensors, in place

@method
def new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False):
    return _creation.full(size, fill_value, dtype=dtype or self.dtype, device=device or self._place(),
                          requires_grad=requires_grad)


@method
def new_zeros(self, *size, dtype=None, device=None, requires_grad=False):
    return self.new_full(_creation.parse_sizes(size), 0, dtype=dtype, device=device, requires_grad=requires_grad)


@method
def new_ones(self, *size, dtype=None, device=None, requires_grad=False):
    return self.new_full(_creation.parse_sizes(size), 1, dtype=dtype, device=device, requires_grad=requires_grad)


Tensor.new_empty = Tensor.new_zeros


@method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    return _creation.tensor(data, dtype=dtype or self.dtype, device=device or self._place(), requires_grad=requires_grad)


@method
def fill_diagonal_(self, fill_value, wrap=False):
    """Writes the value to the diagonal in place; wrap repeats the diagonal in matrices with more rows than
    columns."""
    at = [ops.iota(_core.int64, self.shape, axis) for axis in range(self.ndim)]
    if wrap and self.ndim == 2:
        at[0] = at[0] % (self.shape[1] + 1)
    on = at[0] == at[1]
    for other in at[2:]:
        on = on & (at[0] == other)
    return self.masked_fill_(on, fill_value)


@method
def fill_(self, value):
    """Writes the value to all elements in place."""
    return self.copy_(value)


@method
def zero_(self):
    return self.copy_(False)


def _random_method(draw):
    def written(self, *args, generator=None, **options):
        from . import _random
        return self.copy_(draw(_random, self, generator, *args, **options))

    return written


def _uniform(random, x, generator, a=0.0, b=1.0):
    return random.uniform(x.shape, a, b, x.dtype, generator)


def _normal(random, x, generator, mean=0.0, std=1.0):
    return random.gaussian(x.shape, mean, std, x.dtype, generator)


def _bernoulli(random, x, generator, p=0.5):
    random.check_probability("bernoulli", p)
    if isinstance(p, Tensor):
        return random.bernoulli(_shaping.broadcast_to(p, x.shape), generator=generator)
    return ops.cast(ops.random_bernoulli(random.next_key(generator), p, x.shape), x.dtype)


def _exponential(random, x, generator, lambd=1.0):
    if not lambd > 0:
        raise RuntimeError(f"exponential: the rate is {lambd}, it must be above 0")
    wide = x.dtype if x.dtype == _core.float64 else None
    return -ops.log1p(-random.uniform(x.shape, dtype=wide, generator=generator)) / lambd


def _integers(random, x, generator, low=None, high=None, *, to=None):
    if to is not None:
        low, high = low or 0, to
    if high is None:
        low, high = (0, low) if low is not None else (0, random.exact_integer_range(x.dtype)[1] + 1)
    return random.randint(low, high, tuple(x.shape), generator=generator, dtype=x.dtype)


Tensor.uniform_, Tensor.normal_, Tensor.bernoulli_ = _random_method(_uniform), _random_method(_normal), _random_method(_bernoulli)
Tensor.exponential_, Tensor.random_ = _random_method(_exponential), _random_method(_integers)


@method
def register_hook(self, hook):
    """Registers hook(gradient), which runs when backward() has this tensor's gradient; a result of the hook
    replaces the gradient. handle.remove() removes the hook."""
    from ._sweep import TensorHooks
    from .nn.module import RemovableHandle
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    hooks = self.__dict__.setdefault("_backward_hooks", {}) if self.is_leaf else TensorHooks.of(self).hooks
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


@method
def retain_grad(self):
    """Makes backward() set .grad of this computed tensor, as it does for leaves."""
    from ._sweep import TensorHooks
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if not self.is_leaf:
        TensorHooks.of(self).retain(self)


def _set_data(self, value):
    if not isinstance(value, Tensor):
        raise TypeError(f"data must be a Tensor, not {value!r}")
    if value._place() != self._place():
        _devices.move_in_place(self, value._place())
    _core._replace(self, value)


Tensor.data = property(Tensor.detach, _set_data, doc="""The same tensor without a history: what is written to it is written here, and
no gradient knows. Assigned, it gives the tensor another value, of any dtype, shape and device; views keep the one before.""")


@method
def __array_namespace__(self, *, api_version=None):
    import cotan
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"the array API standard of {api_version} is not here, 2024.12 is")
    return cotan


@method
def __complex__(self):
    return complex(self.item())


@method
def clone(self, *, memory_format=None):
    """Returns a tensor of its own with the same value and history."""
    return ops.cast(self, self.dtype)
