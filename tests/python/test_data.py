"""cotan.utils.data: what comes, in which order, once each; workers give the same; errors come out of them."""
import collections
import itertools
import threading
import time

import cotan
import numpy as np
import pytest
from cotan.utils.data import (BatchSampler, ChainDataset, ConcatDataset, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler,
                              StackDataset, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler, default_collate,
                              default_convert, get_worker_info, random_split)

X, Y = np.arange(30, dtype="float32").reshape(10, 3), np.arange(10)


class Squares(Dataset):
    """Element i: an array, its square, a name."""

    def __len__(self):
        return 10

    def __getitem__(self, i):
        if i == 7 and getattr(self, "broken", False):
            raise ValueError("element 7 cannot be read")
        time.sleep(0.001 * (i % 3))
        return {"x": X[i], "y": i * i, "name": f"n{i}"}


def test_a_tensor_dataset():
    data = TensorDataset(cotan.asarray(X), cotan.asarray(Y))
    assert len(data) == 10 and data[3][0].tolist() == X[3].tolist()
    batches = list(loader := DataLoader(data, batch_size=4))
    assert len(loader) == 3 and [x.shape[0] for x, _ in batches] == [4, 4, 2]
    assert np.array_equal(np.concatenate([x.numpy() for x, _ in batches]), X)
    assert [x.shape[0] for x, _ in DataLoader(data, batch_size=4, drop_last=True)] == [4, 4]
    shuffled = DataLoader(data, batch_size=4, shuffle=True, generator=cotan.Generator().manual_seed(1))
    first, second = ([y for _, batch in shuffled for y in batch.tolist()] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(10)) and first != second
    for x, y in shuffled:
        assert np.array_equal(x.numpy(), X[y.numpy()])


def test_batches_make_no_plans_and_train():
    data = TensorDataset(cotan.randn(64, 3), cotan.randn(64, 1))
    model = cotan.nn.Linear(3, 1)
    sgd = cotan.optim.SGD(model.parameters(), lr=0.01)
    plans = []
    for epoch in range(4):
        for x, y in DataLoader(data, batch_size=16, shuffle=True):
            sgd.zero_grad()
            cotan.nn.functional.mse_loss(model(x), y).backward()
            sgd.step()
        plans.append(cotan.stats()["plans_made"])
    assert plans[1] == plans[-1]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_elements_are_put_together(workers):
    batches = list(DataLoader(Squares(), batch_size=4, num_workers=workers))
    assert [batch["name"] for batch in batches] == [[f"n{i}" for i in part] for part in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])]
    assert np.array_equal(np.concatenate([batch["x"].numpy() for batch in batches]), X)
    assert batches[1]["y"].tolist() == [16, 25, 36, 49] and batches[0]["y"].dtype == cotan.int64


def test_workers():
    seen = set()

    # The first elements wait for each other: a worker that starts sooner could take them all.
    both = threading.Barrier(2)

    class Seen(Squares):
        def __getitem__(self, i):
            seen.add((get_worker_info().id, get_worker_info().num_workers))
            if i < 2:
                both.wait(timeout=60)
            return super().__getitem__(i)

    started = []
    list(DataLoader(Seen(), batch_size=1, num_workers=2, worker_init_fn=started.append))
    assert seen == {(0, 2), (1, 2)} and sorted(started) == [0, 1] and get_worker_info() is None
    before = threading.active_count()
    for batch in DataLoader(Squares(), batch_size=1, num_workers=3):
        break  # the rest is not asked for
    time.sleep(0.1)
    assert threading.active_count() <= before
    broken = Squares()
    broken.broken = True
    with pytest.raises(ValueError, match="element 7 cannot be read"):
        list(DataLoader(broken, batch_size=2, num_workers=2))


@pytest.mark.parametrize("workers", [0, 2])
def test_elements_that_are_computed(workers):
    class Doubled(TensorDataset):
        def __getitem__(self, i):
            return tuple(tensor * 2 for tensor in super().__getitem__(i))

    data = Doubled(cotan.asarray(X), cotan.asarray(Y))
    batches = list(DataLoader(data, batch_size=4, num_workers=workers))
    assert np.array_equal(np.concatenate([x.numpy() for x, _ in batches]), 2 * X)
    assert np.concatenate([y.numpy() for _, y in batches]).tolist() == (2 * Y).tolist()


