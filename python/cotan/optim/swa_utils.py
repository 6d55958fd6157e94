"""Averages of a model's weights over training, by the names of torch.optim.swa_utils."""
import itertools
import math
from copy import deepcopy

from .. import _core
from .._grad import no_grad
from ..nn.module import Module
from .lr_scheduler import LRScheduler

__all__ = ["AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
           "update_bn"]


def _check_decay(decay):
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _to_all(update):
    """Returns a function that writes update(average, current, number) to each of a list of averages."""
    def update_all(averages, currents, num_averaged):
        with no_grad():
            _core._write(list(averages), [update(old, new.detach(), num_averaged) for old, new in zip(averages, currents)])

    return update_all


def get_ema_avg_fn(decay=0.999):
    """Returns the update of an exponential moving average."""
    _check_decay(decay)
    return lambda average, current, num_averaged: decay * average + (1 - decay) * current


def get_swa_avg_fn():
    """Returns the update of the mean of all models so far."""
    return lambda average, current, num_averaged: average + (current - average) / (num_averaged + 1)


def get_ema_multi_avg_fn(decay=0.999):
    """Returns the update of exponential moving averages of a list of tensors, in place; integers take the current value."""
    moved = get_ema_avg_fn(decay)
    return _to_all(lambda average, current, n: moved(average, current, n) if current.is_floating_point() else current)


def get_swa_multi_avg_fn():
    """Returns the update of the means of a list of tensors, in place."""
    moved = get_swa_avg_fn()
    return _to_all(lambda average, current, n: _core.ops.cast(moved(average, current, n), average.dtype))


class AveragedModel(Module):
    """A copy of a model, as .module, whose parameters are averages of the model's at each update_parameters()."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _core.asarray(0))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _averaged(self, model):
        return list(itertools.chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters())

    def update_parameters(self, model):
        averages, currents = self._averaged(self.module), [one.detach() for one in self._averaged(model)]
        currents = [one._to(average._device_name()) for one, average in zip(currents, averages)]
        with no_grad():
            if self.n_averaged.item() == 0:
                _core._write(averages, currents)
            elif self.multi_avg_fn is not None:
                self.multi_avg_fn(averages, currents, self.n_averaged)
            elif self.avg_fn is not None:
                for average, current in zip(averages, currents):
                    average.copy_(self.avg_fn(average.detach(), current, self.n_averaged))
            else:
                get_swa_multi_avg_fn()(averages, currents, self.n_averaged)
            if not self.use_buffers:
                for own, other in zip(self.module.buffers(), model.buffers()):
                    own.copy_(other.detach())
            self.n_averaged += 1


def update_bn(loader, model, device=None):
    """Sets the running statistics of the model's batch norms to those of the loader's batches."""
    from ..nn.modules.batchnorm import _BatchNorm
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta, was_training = [norm.momentum for norm in norms], model.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
    model.train()
    with no_grad():
        for batch in loader:
            input = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(input if device is None else input.to(device))
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """The rate changes to swa_lr in anneal_epochs steps, along half a cosine or a line."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ValueError(f"swa_lr must have the same length as optimizer.param_groups: swa_lr has {len(rates)}, "
                             f"optimizer.param_groups has {len(groups)}")
        for rate, group in zip(rates, groups):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step):
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self):
        step = self._steps - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, share, rates = self._share(step - 1), self._share(step), []
        for group in self.optimizer.param_groups:
            swa = group["swa_lr"]
            start = swa if before == 1 else (group["lr"] - before * swa) / (1 - before)
            rates.append(swa * share + start * (1 - share))
        return rates
