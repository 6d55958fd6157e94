"""Elementwise functions with PyTorch's signatures and promotion."""
import math

from .. import _core, _elementwise
from .._core import Tensor, ops
from .._dtypes import BOOL, COMPLEX, FLOATS, category, get_default_dtype, promote_types
from . import return_types
from .define import define


def common_dtype(*operands):
    """Returns the dtype to which PyTorch promotes tensors and numbers: a 0-d tensor counts only if its category is higher
    than that of the tensors with axes, a number only if it is higher than that of all tensors."""
    dtype = None
    for axes in (True, False):
        group = None
        for x in operands:
            if isinstance(x, Tensor) and bool(x.ndim) == axes:
                group = x.dtype if group is None else promote_types(group, x.dtype)
        if dtype is None or group is not None and category(group) > category(dtype):
            dtype = group
    for x in operands:
        if isinstance(x, (bool, int, float, complex)):
            weak = _core.bool if isinstance(x, bool) else _core.int64 if isinstance(x, int) else get_default_dtype()
            if isinstance(x, complex):
                weak = _core.complex128 if _core.float64 in (dtype, weak if dtype is None else None) else _core.complex64
            dtype = weak if dtype is None or category(weak) > category(dtype) else dtype
    return dtype


def as_float(x):
    """Returns the tensor itself if it has fractions, else in the default dtype."""
    return x if x.dtype in FLOATS or x.dtype in COMPLEX else ops.cast(x, get_default_dtype())


def with_bools(op):
    """Makes an op of integers take booleans, whose result is of booleans again."""
    def of_any(*args, **options):
        if args[0].dtype not in BOOL:
            return op(*args, **options)
        result = op(*(ops.cast(x, _core.uint8) if isinstance(x, Tensor) and x.dtype in BOOL else x for x in args), **options)
        if isinstance(result, tuple):
            return type(result)(ops.cast(result[0], _core.bool), *result[1:])
        return ops.cast(result, _core.bool)

    return of_any


def cast_all(*operands, floats=False):
    """Returns the operands in their common dtype; numbers stay numbers."""
    dtype = common_dtype(*operands)
    dtype = get_default_dtype() if floats and category(dtype) < 2 else dtype
    return [ops.cast(x, dtype) if isinstance(x, Tensor) and x.dtype != dtype else x for x in operands]


def _unary(names, function=None, **flags):
    name, *alias = names.split("/")
    define(f"{name}(input, *, out=None)", "fmiI", alias, op=name, **flags)(function or getattr(_elementwise, name))


# Functions of one tensor that are one op, with their aliases; integers become floats.
for _names in """acos/arccos acosh/arccosh asin/arcsin asinh/arcsinh atan/arctan atanh/arctanh cos cosh deg2rad digamma erf erfc
        erfinv exp expm1 lgamma log log10 log1p log2 rad2deg reciprocal sin sinh sqrt tan tanh""".split():
    _unary(_names, floats=True)
for _names in "abs/absolute neg/negative".split():
    _unary(_names)
_unary("relu", bools=True)


def _sinc(x):
    angle = ops.select(ops.equal(x, 0), 1.0, x * math.pi)
    return ops.select(ops.equal(x, 0), 1.0, ops.sin(angle) / angle)


# Of complex numbers they are made of other ops.
_unary("exp2", lambda x: ops.exp(x * math.log(2)), floats=True, real=True)
_unary("rsqrt", lambda x: 1 / ops.sqrt(x), floats=True, real=True)
_unary("sigmoid", lambda x: 1 / (1 + ops.exp(-x)), floats=True, real=True)
_unary("sinc", _sinc, floats=True, real=True)


def _binary(names, op, function=None, first="Tensor", **flags):
    name, *alias = names.split("/")
    define(f"{name}(input: {first}, other: Tensor|float, *, out=None)", "fmi", alias, op=op, **flags)(
        function or getattr(_elementwise, name))


def logaddexp_complex(a, b):
    """Returns log(exp(a) + exp(b)) of complex numbers, with the larger one outside of the sum."""
    larger = ops.greater_equal(ops.real(a), ops.real(b))
    most, least = ops.select(larger, a, b), ops.select(larger, b, a)
    return most + ops.log1p(ops.exp(least - most))


# Of two tensors, or a tensor and a number.
for _names in "maximum minimum fmax fmin".split():
    _binary(_names, _names, bools=True)
