"""cotan.torch: sparse tensors, against dense ones and values that are written down."""
import numpy as np
import pytest

import cotan.torch as torch

RANDOM = np.random.default_rng(0)
PLACES, VALUES = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 6.0]  # element (0, 2) appears twice
DENSE = np.array([[0, 0, 9], [4, 0, 5.0]], np.float32)
OTHER = np.array([[0, 7, 2], [1, 0, 0.0]], np.float32)


def matrix(layout=torch.sparse_coo):
    s = torch.sparse_coo_tensor(torch.tensor(PLACES), torch.tensor(VALUES), (2, 3))
    return s if layout is torch.sparse_coo else s.to_sparse_csr()


def near(x, expected):
    x = x.to_dense()
    assert tuple(x.shape) == np.shape(expected)
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_what_it_is():
    s = matrix()
    assert s.is_sparse and not s.is_coalesced() and s._nnz() == 4 and s.sparse_dim() == 2 and s.dense_dim() == 0
    assert s.layout is torch.sparse_coo and s.dtype == torch.float32 and s.device.type == "cpu" and s.shape == (2, 3)
    assert s.size(1) == 3 and s.dim() == s.ndim == 2 and s.numel() == 6 and len(s) == 2 and torch.is_tensor(s)
    with pytest.raises(RuntimeError, match="uncoalesced"):
        s.indices()
    c = s.coalesce()
    assert c.is_coalesced() and c.indices().tolist() == [[0, 1, 1], [2, 0, 2]] and c.values().tolist() == [9, 4, 5]
    near(s, DENSE)
    assert repr(c) == ("tensor(indices=tensor([[0, 1, 1],\n                       [2, 0, 2]]),\n       "
                       "values=tensor([9., 4., 5.]),\n       size=(2, 3), nnz=3, layout=torch.sparse_coo)")


def test_creation():
    assert torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0]).shape == (2,)
    assert torch.sparse_coo_tensor((2, 3), dtype=torch.float64).to_dense().tolist() == [[0] * 3] * 2
    near(torch.sparse.FloatTensor(torch.tensor(PLACES), torch.tensor(VALUES), torch.Size([2, 3])), DENSE)
    assert torch.sparse.LongTensor(torch.tensor([[1]]), torch.tensor([2])).to_dense().tolist() == [0, 2]
    near(torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [9.0, 4, 5], size=(2, 3)), DENSE)
    near(torch.tensor(DENSE).to_sparse(), DENSE)
    near(torch.tensor(DENSE).to_sparse(layout=torch.sparse_csr), DENSE)
    rows = torch.tensor(DENSE[1:]).expand(2, 3).to_sparse(1)
    assert rows.dense_dim() == 1 and rows.values().shape == (2, 3)
    near(torch.tensor(DENSE).sparse_mask(torch.tensor(OTHER).to_sparse()), DENSE * (OTHER != 0))
    for call in (lambda: torch.sparse_coo_tensor(PLACES, VALUES, (2,)), lambda: torch.sparse_coo_tensor(PLACES, VALUES[1:], (2, 3)),
                 lambda: torch.sparse_coo_tensor(PLACES, VALUES, (1, 3), check_invariants=True),
                 lambda: torch.sparse_csr_tensor([0, 1], [0, 1], [1.0]), lambda: torch.ones(3).to_sparse_csr()):
        with pytest.raises(RuntimeError):
            call()


def test_rows():
    s = matrix(torch.sparse_csr)
    assert s.is_sparse_csr and not s.is_sparse and s.crow_indices().tolist() == [0, 1, 3] and s.col_indices().tolist() == [2, 0, 2]
    assert s.values().tolist() == [9, 4, 5] and (s * 2).layout is torch.sparse_csr and s.to_sparse().is_sparse
    near(s, DENSE)
    near(s.t(), DENSE.T)
    crow, col = torch.tensor([0, 2, 2, 3], dtype=torch.int32), torch.tensor([0, 1, 3], dtype=torch.int32)
    empty_row = torch.sparse_csr_tensor(crow, col, [1.0, 2, 4], (3, 5))
    assert empty_row.col_indices().dtype == torch.int32
    assert empty_row.crow_indices().tolist() == [0, 2, 2, 3] and empty_row.to_dense()[2, 3].item() == 4
    with pytest.raises(RuntimeError, match="sparse_coo"):
        s.indices()


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_products(layout):
    s, x, e = matrix(layout), RANDOM.standard_normal((3, 4)).astype("f4"), RANDOM.standard_normal((5, 2)).astype("f4")
    dense, input = torch.tensor(x), RANDOM.standard_normal((2, 4)).astype("f4")
    for y in (torch.sparse.mm(s, dense), torch.mm(s, dense), torch.matmul(s, dense), s @ dense, s.mm(dense), torch.spmm(s, dense)):
        near(y, DENSE @ x)
    near(torch.tensor(e) @ s, e @ DENSE)
    near(torch.mm(torch.tensor(e), s), e @ DENSE)
    near(s @ dense[:, 0], DENSE @ x[:, 0])
    near(torch.mv(s, dense[:, 0]), DENSE @ x[:, 0])
    near(torch.sparse.addmm(torch.tensor(input), s, dense, beta=2, alpha=0.5), 2 * input + DENSE @ x / 2)
    near(torch.addmm(torch.tensor(input), s, dense), input + DENSE @ x)
    product = torch.sparse.mm(s, torch.tensor(OTHER).t().to_sparse())
    assert product._nnz() == 3
    near(product, DENSE @ OTHER.T)
    if layout is torch.sparse_csr:
        sampled = torch.sparse.sampled_addmm(s, torch.tensor(e).t()[:, :4], dense.t(), beta=2)
        near(sampled, 2 * DENSE + e.T[:, :4] @ x.T * (DENSE != 0))
    with pytest.raises(RuntimeError, match=r"not \(n, k\)"):
        s @ torch.ones(2, 2)


