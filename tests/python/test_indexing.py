"""x[key] and x[key] = value beside NumPy's."""
import os

import numpy
import pytest

import cotan

SHAPES = [(5,), (4, 3), (3, 4, 5), (2, 3, 4, 2), (1, 6), (3, 0, 2), ()]


def drawn_slice(rng, n):
    def place():
        return None if rng.random() < 0.4 else int(rng.integers(-n - 3, n + 4))

    step = None if rng.random() < 0.5 else int(rng.choice([-3, -2, -1, 1, 2, 3]))
    return slice(place(), place(), step)


def drawn_key(rng, shape):
    """A key for NumPy, and the same for a Tensor."""
    key, mine = [], []
    axis = 0
    picks = tuple(rng.integers(1, 4, rng.integers(0, 3)))
    taken = rng.integers(0, len(shape) + 1)
    while axis < taken:
        n = shape[axis]
        kind = rng.choice(["int", "slice", "slice", "new", "array", "mask"])
        if kind == "int" and n:
            key.append(int(rng.integers(-n, n)))
            mine.append(key[-1] if rng.random() < 0.7 else numpy.int32(key[-1]))
        elif kind == "new":
            key.append(None)
            mine.append(None)
            continue
        elif kind == "array" and n:
            sizes = tuple(1 if rng.random() < 0.2 else s for s in picks)
            at = rng.integers(-n, n, sizes).astype(rng.choice(["int64", "int32", "int8"]))
            key.append(at)
            form = rng.integers(0, 3)
            mine.append(at if form == 0 else cotan.asarray(at) if form == 1 else at.tolist())
        elif kind == "mask" and not any(isinstance(k, numpy.ndarray) for k in key):
            span = int(rng.integers(1, len(shape) - axis + 1))
            mask = rng.random(shape[axis:axis + span]) < 0.5
            if rng.random() < 0.5:
                picks = (int(mask.sum()),)
            key.append(mask)
            mine.append(mask if rng.random() < 0.5 else cotan.asarray(mask))
            axis += span
            continue
        else:
            key.append(drawn_slice(rng, n))
            mine.append(key[-1])
        axis += 1
    if rng.random() < 0.3:
        at = int(rng.integers(0, len(key) + 1))
        tail = sum(k.ndim if isinstance(k, numpy.ndarray) and k.dtype == bool else k is not None for k in key[at:])
        if tail == 0 or axis == len(shape):  # what stands behind it keeps its axes
            key.insert(at, Ellipsis)
            mine.insert(at, Ellipsis)
    return (key[0], mine[0]) if len(key) == 1 and rng.random() < 0.5 else (tuple(key), tuple(mine))


def unique_places(shape, key):
    places = numpy.arange(int(numpy.prod(shape))).reshape(shape)[key]
    return len(numpy.unique(places)) == numpy.size(places)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_keys_are_numpys(seed):
    rng = numpy.random.default_rng(seed)
    for turn in range(50 if not os.environ.get("COTAN_TEST_ALL") else 500):
        shape = SHAPES[rng.integers(len(SHAPES))]
        a = rng.integers(0, 1000, shape).astype(rng.choice(["float32", "int64", "float64", "uint8"]))
        key, mine = drawn_key(rng, shape)
        say = f"seed {seed}, turn {turn}: {shape} {key}"
        x = cotan.asarray(a)
        try:
            want = a[key]
        except IndexError as error:
            with pytest.raises(IndexError) as got:
                x[mine]
            assert str(got.value) == str(error), say
            continue
        got = x[mine]
        assert got.shape == want.shape and got.dtype == want.dtype, say
        assert (got.numpy() == want).all(), say
        if not unique_places(shape, key):
            continue
        value = rng.integers(0, 200, want.shape).astype(a.dtype)
        form = rng.integers(0, 4)
        if form == 1 and value.ndim:
            value = value[:1]
        elif form == 2 and value.ndim > 1 and len(value):
            value = value[0]
        elif form == 3:
            value = 7
        b = a.copy()
        b[key] = value
        x[mine] = value if form == 0 else cotan.asarray(value)
        assert (x.numpy() == b).all(), say
        if form == 3:
            b[key] += 1
            x[mine] += 1
            assert (x.numpy() == b).all(), say


A = numpy.arange(6.0).reshape(2, 3)
KEYS = ["5", "0, -4", "2, 0", "0, 0, 0", "..., ...", "1.5", "'a'", "[0, 5]", "[1.5]", "[[0, 1], [0]]",
        "numpy.array([True, False, True])", "numpy.ones((2, 2), bool)", "[0, 1], [0, 1, 2]", "0, numpy.array([7])",
        "slice(None, None, 0)", "slice(1.5)", "1 << 70", "numpy.array([-3])"]


