"""Datasets and loaders, by the names of torch.utils.data.

A loader of a TensorDataset takes a whole batch by one index; from any other dataset it gets elements one by
one, and default_collate makes batches of them. Workers are threads, which suits datasets that read files or
decode (waiting, and NumPy's computations, run in parallel with the training step); the order of batches is
the same as without workers. Each worker iterates over a copy of an IterableDataset, as processes do in
PyTorch.
"""
import bisect
import collections
import copy
import itertools
import math
from typing import Generic, TypeVar

from ... import _core, _random
from ..._core import Tensor, ops
from ..._reductions import cumsum
from ..._searching import searchsorted
from ..._shaping import stack
from . import _workers
from ._workers import get_worker_info

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset",
    "RandomSampler",
    "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
    "default_collate", "default_convert", "get_worker_info", "random_split"]

# -------------------------------------------------------------------------------------------- datasets


T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """A map-style dataset: subclasses have __getitem__ and __len__."""

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """An iterable dataset: subclasses have __iter__."""

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

    def __getitems__(self, indices):
        if isinstance(self.datasets, dict):
            columns = zip(*(_get_items(dataset, indices) for dataset in self.datasets.values()))
            return [dict(zip(self.datasets, row)) for row in columns]
        return list(zip(*(_get_items(dataset, indices) for dataset in self.datasets)))

    def __len__(self):
        return self._length


class ConcatDataset(Dataset[T]):
    """The elements of several datasets, one dataset after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: there must be at least one dataset")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ValueError("ConcatDataset does not support IterableDataset")
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
    """The elements of several iterable datasets, one dataset after the other."""

    def __init__(self, datasets):
        self.datasets = datasets

    def __iter__(self):
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise TypeError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self):
        return sum(len(dataset) for dataset in self.datasets)


class Subset(Dataset[T]):
    """The elements of a dataset at these indices."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices):
        return _get_items(self.dataset, [self.indices[i] for i in indices])

    def __len__(self):
        return len(self.indices)


def _get_items(dataset, indices):
    """Returns the elements at these indices, by one call if the dataset has a method for that."""
    items = getattr(dataset, "__getitems__", None)
    return [dataset[i] for i in indices] if items is None else items(indices)


def random_split(dataset, lengths, generator=None):
    """Returns subsets of these lengths (or fractions that add up to 1), of randomly drawn elements."""
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

_DRAWS_AT_ONCE = 4096  # the number of draws at once, for samplers that may have any number of samples

class Sampler(Generic[T]):
    """Yields indices, in the order in which elements are taken."""

    def __init__(self, data_source=None):
        pass

    def __iter__(self):
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler):
    """Yields all indices in order."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """Yields all elements in a random order; with replacement, or num_samples, as many as that."""

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        if num_samples is not None and (not isinstance(num_samples, int) or num_samples <= 0):
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        self.data_source, self.replacement, self.generator, self._num_samples = data_source, replacement, generator, num_samples

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n, left = len(self.data_source), self.num_samples
        while self.replacement and left > 0:
            yield from _random.randint(n, (min(left, _DRAWS_AT_ONCE),), generator=self.generator).tolist()
            left -= _DRAWS_AT_ONCE
        while left > 0:
            yield from _random.randperm(n, generator=self.generator).tolist()[:left]
            left -= n

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Yields these indices in a random order."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        return (self.indices[i] for i in _random.randperm(len(self.indices), generator=self.generator).tolist())

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Yields num_samples indices, drawn with these weights."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = ops.cast(_core.asarray(weights), _core.float64)
        if self.weights.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self):
        if self.replacement:
            return self._drawn()
        drawn = _random.multinomial(self.weights, self.num_samples, False, generator=self.generator).tolist()
        if -1 in drawn:
            raise RuntimeError(f"WeightedRandomSampler: {drawn.index(-1)} of {self.num_samples} samples can be drawn of these "
                               "weights, which must be numbers of at least 0")
        return iter(drawn)

    def _drawn(self):
        """Returns positions in the cumulative weights of random numbers from 0 to their sum."""
        ends, left = cumsum(self.weights, 0), self.num_samples
        if not bool(ops.all(ops.and_(ops.is_finite(self.weights), self.weights >= 0))):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not float(ends[-1]) > 0:
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        while left > 0:
            size = (min(left, _DRAWS_AT_ONCE),)
            at = _random.rand(size, dtype=_core.float64, generator=self.generator)
            yield from searchsorted(ends, at * ends[-1], right=True).tolist()
            left -= _DRAWS_AT_ONCE

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Yields lists of batch_size indices of another sampler; the last one may be shorter, or is dropped."""

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

def _is_foreign(element):
    """True for an array or tensor of NumPy or another library."""
    return not isinstance(element, (Tensor, str, bytes)) and (hasattr(element, "__array__") or hasattr(element, "__dlpack__"))


def _convert_foreign(element):
    """Returns it as a NumPy array, or as a tensor if NumPy has no such dtype. Raises TypeError if its
    elements are no numbers."""
    import numpy
    try:
        array = numpy.asarray(element)
    except Exception:
        array = None
    if array is not None and array.dtype.kind in "biufc":
        return array
    if hasattr(element, "__dlpack__") and type(element).__module__ != "numpy":
        return _core.from_dlpack(element)
    found = type(element) if array is None else array.dtype
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {found}")