def test_a_worker_that_hangs():
    class Slow(Squares):
        def __getitem__(self, i):
            time.sleep(0.5)
            return i

    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.05 seconds"):
        list(DataLoader(Slow(), num_workers=1, timeout=0.05))


def test_streams():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(7))

    assert [batch.tolist() for batch in DataLoader(Stream(), batch_size=3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(DataLoader(Stream(), batch_size=None)) == list(range(7))
    with pytest.raises(ValueError, match="expected unspecified shuffle"):
        DataLoader(Stream(), shuffle=True)


def test_datasets():
    assert [(ConcatDataset([Squares(), Squares()]))[i]["y"] for i in (0, 9, 10, -1)] == [0, 81, 0, 81]
    assert len(Squares() + Squares()) == 20
    assert Subset(Squares(), [3, 5])[1]["y"] == 25
    assert StackDataset(a=Squares(), b=Squares())[2]["b"]["y"] == 4
    parts = random_split(range(10), [0.5, 0.25, 0.25])
    assert [len(part) for part in parts] == [6, 2, 2] and sorted(i for part in parts for i in part) == list(range(10))
    with pytest.raises(ValueError, match=r"random_split: the lengths \[3, 4\] make 7, the dataset has 10"):
        random_split(range(10), [3, 4])
    with pytest.raises(ValueError, match="TensorDataset: the tensors have 2, 3 rows, they must have as many"):
        TensorDataset(cotan.ones(2), cotan.ones(3))


def test_samplers():
    assert list(BatchSampler(SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(SequentialSampler(range(5)), 2, True)) == [[0, 1], [2, 3]]
    assert len(list(RandomSampler(range(4), num_samples=10))) == 10
    assert set(RandomSampler(range(4), replacement=True, num_samples=50)) == {0, 1, 2, 3}
    assert sorted(SubsetRandomSampler([4, 7, 9])) == [4, 7, 9]
    drawn = collections.Counter(WeightedRandomSampler([0.0, 1.0, 3.0], 400))
    assert 0 not in drawn and 2 < drawn[2] / drawn[1] < 4.5


def test_collate():
    Pair = collections.namedtuple("Pair", "a b")
    made = default_collate([Pair(1, cotan.ones(2)), Pair(2, cotan.zeros(2))])
    assert made.a.tolist() == [1, 2] and made.b.tolist() == [[1, 1], [0, 0]]
    assert default_collate([0.5, 1.5]).dtype == cotan.float64
    assert default_collate([("a", [1, 2]), ("b", [3, 4])])[1][0].tolist() == [1, 3]
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        default_collate([[1, 2], [3]])
    with pytest.raises(TypeError, match="default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class "
                                        "'object'>"):
        default_collate([object()])


def test_types_of_elements():
    class Numbers(Dataset[int]):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index

    loader: DataLoader[int] = DataLoader(Numbers(), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2]]


class Range(IterableDataset):
    """PyTorch's example: each worker iterates over its part."""

    def __init__(self, start, stop):
        self.start, self.stop = start, stop

    def __iter__(self):
        return iter(range(self.start, self.stop))


def part(number):
    info = get_worker_info()
    each = -(-(info.dataset.stop - info.dataset.start) // info.num_workers)
    info.dataset.start += each * number
    info.dataset.stop = min(info.dataset.start + each, info.dataset.stop)


def test_workers_of_streams():
    """As processes of PyTorch, each of which iterates over its copy: a batch of each in turn, until all have ended."""
    threads = set()

    class Seen(Range):
        def __iter__(self):
            threads.add((get_worker_info().id, threading.get_ident()))
            return super().__iter__()

    data = Seen(0, 5)
    loader = DataLoader(data, batch_size=2, num_workers=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [0, 1], [2, 3], [2, 3], [4], [4]]
    assert {number for number, _ in threads} == {0, 1} and threading.get_ident() not in {ident for _, ident in threads}
    loader = DataLoader(data, batch_size=2, num_workers=2, drop_last=True)
    assert [batch.tolist() for batch in loader] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    loader = DataLoader(data, batch_size=2, num_workers=3, worker_init_fn=part)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]] and (data.start, data.stop) == (0, 5)
    assert sorted(DataLoader(data, batch_size=None, num_workers=2, worker_init_fn=part)) == [0, 1, 2, 3, 4]
    chain = ChainDataset([Range(0, 2), Range(5, 7)])
    assert [batch.tolist() for batch in DataLoader(chain, batch_size=4, num_workers=1)] == [[0, 1, 5, 6]]
    endless = DataLoader(Range(0, 10**12), batch_size=1, num_workers=2, prefetch_factor=1)
    before = threading.active_count()
    assert [batch.item() for batch, _ in zip(endless, range(5))] == [0, 0, 1, 1, 2]
    for _ in range(100):
        time.sleep(0.01)
        if threading.active_count() <= before:
            break
    assert threading.active_count() <= before


@pytest.mark.parametrize("kind", [Range, Squares])
def test_what_workers_raise_is_shown_with_its_lines(kind):
    class Broken(kind):
        def __iter__(self):
            yield 1
            raise LookupError("the stream broke")

        def __getitem__(self, i):
            raise LookupError("the stream broke")

    data = Broken(0, 2) if kind is Range else Broken()
    with pytest.raises(LookupError, match="the stream broke") as error:
        list(DataLoader(data, num_workers=2))
    assert error.traceback[-1].path.name == "test_data.py"

    def init(number):
        raise LookupError(f"worker {number}")

    with pytest.raises(LookupError, match="worker 0"):
        list(DataLoader(Range(0, 3) if kind is Range else Squares(), num_workers=1, worker_init_fn=init))

    class Slow(kind):
        def __iter__(self):
            time.sleep(0.5)
            yield 1

        def __getitem__(self, i):
            time.sleep(0.5)

    with pytest.raises(RuntimeError) as late:
        list(DataLoader(Slow(0, 1) if kind is Range else Slow(), num_workers=1, timeout=0.05))
    assert str(late.value) == "DataLoader timed out after 0.05 seconds"


def test_persistent_workers_begin_once():
    started, seeds = [], []

    class Seeds(Squares):
        def __getitem__(self, i):
            seeds.append(get_worker_info().seed)
            return i

    for persistent, times in ((False, 2), (True, 1)):
        started.clear()
        loader = DataLoader(Seeds(), num_workers=1, persistent_workers=persistent, worker_init_fn=started.append)
        for _ in range(2):
            seeds.clear()
            assert [batch.item() for batch in loader] == list(range(10))
            first = seeds[0]
        assert started == [0] * times
        list(loader)
        assert seeds[-1] != first
    loader = DataLoader(Range(0, 4), num_workers=2, persistent_workers=True, worker_init_fn=part)
    assert [[batch.item() for batch in loader] for _ in range(2)] == [[0, 2, 1, 3]] * 2


@pytest.mark.parametrize(("options", "text"), [
    ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                             "multiprocessing, otherwise set prefetch_factor to None."),
    ({"prefetch_factor": -1, "num_workers": 1}, "prefetch_factor option should be non-negative"),
    ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
])
def test_options_of_workers(options, text):
    with pytest.raises(ValueError) as error:
        DataLoader(Squares(), **options)
    assert str(error.value) == text


