"""Samplers, by the path of torch.utils.data.sampler."""
from . import (BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,  # noqa: F401
               WeightedRandomSampler)
