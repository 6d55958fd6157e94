"""cotan.utils.data: what comes, in which order, once each; workers give the same; errors come out of them."""
import collections
import threading
import time

import cotan
import numpy as np
import pytest
from cotan.utils.data import (BatchSampler, ConcatDataset, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler,
                              StackDataset, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler, default_collate,
                              get_worker_info, random_split)

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
