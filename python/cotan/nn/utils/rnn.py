"""Sequences of several lengths: padded, packed, and back."""
from collections import namedtuple

from ... import _core
from ..._core import ops
from ..functional.base import concat

Tensor = _core.Tensor


class PackedSequence(namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])):
    """Packed sequences, step by step: data (elements, ...); batch_sizes (T,), the number of sequences that
    have step t."""

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)


    def to(self, *args, **kwargs):
        """Returns the sequences with their data converted or moved; the numbers stay on the CPU."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else type(self)(data, *self[1:])

    def cpu(self):
        return self.to("cpu")

    def cuda(self, device=None):
        return self.to("cuda" if device is None else device)

    def pin_memory(self):
        """Returns the sequences as they are: memory is not pinned."""
        return self

    def is_pinned(self):
        return False

    @property
    def is_cuda(self):
        return self.data.is_cuda

    double, float, half, bfloat16 = (lambda self, dtype=dtype: self.to(dtype) for dtype in (
        _core.float64, _core.float32, _core.float16, _core.bfloat16))
    long, int, short, char, byte = (lambda self, dtype=dtype: self.to(dtype) for dtype in (
        _core.int64, _core.int32, _core.int16, _core.int8, _core.uint8))


def invert_permutation(permutation):
    return None if permutation is None else ops.cast(ops.argsort(permutation, axis=0), _core.int64)


def _as_int_list(lengths):
    return [int(n) for n in (lengths.tolist() if hasattr(lengths, "tolist") else lengths)]


def _swap_batch_and_time(x):
    return ops.permute(x, (1, 0, *range(2, len(x.shape))))


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs input (T, N, ...) without the padding after each sequence's end."""
    lengths = _as_int_list(lengths)
    x = _swap_batch_and_time(input) if batch_first else input
    steps, batch = x.shape[0], x.shape[1]
    if len(lengths) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})")
    if min(lengths) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    order = sorted(range(batch), key=lambda i: -lengths[i])
    if enforce_sorted:
        if any(a < b for a, b in zip(lengths, lengths[1:])):
            raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                               "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
                               "requirement if you do not need ONNX exportability.")
        order = list(range(batch))
    sizes = [sum(n > t for n in lengths) for t in range(max(lengths))]
    rows = [t * batch + i for t, size in enumerate(sizes) for i in order[:size]]
    flat = ops.reshape(x, (steps * batch, *tuple(x.shape)[2:]))
    data = ops.gather(flat, _core.asarray(rows), axis=0)
    return PackedSequence(data, _core.asarray(sizes), None if enforce_sorted else _core.asarray(order))


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """Returns the sequences (T, N, ...) with padding after their ends, and their lengths (N,)."""
    sizes = _as_int_list(sequence.batch_sizes)
    steps, batch = len(sizes), sizes[0]
    if total_length is not None:
        if total_length < steps:
            raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but got "
                             f"total_length={total_length} and max sequence length being {steps}")
        sizes, steps = sizes + [0] * (total_length - steps), total_length
    place = list(range(batch)) if sequence.unsorted_indices is None else _as_int_list(sequence.unsorted_indices)
    starts = [sum(sizes[:t]) for t in range(steps)]
    rows = [starts[t] + place[i] if place[i] < sizes[t] else -1 for t in range(steps) for i in range(batch)]
    data = sequence.data
    x = ops.gather(data, _core.asarray([max(row, 0) for row in rows]), axis=0)
    here = ops.reshape(_core.asarray([row >= 0 for row in rows]), (-1,) + (1,) * (len(data.shape) - 1))
    x = ops.reshape(ops.select(here, x, ops.cast(padding_value, data.dtype)), (steps, batch, *tuple(data.shape)[1:]))
    lengths = _core.asarray([sum(place[i] < size for size in sizes) for i in range(batch)])
    return (_swap_batch_and_time(x) if batch_first else x), lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Pads tensors (L, ...) of several lengths to one (T, N, ...)."""
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side must be 'left' or 'right', not {padding_side!r}")
    longest, rows = max(x.shape[0] for x in sequences), []
    for x in sequences:
        rest = [0] * (len(x.shape) - 1)
        more = longest - x.shape[0]
        low, high = ([0, *rest], [more, *rest]) if padding_side == "right" else ([more, *rest], [0, *rest])
        rows.append(ops.reshape(ops.pad(x, ops.cast(padding_value, x.dtype), low=low, high=high),
                                (1, longest, *tuple(x.shape)[1:])))
    both = concat(rows, 0)  # (N, T, ...)
    return both if batch_first else _swap_batch_and_time(both)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """Returns the tensors of which pad_sequence was made."""
    x = padded_sequences if batch_first else _swap_batch_and_time(padded_sequences)
    return [ops.reshape(ops.slice(x, axes=(0, 1), start=(i, 0), stop=(i + 1, n)), (n, *tuple(x.shape)[2:]))
            for i, n in enumerate(_as_int_list(lengths))]


def pack_sequence(sequences, enforce_sorted=True):
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