_binary("mul/multiply", "mul", first="Tensor|float", bools=True)
for _names in "hypot nextafter".split():
    _binary(_names, _names)
for _names in "atan2/arctan2 copysign".split():
    _binary(_names, _names.split("/")[0], floats=True)
for _names, _op in {"remainder": "remainder", "bitwise_and": "and_", "bitwise_or": "or_", "bitwise_xor": "xor"}.items():
    _binary(_names, _op, first="Tensor|float")
for _names, _op in {"eq": "equal", "ne/not_equal": "not_equal", "lt/less": "less", "le/less_equal": "less_equal", "gt/greater": "greater",
                    "ge/greater_equal": "greater_equal"}.items():
    _binary(_names, _op)
_binary("fmod", "mod")
_binary("logaddexp", "logaddexp", logaddexp_complex, real=True)
_binary("xlogy", "xlogy", first="Tensor|float", floats=True)


def _cast_scaled(input, other, alpha):
    """Returns both in their common dtype, which does not depend on alpha."""
    if isinstance(alpha, float) and category(common_dtype(input, other)) < 2:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    return cast_all(input, other) if isinstance(input, Tensor) and isinstance(other, Tensor) else (input, other)


@define("add(input: Tensor|float, other: Tensor|float, *, alpha: float=1, out=None)", "fmi", op="add", bools=True)
def add(input, other, alpha):
    """Returns input + alpha other."""
    if common_dtype(input, other) in BOOL:
        return ops.or_(input, other) if alpha else +input
    input, other = _cast_scaled(input, other, alpha)
    return input + (other if alpha == 1 else other * alpha)


@define("sub(input: Tensor|float, other: Tensor|float, *, alpha: float=1, out=None)", "fmi", "subtract", op="sub")
def sub(input, other, alpha):
    """Returns input - alpha other."""
    input, other = _cast_scaled(input, other, alpha)
    return input - other * alpha


@define("square(input, *, out=None)", "fmiI")
def square(input):
    """Returns the squares; of booleans in int64."""
    return ops.square(ops.cast(input, _core.int64) if input.dtype in BOOL else input)


@define("rsub(input, other: Tensor|float, *, alpha: float=1)")
def rsub(input, other, alpha):
    """Returns other - alpha input."""
    other, input = _cast_scaled(other, input, alpha)
    return other - input * alpha


@define("div(input: Tensor|float, other: Tensor|float, *, rounding_mode: str=None, out=None)", "fmi", ("divide", "true_divide"), op="div", floats=True)
def div(input, other, rounding_mode):
    """Returns input / other; rounding_mode "floor" rounds down, "trunc" towards zero."""
    if rounding_mode is None:
        return input / other
    return input // other if rounding_mode == "floor" else _elementwise.divide(*cast_all(input, other), rounding_mode=rounding_mode)


@define("floor_divide(input: Tensor|float, other: Tensor|float, *, out=None)", "fmi")
def floor_divide(input, other):
    """Returns input / other, rounded down."""
    return input // other


@define("pow(input: Tensor|float, exponent: Tensor|float, *, out=None)", "fmi")
def pow(input, exponent):
    """Returns input to the power exponent."""
    return input ** exponent


@define("float_power(input: Tensor|float, exponent: Tensor|float, *, out=None)", "fmi")
def float_power(input, exponent):
    """Returns input to the power exponent in float64 or complex128."""
    return _elementwise.float_power(input, exponent)


@define("bitwise_left_shift(input: Tensor|float, other: Tensor|float, *, out=None)", "fmi")
def bitwise_left_shift(input, other):
    """Returns input with its bits shifted to the left."""
    return input << other


@define("bitwise_right_shift(input: Tensor|float, other: Tensor|float, *, out=None)", "fmi")
def bitwise_right_shift(input, other):
    """Returns input with its bits shifted to the right, with the sign's bit."""
    return input >> other


def _define_pair(signature, function, forms="fmi", floats=False):
    """Adds a function of two tensors in their common dtype."""
    def of_pair(input, other):
        return function(*cast_all(input, other, floats=floats))

    of_pair.__doc__ = function.__doc__
    define(signature, forms)(of_pair)


