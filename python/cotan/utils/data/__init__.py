"""Datasets and loaders, by the names of torch.utils.data.

A loader of a TensorDataset takes a whole batch by one index; any other dataset is asked for its elements one by one, and
default_collate puts them together. Workers are threads, which serves datasets that read files or decode (what waits, and what
NumPy computes, runs beside the training step); batches come in the same order as without.
"""
import bisect
import collections
import itertools
import math
import queue
import threading
from typing import Generic, TypeVar

from ... import _core, _random
from ..._core import Tensor
from ..._shaping import stack

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "RandomSampler", "Sampler",
    "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
    "default_collate", "default_convert", "get_worker_info", "random_split"]

# -------------------------------------------------------------------------------------------- datasets


T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Elements by number: subclasses have __getitem__ and __len__."""

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Elements as they come: subclasses have __iter__."""

    def __iter__(self):
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other):
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Element i is the tuple of the tensors' rows i."""

    def __init__(self, *tensors):
        if any(len(tensor) != len(tensors[0]) for tensor in tensors):
            raise ValueError(f"TensorDataset: the tensors have {', '.join(str(len(tensor)) for tensor in tensors)} rows, they must have as "
                             "many")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


class StackDataset(Dataset):
    """Element i is the tuple, or the dict, of the datasets' elements i."""

    def __init__(self, *args, **kwargs):
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: it takes datasets, or datasets by name, and at least one")
        self.datasets = kwargs or args
        lengths = {len(dataset) for dataset in (kwargs.values() if kwargs else args)}
        if len(lengths) > 1:
            raise ValueError("Size mismatch between datasets")
        self._length, = lengths

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __len__(self):
        return self._length


class ConcatDataset(Dataset[T]):
    """The elements of several datasets, one dataset behind the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: there must be at least one dataset")
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"ConcatDataset: element {index} is asked for, there are {n}")
        index %= n
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset):
    """The elements of several iterable datasets, one dataset behind the other."""

    def __init__(self, datasets):
        self.datasets = datasets

    def __iter__(self):
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self):
        return sum(len(dataset) for dataset in self.datasets)


class Subset(Dataset[T]):
    """The elements of a dataset that stand at these indices."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Subsets of these lengths (or shares that add up to 1), of elements drawn at random."""
    n, lengths = len(dataset), list(lengths)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= share <= 1 for share in lengths):
            raise ValueError(f"random_split: the shares {lengths} must be from 0 to 1")
        lengths = [math.floor(n * share) for share in lengths]
        for i in range(n - sum(lengths)):
            lengths[i % len(lengths)] += 1
    if sum(lengths) != n:
        raise ValueError(f"random_split: the lengths {lengths} make {sum(lengths)}, the dataset has {n}")
    order = _random.randperm(n, generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - length:end]) for end, length in zip(ends, lengths)]


# -------------------------------------------------------------------------------------------- samplers