def test_samplers_of_any_length():
    many = RandomSampler(range(1000), replacement=True, num_samples=10**10)
    assert len(many) == 10**10 and all(0 <= i < 1000 for i in itertools.islice(many, 10000))
    batches = DataLoader(range(1000), batch_size=3, sampler=many)
    assert len(next(iter(batches))) == 3
    rare = WeightedRandomSampler([0.0, 1.0, 0.0, 3.0, 0.0], 10**10)
    drawn = collections.Counter(itertools.islice(rare, 20000))
    assert set(drawn) == {1, 3} and abs(drawn[3] / 20000 - 0.75) < 0.02
    n = 20000
    wide = list(WeightedRandomSampler(np.arange(n), 2 * n))
    assert abs(np.mean(wide) / n - 2 / 3) < 0.01 and len(set(wide)) > n // 2
    assert sorted(WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False)) == [0, 1, 2]
    cotan.manual_seed(3)
    few = list(RandomSampler(range(50), replacement=True, num_samples=20))
    cotan.manual_seed(3)
    assert few == cotan.randint(50, (20,)).tolist()
    for weights, text in (([0.0, 0.0], "invalid multinomial distribution (sum of probabilities <= 0)"),
                          ([1.0, -1.0], "probability tensor contains either `inf`, `nan` or element < 0")):
        with pytest.raises(RuntimeError) as error:
            list(WeightedRandomSampler(weights, 2))
        assert str(error.value) == text
    for arguments, text in ((([[1.0]], 2), "weights should be a 1d sequence but given weights have shape (1, 1)"),
                            (([1.0], 2, 1), "replacement should be a boolean value, but got replacement=1")):
        with pytest.raises(ValueError) as error:
            WeightedRandomSampler(*arguments)
        assert str(error.value) == text


