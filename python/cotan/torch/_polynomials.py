"""Orthogonal polynomials, by the names of torch.special: of degree n, element by element, with the fraction of n dropped; 0 for
negative n. They have no gradient, as in PyTorch."""
import functools
import math

from .. import _core
from .._core import ops
from .._dtypes import finfo
from .._shaping import broadcast_arrays
from .._transforms import while_loop
from ._define import define
from ._special import float_pair, where


def _chebyshev(kind, x, n):
    """Returns T, U, V or W of degree n: trigonometric up to 1 and hyperbolic beyond (DLMF 18.5.1 to 18.5.4), of |x| and with
    the sign for negative x, where V and W change places."""
    size, negative = ops.abs(x), ops.less(x, 0.0)
    inside, at_one = ops.less(size, 1.0), ops.equal(size, 1.0)
    angle = ops.acos(where(inside, size, 0.5))
    growth = ops.acosh(where(ops.greater(size, 1.0), size, 2.0))

    def v():
        return where(at_one, 1.0, where(inside, ops.cos((n + 0.5) * angle) / ops.cos(0.5 * angle),
                                        ops.cosh((n + 0.5) * growth) / ops.cosh(0.5 * growth)))

    def w():
        return where(at_one, 2.0 * n + 1.0, where(inside, ops.sin((n + 0.5) * angle) / ops.sin(0.5 * angle),
                                                  ops.sinh((n + 0.5) * growth) / ops.sinh(0.5 * growth)))

    if kind == "t":
        y = where(at_one, 1.0, where(inside, ops.cos(n * angle), ops.cosh(n * growth)))
    elif kind == "u":
        y = where(at_one, n + 1.0, where(inside, ops.sin((n + 1.0) * angle) / ops.sin(angle),
                                         ops.sinh((n + 1.0) * growth) / ops.sinh(growth)))
    else:
        y = where(negative, w(), v()) if kind == "v" else where(negative, v(), w())
    y = where(ops.equal(size, math.inf), math.inf, y)
    odd = ops.not_equal(ops.remainder(n, 2.0), 0.0)
    return where(ops.is_nan(x), math.nan, where(ops.and_(negative, odd), -y, y))


def _by_recurrence(first, following):
    """Makes a function of (x, n) from P1 = first(x) and P(k + 1) = following(x, k, P(k), P(k - 1)), in one loop to the largest
    n."""
    def values(x, n):
        def step(carry):
            k, before, current, result = carry
            after = following(x, k, current, before)
            return k + 1.0, current, after, where(ops.equal(n, k + 1.0), after, result)

        one, start = _core.full(x.shape, 1.0, _core.float64), first(x)
        init = (ops.cast(1.0, _core.float64), one, start, where(ops.equal(n, 1.0), start, one))
        return while_loop(lambda carry: ops.any(ops.less(carry[0], n)), step, init)[3]

    return values


def _define_polynomial(name, values, shifted=False, largest=None):
    def polynomial(x, n):
        x, n = float_pair(x, n)
        dtype = x.dtype
        x, n = broadcast_arrays(*(ops.cast(ops.stop_gradient(one), _core.float64) for one in (x, n)))
        n = ops.trunc(n)
        y = values(2.0 * x - 1.0 if shifted else x, n)
        y = where(ops.less(n, 0.0), 0.0, where(ops.equal(n, 0.0), 1.0, y))
        limit = largest and largest[finfo(dtype).bits > 32]
        return ops.cast(where(ops.greater(n, limit), math.nan, y) if limit else y, dtype)

    polynomial.__doc__ = f"Returns the {name.rpartition('_')[0].replace('_', ' ')} {name[-1].upper()} of degree n."
    define(f"special.{name}(input: Tensor|float, n: Tensor|float, *, out=None)")(polynomial)


for _kind in "tuvw":
    for _shifted in (False, True):
        _define_polynomial(f"{'shifted_' * _shifted}chebyshev_polynomial_{_kind}", functools.partial(_chebyshev, _kind), _shifted)
_LARGEST = (128, 512)  # the degrees beyond which PyTorch has NaN, of float32 and of float64
_define_polynomial("hermite_polynomial_h", _by_recurrence(
    lambda x: 2.0 * x, lambda x, k, p, q: 2.0 * (x * p - k * q)), largest=_LARGEST)
_define_polynomial("hermite_polynomial_he", _by_recurrence(lambda x: x, lambda x, k, p, q: x * p - k * q), largest=_LARGEST)
_define_polynomial("laguerre_polynomial_l", _by_recurrence(
    lambda x: 1.0 - x, lambda x, k, p, q: ((2.0 * k + 1.0 - x) * p - k * q) / (k + 1.0)))
_define_polynomial("legendre_polynomial_p", _by_recurrence(
    lambda x: x, lambda x, k, p, q: ((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0)))
