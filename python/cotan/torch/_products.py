"""Products of vectors and matrices, distances and covariances, with PyTorch's signatures."""
import functools
import string

from .. import _core, _more, linalg as _linalg
from .._core import Tensor, ops
from .._dtypes import BOOL, COMPLEX, FLOATS, INTEGERS
from .._reductions import conj_transposed
from .._shaping import broadcast_to, diagonals, normalize_axis, stack
from ._define import define, functions
from ._pointwise import as_float, cast_all


def _check(name, *operands):
    """Checks operands, given as name, tensor and rank: their ranks, and that they have one dtype."""
    for i in range(0, len(operands), 3):
        word, x, rank = operands[i:i + 3]
        if x.ndim != rank:
            raise RuntimeError(f"{name}: {word} must be a {rank}-D tensor, it has {x.ndim} axes")
        if x.dtype != operands[1].dtype:
            raise RuntimeError(f"{name}: expected {operands[0]} and {word} to have the same dtype, but got: "
                               f"{operands[1].dtype.name} != {x.dtype.name}")


def _matmul(a, b):
    """Returns the product of matrices of any numeric dtype; of bools it is bool."""
    if a.dtype in BOOL:
        return ops.cast(ops.cast(a, _core.int64) @ ops.cast(b, _core.int64), _core.bool)
    return a @ b


@define("matmul(input, other: Tensor, *, out=None)", "fm")
def matmul(input, other):
    """Returns the product of matrices, the last two axes; a vector is a row on the left, a column on the right."""
    if not input.ndim or not other.ndim:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {input.ndim}D and {other.ndim}D")
    if input.dtype != other.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {input.dtype.name} != {other.dtype.name}")
    return _matmul(input, other)


@define("mm(input, mat2: Tensor, *, out=None)", "fm")
def mm(input, mat2):
    """Returns the product of two matrices."""
    _check("mm", "self", input, 2, "mat2", mat2, 2)
    return _matmul(input, mat2)


@define("bmm(input, mat2: Tensor, *, out=None)", "fm")
def bmm(input, mat2):
    """Returns the products of matrices (B, N, M) and (B, M, P): (B, N, P)."""
    _check("bmm", "batch1", input, 3, "batch2", mat2, 3)
    if input.shape[0] != mat2.shape[0]:
        raise RuntimeError(f"bmm: the batches have {input.shape[0]} and {mat2.shape[0]} matrices")
    return _matmul(input, mat2)


@define("mv(input, vec: Tensor, *, out=None)", "fm")
def mv(input, vec):
    """Returns the product of a matrix and a vector."""
    _check("mv", "input", input, 2, "vec", vec, 1)
    return _matmul(input, vec)


@define("dot(input, tensor: Tensor, *, out=None)", "fm")
def dot(input, tensor):
    """Returns the sum of products of two vectors."""
    _check("dot", "input", input, 1, "tensor", tensor, 1)
    if input.shape != tensor.shape:
        raise RuntimeError(f"inconsistent tensor size, expected tensor {list(input.shape)} and src {list(tensor.shape)} to have "
                           f"the same number of elements, but got {input.shape[0]} and {tensor.shape[0]} elements respectively")
    return _matmul(input, tensor)


@define("vdot(input, other: Tensor, *, out=None)", "fm")
def vdot(input, other):
    """Returns the sum of products of two vectors, with the first conjugated."""
    return dot(ops.conj(input) if input.dtype in COMPLEX else input, other)


@define("inner(input, other: Tensor, *, out=None)", "fm")
def inner(input, other):
    """Returns the sums of products over the last axes; for numbers, their product."""
    if input.ndim and other.ndim and input.shape[-1] != other.shape[-1]:
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and "
                           f"{list(other.shape)}")
    return _more.inner(input, other)


@define("outer(input, vec2: Tensor, *, out=None)", "fm", "ger")
def outer(input, vec2):
    """Returns the products of all pairs of elements of two vectors."""
    for word, x in (("self", input), ("vec2", vec2)):
        if x.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {word}, but got {x.ndim}-D")
    a, b = cast_all(input, vec2)
    a = ops.reshape(a, (-1, 1))
    return ops.and_(a, b) if a.dtype in BOOL else a * b


define("kron(input, other: Tensor, *, out=None)", "fm")(_more.kron)


def _accumulated(name, input, product, beta, alpha):
    """Returns beta input + alpha product, in the product's shape; with beta 0 input is not read."""
    if input.dtype != product.dtype:
        raise RuntimeError(f"{name}: self and mat2 must have the same dtype, but got: {input.dtype.name} != {product.dtype.name}")
    if product.dtype in INTEGERS:
        alpha, beta = int(alpha), int(beta)
    input = broadcast_to(input, product.shape)
    if product.dtype in BOOL:
        product = product if alpha else ops.xor(product, product)
        return ops.or_(product, input) if beta else product
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else input * beta)


