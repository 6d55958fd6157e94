"""Tensor's methods that are no rows of PyTorch's table (cotan._torch): properties, views in place, devices."""
import warnings

from . import _core, _creation, _devices, _dtypes, _elementwise, _reductions, _searching, _shaping, linalg
from ._core import Tensor, ops


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


_add_functions_as_methods(_reductions, "ptp")

# ------------------------------------------------------------------------------------------ shapes

_add_functions_as_methods(_shaping, """permute transpose swapaxes t unsqueeze flatten ravel unbind select narrow chunk fliplr flipud
rot90 roll repeat_interleave diag diagonal""")


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
def split(self, split_size, dim=0):
    """Splits into parts of the given size along dim, of which the last may be smaller; or into parts of the
    sizes of a list."""
    return _shaping.split_sizes(self, split_size, dim)


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
def tril(self, diagonal=0):
    return ops.tril(self, diagonal=diagonal)


@method
def triu(self, diagonal=0):
    return ops.triu(self, diagonal=diagonal)


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

_add_functions_as_methods(_searching, "msort")
@method
def searchsorted(self, values, side="left", right=False):
    return _searching.searchsorted(self, values, side=side, right=right)


# ---------------------------------------------------------------------------------------- products

_add_functions_as_methods(linalg, "inv")

for _name in ("tril", "triu"):
    setattr(Tensor, _name + "_", _in_place_method(getattr(Tensor, _name)))


# ------------------------------------------------------------------------------- dtypes and devices

_DTYPE_NAMES = {name for name in dir(_core) if isinstance(getattr(_core, name), _core.dtype)} | {"float", "int", "bool", "complex"}


@method
def to(self, *args, dtype=None, device=None, copy=False, non_blocking=False, memory_format=None):
    """Converts to another dtype or device: to(cotan.float64), to("opencl"), to(other), to("cpu",
    cotan.float64)."""
    for one in args:
        if isinstance(one, Tensor):
            dtype, device = one.dtype, one._device_name()
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
    """Returns the dtype's name; with a dtype, its name, or a tensor class that has one, the tensor in it."""
    if dtype is None:
        return f"cotan.{self.dtype.name}"
    if isinstance(dtype, str):  # "cotan.float32", "torch.FloatTensor"
        from . import _pytorch  # which imports this module
        name = dtype.rpartition(".")[2]
        dtype = getattr(_pytorch, name, None) or (_core.dtype(name) if name in _DTYPE_NAMES else None)
        if dtype is None:
            raise ValueError(f"invalid type: '{name}'")
    of_class = getattr(dtype, "dtype", None)
    return self.to(of_class if isinstance(of_class, _core.dtype) else dtype)


Tensor.type = _type


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
def nelement(self):
    return self.numel()


@method
def ndimension(self):
    return self.ndim


@add_property
def is_cuda(self):
    return self._device_name().startswith("cuda")


for _name in "mps xpu xla vulkan mkldnn ipu maia hpu mtia meta nested quantized".split():  # what no tensor is
    setattr(Tensor, f"is_{_name}", property(lambda self: False))


# ---------------------------------------------------------------------------- new tensors, in place

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
def zero_(self):
    return self.copy_(False)


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
    if value._device_name() != self._device_name():
        _devices.move_in_place(self, value._device_name())
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