def test_reductions_of_rows():
    s = torch.sparse_csr_tensor([0, 2, 2], [0, 2], [1.0, -2.0], (2, 3))
    x = torch.tensor([[1.0, 8], [0, 0], [3, 4]])
    near(torch.sparse.mm(s, x, "mean"), [[-2.5, 0], [0, 0]])
    near(torch.sparse.mm(s, x, "amax"), [[1, 8], [0, 0]])
    near(torch.sparse.mm(s, x, "amin"), [[-6, -8], [0, 0]])
    with pytest.raises(ValueError, match="'max'"):
        torch.sparse.mm(s, x, "max")


def test_arithmetic():
    s, u = matrix(), torch.tensor(OTHER).to_sparse()
    near(s + u, DENSE + OTHER)
    near(torch.sub(s, u), DENSE - OTHER)
    near(s.add(u, alpha=2), DENSE + 2 * OTHER)
    near(torch.tensor(OTHER) + s, DENSE + OTHER)
    near(torch.add(torch.tensor(OTHER), s, alpha=3), 3 * DENSE + OTHER)
    near(2 * s, 2 * DENSE)
    near(s * torch.tensor(2.0) / 4, DENSE / 2)
    near(s * u, DENSE * OTHER)
    near(s * torch.tensor([1.0, 2, 3]), DENSE * [1, 2, 3])
    near(torch.tensor(OTHER) * s, DENSE * OTHER)
    near(-s, -DENSE)
    near(s**2, DENSE**2)
    near(torch.sqrt(s), np.sqrt(DENSE))
    near(torch.cat([s, u], 1), np.concatenate([DENSE, OTHER], 1))
    with pytest.raises(RuntimeError, match="dense, sparse"):
        s + torch.ones(2, 3)


def test_axes_and_reductions():
    s = matrix()
    near(s.t(), DENSE.T)
    near(torch.transpose(s, -1, 0), DENSE.T)
    assert not s.coalesce().t().is_coalesced()
    assert torch.sparse.sum(s).item() == s.sum().item() == 18 and s.norm().item() == pytest.approx(np.linalg.norm(DENSE))
    near(torch.sparse.sum(s, 0), DENSE.sum(0))
    near(torch.sparse.sum(s, dim=(0, 1), dtype=torch.float64), 18)
    hybrid = torch.tensor(np.stack([DENSE, OTHER])).to_sparse(2)
    near(torch.sparse.sum(hybrid, 2), np.stack([DENSE, OTHER]).sum(2))
    masked = np.where(DENSE == 0, -np.inf, DENSE)
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(masked - np.maximum(masked.max(1, keepdims=True), 0))
    near(torch.sparse.softmax(s, 1), exponentials / exponentials.sum(1, keepdims=True))
    logarithms = np.log(exponentials / exponentials.sum(1, keepdims=True) + 1e-30)
    near(torch.sparse.log_softmax(s, dim=1), np.where(DENSE == 0, 0, logarithms))


def test_conversions():
    s = matrix()
    assert s.double().dtype == s.to(torch.float64).dtype == torch.float64 and s.long().coalesce().values().tolist() == [9, 4, 5]
    assert s.cpu() is s and s.to("cpu").is_sparse and torch.zeros_like(s)._nnz() == 0 and torch.is_floating_point(s)
    near(s.clone().detach(), DENSE)
    assert s.bool().to_dense().tolist() == (DENSE != 0).tolist() and (torch.tensor(DENSE) > 4).to_sparse()._nnz() == 2


def test_gradients_reach_values_and_dense_operands():
    values, x = torch.tensor(VALUES, requires_grad=True), torch.tensor(np.arange(6, dtype="f4").reshape(3, 2), requires_grad=True)
    s = torch.sparse_coo_tensor(PLACES, values, (2, 3))
    torch.sparse.mm(s, x).sum().backward()
    assert values.grad.tolist() == [9, 1, 9, 9]  # sums of x's rows 2, 0, 2, 2
    assert x.grad.tolist() == [[4, 4], [0, 0], [14, 14]]
    values.grad = None
    (s.to_dense() * torch.tensor(OTHER)).sum().backward()
    assert values.grad.tolist() == [2, 1, 0, 2]
    leaf = matrix().requires_grad_()
    (leaf @ x.detach()).sum().backward()
    assert leaf.grad.is_sparse and leaf.grad._values().tolist() == [9, 1, 9, 9]


def test_what_is_not_there_says_so():
    s = matrix()
    with pytest.raises(NotImplementedError, match="exp is not there for sparse tensors\n  hint: .to_dense()"):
        torch.exp(s)
    with pytest.raises(AttributeError, match="reshape is not there for sparse tensors"):
        s.reshape(6)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        s.nothing()
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(s)