def _define_accumulated(name, first, second, product, doc):
    def function(input, a, b, beta, alpha):
        return _accumulated(name, input, product(a, b), beta, alpha)

    function.__doc__ = f"Returns beta input + alpha {doc}."
    define(f"{name}(input, {first}: Tensor, {second}: Tensor, *, beta: float=1, alpha: float=1, out=None)", "fmi")(function)


_define_accumulated("addmm", "mat1", "mat2", mm, "mat1 @ mat2")
_define_accumulated("addmv", "mat", "vec", mv, "mat @ vec")
_define_accumulated("addr", "vec1", "vec2", outer, "outer(vec1, vec2)")
_define_accumulated("baddbmm", "batch1", "batch2", bmm, "batch1 @ batch2")
_define_accumulated("addbmm", "batch1", "batch2", lambda a, b: ops.sum(bmm(a, b), axes=0), "times the sum of batch1 @ batch2")


@define("tensordot(a: Tensor, b: Tensor, dims: any=2, out=None)")
def tensordot(a, b, dims):
    """Returns the sums of products over pairs of axes: the last axes of a, as many as dims, with the first of b; or two lists."""
    dims = dims.tolist() if isinstance(dims, Tensor) else dims
    if isinstance(dims, int) and dims < 0:
        raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
    if isinstance(dims, (list, tuple)) and len(dims) == 1:
        dims = (dims[0], dims[0])
    return _linalg.tensordot(a, b, dims)


@define("chain_matmul(*matrices: any, out=None)")
def chain_matmul(matrices):
    """Returns the product of several matrices, in the order that takes the fewest multiplications."""
    return multi_dot(matrices) if len(matrices) > 1 else matrices[0]


def _subscripts(labels):
    letters = string.ascii_uppercase + string.ascii_lowercase
    return "".join("..." if label is Ellipsis else letters[label] for label in labels)


@define("einsum(equation: any, *operands: any)")
def einsum(equation, operands):
    """Returns the sums of products of an equation like "ij,jk->ik", or of operands, each followed by its list of labels, and at
    the end the labels of the result."""
    if isinstance(equation, str):
        operands = operands[0] if len(operands) == 1 and not isinstance(operands[0], Tensor) else operands
        terms, arrow, result = equation.partition("->")
        if not arrow or "..." in result or "..." not in terms:
            return _core.einsum(equation, *operands)
        y = _core.einsum(f"{terms}->...{result}", *operands)  # an ellipsis that the result lacks is summed over
        lead = y.ndim - len(result.replace(" ", ""))
        return ops.sum(y, axes=list(range(lead))) if lead else y
    if operands and not isinstance(operands[0], (list, tuple)):
        operands = (operands,)  # the labels of the only operand, which are taken for all that is left
    parts = [equation, *operands]
    text = [_subscripts(labels) for labels in parts[1::2]]
    result = "->" + _subscripts(parts[-1]) if len(parts) % 2 else ""
    return einsum(",".join(text) + result, parts[:len(text) * 2:2])


def _cross(input, other, dim):
    a, b = cast_all(input, other)
    if a.shape[dim] != 3 or b.shape[dim] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {a.shape[dim]} and {b.shape[dim]}")
    return ops.cross(a.moveaxis(dim, -1), b.moveaxis(dim, -1)).moveaxis(-1, dim)


