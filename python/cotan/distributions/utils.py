"""What distributions share: parameters of one shape, probabilities and logits, properties that are computed once."""
import functools

from .. import _core, _random
from .._core import Tensor, ops
from .._dtypes import finfo
from .._grad import enable_grad
from .._shaping import broadcast_tensors

__all__ = ["broadcast_all", "clamp_probs", "euler_constant", "lazy_property", "logits_to_probs", "probs_to_logits",
           "tril_matrix_to_vec", "vec_to_tril_matrix"]

euler_constant = 0.57721566490153286060


def broadcast_all(*values):
    """Returns numbers and tensors as tensors of one shape; numbers get the dtype of the first tensor, or float32."""
    if not all(isinstance(value, (Tensor, int, float)) for value in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                         "__torch_function__.")
    dtype = next((value.dtype for value in values if isinstance(value, Tensor)), _core.float32)
    return broadcast_tensors(*(x if isinstance(x, Tensor) else _core.asarray(x, dtype=dtype) for x in values))


def open_unit(shape, dtype):
    """Returns uniform draws between 0 and 1, both excluded."""
    eps = finfo(dtype).eps
    return (_random.uniform(tuple(shape), dtype=dtype) + eps / 4).clamp(max=1 - eps / 2)


def _standard_normal(shape, dtype, device):
    """Returns normally distributed draws, by the name that packages import."""
    return _random.gaussian(tuple(shape), dtype=dtype)


def constant_like(x, value):
    """Returns a tensor of x's shape and dtype in which each element is the value."""
    return _core.full(x.shape, value, x.dtype)


def clamp_probs(probs):
    """Returns probabilities that are neither 0 nor 1."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs, is_binary=False):
    """Returns log p, or log(p / (1 - p)) if they are those of two outcomes."""
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


def logits_to_probs(logits, is_binary=False):
    return logits.sigmoid() if is_binary else logits.softmax(-1)


class lazy_property:
    """A property that is computed when it is first read, with a history even inside no_grad, and then kept."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.wrapped.__name__] = value
        return value


def identity_like(matrix):
    """Returns ones on the diagonals of matrices (..., n, n), else zeros."""
    rows, columns = (ops.iota(_core.int64, matrix.shape, matrix.ndim - back) for back in (2, 1))
    return ops.cast(ops.equal(rows, columns), matrix.dtype)


def _triangle_indices(n, diag):
    return [row * n + column for row in range(n) for column in range(min(n, row + diag + 1))]


def tril_matrix_to_vec(mat, diag=0):
    """Returns the elements of (..., n, n) on and below a diagonal, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat.reshape(*mat.shape[:-2], n * n)[..., _core.asarray(_triangle_indices(n, diag), dtype=_core.int64)]


def vec_to_tril_matrix(vec, diag=0):
    """Returns the matrices (..., n, n) whose elements on and below a diagonal are those of (..., size), the others 0."""
    size = vec.shape[-1]
    n = int((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * size + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    at = _triangle_indices(n, diag)
    if len(at) != size:
        raise ValueError(f"The size of last dimension is {size} which cannot be expressed as the lower triangular part of a square "
                         "D x D matrix.")
    padded = ops.concat([vec, vec[..., :1] * 0], axis=-1)
    sources = [at.index(i) if i in at else size for i in range(n * n)]
    return padded[..., _core.asarray(sources, dtype=_core.int64)].reshape(*vec.shape[:-1], n, n)
