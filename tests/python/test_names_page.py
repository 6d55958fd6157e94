"""docs/python-names.md: its examples run, and say what NumPy and PyTorch say."""
import re
from pathlib import Path

import cotan
import numpy as np

PAGE = (Path(__file__).resolve().parents[2] / "docs/python-names.md").read_text()
A = np.array([[[3.0], [1.0], [2.0], [2.5]], [[0.0], [5.0], [4.0], [1.5]]], dtype="float32")  # (2, 4, 1)


def test_examples_run():
    examples = re.findall(r"`((?:cotan\.\w+|x\.\w+)\(.*?\)|x\.\w+ [^`]*|x\.m?T)`", PAGE)
    assert len(examples) > 30
    for example in examples:
        eval(example, {"cotan": cotan, "numpy": np, "x": cotan.asarray(A), "y": cotan.asarray(1.0), "v": cotan.arange(3)})


def test_what_the_page_says():
    x = cotan.asarray(A)
    near = lambda a, b: np.testing.assert_allclose(a.numpy(), b, rtol=1e-6)  # noqa: E731
    near(cotan.std(x), A.std())
    near(cotan.std(x, dim=0), A.std(0, ddof=1))
    near(cotan.std(x, axis=0), A.std(0))
    near(x.std(), A.std(ddof=1))
    near(x.std(correction=0), A.std())
    near(cotan.max(x, axis=0), A.max(0))
    for found in (cotan.max(x, dim=1), cotan.max(x, 1), x.max(1)):
        near(found.values, A.max(1))
        near(found.indices, A.argmax(1))
    near(x.amax(0), A.max(0))
    near(cotan.sort(x, axis=1), np.sort(A, 1))
    near(x.sort(1).indices, np.argsort(A, 1))
    near(cotan.median(x), np.median(A))
    near(x.median(), np.sort(A.ravel())[3])
    assert [part.shape[1] for part in cotan.split(x, 2, axis=1)] == [2, 2] == [part.shape[1] for part in x.split(2, 1)]
    assert [part.shape[1] for part in x.split(3, 1)] == [3, 1] == [part.shape[1] for part in cotan.split(x, 3, 1)]
    assert x.size + 1 == 9 and x.size() == (2, 4, 1) and x.size(1) == 4
    near(cotan.repeat(x, 2), np.repeat(A, 2))
    near(x.repeat(2, 1, 1), np.tile(A, (2, 1, 1)))
    near(x.nonzero(), np.argwhere(A))
    for a, b in zip(cotan.nonzero(x), np.nonzero(A)):
        near(a, b)
    near(cotan.transpose(x), A.T)
    near(x.transpose(0, 1), A.swapaxes(0, 1))
    assert x.squeeze(0).shape == (2, 4, 1) and x.squeeze(2).shape == (2, 4)
    try:
        cotan.squeeze(x, axis=1)
    except ValueError as error:
        assert str(error) == "squeeze: axis 1 has 4 elements, it must have 1"
    for a, b in zip(cotan.meshgrid(cotan.arange(2), cotan.arange(3)), np.meshgrid(np.arange(2), np.arange(3))):
        near(a, b)
    assert x.equal(x) is True and cotan.equal(x, x).shape == x.shape
    assert cotan.sum(cotan.asarray([200, 100], dtype="uint8")).dtype == cotan.uint64
    assert cotan.sum(cotan.asarray([200, 100], dtype="uint8"), dim=0).dtype == cotan.int64


def test_indices_outside():
    x, five = cotan.asarray([1.0, 2.0]), cotan.asarray([5])
    assert x[five].tolist() == [2.0] == cotan.index_select(x, 0, five).tolist()
    y = x.clone()
    y[five] = 9.0
    assert y.tolist() == [1.0, 2.0] == x.scatter(0, five, cotan.asarray([9.0])).tolist()
    F = cotan.nn.functional
    assert np.isnan(cotan.gather(x, 0, five).tolist()).all() and np.isnan(F.embedding(five, x[:, None]).tolist()).all()
    assert np.isnan(F.cross_entropy(cotan.zeros(1, 3), five).item())
    assert F.one_hot(five, 2).tolist() == [[0, 0]]
    for wrong in (lambda: x[5], lambda: x[[5]]):
        try:
            wrong()
        except IndexError as error:
            assert "5" in str(error)
        else:
            raise AssertionError


def test_memory_of_numpy_is_read_only():
    array = cotan.ones(2).numpy()
    assert not array.flags.writeable and array.copy().flags.writeable
    drawn = cotan.vmap(lambda x: x + cotan.randn(3))(cotan.zeros(2))
    assert (drawn[0] == drawn[1]).all()