@define("cross(input, other: Tensor, dim: int=None, *, out=None)", "fm")
def cross(input, other, dim):
    """Returns the cross product along an axis of 3 elements, by default the first such."""
    if dim is None:
        dim = next((axis for axis, size in enumerate(input.shape) if size == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
        dim -= input.ndim
    return linalg_cross(input, other, dim)


@define("linalg.cross(input, other: Tensor, *, dim: int=-1, out=None)")
def linalg_cross(input, other, dim):
    """Returns the cross product along an axis of 3 elements."""
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    normalize_axis(dim, input.ndim, "linalg.cross")
    return _cross(input, other, dim)


@define("linalg.vecdot(x: Tensor, y: Tensor, *, dim: int=-1, out=None)")
def vecdot(x, y, dim):
    """Returns the sums of products along an axis, with the first factors conjugated."""
    return ops.sum((ops.conj(x) if x.dtype in COMPLEX else x) * y, axes=dim)


@define("linalg.multi_dot(tensors: any, *, out=None)")
def multi_dot(tensors):
    """Returns the product of matrices, of which the first and the last may be vectors, in the cheapest order."""
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    if tensors[0].dtype in INTEGERS:
        return functools.reduce(_matmul, tensors)
    return ops.multi_dot(list(tensors))


@define("trace(input)", "fm")
def trace(input):
    """Returns the sum of a matrix's diagonal."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return ops.sum(ops.diagonal(input if input.dtype in FLOATS + COMPLEX else ops.cast(input, _core.int64)), axes=0)


@define("linalg.diagonal(A: Tensor, *, offset: int=0, dim1: int=-2, dim2: int=-1)")
def diagonal(A, offset, dim1, dim2):
    """Returns the diagonals of matrices, two axes, as a view."""
    return diagonals(A if (dim1, dim2) == (-2, -1) else A.moveaxis((dim1, dim2), (-2, -1)), offset)


@define("vander(x: Tensor, N: int=None, increasing: bool=False)")
def vander(x, N, increasing):
    """Returns the powers of a vector's elements, (len(x), N): from N - 1 down to 0, or increasing."""
    return _vander(x, N) if increasing else ops.flip(_vander(x, N), axes=-1)


@define("linalg.vander(x: Tensor, *, N: int=None)")
def linalg_vander(x, N):
    """Returns the powers 0 to N - 1 of the elements, on a new last axis."""
    return _vander(x, N)


def _vander(x, N):
    x = ops.cast(x, _core.int64) if x.dtype in BOOL + INTEGERS else x
    x = x if x.ndim else ops.reshape(x, (1,))
    columns = [_core.full(x.shape, 1, x.dtype)]
    for _ in range((x.shape[-1] if N is None else N) - 1):
        columns.append(columns[-1] * x)
    return stack(columns[:N], -1) if N != 0 else _core.full((*x.shape, 0), 0, x.dtype)


# ------------------------------------------------------------------------------------------ distances

@define("dist(input, other: Tensor, p: float=2)", "fm")
def dist(input, other, p):
    """Returns the p-norm of input - other."""
    return ops.vector_norm(as_float(input - other), ord=float(p))


@define("cdist(x1: Tensor, x2: Tensor, p: float=2.0, compute_mode: str=None)")
def cdist(x1, x2, p, compute_mode):
    """Returns the distances of all pairs of rows of x1, (..., M, K), and x2, (..., N, K): (..., M, N). All modes of computation
    give the exact one."""
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    difference = ops.reshape(x1, (*x1.shape[:-1], 1, x1.shape[-1])) - ops.reshape(x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))
    if not difference.shape[-1]:
        return ops.sum(ops.abs(difference), axes=-1)
    return ops.vector_norm(difference, ord=float(p), axes=-1)


@define("renorm(input, p: float, dim: int, maxnorm: float, *, out=None)", "fmi")
def renorm(input, p, dim, maxnorm):
    """Returns the parts along an axis, each scaled down to the p-norm maxnorm if its norm is larger."""
    axis = normalize_axis(dim, input.ndim, "renorm")
    norms = ops.vector_norm(input, axes=[i for i in range(input.ndim) if i != axis], keepdims=True, ord=float(p))
    return input * ops.select(ops.greater(norms, maxnorm), maxnorm / (norms + 1e-7), 1.0)


# ---------------------------------------------------------------------------------------- covariances

@define("cov(input, *, correction: int=1, fweights: Tensor=None, aweights: Tensor=None)", "fm")
def cov(input, correction, fweights, aweights):
    """Returns the covariance of variables, the rows of input (variables, observations). fweights say how often an observation
    counts, aweights how much."""
    x = as_float(input)
    if x.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {x.ndim} dimensions")
    x = ops.reshape(x, (1, -1)) if x.ndim < 2 else x
    n, real = x.shape[1], ops.abs(x).dtype
    if fweights is None and aweights is None:
        mean, weighted, norm = ops.mean(x, axes=1, keepdims=True), None, float(max(n - correction, 0))
    else:
        weights = _product(fweights, aweights)
        w = ops.cast(weights, real)
        total = ops.sum(w)
        mean, weighted = ops.sum(x * w, axes=1, keepdims=True) / total, w
        squares = total if aweights is None else ops.sum(w * ops.cast(aweights, real)) / total
        norm = total - correction * (squares if aweights is not None else 1.0) if correction else total
        norm = ops.maximum(norm, 0.0)
    centred = x - mean
    y = ops.matmul(centred, conj_transposed(centred if weighted is None else centred * weighted)) / norm
    return ops.reshape(y, ()) if y.shape[0] == 1 else y


def _product(a, b):
    return b if a is None else a if b is None else a * b


@define("corrcoef(input)", "fm")
def corrcoef(input):
    """Returns the correlation of variables, the rows of input."""
    c = cov(input, 1, None, None)
    if not c.ndim:
        return c / c
    deviation = ops.sqrt(ops.real(ops.diagonal(c)) if c.dtype in COMPLEX else ops.diagonal(c))
    c = c / ops.reshape(deviation, (-1, 1)) / deviation
    if c.dtype in COMPLEX:
        return ops.complex(ops.clamp(ops.real(c), -1.0, 1.0), ops.clamp(ops.imag(c), -1.0, 1.0))
    return ops.clamp(c, -1.0, 1.0)


functions["linalg.matmul"] = functions["matmul"]
