"""Loaders, by the path of torch.utils.data.dataloader."""
from . import DataLoader, default_collate, default_convert, get_worker_info  # noqa: F401


class _BaseDataLoaderIter:
    """The class of PyTorch's iterators over batches, to check against: here they are generators."""


_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter = (type(name, (_BaseDataLoaderIter,), {}) for name in (
    "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"))