_define_pair("gcd(input, other, *, out=None)", _elementwise.gcd)
_define_pair("lcm(input, other, *, out=None)", _elementwise.lcm)
_define_pair("logaddexp2(input, other, *, out=None)", _elementwise.logaddexp2, "fm")
_define_pair("heaviside(input, values: Tensor, *, out=None)", with_bools(ops.heaviside))
for _name in ("and", "or", "xor"):
    define(f"logical_{_name}(input, other: Tensor, *, out=None)", "fmi")(getattr(_elementwise, "logical_" + _name))


@define("ldexp(input, other: Tensor|float, *, out=None)", "fmi")
def ldexp(input, other):
    """Returns input times 2 to the power other."""
    input = as_float(input)
    return input * ops.pow(2.0, other) if input.dtype in COMPLEX else _elementwise.ldexp(input, other)


@define("frexp(input, *, out=None)", "fm")
def frexp(input):
    """Returns (mantissa, exponent) with input = mantissa 2^exponent."""
    return return_types.frexp(*_elementwise.frexp(input))


@define("bitwise_not(input, *, out=None)", "fmi", op="not_")
def bitwise_not(input):
    """Returns the complement of each bit."""
    return ops.not_(input)


@define("logical_not(input, *, out=None)", "fmi")
def logical_not(input):
    """Returns whether each element is 0."""
    return _elementwise.logical_not(input)


@define("positive(input)", "fm")
def positive(input):
    """Returns the tensor itself."""
    if input.dtype in BOOL:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


for _name in ("ceil", "floor", "trunc"):
    define(f"{_name}(input, *, out=None)", "fmiI", "fix" if _name == "trunc" else ())(getattr(_elementwise, _name))


@define("frac(input, *, out=None)", "fmiI")
def frac(input):
    """Returns the fraction of each element, with its sign."""
    return input - ops.trunc(input)


@define("round(input, *, decimals: int=0, out=None)", "fmiI")
def round(input, decimals):
    """Returns the nearest integers, halves to even, or the nearest numbers with so many decimals."""
    return _elementwise.round(input, decimals)


@define("sign(input, *, out=None)", "fmi")
def sign(input):
    """Returns -1, 0 or 1."""
    return +input if input.dtype in BOOL else ops.sign(input)


@define("sgn(input, *, out=None)", "fmi")
def sgn(input):
    """Returns the sign; of complex numbers, the number divided by its absolute value."""
    if input.dtype not in COMPLEX:
        return sign(input)
    size = ops.abs(input)
    return ops.select(ops.equal(size, 0.0), 0.0, input / ops.select(ops.equal(size, 0.0), 1.0, size))


@define("signbit(input, *, out=None)", "fm")
def signbit(input):
    """Returns whether the sign's bit is set."""
    return ops.signbit(input) if input.dtype in FLOATS else ops.less(input, 0) if input.dtype not in BOOL else ops.less(ops.cast(input, _core.int8), 0)


@define("angle(input, *, out=None)", "fm")
def angle(input):
    """Returns the angle of complex numbers; of real ones, 0 or pi."""
    if input.dtype in COMPLEX:
        return ops.angle(input)
    input = as_float(input)
    return ops.select(ops.is_nan(input), input, ops.select(ops.less(input, 0), math.pi, input * 0.0))


for _name in ("real", "imag"):
    define(f"{_name}(input)")(getattr(_elementwise, _name))
define("conj(input)", "fm")(_elementwise.conj)


@define("conj_physical(input, *, out=None)", "fmiI")
def conj_physical(input):
    """Returns the conjugates."""
    return ops.conj(input) if input.dtype in COMPLEX else +input


define("isfinite(input)", "fm", op="is_finite", bools=True)(ops.is_finite)
define("isnan(input)", "fm", op="is_nan", bools=True)(ops.is_nan)
define("isinf(input)", "fm", op="is_inf", bools=True)(ops.is_inf)
define("isreal(input)", "fm")(
    lambda input: _elementwise.isreal(input) if input.dtype in COMPLEX else _core.full(input.shape, True, _core.bool))
define("isposinf(input, *, out=None)", "fm")(_elementwise.isposinf)
define("isneginf(input, *, out=None)", "fm")(_elementwise.isneginf)


@define("logit(input, eps: float=None, *, out=None)", "fmiI")
def logit(input, eps):
    """Returns log(x / (1 - x)), of x limited to eps … 1 - eps."""
    input = as_float(input)
    return ops.logit(input if eps is None else _elementwise.clip(input, eps, 1 - eps))


