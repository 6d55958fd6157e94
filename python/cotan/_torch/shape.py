"""Shaping, joining and splitting with PyTorch's signatures. What is a view in PyTorch is a view here."""
import math

from .. import _core, _creation, _elementwise, _pytorch, _reductions, _shaping
from .._core import Tensor, ops
from .._dtypes import COMPLEX, real_dtype
from .._shaping import make_view, normalize_axis
from .._types import Size
from ..nn.functional import pad
from .define import define

# --------------------------------------------------------------------------------------------- views


def strided_moves(name, x, size, stride, storage_offset):
    """Returns the view ops of as_strided, over x's elements in row-major order. Each axis is made of windows that begin
    `stride` elements apart and hold the axes of smaller strides."""
    size, stride, offset = tuple(size), tuple(stride), storage_offset or 0
    if len(size) != len(stride):
        raise RuntimeError(f"{name}: there are {len(size)} sizes and {len(stride)} strides")
    if min(stride, default=0) < 0 or min(size, default=0) < 0 or offset < 0:
        raise RuntimeError(f"{name}: sizes, strides and the offset must not be negative")
    if 0 in size:
        return ("reshape", (-1,) if x.numel() else (0,)), ("slice", (0,), (0,), (0,), (1,)), ("reshape", size)
    order = sorted((axis for axis in range(len(size)) if stride[axis]), key=lambda axis: -stride[axis])
    extent = 1 + sum((n - 1) * step for n, step in zip(size, stride))
    if offset + extent > x.numel():
        raise RuntimeError(f"{name}: {tuple(size)} with strides {stride} from {offset} on reaches element {offset + extent - 1}, "
                           f"the tensor has {x.numel()}")
    moves = [("reshape", (x.numel(),)), ("slice", (0,), (offset,), (offset + extent,), (1,))]
    for at, axis in enumerate(order):
        extent -= (size[axis] - 1) * stride[axis]
        moves.append(("windows", (at, extent, stride[axis])))
    still = [axis for axis in range(len(size)) if not stride[axis]]
    sizes = [size[axis] for axis in order]
    moves += [("reshape", (*sizes, *(1 for _ in still))), ("expand", (*sizes, *(size[axis] for axis in still)))]
    placed = order + still
    return (*moves[:-1 if not still else None], ("permute", tuple(placed.index(axis) for axis in range(len(size)))))


def as_strided(x, size, stride, storage_offset):
    return make_view(x, *strided_moves("as_strided", x, size, stride, storage_offset))


def expand(x, size, implicit=False):
    """Returns a view broadcast to a size, where -1 keeps the size of the axis."""
    if len(size) < x.ndim:
        raise RuntimeError(f"expand: {len(size)} sizes are given, the tensor has {x.ndim} axes")
    return _shaping.expand(x, tuple(size))


def slice_along(x, dim, start, end, step):
    dim = normalize_axis(dim, x.ndim, "slice")
    return x[(slice(None),) * dim + (slice(start, end, step),)]


def view(x, size):
    return make_view(x, ("reshape", tuple(size)))


def squeeze(x, dim):
    return _shaping.squeeze(x, dim=dim)


def split_by_sizes(x, split_sizes, dim):
    return _shaping.split_sizes(x, tuple(split_sizes), dim)


def unfold(x, dimension, size, step):
    """Returns windows of the given size along an axis, one every `step` elements, as a new last axis; a 0-d tensor is one
    window."""
    if x.ndim:
        axis = normalize_axis(dimension, x.ndim, "unfold")
        if size > x.shape[axis] or step <= 0:
            raise RuntimeError(f"unfold: windows of {size} elements every {step} are asked for, axis {axis} has {x.shape[axis]}")
        return make_view(x, ("windows", (axis, size, step)))
    return make_view(x, ("reshape", (1,)), ("slice", (0,), (0,), (min(size, 1),), (1,)))


def own(result):
    """Returns views as tensors of their own."""
    return tuple(x.clone() for x in result) if isinstance(result, tuple) else result.clone()