class Sampler(Generic[T]):
    """Indices, in the order in which elements are taken."""

    def __init__(self, data_source=None):
        pass

    def __iter__(self):
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler):
    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """All elements in a random order; with replacement, or num_samples, as many as that."""

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        if num_samples is not None and (not isinstance(num_samples, int) or num_samples <= 0):
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        self.data_source, self.replacement, self.generator, self._num_samples = data_source, replacement, generator, num_samples

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n, left = len(self.data_source), self.num_samples
        if self.replacement:
            yield from _random.randint(n, (left,), generator=self.generator).tolist()
            return
        while left > 0:
            yield from _random.randperm(n, generator=self.generator).tolist()[:left]
            left -= n

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        return (self.indices[i] for i in _random.randperm(len(self.indices), generator=self.generator).tolist())

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """num_samples indices, each as likely as its weight."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        self.weights, self.num_samples = _core.asarray(weights), num_samples
        self.replacement, self.generator = replacement, generator

    def __iter__(self):
        drawn = _random.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()
        if -1 in drawn:
            raise RuntimeError(f"WeightedRandomSampler: {drawn.index(-1)} of {self.num_samples} samples can be drawn of these "
                               "weights, which must be numbers of at least 0")
        return iter(drawn)

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of batch_size indices of another sampler; the last one may be shorter, or is left out."""

    def __init__(self, sampler, batch_size, drop_last):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        elements = iter(self.sampler)
        while batch := list(itertools.islice(elements, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


# --------------------------------------------------------------------------------------------- batches

def default_convert(element):
    """NumPy's arrays as tensors, in whatever containers."""
    if type(element).__module__ == "numpy" and hasattr(element, "dtype") and element.dtype.kind in "biufc":
        return _core.asarray(element)
    if isinstance(element, collections.abc.Mapping):
        return {key: default_convert(value) for key, value in element.items()}
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        return type(element)(*(default_convert(value) for value in element))
    if isinstance(element, (list, tuple)):
        return [default_convert(value) for value in element]
    return element


def default_collate(batch):
    """Elements put together: tensors, arrays and numbers along a new first axis, containers element by element, strings as a
    list."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if type(first).__module__ == "numpy" and hasattr(first, "dtype"):
        if first.dtype.kind not in "biufc":
            raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {first.dtype}")
        import numpy
        return _core.asarray(numpy.stack(batch))
    if isinstance(first, float):
        return _core.asarray(batch, dtype=_core.float64)
    if isinstance(first, int):
        return _core.asarray(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return {key: default_collate([element[key] for element in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(parts)) for parts in zip(*batch)))
    if isinstance(first, (list, tuple)):
        if any(len(element) != len(first) for element in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(list(parts)) for parts in zip(*batch)]
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                    f"{type(first)}")


WorkerInfo = collections.namedtuple("WorkerInfo", "id num_workers seed dataset")
_worker = threading.local()


def get_worker_info():
    """Inside of a worker its id, the number of workers, its seed and dataset; else None."""
    return getattr(_worker, "info", None)


class DataLoader(Generic[T]):
    """The batches of a dataset, once for each `for` loop over it.

    shuffle takes the elements in a new random order each time (generator draws it). With num_workers batches are made in as
    many threads, prefetch_factor batches ahead each. pin_memory and multiprocessing_context mean nothing here.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
                 pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, *,
                 prefetch_factor=None, persistent_workers=False, pin_memory_device=""):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle, sampler and batch_sampler options")
        if batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        self.dataset, self.num_workers, self.timeout, self.drop_last = dataset, num_workers, timeout, drop_last
        self.worker_init_fn, self.generator, self.prefetch_factor = worker_init_fn, generator, prefetch_factor or 2
        self.pin_memory, self.persistent_workers = pin_memory, persistent_workers
        self.batch_size = None if batch_sampler is not None else batch_size
        if sampler is None and not self._iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None and not self._iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self._batched = batch_sampler is not None or batch_size is not None
        # A subclass may make other elements of the rows, and is asked for each.
        self._whole = collate_fn is None and self._batched and type(dataset) is TensorDataset
        self.collate_fn = collate_fn or (default_collate if self._batched else default_convert)

    def __len__(self):
        if self._iterable:
            n = len(self.dataset)
            return n if self.batch_size is None else n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        return len(self.batch_sampler if self._batched else self.sampler)

    def __iter__(self):
        if self._iterable:
            return self._of_stream()
        indices = iter(self.batch_sampler if self._batched else self.sampler)
        return self._by_workers(indices) if self.num_workers else (self._fetch(index) for index in indices)

    def _fetch(self, index):
        """The batch of these indices (or the element of one)."""
        if not self._batched:
            return self.collate_fn(self.dataset[index])
        if self._whole:
            return [tensor[index] for tensor in self.dataset.tensors]
        if hasattr(self.dataset, "__getitems__"):
            return self.collate_fn(self.dataset.__getitems__(index))
        return self.collate_fn([self.dataset[i] for i in index])

    def _of_stream(self):
        elements = iter(self.dataset)
        if self.batch_size is None:
            for element in elements:
                yield self.collate_fn(element)
            return
        while batch := list(itertools.islice(elements, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)

    def _by_workers(self, indices):
        if self._whole:  # there is nothing to wait for
            yield from (self._fetch(index) for index in indices)
            return
        wanted, ready, stop = queue.Queue(), {}, threading.Event()
        changed = threading.Condition()
        seed = (self.generator or _random.default_generator).initial_seed()

        def work(number):
            _worker.info = WorkerInfo(number, self.num_workers, seed + number, self.dataset)
            try:
                if self.worker_init_fn:
                    self.worker_init_fn(number)
            except BaseException as error:
                stop.failure = error
            while not stop.is_set():
                order, index = wanted.get()
                if index is None:
                    return
                try:
                    batch = self._fetch(index)
                    _core.eval()  # here, beside the loop, and not when the loop looks at it
                    made = (batch, getattr(stop, "failure", None))
                except BaseException as error:  # it is raised in the loop, where it belongs
                    made = (None, error)
                with changed:
                    ready[order] = made
                    changed.notify_all()

        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(self.num_workers)]
        for thread in threads:
            thread.start()
        numbered, asked, given = enumerate(indices), 0, 0
        try:
            while True:
                for order, index in itertools.islice(numbered, self.num_workers * self.prefetch_factor - (asked - given)):
                    wanted.put((order, index))
                    asked += 1
                if given == asked:
                    return
                with changed:
                    if not changed.wait_for(lambda: given in ready, self.timeout or None):
                        raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds")
                    batch, error = ready.pop(given)
                if error is not None:
                    raise error
                given += 1
                yield batch
        finally:
            stop.set()
            for _ in threads:
                wanted.put((None, None))
