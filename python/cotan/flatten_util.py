"""Trees of tensors as one vector, as in jax.flatten_util."""
import math

from ._core import Tensor, asarray, ops
from ._creation import zeros
from ._dtypes import COMPLEX, result_type
from .tree_util import tree_flatten, tree_unflatten

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree):
    """Returns (vector, unravel): the elements of all leaves concatenated, in their common dtype, and a
    function that gives such a vector the tree's structure and shapes. If the leaves have several dtypes, they
    get theirs back; if they have one, they have the vector's. Gradients pass through both."""
    leaves, structure = tree_flatten(pytree)
    leaves = [leaf if isinstance(leaf, Tensor) else asarray(leaf) for leaf in leaves]
    shapes, dtypes = [tuple(leaf.shape) for leaf in leaves], [leaf.dtype for leaf in leaves]
    sizes = [math.prod(shape) for shape in shapes]
    dtype = result_type(*leaves) if leaves else None
    vector = ops.concat([ops.cast(ops.reshape(leaf, (-1,)), dtype) for leaf in leaves], 0) if leaves else zeros(0)

    def unravel(vector):
        if tuple(vector.shape) != (sum(sizes),):
            raise ValueError(f"unravel: the tree has {sum(sizes)} elements, a vector of ({sum(sizes)},) is expected, "
                             f"got {tuple(vector.shape)}")
        parts, at = [], 0
        for shape, size, own in zip(shapes, sizes, dtypes):
            part = ops.reshape(vector[at:at + size], shape)
            if len(set(dtypes)) > 1:
                part = ops.real(part) if part.dtype in COMPLEX and own not in COMPLEX else part
                part = ops.cast(part, own)
            parts.append(part)
            at += size
        return tree_unflatten(structure, parts)

    return vector, unravel