# (signature, forms, function) of functions that return views; each has a NAME_copy, whose result is no view.
VIEWS = (
    ("alias(input)", "", lambda x: x),
    ("as_strided(input, size: ints, stride: ints, storage_offset: int=None)", "fm", as_strided),
    ("detach(input)", "f", Tensor.detach),
    ("diagonal(input, offset: int=0, dim1: int=0, dim2: int=1)", "f", _shaping.diagonal),
    ("expand(input, size: ints, *, implicit: bool=False)", "", expand),
    ("permute(input, dims: ints)", "f", _shaping.permute_dims),
    ("select(input, dim: int, index: int)", "f", _shaping.select),
    ("slice(input, dim: int=0, start: int=None, end: int=None, step: int=1)", "", slice_along),
    ("split(tensor: Tensor, split_size_or_sections: int|ints, dim: int=0)", "f", _shaping.split_sizes),
    ("split_with_sizes(input, split_sizes: ints, dim: int=0)", "fm", split_by_sizes),
    ("squeeze(input, dim: int|ints=None)", "f", squeeze),
    ("t(input)", "f", _shaping.t),
    ("transpose(input, dim0: int, dim1: int)", "f", _shaping.swapaxes),
    ("unbind(input, dim: int=0)", "f", _shaping.unbind),
    ("unfold(input, dimension: int, size: int, step: int)", "m", unfold),
    ("unsqueeze(input, dim: int)", "f", _shaping.expand_dims),
    ("view(input, size: ints)", "", view),
    ("view_as_complex(input)", "f", _elementwise.view_as_complex),
    ("view_as_real(input)", "f", _elementwise.view_as_real),
)


def _add_views():
    for signature, forms, function in VIEWS:
        if forms:
            define(signature, forms)(function)
        name, _, parameters = signature.partition("(")
        options = ", out=None)" if "*," in parameters else ", *, out=None)"
        define(f"{name}_copy({parameters.removesuffix(')')}{options}")(lambda *args, view=function: own(view(*args)))


_add_views()
define("narrow(input, dim: int, start: int, length: int)")(_shaping.narrow)
define("narrow_copy(input, dim: int, start: int, length: int, *, out=None)", "fm")(lambda *args: own(_shaping.narrow(*args)))
define("swapaxes(input, axis0: int, axis1: int)")(_shaping.swapaxes)
define("swapdims(input, dim0: int, dim1: int)", "fm")(_shaping.swapaxes)
define("movedim(input, source: int|ints, destination: int|ints)", "fm", "moveaxis")(
    lambda x, source, destination: _shaping.moveaxis(x, source, destination) if x.ndim else view(x, ()))
define("adjoint(input)", "fm")(lambda x: x.mH if x.ndim else view(x, ()))
define("flatten(input, start_dim: int=0, end_dim: int=-1)")(_shaping.flatten)
define("unflatten(input, dim: int, sizes: ints)", "fm")(_shaping.unflatten)
define("ravel(input)")(_shaping.ravel)
define("reshape(input, shape: ints)")(_shaping.reshape)
define("Tensor.reshape(self, *shape: ints)")(_shaping.reshape)
define("Tensor.view(self, *size: ints)")(view)
define("Tensor.expand(self, *size: ints, implicit: bool=False)")(expand)
define("broadcast_to(input, size: ints)", "fm")(expand)


@define("Tensor.view(self, dtype: dtype)")
def view_bits(x, dtype):
    """Views the bits as another dtype of the same item size; complex numbers as pairs of their parts along the last axis."""
    to = _core.dtype(dtype)
    if x.dtype in COMPLEX and to not in COMPLEX and x.ndim:
        return make_view(x, ("view_as_real",), ("reshape", (*x.shape[:-1], 2 * x.shape[-1])), ("bitcast", to))
    if to in COMPLEX and x.dtype not in COMPLEX and x.ndim:
        return make_view(x, ("bitcast", real_dtype(to)), ("reshape", (*x.shape[:-1], -1, 2)), ("view_as_complex",))
    return make_view(x, ("bitcast", to))


@define("as_strided_(input, size: ints, stride: ints, storage_offset: int=None)", "fm")
def as_strided_(x, size, stride, storage_offset):
    return _core._turn(x, strided_moves("as_strided_", x, size, stride, storage_offset))


@define("resize_(input, *sizes: ints, memory_format=None)", "m")
def resize_(x, sizes, memory_format):
    """Gives the tensor itself other sizes: the first elements in row-major order stay, new ones are 0."""
    sizes, n = tuple(sizes), math.prod(sizes)
    if x.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    flat = ops.reshape(x, (x.numel(),))
    flat = ops.slice(flat, axes=0, start=0, stop=n) if n <= x.numel() else ops.pad(
        flat, _core.full((), 0, x.dtype), low=[0], high=[n - x.numel()])
    return _core._replace(x, ops.reshape(flat, sizes))


@define("resize_as_(input, the_template: Tensor, *, memory_format=None)", "fm")
def resize_as_(x, the_template, memory_format):
    return resize_(x, the_template.shape, None)


@define("Tensor.set_(self, source=None, storage_offset: int=None, size: ints=None, stride: ints=None)")
def set_(x, source, storage_offset, size, stride):
    raise NotImplementedError("set_: tensors have no storage of which two could be\n  hint: x.data = y gives x another value, "
                              "as_strided(y, …) is a view")


# ------------------------------------------------------------------ a tensor with a part of it written