@pytest.mark.parametrize("key", KEYS)
def test_errors_are_numpys(key):
    key = eval(key)
    x = cotan.asarray(A)
    with pytest.raises((IndexError, ValueError, TypeError)) as want:
        A[key]
    for tried in (lambda: x[key], lambda: x.__setitem__(key, 1.0)):
        with pytest.raises(type(want.value)) as got:
            tried()
        if "inhomogeneous" not in str(want.value):
            assert str(got.value) == str(want.value)
    assert (x.numpy() == A).all()


@pytest.mark.parametrize("key, value", [("0", "[1, 2]"), ("[0, 1]", "[1, 2]"), (":, :2", "[[[1]], [[2]]]")])
def test_values_that_do_not_fit(key, value):
    x, a = cotan.asarray(A), A.copy()
    key, value = eval(f"numpy.s_[{key}]"), numpy.array(eval(value), "float64")
    with pytest.raises(ValueError) as want:
        a[key] = value
    with pytest.raises(ValueError) as got:
        x[key] = value
    assert str(got.value).rstrip() == str(want.value).rstrip()


def test_what_is_not_there_cannot_be_deleted():
    x = cotan.asarray(A)
    with pytest.raises(TypeError, match="^elements of a tensor cannot be deleted$"):
        del x[0]


def test_basic_keys_are_views_and_others_copies():
    x = cotan.asarray(A)
    row, turned, one, copy = x[1], x[:, ::-1], x[0, 1], x[[0, 1]]
    row[0] = 10
    turned[0, 0] = 20
    assert x.tolist() == [[0, 1, 20], [10, 4, 5]] and copy.tolist() == A.tolist()
    x[...] = cotan.asarray([1.0, 2.0, 3.0])
    assert row.tolist() == [1, 2, 3] and turned.tolist() == [[3, 2, 1]] * 2 and one.item() == 2
    x[0][1:][0] = 7
    assert x.tolist() == [[1, 7, 3], [1, 2, 3]]
    row += 1
    assert x.tolist()[1] == [2, 3, 4]


def test_places_in_tensors_are_data_that_is_clamped_for_reads_and_dropped_for_writes():
    for device in ("cpu", "ref"):
        cotan.set_device(device)
        x, at = cotan.asarray([1.0, 2.0, 3.0]), cotan.asarray([-1, 5, -9, 1])
        assert x[at].tolist() == [3, 3, 1, 2]
        x[at] = cotan.asarray([10.0, 20.0, 30.0, 40.0])
        assert x.tolist() == [1, 40, 10]
        y = cotan.asarray(A)
        y[cotan.asarray([0, 2, 1]), cotan.asarray([0, 0, 3])] = 9
        assert y.tolist() == [[9, 1, 2], [3, 4, 5]]
        i = cotan.asarray(1)
        assert y[i].tolist() == [3, 4, 5] and y[:, i].tolist() == [1, 4] and y[i, i].item() == 4
    cotan.set_device("cpu")


def test_index_put():
    x = cotan.asarray([0.0, 0, 0])
    assert x.index_put_((cotan.asarray([0, 0, 2]),), cotan.asarray([1.0, 2, 4]), accumulate=True) is x
    assert x.tolist() == [3, 0, 4]
    y = cotan.asarray(A)
    y.index_put_((None, cotan.asarray([1])), cotan.asarray([[7.0], [8.0]]))
    assert y.tolist() == [[0, 7, 2], [3, 8, 5]]


def test_places_that_change_make_no_plans():
    x = cotan.asarray(numpy.arange(400.0).reshape(100, 4))
    at = [numpy.arange(i % 7 + 2) for i in range(100)]

    def plans(f):
        for i in range(3):
            f(i)
        before = cotan.stats()["plans_made"]
        for i in range(100):
            f(i)
        return cotan.stats()["plans_made"] - before

    def put(i):
        x[i] = 1
        x[i, 2] = i
        x.tolist()

    assert plans(lambda i: x[i].tolist()) <= 2
    assert plans(lambda i: x[i, 1].item()) <= 2
    assert plans(lambda i: x[i:].tolist()) <= 2
    assert plans(lambda i: x[at[i]].tolist()) <= 2
    assert plans(put) <= 2


def test_gradients_flow_through_keys():
    w = cotan.Tensor([[1.0, 2, 3], [4, 5, 6]], requires_grad=True)
    at = cotan.asarray([0, 0, 1])
    total = cotan.ops.sum
    (w[0, 1] * 10 + total(w[:, ::-2]) + total(w[at] * w[at, cotan.asarray([2, 1, 0])][:, None])).backward()
    assert w.grad.tolist() == [[6, 21, 12], [20, 4, 5]]  # PyTorch's
    w.grad = None
    y = w * 1
    y[0] = y[1] * 2
    y[:, 2] = 0
    y[y > 9] = 1
    loss = cotan.ops.sum(y * y)
    loss.backward()
    assert y.tolist() == [[8, 1, 0], [4, 5, 0]]
    assert (w.grad.numpy() == numpy.array([[0, 0, 0], [2 * 8 * 2 + 8, 10, 0]])).all()