class Foreign:
    """Another library's tensor, by NumPy's protocol, by DLPack, or by both, as PyTorch's."""

    def __init__(self, array, protocols):
        if "a" in protocols:
            self.__class__ = type("Foreign", (Foreign,), {"__array__": lambda self, *args, **options: array})
        if "d" in protocols:
            self.__class__ = type("Foreign", (type(self),), {"__dlpack__": lambda self, **options: array.__dlpack__(),
                                                             "__dlpack_device__": lambda self: array.__dlpack_device__()})


@pytest.mark.parametrize("protocols", ["a", "d", "ad"])
def test_tensors_of_other_libraries_are_put_together(protocols):
    elements = [({"x": Foreign(X[i], protocols)}, i) for i in range(3)]
    batch = next(iter(DataLoader(elements, batch_size=3)))
    assert isinstance(batch[0]["x"], cotan.Tensor) and np.array_equal(batch[0]["x"].numpy(), X[:3]) and batch[1].tolist() == [0, 1, 2]
    mixed = default_collate([cotan.asarray(X[0]), Foreign(X[1], protocols)])
    assert np.array_equal(mixed.numpy(), X[:2])
    assert np.array_equal(default_collate([Foreign(X[0], protocols), cotan.asarray(X[1])]).numpy(), X[:2])
    one = next(iter(DataLoader(elements, batch_size=None)))
    assert np.array_equal(one[0]["x"].numpy(), X[0])


def test_containers_keep_their_types():
    ordered = collections.OrderedDict(a=1, b=2)
    assert isinstance(default_collate([ordered, ordered]), collections.OrderedDict)
    assert isinstance(default_convert(collections.defaultdict(list, a=np.ones(2))), collections.defaultdict)
    assert default_collate([np.str_("a"), np.str_("b")]) == ["a", "b"] and default_convert("text") == "text"
    with pytest.raises(TypeError) as error:
        default_collate([np.array(["a"])])
    assert str(error.value) == "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <U1"


def test_elements_by_many_indices():
    class Many(Squares):
        def __getitems__(self, indices):
            asked.append(list(indices))
            return [self[i] for i in indices]

    asked = []
    batches = list(DataLoader(Subset(Many(), [5, 1, 3]), batch_size=2))
    assert [batch["y"].tolist() for batch in batches] == [[25, 1], [9]] and asked == [[5, 1], [3]]
    both = StackDataset(a=Many(), b=Squares())
    assert next(iter(DataLoader(both, batch_size=2)))["b"]["y"].tolist() == [0, 1] and asked[-1] == [0, 1]
    with pytest.raises(ValueError) as error:
        ConcatDataset([Squares(), Range(0, 1)])
    assert str(error.value) == "ConcatDataset does not support IterableDataset"
    with pytest.raises(TypeError) as error:
        list(ChainDataset([Range(0, 1), Squares()]))
    assert str(error.value) == "ChainDataset only supports IterableDataset"
