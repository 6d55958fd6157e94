"""What rows of the table say whose functions have no docstring of their own, since they are one expression."""

_TEXT = """
is_floating_point: Returns whether the dtype is of real numbers with fractions.
is_complex: Returns whether the dtype is of complex numbers.
full_like: Returns a tensor of the input's shape whose elements are all fill_value.
Tensor.new_empty_strided: Returns zeros of this shape, of the tensor's dtype.
slogdet: Returns (sign, logabsdet) of the determinant.
spmm: Returns the product of a sparse matrix and a dense one.
scalar_tensor: Returns a number as a tensor without axes.
take_along_dim: Returns the elements at the indices along an axis, or of the flattened tensor.
unravel_index: Returns the index along each axis of indices into a flattened tensor of this shape.
Tensor.where: Returns the tensor's elements where the condition holds, else those of other.
argwhere: Returns (n, ndim): the indices of the elements that are not 0.
argsort: Returns the indices that sort the elements along an axis.
msort: Returns the elements sorted along the first axis.
exp2: Returns 2 to the power of each element.
rsqrt: Returns 1 / sqrt(x).
sigmoid: Returns 1 / (1 + exp(-x)).
sinc: Returns sin(pi x) / (pi x), and 1 at 0.
heaviside: Returns 0 for negative elements, 1 for positive ones, and that of values for 0.
logical_and: Returns whether both elements are not 0.
logical_or: Returns whether one of the elements is not 0.
logical_xor: Returns whether exactly one of the elements is not 0.
real: Returns the real parts, as a view.
imag: Returns the imaginary parts, as a view.
conj: Returns the conjugates, as a view.
isreal: Returns whether the imaginary part is 0.
isposinf: Returns whether an element is infinity.
isneginf: Returns whether an element is minus infinity.
clamp_min: Returns the elements, at least min.
clamp_max: Returns the elements, at most max.
cumsum: Returns cumulative sums along an axis.
cumprod: Returns cumulative products along an axis.
cummax: Returns (values, indices) of the largest element so far along an axis.
cummin: Returns (values, indices) of the smallest element so far along an axis.
logcumsumexp: Returns the logarithms of cumulative sums of exp along an axis.
as_strided: Returns the view of these sizes and strides, counted in a contiguous tensor of row-major order.
as_strided_: Makes the tensor the view of these sizes and strides.
squeeze: Returns the view without axes of size 1: all, or those of dim.
transpose: Returns the view with two axes exchanged.
unbind: Returns the tensors along an axis, as views.
swapaxes: Returns the view with two axes exchanged.
swapdims: Returns the view with two axes exchanged.
movedim: Returns the view with axes moved to other positions.
adjoint: Returns the matrices (the last two axes) transposed and conjugated.
ravel: Returns the elements as one axis.
Tensor.view: Returns the view with other sizes, or of the bits as another dtype.
resize_as_: Gives the tensor the sizes of another one.
Tensor.set_: Gives the tensor the value of another one.
select_scatter: Returns the tensor with one index along an axis replaced by src.
slice_scatter: Returns the tensor with a slice along an axis replaced by src.
diagonal_scatter: Returns the tensor with a diagonal replaced by src.
as_strided_scatter: Returns the tensor with the elements of an as_strided view replaced by src.
cat: Returns the tensors joined along an axis.
hstack: Returns the tensors joined along the second axis, vectors along their only one.
vstack: Returns the tensors joined along the first axis; vectors are rows.
dstack: Returns the tensors joined along the third axis.
column_stack: Returns vectors as the columns of a matrix, joined with the columns of matrices.
block_diag: Returns a matrix with the given matrices along its diagonal.
cartesian_prod: Returns all combinations of the vectors' elements, one in each row.
broadcast_tensors: Returns the tensors, expanded to their common shape.
broadcast_shapes: Returns the shape to which these shapes are broadcast.
atleast_1d: Returns the tensor with at least one axis.
atleast_2d: Returns the tensor with at least two axes.
atleast_3d: Returns the tensor with at least three axes.
split_with_sizes: Returns the parts of these sizes along an axis, as views.
hsplit: Returns the parts along the second axis, of a vector along its only one.
vsplit: Returns the parts along the first axis.
dsplit: Returns the parts along the third axis.
fliplr: Returns the tensor with the second axis reversed.
flipud: Returns the tensor with the first axis reversed.
roll: Returns the elements moved along axes; those beyond the end come back at the beginning.
diagflat: Returns a matrix with the elements along a diagonal.
is_same_size: Returns whether both tensors have one shape.
zero_: Sets all elements to 0.
tril_indices: Returns (2, n): rows and columns of the elements on and below a diagonal.
triu_indices: Returns (2, n): rows and columns of the elements on and above a diagonal.
fft.fftfreq: Returns the frequencies of the n terms of a transform.
fft.rfftfreq: Returns the frequencies of the terms of a real transform of n elements.
"""
_DOCS = dict(line.split(": ", 1) for line in _TEXT.strip().splitlines())
_TRANSFORMS = {"fft": "Fourier transform", "rfft": "Fourier transform of real numbers", "hfft": "Fourier transform of half a Hermitian signal"}


def doc_of(name):
    """Returns the sentence of a row of the table, or ""."""
    base = name.rpartition(".")[2]
    if name in _DOCS:
        return _DOCS[name]
    if base.endswith("_copy"):
        return f"Returns the same as {base[:-5]}, as a copy."
    if base.startswith("unsafe_"):
        return f"Returns the same as {base[7:]}."
    if "window" in name:
        return f"Returns a {base.removesuffix('_window').replace('_', ' ')} window."
    if name.startswith("fft."):
        inverse, kind = base.startswith("i"), base.removeprefix("i").rstrip("2n")
        axes = {"2": "two axes", "n": "several axes"}.get(base[-1], "an axis")
        return f"Returns the {'inverse ' if inverse else ''}{_TRANSFORMS[kind]} along {axes}."
    return ""