def with_part(name, x, src, view):
    """Returns x with `src` written to a part of it: to what `view` makes of it."""
    y = x.clone()
    part = view(y)
    if tuple(part.shape) != tuple(src.shape):
        raise RuntimeError(f"{name}: the source is {tuple(src.shape)}, it must be {tuple(part.shape)}")
    part.copy_(src if src.dtype == x.dtype else ops.cast(src, x.dtype))
    return y


@define("select_scatter(input, src: Tensor, dim: int, index: int, *, out=None)", "fm")
def select_scatter(x, src, dim, index):
    return with_part("select_scatter", x, src, lambda y: _shaping.select(y, dim, index))


@define("slice_scatter(input, src: Tensor, dim: int=0, start: int=None, end: int=None, step: int=1, *, out=None)", "fm")
def slice_scatter(x, src, dim, start, end, step):
    return with_part("slice_scatter", x, src, lambda y: slice_along(y, dim, start, end, step))


@define("diagonal_scatter(input, src: Tensor, offset: int=0, dim1: int=0, dim2: int=1, *, out=None)", "fm")
def diagonal_scatter(x, src, offset, dim1, dim2):
    return with_part("diagonal_scatter", x, src, lambda y: _shaping.diagonal(y, offset, dim1, dim2))


@define("as_strided_scatter(input, src: Tensor, size: ints, stride: ints, storage_offset: int=None, *, out=None)", "fm")
def as_strided_scatter(x, src, size, stride, storage_offset):
    return with_part("as_strided_scatter", x, src, lambda y: as_strided(y, size, stride, storage_offset))


# ------------------------------------------------------------------------------------------- joining

define("cat(tensors: Tensors, dim: int=0, *, out=None)", "f", ("concat", "concatenate"))(
    lambda tensors, dim: _shaping.concat(tensors, dim=dim))
define("stack(tensors: Tensors, dim: int=0, *, out=None)")(_shaping.stack)
define("hstack(tensors: Tensors, *, out=None)")(_shaping.hstack)
define("vstack(tensors: Tensors, *, out=None)", "f", "row_stack")(_shaping.vstack)
define("dstack(tensors: Tensors, *, out=None)")(_shaping.dstack)
define("column_stack(tensors: Tensors, *, out=None)")(_shaping.column_stack)
define("block_diag(*tensors: Tensors)")(lambda tensors: _pytorch.block_diag(*tensors))
define("cartesian_prod(*tensors: Tensors)")(lambda tensors: _pytorch.cartesian_prod(*tensors))
define("combinations(input, r: int=2, with_replacement: bool=False)")(_pytorch.combinations)
define("broadcast_tensors(*tensors: Tensors)")(lambda tensors: tuple(_shaping.broadcast_arrays(*tensors)))
define("broadcast_shapes(*shapes)")(
    lambda shapes: Size(_shaping.broadcast_shapes(*((n,) if hasattr(n, "__index__") else n for n in shapes))))


@define("meshgrid(*tensors: Tensors, indexing: str=\"ij\")")
def meshgrid(tensors, indexing):
    """Returns the vectors, each along its own axis and broadcast to all; "xy" exchanges the first two axes."""
    if indexing not in ("xy", "ij"):
        raise RuntimeError(f"meshgrid: indexing is \"xy\" or \"ij\", not {indexing!r}")
    if len({x.dtype for x in tensors}) > 1 or any(x.ndim > 1 for x in tensors):
        raise RuntimeError("meshgrid: the tensors must be vectors of one dtype")
    n, shape = len(tensors), [x.numel() for x in tensors]
    swapped = indexing == "xy" and n > 1
    grids = [make_view(x, ("reshape", [-1 if axis == i else 1 for axis in range(n)]), ("expand", shape))
             for i, x in enumerate(tensors)]
    return tuple(_shaping.swapaxes(grid, 0, 1) if swapped else grid for grid in grids)


for _name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    define(f"{_name}(input)")(getattr(_shaping, _name))
    define(f"{_name}(*tensors: Tensors)")(lambda tensors, each=getattr(_shaping, _name): tuple(map(each, tensors)))

# ------------------------------------------------------------------------------------------ splitting

define("chunk(input, chunks: int, dim: int=0)")(_shaping.chunk)
define("unsafe_chunk(input, chunks: int, dim: int=0)", "fm")(_shaping.chunk)
define("unsafe_split(input, split_size: int, dim: int=0)", "fm")(_shaping.split_sizes)
define("unsafe_split_with_sizes(input, split_sizes: ints, dim: int=0)", "fm")(split_by_sizes)


def tensor_split(x, indices_or_sections, dim):
    """Splits into the given number of parts, of which the first may be larger by one, or at the indices."""
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if hasattr(indices_or_sections, "__index__") and indices_or_sections <= 0:
        raise RuntimeError(f"tensor_split: the number of parts is {indices_or_sections}, it must be above 0")
    return tuple(_shaping.array_split(x, indices_or_sections, dim))


