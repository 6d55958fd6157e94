"""Conversions of dtype and device, by PyTorch's signatures; layouts are accepted, since they are not visible."""
from .. import _core, _dtypes
from .._core import Tensor, ops
from .define import define

NAMES = {"float": _core.float32, "double": _core.float64, "half": _core.float16, "bfloat16": _core.bfloat16, "int": _core.int32,
         "long": _core.int64, "short": _core.int16, "char": _core.int8, "byte": _core.uint8, "bool": _core.bool,
         "cfloat": _core.complex64, "cdouble": _core.complex128}


def _define_conversion(name, dtype):
    def convert(input, memory_format):
        return input.to(dtype)

    convert.__doc__ = f"Returns the tensor in {dtype.name}."
    define(f"Tensor.{name}(self, memory_format=None)")(convert)


for _name, _dtype in NAMES.items():
    _define_conversion(_name, _dtype)


@define("clone(input, *, memory_format=None)", "fm")
def clone(input, memory_format):
    """Returns a copy, through which gradients flow."""
    return ops.cast(input, input.dtype)


@define("Tensor.contiguous(self, memory_format=None)")
def contiguous(self, memory_format):
    """Returns the tensor itself: the memory layout is not visible."""
    return self


@define("Tensor.as_subclass(self, cls)")
def as_subclass(self, cls):
    """Returns the tensor, with its history, as an object of a subclass of Tensor."""
    return _core._as_type(self, cls)


for _name in ("is_floating_point", "is_complex"):
    define(f"{_name}(input)", "fm")(getattr(_dtypes, _name))


@define("is_signed(input)", "fm")
def is_signed(input):
    """Returns whether the dtype has negative numbers."""
    return input.dtype.is_signed


@define("is_nonzero(input)", "fm")
def is_nonzero(input):
    """Returns whether the only element is not 0."""
    return bool(input)


@define("numel(input)")
def numel(input):
    """Returns the number of elements."""
    return input.numel()


@define("result_type(tensor1: Tensor|float, tensor2: Tensor|float)")
def result_type(tensor1, tensor2):
    """Returns the dtype of an operation of both."""
    from .pointwise import common_dtype
    return common_dtype(tensor1, tensor2)


@define("can_cast(from_: dtype, to: dtype)")
def can_cast(from_, to):
    """Returns whether PyTorch casts the dtype to the other where the result is given: not to a lower category."""
    from .pointwise import category
    from_, to = _core.dtype(from_), _core.dtype(to)
    return category(from_) <= category(to)


Tensor.__rdiv__ = Tensor.__rtruediv__
