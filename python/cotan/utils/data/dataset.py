"""Datasets, by the path of torch.utils.data.dataset."""
from . import (ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset,  # noqa: F401
               random_split)
