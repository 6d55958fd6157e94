"""Samplers of several processes, by the path of torch.utils.data.distributed."""
import math

from ..._random import Generator, randperm
from . import Sampler


class DistributedSampler(Sampler):
    """Yields the indices of one of num_replicas processes: every num_replicas-th of all, from its rank on. In a
    group of one process, the default, that is all of them. shuffle draws a new order when set_epoch sets
    another epoch."""

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        self.num_replicas, self.rank = 1 if num_replicas is None else num_replicas, 0 if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]")
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        n = len(dataset)
        self.num_samples = n // self.num_replicas if drop_last and n % self.num_replicas else math.ceil(n / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        n = len(self.dataset)
        indices = list(range(n))
        if self.shuffle:
            indices = randperm(n, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        if not self.drop_last and n:  # the first ones again, so that each process has as many
            indices *= math.ceil(self.total_size / n)
        return iter(indices[:self.total_size][self.rank::self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        self.epoch = epoch