for _name in ("sections: int", "indices: ints", "tensor_indices_or_sections: Tensor"):
    define(f"tensor_split(input, {_name}, dim: int=0)", "fm")(tensor_split)


def _add_equal_split(name, axis, least):
    def split(x, parts):
        if x.ndim < least:
            raise RuntimeError(f"{name}: the tensor has {x.ndim} axes, there must be {least} or more")
        return tuple(_shaping.split(x, parts, axis=min(axis, x.ndim - 1)))

    define(f"{name}(input, sections: int)", "fm")(split)
    define(f"{name}(input, indices: ints)", "fm")(split)


for _names in (("hsplit", 1, 1), ("vsplit", 0, 2), ("dsplit", 2, 3)):
    _add_equal_split(*_names)

# -------------------------------------------------------------------------- repeating, reversing, diagonals

define("fliplr(input)")(_shaping.fliplr)
define("flipud(input)")(_shaping.flipud)
define("rot90(input, k: int=1, dims: ints=(0, 1))")(_shaping.rot90)
define("roll(input, shifts: int|ints, dims: int|ints=())")(
    lambda x, shifts, dims: _shaping.roll(x, shifts, None if dims == () or dims == [] else dims))
define("tile(input, dims: ints)")(_shaping.tile)
define("Tensor.tile(self, *dims: ints)")(_shaping.tile)
define("Tensor.repeat(self, *repeats: ints)")(_shaping.tile)
define("diag(input, diagonal: int=0, *, out=None)", "f")(_shaping.diag)
define("diagflat(input, offset: int=0)", "fm")(_shaping.diagflat)
define("tril(input, diagonal: int=0, *, out=None)", "f", op="tril")(_creation.tril)
define("triu(input, diagonal: int=0, *, out=None)", "f", op="triu")(_creation.triu)
define("is_same_size(input, other: Tensor)")(Tensor.is_same_size)
define("zero_(input)")(Tensor.zero_)
define("detach_(input)")(Tensor.detach_)


@define("Tensor.flip(self, axis: int|ints=None)")
@define("Tensor.flip(self, *dims: ints)")
@define("flip(input, dims: int|ints)")
def flip(x, dims):
    """Reverses the order along axes."""
    return _shaping.flip(x, dims) if x.ndim else x.clone()


@define("repeat_interleave(repeats: Tensor, *, output_size: int=None)")
def repeat_indices(repeats, output_size):
    """Returns each index as often as `repeats` says."""
    return _shaping.repeat(ops.iota(_core.int64, repeats.shape, 0), repeats, axis=0, total=output_size)


@define("repeat_interleave(input, repeats: Tensor|int, dim: int=None, *, output_size: int=None)", "fm")
def repeat_interleave(x, repeats, dim, output_size):
    """Repeats each element along an axis (None: in row-major order)."""
    return _shaping.repeat(x, repeats, axis=dim, total=output_size)


@define("diag_embed(input, offset: int=0, dim1: int=-2, dim2: int=-1)", "fm")
def diag_embed(x, offset, dim1, dim2):
    """Returns matrices over dim1 and dim2, with the last axis on a diagonal."""
    return _shaping.moveaxis(_shaping.diag_embed(x, offset), (-2, -1), (dim1, dim2))


for _name in ("tril_indices", "triu_indices"):
    define(f"{_name}(row: int, col: int, offset: int=0, *, dtype: dtype=None, layout=None, device=None, pin_memory: bool=False)")(
        lambda row, col, offset, dtype, layout, device, pin_memory, make=getattr(_pytorch, _name): make(
            row, col, offset, dtype=dtype or _core.int64, device=device))


@define("fill(input, value: float)", "fiI")
def fill(x, value):
    """Returns x's shape and dtype filled with the value."""
    return ops.expand(_elementwise.scalar_of_dtype(value, x.dtype), x.shape)


@define("Tensor.sum_to_size(self, *size: ints)")
def sum_to_size(x, size):
    """Returns the sum over the axes along which a tensor of this size would be broadcast."""
    size, front = tuple(size), x.ndim - len(size)
    if not size:
        return _reductions.sum(x, dtype=None, dim=tuple(range(x.ndim)))
    axes = (*range(front), *(i + front for i, n in enumerate(size) if n == 1 and x.shape[i + front] != 1))
    return ops.reshape(_reductions.sum(x, dim=axes), size) if axes else x


@define("constant_pad_nd(input, pad: ints, value: float=0)")
def constant_pad_nd(x, sizes, value):
    """Returns the tensor with this many elements of a value before and after its last axes, as functional.pad does."""
    return pad(x, sizes, value=value)
