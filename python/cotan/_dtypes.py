"""Dtypes: their kinds, limits, and promotion."""
import functools

from . import _core

BOOL = (_core.bool,)
SIGNED = (_core.int8, _core.int16, _core.int32, _core.int64)
UNSIGNED = (_core.uint8, _core.uint16, _core.uint32, _core.uint64)
FLOATS = (_core.float16, _core.bfloat16, _core.float32, _core.float64, _core.float8_e4m3fn, _core.float8_e5m2)
COMPLEX = (_core.complex64, _core.complex128)
INTEGERS = SIGNED + UNSIGNED
KINDS = {"bool": BOOL, "signed integer": SIGNED, "unsigned integer": UNSIGNED, "integral": INTEGERS,
         "real floating": FLOATS, "complex floating": COMPLEX, "numeric": INTEGERS + FLOATS + COMPLEX}
DEFAULTS = {bool: _core.bool, int: _core.int64, float: _core.float32, complex: _core.complex64}
_REAL = {_core.complex64: _core.float32, _core.complex128: _core.float64}
_COMPLEX = {_core.float64: _core.complex128, _core.complex128: _core.complex128}


def get_default_dtype():
    """Returns the dtype of Python's floats: float32 unless it was set."""
    return DEFAULTS[float]


def set_default_dtype(d):
    """Sets the dtype of Python's floats, of which tensors are made and to which integers are promoted."""
    dtype = _core.dtype(d)
    if dtype not in FLOATS[:4]:
        raise TypeError(f"set_default_dtype: {dtype.name} is asked for, the default is float16, bfloat16, float32 or float64")
    _core._set_default_float(dtype)
    DEFAULTS[float], DEFAULTS[complex] = dtype, complex_dtype(dtype)


def real_dtype(dtype):
    """Returns the dtype of a complex dtype's parts; a real dtype is returned as it is."""
    return _REAL.get(dtype, dtype)


def complex_dtype(dtype):
    """Returns the complex dtype whose parts can hold the dtype."""
    return _COMPLEX.get(dtype, _core.complex64)


def category(dtype):
    """Returns 0 for bool, 1 for integers, 2 for floats, 3 for complex numbers."""
    return 0 if dtype in BOOL else 1 if dtype in INTEGERS else 2 if dtype in FLOATS else 3


def isdtype(dtype, kind):
    """True if the dtype is of this kind: a dtype, a name ("bool", "signed integer", "unsigned integer",
    "integral", "real floating", "complex floating", "numeric"), or a tuple of these, of which one must
    match."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"isdtype: {kind!r} is no kind, the kinds are {', '.join(KINDS)}")
        return dtype in KINDS[kind]
    return dtype == _core.dtype(kind)


def is_floating_point(x):
    return x.dtype in FLOATS


def is_complex(x):
    return x.dtype in COMPLEX


@functools.lru_cache(maxsize=None)
def promote_types(a, b):
    """Returns the dtype of a + b."""
    if a == b or b == _core.bool:
        return a
    if a == _core.bool:
        return b
    return (_core.full((1,), 0, a) + _core.full((1,), 0, b)).dtype


def result_type(*operands):
    """Returns the common dtype of tensors, dtypes and Python numbers; a number counts only if its kind is
    new."""
    strong, weak = [], []
    for operand in operands:
        if getattr(operand, "shape", None) == () and hasattr(operand, "item") and not isinstance(operand, _core.Tensor):
            operand = operand.item()  # a NumPy scalar
        if isinstance(operand, _core.Tensor):
            strong.append(operand.dtype)
        elif isinstance(operand, (bool, int, float, complex)):
            weak.append(type(operand))
        else:
            strong.append(_core.dtype(operand))
    if not operands:
        raise ValueError("result_type: it needs at least one operand")
    if not strong:
        return functools.reduce(promote_types, [DEFAULTS[kind] for kind in weak])
    dtype = functools.reduce(promote_types, strong)
    for kind in weak:
        if kind is complex and dtype not in COMPLEX:
            dtype = complex_dtype(dtype)
        elif kind is float and dtype not in FLOATS + COMPLEX or kind is int and dtype == _core.bool:
            dtype = DEFAULTS[kind]
    return dtype


def can_cast(from_, to, /):
    """True if `to` holds all values of from_ (a dtype or a tensor) by the promotion rules."""
    source = from_.dtype if isinstance(from_, _core.Tensor) else _core.dtype(from_)
    return promote_types(source, _core.dtype(to)) == _core.dtype(to)


class finfo:
    """The limits of a float dtype; for a complex dtype, those of its parts."""

    _KNOWN = {_core.float16: (16, 10, -14, 65504.0), _core.bfloat16: (16, 7, -126, (2 - 2.0**-7) * 2.0**127),
              _core.float32: (32, 23, -126, (2 - 2.0**-23) * 2.0**127),
              _core.float64: (64, 52, -1022, (2 - 2.0**-52) * 2.0**1023),
              _core.float8_e4m3fn: (8, 3, -6, 448.0), _core.float8_e5m2: (8, 2, -14, 57344.0)}

    def __init__(self, type=None):
        dtype = type.dtype if isinstance(type, _core.Tensor) else _core.dtype(type or _core.float32)
        self.dtype = real_dtype(dtype)
        if self.dtype not in self._KNOWN:
            raise TypeError(f"finfo: {dtype!r} is no float")
        self.bits, digits, least, self.max = self._KNOWN[self.dtype]
        self.eps, self.smallest_normal, self.min = 2.0**-digits, 2.0**least, -self.max
        self.tiny, self.resolution = self.smallest_normal, 10.0 ** -int(digits * 0.30103)

    def __repr__(self):
        return f"finfo(dtype={self.dtype!r}, bits={self.bits}, min={self.min}, max={self.max}, eps={self.eps})"


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, type):
        self.dtype = type.dtype if isinstance(type, _core.Tensor) else _core.dtype(type)
        if self.dtype not in INTEGERS:
            raise TypeError(f"iinfo: {self.dtype!r} is no integer")
        self.bits = 8 * self.dtype.itemsize
        self.min = -(1 << (self.bits - 1)) if self.dtype in SIGNED else 0
        self.max = (1 << (self.bits - (self.dtype in SIGNED))) - 1

    def __repr__(self):
        return f"iinfo(dtype={self.dtype!r}, bits={self.bits}, min={self.min}, max={self.max})"


def astype(x, dtype, /, *, copy=True, device=None):
    """Returns the tensor in another dtype; complex numbers become real ones by real(x) alone."""
    dtype = _core.dtype(dtype)
    if device is not None:
        x = x.to(device)
    if dtype == x.dtype:
        return _core.ops.cast(x, dtype) if copy else x
    if x.dtype in COMPLEX and dtype not in COMPLEX:
        raise TypeError(f"astype: complex numbers do not become {dtype!r}\n  hint: real(x) or abs(x) before")
    return _core.ops.cast(x, dtype)


class __array_namespace_info__:
    """Describes this implementation of the array API standard."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self):
        return _core._own_device()

    def devices(self):
        return [_core._own_device()]

    def default_dtypes(self, *, device=None):
        return {"real floating": _core.float32, "complex floating": _core.complex64, "integral": _core.int64,
                "indexing": _core.int64}

    def dtypes(self, *, device=None, kind=None):
        kinds = (kind,) if isinstance(kind, str) else kind
        known = BOOL + SIGNED + UNSIGNED + (_core.float32, _core.float64) + COMPLEX
        return {dtype.name: dtype for dtype in known if kinds is None or isdtype(dtype, tuple(kinds))}