def test_numbers_are_written_with_all_their_digits():
    """A float of Python's alone is float32; in a float64 it must not have gone by way of one."""
    def zeros(dtype=cotan.float64):
        return cotan.zeros((3,), dtype=dtype)
    at = cotan.asarray([1])
    for write in (lambda x: x.__setitem__(..., 0.1), lambda x: x.__setitem__(1, 0.1), lambda x: x.__setitem__(slice(3), [0.1, 0.1, 0.1]),
                  lambda x: x.__setitem__([0, 1], 0.1), lambda x: x.__setitem__(cotan.asarray([False, True, True]), 0.1),
                  lambda x: x.fill_(0.1), lambda x: x.copy_(0.1), lambda x: x[1:].fill_(0.1), lambda x: x.index_put_((at,), 0.1),
                  lambda x: x.masked_fill_(cotan.asarray([False, True, True]), 0.1), lambda x: x.index_fill_(0, at, 0.1),
                  lambda x: x.scatter_(0, at, 0.1)):
        x = zeros()
        write(x)
        assert x[1].item() == 0.1
    assert cotan.nn.functional.pad(zeros(), (0, 1), value=0.1)[3].item() == 0.1
    large, both = zeros(), zeros(cotan.complex128)
    large[0] = 1e71
    both[:2] = [0.1 + 0.7j, 0.3]
    both[2] = -0.1j
    assert large[0].item() == 1e71
    assert both.numpy().tolist() == [0.1 + 0.7j, 0.3, -0.1j]


def test_lists_index_while_parameters_wait_for_their_values():
    x = cotan.asarray(numpy.arange(6.0).reshape(2, 3))
    for key in ([0, 1], ([0, 1], [2, 0]), [True, False], numpy.array([1])):
        waits = cotan.nn.Linear(2, 2)  # its first values are pending
        assert (x[key].numpy() == numpy.arange(6.0).reshape(2, 3)[key]).all() and waits.bias.shape == (2,)
    with pytest.raises(IndexError, match="^index 7 is out of bounds for axis 0 with size 2$"):
        x[[0, 7]]


def test_an_index_outside_of_its_axis_writes_nowhere():
    """Not into a neighbour line either. -1 counts from the end where NumPy's and PyTorch's do, and is outside in scatter."""
    i, x = cotan.asarray, cotan.arange(6.0, dtype=cotan.float32).reshape(2, 3)
    whole, far = x.tolist(), [[3], [-4]]
    labels = i([1, -1, 3])
    assert cotan.zeros(3, 4).scatter_(1, labels.unsqueeze(1), 1.0).tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert cotan.zeros(3, 2).scatter_add(1, i([[2], [0], [0]]), i([[5.0], [6.0], [7.0]])).tolist() == [[0, 0], [6, 0], [7, 0]]
    for at in (far, [[3], [-1]], [[1 << 40], [-1 << 40]], [[(1 << 63) - 1], [-1 << 63]]):
        at = i(at)
        assert x.scatter(1, at, 9.0).tolist() == whole == x.scatter_add(1, at, i([[9.0], [9.0]])).tolist()
        assert x.scatter(1, at, i([[9.0], [9.0]]), reduce="add").tolist() == x.scatter(1, at, 9.0, reduce="multiply").tolist() == whole
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for include_self in (True, False):
                assert x.scatter_reduce(1, at, i([[9.0], [9.0]]), reduce, include_self=include_self).tolist() == whole
    assert cotan.put_along_axis(x, i(far), 9.0, 1).tolist() == whole
    assert cotan.put_along_axis(x, i([[0], [-1]]), i([[8.0], [9.0]]), 1).tolist() == [[8, 1, 2], [3, 4, 9]]
    far = i([3, -4])
    assert x.index_add(1, far, cotan.ones(2, 2)).tolist() == x.index_copy(1, far, cotan.ones(2, 2)).tolist() == whole
    assert x.index_fill(1, far, 9.0).tolist() == whole == x.clone().index_put_((i([0, 1]), far), i([9.0, 9.0])).tolist()
    assert cotan.nn.functional.max_unpool1d(i([[[1.0, 2.0]], [[3.0, 4.0]]]).squeeze(1)[None], i([[[9, 1], [-1, 0]]]), 2).tolist() == [
        [[0, 2, 0, 0], [4, 0, 0, 0]]]
    assert cotan.zeros(()).scatter(0, i(1), 9.0).item() == 0 and cotan.zeros(()).scatter(0, i(0), 9.0).item() == 9
    gradient = cotan.func.grad(lambda source: x.scatter(1, i([[3], [1]]), source).sum())(i([[9.0], [9.0]]))
    assert gradient.tolist() == [[0], [1]]


