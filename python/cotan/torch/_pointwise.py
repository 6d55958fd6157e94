"""Elementwise functions with PyTorch's signatures and promotion."""
from .. import _core, _elementwise
from .._core import Tensor, ops
from .._dtypes import COMPLEX, FLOATS, INTEGERS
from ._define import define

# name[/alias…] of functions of one tensor that are one op; integers become floats in the first list, stay in the second.
for _names in """acos/arccos acosh/arccosh asin/arcsin asinh/arcsinh atan/arctan atanh/arctanh cos cosh deg2rad digamma erf erfc erfinv
        exp exp2 expm1 lgamma log log10 log1p log2 rad2deg reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh""".split():
    _name, *_alias = _names.split("/")
    define(f"{_name}(input, *, out=None)", "fmiI", _alias, op=_name, floats=True)()
