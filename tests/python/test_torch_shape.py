"""cotan.torch's functions of shapes, indices, sorting and differences, with PyTorch's values."""
import pickle

import pytest

import cotan
import cotan.torch as torch
from cotan.torch import return_types

inf = float("inf")
# (expression, its value): t is the module, c creates tensors; see NAMES.
CASES = [
    # joining and splitting
    ('t.cat([i, f])', [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]),
    ('t.cat([c.tensor([]), m], dim=1)', [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]),
    ('t.hstack((c.tensor(1), c.tensor(2)))', [1, 2]),
    ('t.column_stack((i, m[:, :2]))', [[0.0, 0.0, 1.0], [1.0, 4.0, 5.0], [2.0, 8.0, 9.0]]),
    ('t.dstack((i, i))', [[[0, 0], [1, 1], [2, 2]]]),
    ('t.block_diag(i, m[:2, :2])', [[0.0, 1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 4.0, 5.0]]),
    ('t.cartesian_prod(i, i[:2])', [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]),
    ('t.combinations(i, 2, True)', [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]]),
    ('t.meshgrid(i, i[:2])', [[[0, 0], [1, 1], [2, 2]], [[0, 1], [0, 1], [0, 1]]]),
    ('t.meshgrid(i, i[:2], indexing="xy")', [[[0, 1, 2], [0, 1, 2]], [[0, 0, 0], [1, 1, 1]]]),
    ('t.atleast_2d(c.tensor(1), i)', [[[1]], [[0, 1, 2]]]),
    ('t.tensor_split(m, c.tensor([1, 2]), 1)',
     [[[0.0], [4.0], [8.0]], [[1.0], [5.0], [9.0]], [[2.0, 3.0], [6.0, 7.0], [10.0, 11.0]]]),
    ('t.hsplit(m, [1])', [[[0.0], [4.0], [8.0]], [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0], [9.0, 10.0, 11.0]]]),
    ('m.split_with_sizes([1, 2])', [[[0.0, 1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]]),
    ('t.chunk(c.zeros(0), 2)', [[], []]),
    ('t.broadcast_shapes(2, (3, 1))', [3, 2]),
    # shapes
    ('t.movedim(m3, (0, 1), (2, 0))', [[[0, 6], [1, 7]], [[2, 8], [3, 9]], [[4, 10], [5, 11]]]),
    ('t.squeeze(c.ones(1, 2, 1), (0, 1))', [[1.0], [1.0]]),
    ('t.unflatten(i, 0, (3, -1))', [[0], [1], [2]]),
    ('t.as_strided(m, (2, 2), (1, 5), 2)', [[2.0, 7.0], [3.0, 8.0]]),
    ('t.as_strided(m, (2, 3), (0, 1), 4)', [[4.0, 5.0, 6.0], [4.0, 5.0, 6.0]]),
    ('m.view(size=(4, 3))', [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]),
    ('m[:1].view(c.complex64)', [[1j, (2+3j)]]),
    ('m.flip(0, 1)', [[11.0, 10.0, 9.0, 8.0], [7.0, 6.0, 5.0, 4.0], [3.0, 2.0, 1.0, 0.0]]),
    ('m.roll((1, 2), (0, 1))', [[10.0, 11.0, 8.0, 9.0], [2.0, 3.0, 0.0, 1.0], [6.0, 7.0, 4.0, 5.0]]),
    ('t.rot90(m, 1, (1, 0))', [[8.0, 4.0, 0.0], [9.0, 5.0, 1.0], [10.0, 6.0, 2.0], [11.0, 7.0, 3.0]]),
    ('m[:2, :2].tile(1, 2)', [[0.0, 1.0, 0.0, 1.0], [4.0, 5.0, 4.0, 5.0]]),
    ('t.repeat_interleave(c.tensor([1, 2, 0]))', [0, 1, 1]),
    ('t.repeat_interleave(m, c.tensor([1, 0, 2]), 0, output_size=3)',
     [[0.0, 1.0, 2.0, 3.0], [8.0, 9.0, 10.0, 11.0], [8.0, 9.0, 10.0, 11.0]]),
    ('t.diag_embed(i, -1)', [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0]]),
    ('t.diag_embed(m[:2, :2], 1, 0, 2)',
     [[[0.0, 0.0, 0.0], [0.0, 4.0, 0.0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 5.0]], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]),
    ('t.diagflat(i, -1)', [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0]]),
    ('t.tril_indices(3, 3, -1)', [[1, 2, 2], [0, 0, 1]]),
    ('t.fill(i, 2.7)', [2, 2, 2]),
    ('m.sum_to_size(1, 4)', [[12.0, 15.0, 18.0, 21.0]]),
    ('(m > 5).sum_to_size(1, 4)', [[1, 1, 2, 2]]),
    ('t.unfold_copy(i, 0, 2, 1)', [[0, 1], [1, 2]]),
    ('c.tensor(3.0).unfold(0, 1, 1)', [3.0]),
    # parts of a copy
    ('t.select_scatter(m, i.new_full((4,), 9), 0, 1)', [[0.0, 1.0, 2.0, 3.0], [9.0, 9.0, 9.0, 9.0], [8.0, 9.0, 10.0, 11.0]]),
    ('t.slice_scatter(m, c.zeros(3, 2), 1, step=2)', [[0.0, 1.0, 0.0, 3.0], [0.0, 5.0, 0.0, 7.0], [0.0, 9.0, 0.0, 11.0]]),
    ('t.diagonal_scatter(m, c.tensor([8.0, 9.0]), -1)', [[0.0, 1.0, 2.0, 3.0], [8.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]),
    ('t.as_strided_scatter(m, c.zeros(2, 2), (2, 2), (1, 4), 1)',
     [[0.0, 0.0, 0.0, 3.0], [4.0, 0.0, 0.0, 7.0], [8.0, 9.0, 10.0, 11.0]]),
    # gathering and scattering
    ('t.gather(m, 1, c.tensor([[0, 3], [1, 1], [2, 0]]))', [[0.0, 3.0], [5.0, 5.0], [10.0, 8.0]]),
    ('t.scatter(m, 0, c.tensor([[2, 1, 0, 0]]), 9)', [[0.0, 1.0, 9.0, 9.0], [4.0, 9.0, 6.0, 7.0], [9.0, 9.0, 10.0, 11.0]]),
    ('t.scatter(m, 1, c.tensor([[0], [1], [1]]), m, reduce="add")',
     [[0.0, 1.0, 2.0, 3.0], [4.0, 9.0, 6.0, 7.0], [8.0, 17.0, 10.0, 11.0]]),
    ('t.scatter(c.tensor(3.0), -1, c.tensor(0), 7.0)', 7.0),
    ('t.scatter_add(i > 0, 0, c.tensor([0, 0]), c.tensor([True, False]))', [True, True, True]),
    ('t.scatter_reduce(f, 0, c.tensor([0, 0, 1]), f + 2, "mean", include_self=False)', [2.5, 4.0, 2.0]),
    ('t.scatter_reduce(f, 0, c.tensor([0, 0, 1]), f + 2, "prod")', [0.0, 4.0, 2.0]),
    ('t.index_reduce(m, 0, c.tensor([0, 2, 0]), m + 1, "amax")',
     [[9.0, 10.0, 11.0, 12.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]),
    ('t.index_add(m, 1, c.tensor([0, 0]), m[:, :2], alpha=2)',
     [[2.0, 1.0, 2.0, 3.0], [22.0, 5.0, 6.0, 7.0], [42.0, 9.0, 10.0, 11.0]]),
    ('t.index_add(i > 0, 0, c.tensor([0]), c.tensor([True]), alpha=False)', [False, True, True]),
    ('t.index_copy(c.tensor(1.0), 0, c.tensor([0]), c.tensor(2.0))', 2.0),
    ('t.index_fill(m, 0, c.tensor([2]), c.tensor(7.0))', [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [7.0, 7.0, 7.0, 7.0]]),
    ('t.index_select(c.tensor(4), 0, c.tensor([0]))', 4),
    ('t.index_put(m, (c.tensor([0, 0]), c.tensor([1, 1])), c.tensor(5.0), accumulate=True)',
     [[0.0, 11.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]),
    ('t.index_put(i > 0, (c.tensor([0, 0]),), c.tensor([True, False]), accumulate=True)', [True, True, True]),
    ('t.put(m, c.tensor([0, -1, 0]), c.tensor([5.0, 6.0, 7.0]), accumulate=True)',
     [[12.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 17.0]]),
    ('t.take(m, c.tensor([[0, -1]]))', [[0.0, 11.0]]),
    ('t.take_along_dim(m, c.tensor([[1]]), dim=0)', [[4.0, 5.0, 6.0, 7.0]]),
    ('t.unravel_index(c.tensor([5, 11]), (3, 4))', [[1, 2], [1, 3]]),
    # masks
    ('t.where(i > 0, True, 2)', [2, 1, 1]),
    ('t.where(i > 0, i, 0.5)', [0.5, 1.0, 2.0]),
    ('t.where(i > 0)', [[1, 2]]),
    ('t.masked_fill(i, i > 0, c.tensor(7))', [0, 7, 7]),
    ('t.masked_scatter(i, c.tensor([[True, False, True], [False, True, True]]), c.arange(5, 9))', [[5, 1, 6], [0, 7, 8]]),
    ('t.masked_select(m, c.tensor([True, False, False, True]))', [0.0, 3.0, 4.0, 7.0, 8.0, 11.0]),
    ('t.nonzero(c.tensor(0.0)).shape', [0, 0]),
    ('t.nonzero(m > 8, as_tuple=True)', [[2, 2, 2], [1, 2, 3]]),
    ('t.nonzero_static(m > 8, size=4, fill_value=-2)', [[2, 1], [2, 2], [2, 3], [-2, -2]]),
    # sorting, searching, sets
    ('t.sort(c.tensor([2.0, c.inf, 1.0]), descending=True)', [[inf, 2.0, 1.0], [1, 0, 2]]),
    ('t.argsort(c.tensor([2.0, c.nan, 1.0]), descending=True)', [1, 0, 2]),
    ('t.topk(m, 2, 0)', [[[8.0, 9.0, 10.0, 11.0], [4.0, 5.0, 6.0, 7.0]], [[2, 2, 2, 2], [1, 1, 1, 1]]]),
    ('t.topk(c.tensor(3), 1)', [3, 0]),
    ('t.kthvalue(m, 2, keepdim=True)', [[[1.0], [5.0], [9.0]], [[1], [1], [1]]]),
    ('t.mode(c.tensor([[2, 1, 2, 1], [3, 3, 3, 0]]))', [[1, 3], [3, 2]]),
    ('t.searchsorted(i, 1, right=True)', 2),
    ('t.bucketize(m, i, out_int32=True)', [[0, 1, 2, 3], [3, 3, 3, 3], [3, 3, 3, 3]]),
    ('t.isin(i, 1, invert=True)', [True, False, True]),
    ('t.unique(c.tensor([[1, 2, 0], [0, 5, 9], [1, 2, 0]]), return_inverse=True, return_counts=True, dim=0)',
     [[[0, 5, 9], [1, 2, 0]], [1, 0, 1], [1, 2]]),
    ('t.unique(c.tensor([[1, 1, 0], [2, 2, 5]]), dim=1)', [[0, 1], [5, 2]]),
    ('t.unique_consecutive(c.tensor([1, 1, 0, 0, 1]), return_inverse=True, return_counts=True)',
     [[1, 0, 1], [0, 0, 1, 1, 2], [2, 2, 1]]),
    ('t.bincount(i, c.tensor([1, 2, 3]), minlength=4)', [1.0, 2.0, 3.0, 0.0]),
    ('t.histc(m, 3, 0, 9)', [3.0, 3.0, 4.0]),
    ('t.histogram(m, 2, range=(0.0, 8.0))', [[4.0, 5.0], [0.0, 4.0, 8.0]]),
    ('t.histogramdd(m[:, :2], [2, 1])', [[[1.0], [2.0]], [[0.0, 4.0, 8.0], [1.0, 9.0]]]),
    # differences and integrals
    ('t.diff(m, 1, 0, prepend=m[:1])', [[0.0, 0.0, 0.0, 0.0], [4.0, 4.0, 4.0, 4.0], [4.0, 4.0, 4.0, 4.0]]),
    ('t.gradient(f * f)', [[1.0, 2.0, 3.0]]),
    ('t.gradient(3 * f * f, spacing=(c.tensor([0.0, 1.0, 3.0]),), edge_order=2)', [[2.5, 3.5, 5.5]]),
    ('t.trapezoid(m, dx=2)', [9.0, 33.0, 57.0]),
    ('t.cumulative_trapezoid(i, c.tensor([0.0, 1.0, 3.0]))', [0.5, 3.5]),
]
NAMES = {"t": torch, "c": cotan, "i": cotan.arange(3), "f": cotan.arange(3.0), "m": cotan.arange(12.0).reshape(3, 4),
         "m3": cotan.arange(12).reshape(2, 3, 2)}


def plain(x):
    if isinstance(x, (tuple, list)):
        return [plain(one) for one in x]
    return x.tolist() if isinstance(x, cotan.Tensor) else x


@pytest.mark.parametrize("text, value", CASES, ids=[text for text, _ in CASES])
def test_value(text, value):
    assert plain(eval(text, NAMES)) == value


@pytest.mark.parametrize("text, dtype", [
    ("t.cat([i, f])", "float32"), ("t.where(i > 0, True, 2)", "int64"), ("t.where(i > 0, i, 0.5)", "float32"),
    ("t.where(i > 0, f, c.tensor(1.0, dtype=c.float64))", "float32"), ("t.fill(i, 2.7)", "int64"),
    ("t.bincount(i, i)", "float64"), ("t.searchsorted(i, i, out_int32=True)", "int32"), ("t.histc(m)", "float32"),
    ("(i > 0).sum_to_size(1)", "int64"), ("t.trapezoid(i)", "float32"), ("t.gradient(i)[0]", "float32")])
def test_dtype(text, dtype):
    assert eval(text, NAMES).dtype.name == dtype


@pytest.mark.parametrize("text", [
    "t.squeeze(x[None], 0)", "t.permute(x, (1, 0))", "t.tensor_split(x, 2)[0]", "t.hsplit(x, [1])[0]", "t.movedim(x, 0, 1)",
    "t.as_strided(x, (2, 2), (1, 5))", "x.as_strided((2, 3), (4, 1))", "x.view(c.int32).view(c.float32)", "t.reshape(x, (6, 2))",
    "x.view(c.complex64).real", "x.unfold(1, 2, 2)", "t.atleast_3d(x)", "x.split_with_sizes([1, 2])[0]",
    "x.swapdims(dim0=0, dim1=1)"])
def test_views_are_written_through(text):
    x = cotan.arange(12.0).reshape(3, 4)
    view = eval(text, {**NAMES, "x": x})
    view.fill_(-1.0)
    assert x.tolist()[0][0] == -1.0
    x.zero_()
    assert set(plain(view.reshape((-1,)))) == {0.0}


@pytest.mark.parametrize("name, args", [
    ("squeeze_copy", ()), ("permute_copy", ((0, 1),)), ("narrow_copy", (0, 0, 1)), ("as_strided_copy", ((2, 2), (1, 1))),
    ("unbind_copy", ()), ("alias_copy", ())])
def test_copies_are_no_views(name, args):
    x = cotan.arange(12.0).reshape(3, 4)
    copy = getattr(torch, name)(x, *args)
    (copy[0] if isinstance(copy, tuple) else copy).fill_(-1.0)
    assert x.tolist()[0] == [0.0, 1.0, 2.0, 3.0]


def test_results_have_names():
    x = cotan.tensor([3.0, 1.0, 2.0])
    result = x.sort()
    assert isinstance(result, return_types.sort)
    assert result.values.tolist() == [1.0, 2.0, 3.0] and result.indices.tolist() == [1, 2, 0]
    assert repr(return_types.mode((1, 2))) == "torch.return_types.mode(\nvalues=1,\nindices=2)"
    assert pickle.loads(pickle.dumps(return_types.topk((1, 2)))) == return_types.topk(1, 2)
    assert torch.histogram(x, 2).bin_edges.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(AttributeError, match="no attribute 'sorted'"):
        return_types.sorted


def test_out_takes_results():
    x, values, indices = cotan.tensor([3.0, 1.0, 2.0]), cotan.zeros(0), cotan.zeros(0, dtype=cotan.int64)
    assert torch.sort(x, out=(values, indices)).values is values
    assert values.tolist() == [1.0, 2.0, 3.0] and indices.tolist() == [1, 2, 0]
    assert torch.cat([x, x], out=values) is values and values.tolist() == [3.0, 1.0, 2.0] * 2


def test_methods_write_in_place():
    x = cotan.arange(6.0).reshape(2, 3)
    x.index_add_(0, cotan.tensor([0]), cotan.ones(1, 3)).scatter_(1, cotan.tensor([[0], [1]]), 9.0)
    x.index_fill_(1, cotan.tensor([2]), 7).put_(cotan.tensor([0]), cotan.tensor([5.0])).masked_fill_(x == 9, 0.5)
    assert x.tolist() == [[5.0, 2.0, 7.0], [3.0, 0.5, 7.0]]
    assert torch.as_strided_(x, (2, 2), (1, 3), 1) is x and x.tolist() == [[2.0, 0.5], [7.0, 7.0]]
    assert x.resize_(5).tolist() == [2.0, 0.5, 7.0, 7.0, 0.0]
    assert torch.resize_as_(x, cotan.zeros(2, 1)).tolist() == [[2.0], [0.5]]
    assert torch.fill_(x, 3).tolist() == [[3.0], [3.0]] and torch.zero_(x).tolist() == [[0.0], [0.0]]
    assert torch.index_put_(x, (cotan.tensor([1]),), cotan.tensor(4.0)).tolist() == [[0.0], [4.0]]
    with pytest.raises(NotImplementedError, match="no storage"):
        x.set_(x)


@pytest.mark.parametrize("include_self, of_x, of_src", [
    (True, [0.0, 0.0, 15.0, 4.0, 5.0], [0.0, 2.0, 16.0, 0.0, 0.0]), (False, [0.0, 0.0, 0.0, 4.0, 5.0], [0.0, 2.0, 8.0, 0.0, 3.0])])
def test_gradient_of_scatter_products(include_self, of_x, of_src):
    x = cotan.tensor([1.0, 2, 0, 3, 0], requires_grad=True)
    src = cotan.tensor([2.0, 0, 0, 4, 5], requires_grad=True)
    y = torch.scatter_reduce(x, 0, cotan.tensor([0, 0, 1, 1, 2]), src, "prod", include_self=include_self)
    (y * cotan.arange(1.0, 6)).sum().backward()
    assert x.grad.tolist() == of_x and src.grad.tolist() == of_src


@pytest.mark.parametrize("text, error, words", [
    ("t.select_scatter(m, f, 0, 0)", RuntimeError, "select_scatter: the source is (3,), it must be (4,)"),
    ("t.as_strided(m, (4, 4), (4, 1))", RuntimeError, "reaches element 15, the tensor has 12"),
    ("t.dsplit(m, 2)", RuntimeError, "dsplit: the tensor has 2 axes, there must be 3 or more"),
    ("t.meshgrid(m, i)", RuntimeError, "meshgrid: the tensors must be vectors of one dtype"),
    ("t.scatter(m, 0, i[None], 1.0, reduce='min')", RuntimeError, "scatter: reduce is one of add, multiply, not 'min'"),
    ("t.index_reduce(m, 0, i, m, 'sum')", RuntimeError, "index_reduce: reduce is one of prod, mean, amax, amin, not 'sum'"),
    ("t.gradient(m, spacing=[1.0])", RuntimeError, "gradient: there are 1 spacings for 2 axes"),
    ("t.take(m, i, 0)", TypeError, "take() takes 2 positional arguments, 3 were given")])
def test_errors_say_what_is_wrong(text, error, words):
    with pytest.raises(error) as raised:
        eval(text, NAMES)
    assert words in str(raised.value)