@define("nan_to_num(input, nan: float=0.0, posinf: float=None, neginf: float=None, *, out=None)", "fmiI")
def nan_to_num(input, nan, posinf, neginf):
    """Returns the tensor with NaN and infinities replaced; infinities by the dtype's limits."""
    if input.dtype not in FLOATS + COMPLEX:
        return +input if input.dtype not in BOOL else input.clone()
    if input.dtype in COMPLEX:
        return ops.complex(*(nan_to_num(part, nan, posinf, neginf) for part in (ops.real(input), ops.imag(input))))
    largest = _elementwise._dtypes.finfo(input.dtype).max
    x = ops.select(ops.is_nan(input), 0.0 if nan is None else float(nan), input)
    x = ops.select(ops.equal(x, math.inf), largest if posinf is None else float(posinf), x)
    return ops.select(ops.equal(x, -math.inf), -largest if neginf is None else float(neginf), x)


@define("clamp(input, min: Tensor|float=None, max: Tensor|float=None, *, out=None)", "fmiI", "clip")
def clamp(input, min, max):
    """Returns the elements limited to min … max."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    dtype = common_dtype(input, *(limit for limit in (min, max) if limit is not None))
    if dtype in BOOL:
        return with_bools(_elementwise.clip)(input, min, max)
    return _elementwise.clip(input if input.dtype == dtype else ops.cast(input, dtype), min, max)


define("clamp_min(input, min: Tensor|float, *, out=None)", "fmiI")(lambda input, min: clamp(input, min, None))
define("clamp_max(input, max: Tensor|float, *, out=None)", "fmiI")(lambda input, max: clamp(input, None, max))


@define("lerp(input, end: Tensor, weight: Tensor|float, *, out=None)", "fmi")
def lerp(input, end, weight):
    """Returns input + weight (end - input)."""
    if input.dtype in COMPLEX:
        near = abs(weight) < 0.5 if not isinstance(weight, Tensor) else ops.less(ops.abs(weight), 0.5)
        return ops.select(near, input + (end - input) * weight, end - (end - input) * (1 - weight))
    return _elementwise.lerp(input, end, weight)


@define("addcmul(input, tensor1: Tensor, tensor2: Tensor, *, value: float=1, out=None)", "fmi")
def addcmul(input, tensor1, tensor2, value):
    """Returns input + value tensor1 tensor2."""
    return _elementwise.addcmul(input, tensor1, tensor2, value=value)


@define("addcdiv(input, tensor1: Tensor, tensor2: Tensor, *, value: float=1, out=None)", "fmi")
def addcdiv(input, tensor1, tensor2, value):
    """Returns input + value tensor1 / tensor2."""
    return _elementwise.addcdiv(input, tensor1, tensor2, value=value)


@define("isclose(input, other: Tensor, rtol: float=1e-05, atol: float=1e-08, equal_nan: bool=False)", "fm")
def isclose(input, other, rtol, atol, equal_nan):
    """Returns whether |input - other| is at most atol + rtol |other|."""
    if input.dtype != other.dtype:
        raise RuntimeError(f"{input.dtype.name} did not match {other.dtype.name}")
    return _elementwise.isclose(input, other, rtol, atol, equal_nan)


@define("allclose(input, other: Tensor, rtol: float=1e-05, atol: float=1e-08, equal_nan: bool=False)", "fm")
def allclose(input, other, rtol, atol, equal_nan):
    """Returns a Python bool: whether all elements are close."""
    return ops.all(isclose(input, other, rtol, atol, equal_nan)).item()


@define("equal(input, other: Tensor)", "fm")
def equal(input, other):
    """Returns a Python bool: whether both have one shape and all elements are equal."""
    return _elementwise.array_equal(input, other)


def _define_softmax(name):
    def softmax(input, dim, dtype):
        if dtype is not None:  # complex numbers lose their imaginary parts
            input = ops.cast(ops.real(input) if input.dtype in COMPLEX and dtype not in COMPLEX else input, dtype)
        if not input.ndim:
            return getattr(ops, name)(ops.reshape(input, (1,)), axes=0).reshape(())
        return getattr(ops, name)(input, axes=dim)

    softmax.__doc__ = getattr(_elementwise, name).__doc__
    define(f"{name}(input, dim: int, dtype: dtype=None, *, out=None)", "fm")(softmax)


_define_softmax("softmax")
_define_softmax("log_softmax")