def test_what_is_read_outside_of_its_axis():
    i, x = cotan.asarray, cotan.arange(6).reshape(2, 3)
    far = i([[3], [-4]])
    assert cotan.take_along_dim(x, far, 1).tolist() == [[0], [0]] == cotan.gather(x, 1, i([[3], [-1]])).tolist()
    assert numpy.isnan(cotan.take_along_dim(x.float(), far, 1).numpy()).all()
    assert cotan.take(x, i([7, -8, -1])).tolist() == [5, 0, 5] and cotan.bincount(i([-1, 2])).tolist() == [0, 0, 1]
    assert cotan.ravel_multi_index((i([0, 1, 1]), i([4, -1, 2])), (2, 3)).tolist() == [-1, -1, 5]
    assert [at.tolist() for at in cotan.unravel_index(i([7, -1, 5]), (2, 3))] == [[-1, -1, 1], [-1, -1, 2]]
    taken = cotan.masked_scatter(x, x > 2, i([8, 9]))
    assert taken.tolist() == [[0, 1, 2], [8, 9, 5]] and cotan.masked_scatter(x, x > 2, i([8])[:0]).tolist() == x.tolist()


def test_indices_of_few_bits_reach_every_place():
    i, x = cotan.asarray, cotan.zeros(300)
    for at, place in ((i([-1], dtype=cotan.int8), 299), (i([200], dtype=cotan.uint8), 200)):
        assert x.index_add(0, at, cotan.ones(1))[place].item() == 1 == x.index_fill(0, at[0], 1.0)[place].item()
        assert cotan.put_along_axis(x, at, 1.0, 0)[place].item() == 1
        assert cotan.take_along_dim(cotan.arange(300), at, 0).item() == place


def test_put_along_axis_repeats_as_numpy_does():
    x = numpy.arange(6.0).reshape(2, 3)
    for at, values, axis in (([[1]], 9.0, 1), ([[0, 1, 0]], [[7.0, 8.0, 9.0]], 0), ([4, 0], [8.0, 9.0], None)):
        right = x.copy()
        numpy.put_along_axis(right, numpy.array(at), numpy.array(values), axis)
        assert cotan.put_along_axis(cotan.asarray(x), cotan.asarray(at), cotan.asarray(values), axis).tolist() == right.tolist()


def test_scatter_says_which_sizes_do_not_fit():
    x, i = cotan.zeros(2, 3), cotan.asarray
    for call, words in (
            (lambda: x.scatter(1, i([[0], [1], [1]]), 1.0),
             "scatter: the index is (3, 1), the tensor (2, 3): along axis 0 it may have 2 elements at most"),
            (lambda: x.scatter_add(1, i([0]), i([1.0])), "scatter_add: the index has 1 axes, the tensor 2"),
            (lambda: x.scatter_reduce(1, i([[0, 1]]), i([[1.0]]), "sum"),
             "scatter_reduce: the index is (1, 2), the source (1, 1): it has an element for each of the index"),
            (lambda: x.scatter(1, i([[0]]), 1.0, reduce="min"), "scatter: reduce is one of add, multiply, not 'min'")):
        with pytest.raises((cotan.ShapeError, RuntimeError)) as error:
            call()
        assert str(error.value) == words
    mean = i([[4, 1, 2], [3, 4, 5]]).scatter_reduce(1, i([[0]]), i([[1]]), "mean")  # of integers rounded down
    assert mean.dtype == cotan.int64 and mean.tolist() == [[2, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("index", [lambda: cotan.asarray([1, 0], dtype="uint8"), lambda: numpy.array([1, 0], "uint8"),
                                   lambda: [numpy.uint8(1), numpy.uint8(0)], lambda: cotan.asarray(1, dtype="uint8"),
                                   lambda: (slice(None), cotan.asarray([1, 0], dtype="uint8"))])
@pytest.mark.parametrize("use", [lambda x, i: x[i], lambda x, i: x.__setitem__(i, 1.0)])
def test_indices_of_uint8_say_nothing(index, use):
    x = cotan.zeros(2, 2)
    with pytest.raises(IndexError) as error:
        use(x, index())
    assert str(error.value) == ("an index of uint8: PyTorch takes it as a mask, NumPy as numbers\n"
                                "  hint: a mask is bool (index != 0), numbers are int64")
    assert x[numpy.uint8(1)].shape == (2,) and not x.numpy().any()