def _same_mapping(mapping, values):
    """Returns a mapping of the same type, with these values."""
    try:
        if isinstance(mapping, collections.abc.MutableMapping):
            made = copy.copy(mapping)
            made.update(values)
            return made
        return type(mapping)(values)
    except TypeError:  # the type cannot be constructed that way
        return values


def default_convert(element):
    """Converts arrays and tensors of other libraries to tensors, also inside containers."""
    if _is_foreign(element):
        try:
            return _core.asarray(_convert_foreign(element))
        except TypeError:
            return element
    if isinstance(element, collections.abc.Mapping):
        return _same_mapping(element, {key: default_convert(value) for key, value in element.items()})
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        return type(element)(*(default_convert(value) for value in element))
    if isinstance(element, (list, tuple)):
        return [default_convert(value) for value in element]
    return element


def default_collate(batch):
    """Collates elements: tensors (other libraries' too), arrays and numbers are stacked along a new first
    axis, containers are collated element by element, and strings become a list."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack([one if isinstance(one, Tensor) else _core.asarray(_convert_foreign(one)) for one in batch])
    if _is_foreign(first):
        import numpy
        parts = [one if isinstance(one, Tensor) else _convert_foreign(one) for one in batch]
        if any(isinstance(one, Tensor) for one in parts):
            return stack([_core.asarray(one) for one in parts])
        return _core.asarray(numpy.stack(parts))  # copies, since a dataset may use its memory again
    if isinstance(first, float):
        return _core.asarray(batch, dtype=_core.float64)
    if isinstance(first, int):
        return _core.asarray(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return _same_mapping(first, {key: default_collate([element[key] for element in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(parts)) for parts in zip(*batch)))
    if isinstance(first, (list, tuple)):
        if any(len(element) != len(first) for element in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(list(parts)) for parts in zip(*batch)]
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                    f"{type(first)}")


class DataLoader(Generic[T]):
    """The batches of a dataset, once for each `for` loop over it.

    shuffle takes the elements in a new random order each time (drawn by generator). With num_workers, batches
    are made in that many threads, each prefetch_factor batches ahead. Each worker has a copy of the dataset,
    get_worker_info().dataset, which shares what it holds except other datasets; for an IterableDataset a
    worker returns the batches of its own copy, and the workers take turns. persistent_workers keeps the
    copies from loop to loop, and calls worker_init_fn once. pin_memory and multiprocessing_context are
    ignored, and batches are always in_order.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
                 pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, *,
                 prefetch_factor=None, persistent_workers=False, pin_memory_device="", in_order=True):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                             "multiprocessing, otherwise set prefetch_factor to None.")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if num_workers == 0 and persistent_workers:
            raise ValueError("persistent_workers option needs num_workers > 0")
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
        self.worker_init_fn, self.generator = worker_init_fn, generator
        self.prefetch_factor = (prefetch_factor or 2) if num_workers else None  # what another loader can be given
        self.pin_memory, self.persistent_workers, self.in_order = pin_memory, persistent_workers, in_order
        self.multiprocessing_context, self.pin_memory_device = multiprocessing_context, pin_memory_device
        self._workers, self._loops = None, 0
        self.batch_size = None if batch_sampler is not None else batch_size
        if sampler is None and not self._iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None and not self._iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self._batched = batch_sampler is not None or batch_size is not None
        # A subclass may return other elements than the rows, so it is asked for each element.
        self._whole = collate_fn is None and self._batched and type(dataset) is TensorDataset
        self.collate_fn = collate_fn or (default_collate if self._batched else default_convert)

    def __len__(self):
        if self._iterable:
            n = len(self.dataset)
            return n if self.batch_size is None else n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        return len(self.batch_sampler if self._batched else self.sampler)

    def __iter__(self):
        if self._iterable and self.num_workers:
            return _workers.of_streams(self._of_workers(), self._seed(), self._batches, self.prefetch_factor, self.timeout)
        if self._iterable:
            return self._batches(self.dataset)
        indices = iter(self.batch_sampler if self._batched else self.sampler)
        if self.num_workers and not self._whole:  # otherwise there is nothing to wait for
            return _workers.of_indices(self._of_workers(), self._seed(), indices, self._fetch, self.prefetch_factor, self.timeout)
        return (self._fetch(self.dataset, index) for index in indices)

    def _of_workers(self):
        workers = self._workers
        if workers is None:
            workers = _workers.Workers(self.dataset, lambda one: isinstance(one, Dataset), self.num_workers, self.worker_init_fn)
        self._workers = workers if self.persistent_workers else None
        return workers

    def _seed(self):
        """Returns the first worker's seed, which is different in each loop. Nothing is drawn, so batches are
        the same as without workers."""
        seed, count = (self.generator or _random.default_generator).position()
        self._loops += 1
        return (seed + 0x9E3779B97F4A7C15 * (count + self._loops)) % (1 << 63)

    def _fetch(self, dataset, index):
        """Returns the batch of these indices (or the element of one index)."""
        if not self._batched:
            return self.collate_fn(dataset[index])
        if self._whole:
            return [tensor[index] for tensor in dataset.tensors]
        return self.collate_fn(_get_items(dataset, index))

    def _batches(self, dataset):
        elements = iter(dataset)
        if self.batch_size is None:
            for element in elements:
                yield self.collate_fn(element)
            return
        while batch := list(itertools.islice(elements, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)


from .distributed import DistributedSampler  # noqa: E402, F401
