"""Connectionist temporal classification (Graves, Fernandez, Gomez, Schmidhuber: "Connectionist Temporal
Classification", ICML 2006, section 4.1): the probability of all alignments of the targets, with repetitions
and with blanks between them."""
from ... import _core
from ..._core import Tensor, ops
from .base import in_float32

__all__ = ["ctc_loss"]

NEVER = -1e30  # the logarithm of 0, such that its gradient is 0


def _check_lengths(name, lengths, count, most):
    import numpy

    found = numpy.asarray(lengths.tolist() if isinstance(lengths, Tensor) else lengths, dtype=numpy.int64).reshape(-1)
    if found.shape != (count,):
        raise ValueError(f"ctc_loss: {name} has {found.size} numbers, the batch has {count} elements")
    if found.size and (found.min() < 0 or most is not None and found.max() > most):
        raise ValueError(f"ctc_loss: {name} must be from 0 to {most}, one is {int(found.min() if found.min() < 0 else found.max())}")
    return found


def _pad_targets(targets, lengths):
    """Returns (N, S): the targets as they are, or split if they are concatenated."""
    import numpy

    rows = numpy.asarray(targets.tolist() if isinstance(targets, Tensor) else targets, dtype=numpy.int64)
    if rows.ndim == 2:
        if lengths.size and lengths.max() > rows.shape[1]:
            raise ValueError(f"ctc_loss: target_lengths must be from 0 to {rows.shape[1]}, one is {int(lengths.max())}")
        return rows
    if rows.ndim != 1 or rows.size < lengths.sum():
        raise ValueError(f"ctc_loss: the targets have shape {rows.shape}, they are (N, S), or one row of {int(lengths.sum())}")
    padded = numpy.zeros((lengths.size, int(lengths.max(initial=0))), dtype=numpy.int64)
    for i, (end, n) in enumerate(zip(lengths.cumsum(), lengths)):
        padded[i, :n] = rows[end - n:end]
    return padded


def _log_likelihood(log_probs, labels, skips, input_lengths, target_lengths):
    """Returns (N,) for log_probs (T, N, C), labels (N, L) with blanks between them, and skips (N, L), true
    where a blank may be skipped."""
    import numpy

    from ... import cat, logaddexp, logsumexp, scan, stack, take_along_dim
    n, places = labels.shape
    begins = _core.asarray(numpy.arange(places)[None, :] < 2)  # a blank, or the first label
    none = ops.cast(_core.full((n, 2), NEVER), log_probs.dtype)

    def step(alpha, now):
        row, time = now
        one = cat([none[:, :1], alpha[:, :-1]], 1)
        two = ops.select(skips, cat([none, alpha[:, :-2]], 1) if places > 1 else alpha, NEVER)
        moved = logsumexp(stack([alpha, one, two]), 0) + take_along_dim(row, labels, 1)
        first = ops.select(begins, take_along_dim(row, labels, 1), NEVER)
        moved = ops.select(ops.equal(time, 0), first, moved)
        return ops.select(ops.less(time, input_lengths)[:, None], moved, alpha), time

    start = ops.cast(_core.full((n, places), NEVER), log_probs.dtype)
    alpha, _ = scan(step, start, (log_probs, _core.asarray(numpy.arange(log_probs.shape[0]))))
    blank = 2 * target_lengths[:, None]
    last = take_along_dim(alpha, blank, 1)[:, 0]
    label = take_along_dim(alpha, ops.maximum(blank - 1, 0), 1)[:, 0]
    some = ops.select(ops.greater(target_lengths, 0), logaddexp(last, label), last)
    return ops.select(ops.greater(input_lengths, 0), some, ops.select(ops.equal(target_lengths, 0), 0.0, NEVER))


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """log_probs (T, N, C), or (T, C); targets (N, S), or concatenated; lengths (N,). "mean" divides each loss
    by its target's length, at least 1. Targets and lengths are read. (torch.nn.functional.ctc_loss)"""
    log_probs, = in_float32(log_probs)
    import numpy

    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs[:, None]
    if log_probs.ndim != 3:
        raise ValueError(f"ctc_loss: log_probs has shape {tuple(log_probs.shape)}, it must be (T, N, C) or (T, C)")
    steps, n, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise ValueError(f"ctc_loss: the blank is {blank}, the classes are 0 to {classes - 1}")
    given = _check_lengths("input_lengths", input_lengths, n, steps)
    lengths = _check_lengths("target_lengths", target_lengths, n, None)
    rows = _pad_targets(targets[None] if single and getattr(targets, "ndim", 2) == 1 else targets, lengths)
    inside = rows[numpy.arange(rows.shape[1]) < lengths[:, None]] if rows.size else rows
    if inside.size and (inside.min() < 0 or inside.max() >= classes):
        raise ValueError(f"ctc_loss: targets must be from 0 to {classes - 1}, one is {int(inside.min() if inside.min() < 0 else inside.max())}")
    labels = numpy.full((n, 2 * rows.shape[1] + 1), blank, dtype=numpy.int64)
    labels[:, 1::2] = numpy.clip(rows, 0, classes - 1)
    skips = numpy.zeros(labels.shape, dtype=bool)
    skips[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    loss = -_log_likelihood(log_probs, *map(_core.asarray, (labels, skips, given, lengths)))
    impossible = ops.greater(loss, -NEVER / 2)
    loss = ops.select(impossible, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "mean":
        return (loss / ops.cast(_core.asarray(numpy.maximum(lengths, 1)), loss.dtype)).mean()
    return loss.sum() if reduction == "sum" else loss[0] if single else loss
